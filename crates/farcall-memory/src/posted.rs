//! Posted writes: what both ends remember of writes that nobody acknowledges until the importer asks
//! (docs/memory-protocol.md, "Posted writes").
//!
//! No I/O, no time: the simulator drives the same code.

mod exporter;
mod importer;

pub use exporter::{Streams, Write};
pub use importer::{Answer, Asking, Posts, may_ask_again};

/// Deliberate faults, each of which breaks one rule, so that the simulator can show that it would notice. None is set in
/// a real program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The exporter uses the numbers of forgotten streams again.
    pub reuses_streams: bool,
    /// The exporter does a write though one before it was not done.
    pub does_early: bool,
    /// The exporter does a write as often as it comes.
    pub does_again: bool,
    /// The exporter does writes behind one that was refused.
    pub does_behind_refused: bool,
    /// The importer takes what it has posted to be done, whatever the exporter says.
    pub believes_flush: bool,
}
