//! Carriers: how the accesses of an importer reach the memory. Nothing above knows which it is.

use bytes::Bytes;

use super::Result;
use super::access::Refused;
use crate::Pending;

/// What carries accesses to one segment of one generation.
///
/// Whoever calls has checked that they stay within it, that words are words, and that the right to them was given: what may
/// have changed since then is for the carrier to check.
pub(super) trait Carrier: Send + Sync {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Bytes in any order.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(offset, into)
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()>;

    /// May return before the bytes are there.
    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()>;

    /// Bytes in any order; may return before they are there.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes, false)
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64>;

    /// Writes one after the other, with notice of the last.
    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let last = ranges.len().saturating_sub(1);
        let write = |(which, (offset, bytes)): (usize, &(u64, &[u8]))| {
            self.write(*offset, bytes, notify && which == last)
        };
        ranges.iter().enumerate().try_for_each(write)
    }

    /// As [`Carrier::write`], asking for no acknowledgement: [`Carrier::flush`] says whether it was done. After those before.
    fn post(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        self.write(offset, bytes, notify)
    }

    /// Returns when all that was written is there.
    fn flush(&self) -> Result<()>;

    fn start_flush(&self) -> Pending<(), Refused>;

    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused>;

    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused>;

    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused>;
}
