//! Tests of runs whose calls fail: tokens are neither lost nor doubled, and users are told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcall_olympus::interpreter::Decision;
use farcall_olympus::run::{Command, Outcome, Run, Settings, Stage};
use serde_json::{Value, json};

use super::common::{Worker, World, is_quiet, model, tokens, until};

fn graph(procedure: &str, numbers: &[u64], outputs: Value) -> Value {
    json!({
        "places": [{ "name": "from", "tokens": numbers }, { "name": "to" }, { "name": "failed" }],
        "nodes": [{
            "name": "node",
            "in": [{ "place": 0, "as": "n" }],
            "call": { "server": "Work", "name": procedure, "arguments": "[n]" },
            "out": outputs,
        }],
    })
}

fn result() -> Value {
    json!([{ "place": 1, "value": "result" }])
}

fn quick() -> Settings {
    Settings { max_pause: Duration::from_millis(20), ..Settings::default() }
}

#[test]
fn a_server_may_come_after_the_run_has_begun() {
    let world = World::new();
    let run = world.run(&graph("next", &[2, 4], result()), quick());
    until(&run, "the first failure", |state| state.counts.not_run > 2);
    let state = run.state();
    assert_eq!(state.outcome, None);
    let failure = &state.failures[0];
    assert_eq!((failure.stage, failure.ran, failure.name.as_str()), (Stage::PutBack, Some("no"), "node"));
    assert!(failure.error.as_ref().unwrap().contains("no such name"), "{failure:?}");
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [3, 5]);
}

/// Firings that wait for one procedure, which is not found, leave the tokens in their order.
#[test]
fn tokens_go_back_in_their_order_when_nobody_exports_a_procedure() {
    let world = World::new();
    let hour = Duration::from_secs(3600);
    let settings = Settings { first_pause: hour, max_pause: hour, ..Settings::default() };
    let run = world.run(&graph("next", &[2, 4, 6, 8], result()), settings);
    until(&run, "all go back", |state| state.counts.not_run == 4);
    assert_eq!(run.state().places[0].tokens, [2, 4, 6, 8]);
}

/// A server is withdrawn while calls go to it, and another takes its place.
#[test]
fn what_did_not_run_is_tried_elsewhere() {
    let world = World::new();
    let first = world.export("Work/first", &Arc::new(Worker::default()));
    let numbers: Vec<u64> = (0..2000).map(|n| 2 * n).collect();
    let run = world.run(&graph("next", &numbers, result()), Settings { bound: 8, ..quick() });
    until(&run, "some have ended", |state| state.counts.ended > 100);
    drop(first);
    let _second = world.export("Work/second", &Arc::new(Worker::default()));
    is_quiet(&run);
    let mut wanted: Vec<Value> = numbers.iter().map(|n| json!(n + 1)).collect();
    wanted.sort_by_key(ToString::to_string);
    assert_eq!(all(&run, "to"), wanted);
}

/// Returns all tokens of a place, which is emptied: a state shows only the first.
fn all(run: &Run, place: &str) -> Vec<Value> {
    run.command(Command::Pause).unwrap();
    let place = run.graph().place(place).unwrap();
    let mut all = Vec::new();
    loop {
        let shown = run.state().places[place.0 as usize].tokens.clone();
        if shown.is_empty() {
            all.sort_by_key(ToString::to_string);
            return all;
        }
        run.command(Command::Take { place, count: shown.len() as u32 }).unwrap();
        all.extend(shown);
    }
}

