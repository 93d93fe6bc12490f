//! A word of a segment as an atomic number.

use crate::access::Refused;
use crate::{Memory, Result};
use farcall_core::{CallFailed, Kind, Ran};

/// A word of some memory, as an atomic number.
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

/// How often a word may change between a read and a swap before an update is given up.
const MAX_TRIES: usize = 1000;

impl<M: Memory> Word<M> {
    /// The word at an offset that eight divides.
    ///
    /// # Errors
    /// When there is no such word.
    pub fn new(memory: M, offset: u64) -> Result<Word<M>> {
        place(&memory, offset, 8)?;
        Ok(Word { memory, offset })
    }

    /// Reads it.
    ///
    /// # Errors
    /// As [`Memory::load`].
    pub fn load(&self) -> Result<u64> {
        self.memory.load(self.offset)
    }

    /// Writes the word. It may return before the word is there.
    ///
    /// # Errors
    /// As [`Memory::store`].
    pub fn store(&self, new: u64) -> Result<()> {
        self.memory.store(self.offset, new)
    }

    /// Writes `new` if the word is `old`. Returns what the word was.
    ///
    /// # Errors
    /// As [`Memory::compare_and_swap`].
    pub fn compare_and_swap(&self, old: u64, new: u64) -> Result<u64> {
        self.memory.compare_and_swap(self.offset, old, new)
    }

    /// Writes `new`. Returns what the word was.
    ///
    /// # Errors
    /// As [`Word::fetch_update`].
    pub fn swap(&self, new: u64) -> Result<u64> {
        self.fetch_update(|_| Some(new))
    }

    /// Adds, wrapping around. Returns what the word was.
    ///
    /// # Errors
    /// As [`Word::fetch_update`].
    pub fn fetch_add(&self, more: u64) -> Result<u64> {
        self.fetch_update(|old| Some(old.wrapping_add(more)))
    }

    /// Writes what `f` returns for the word, unless that is `None`. Returns what the word was. `f` is called again whenever
    /// the word has changed meanwhile.
    ///
    /// # Errors
    /// As [`Memory::compare_and_swap`]; and [`Kind::Overloaded`], [`Ran::No`], when the word has changed a thousand times.
    pub fn fetch_update(&self, mut f: impl FnMut(u64) -> Option<u64>) -> Result<u64> {
        let mut old = self.load()?;
        for _ in 0..MAX_TRIES {
            let Some(new) = f(old) else { return Ok(old) };
            match self.compare_and_swap(old, new)? {
                found if found == old => return Ok(old),
                found => old = found,
            }
        }
        let why = format!("the word at {} has changed {MAX_TRIES} times", self.offset);
        Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why).into())
    }
}

/// Checks that the memory has `len` bytes at that offset, and that a word begins there.
pub(super) fn place(memory: &impl Memory, offset: u64, len: u64) -> Result<()> {
    if !offset.is_multiple_of(8) {
        return Err(Refused::NotAWord.into());
    }
    match offset.checked_add(len) {
        Some(end) if end <= memory.size() => Ok(()),
        _ => Err(Refused::OutOfRange(memory.size()).into()),
    }
}
