//! Tells an importer of mapped memory whether an access that it just made still reached the segment. The
//! importer compares the control word, which holds the segment's generation, with the generation that it has
//! mapped.
//!
//! `tests/shared_mapping.rs` includes this file, and gives it loom's fences through `super::parts`.

use super::parts::{Ordering, fence};

/// Returns whether everything read so far was read from generation `generation` of the segment.
#[inline(always)]
pub(crate) fn has_read(generation: u64, control: impl FnOnce() -> u64) -> bool {
    fence(Ordering::Acquire);
    control() == generation
}

/// Returns whether everything written so far was written to generation `generation` of the segment. The fence
/// is SeqCst: an exporter that takes the memory away writes the control word and then reads the memory, and
/// the importer writes the memory and then reads the control word, so at least one of them sees the other's
/// write.
#[inline(always)]
pub(crate) fn has_written(generation: u64, control: impl FnOnce() -> u64) -> bool {
    fence(Ordering::SeqCst);
    has_read(generation, control)
}
