//! Tests of the commands by which users control a run.

use std::sync::Arc;
use std::time::Duration;

use farcall_olympus::model::PlaceId;
use farcall_olympus::run::{Command, Pace, Settings};
use serde_json::{Value, json};

use super::common::{Worker, World, is_quiet, model, tokens, until};

fn moves(count: u64) -> Value {
    let numbers: Vec<u64> = (0..count).collect();
    json!({
        "places": [{ "name": "from", "tokens": numbers }, { "name": "to" }],
        "nodes": [{
            "name": "move",
            "in": [{ "place": 0, "as": "n" }],
            "out": [{ "place": 1, "value": "n" }],
        }],
    })
}

#[test]
fn a_paused_run_goes_on_step_by_step_and_its_marking_can_be_changed() {
    let world = World::new();
    let run = world.run(&moves(5), Settings { paused: true, ..Settings::default() });
    let (from, to) = (PlaceId(0), PlaceId(1));
    assert_eq!(run.wait_for(Duration::from_millis(20)), None);
    for step in 1..=2 {
        run.command(Command::Step).unwrap();
        until(&run, "a step", |state| state.counts.ended == step);
        assert_eq!(run.wait_for(Duration::from_millis(10)), None);
    }
    run.command(Command::Take { place: from, count: 1 }).unwrap();
    run.command(Command::Put { place: from, tokens: vec![json!("x"), json!("y")] }).unwrap();
    run.command(Command::Take { place: to, count: 1 }).unwrap();
    run.command(Command::Resume).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [json!("x"), json!("y"), json!(1), json!(3), json!(4)]);
    let refused = run.command(Command::Take { place: to, count: 1 }).unwrap_err();
    assert_eq!(refused.to_string(), "the run must be paused first");
    run.command(Command::Stop).unwrap();
    assert!(run.command(Command::Resume).is_err());
}

#[test]
fn a_step_begins_one_node_and_none_later_if_none_is_enabled() {
    let world = World::new();
    let run = world.run(&moves(1), Settings { pace: Pace::Step, ..Settings::default() });
    assert_eq!(run.wait_for(Duration::from_millis(20)), None);
    run.command(Command::Step).unwrap();
    is_quiet(&run);
    run.command(Command::Step).unwrap();
    is_quiet(&run);
    run.command(Command::Put { place: PlaceId(0), tokens: vec![json!(9)] }).unwrap();
    assert_eq!(run.wait_for(Duration::from_millis(20)), None);
    run.command(Command::Pace(Pace::Fast)).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [0, 9]);
    assert!(run.command(Command::Step).is_err());
    assert!(run.command(Command::Pace(Pace::Scaled(0.0))).is_err());
}

#[test]
fn changes_show_only_what_has_changed() {
    let world = World::new();
    let run = world.run(&moves(2), Settings::default());
    is_quiet(&run);
    let all = run.changes(0, Duration::ZERO);
    assert_eq!((all.places.len(), all.nodes.len(), all.edited), (2, 1, true));
    let none = run.changes(all.number, Duration::ZERO);
    assert_eq!((none.places.len(), none.nodes.len(), none.number), (0, 0, all.number));
    run.command(Command::Pause).unwrap();
    run.command(Command::Put { place: PlaceId(1), tokens: vec![json!(1)] }).unwrap();
    let some = run.changes(all.number, Duration::from_secs(60));
    assert_eq!((some.places.len(), some.places[0].count, some.nodes.len()), (1, 3, 0));
    assert!(some.paused && !some.edited);
}

