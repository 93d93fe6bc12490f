//! The records of a journal.

use serde::{Deserialize, Serialize};

use crate::interpreter::{Decision, Ended};
use crate::model::{Graph, Token};

/// The version of the journal's form, which the first record has.
pub const VERSION: u32 = 2;

/// A record. Firings are numbered as by the interpreter; places and nodes as in the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    /// The graph that is interpreted. It is the first record. It comes again if the graph is edited.
    Graph {
        /// The version of the journal's form.
        version: u32,
        /// The seed by which the interpreter chooses among enabled nodes.
        seed: u64,
        /// The graph.
        graph: Graph,
    },
    /// A node has taken its tokens.
    Begin {
        /// The firing.
        firing: u64,
        /// Its node.
        node: u32,
        /// The time of the graph's clock, in nanoseconds.
        now: u64,
        /// Whether its procedure is called next. Otherwise, [`Record::Call`] comes first.
        calls: bool,
        /// Whether that procedure may be called again when it is not known if it ran.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// The procedure of a firing is called next.
    Call {
        /// The firing.
        firing: u64,
        /// Whether the procedure may be called again when it is not known if it ran.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// A firing has ended.
    End {
        /// The firing.
        firing: u64,
        /// How it ended.
        ended: Ended,
    },
    /// The time of a firing has come that had taken its tokens before.
    Due {
        /// The firing.
        firing: u64,
        /// The time of the graph's clock, in nanoseconds.
        now: u64,
    },
    /// Somebody has put tokens into a place.
    Put {
        /// The place.
        place: u32,
        /// The tokens.
        tokens: Vec<Token>,
    },
    /// Somebody has taken tokens out of a place.
    Take {
        /// The place.
        place: u32,
        /// How many tokens.
        count: u32,
    },
    /// Somebody has decided about a firing that had stopped.
    Decide {
        /// The firing.
        firing: u64,
        /// The decision.
        decision: Decision,
    },
}

/// A [`Record::End`] that borrows its outcome.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Borrowed<'a> {
    End { firing: u64, ended: &'a Ended },
}

impl Record {
    /// Appends the record as a line.
    pub fn write(&self, to: &mut Vec<u8>) {
        write(self, to);
    }

    /// Appends a [`Record::End`] as a line.
    pub(super) fn write_end(firing: u64, ended: &Ended, to: &mut Vec<u8>) {
        write(&Borrowed::End { firing, ended }, to);
    }
}

fn write(record: &impl Serialize, to: &mut Vec<u8>) {
    let before = to.len();
    match serde_json::to_writer(&mut *to, record) {
        Ok(()) => to.push(b'\n'),
        // A record has only strings as keys, and a vector takes every byte, so this does not occur.
        Err(_) => to.truncate(before),
    }
}
