//! The memory of a segment at its exporter.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::carrier::SharedMemory;
use crate::words;

/// Memory that many access at the same time.
#[derive(Debug)]
pub(super) struct Area {
    place: Place,
    len: usize,
}

#[derive(Debug)]
enum Place {
    /// This process's alone.
    Own(Arc<[AtomicU64]>),
    /// Other processes may map it.
    Shared(Box<dyn SharedMemory>),
}

impl Area {
    /// Memory for `len` bytes, of this process alone.
    pub(super) fn own(words: Arc<[AtomicU64]>, len: usize) -> Area {
        Area { place: Place::Own(words), len }
    }

    /// Memory of `len` bytes that other processes may map.
    pub(super) fn shared(memory: Box<dyn SharedMemory>, len: usize) -> Area {
        Area { place: Place::Shared(memory), len }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether the area has `len` bytes at that offset.
    pub(super) fn has(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64)
    }

    /// The memory that other processes map, if they may map it.
    pub(super) fn shared_memory(&self) -> Option<&dyn SharedMemory> {
        match &self.place {
            Place::Own(_) => None,
            Place::Shared(memory) => Some(&**memory),
        }
    }

    /// Copies bytes out, words in ascending order. The bytes must be there.
    #[inline(always)]
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        match &self.place {
            Place::Own(words) => words::read(words, offset, into),
            Place::Shared(memory) => memory.read(offset, into),
        }
    }

    /// Copies bytes out in any order. The bytes must be there.
    pub(super) fn read_bytes(&self, offset: u64, into: &mut [u8]) {
        if !self.shared_memory().is_some_and(|memory| memory.copy_out(offset as usize, into)) {
            self.read(offset, into);
        }
    }

    /// Copies bytes in, words in ascending order. There must be room.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        self.with(|words| words::write(words, offset, bytes));
    }

    /// Copies bytes in, in any order. There must be room.
    pub(super) fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        if !self.shared_memory().is_some_and(|memory| memory.copy_in(offset as usize, bytes)) {
            self.write(offset, bytes);
        }
    }

    /// Compares and swaps the word at an offset that eight divides. Returns what it was before.
    pub(super) fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> u64 {
        let mut found = old;
        self.with(|words| found = words::compare_and_swap(words, offset, old, new));
        found
    }

    fn with(&self, mut access: impl FnMut(&[AtomicU64])) {
        match &self.place {
            Place::Own(words) => access(words),
            Place::Shared(memory) => memory.with(&mut access),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_known() {
        let area = Area::own(words::zeros(13).into(), 13);
        assert!(area.has(0, 13) && area.has(13, 0) && area.has(12, 1));
        assert!(!area.has(0, 14) && !area.has(14, 0) && !area.has(u64::MAX, 1) && !area.has(1, usize::MAX));
    }
}