/// An edit keeps the tokens of places that are renamed or moved; it is refused while it would lose any.
#[test]
fn a_graph_is_edited_while_it_is_paused() {
    let world = World::new();
    let run = world.run(&moves(2), Settings { paused: true, ..Settings::default() });
    let edited = json!({
        "places": [{ "name": "new", "tokens": ["n"] }, { "name": "to" }, { "name": "from" }],
        "nodes": [
            { "name": "other", "in": [{ "place": 0, "as": "n" }], "out": [{ "place": 1, "value": "n" }] },
            { "name": "move", "in": [{ "place": 2, "as": "n" }], "out": [{ "place": 1, "value": "[n]" }] },
        ],
    });
    let without = json!({ "places": [{ "name": "to" }], "nodes": [] });
    let refused = run.command(Command::Edit(Box::new(model(&without)))).unwrap_err();
    assert!(refused.to_string().contains("from"), "{refused}");
    let number = run.state().number;
    run.command(Command::Edit(Box::new(model(&edited)))).unwrap();
    assert!(run.changes(number, Duration::ZERO).edited);
    run.command(Command::Resume).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [json!("n"), json!([0]), json!([1])]);
    let refused = run.command(Command::Edit(Box::new(model(&moves(0))))).unwrap_err();
    assert!(refused.to_string().contains("paused"), "{refused}");
    let mut cosmetic = edited;
    cosmetic["places"][0]["at"] = json!({ "x": 1, "y": 2 });
    run.command(Command::Edit(Box::new(model(&cosmetic)))).unwrap();
    assert_eq!(run.graph().places[0].at.unwrap().y, 2);
}

/// What was counted of a node stays with it when an edit moves it.
#[test]
fn counts_and_failures_stay_with_their_nodes() {
    let world = World::new();
    let run = world.run(&moves(2), Settings::default());
    is_quiet(&run);
    run.command(Command::Pause).unwrap();
    let away = json!({
        "name": "away",
        "in": [{ "place": 0, "as": "n" }],
        "call": { "server": "Away/one", "name": "next", "arguments": "[n]" },
    });
    let first = json!({ "name": "first", "in": [{ "place": 1, "as": "n" }] });
    let mut graph = moves(0);
    let edit = |nodes: &[Value]| {
        graph["nodes"] = nodes.into();
        run.command(Command::Edit(Box::new(model(&graph)))).unwrap();
        run.state()
    };
    let moves = moves(0)["nodes"][0].clone();
    let mut edit = edit;
    let state = edit(&[first.clone(), away.clone(), moves.clone()]);
    assert_eq!(state.nodes.iter().map(|node| node.ended).collect::<Vec<_>>(), [0, 0, 2]);
    // The renamed node keeps the counts, and another node is gone.
    let mut renamed = moves;
    renamed["name"] = json!("renamed");
    let state = edit(&[first, away.clone(), renamed.clone()]);
    assert_eq!(state.nodes[2].ended, 2);
    let state = edit(&[away.clone(), renamed.clone()]);
    assert_eq!(state.nodes.iter().map(|node| node.ended).collect::<Vec<_>>(), [0, 2]);

    let mut only = away.clone();
    only["in"][0]["place"] = json!(1);
    edit(&[only.clone()]);
    run.command(Command::Resume).unwrap();
    until(&run, "a failure", |state| state.nodes[0].failed > 0);
    run.command(Command::Pause).unwrap();
    until(&run, "nothing is under way", |state| state.counts.under_way == 0);
    let state = edit(&[renamed.clone(), only]);
    assert!(state.nodes[0].failed == 0 && state.nodes[1].failed > 0, "{:?}", state.nodes);
    assert!(state.failures.iter().all(|failure| failure.node.0 == 1 && failure.name == "away"));
    assert!(!state.failures.is_empty());
    assert_eq!(edit(&[renamed]).failures, []);
}

#[test]
fn a_pause_lets_calls_end() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _export = world.export("Work/one", &worker);
    let mut graph = moves(2);
    graph["nodes"][0]["call"] = json!({ "server": "Work", "name": "slow", "arguments": "[n]" });
    let run = world.run(&graph, Settings { bound: 1, ..Settings::default() });
    until(&run, "a call", |state| state.counts.under_way == 1);
    run.command(Command::Pause).unwrap();
    worker.gate.open();
    until(&run, "its end", |state| state.counts.under_way == 0 && state.counts.ended == 1);
    assert_eq!(run.wait_for(Duration::from_millis(10)), None);
    assert_eq!(run.state().counts.begun, 1);
    run.command(Command::Resume).unwrap();
    is_quiet(&run);
    assert_eq!(run.state().counts.ended, 2);
}
