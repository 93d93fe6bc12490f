//! Letters: what one side writes into the other's memory at once, and the other finds whole.
//!
//! ```text
//! mailbox   … · bytes · length · number
//! ```
//!
//! A letter is one write that ends where its mailbox ends. Words are written in ascending order, so the number is the
//! last: who sees a new number finds the letter whole before it.

use farcall::memory::{Memory, Result};

const TAIL: u64 = 16;

/// Room for one letter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mailbox {
    base: u64,
    size: u64,
}

impl Mailbox {
    /// A mailbox at `base` of so many bytes.
    pub(crate) const fn new(base: u64, size: u64) -> Mailbox {
        Mailbox { base, size }
    }

    /// Where it ends.
    pub(crate) const fn end(&self) -> u64 {
        self.base + self.size
    }

    /// The bytes of the longest letter.
    pub(crate) const fn most(&self) -> usize {
        (self.size - TAIL) as usize
    }

    /// Writes a letter, which has at most [`Mailbox::most`] bytes.
    pub(crate) fn post(&self, memory: &dyn Memory, number: u64, letter: &[u8], notify: bool) -> Result<()> {
        let mut bytes = letter.to_vec();
        bytes.extend_from_slice(&(letter.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        let at = self.end().saturating_sub(bytes.len() as u64);
        match notify {
            true => memory.write_notify(at, &bytes),
            false => memory.write(at, &bytes),
        }
    }

    /// The number of the letter in it.
    pub(crate) fn number(&self, memory: &dyn Memory) -> Result<u64> {
        memory.load(self.end() - 8)
    }

    /// The letter in it, of which the number was seen.
    pub(crate) fn letter(&self, memory: &dyn Memory) -> Result<Vec<u8>> {
        let length = memory.load(self.end() - TAIL)?.min(self.most() as u64);
        let mut bytes = vec![0; length as usize];
        memory.read(self.end() - TAIL - length, &mut bytes)?;
        Ok(bytes)
    }
}
