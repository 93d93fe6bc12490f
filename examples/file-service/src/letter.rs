//! Letters: messages that one side, a clerk or the server, writes into the other side's memory. The other
//! side never reads half of a letter.
//!
//! ```text
//! mailbox   … · bytes · length · number
//! ```
//!
//! A letter is one write that ends where its mailbox ends. Words are written in ascending order, so the
//! number is written last: a reader that sees a new number finds the whole letter before it.

use farcall::memory::{Memory, Result};

/// The bytes of a letter's length and number.
const TAIL_BYTES: u64 = 16;

/// The position of one letter in a segment of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mailbox {
    base: u64,
    size: u64,
}

impl Mailbox {
    /// Returns a mailbox of `size` bytes at `base`.
    pub(crate) const fn new(base: u64, size: u64) -> Mailbox {
        Mailbox { base, size }
    }

    /// Returns the offset at which the mailbox ends.
    pub(crate) const fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Returns the length of the longest letter in bytes.
    pub(crate) const fn most(&self) -> usize {
        (self.size - TAIL_BYTES) as usize
    }

    /// Returns the offset at which a letter is written, and the bytes to write. The letter has at most
    /// [`Mailbox::most`] bytes.
    pub(crate) fn layout(&self, number: u64, letter: &[u8]) -> (u64, Vec<u8>) {
        let mut bytes = letter.to_vec();
        bytes.extend_from_slice(&(letter.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        (self.end().saturating_sub(bytes.len() as u64), bytes)
    }

    /// Writes a letter with notice.
    pub(crate) fn post(&self, memory: &dyn Memory, number: u64, letter: &[u8]) -> Result<()> {
        let (at, bytes) = self.layout(number, letter);
        memory.write_notify(at, &bytes)
    }

    /// Returns the number of the letter in the mailbox.
    pub(crate) fn number(&self, memory: &dyn Memory) -> Result<u64> {
        memory.load(self.end() - 8)
    }

    /// Returns the letter in the mailbox. Read its number first.
    pub(crate) fn letter(&self, memory: &dyn Memory) -> Result<Vec<u8>> {
        let length = memory.load(self.end() - TAIL_BYTES)?.min(self.most() as u64);
        let mut bytes = vec![0; length as usize];
        memory.read(self.end() - TAIL_BYTES - length, &mut bytes)?;
        Ok(bytes)
    }
}
