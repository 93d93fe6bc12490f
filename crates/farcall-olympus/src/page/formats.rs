//! Graphs as files, and what is wrong with a graph.

use super::Problem;
use crate::check::check;
use crate::draw;
use crate::location::Location;
use crate::model::Graph;
use crate::{pnml, text};

/// A format of files.
#[derive(Clone, Copy)]
pub(super) enum Format {
    /// The text format, for people.
    Text,
    /// The XML form in which tools for Petri nets exchange them.
    Pnml,
    /// A picture. It is written only.
    Svg,
    /// The model as JSON.
    Json,
}

impl Format {
    /// Returns the format whose files have this extension.
    pub(super) fn named(extension: &str) -> Option<Format> {
        match extension {
            "olympus" => Some(Format::Text),
            "pnml" => Some(Format::Pnml),
            "svg" => Some(Format::Svg),
            "json" => Some(Format::Json),
            _ => None,
        }
    }

    /// Returns the media type of the format's files.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; charset=utf-8",
            Format::Pnml => "application/xml",
            Format::Svg => "image/svg+xml",
            Format::Json => "application/json",
        }
    }

    /// Returns a graph in this format.
    pub(super) fn print(self, graph: &Graph) -> Result<String, String> {
        match self {
            Format::Text => Ok(text::print(graph)),
            Format::Pnml => Ok(pnml::write(graph)),
            Format::Svg => Ok(draw::svg(graph, None)),
            Format::Json => serde_json::to_string_pretty(graph).map_err(|error| error.to_string()),
        }
    }
}

/// Reads a graph from a file of any format: PNML begins with `<`, JSON with `{`, and neither does text.
pub(super) fn read(file: &str) -> Result<Graph, String> {
    match file.trim_start_matches('\u{feff}').trim_start().as_bytes().first() {
        Some(b'<') => pnml::read(file.as_bytes()).map_err(|error| error.to_string()),
        Some(b'{') => serde_json::from_str(file).map_err(|error| error.to_string()),
        _ => text::parse("the file", file).map_err(|errors| errors.to_string()),
    }
}

/// Returns what is wrong with a graph.
pub(super) fn problems(graph: &Graph) -> Vec<Problem> {
    let place = |at: crate::model::PlaceId| graph.places.get(at.0 as usize).map(|place| place.name.clone());
    let node = |at: crate::model::NodeId| graph.nodes.get(at.0 as usize).map(|node| node.name.clone());
    let findings = check(graph).into_iter().map(|finding| Problem {
        item: match finding.location {
            Location::Graph => None,
            Location::Place(at) | Location::Type(at) => place(at),
            Location::Node(at)
            | Location::Input(at, _)
            | Location::Output(at, _)
            | Location::Guard(at)
            | Location::Call(at) => node(at),
        },
        message: finding.message,
        warning: finding.warning,
    });
    findings.collect()
}

/// Gives a position to what has none.
pub(super) fn with_positions(mut graph: Graph) -> Graph {
    draw::arrange(&mut graph);
    graph
}
