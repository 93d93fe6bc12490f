//! Memory that other processes read and write without a call: segments (Thekkath, Levy & Lazowska 1994).
//! Users depend on `farcall`, whose module `memory` explains segments and re-exports their types.
//!
//! This crate neither sends packets nor maps memory: a [runtime](MemoryRuntime) exports and imports segments,
//! and [carriers](Carrier) carry accesses to them.
//!
//! ```text
//! clerk      the segment name service: finds a segment by its name
//! segment    an exported segment;  notice: tells its exporter of importers' writes
//! renewing   an import that outlives generations and exporters
//! remote     an imported segment;  deposit: a started access whose result arrives in a segment
//! served     the carrier that makes a call for each access
//! posted     the state of posted writes, at both ends
//! runtime    the interface to the runtime: what segments need of it, and what they give it to serve
//! carrier    the interface to the carriers, by which accesses reach the memory
//! access     the accesses as procedures, and the reasons for refusals
//! word       an atomic word;  record: a versioned record that is never read torn;  ring: a message queue
//! pulse      detection of dead exporters
//! words      copying bytes to and from atomic words
//! ```

#![forbid(unsafe_code)]

// The code that the macros generate names `::farcall`.
extern crate farcall_core as farcall;

mod access;
mod carrier;
pub mod clerk;
mod deposit;
mod notice;
#[doc(hidden)]
pub mod posted;
mod pulse;
mod record;
mod remote;
mod renewing;
mod ring;
mod runtime;
mod segment;
mod served;
mod word;
pub mod words;

pub use access::{ACCESSES, Access, Facts, MAX_POST_BYTES, READINGS, Refused, Rights, TYPE};
pub use carrier::{Carrier, SharedMemory};
pub use deposit::{Deposit, DepositTarget};
pub use notice::Notice;
#[doc(hidden)]
pub use notice::{Kind as NoticeKind, Notices};
pub use pulse::{Beat, Pulse};
pub use record::{Record, Unread, Writer};
pub use remote::Remote;
pub use renewing::Renewing;
pub use ring::{Consumer, Producer, Ring, Stuck};
pub use runtime::{AccessHandler, Accessor, ImportedMemory, Map, MemoryExport, MemoryRuntime, SharingTerms};
#[doc(hidden)]
pub use segment::fuzz_access;
pub use segment::{Condition, HugePages, Importers, Notify, Segment, Settings, readable_words};
pub use word::Word;

/// The outcome of an access: a value, a refusal by the exporter, or the failure of the call that carried the
/// access.
pub type Result<T> = farcall_core::Result<T, Refused>;

/// A segment of this process, or an imported one: bytes and words at offsets.
///
/// Offsets and lengths are in bytes. They need no alignment, except for words, and must lie within
/// [`Memory::size`].
///
/// # Errors
/// An access is [`Refused`] if it leaves the segment, if the right to it was not given, or if the segment was
/// revoked or exported again. An access to an imported segment may also fail as a call does. A write of more
/// than 1 MiB may be made in parts; if a later part cannot be written, the write fails with
/// [`Ran::Maybe`](farcall_core::Ran::Maybe).
pub trait Memory: Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes at an offset, words in ascending order.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Fills `into` with the bytes at an offset, in any order. A word may be read while it is half written.
    /// This is faster than [`Memory::read`] for long reads.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(offset, into)
    }

    /// Reads several ranges, one after the other. They go in one packet if they fit.
    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(offset, into)| self.read(*offset, into))
    }

    /// Writes bytes at an offset, words in ascending order. May return before the bytes are written.
    /// [`Memory::flush`] waits until they are, and says whether the write succeeded.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes bytes at an offset, in any order. A reader may see a word half written. This is faster than
    /// [`Memory::write`] for long writes.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    /// Writes bytes, and asks that the exporter be notified. Every exporter is that did not choose
    /// [`Notify::Never`]. It gets one notice, of all bytes, when all are written. (One that chose
    /// [`Notify::Always`] also gets a notice of each mebibyte of a write that has more than one.)
    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes several ranges, one after the other. They go in one packet if they fit. `notify` asks that the
    /// exporter be notified of the last range.
    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let Some(((offset, bytes), before)) = ranges.split_last() else { return Ok(()) };
        before.iter().try_for_each(|(offset, bytes)| self.write(*offset, bytes))?;
        if notify { self.write_notify(*offset, bytes) } else { self.write(*offset, bytes) }
    }

    /// Writes `new` if the word is `old`. Returns the word's former value. The swap is executed at most once,
    /// whatever packets are lost or repeated.
    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64>;

    /// Waits until all earlier writes are executed.
    fn flush(&self) -> Result<()>;

    /// Reads the word at an offset that is a multiple of eight.
    fn load(&self, offset: u64) -> Result<u64> {
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes the word at an offset that is a multiple of eight.
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
