//! The text format: what is printed reads as the same graph, and no text makes the reader panic.

mod graphs;

use std::time::Duration;

use farcall_olympus::expression::{Expression, MAX_DEPTH, NoVariables};
use farcall_olympus::model::{Graph, Node};
use farcall_olympus::text::{self, Document};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_graph_reads_as_the_same_graph(graph in graphs::graph()) {
        let printed = text::print(&graph);
        let read = text::parse("printed.olympus", &printed);
        prop_assert!(read.is_ok(), "{}\n{}", read.unwrap_err(), printed);
        let read = read.unwrap();
        prop_assert_eq!(&read, &graph, "{}", printed);
        prop_assert_eq!(text::print(&read), printed);
    }

    #[test]
    fn a_graph_in_json_reads_as_the_same_graph(graph in graphs::graph()) {
        let json = serde_json::to_string(&graph).unwrap();
        let read: Graph = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(read, graph);
    }

    #[test]
    fn every_time_up_to_the_longest_is_exact(nanos in any::<u64>(), short in 0u64..10_000_000) {
        for nanos in [nanos, short, u64::MAX - short] {
            let node = Node { name: "n".into(), after: Some(Duration::from_nanos(nanos)), ..Node::default() };
            let graph = Graph { nodes: vec![node], ..Graph::default() };
            let json = serde_json::to_string(&graph).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Graph>(&json).unwrap(), &graph, "{}", json);
            prop_assert_eq!(&text::parse("time", &text::print(&graph)).unwrap(), &graph);
        }
    }

    #[test]
    fn a_printed_expression_reads_as_the_same_expression(expression in graphs::expression()) {
        let again: Expression = expression.to_string().parse().unwrap();
        prop_assert_eq!(&again, &expression);
        prop_assert_eq!(again.to_string(), expression.to_string());
    }

    #[test]
    fn a_constant_is_the_expression_of_its_value(value in graphs::value()) {
        let expression = Expression::constant(&value).unwrap();
        prop_assert_eq!(expression.evaluate(&NoVariables).unwrap(), value);
    }

    #[test]
    fn random_text_is_read_or_refused(text in any::<String>(), soup in graphs::soup()) {
        for text in [text, soup] {
            if let Ok(document) = Document::parse("random", &text) {
                prop_assert_eq!(text::parse("again", &text::print(&document.graph)).ok(), Some(document.graph));
            }
            if let Ok(expression) = text.parse::<Expression>() {
                let _ = expression.evaluate(&NoVariables);
                prop_assert_eq!(expression.to_string().parse::<Expression>().ok(), Some(expression));
            }
        }
    }

    #[test]
    fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Err(errors) = text::parse("random", &text) {
            let (lines, shown) = (text.split('\n').count(), errors.to_string());
            prop_assert!(errors.iter().all(|error| (1..=lines).contains(&error.line()) && error.column() > 0));
            prop_assert!(shown.contains("error"));
        }
        let _ = text.parse::<Expression>();
    }

    #[test]
    fn a_graph_with_a_changed_byte_is_read_or_refused(
        graph in graphs::graph(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = text::print(&graph).into_bytes();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Err(errors) = text::parse("changed", &text) {
            let _ = (errors.to_string(), errors.coloured());
        }
    }
}

#[test]
fn depth_is_bounded_in_every_direction() {
    let nested = |open: &str, close: &str, levels: usize| open.repeat(levels) + "1" + &close.repeat(levels);
    for (open, close) in
        [("[", "]"), ("(", ")"), ("{\"a\": ", "}"), ("!", ""), ("- ", ""), ("len(", ")"), ("1 + (", ")")]
    {
        assert!(nested(open, close, MAX_DEPTH / 2 - 2).parse::<Expression>().is_ok(), "{open}");
        assert!(nested(open, close, 100_000).parse::<Expression>().is_err(), "{open}");
    }
    for chain in [" + 1", " && true", ".a", "[0]"] {
        assert!(("x".to_owned() + &chain.repeat(MAX_DEPTH - 2)).parse::<Expression>().is_ok(), "{chain}");
        assert!(("x".to_owned() + &chain.repeat(MAX_DEPTH)).parse::<Expression>().is_err(), "{chain}");
        assert!(("x".to_owned() + &chain.repeat(100_000)).parse::<Expression>().is_err(), "{chain}");
    }
}

