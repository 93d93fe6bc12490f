//! Graphs as files, and what is wrong with a graph.

use super::Problem;
use crate::model::{Graph, Position};

/// The distance of the items of a graph without positions, in pixels.
const SPACING: i32 = 140;

/// A format of files.
#[derive(Clone, Copy)]
pub(super) enum Format {
    /// The model as JSON.
    Json,
}

impl Format {
    /// Returns the format whose files have this extension.
    pub(super) fn named(extension: &str) -> Option<Format> {
        match extension {
            "json" => Some(Format::Json),
            _ => None,
        }
    }

    /// Returns the media type of the format's files.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
        }
    }

    /// Returns a graph in this format.
    pub(super) fn print(self, graph: &Graph) -> Result<String, String> {
        match self {
            Format::Json => serde_json::to_string_pretty(graph).map_err(|error| error.to_string()),
        }
    }
}

/// Reads a graph from a file of any format.
pub(super) fn read(text: &str) -> Result<Graph, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Returns what is wrong with a graph.
pub(super) fn problems(_graph: &Graph) -> Vec<Problem> {
    Vec::new()
}

/// Gives a position to what has none.
pub(super) fn with_positions(mut graph: Graph) -> Graph {
    let columns = ((graph.places.len() + graph.nodes.len()) as f64).sqrt().ceil() as i32;
    let places = graph.places.iter_mut().map(|place| &mut place.at);
    let items = places.chain(graph.nodes.iter_mut().map(|node| &mut node.at));
    for (index, at) in (0..).zip(items) {
        at.get_or_insert(Position { x: index % columns * SPACING, y: index / columns * SPACING });
    }
    graph
}
