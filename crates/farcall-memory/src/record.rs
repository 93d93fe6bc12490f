//! A record that one process writes and many read. No reader gets half of it.
//!
//! The record stands between two words that count its versions (as the flag words of the paper's section 3.4 do). The writer
//! raises the word behind the record, writes the record, and raises the word in front. A reader takes words in ascending
//! order. What it finds between two equal numbers is that version: the front says that the version was whole, the back that
//! the next version had not been begun.

use crate::Memory;
use crate::access::Refused;
use crate::word::place;
use farcall_core::{Error, ResultExt};

/// Why a record could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// It was being written at every read: its writer is slow, or has died in the middle.
    Torn,
    /// The access was refused.
    Refused(Refused),
}

impl farcall_core::Exception for Unread {}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Torn => {
                f.write_str("the record is being written; its writer may have died in the middle")
            }
            Unread::Refused(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Unread {}

/// A record of a fixed number of bytes in some memory.
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

const WORD: u64 = 8;
/// How often a record is read: a writer that is not stopped has written it long before.
const MAX_TRIES: usize = 1000;
/// After this many reads the reader gives up its processor, which the writer may need.
const YIELDS_AFTER: usize = 64;

impl<M> Record<M> {
    /// How many bytes of memory a record of `len` bytes takes.
    pub const fn size(len: usize) -> usize {
        len.next_multiple_of(WORD as usize) + 2 * WORD as usize
    }

    /// Sets how often the record is read before it is said to be torn, instead of a thousand times.
    #[must_use]
    pub fn tries(self, tries: usize) -> Record<M> {
        Record { tries, ..self }
    }

    fn body(&self) -> u64 {
        self.offset + WORD
    }

    /// The offset of the word behind the record, where the writer begins and a reader ends.
    fn back(&self) -> u64 {
        self.body() + (self.len as u64).next_multiple_of(WORD)
    }
}

impl<M: Memory> Record<M> {
    /// A record of `len` bytes, which takes [`Record::size`] bytes at an offset that eight divides. Memory that is all
    /// zeros is its version 0.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn new(memory: M, offset: u64, len: usize) -> crate::Result<Record<M>> {
        let room = len.checked_add(3 * WORD as usize).map_or(u64::MAX, |_| Self::size(len) as u64);
        place(&memory, offset, room)?;
        Ok(Record { memory, offset, len, tries: MAX_TRIES })
    }

    /// Reads the record. Returns its version.
    ///
    /// # Errors
    /// [`Unread`], or as calls fail.
    ///
    /// # Panics
    /// If `into` has not the length of the record.
    pub fn read(&self, into: &mut [u8]) -> farcall_core::Result<u64, Unread> {
        assert_eq!(into.len(), self.len, "the record's length");
        let (mut front, mut back) = ([0; 8], [0; 8]);
        for count in 0..self.tries {
            if count >= YIELDS_AFTER {
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

    /// Returns the writer. If the former writer has died in the middle, the next version makes the record whole.
    ///
    /// # Errors
    /// As [`Memory::load`].
    pub fn writer(self) -> crate::Result<Writer<M>> {
        let version = self.memory.load(self.back())?;
        Ok(Writer { record: self, version })
    }
}

impl<M: Memory> Writer<M> {
    /// Writes the next version. It may return before the version is there, as [`Memory::write`] does.
    ///
    /// # Errors
    /// As [`Memory::write`]; the record may be torn then until it is written again.
    ///
    /// # Panics
    /// If `bytes` has not the length of the record.
    pub fn write(&mut self, bytes: &[u8]) -> crate::Result<()> {
        let record = &self.record;
        assert_eq!(bytes.len(), record.len, "the record's length");
        self.version = self.version.wrapping_add(1);
        record.memory.store(record.back(), self.version)?;
        record.memory.write(record.body(), bytes)?;
        record.memory.store(record.offset, self.version)
    }

    /// The version that was written last.
    pub fn version(&self) -> u64 {
        self.version
    }
}
