//! Bare calls and firings, timed.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use farcall::Calls;
use farcall_olympus::journal::Journal;
use farcall_olympus::model::{Graph, Input, InputKind, Node, Output, Place, PlaceId, Procedure};
use farcall_olympus::run::{Command, Outcome, Run, Settings};
use serde_json::json;

use crate::ways::{self, Carry, Found, Server, Way};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Started calls by description.
    Bare,
    /// Firings of a node.
    Firing,
    /// Firings of a node that are recorded in a journal.
    Recorded,
}

impl Kind {
    /// The word by which a process is told the kind.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What was measured.
pub struct Measured {
    pub time: Duration,
}

/// Makes so many calls or firings, at most `bound` of them under way at once.
pub fn once(
    way: Way,
    (kind, carry): (Kind, Carry),
    calls: u32,
    bound: usize,
    server: &Server,
) -> Result<Measured> {
    let found = way.found(carry, server)?;
    match kind {
        Kind::Bare => bare(&found, carry, calls, bound),
        Kind::Firing => firings(&found, carry, calls, bound, None),
        Kind::Recorded => {
            let path = ways::journal();
            let measured = firings(&found, carry, calls, bound, Some(Journal::create(&path)?));
            fs::remove_file(path)?;
            measured
        }
    }
}

fn bare(found: &Found, carry: Carry, count: u32, bound: usize) -> Result<Measured> {
    let wanted = found.wanted.as_ref().context("a node without a procedure has no bare call")?;
    let procedure = found.procedures.find(wanted)?;
    let arguments = if carry == Carry::Number { json!([7]) } else { json!([]) };
    let encoded = procedure.encode(&arguments).map_err(anyhow::Error::msg)?;
    let mut calls = Calls::new();
    let begin = Instant::now();
    let mut started = 0;
    for _ in 0..count {
        while started < count && calls.len() < bound {
            calls.add((), procedure.start(&encoded));
            started += 1;
        }
        let Some(((), result)) = calls.wait() else { bail!("a call is lost") };
        ensure!(result.is_ok_and(|result| result.0 == encoded), "a wrong result");
    }
    Ok(Measured { time: begin.elapsed() })
}

fn firings(
    found: &Found,
    carry: Carry,
    count: u32,
    bound: usize,
    journal: Option<Journal>,
) -> Result<Measured> {
    let settings = Settings { bound, journal, paused: true, ..Settings::default() };
    let run = Run::start(graph(found, carry, count)?, &found.procedures, settings)?;
    if let Some(wanted) = &found.wanted {
        found.procedures.find(wanted)?;
    }
    let begin = Instant::now();
    run.command(Command::Resume)?;
    let outcome = run.wait();
    let time = begin.elapsed();
    ensure!(outcome == Outcome::Quiet, "the run is {outcome:?}");
    let state = run.state();
    ensure!(state.places[1].count == count, "{} of {count} tokens have come", state.places[1].count);
    Ok(Measured { time })
}

/// Returns a graph of one node, which fires as often as `count` says.
fn graph(found: &Found, carry: Carry, count: u32) -> Result<Graph> {
    let place = |name: &str, tokens| Place { name: name.to_owned(), tokens, ..Place::default() };
    let (from, to) = (PlaceId(0), PlaceId(1));
    let kind = InputKind::Take;
    let variable = (carry == Carry::Number).then(|| "n".to_owned());
    let input = Input { place: from, weight: 1, kind, variable };
    let value = match (carry, &found.wanted) {
        (Carry::Nothing, _) => None,
        (Carry::Number, Some(_)) => Some("result".parse()?),
        (Carry::Number, None) => Some("n".parse()?),
    };
    let output = Output { place: to, weight: 1, value, condition: None, exception: None };
    let node = Node {
        name: "node".to_owned(),
        inputs: vec![input],
        outputs: vec![output],
        call: found.wanted.clone(),
        ..Node::default()
    };
    let token = |n| if carry == Carry::Number { json!(n) } else { json!(null) };
    let tokens = (0..count).map(token).collect();
    let places = vec![place("from", tokens), place("to", Vec::new())];
    Ok(Graph { name: "bench".to_owned(), places, nodes: vec![node], ..Graph::default() })
}

/// Returns how long so many nodes take that may begin at once and whose procedures pause, how long as many
/// started calls of the same procedure take, and how long started calls that do nothing.
pub fn parallel(nodes: u32, server: &Server) -> Result<[Duration; 3]> {
    let found = Way::Udp.found(Carry::Nothing, server)?;
    let call = found.wanted.clone().context("a way without calls")?;
    let pause = Procedure { name: "pause".to_owned(), ..call.clone() };
    let place = |index| Place { name: format!("p{index}"), tokens: vec![json!(null)], ..Place::default() };
    let input = |index| Input { place: PlaceId(index), weight: 1, kind: InputKind::Take, variable: None };
    let node = |index| Node {
        name: format!("n{index}"),
        inputs: vec![input(index)],
        call: Some(pause.clone()),
        ..Node::default()
    };
    let (places, all) = ((0..nodes).map(place).collect(), (0..nodes).map(node).collect());
    let graph = Graph { name: "parallel".to_owned(), places, nodes: all, ..Graph::default() };
    // The servers' threads and the bindings are there before the time is taken.
    for is_measured in [false, true] {
        let settings = Settings { bound: nodes as usize, paused: true, ..Settings::default() };
        let run = Run::start(graph.clone(), &found.procedures, settings)?;
        let begin = Instant::now();
        run.command(Command::Resume)?;
        ensure!(run.wait() == Outcome::Quiet, "the run is not quiet");
        if is_measured {
            let time = begin.elapsed();
            let nothing = bare(&found, Carry::Nothing, nodes, nodes as usize)?.time;
            let found = Way::Udp.found(Carry::Nothing, server)?.calling(pause);
            return Ok([time, bare(&found, Carry::Nothing, nodes, nodes as usize)?.time, nothing]);
        }
    }
    bail!("nothing was measured")
}
