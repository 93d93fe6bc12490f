//! The seam below segments: how the accesses of an importer reach the memory, and how an exporter shares it.
//!
//! Nothing above knows which carrier it has. Accesses that are [served](crate::served) are calls; a runtime may have
//! other carriers, which let importers map the memory.

use std::fmt::Debug;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use crate::Result;
use crate::access::Refused;
use farcall_core::Pending;

/// Carries accesses to one generation of one segment.
///
/// The caller has checked that an access stays within the segment, that words are words, and that the right to the
/// access was given. The carrier checks what may have changed since then.
pub trait Carrier: Send + Sync {
    /// Reads bytes, words in ascending order.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Reads bytes in any order.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(offset, into)
    }

    /// Reads several ranges, one after the other.
    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()>;

    /// Writes bytes, words in ascending order, and perhaps asks that the exporter hear of it. It may return before
    /// the bytes are there.
    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()>;

    /// Writes bytes in any order. It may return before they are there.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes, false)
    }

    /// Writes several ranges, one after the other, and perhaps asks that the exporter hear of the last.
    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let last = ranges.len().saturating_sub(1);
        let write = |(which, (offset, bytes)): (usize, &(u64, &[u8]))| {
            self.write(*offset, bytes, notify && which == last)
        };
        ranges.iter().enumerate().try_for_each(write)
    }

    /// Compares and swaps a word. Returns what it was before.
    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64>;

    /// Writes, after all earlier posted writes, and asks for no acknowledgement: [`Carrier::flush`] says whether it
    /// was done.
    fn post(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        self.write(offset, bytes, notify)
    }

    /// Waits until all that was written is there.
    fn flush(&self) -> Result<()>;

    /// Starts a [`Carrier::flush`].
    fn start_flush(&self) -> Pending<(), Refused>;

    /// Starts a read.
    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused>;

    /// Starts a write.
    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused>;

    /// Starts a compare and swap.
    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused>;
}

/// A segment's memory at its exporter, if importers may map it.
///
/// The exporter's own accesses go through it too, because memory that is taken away from importers moves.
pub trait SharedMemory: Send + Sync + Debug {
    /// Lets importers ask for the memory by the identifier of the segment's export.
    fn offer(&self, export: u64);

    /// Gives the words to `access`, once. They are not moved meanwhile.
    fn with(&self, access: &mut dyn FnMut(&[AtomicU64]));

    /// Copies bytes out, words in ascending order.
    fn read(&self, offset: u64, into: &mut [u8]);

    /// Copies bytes out, in no certain order. Returns false, without copying, where copying by words is better.
    fn copy_out(&self, offset: usize, into: &mut [u8]) -> bool;

    /// Copies bytes in, in no certain order. Returns false, without copying, where copying by words is better.
    fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool;

    /// Whether importers may write what they map.
    fn is_written_by_others(&self) -> bool;

    /// Takes the memory away from all importers that have mapped it. After this has returned no access of theirs
    /// reaches the segment, and every access that an importer reports as done was done to it. From then on the
    /// memory is offered as that generation, or not at all.
    fn take_away(&self, offer: Option<u64>);

    /// Offers the memory no longer. Importers that have mapped it may keep what they read there.
    fn withdraw(&self);
}
