//! What a clerk has done: accesses to the server's memory, and calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::memory::{Memory, Result};

/// Counts, by what they cost the server.
#[derive(Debug, Default)]
pub struct Tally {
    reads: AtomicU64,
    bytes: AtomicU64,
    writes: AtomicU64,
    swaps: AtomicU64,
    letters: AtomicU64,
    calls: AtomicU64,
}

/// A [`Tally`] at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Remote reads, of one range or of several.
    pub reads: u64,
    /// The bytes that these gave.
    pub bytes: u64,
    /// Remote writes without notice.
    pub writes: u64,
    /// Remote compare-and-swaps.
    pub swaps: u64,
    /// Remote writes with notice: each transfers control.
    pub letters: u64,
    /// Calls.
    pub calls: u64,
}

impl Tally {
    /// What there was so far.
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            reads: of(&self.reads),
            bytes: of(&self.bytes),
            writes: of(&self.writes),
            swaps: of(&self.swaps),
            letters: of(&self.letters),
            calls: of(&self.calls),
        }
    }

    fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counts {
    /// What came since.
    #[must_use]
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            bytes: self.bytes - before.bytes,
            writes: self.writes - before.writes,
            swaps: self.swaps - before.swaps,
            letters: self.letters - before.letters,
            calls: self.calls - before.calls,
        }
    }

    /// Both.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            reads: self.reads + other.reads,
            bytes: self.bytes + other.bytes,
            writes: self.writes + other.writes,
            swaps: self.swaps + other.swaps,
            letters: self.letters + other.letters,
            calls: self.calls + other.calls,
        }
    }
}

/// Somebody else's memory, every access to which is counted.
pub(crate) struct Counted<M> {
    pub(crate) memory: M,
    pub(crate) tally: Arc<Tally>,
}

impl<M: Memory> Memory for Counted<M> {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.tally.read(into.len());
        self.memory.read(offset, into)
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.tally.read(ranges.iter().map(|(_, into)| into.len()).sum());
        self.memory.read_each(ranges)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.tally.writes.fetch_add(1, Ordering::Relaxed);
        self.memory.write(offset, bytes)
    }

    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.tally.letters.fetch_add(1, Ordering::Relaxed);
        self.memory.write_notify(offset, bytes)
    }

    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let counter = if notify { &self.tally.letters } else { &self.tally.writes };
        counter.fetch_add(1, Ordering::Relaxed);
        self.memory.write_each(ranges, notify)
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        self.tally.swaps.fetch_add(1, Ordering::Relaxed);
        self.memory.compare_and_swap(offset, old, new)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }
}
