//! PNML (ISO/IEC 15909-2): the XML form in which tools for Petri nets exchange them.
//!
//! [`write`](fn@write) writes a graph as a place/transition net. What the standard knows is in the standard's
//! elements: names, initial markings, weights, positions. Everything else (values, guards, joins, calls, …)
//! is in elements `<toolspecific tool="farcall-olympus">`, which other tools keep or ignore. Arcs that read
//! and arcs that inhibit have a `<type value="…"/>`, as many tools write it. [`read`] returns the same graph
//! again.
//!
//! [`read`] also reads the place/transition nets of other tools. It reads all pages of the net as one, and
//! resolves reference nodes. It refuses what would change the meaning if it were ignored: arcs of unknown
//! types, nets whose tokens have colours, and several nets in one file. Labels that it does not know, it
//! ignores.
//!
//! A document cannot make the reader allocate or work without bound: document type definitions are refused,
//! and the constants of this module bound the rest.

mod read;
mod tree;
mod write;

use std::fmt;

pub use read::read;
pub use write::write;

use crate::xml::is_xml;

/// The most bytes of a document.
pub const MAX_BYTES: usize = 64 << 20;

/// The most XML elements of a document.
pub const MAX_ELEMENTS: usize = 2_000_000;

/// The most elements that contain one another.
pub const MAX_DEPTH: usize = 100;

/// The most tokens that all places together have at the beginning.
pub const MAX_TOKENS: usize = 1_000_000;

/// The tool of which this module writes elements `<toolspecific>`.
const TOOL: &str = "farcall-olympus";

/// The version of what this module writes in elements `<toolspecific>`.
const VERSION: &str = "1";

/// Why a document cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line of the document, from 1.
    pub line: usize,
    /// The character of the line, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl Error {
    /// Returns the error about the byte `at` of `text`.
    fn new(text: &str, at: usize, what: impl Into<String>) -> Error {
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Error {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            what: what.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for Error {}

/// Returns whether the text stays as it is in an XML element that tools may indent anew.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && text.chars().all(|c| is_xml(c) && c != '\r')
}

/// Returns whether the text can be an XML identifier. (XML allows more letters than these.)
fn is_id(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_letter)
        && text.chars().all(|c| is_letter(c) || c.is_ascii_digit() || "-.".contains(c))
}
