//! An imported segment.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::access::{AccessClient, Refused, Rights, TYPE, check_alignment, check_range};
use crate::carrier::Carrier;
use crate::runtime::{ImportedMemory, MemoryRuntime};
use crate::served::Served;
use crate::{Memory, Result};
use farcall_core::xdr::Encode;
use farcall_core::{CallFailed, Error, Kind, Pending, Ran};

/// A segment of another process, in the generation that was imported. Clones share one import.
#[derive(Clone)]
pub struct Remote {
    carrier: Arc<dyn Carrier>,
    generation: u64,
    size: u64,
    rights: Rights,
    /// Set when this process knows that the generation is no longer valid.
    purged: Arc<AtomicBool>,
}

impl Remote {
    /// Imports a segment that is exported at an address such as `udp://10.0.0.7:7000`.
    pub(super) fn import(
        runtime: &dyn MemoryRuntime,
        authority: impl Display,
        segment: &str,
    ) -> farcall_core::Result<Remote> {
        let ImportedMemory { binding, map } =
            runtime.import_memory(&format!("{authority}/{TYPE}/{segment}"))?;
        let facts = AccessClient::from(binding.clone()).facts().map_err(|why| match why {
            Error::Declared(refused) => CallFailed::new(Kind::NotExported, Ran::No).caused_by(refused),
            Error::CallFailed(why) => why,
        })?;
        let served: Arc<dyn Carrier> =
            Arc::new(Served::new(runtime.env().clone(), binding, facts.generation));
        let carrier = match map {
            Some(map) => map(&facts, served),
            None => served,
        };
        let (generation, size, rights) = (facts.generation, facts.size, facts.rights());
        Ok(Remote { carrier, generation, size, rights, purged: Arc::default() })
    }

    /// Returns the rights of this process.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Returns the imported generation. The number grows each time the segment is exported again.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Starts a read of at most 1 MiB. Many reads may be under way at the same time.
    pub fn start_read(&self, offset: u64, len: usize) -> Pending<Bytes, Refused> {
        let start = || self.carrier.start_read(offset, u32::try_from(len).unwrap_or(u32::MAX));
        start_if(self.check(offset, len, Rights::READ), start)
    }

    /// Starts a write of at most 1 MiB. Writes that are under way together are executed in any order.
    pub fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        let allowed = self.check(offset, bytes.len(), Rights::WRITE);
        start_if(allowed, || self.carrier.start_write(offset, bytes))
    }

    /// Posts a write: sends it without waiting for an acknowledgement. [`flush`](Memory::flush) says whether
    /// the write was executed.
    ///
    /// Posted writes are executed in order, each at most once, and before a later [`write`](Memory::write) or
    /// [`compare_and_swap`](Memory::compare_and_swap). A read may overtake them. A lost write is sent again
    /// by `flush`, by a later `write` or `compare_and_swap`, and by a later `post` if many writes are
    /// unacknowledged, which then waits.
    ///
    /// # Errors
    /// Those of [`Memory::write`], for this write or an earlier posted write. The write that failed was not
    /// executed, nor was any later posted write. From then on this import writes nothing more.
    pub fn post(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Rights::WRITE)?;
        self.learn(self.carrier.post(offset, bytes, false))
    }

    /// Posts a write, as [`Remote::post`] does, and asks that the exporter be notified.
    ///
    /// # Errors
    /// Those of [`Remote::post`].
    pub fn post_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Rights::WRITE)?;
        self.learn(self.carrier.post(offset, bytes, true))
    }

    /// Starts a [`Memory::flush`].
    pub fn start_flush(&self) -> Pending<(), Refused> {
        self.carrier.start_flush()
    }

    /// Starts a compare-and-swap.
    pub fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused> {
        start_if(self.check_word(offset), || self.carrier.start_compare_and_swap(offset, old, new))
    }

    /// Returns the same import, but with accesses that are refused once `purged` is set.
    pub(super) fn until(self, purged: Arc<AtomicBool>) -> Remote {
        Remote { purged, ..self }
    }

    /// Returns the outcome of an access, and notes whether it shows that the generation is no longer valid. A
    /// generation never becomes valid again, so this process then refuses later accesses itself.
    #[inline(always)]
    fn learn<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|why| self.purge_if_stale(why))
    }

    #[cold]
    fn purge_if_stale(&self, why: &Error<Refused>) {
        if matches!(why, Error::Declared(Refused::Stale)) {
            self.purged.store(true, Ordering::Release);
        }
    }

    /// Refuses an access if this process knows that the exporter would refuse it.
    fn check(&self, offset: u64, len: usize, right: Rights) -> Result<()> {
        if self.purged.load(Ordering::Acquire) {
            return Err(Refused::Stale.into());
        }
        if !self.rights.contains(right) {
            return Err(Refused::NotPermitted.into());
        }
        check_range(self.size, offset, len as u64)
    }

    fn check_word(&self, offset: u64) -> Result<()> {
        check_alignment(offset)?;
        self.check(offset, 8, Rights::CAS)
    }
}

/// Starts an access, unless `check` refuses it.
fn start_if<T: Encode>(
    allowed: Result<()>,
    start: impl FnOnce() -> Pending<T, Refused>,
) -> Pending<T, Refused> {
    allowed.map_or_else(|why| Pending::ended(Err(why)), |()| start())
}

impl Memory for Remote {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len(), Rights::READ)?;
        self.learn(self.carrier.read(offset, into))
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len(), Rights::READ)?;
        self.learn(self.carrier.read_bytes(offset, into))
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, into) in ranges.iter() {
            self.check(*offset, into.len(), Rights::READ)?;
        }
        self.learn(self.carrier.read_each(ranges))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Rights::WRITE)?;
        self.learn(self.carrier.write(offset, bytes, false))
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Rights::WRITE)?;
        self.learn(self.carrier.write_bytes(offset, bytes))
    }

    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Rights::WRITE)?;
        self.learn(self.carrier.write(offset, bytes, true))
    }

    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        for (offset, bytes) in ranges {
            self.check(*offset, bytes.len(), Rights::WRITE)?;
        }
        self.learn(self.carrier.write_each(ranges, notify))
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        self.check_word(offset)?;
        self.learn(self.carrier.compare_and_swap(offset, old, new))
    }

    fn flush(&self) -> Result<()> {
        self.learn(self.carrier.flush())
    }
}
