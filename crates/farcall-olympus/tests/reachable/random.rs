//! Makes small random nets: weights, capacities, all joins and splits, arcs that read and inhibit,
//! exceptions.

use farcall_olympus::model::{Graph, Input, InputKind, Join, Node, Output, Place, PlaceId, Procedure, Split};
use serde_json::Value;

/// The generator SplitMix64 (Steele, Lea & Flood 2014).
pub struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((((x ^ (x >> 31)) >> 32) * u64::from(bound)) >> 32) as u32
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// Makes the net of a seed. Most nets are bounded by their capacities; some are not.
pub fn graph(seed: u64) -> Graph {
    let random = &mut Random(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let mut graph = Graph { name: format!("random{seed}"), ..Graph::default() };
    for at in 0..2 + random.below(4) {
        let capacity = (!random.one_in(4)).then(|| 1 + random.below(3));
        let tokens = random.below(4).min(capacity.unwrap_or(3));
        graph.places.push(Place {
            name: format!("p{at}"),
            capacity,
            tokens: vec![Value::Null; tokens as usize],
            ..Place::default()
        });
    }
    for at in 0..1 + random.below(4) {
        let node = node(at, graph.places.len() as u32, random);
        graph.nodes.push(node);
    }
    graph
}

fn node(at: u32, places: u32, random: &mut Random) -> Node {
    let mut node = Node { name: format!("n{at}"), ..Node::default() };
    node.join = random.pick(&[Join::All, Join::All, Join::All, Join::Any, Join::One]);
    node.split = random.pick(&[Split::All, Split::All, Split::All, Split::Any, Split::One]);
    // Each input has a place of its own: SNAKES has one arc between a place and a transition.
    let mut left: Vec<u32> = (0..places).collect();
    let takes = if node.join == Join::All && random.one_in(12) { 0 } else { 1 + random.below(2) };
    let tests = if random.one_in(3) { 1 } else { 0 };
    for index in 0..(takes + tests).min(places) {
        let kind = match index < takes {
            true => InputKind::Take,
            false => random.pick(&[InputKind::Read, InputKind::Inhibit, InputKind::Inhibit]),
        };
        let place = PlaceId(left.swap_remove(random.below(left.len() as u32) as usize));
        node.inputs.push(Input { place, weight: weight(random), kind, variable: None });
    }
    // (But a node that joins all its inputs may take from one place by two arcs; we add their weights.)
    if node.join == Join::All && takes > 0 && random.one_in(8) {
        let again = Input { weight: weight(random), ..node.inputs[0].clone() };
        node.inputs.push(again);
    }
    if random.one_in(4) {
        node.call = Some(Procedure {
            server: "Server".into(),
            definition: None,
            name: "procedure".into(),
            arguments: None,
            idempotent: false,
        });
    }
    for _ in 0..random.below(4) {
        let mut output = Output {
            place: PlaceId(random.below(places)),
            weight: weight(random),
            value: None,
            condition: None,
            exception: None,
        };
        if node.call.is_some() && random.one_in(3) {
            output.exception = Some(random.pick(&["Full", "Late", "*"]).into());
        } else if node.split != Split::All && !random.one_in(3) {
            output.condition = "result.ok".parse().ok();
        }
        node.outputs.push(output);
    }
    node
}

fn weight(random: &mut Random) -> u32 {
    random.pick(&[1, 1, 1, 2, 2, 3])
}