#[test]
fn sizes_are_bounded() {
    let huge = "place p tokens 4000000000\n";
    let many = "place p tokens 1000000\nplace q tokens 1000000\n";
    for text in [huge, many, &"#".repeat(text::MAX_FILE_BYTES + 1)] {
        assert!(text::parse("large", text).is_err());
    }
    let errors = text::parse("errors", &"nonsense\n".repeat(1000)).unwrap_err();
    assert_eq!(errors.iter().count(), text::MAX_ERRORS);
}

#[test]
fn errors_show_the_line_and_the_column() {
    let cases = [
        ("place a\nplace a\n", 2, 7, "there are two places a"),
        ("place a\nnode a\n", 2, 6, "there is a place a already"),
        ("node n\n  in b\n", 2, 6, "there is no place b"),
        ("place a\nnode n\n  in a *0\n", 3, 9, "an arc moves from 1 to 1048576 tokens"),
        ("place a\nnode n\n  guard a +\n", 3, 12, "a value was expected here"),
        ("in a\n", 1, 1, "this line belongs to a node, but there is no line `node NAME` before it"),
        ("node n\n  after 1.5ns\n", 2, 9, "a time is a whole number of nanoseconds"),
        (
            "node n\n  after 18446744073709551616ns\n",
            2,
            9,
            "a time is at most 18446744073709551615ns, about 584 years",
        ),
        ("node n\n  after 10 ms\n", 2, 9, "a time was expected here, as 10ms, 1.5s, 2min or 1h"),
        ("place ä = [1, 2\n", 1, 16, "`,` or `]` was expected here"),
        ("node n\n  call A b [1] twice\n", 2, 16, "the end of the line was expected here"),
        (
            "plaice a\n",
            1,
            1,
            "graph, about, place, node, in, read, inhibit, out, guard, priority, after, join, split, call was \
             expected here",
        ),
    ];
    for (source, line, column, message) in cases {
        let errors = text::parse("case", source).unwrap_err();
        let error = errors.iter().next().unwrap();
        assert_eq!((error.line(), error.column(), error.message()), (line, column, message), "{source}");
    }
    let shown = text::parse("some.olympus", "place a\nnode n\n  in b as x\n").unwrap_err().to_string();
    let expected = "error: there is no place b\n --> some.olympus:3:6\n  |\n3 |   in b as x\n  |      ^";
    assert_eq!(shown, expected);
}

#[test]
fn findings_are_shown_where_they_are() {
    let source = "place a tokens 1\nplace b\nnode n\n  in a as x\n  guard y > 1\n  out b = x\n";
    let document = Document::parse("some.olympus", source).unwrap();
    let findings = farcall_olympus::check::check(&document.graph);
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    let shown = document.diagnostic(finding.location, &finding.message).to_string();
    let expected = "error: there is no variable y here; there is: x\n --> some.olympus:5:9\n  |\n5 |   guard y > 1\n  \
                    |         ^^^^^";
    assert_eq!(shown, expected);
}

#[test]
fn the_example_of_the_description_is_a_graph() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/olympus-format.md");
    let description = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> =
        description.split("```olympus\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let graph = text::parse("olympus-format.md", example).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(farcall_olympus::check::check(&graph), [], "{example}");
        assert_eq!(text::parse("printed", &text::print(&graph)).unwrap(), graph);
    }
    let table = description.split("| expression | value |").nth(1).unwrap();
    let mut rows = 0;
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let mut cells = row.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`']).replace("\\|", "|"));
        let (expression, value) = (cells.next().unwrap(), cells.next().unwrap());
        let computed = expression.parse::<Expression>().unwrap().evaluate(&NoVariables);
        let value: serde_json::Value = serde_json::from_str(&value).unwrap();
        assert_eq!(computed.unwrap(), value, "{expression}");
        rows += 1;
    }
    assert!(rows >= 10);
}
