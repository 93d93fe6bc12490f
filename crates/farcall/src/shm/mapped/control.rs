//! Decides by the control word, for an importer of mapped memory, whether an access was done to the segment.
//!
//! `tests/shared_mapping.rs` includes this file, and gives it loom's fences through `super::parts`.

use super::parts::{Ordering, fence};

/// Whether everything read so far was read from generation `generation` of the segment.
#[inline(always)]
pub(crate) fn has_read(generation: u64, control: impl FnOnce() -> u64) -> bool {
    fence(Ordering::Acquire);
    control() == generation
}

/// Whether everything written so far was written to generation `generation` of the segment. An exporter that
/// takes the memory away writes the control word before it reads what importers wrote.
#[inline(always)]
pub(crate) fn has_written(generation: u64, control: impl FnOnce() -> u64) -> bool {
    fence(Ordering::SeqCst);
    has_read(generation, control)
}
