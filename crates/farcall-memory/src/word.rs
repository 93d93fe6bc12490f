//! A word of a segment as an atomic number.

use crate::access::{check_alignment, check_range};
use crate::{Memory, Result};
use farcall_core::{CallFailed, Kind, Ran};

/// A word of a segment as an atomic number.
///
/// ```
/// use farcall::memory::{Settings, Word};
///
/// # fn main() -> farcall::memory::Result<()> {
/// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let segment = runtime.export_segment("Counters", Settings::new(64))?;
/// let visits = Word::new(&segment, 8)?;
/// assert_eq!(visits.fetch_add(2)?, 0);
/// assert_eq!(visits.load()?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Word<M> {
    memory: M,
    offset: u64,
}

/// The most attempts of an update: how often the word may change between the read and the swap.
const MAX_TRIES: usize = 1000;

impl<M: Memory> Word<M> {
    /// Returns the word at an offset that is a multiple of eight.
    ///
    /// # Errors
    /// [`Refused`](crate::Refused) when there is no word at the offset.
    pub fn new(memory: M, offset: u64) -> Result<Word<M>> {
        check_words(&memory, offset, 8)?;
        Ok(Word { memory, offset })
    }

    /// Reads the word.
    ///
    /// # Errors
    /// Those of [`Memory::load`].
    pub fn load(&self) -> Result<u64> {
        self.memory.load(self.offset)
    }

    /// Writes the word. May return before the word is written.
    ///
    /// # Errors
    /// Those of [`Memory::store`].
    pub fn store(&self, new: u64) -> Result<()> {
        self.memory.store(self.offset, new)
    }

    /// Writes `new` if the word is `old`. Returns the word's former value.
    ///
    /// # Errors
    /// Those of [`Memory::compare_and_swap`].
    pub fn compare_and_swap(&self, old: u64, new: u64) -> Result<u64> {
        self.memory.compare_and_swap(self.offset, old, new)
    }

    /// Writes `new`. Returns the word's former value.
    ///
    /// # Errors
    /// Those of [`Word::fetch_update`].
    pub fn swap(&self, new: u64) -> Result<u64> {
        self.fetch_update(|_| Some(new))
    }

    /// Adds `more`, wrapping around. Returns the word's former value.
    ///
    /// # Errors
    /// Those of [`Word::fetch_update`].
    pub fn fetch_add(&self, more: u64) -> Result<u64> {
        self.fetch_update(|old| Some(old.wrapping_add(more)))
    }

    /// Calls `f` with the word's value, and replaces the word by the number that `f` returns. Changes nothing
    /// if `f` returns `None`. Returns the word's former value. Calls `f` again whenever the word has changed
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [`Memory::compare_and_swap`]; and [`Kind::Overloaded`] with [`Ran::No`] when the word has
    /// changed a thousand times.
    pub fn fetch_update(&self, mut f: impl FnMut(u64) -> Option<u64>) -> Result<u64> {
        let mut old = self.load()?;
        for _ in 0..MAX_TRIES {
            let Some(new) = f(old) else { return Ok(old) };
            match self.compare_and_swap(old, new)? {
                found if found == old => return Ok(old),
                found => old = found,
            }
        }
        let why =
            format!("the word at offset {} has changed between read and swap {MAX_TRIES} times", self.offset);
        Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why).into())
    }
}

/// Checks that the memory has `len` bytes at this offset, and that a word begins there.
pub(super) fn check_words(memory: &impl Memory, offset: u64, len: u64) -> Result<()> {
    check_alignment(offset)?;
    check_range(memory.size(), offset, len)
}
