//! The states that a graph can reach are those that SNAKES finds, an analyser of Petri nets by others.
//!
//! `scripts/snakes` installs it; without it the comparison says that it is skipped.

mod random;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farcall_olympus::check::check;
use farcall_olympus::model::Graph;
use farcall_olympus::reach::{Reached, State, Unexplored, explore};
use farcall_olympus::rules::Rules;
use farcall_olympus::text;

/// The number of random nets that are compared.
const NETS: usize = 1_000;
/// The most states of a random net.
const MAX_STATES: usize = 100;

/// The published nets.
const PUBLISHED: [&str; 8] = [
    "alternating-bit.olympus",
    "dining-philosophers.olympus",
    "mutual-exclusion.olympus",
    "precedence.olympus",
    "producer-consumer.olympus",
    "readers-writers.olympus",
    "reset-by-inhibitor.olympus",
    "sleeping-barber.olympus",
];

#[test]
fn states_of_random_nets_are_those_that_snakes_finds() {
    let Some(snakes) = Snakes::find() else { return };
    let (mut graphs, mut reached, mut seed) = (Vec::new(), Vec::new(), 0);
    while graphs.len() < NETS {
        let graph = random::graph(seed);
        seed += 1;
        match explore(&graph, Rules::standard(), MAX_STATES) {
            Ok(states) if states.states.len() > 1 => {
                graphs.push(graph);
                reached.push(states);
            }
            Ok(_) | Err(Unexplored::TooMany(_)) => {}
            Err(problem) => panic!("seed {seed}: {problem}"),
        }
    }
    let states: usize = reached.iter().map(|reached| reached.states.len()).sum();
    println!("{NETS} nets of {seed} that were made, {states} states");
    snakes.compare(&graphs, &reached);
}

#[test]
fn states_of_published_nets_are_those_that_snakes_finds() {
    let Some(snakes) = Snakes::find() else { return };
    let (mut graphs, mut reached) = (Vec::new(), Vec::new());
    for name in PUBLISHED {
        let graph = published(name);
        let states = explore(&graph, Rules::standard(), 20_000).unwrap();
        println!("{name}: {} states, {} steps", states.states.len(), states.steps);
        graphs.push(graph);
        reached.push(states);
    }
    snakes.compare(&graphs, &reached);
}

#[test]
fn published_nets_are_sound() {
    for name in PUBLISHED {
        let graph = published(name);
        assert_eq!(check(&graph), [], "{name}");
        assert_eq!(text::parse(name, &text::print(&graph)).unwrap(), graph, "{name}");
        let reached = explore(&graph, Rules::standard(), 20_000).unwrap();
        assert!(reached.can_begin.iter().all(|can| *can), "{name}: a node can never begin");
        let ends = matches!(name, "precedence.olympus");
        assert_eq!(!reached.final_states.is_empty(), ends, "{name}: final states");
    }
}

#[test]
fn philosophers_who_take_one_fork_at_a_time_can_starve() {
    let mut graph = String::new();
    for at in 0..4 {
        graph += &format!(
            "place fork{at} tokens 1\nplace thinks{at} tokens 1\nplace has_left{at}\nplace eats{at}\n"
        );
    }
    for at in 0..4 {
        let right = (at + 1) % 4;
        graph += &format!("node left{at}\n  in thinks{at}\n  in fork{at}\n  out has_left{at}\n");
        graph += &format!("node right{at}\n  in has_left{at}\n  in fork{right}\n  out eats{at}\n");
        graph +=
            &format!("node done{at}\n  in eats{at}\n  out thinks{at}\n  out fork{at}\n  out fork{right}\n");
    }
    let graph = text::parse("philosophers", &graph).unwrap();
    let reached = explore(&graph, Rules::standard(), 20_000).unwrap();
    let stuck: Vec<&State> = reached.final_states.iter().map(|at| &reached.states[*at]).collect();
    let [stuck] = stuck.as_slice() else { panic!("{stuck:?}") };
    let has_left = |at: usize| graph.place(&format!("has_left{at}")).unwrap().0 as usize;
    assert!((0..4).all(|at| stuck.tokens[has_left(at)] == 1), "{stuck:?}");
}

/// However often messages are lost and sent again, a new one is sent only when the last one was delivered.
#[test]
fn the_alternating_bit_protocol_delivers_each_message_once() {
    let delivers = |graph: &Graph| {
        let reached = explore(graph, Rules::standard(), 20_000).unwrap();
        let has = |state: &State, name: &str| state.tokens[graph.place(name).unwrap().0 as usize] > 0;
        reached.states.iter().all(|state| {
            (0..2).all(|bit| !has(state, &format!("send{bit}")) || has(state, &format!("expects{bit}")))
        })
    };
    let graph = published("alternating-bit.olympus");
    assert!(delivers(&graph));
    // A sender that waits for no acknowledgement.
    let mut wrong = graph.clone();
    let end = &mut wrong.nodes[graph.node("end0").unwrap().0 as usize];
    end.inputs.truncate(1);
    end.outputs.truncate(1);
    assert!(!delivers(&wrong));
}

fn published(name: &str) -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nets").join(name);
    let source = std::fs::read_to_string(path).unwrap();
    text::parse(name, &source).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Where SNAKES is installed.
struct Snakes(PathBuf);

impl Snakes {
    fn find() -> Option<Snakes> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/snakes");
        let there = directory.join("snakes/nets.py").exists();
        let python = Command::new("python3").arg("--version").output().is_ok();
        if !there || !python {
            let what = if python { "it is not installed (scripts/snakes)" } else { "no python3" };
            let _ = writeln!(std::io::stderr(), "skipped: snakes: {what}");
            return None;
        }
        Some(Snakes(directory))
    }

    /// Lets SNAKES explore each graph, and compares the sets of states.
    fn compare(&self, graphs: &[Graph], reached: &[Reached]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/reachable.py");
        let mut python = Command::new("python3")
            .arg(script)
            .env("PYTHONPATH", &self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = python.stdin.take().unwrap();
        let lines =
            graphs.iter().map(|graph| serde_json::to_string(graph).unwrap() + "\n").collect::<String>();
        let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let mut answers = BufReader::new(python.stdout.take().unwrap()).lines();
        for (graph, reached) in graphs.iter().zip(reached) {
            let answer = answers.next().expect("SNAKES answers for each net").unwrap();
            let theirs: Vec<String> = serde_json::from_str(&answer).unwrap();
            let mut ours: Vec<String> = reached.states.iter().map(told).collect();
            ours.sort_unstable();
            let only = |these: &[String], those: &[String]| -> Vec<String> {
                these.iter().filter(|state| !those.contains(state)).take(5).cloned().collect()
            };
            let (extra, missing) = (only(&ours, &theirs), only(&theirs, &ours));
            assert!(ours == theirs, "{}\nours only: {extra:?}\ntheirs only: {missing:?}", text::print(graph));
        }
        writer.join().unwrap().unwrap();
        assert!(python.wait().unwrap().success());
    }
}

/// Writes a state as `reachable.py` does.
fn told(state: &State) -> String {
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let firings = state.firings.iter().map(|(node, inputs)| format!("{}:{}", node.0, list(inputs)));
    format!("{}|{}", list(&state.tokens), firings.collect::<Vec<_>>().join(";"))
}
