//! The table of a run: its places and nodes, and how far they are.

use std::fmt::Write as _;

use farcall_olympus::model::Graph;
use farcall_olympus::run::{NodeState, Pace, PlaceState, State};

use crate::text::{count, printable};

/// The most places and the most nodes in the table. Those without tokens or firings go first.
const MAX_ROWS: usize = 40;

/// The most characters of tokens and of errors.
const MAX_TEXT: usize = 60;

pub fn table(graph: &Graph, state: &State) -> String {
    let mut page = String::new();
    let mut line = |text: String| {
        let _ = writeln!(page, "{}", printable(&text));
    };
    line(heading(graph, state));
    let places: Vec<&PlaceState> = state.places.iter().collect();
    let shown = chosen(&places, |place| place.count > 0);
    line(format!("{:>8}  {:<24}  FIRST", "TOKENS", "PLACE"));
    for place in &shown {
        let name = graph.places.get(place.place.0 as usize).map_or("", |place| &place.name);
        let tokens: Vec<String> =
            place.tokens.iter().filter(|token| !token.is_null()).map(ToString::to_string).collect();
        line(
            format!("{:>8}  {name:<24}  {}", count(place.count.into()), short(&tokens.join(" ")))
                .trim_end()
                .to_owned(),
        );
    }
    more(&mut line, places.len() - shown.len(), "places");
    let nodes: Vec<&NodeState> = state.nodes.iter().collect();
    let shown = chosen(&nodes, |node| node.under_way > 0 || node.stopped > 0 || node.begun > 0);
    line(format!("{:>8} {:>8} {:>8} {:>8}  NODE", "ENDED", "NOW", "FAILED", "STOPPED"));
    for node in &shown {
        let name = graph.nodes.get(node.node.0 as usize).map_or("", |node| &node.name);
        let error = node.error.as_ref().map_or_else(String::new, |why| format!("  {}", short(why)));
        line(format!(
            "{:>8} {:>8} {:>8} {:>8}  {name}{error}",
            count(node.ended),
            count(node.under_way.into()),
            count(node.failed),
            count(node.stopped.into()),
        ));
    }
    more(&mut line, nodes.len() - shown.len(), "nodes");
    for firing in state.stopped.iter().take(MAX_ROWS) {
        let why = firing.error.as_deref().unwrap_or("");
        line(format!("firing {} of {} has stopped: {why}", firing.firing.0, firing.name));
    }
    page
}

fn heading(graph: &Graph, state: &State) -> String {
    let pace = match state.pace {
        _ if state.paused => "paused",
        Pace::Fast => "as fast as possible",
        Pace::Scaled(_) => "in scaled time",
        Pace::Step => "step by step",
    };
    format!(
        "{}  {pace}, clock {:.1} s, {} begun, {} ended, {} under way, {:.0} firings/s",
        if graph.name.is_empty() { "graph" } else { &graph.name },
        state.clock,
        count(state.counts.begun),
        count(state.counts.ended),
        count(state.counts.under_way),
        state.firings_per_second,
    )
}

/// Returns the rows that are shown, in their order: all if there are few, otherwise those that are busy.
fn chosen<'a, T>(rows: &[&'a T], is_busy: impl Fn(&T) -> bool) -> Vec<&'a T> {
    match rows.len() <= MAX_ROWS {
        true => rows.to_vec(),
        false => rows.iter().copied().filter(|row| is_busy(row)).take(MAX_ROWS).collect(),
    }
}

fn more(line: &mut impl FnMut(String), count: usize, what: &str) {
    if count > 0 {
        line(format!("{:>8}  more {what}", count));
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