#[test]
fn another_interface_of_the_same_name_is_found_again() {
    #[farcall::interface]
    trait Work {
        fn other(&self) -> farcall::Result<()>;
        fn next(&self, number: u64) -> farcall::Result<u64>;
    }
    struct New;
    impl Work for New {
        fn other(&self) -> farcall::Result<()> {
            Ok(())
        }
        fn next(&self, number: u64) -> farcall::Result<u64> {
            Ok(number + 100)
        }
    }
    let world = World::new();
    let old = world.export("Work/one", &Arc::new(Worker::default()));
    let run = world.run(&graph("next", &[2], result()), quick());
    is_quiet(&run);
    drop(old);
    let _new = world.servers.export::<dyn Work>("Work/one", Arc::new(New)).unwrap();
    run.command(Command::Put { place: run.graph().place("from").unwrap(), tokens: vec![json!(4)] }).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [104, 3]);
}

/// A call that may have run stops its node. Its firing keeps its tokens, and is shown, until somebody
/// decides.
#[test]
fn what_may_have_run_stops_the_node_and_is_shown() {
    let decided = [
        (Decision::PutBack, "from", Some(json!(7))),
        (Decision::Discard, "to", None),
        (Decision::Return(json!(8)), "to", Some(json!(8))),
    ];
    for (decision, place, wanted) in decided {
        let world = World::new();
        let worker = Arc::new(Worker::default());
        let _export = world.export("Work/one", &worker);
        let procedures = world.procedures().within(Duration::from_millis(50));
        let run = Run::start(
            model(&graph("slow", &[7, 8], result())),
            &procedures,
            Settings { bound: 1, ..quick() },
        );
        let run = run.unwrap();
        let Outcome::Stopped(stopped) = run.wait() else { panic!("{:?}", run.state()) };
        let state = run.state();
        let shown = &state.stopped[0];
        assert_eq!((shown.firing, shown.stage, shown.ran), (stopped[0], Stage::Stopped, Some("maybe")));
        assert_eq!((shown.tokens.clone(), shown.arguments.clone()), (vec![json!(7)], Some(json!([7]))));
        assert_eq!((state.nodes[0].stopped, state.counts.stopped), (1, 1));
        assert_eq!(run.firing(stopped[0]).as_ref(), Some(shown));
        // The other token stays where it is.
        assert_eq!((state.places[0].count, state.places[1].count), (1, 0));

        run.command(Command::Pause).unwrap();
        run.command(Command::Decide { firing: stopped[0], decision }).unwrap();
        assert!(run.command(Command::Decide { firing: stopped[0], decision: Decision::Retry }).is_err());
        assert_eq!(tokens(&run, place).contains(&json!(8)), wanted == Some(json!(8)) || place == "from");
        assert!(wanted.is_none() || tokens(&run, place).contains(&wanted.unwrap()));
        assert_eq!(run.state().stopped, []);
        worker.gate.open();
    }
}

#[test]
fn somebody_may_have_a_stopped_call_made_again() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _export = world.export("Work/one", &worker);
    let procedures = world.procedures().within(Duration::from_millis(50));
    let run = Run::start(model(&graph("slow", &[7], result())), &procedures, quick()).unwrap();
    let Outcome::Stopped(stopped) = run.wait() else { panic!("{:?}", run.state()) };
    worker.gate.open();
    run.command(Command::Decide { firing: stopped[0], decision: Decision::Retry }).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [7]);
}

/// What is kept and listed of failures does not grow with the tokens: large ones are left out, which is said.
#[test]
fn large_tokens_are_left_out_of_what_is_listed() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let mut graph = graph("next", &[], result());
    let large = |size| json!({ "text": "x".repeat(size) });
    // (The value is no number, so the firing stops. Nobody exports the other's server, so its token goes
    // back.)
    graph["places"][0]["tokens"] = json!([large(100_000)]);
    graph["places"].as_array_mut().unwrap().push(json!({ "name": "away", "tokens": [large(1 << 20)] }));
    let mut away = graph["nodes"][0].clone();
    (away["name"], away["in"][0]["place"]) = (json!("away"), json!(3));
    away["call"]["server"] = json!("Away");
    graph["nodes"].as_array_mut().unwrap().push(away);
    let run = world.run(&graph, quick());
    until(&run, "failures", |state| state.counts.not_run > 2 && state.counts.stopped == 1);
    let state = run.state();
    let of = |name: &str| state.failures.iter().find(|failure| failure.name == name).unwrap();
    for failure in [of("node"), of("away"), &state.stopped[0]] {
        assert_eq!((failure.tokens.len(), &failure.arguments), (0, &None));
        assert_eq!(failure.left_out.as_deref(), Some("1 of 1 tokens, the arguments"));
        assert!(failure.error.is_some() && failure.ran == Some("no"), "{failure:?}");
    }
    assert!(serde_json::to_vec(&state).unwrap().len() < 50_000);
    assert_eq!(state.places[3].count, 1);
    // One firing is shown with more.
    let shown = run.firing(state.stopped[0].firing).unwrap();
    assert_eq!((shown.tokens, shown.left_out), (vec![large(100_000)], None));
}

