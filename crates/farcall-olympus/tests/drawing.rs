//! Tests the positions of a drawing, and its pictures.
#![allow(missing_docs)]

use std::collections::HashSet;

use farcall_olympus::draw::{NODE_HEIGHT, NODE_WIDTH, PLACE_RADIUS, arrange, svg};
use farcall_olympus::model::{Graph, Input, InputKind, Node, Output, Place, PlaceId, Position};

fn take(place: u32) -> Input {
    Input { place: PlaceId(place), weight: 1, kind: InputKind::Take, variable: None }
}

fn put(place: u32) -> Output {
    Output { place: PlaceId(place), weight: 1, value: None, condition: None, exception: None }
}

/// Returns a graph in which node `n` leads from place `n` to some later places, and sometimes back.
fn workflow(size: u32) -> Graph {
    let mut random = 7_u32;
    let mut below = move |bound: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % bound
    };
    let places = (0..=size).map(|at| Place { name: format!("p{at}"), ..Place::default() }).collect();
    let nodes = (0..size).map(|at| {
        let mut outputs = vec![put((at + 1 + below(20)).min(size))];
        if below(3) == 0 {
            outputs.push(put((at + 1 + below(40)).min(size)));
        }
        if below(50) == 0 {
            outputs.push(put(below(at + 1)));
        }
        Node { name: format!("n{at}"), inputs: vec![take(at)], outputs, ..Node::default() }
    });
    Graph { places, nodes: nodes.collect(), ..Graph::default() }
}

/// Asserts that everything has a position, and that no two items overlap.
fn assert_apart(graph: &Graph) {
    let places = graph.places.iter().map(|place| (place.at.unwrap(), 2 * PLACE_RADIUS, 2 * PLACE_RADIUS));
    let nodes = graph.nodes.iter().map(|node| (node.at.unwrap(), NODE_WIDTH, NODE_HEIGHT));
    let mut items: Vec<(Position, i32, i32)> = places.chain(nodes).collect();
    items.sort_by_key(|(at, ..)| (at.x, at.y));
    for (index, (one, width, height)) in items.iter().enumerate() {
        for (other, other_width, other_height) in &items[index + 1..] {
            if other.x - one.x >= NODE_WIDTH {
                break;
            }
            let is_beside = other.x - one.x >= (width + other_width) / 2;
            let is_below = (other.y - one.y).abs() >= (height + other_height) / 2;
            assert!(is_beside || is_below, "{one:?} and {other:?} overlap");
        }
    }
}

#[test]
fn a_chain_leads_from_the_left_to_the_right() {
    let places = vec![Place::default(); 3];
    let nodes = vec![
        Node { inputs: vec![take(0)], outputs: vec![put(2)], ..Node::default() },
        Node { inputs: vec![take(2)], outputs: vec![put(1)], ..Node::default() },
    ];
    let mut graph = Graph { places, nodes, ..Graph::default() };
    arrange(&mut graph);
    let at = |place: usize| graph.places[place].at.unwrap();
    assert!(at(0).x < at(2).x && at(2).x < at(1).x);
    assert!(at(0).y == at(2).y && at(2).y == at(1).y);
    assert_apart(&graph);
}

#[test]
fn items_do_not_overlap_in_graphs_of_any_size() {
    for size in [1, 2, 10, 100, 5_000] {
        let mut graph = workflow(size);
        arrange(&mut graph);
        assert_apart(&graph);
    }
    let mut wide = workflow(0);
    wide.places = vec![Place::default(); 1000];
    wide.nodes = vec![Node { outputs: (0..900).map(put).collect(), ..Node::default() }];
    arrange(&mut wide);
    assert_apart(&wide);
}

#[test]
fn positions_that_are_given_stay() {
    let mut graph = workflow(100);
    arrange(&mut graph);
    let whole = graph.clone();
    for item in (0..100).step_by(7) {
        graph.places[item].at = None;
        graph.nodes[item].at = None;
    }
    let kept: Vec<_> = graph.places.iter().map(|place| place.at).collect();
    arrange(&mut graph);
    assert_apart(&graph);
    assert!(graph.places.iter().zip(kept).all(|(place, kept)| kept.is_none() || place.at == kept));
    let same = graph.clone();
    arrange(&mut graph);
    assert_eq!(graph, same, "nothing is left to do");
    assert_eq!(whole.places.len(), graph.places.len());
    let corner = Position { x: i32::MAX, y: i32::MIN };
    graph.places[0].at = Some(corner);
    graph.places[1].at = None;
    arrange(&mut graph);
    assert_eq!(graph.places[0].at, Some(corner));
}

#[test]
fn pictures_have_texts_only_as_text() {
    let mut graph = workflow(3);
    let harm = "</text><script>alert(1)</script>\u{1}\"";
    graph.name = harm.into();
    graph.places[0].label = harm.into();
    graph.nodes[0].name = harm.into();
    graph.nodes[0].outputs[0].exception = Some(harm.into());
    graph.nodes[0].guard = Some("\"<b>\" != \"&\"".parse().unwrap());
    let picture = svg(&graph, None);
    let mut elements = HashSet::new();
    let mut reader = quick_xml::Reader::from_str(&picture);
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(start) | quick_xml::events::Event::Empty(start) => {
                elements.insert(start.name().as_ref().to_owned());
            }
            _ => {}
        }
    }
    assert!(!elements.contains("script") && !elements.contains("b"), "{elements:?}");
    assert!(!picture.contains('\u{1}'));
}

#[test]
fn pictures_show_tokens() {
    let mut graph = workflow(1);
    graph.places[0].tokens = vec![1.into(), 2.into()];
    assert_eq!(svg(&graph, None).matches("class=\"token\"").count(), 2);
    let now = svg(&graph, Some(&[0, 1_000_000]));
    assert!(!now.contains("class=\"token\"") && now.contains(">1000000</text>"), "{now}");
    assert!(svg(&Graph::default(), None).starts_with("<svg "));
}
