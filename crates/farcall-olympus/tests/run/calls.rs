//! Tests of runs whose calls succeed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcall_olympus::run::{Outcome, Pace, Settings};
use serde_json::json;

use super::common::{Worker, World, is_quiet, tokens, until};

#[test]
fn nodes_call_procedures_by_name_and_pass_their_results_on() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let graph = json!({
        "places": [
            { "name": "words", "tokens": ["a", "b", "c"] },
            { "name": "doubled" },
            { "name": "all" },
        ],
        "nodes": [
            {
                "name": "double",
                "in": [{ "place": 0, "as": "word" }],
                "call": { "server": "Work", "name": "twice", "arguments": "{\"text\": word}" },
                "out": [{ "place": 1, "value": "result" }],
            },
            {
                "name": "join",
                "in": [{ "place": 1, "weight": 3, "as": "words" }],
                "out": [{ "place": 2, "value": "len(words)" }],
            },
        ],
    });
    let run = world.run(&graph, Settings::default());
    is_quiet(&run);
    assert_eq!(tokens(&run, "all"), [3]);
    let counts = run.state().counts;
    assert_eq!((counts.begun, counts.ended, counts.under_way), (4, 4, 0));
}

#[test]
fn integers_of_64_bits_are_numbers_that_expressions_calculate_with() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let graph = json!({
        "places": [{ "name": "from", "tokens": [9_007_199_254_740_994_u64] }, { "name": "to" }],
        "nodes": [{
            "name": "next",
            "in": [{ "place": 0, "as": "n" }],
            "call": { "server": "Work", "name": "next", "arguments": "[n]" },
            "out": [{ "place": 1, "value": "[result, result == n + 1]" }],
        }],
    });
    let run = world.run(&graph, Settings::default());
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [json!([9_007_199_254_740_995_u64, true])]);
}

/// Every enabled firing is started at once, up to the bound.
#[test]
fn as_many_calls_are_under_way_as_the_bound_allows() {
    for bound in [1, 7, 64] {
        let world = World::new();
        let worker = Arc::new(Worker::default());
        let _export = world.export("Work/one", &worker);
        let numbers: Vec<u32> = (0..20).collect();
        let graph = json!({
            "places": [{ "name": "from", "tokens": numbers }, { "name": "to" }],
            "nodes": [{
                "name": "slow",
                "in": [{ "place": 0, "as": "n" }],
                "call": { "server": "Work", "name": "slow", "arguments": "[n]" },
                "out": [{ "place": 1, "value": "result" }],
            }],
        });
        let run = world.run(&graph, Settings { bound, ..Settings::default() });
        let wanted = bound.min(20) as u64;
        until(&run, "all are started", |state| state.counts.under_way == wanted);
        worker.gate.open();
        is_quiet(&run);
        assert!(worker.most.load(Ordering::SeqCst) as u64 <= wanted);
        assert_eq!(run.state().counts.ended, 20);
        assert_eq!(tokens(&run, "to").len(), 20);
    }
}

/// Calls end, and are followed by others, while nodes without procedures fire without end.
#[test]
fn calls_end_while_other_nodes_never_rest() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    worker.gate.open();
    let _export = world.export("Work/one", &worker);
    let graph = json!({
        "places": [{ "name": "ring", "tokens": [null] }, { "name": "number", "tokens": [7] }],
        "nodes": [
            { "name": "turn", "in": [{ "place": 0 }], "out": [{ "place": 0 }] },
            {
                "name": "call",
                "in": [{ "place": 1, "as": "n" }],
                "call": { "server": "Work/one", "name": "slow", "arguments": "[n]" },
                "out": [{ "place": 1, "value": "result" }],
            },
        ],
    });
    let run = world.run(&graph, Settings::default());
    until(&run, "many calls have ended", |state| state.nodes[1].ended >= 500);
    assert!(run.state().outcome.is_none() && run.state().nodes[0].ended > 500);
}

/// Of many firings a thousand are shown, and all are counted.
#[test]
fn a_thousand_of_many_firings_are_shown() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _export = world.export("Work/one", &worker);
    let graph = json!({
        "places": [
            { "name": "from", "tokens": (0..3000).collect::<Vec<_>>() },
            { "name": "other", "tokens": [1] },
        ],
        "nodes": [
            { "name": "timed", "in": [{ "place": 0 }], "after": "1h" },
            {
                "name": "slow",
                "in": [{ "place": 1, "as": "n" }],
                "call": { "server": "Work", "name": "slow", "arguments": "[n]" },
            },
        ],
    });
    let run = world.run(&graph, Settings { pace: Pace::Scaled(1.0), ..Settings::default() });
    until(&run, "all have begun", |state| state.counts.begun == 3001);
    let state = run.state();
    assert_eq!((state.counts.under_way, state.nodes[0].under_way, state.nodes[1].under_way), (3001, 3000, 1));
    assert_eq!(state.under_way.len(), 1000);
    assert!(state.under_way.is_sorted_by_key(|firing| firing.firing));
    assert!(state.under_way.iter().any(|firing| firing.name == "slow"));
    worker.gate.open();
}

#[test]
fn a_fast_clock_jumps_to_timed_nodes_in_their_order() {
    let world = World::new();
    let graph = json!({
        "places": [{ "name": "start", "tokens": [1, 2, 3] }, { "name": "end" }],
        "nodes": [
            {
                "name": "hour",
                "after": "1h",
                "in": [{ "place": 0, "as": "n" }],
                "out": [{ "place": 1, "value": "n" }],
            },
        ],
    });
    let run = world.run(&graph, Settings::default());
    is_quiet(&run);
    assert_eq!((tokens(&run, "end").len(), run.state().clock), (3, 3600.0));
}

#[test]
fn a_scaled_clock_runs_by_the_real_one() {
    let world = World::new();
    let graph = json!({
        "places": [{ "name": "start", "tokens": [null] }, { "name": "end" }],
        "nodes": [
            { "name": "hour", "after": "1h", "in": [{ "place": 0 }], "out": [{ "place": 1 }] },
        ],
    });
    let run = world.run(&graph, Settings { pace: Pace::Scaled(0.05 / 3600.0), ..Settings::default() });
    let before = std::time::Instant::now();
    assert_eq!(run.wait(), Outcome::Quiet);
    assert!(before.elapsed().as_millis() >= 40);
    assert!(run.state().clock >= 3600.0);
}

/// Calls of a type's name are balanced over its instances; those of an instance's name are not.
#[test]
fn a_type_is_called_at_all_its_instances() {
    for (server, least) in [("Work", 1), ("Work/b", 0)] {
        let world = World::new();
        let workers = ["Work/a", "Work/b"].map(|name| (name, Arc::new(Worker::default())));
        let _exports = workers.each_ref().map(|(name, worker)| world.export(name, worker));
        let words: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let graph = json!({
            "places": [{ "name": "words", "tokens": words }, { "name": "doubled" }],
            "nodes": [{
                "name": "double",
                "in": [{ "place": 0, "as": "word" }],
                "call": { "server": server, "name": "twice", "arguments": "[word]" },
                "out": [{ "place": 1, "value": "result" }],
            }],
        });
        let run = world.run(&graph, Settings { bound: 8, ..Settings::default() });
        is_quiet(&run);
        let [a, b] = workers.map(|(_, worker)| worker.begun.load(Ordering::SeqCst));
        assert!(a >= least && a + b == 200 && b > 0, "{a} + {b}");
    }
}
