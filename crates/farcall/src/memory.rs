//! Memory that others read and write without a call: segments (Thekkath, Levy & Lazowska 1994).
//!
//! A process *exports* a segment of memory under a name; others *import* it, and read, write, and compare and swap at
//! any offset. Nothing of the exporter's is scheduled for it, unless they ask for its [notice](Notify).
//!
//! ```no_run
//! use farcall::memory::{Memory, Rights, Settings};
//!
//! # fn main() -> farcall::memory::Result<()> {
//! let load = farcall::memory::export("Load", Settings::new(64).anyone(Rights::READ))?;
//! load.store(0, 42)?;
//!
//! let remote = farcall::memory::import("Load")?; // anywhere else
//! assert_eq!(remote.load(0)?, 42);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run --example memory` is a whole program, both ends.
//!
//! **Words.** Eight bytes at an offset that eight divides are a word: a number in little-endian order, read and written
//! as a whole by everybody, near and far. An access of several words takes them in ascending order, one by one: a load
//! sees what was written before the store that it sees (acquire and release), so a later word of one access is never
//! older than what an earlier word of it has made known. Of several words together nothing is atomic: [`Memory`]
//! has no references into it, because others change it at any time.
//!
//! **Writes** of one importer are done in the order in which it made them. [`Memory::write`] returns when it may, which is when
//! the bytes are there wherever that is known today; [`Remote::post`] does so before. Only [`Memory::flush`] says that
//! all are done, or that one was refused.
//!
//! **Refusals** are [`Refused`], the declared exception of every access; whether an access that *failed* was done is
//! what [`CallFailed::ran`](crate::CallFailed::ran) says, as for a call.
//!
//! ```text
//! segment    memory that is exported, and what may be done with it
//! remote     a segment that is imported
//! carrier    the seam below it: how accesses reach the memory;  served: by packets;  mapped: by themselves;  pipeline: reads that share them
//! posts      writes of which nobody is told until they ask;  streams: the same at the exporter
//! access     what is served: accesses as an interface
//! clerk      how a segment is found by its name
//! counters   what a runtime counts, as a segment
//! notice     how an exporter hears that others wrote
//! pulse      whether an exporter lives
//! area       the words
//! word       one as an atomic number;  record: many that nobody reads half of;  ring: messages
//! ```

mod access;
mod area;
mod carrier;
pub mod clerk;
mod counters;
#[cfg_attr(not(target_os = "linux"), path = "memory/unmapped.rs", allow(dead_code))]
mod mapped;
mod notice;
mod pipeline;
mod posts;
mod pulse;
mod record;
mod remote;
mod ring;
mod segment;
mod served;
mod streams;
mod word;

use crate::Runtime;

pub(crate) use counters::{Words, offer_counters};
pub(crate) use mapped::Watcher;
pub(crate) use segment::Offers;

pub use access::Refused;
#[doc(hidden)]
pub use access::fuzz_access;
pub use counters::Counters;
#[doc(hidden)]
pub use counters::fuzz_counters;
pub use notice::Notice;
pub use pulse::{Beat, Pulse};
pub use record::{Record, Unread, Writer};
pub use remote::Remote;
pub use ring::{Consumer, Producer, Ring, Stuck};
pub use segment::{Notify, Rights, Segment, Settings};
pub use word::Word;

/// What an access gives: a value, or that it was [`Refused`], or failed.
pub type Result<T> = crate::Result<T, Refused>;

/// Bytes and words at offsets: a segment of this process, or somebody else's.
///
/// Offsets and lengths are in bytes, and any will do, within [`Memory::size`].
///
/// # Errors
/// Every access is [`Refused`] when it leaves the segment, when the right to it was not given, or the segment is exported no
/// longer, or anew; somebody else's fails as calls do.
pub trait Memory: Send + Sync {
    /// How many bytes there are.
    fn size(&self) -> u64;

    /// Reads as many bytes as `into` has.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Reads as many bytes as `into` has, in any order: nothing is promised of words, and long reads are faster.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(offset, into)
    }

    /// Reads several ranges, one after the other, in one packet if they fit one.
    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(offset, into)| self.read(*offset, into))
    }

    /// Writes bytes. May return before they are there: [`Memory::flush`] says when, and whether.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes bytes in any order, as [`Memory::read_bytes`] reads them.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    /// Writes, and asks that the exporter hear of it: it does if it exported with [`Notify::Asked`] or [`Notify::Always`].
    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes several ranges, one after the other, in one packet if they fit one. The exporter may be asked to hear of the last.
    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let Some(((offset, bytes), before)) = ranges.split_last() else { return Ok(()) };
        before.iter().try_for_each(|(offset, bytes)| self.write(*offset, bytes))?;
        if notify { self.write_notify(*offset, bytes) } else { self.write(*offset, bytes) }
    }

    /// Puts `new` into the word if it is `old`; gives what it was before. Once, whatever is lost or repeated.
    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64>;

    /// Waits until everything that was written is there.
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

/// Exports a new segment of zeros under a name, until the handle is dropped.
///
/// # Errors
/// When the name is no name or is taken, there is no memory, or the registry fails.
pub fn export(name: &str, settings: Settings) -> crate::Result<Segment> {
    Runtime::current()?.export_segment(name, settings)
}

/// Imports the segment that somebody exports under a name, or at an address (`"udp://10.0.0.7:7000/Load"`).
///
/// # Errors
/// When nobody exports the name, or nobody answers.
pub fn import(name: &str) -> crate::Result<Remote> {
    Runtime::current()?.import_segment(name)
}
