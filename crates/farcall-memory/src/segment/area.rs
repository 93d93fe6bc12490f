//! The memory of a segment at its exporter.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crate::carrier::SharedMemory;
use crate::words;
use farcall_core::lock;
use farcall_core::sys::{Pinned, ZeroedWords, ask_for_huge_pages};

/// Memory that several threads and processes access at the same time.
#[derive(Debug)]
pub(super) struct Area {
    /// Set while memory of this process alone is pinned. It is dropped before the memory.
    pinned: Mutex<Option<Pinned>>,
    place: Place,
    len: usize,
}

#[derive(Debug)]
enum Place {
    /// Memory of this process alone.
    Own(ZeroedWords),
    /// Words that the owner of the segment writes by itself.
    Given(Arc<[AtomicU64]>),
    /// Memory that other processes may map.
    Shared(Box<dyn SharedMemory>),
}

impl Area {
    /// Returns memory of `len` bytes that no other process may map.
    ///
    /// # Errors
    /// When this process has no memory for them.
    pub(super) fn own(len: usize) -> io::Result<Area> {
        Ok(Area { pinned: Mutex::default(), place: Place::Own(ZeroedWords::new(len)?), len })
    }

    /// Returns memory that consists of these words, of which `len` bytes are used.
    pub(super) fn given(words: Arc<[AtomicU64]>, len: usize) -> Area {
        Area { pinned: Mutex::default(), place: Place::Given(words), len }
    }

    /// Returns memory of `len` bytes that other processes may map.
    pub(super) fn shared(memory: Box<dyn SharedMemory>, len: usize) -> Area {
        Area { pinned: Mutex::default(), place: Place::Shared(memory), len }
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are `len` bytes at this offset.
    pub(super) fn has(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64)
    }

    /// Returns the memory that other processes may map, if they may.
    pub(super) fn shared_memory(&self) -> Option<&dyn SharedMemory> {
        match &self.place {
            Place::Own(_) | Place::Given(_) => None,
            Place::Shared(memory) => Some(&**memory),
        }
    }

    /// Copies bytes out of the memory, words in ascending order. The range must be within the memory.
    #[inline(always)]
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        match &self.place {
            Place::Own(words) => words::read(words, offset, into),
            Place::Given(words) => words::read(words, offset, into),
            Place::Shared(memory) => memory.read(offset, into),
        }
    }

    /// Returns the word at an offset that is a multiple of eight, within the memory.
    pub(super) fn load(&self, offset: u64) -> u64 {
        let mut word = [0; 8];
        self.read(offset, &mut word);
        u64::from_le_bytes(word)
    }

    /// Copies bytes out of the memory, in any order. The range must be within the memory.
    pub(super) fn read_bytes(&self, offset: u64, into: &mut [u8]) {
        if !self.shared_memory().is_some_and(|memory| memory.copy_out(offset as usize, into)) {
            self.read(offset, into);
        }
    }

    /// Copies bytes into the memory, words in ascending order. The range must be within the memory.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        self.with(|words| words::write(words, offset, bytes));
    }

    /// Copies bytes into the memory, in any order. The range must be within the memory.
    pub(super) fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        if !self.shared_memory().is_some_and(|memory| memory.copy_in(offset as usize, bytes)) {
            self.write(offset, bytes);
        }
    }

    /// Compares and swaps the word at an offset that is a multiple of eight. Returns the word's former value.
    pub(super) fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> u64 {
        let mut found = old;
        self.with(|words| found = words::compare_and_swap(words, offset, old, new));
        found
    }

    /// Keeps the memory in the machine's memory.
    pub(super) fn pin(&self) -> io::Result<()> {
        match &self.place {
            Place::Own(words) => self.pin_own(words),
            Place::Given(words) => self.pin_own(words),
            Place::Shared(memory) => memory.pin(),
        }
    }

    fn pin_own(&self, words: &[AtomicU64]) -> io::Result<()> {
        let pinned = &mut *lock(&self.pinned);
        if pinned.is_none() {
            *pinned = Some(Pinned::new(words)?);
        }
        Ok(())
    }

    /// Lets the system page the memory out again.
    pub(super) fn unpin(&self) {
        match &self.place {
            Place::Own(_) | Place::Given(_) => drop(lock(&self.pinned).take()),
            Place::Shared(memory) => memory.unpin(),
        }
    }

    pub(super) fn is_pinned(&self) -> bool {
        match &self.place {
            Place::Own(_) | Place::Given(_) => lock(&self.pinned).is_some(),
            Place::Shared(memory) => memory.is_pinned(),
        }
    }

    /// Asks the system to use huge pages.
    pub(super) fn ask_for_huge_pages(&self) -> io::Result<()> {
        match &self.place {
            Place::Own(words) => ask_for_huge_pages(words, false),
            Place::Given(words) => ask_for_huge_pages(words, false),
            Place::Shared(memory) => memory.ask_for_huge_pages(),
        }
    }

    fn with(&self, mut access: impl FnMut(&[AtomicU64])) {
        match &self.place {
            Place::Own(words) => access(words),
            Place::Given(words) => access(words),
            Place::Shared(memory) => memory.with(&mut access),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_beyond_the_end_is_refused() {
        let area = Area::own(13).unwrap();
        assert!(area.has(0, 13) && area.has(13, 0) && area.has(12, 1));
        assert!(!area.has(0, 14) && !area.has(14, 0) && !area.has(u64::MAX, 1) && !area.has(1, usize::MAX));
    }
}
