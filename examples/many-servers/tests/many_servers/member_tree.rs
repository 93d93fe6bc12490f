//! Tests many members in the simulation: ten thousand of one caller, and a tree in which some members are
//! dead.

use std::sync::Arc;
use std::time::Duration;

use farcall::Group;
use farcall::multi::Fixed;
use farcall_many_servers::tree::{Census, CensusClient, Counted, Leaf, Node};
use farcall_sim::{Faults, Process, Sim, check, sim};

/// Starts a process that exports this many leaves.
fn leaves(sim: &Sim, prefix: &str, count: u64) -> Process {
    let names = names(prefix, count);
    sim.server(prefix, move || {
        let exports = names.iter().map(|name| farcall::export::<dyn Census>(name, Arc::new(Leaf)));
        let exports: Vec<_> = exports.collect::<farcall::Result<_>>()?;
        exports.into_iter().next().map_or(Ok(()), |first| first.wait())
    })
}

fn names(prefix: &str, count: u64) -> Vec<String> {
    (0..count).map(|leaf| format!("Census/{prefix}-{leaf}")).collect()
}

fn group(names: &[String]) -> farcall::Result<Group<CensusClient, Fixed>> {
    farcall::import_each::<dyn Census>(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn ten_thousand_members_answer_one_caller() {
    check(1, |sim| {
        let mut all = Vec::new();
        for machine in 0..20 {
            let prefix = format!("m{machine}");
            leaves(sim, &prefix, 500);
            all.extend(names(&prefix, 500));
        }
        let root = Node(group(&all)?);
        for _ in 0..2 {
            assert_eq!(root.count()?, Counted { present: 10_000, missing: 0 });
        }
        // The result is the same when a tenth of the packets is lost.
        sim.faults(Faults { loss: 0.1, ..Faults::none() });
        assert_eq!(root.count()?, Counted { present: 10_000, missing: 0 });
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_node_answers_for_those_below_it_and_says_who_is_missing() {
    check(30, |sim| {
        let mut machines = Vec::new();
        for node in 0..6 {
            let prefix = format!("n{node}");
            machines.push(leaves(sim, &prefix, 10));
            machines.push(leaves(sim, &format!("{prefix}x"), 5));
            sim.server(&format!("node {node}"), move || {
                let below = group(&[names(&prefix, 10), names(&format!("{prefix}x"), 5)].concat())?;
                farcall::export::<dyn Census>(&format!("Census/{prefix}"), Arc::new(Node(below)))?.wait()
            });
        }
        // Each server is exported when its members are bound.
        let nodes: Vec<String> = (0..6).map(|node| format!("Census/n{node}")).collect();
        sim.sleep(Duration::from_secs(2));
        let root = Node(group(&nodes)?);
        assert_eq!(root.count()?, Counted { present: 90, missing: 0 });
        machines[1].crash();
        machines[2].crash();
        assert_eq!(root.count()?, Counted { present: 75, missing: 15 });
        let before = sim::now();
        machines[1].restart();
        // The nodes ask members that they know to be silent in the background, and call them when they
        // answer.
        while root.count()? != (Counted { present: 80, missing: 10 }) {
            sim.sleep(Duration::from_millis(100));
            assert!(sim::now() - before < Duration::from_secs(60));
        }
        Ok::<(), farcall::Error>(())
    });
}
