//! Makes random graphs, expressions and texts for the tests of the format.

use std::time::Duration;

use farcall_olympus::expression::Expression;
use farcall_olympus::model::{
    Graph, Input, InputKind, Join, Node, Output, Place, PlaceId, Position, Procedure, Split,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use serde_json::Value;

/// Makes a JSON value.
pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter_map("finite", |float| serde_json::Number::from_f64(float).map(Value::Number)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Makes the text of an expression with all operators.
pub fn expression() -> impl Strategy<Value = Expression> {
    let name = "(x|result|error|idempotent|if|on|as|ä|_y1)";
    let leaf = prop_oneof![name, value().prop_map(|value| value.to_string())];
    let operator = "(\\|\\||&&|==|!=|<|<=|>|>=|\\+|-|\\*|/|%)";
    leaf.prop_recursive(5, 40, 3, move |inner| {
        prop_oneof![
            (inner.clone(), operator, inner.clone())
                .prop_map(|(left, sign, right)| format!("{left} {sign} {right}")),
            inner.clone().prop_map(|of| format!("({of})")),
            inner.clone().prop_map(|of| format!("!{of}")),
            inner.clone().prop_map(|of| format!("- {of}")),
            inner.clone().prop_map(|of| format!("len({of})")),
            inner.clone().prop_map(|of| format!("({of}).field")),
            (inner.clone(), inner.clone()).prop_map(|(of, at)| format!("({of})[{at}]")),
            vec(inner.clone(), 0..3).prop_map(|all| format!("[{}]", all.join(","))),
            inner.prop_map(|of| format!("{{a: {of}, \"b c\": 1}}")),
        ]
    })
    .prop_map(|text| text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// Makes a graph with names of any letters, which are all different.
pub fn graph() -> impl Strategy<Value = Graph> {
    let names = prop::collection::hash_set(name(), 8);
    let parts = (vec(place(), 1..5), vec(node(), 0..4));
    (name(), any::<String>(), names, parts).prop_map(|(name, about, names, (mut places, mut nodes))| {
        let mut names = names.into_iter();
        for place in &mut places {
            place.name = names.next().unwrap();
        }
        for node in &mut nodes {
            node.name = names.next().unwrap();
            let fit = |place: &mut PlaceId| place.0 %= places.len() as u32;
            node.inputs.iter_mut().for_each(|input| fit(&mut input.place));
            node.outputs.iter_mut().for_each(|output| fit(&mut output.place));
        }
        Graph { name, about, places, nodes }
    })
}

/// Makes a text of the format's words in no order.
pub fn soup() -> impl Strategy<Value = String> {
    let words = [
        "graph",
        "about",
        "place",
        "node",
        "in",
        "read",
        "inhibit",
        "out",
        "guard",
        "priority",
        "after",
        "join",
        "split",
        "call",
        "label",
        "at",
        "as",
        "if",
        "on",
        "tokens",
        "capacity",
        "any",
        "one",
        "idempotent",
        "file",
        "a",
        "b",
        "x.x",
        "=",
        "*",
        ":",
        ",",
        "#",
        "\"",
        "\"a\"",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        ".",
        "1",
        "-1",
        "1e9",
        "10ms",
        "\n",
        "\n",
        " ",
        "len(",
        "null",
        "true",
        "+",
        "&&",
        "!",
        "\\",
        "ä",
        "\r\n",
        "\t",
        "\u{2028}",
    ];
    let space = prop_oneof![4 => Just(" "), 1 => Just(""), 1 => Just("\n")];
    vec((prop::sample::select(words.to_vec()), space), 0..60)
        .prop_map(|words| words.into_iter().flat_map(|(word, space)| [word, space]).collect())
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z_][a-z0-9_.-]{0,6}",
        1 => "(in|as|file|tokens|at|if|on|idempotent|a:b|a=b|a\\*|b\\.x|\\*|#a)",
        1 => any::<String>().prop_filter("not empty", |name| !name.is_empty()),
    ]
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![name(), "(udp://10\\.0\\.0\\.7:7000/Builder|Builder/fast|notes\\.x|file|idempotent)"]
}

fn position() -> impl Strategy<Value = Option<Position>> {
    of((any::<i32>(), any::<i32>()).prop_map(|(x, y)| Position { x, y }))
}

fn place() -> impl Strategy<Value = Place> {
    let tokens = prop_oneof![vec(value(), 0..4), (0usize..5).prop_map(|count| vec![Value::Null; count])];
    (any::<String>(), of(word()), of(any::<u32>()), tokens, position()).prop_map(
        |(label, kind, capacity, tokens, at)| Place {
            name: String::new(),
            label,
            of: kind,
            capacity,
            tokens,
            at,
        },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let join = prop::sample::select(vec![Join::All, Join::Any, Join::One]);
    let split = prop::sample::select(vec![Split::All, Split::Any, Split::One]);
    let after =
        of((0u64..1 << 30, 0u32..1_000_000_000).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)));
    let arcs = (vec(input(), 0..4), vec(output(), 0..4));
    let more = (of(expression()), any::<i32>(), after, of(procedure()), position());
    (any::<String>(), join, split, arcs, more).prop_map(
        |(label, join, split, (inputs, outputs), (guard, priority, after, call, at))| Node {
            name: String::new(),
            label,
            join,
            split,
            inputs,
            outputs,
            guard,
            priority,
            after,
            call,
            at,
        },
    )
}

fn input() -> impl Strategy<Value = Input> {
    let kind = prop::sample::select(vec![InputKind::Take, InputKind::Read, InputKind::Inhibit]);
    (any::<u32>(), weight(), kind, of(name())).prop_map(|(place, weight, kind, variable)| Input {
        place: PlaceId(place),
        weight,
        kind,
        variable: variable.filter(|_| kind != InputKind::Inhibit),
    })
}

fn output() -> impl Strategy<Value = Output> {
    let exception = of(prop_oneof![word(), Just("*".to_owned())]);
    (any::<u32>(), weight(), of(expression()), of(expression()), exception).prop_map(
        |(place, weight, value, condition, exception)| Output {
            place: PlaceId(place),
            weight,
            value,
            condition,
            exception,
        },
    )
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(1), 1 => 2u32..100, 1 => Just(1 << 20)]
}

fn procedure() -> impl Strategy<Value = Procedure> {
    (word(), of(word()), word(), of(expression()), any::<bool>()).prop_map(
        |(server, definition, name, arguments, idempotent)| Procedure {
            server,
            definition,
            name,
            arguments,
            idempotent,
        },
    )
}
