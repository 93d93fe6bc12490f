//! Tests that the graphs of this directory are as they say, and runs those that call nothing.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

use farcall::Runtime;
use farcall::names::Memory;
use farcall_olympus::check::check;
use farcall_olympus::model::Graph;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{Outcome, Run, Settings, State};
use farcall_olympus::{pnml, text};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs").join(format!("{name}.olympus"))
}

fn graph(name: &str) -> Graph {
    let text = std::fs::read_to_string(path(name)).unwrap();
    text::parse(name, &text).unwrap_or_else(|why| panic!("{why}"))
}

/// Runs a graph whose nodes call nothing, and returns how it ended.
fn ended(name: &str, seed: u64) -> State {
    let runtime = Runtime::builder().registry(Memory::new()).build().unwrap();
    let settings = Settings { seed, ..Settings::default() };
    let run = Run::start(graph(name), &Procedures::new(&runtime), settings).unwrap();
    assert_eq!(run.wait(), Outcome::Quiet);
    run.state()
}

/// Returns how many tokens a place has.
fn count(name: &str, state: &State, place: &str) -> u32 {
    state.places[graph(name).place(place).unwrap().0 as usize].count
}

#[test]
fn nothing_is_wrong_with_the_graphs_and_they_are_exchanged_whole() {
    let mut names: Vec<String> = std::fs::read_dir(path("x").parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["philosophers", "pipeline", "precedence", "producer-consumer", "three-languages"]);
    for name in names {
        let graph = graph(&name);
        assert_eq!(check(&graph), [], "{name}");
        assert_eq!(pnml::read(pnml::write(&graph).as_bytes()).unwrap(), graph, "{name}");
        assert_eq!(text::parse("printed", &text::print(&graph)).unwrap(), graph, "{name}");
    }
}

#[test]
fn each_philosopher_eats_three_times() {
    for seed in 0..20 {
        let state = ended("philosophers", seed);
        assert_eq!(state.counts.ended, 30);
        assert_eq!(count("philosophers", &state, "meals"), 15);
        assert!(state.nodes.iter().all(|node| node.ended == 3));
        assert!((1..=5).all(|fork| count("philosophers", &state, &format!("fork{fork}")) == 1));
    }
}

#[test]
fn the_consumer_gets_what_the_producer_made_in_its_order() {
    for seed in 0..20 {
        let state = ended("producer-consumer", seed);
        assert_eq!(state.counts.ended, 20);
        let delivered = &state.places[graph("producer-consumer").place("delivered").unwrap().0 as usize];
        assert_eq!(delivered.tokens, (1..=10).map(serde_json::Value::from).collect::<Vec<_>>());
    }
}

#[test]
fn the_tasks_take_as_long_as_the_longest_way() {
    let state = ended("precedence", 0);
    assert_eq!((state.counts.ended, state.clock), (6, 13.0));
    assert_eq!(count("precedence", &state, "done"), 1);
}
