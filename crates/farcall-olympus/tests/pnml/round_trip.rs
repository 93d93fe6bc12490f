//! Tests that a graph that is written is read again as it was.

use std::time::Duration;

use farcall_olympus::model::{
    Graph, Input, InputKind, Join, Node, Output, Place, PlaceId, Position, Procedure, Split,
};
use farcall_olympus::pnml::{read, write};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

/// Any text, often with what XML changes or cannot have.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9_]{0,5}",
        "[a-c]",
        ".{0,8}",
        "[ \r\n\t<>&\"'\u{0}\u{1}\u{7f}\u{85}\u{fffe}\\]]{0,6}",
        Just("]]>".to_owned()),
        Just("p1".to_owned()),
        Just("net1".to_owned()),
    ]
}

fn expression() -> impl Strategy<Value = farcall_olympus::expression::Expression> {
    let expressions = ["result", "x.y[0] + 1", "[x, {\"a<b\": \"&\"}]", "len(x) > 2 && x != \"\\u0000\""];
    prop::sample::select(Vec::from(expressions)).prop_map(|text| text.parse().unwrap())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((text(), inner), 0..3).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn position() -> impl Strategy<Value = Option<Position>> {
    option::of(any::<(i32, i32)>().prop_map(|(x, y)| Position { x, y }))
}

fn place() -> impl Strategy<Value = Place> {
    let tokens = vec(value(), 0..4);
    (text(), text(), option::of(text()), option::of(any::<u32>()), tokens, position())
        .prop_map(|(name, label, of, capacity, tokens, at)| Place { name, label, of, capacity, tokens, at })
}

fn procedure() -> impl Strategy<Value = Procedure> {
    (text(), option::of(text()), text(), option::of(expression()), any::<bool>()).prop_map(
        |(server, definition, name, arguments, idempotent)| Procedure {
            server,
            definition,
            name,
            arguments,
            idempotent,
        },
    )
}

fn input(places: u32) -> impl Strategy<Value = Input> {
    let kinds = [InputKind::Take, InputKind::Read, InputKind::Inhibit];
    let weight = prop_oneof![Just(1), 1..u32::MAX];
    (0..places, weight, prop::sample::select(Vec::from(kinds)), option::of(text()))
        .prop_map(|(place, weight, kind, variable)| Input { place: PlaceId(place), weight, kind, variable })
}

fn output(places: u32) -> impl Strategy<Value = Output> {
    let weight = prop_oneof![Just(1), 1..u32::MAX];
    (0..places, weight, option::of(expression()), option::of(expression()), option::of(text())).prop_map(
        |(place, weight, value, condition, exception)| Output {
            place: PlaceId(place),
            weight,
            value,
            condition,
            exception,
        },
    )
}

fn node(places: u32) -> impl Strategy<Value = Node> {
    let join = prop::sample::select(&[Join::All, Join::Any, Join::One][..]);
    let split = prop::sample::select(&[Split::All, Split::Any, Split::One][..]);
    let after = option::of((any::<u64>(), 0..1_000_000_000_u32));
    let arcs = (vec(input(places), 0..4), vec(output(places), 0..4));
    let firing = (option::of(expression()), any::<i32>(), after, option::of(procedure()));
    ((text(), text(), join, split), arcs, firing, position()).prop_map(
        |((name, label, join, split), (inputs, outputs), (guard, priority, after, call), at)| {
            let after = after.map(|(seconds, nanoseconds)| Duration::new(seconds, nanoseconds));
            Node { name, label, join, split, inputs, outputs, guard, priority, after, call, at }
        },
    )
}

fn graph() -> impl Strategy<Value = Graph> {
    let parts = vec(place(), 1..5).prop_flat_map(|places| {
        let nodes = vec(node(places.len() as u32), 0..4);
        (Just(places), nodes)
    });
    (text(), text(), parts).prop_map(|(name, about, (places, nodes))| Graph { name, about, places, nodes })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_written_graph_is_read_as_it_was(graph in graph()) {
        let document = write(&graph);
        let again = read(document.as_bytes());
        prop_assert_eq!(again.as_ref(), Ok(&graph), "{}", document);
    }
}

#[test]
fn an_empty_graph_is_read_as_it_was() {
    let graph = Graph::default();
    assert_eq!(read(write(&graph).as_bytes()), Ok(graph));
}

#[test]
fn what_another_tool_changes_in_the_standard_elements_holds() {
    let place = Place { name: "box".into(), tokens: vec![1.into(), 2.into()], ..Place::default() };
    let graph = Graph { name: "small".into(), places: vec![place], ..Graph::default() };
    let document = write(&graph);
    let with = |tokens: &str| {
        let marking = format!("<initialMarking><text>{tokens}</text>");
        let changed = document.replace("<initialMarking><text>2</text>", &marking);
        assert_ne!(changed == document, tokens != "2");
        read(changed.as_bytes()).unwrap().places.remove(0).tokens
    };
    assert_eq!(with("1"), [Value::from(1)]);
    assert_eq!(with("3"), [1.into(), 2.into(), Value::Null]);
}
