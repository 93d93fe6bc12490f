//! The state of posted writes at both ends. A posted write is not acknowledged until the importer asks
//! (docs/memory-protocol.md, "Posted writes").
//!
//! This module does no I/O and reads no clock, so the simulator runs the same code.

mod exporter;
mod importer;

pub use exporter::{Streams, Write};
pub use importer::{Answer, Asking, Posts, may_ask_again};

/// Deliberate faults. Each breaks one rule, so that a test can show that the simulator notices the violation.
/// No real program sets one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The exporter uses the numbers of forgotten streams again.
    pub reuses_streams: bool,
    /// The exporter executes a write although an earlier one was not executed.
    pub does_early: bool,
    /// The exporter executes a write each time it arrives.
    pub does_again: bool,
    /// The exporter executes writes that come after a refused write in their stream.
    pub does_behind_refused: bool,
    /// The importer treats its posted writes as executed, whatever the exporter answers.
    pub believes_flush: bool,
}
