//! Tests of runs in which the servers of some nodes are away: the other nodes go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcall::Runtime;
use farcall::names::{Entry, Label, Listing, Registration, Registry};
use farcall_olympus::model::PlaceId;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{Command, Run, Settings, Stage, State};
use serde_json::{Value, json};

use super::common::{Gate, Worker, World, is_quiet, model, tokens, until};

/// Makes a graph whose nodes each call a procedure of a server with the tokens that they take.
fn graph(nodes: &[(&str, &str, u64)]) -> Value {
    let ends = |at: usize| [json!({ "name": format!("from{at}") }), json!({ "name": format!("to{at}") })];
    let mut places: Vec<Value> = (0..nodes.len()).flat_map(ends).collect();
    for (at, (_, _, count)) in nodes.iter().enumerate() {
        places[2 * at]["tokens"] = (0..*count).collect::<Vec<_>>().into();
    }
    let node = |(at, (server, procedure, _)): (usize, &(&str, &str, u64))| {
        json!({
            "name": format!("node{at}"),
            "in": [{ "place": 2 * at, "as": "n" }],
            "call": { "server": server, "name": procedure, "arguments": "[n]" },
            "out": [{ "place": 2 * at + 1, "value": "result" }],
        })
    };
    json!({ "places": places, "nodes": nodes.iter().enumerate().map(node).collect::<Vec<_>>() })
}

fn calling(state: &State, node: &str) -> usize {
    state.under_way.iter().filter(|firing| firing.name == node && firing.stage == Stage::Calling).count()
}

/// Firings that wait until their calls are made again leave the bound to others.
#[test]
fn a_node_whose_calls_wait_holds_up_only_itself() {
    let world = World::new();
    let (away, here) = (Arc::new(Worker::default()), Arc::new(Worker::default()));
    let _exports = [world.export("Away/one", &away), world.export("Here/one", &here)];
    let procedures = world.procedures().within(Duration::from_millis(50));
    let graph = graph(&[("Away/one", "slow_again", 12), ("Here/one", "next", 0)]);
    let hour = Duration::from_secs(3600);
    let settings = Settings { bound: 4, first_pause: hour, max_pause: hour, ..Settings::default() };
    let run = Run::start(model(&graph), &procedures, settings).unwrap();
    until(&run, "calls wait", |state| state.counts.repeated >= 4);
    let even = (0..20).map(|n| json!(2 * n)).collect();
    run.command(Command::Put { place: PlaceId(2), tokens: even }).unwrap();
    until(&run, "the other node ends", |state| state.nodes[1].ended == 20);
    // As many of the node's firings wait as there may be calls, and those that were under way then.
    let begun = run.state().nodes[0].begun;
    assert!((4..=8).contains(&begun), "{begun}");
    away.gate.open();
}

/// Nodes whose calls fail have at most half of the bound when their calls are made again.
#[test]
fn nodes_that_fail_leave_half_of_the_bound_to_others() {
    let world = World::new();
    let away = Arc::new(Worker::default());
    let _export = world.export("Away/one", &away);
    let procedures = world.procedures().within(Duration::from_millis(20));
    let graph = graph(&[("Away/one", "slow_again", 6), ("Away/one", "slow_again", 6)]);
    let (first_pause, max_pause) = (Duration::from_millis(1), Duration::from_millis(2));
    let settings = Settings { bound: 4, first_pause, max_pause, ..Settings::default() };
    let run = Run::start(model(&graph), &procedures, settings).unwrap();
    // (Those that were sent before the first failure are no repeated calls.)
    until(&run, "all calls have failed once", |state| state.nodes.iter().all(|node| node.failed > 8));
    until(&run, "many calls are repeated", |state| {
        let (first, second) = (calling(state, "node0"), calling(state, "node1"));
        assert!(first + second <= 2, "{state:#?}");
        state.counts.repeated > 60
    });
    let state = run.state();
    assert!(state.nodes.iter().all(|node| node.failed >= 20), "each has its turns: {:?}", state.nodes);
    away.gate.open();
    is_quiet(&run);
    let wanted: Vec<Value> = (0..6).map(Value::from).collect();
    assert_eq!((tokens(&run, "to0"), tokens(&run, "to1")), (wanted.clone(), wanted));
}

/// A registry that does not answer for one type until its gate is open.
struct Slow {
    registry: Arc<dyn Registry>,
    gate: Gate,
}

impl Registry for Slow {
    fn publish(&self, entry: &Entry) -> farcall::names::Result<Registration> {
        self.registry.publish(entry)
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<bool> {
        self.registry.withdraw(type_name, instance)
    }

    fn instances(&self, type_name: &Label) -> farcall::names::Result<Vec<Entry>> {
        self.registry.instances(type_name)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<Option<Entry>> {
        if type_name.as_str() == "Away" {
            self.gate.pass();
        }
        self.registry.lookup(type_name, instance)
    }

    fn list(&self) -> farcall::names::Result<Listing> {
        self.registry.list()
    }

    fn version(&self) -> farcall::names::Result<u64> {
        self.registry.version()
    }
}

/// A procedure that is looked for leaves the bound to others, and the bound holds when it is found.
#[test]
fn a_node_whose_procedure_is_looked_for_holds_up_only_itself() {
    let registry = Arc::new(farcall::names::Memory::new());
    let slow = Arc::new(Slow { registry: registry.clone(), gate: Gate::default() });
    let servers = Runtime::builder().registry(registry).workers(16).build().unwrap();
    let worker = Arc::new(Worker::default());
    let export = |name| servers.export::<dyn super::common::Work>(name, worker.clone()).unwrap();
    let _exports = [export("Away/one"), export("Here/one")];
    let caller = Runtime::builder().registry(slow.clone()).build().unwrap();
    let graph = graph(&[
        ("Away/one", "slow", 9),
        ("Away/one", "slow", 9),
        ("Here/one", "next", 0),
        ("Here/one", "next", 0),
    ]);
    let settings = Settings { bound: 3, ..Settings::default() };
    let run = Run::start(model(&graph), &Procedures::new(&caller), settings).unwrap();
    until(&run, "firings wait", |state| state.nodes[..2].iter().all(|node| node.under_way == 3));
    for place in [4, 6] {
        run.command(Command::Put { place: PlaceId(place), tokens: vec![json!(2); 10] }).unwrap();
    }
    until(&run, "the others end", |state| state.nodes[2..].iter().all(|node| node.ended == 10));
    slow.gate.open();
    while worker.running.load(Ordering::SeqCst) < 3 {
        run.changes(run.state().number, Duration::from_millis(1));
    }
    worker.gate.open();
    is_quiet(&run);
    assert_eq!(worker.most.load(Ordering::SeqCst), 3);
    assert_eq!(run.state().nodes.iter().map(|node| node.ended).sum::<u64>(), 38);
}
