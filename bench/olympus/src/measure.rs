//! Bare calls and firings, timed.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use farcall::Calls;
use farcall_olympus::journal::Journal;
use farcall_olympus::model::{Graph, Input, InputKind, Node, Output, Place, PlaceId};
use farcall_olympus::run::{Command, Outcome, Run, Settings};
use serde_json::json;

use crate::ways::{self, Found, Server, Way};

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
pub fn once(way: Way, kind: Kind, calls: u32, bound: usize, server: &Server) -> Result<Measured> {
    let found = way.found(server)?;
    match kind {
        Kind::Bare => bare(&found, calls, bound),
        Kind::Firing => firings(&found, calls, bound, None),
        Kind::Recorded => {
            let path = ways::journal();
            let measured = firings(&found, calls, bound, Some(Journal::create(&path)?));
            fs::remove_file(path)?;
            measured
        }
    }
}

fn bare(found: &Found, count: u32, bound: usize) -> Result<Measured> {
    let wanted = found.wanted.as_ref().context("a node without a procedure has no bare call")?;
    let same = found.procedures.find(wanted)?;
    let encoded = same.encode(&json!([7])).map_err(anyhow::Error::msg)?;
    let mut calls = Calls::new();
    let begin = Instant::now();
    let mut started = 0;
    for _ in 0..count {
        while started < count && calls.len() < bound {
            calls.add((), same.start(&encoded));
            started += 1;
        }
        let Some(((), result)) = calls.wait() else { bail!("a call is lost") };
        ensure!(result.is_ok_and(|result| result.0 == encoded), "a wrong result");
    }
    Ok(Measured { time: begin.elapsed() })
}

fn firings(found: &Found, count: u32, bound: usize, journal: Option<Journal>) -> Result<Measured> {
    let settings = Settings { bound, journal, paused: true, ..Settings::default() };
    let run = Run::start(graph(found, count)?, &found.procedures, settings)?;
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
fn graph(found: &Found, count: u32) -> Result<Graph> {
    let place = |name: &str, tokens| Place { name: name.to_owned(), tokens, ..Place::default() };
    let (from, to) = (PlaceId(0), PlaceId(1));
    let kind = InputKind::Take;
    let input = Input { place: from, weight: 1, kind, variable: Some("n".to_owned()) };
    let value = if found.wanted.is_some() { "result" } else { "n" };
    let value = Some(value.parse()?);
    let output = Output { place: to, weight: 1, value, condition: None, exception: None };
    let node = Node {
        name: "node".to_owned(),
        inputs: vec![input],
        outputs: vec![output],
        call: found.wanted.clone(),
        ..Node::default()
    };
    let tokens = (0..count).map(|n| json!(n)).collect();
    let places = vec![place("from", tokens), place("to", Vec::new())];
    Ok(Graph { name: "bench".to_owned(), places, nodes: vec![node], ..Graph::default() })
}
