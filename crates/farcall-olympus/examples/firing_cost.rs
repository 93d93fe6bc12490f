//! Begins and ends firings of a ring of plain nodes, to be counted: `valgrind --tool=callgrind`.
//!
//! `firing_cost [FIRINGS [NODES [TOKENS]]]`: with one token each firing enables the next node; with many, all
//! stay enabled.

use std::sync::Arc;
use std::time::Duration;

use farcall_olympus::interpreter::{Ended, Interpreter};
use farcall_olympus::model::{Graph, Input, InputKind, Node, Output, Place, PlaceId};
use farcall_olympus::rules::Rules;
use serde_json::Value;

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|count| count.parse::<u32>().ok());
    let mut firings = number(1).unwrap_or(1_000_000);
    let graph = Arc::new(ring(number(2).unwrap_or(16).max(1), number(3).unwrap_or(1)));
    let mut interpreter = Interpreter::new(graph, Rules::standard(), 0).expect("a graph");
    while firings > 0
        && let Some(firing) = interpreter.begin(Duration::ZERO)
    {
        let id = firing.id;
        interpreter.end(id, Ended::Returned(Value::Null)).expect("it is under way");
        firings -= 1;
    }
    println!("{:?}", interpreter.marking().counts());
}

/// A ring of places and nodes with tokens in the first place.
fn ring(nodes: u32, tokens: u32) -> Graph {
    let mut graph = Graph { name: "ring".into(), ..Graph::default() };
    for at in 0..nodes {
        let tokens = if at == 0 { vec![Value::Null; tokens as usize] } else { Vec::new() };
        graph.places.push(Place { name: format!("p{at}"), tokens, ..Place::default() });
        let input = Input { place: PlaceId(at), weight: 1, kind: InputKind::Take, variable: None };
        let next = PlaceId((at + 1) % nodes);
        let output = Output { place: next, weight: 1, value: None, condition: None, exception: None };
        graph.nodes.push(Node {
            name: format!("n{at}"),
            inputs: vec![input],
            outputs: vec![output],
            ..Node::default()
        });
    }
    graph
}