#[test]
fn a_stopped_call_is_made_again_as_the_edited_node_says() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let mut graph = graph("next", &[7], result());
    graph["nodes"][0]["call"]["arguments"] = json!("[n.number]");
    let run = world.run(&graph, quick());
    let Outcome::Stopped(stopped) = run.wait() else { panic!("{:?}", run.state()) };
    run.command(Command::Pause).unwrap();
    graph["nodes"][0]["call"]["arguments"] = json!("[n + 1]");
    run.command(Command::Edit(Box::new(model(&graph)))).unwrap();
    run.command(Command::Decide { firing: stopped[0], decision: Decision::Retry }).unwrap();
    run.command(Command::Resume).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [9]);
}

#[test]
fn what_is_idempotent_is_called_again() {
    for by_graph in [false, true] {
        let world = World::new();
        let worker = Arc::new(Worker::default());
        let _export = world.export("Work/one", &worker);
        let mut graph = graph(if by_graph { "slow" } else { "slow_again" }, &[7], result());
        graph["nodes"][0]["call"]["idempotent"] = by_graph.into();
        let procedures = world.procedures().within(Duration::from_millis(50));
        let run = Run::start(model(&graph), &procedures, quick()).unwrap();
        until(&run, "it is called again", |state| state.counts.repeated > 0);
        worker.gate.open();
        is_quiet(&run);
        assert_eq!((tokens(&run, "to"), run.state().counts.ended), (vec![json!(7)], 1));
        assert!(worker.begun.load(Ordering::SeqCst) > 1);
    }
}

#[test]
fn a_declared_exception_takes_its_arc() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let outputs = json!([
        { "place": 1, "value": "result" },
        { "place": 2, "on": "Other", "value": "error.number" },
        { "place": 2, "on": "One", "value": "error" },
    ]);
    let run = world.run(&graph("next", &[1, 2, 7], outputs), Settings::default());
    is_quiet(&run);
    assert_eq!((tokens(&run, "to"), tokens(&run, "failed")), (vec![json!(3)], vec![json!(7), json!(null)]));
}

#[test]
fn an_exception_without_an_arc_stops_the_node() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let run = world.run(&graph("next", &[7], result()), Settings::default());
    let Outcome::Stopped(_) = run.wait() else { panic!("{:?}", run.state()) };
    let shown = &run.state().stopped[0];
    assert_eq!(shown.ran, Some("yes"));
    assert!(shown.error.as_ref().unwrap().contains("Other"), "{shown:?}");
}

#[test]
fn arguments_that_do_not_fit_stop_the_node_before_the_call() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _export = world.export("Work/one", &worker);
    let run = world.run(&graph("twice", &[7], result()), Settings::default());
    let Outcome::Stopped(_) = run.wait() else { panic!("{:?}", run.state()) };
    let shown = &run.state().stopped[0];
    assert_eq!(shown.ran, Some("no"));
    assert!(shown.error.as_ref().unwrap().contains("expected string"), "{shown:?}");
    assert_eq!(worker.begun.load(Ordering::SeqCst), 0);
}
