//! Memory that others read and write without a call: segments (Thekkath, Levy & Lazowska 1994). Users depend on `farcall`,
//! whose module `memory` says what segments are and re-exports what concerns them.
//!
//! Nothing here knows how packets are sent, or how memory is mapped: a [runtime](MemoryRuntime) exports and imports
//! segments, and [carriers](Carrier) carry accesses.
//!
//! ```text
//! clerk      how a segment is found by its name
//! segment    memory that is exported;  notice: how its exporter hears that others wrote
//! remote     a segment that is imported
//! served     the carrier by calls
//! posted     what both ends remember of posted writes
//! runtime    the seam above: what segments need of a runtime, and what they give it to serve
//! carrier    the seam below: how accesses reach the memory
//! access     what may be asked of a segment, and why it is refused
//! word       a word as an atomic number;  record: words that are read whole or not at all;  ring: messages
//! pulse      whether an exporter lives
//! words      bytes in atomic words
//! ```

#![forbid(unsafe_code)]

// What the macros make says `::farcall`.
extern crate farcall_core as farcall;

mod access;
mod carrier;
pub mod clerk;
mod notice;
#[doc(hidden)]
pub mod posted;
mod pulse;
mod record;
mod remote;
mod ring;
mod runtime;
mod segment;
mod served;
mod word;
pub mod words;

pub use access::{ACCESSES, Access, Facts, MAX_POST_BYTES, READINGS, Refused, Rights, TYPE};
pub use carrier::{Carrier, SharedMemory};
pub use notice::Notice;
pub use pulse::{Beat, Pulse};
pub use record::{Record, Unread, Writer};
pub use remote::Remote;
pub use ring::{Consumer, Producer, Ring, Stuck};
pub use runtime::{AccessHandler, Accessor, ImportedMemory, Map, MemoryExport, MemoryRuntime, SharingTerms};
#[doc(hidden)]
pub use segment::fuzz_access;
pub use segment::{Notify, Segment, Settings, readable_words};
pub use word::Word;

/// The outcome of an access: a value, or that the access was [`Refused`] or failed.
pub type Result<T> = farcall_core::Result<T, Refused>;

/// Bytes and words at offsets: a segment of this process, or an imported one.
///
/// Offsets and lengths are in bytes, and any will do, within [`Memory::size`].
///
/// # Errors
/// An access is [`Refused`] if it leaves the segment, if the right to it was not given, or if the segment was revoked or exported
/// again. An access to an imported segment may also fail as a call does.
pub trait Memory: Send + Sync {
    /// How many bytes there are.
    fn size(&self) -> u64;

    /// Reads as many bytes as `into` has.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Reads as many bytes as `into` has, in any order. Words may be torn, and long reads are faster.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(offset, into)
    }

    /// Reads several ranges, one after the other, in one packet if they fit one.
    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(offset, into)| self.read(*offset, into))
    }

    /// Writes bytes. It may return before they are there: [`Memory::flush`] waits until they are, and says whether.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes bytes in any order, as [`Memory::read_bytes`] reads them.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    /// Writes, and asks that the exporter hear of it. An exporter does if it exported with [`Notify::Asked`] or
    /// [`Notify::Always`].
    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes several ranges, one after the other, in one packet if they fit one. The exporter may be asked to hear of the last.
    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let Some(((offset, bytes), before)) = ranges.split_last() else { return Ok(()) };
        before.iter().try_for_each(|(offset, bytes)| self.write(*offset, bytes))?;
        if notify { self.write_notify(*offset, bytes) } else { self.write(*offset, bytes) }
    }

    /// Writes `new` if the word is `old`. Returns what the word was. The swap is done at most once, whatever packets are lost or
    /// repeated.
    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64>;

    /// Waits until all bytes that were written are there.
    fn flush(&self) -> Result<()>;

    /// Reads a word.
    fn load(&self, offset: u64) -> Result<u64> {
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes a word.
    fn store(&self, offset: u64, word: u64) -> Result<()> {
        self.write(offset, &word.to_le_bytes())
    }
}

macro_rules! forward {
    ($memory:ty) => {
        impl<M: Memory + ?Sized> Memory for $memory {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
                (**self).read(offset, into)
            }
            fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
                (**self).read_bytes(offset, into)
            }
            fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
                (**self).read_each(ranges)
            }
            fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
                (**self).write(offset, bytes)
            }
            fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
                (**self).write_bytes(offset, bytes)
            }
            fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
                (**self).write_notify(offset, bytes)
            }
            fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
                (**self).write_each(ranges, notify)
            }
            fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
                (**self).compare_and_swap(offset, old, new)
            }
            fn flush(&self) -> Result<()> {
                (**self).flush()
            }
        }
    };
}

forward!(&M);
forward!(std::sync::Arc<M>);
