//! What an importer asks the control word of mapped memory after each access: whether the access was done to
//! the segment.
//!
//! (tests/shared_mapping.rs includes this file, and gives it loom's fences through `super::parts`.)

use super::parts::{Ordering, fence};

/// Whether what was read so far was read from that generation of the segment.
#[inline(always)]
pub(crate) fn has_read(generation: u64, control: impl FnOnce() -> u64) -> bool {
    fence(Ordering::Acquire);
    control() == generation
}

/// Whether what was written so far was written to that generation of the segment: an exporter that takes the
/// memory away writes the control word before it reads what importers wrote.
#[inline(always)]
pub(crate) fn has_written(generation: u64, control: impl FnOnce() -> u64) -> bool {
    fence(Ordering::SeqCst);
    has_read(generation, control)
}
