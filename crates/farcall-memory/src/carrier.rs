//! The interface between segments and their carriers. A carrier brings an importer's accesses to the memory.
//! The interface also defines how an exporter shares its memory with importers that map it.
//!
//! The rest of this crate does not know which carrier it uses. The carrier of this crate makes a
//! [call](crate::served) for each access. A runtime may have another carrier, by which importers map the
//! memory.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;

use crate::Result;
use crate::access::Refused;
use crate::deposit::{Deposit, DepositTarget};
use farcall_core::Pending;

/// Carries accesses to one generation of one segment.
///
/// The caller has checked that an access stays within the segment, that a started access is not too long,
/// that the offset of a word is a multiple of eight, and that the importer has the right to the access. The
/// carrier checks what may have changed since then.
pub trait Carrier: Send + Sync {
    /// Reads bytes, words in ascending order.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Reads bytes in any order.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(offset, into)
    }

    /// Reads several ranges, one after the other.
    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()>;

    /// Writes bytes, words in ascending order. `notify` asks that the exporter be notified. May return before
    /// the bytes are written.
    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()>;

    /// Writes bytes in any order. May return before the bytes are written.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes, false)
    }

    /// Writes several ranges, one after the other. `notify` asks that the exporter be notified of the last
    /// range.
    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let last = ranges.len().saturating_sub(1);
        let write = |(which, (offset, bytes)): (usize, &(u64, &[u8]))| {
            self.write(*offset, bytes, notify && which == last)
        };
        ranges.iter().enumerate().try_for_each(write)
    }

    /// Compares and swaps a word. Returns the word's former value.
    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64>;

    /// Writes bytes after all earlier posted writes, without an acknowledgement: [`Carrier::flush`] says
    /// whether the write was executed.
    fn post(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        self.write(offset, bytes, notify)
    }

    /// Waits until all earlier writes are executed.
    fn flush(&self) -> Result<()>;

    /// Starts a [`Carrier::flush`].
    fn start_flush(&self) -> Pending<(), Refused>;

    /// Starts a read.
    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused>;

    /// Starts a read whose bytes are deposited in a segment of this process. A byte is deposited only if it
    /// is known to be of the segment's generation.
    fn start_read_into(&self, offset: u64, len: u32, target: DepositTarget) -> Deposit;

    /// Starts a compare and swap. The word's former value is deposited in a segment of this process.
    fn start_compare_and_swap_into(&self, offset: u64, old: u64, new: u64, target: DepositTarget) -> Deposit;

    /// Starts a write.
    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused>;

    /// Starts a compare and swap.
    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused>;

    /// Returns a carrier to the same memory that gives each access this time. Both carriers post writes in
    /// one order.
    fn within(&self, time: Duration) -> Arc<dyn Carrier>;
}

/// A segment's memory at its exporter, if importers may map it, or if the kernel answers importers' reads.
///
/// The exporter's own accesses go through this too, because the memory moves when it is taken away from
/// importers.
pub trait SharedMemory: Send + Sync + Debug {
    /// Lets importers ask for the memory by the identifier of the segment's export.
    fn offer(&self, export: u64);

    /// Calls `access` once with the words, which do not move meanwhile.
    fn with(&self, access: &mut dyn FnMut(&[AtomicU64]));

    /// Copies bytes out of the memory, words in ascending order.
    fn read(&self, offset: u64, into: &mut [u8]);

    /// Copies bytes out of the memory, in any order. Returns false, without copying, where copying by words
    /// is as fast.
    fn copy_out(&self, offset: usize, into: &mut [u8]) -> bool;

    /// Copies bytes into the memory, in any order. Returns false, without copying, where copying by words is
    /// as fast.
    fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool;

    /// Sets whether importers that map the memory from now on are told that the exporter is notified of
    /// writes that ask for it.
    fn set_hears(&self, hears: bool);

    /// Returns whether importers that map the memory now are told so.
    fn hears(&self) -> bool;

    /// Returns whether importers may write the memory that they map.
    fn is_written_by_others(&self) -> bool;

    /// Returns whether this memory lets every process read it while it is offered, whoever it is: then it is
    /// offered only while anyone may read the segment.
    fn is_read_by_anyone(&self) -> bool {
        false
    }

    /// Takes the memory away from all importers that have mapped it. When this returns, no later access
    /// through a mapping reaches the segment, and the segment contains every write that an importer reports
    /// as executed. From then on the memory is offered as the generation `offer`, or not at all.
    ///
    /// # Errors
    /// When the system has no memory to which the segment could move. Then an importer that ignores what it
    /// is told may still reach the segment.
    fn take_away(&self, offer: Option<u64>) -> io::Result<()>;

    /// Keeps the memory in the machine's memory. The memory stays pinned when it moves, if the system allows
    /// that.
    ///
    /// # Errors
    /// The operating system's error, with the limit of this process.
    fn pin(&self) -> io::Result<()>;

    /// Lets the system page the memory out again.
    fn unpin(&self);

    /// Returns whether the memory is pinned.
    fn is_pinned(&self) -> bool;

    /// Asks the system to use huge pages, also when the memory has moved.
    ///
    /// # Errors
    /// When the system uses no huge pages for such memory.
    fn ask_for_huge_pages(&self) -> io::Result<()>;

    /// Ends the offer of the memory. Importers that have mapped it may go on reading their mapping.
    fn withdraw(&self);

    /// Returns how many reads over the network the kernel has answered, if the kernel serves the memory.
    fn answered_by_kernel(&self) -> Option<u64> {
        None
    }
}
