//! The text format of graphs, as `.olympus` files have it: one line for each place, node and arc, so that
//! people write it by hand and review changes line by line. docs/olympus-format.md describes it.
//!
//! `parse` reads it and `print` writes it; what is printed reads as the same graph. `line` is the reader of a
//! line.

mod line;
mod parse;
mod print;

use std::collections::HashMap;
use std::ops::Range;

use farcall_base::work;
pub use farcall_idl::x::{Diagnostic, Diagnostics};

use crate::location::Location;
use crate::model::Graph;

/// The most bytes of a file.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// The most tokens that the places of a file have together.
pub const MAX_TOKENS: usize = 1 << 20;
/// The most errors that are reported for a file.
pub const MAX_ERRORS: usize = 16;

/// A graph that was read from a text, and where its parts are there.
#[derive(Clone, Debug)]
pub struct Document {
    /// The graph.
    pub graph: Graph,
    file: String,
    text: String,
    /// The bytes at which the lines begin.
    lines: Vec<usize>,
    locations: HashMap<Location, Range<usize>>,
}

impl Document {
    /// Reads a graph. `file` is the name that errors show.
    ///
    /// # Errors
    /// Returns what is wrong, with the line and the column of each error.
    pub fn parse(file: &str, text: &str) -> Result<Document, Diagnostics> {
        let (graph, locations) = parse::parse(file, text)?;
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(breaks).collect();
        Ok(Document { graph, file: file.to_owned(), text: text.to_owned(), lines, locations })
    }

    /// Returns the bytes of the text at which a part of the graph is.
    pub fn span(&self, location: Location) -> Option<Range<usize>> {
        self.locations.get(&location).cloned()
    }

    /// Makes a message about a part of the graph, which shows the line.
    pub fn diagnostic(&self, location: Location, message: impl Into<String>) -> Diagnostic {
        let span = self.span(location).unwrap_or(0..0);
        let line = self.lines.partition_point(|start| *start <= span.start).max(1);
        let start = self.lines[line - 1];
        let whole = self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        work::steps(1 + whole.len() / 16);
        let marked = span.start - start..span.end.saturating_sub(start);
        Diagnostic::in_line(&self.file, line, whole, marked, message)
    }
}

/// Reads a graph. `file` is the name that errors show.
///
/// ```
/// use farcall_olympus::text;
///
/// let graph = text::parse("some.olympus", "place a tokens 1\nnode n\n  in a\n").unwrap();
/// assert_eq!(text::print(&graph), "place a tokens 1\n\nnode n\n  in a\n");
/// let errors = text::parse("some.olympus", "node n\n  in b\n").unwrap_err();
/// let error = errors.iter().next().unwrap();
/// assert_eq!((error.line(), error.column(), error.message()), (2, 6, "there is no place b"));
/// ```
///
/// # Errors
/// Returns what is wrong, with the line and the column of each error.
pub fn parse(file: &str, text: &str) -> Result<Graph, Diagnostics> {
    Ok(parse::parse(file, text)?.0)
}

/// Writes a graph. The text reads as the same graph if all its arcs have places, its names are different, and
/// its parts are no larger than what the format reads.
pub fn print(graph: &Graph) -> String {
    print::print(graph)
}
