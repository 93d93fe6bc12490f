//! Counts of what a clerk has done: accesses to the server's memory, and calls.

use std::sync::{Arc, Mutex, PoisonError};

use farcall::memory::{Memory, Result};

/// Counts a clerk's accesses and calls.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

/// The counts of a [`Tally`] at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Remote reads. A read of several ranges counts once.
    pub reads: u64,
    /// The bytes that these reads returned.
    pub bytes: u64,
    /// Remote writes without notice.
    pub writes: u64,
    /// Remote compare-and-swaps.
    pub swaps: u64,
    /// Remote writes with notice. Each transfers control to the server.
    pub letters: u64,
    /// Calls.
    pub calls: u64,
}

impl Tally {
    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Counts {
    /// Returns what was counted since `before`.
    #[must_use]
    pub fn since(self, before: Counts) -> Counts {
        self.combine(before, |now, before| now - before)
    }

    /// Returns the sum of two counts.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        self.combine(other, |one, other| one + other)
    }

    fn combine(self, other: Counts, each: fn(u64, u64) -> u64) -> Counts {
        Counts {
            reads: each(self.reads, other.reads),
            bytes: each(self.bytes, other.bytes),
            writes: each(self.writes, other.writes),
            swaps: each(self.swaps, other.swaps),
            letters: each(self.letters, other.letters),
            calls: each(self.calls, other.calls),
        }
    }
}

/// Memory of another process, with a count of every access to it.
pub(crate) struct Counted<M> {
    pub(crate) memory: M,
    pub(crate) tally: Arc<Tally>,
}

impl<M> Counted<M> {
    fn count_read(&self, bytes: usize) {
        self.tally.count(|counts| {
            counts.reads += 1;
            counts.bytes += bytes as u64;
        });
    }
}

impl<M: Memory> Memory for Counted<M> {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.count_read(into.len());
        self.memory.read(offset, into)
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.count_read(ranges.iter().map(|(_, into)| into.len()).sum());
        self.memory.read_each(ranges)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.tally.count(|counts| counts.writes += 1);
        self.memory.write(offset, bytes)
    }

    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.tally.count(|counts| counts.letters += 1);
        self.memory.write_notify(offset, bytes)
    }

    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        self.tally.count(|counts| *(if notify { &mut counts.letters } else { &mut counts.writes }) += 1);
        self.memory.write_each(ranges, notify)
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        self.tally.count(|counts| counts.swaps += 1);
        self.memory.compare_and_swap(offset, old, new)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }
}
