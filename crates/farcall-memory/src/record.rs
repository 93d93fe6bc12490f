//! A record that one process writes and many processes read. No reader gets a torn record, with parts of two
//! versions.
//!
//! The record lies between two words that count its versions, like the flag words in section 3.4 of Thekkath
//! et al. 1994. The writer increments the word behind the record, writes the record, and increments the word
//! in front. A reader reads all words in ascending order. If both counts are equal, the reader has read that
//! version: the count in front says that the version was complete, and the count behind says that the next
//! version had not been begun.

use crate::Memory;
use crate::access::Refused;
use crate::word::check_words;
use farcall_core::{Error, ResultExt};

/// Why a record could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// The record was being written at every read: its writer is slow, or has died while it wrote.
    Torn,
    /// The access was refused.
    Refused(Refused),
}

impl farcall_core::Exception for Unread {}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Torn => f.write_str(
                "the record was being written at every read; its writer may have died while it wrote",
            ),
            Unread::Refused(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Unread {}

/// A record of a fixed number of bytes in a segment.
///
/// ```
/// use farcall::memory::{Record, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let segment = runtime.export_segment("Weather", Settings::new(Record::<()>::size(12)))?;
/// let record = Record::new(&segment, 0, 12)?;
/// record.writer()?.write(b"rain, 12 deg")?;
///
/// let mut text = [0; 12]; // anywhere else, of an imported one
/// assert_eq!(record.read(&mut text)?, 1);
/// assert_eq!(&text, b"rain, 12 deg");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Record<M> {
    memory: M,
    offset: u64,
    len: usize,
    tries: usize,
}

/// Writes a record. There must be only one writer.
#[derive(Debug)]
pub struct Writer<M> {
    record: Record<M>,
    version: u64,
}

const WORD_BYTES: u64 = 8;
/// The most reads of a record that is being written. A writer that runs finishes long before.
const MAX_TRIES: usize = 1000;
/// After this many reads the reader yields its processor, which the writer may need.
const READS_BEFORE_YIELD: usize = 64;

impl<M> Record<M> {
    /// Returns how many bytes of memory a record of `len` bytes takes.
    pub const fn size(len: usize) -> usize {
        len.next_multiple_of(WORD_BYTES as usize) + 2 * WORD_BYTES as usize
    }

    /// Sets how often a torn record is read before `read` fails. The default is 1000.
    #[must_use]
    pub fn tries(self, tries: usize) -> Record<M> {
        Record { tries, ..self }
    }

    fn body(&self) -> u64 {
        self.offset + WORD_BYTES
    }

    /// Returns the offset of the word behind the record. The writer writes it first, and a reader reads it
    /// last.
    fn back(&self) -> u64 {
        self.body() + (self.len as u64).next_multiple_of(WORD_BYTES)
    }
}

impl<M: Memory> Record<M> {
    /// Returns the record of `len` bytes at an offset that is a multiple of eight, where it takes
    /// [`Record::size`] bytes. Memory that is all zeros holds version 0.
    ///
    /// # Errors
    /// [`Refused`] when the memory is too small.
    pub fn new(memory: M, offset: u64, len: usize) -> crate::Result<Record<M>> {
        let room = len.checked_add(3 * WORD_BYTES as usize).map_or(u64::MAX, |_| Self::size(len) as u64);
        check_words(&memory, offset, room)?;
        Ok(Record { memory, offset, len, tries: MAX_TRIES })
    }

    /// Reads the record. Returns its version.
    ///
    /// # Errors
    /// [`Unread`], or the failure of a call.
    ///
    /// # Panics
    /// If `into` does not have the length of the record.
    pub fn read(&self, into: &mut [u8]) -> farcall_core::Result<u64, Unread> {
        assert_eq!(into.len(), self.len, "the record's length");
        let (mut front, mut back) = ([0; 8], [0; 8]);
        for count in 0..self.tries {
            if count >= READS_BEFORE_YIELD {
                std::thread::yield_now();
            }
            let ranges =
                &mut [(self.offset, &mut front[..]), (self.body(), &mut *into), (self.back(), &mut back[..])];
            self.memory.read_each(ranges).map_declared(Unread::Refused)?;
            if front == back {
                return Ok(u64::from_le_bytes(front));
            }
        }
        Err(Error::Declared(Unread::Torn))
    }

    /// Returns the writer. If the former writer has died while it wrote, the next version makes the record
    /// whole.
    ///
    /// # Errors
    /// Those of [`Memory::load`].
    pub fn writer(self) -> crate::Result<Writer<M>> {
        let version = self.memory.load(self.back())?;
        Ok(Writer { record: self, version })
    }
}

impl<M: Memory> Writer<M> {
    /// Writes the next version. May return before the version is written, as [`Memory::write`] does.
    ///
    /// # Errors
    /// Those of [`Memory::write`]. The record may then be torn until it is written again.
    ///
    /// # Panics
    /// If `bytes` does not have the length of the record.
    pub fn write(&mut self, bytes: &[u8]) -> crate::Result<()> {
        let record = &self.record;
        assert_eq!(bytes.len(), record.len, "the record's length");
        self.version = self.version.wrapping_add(1);
        record.memory.store(record.back(), self.version)?;
        record.memory.write(record.body(), bytes)?;
        record.memory.store(record.offset, self.version)
    }

    /// Returns the version that was written last.
    pub fn version(&self) -> u64 {
        self.version
    }
}
