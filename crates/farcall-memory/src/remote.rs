//! An imported segment.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::access::{
    AccessClient, MAX_ACCESS_BYTES, Refused, Rights, TYPE, check_alignment, check_range, too_long,
};
use crate::carrier::Carrier;
use crate::deposit::Deposit;
use crate::runtime::{ImportedMemory, MemoryRuntime};
use crate::segment::Segment;
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

    /// Returns the same import, but each access by it takes at most this time: also one that is made in
    /// parts, or that first waits for posted writes. The time of a started access begins when it is sent.
    /// Clones of this import keep their own time, and an access in a procedure also ends when the time of
    /// the call does.
    ///
    /// An access that is out of time fails with [`Kind::Deadline`]; [`ran`](CallFailed::ran) says whether a
    /// write or a swap may have been executed. It is `No` if all the time was spent on waiting for posted
    /// writes. Posted writes are not lost by it: a later [`flush`](Memory::flush) of this import, or of any
    /// that `within` returned, asks for them again. Accesses to memory that this process has mapped wait for
    /// nobody, so they need no time.
    ///
    /// A program that uses one time often keeps the import that this returns: started accesses share packets
    /// only with those of the same import.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::memory::{Memory, Rights, Settings};
    ///
    /// # fn main() -> farcall::memory::Result<()> {
    /// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
    /// let segment = runtime.export_segment("Load", Settings::new(64).anyone(Rights::READ))?;
    /// segment.store(8, 7)?;
    /// let load = runtime.import_segment("Load")?.within(Duration::from_secs(1)); // each access
    /// assert_eq!(load.load(8)?, 7);
    /// assert_eq!(load.within(Duration::from_secs(5)).load(8)?, 7); // one access
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn within(&self, time: Duration) -> Remote {
        Remote { carrier: self.carrier.within(time), ..self.clone() }
    }

    /// Starts a read of at most 1 MiB. Many reads may be under way at the same time.
    ///
    /// # Errors
    /// Those of [`Memory::read`]; [`Kind::TooLarge`] for more than 1 MiB, however the segment is accessed.
    pub fn start_read(&self, offset: u64, len: usize) -> Pending<Bytes, Refused> {
        let start = || self.carrier.start_read(offset, len as u32);
        start_if(self.check_started(offset, len, Rights::READ), start)
    }

    /// Starts a read of at most 1 MiB, whose bytes are deposited in `into`, a segment of this process, at its
    /// offset `at`. The bytes are deposited when they arrive, words in ascending order, and without a buffer
    /// of their own: a program that sees the last word has all. `notify` asks for a notice of `into` then,
    /// which its [`Notify`](crate::Notify) must allow.
    ///
    /// Many may be under way at the same time. Short ones share packets.
    ///
    /// ```
    /// use farcall::memory::{Memory, Notify, Rights, Settings};
    ///
    /// # fn main() -> farcall::memory::Result<()> {
    /// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
    /// let there = runtime.export_segment("There", Settings::new(64).anyone(Rights::READ))?;
    /// there.write(8, b"blocks")?;
    /// let here = runtime.export_segment("Here", Settings::new(4096).notify(Notify::Asked))?;
    ///
    /// let remote = runtime.import_segment("There")?;
    /// remote.start_read_into(8, 6, &here, 100, true).wait()?;
    /// assert_eq!(here.notice().offset, 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Remote::start_read`]. [`Kind::Local`](farcall_core::Kind::Local) with `Ran::No`, before
    /// anything is sent, if `into` is revoked, too short, or of another process (the parent, after a fork);
    /// with `Ran::Yes` if it was revoked or exported again before the bytes arrived, which were dropped then.
    pub fn start_read_into(&self, offset: u64, len: usize, into: &Segment, at: u64, notify: bool) -> Deposit {
        let start = || {
            self.check_started(offset, len, Rights::READ)?;
            let target = into.deposit_target(at, len, notify)?;
            Ok(self.carrier.start_read_into(offset, len as u32, target))
        };
        start().unwrap_or_else(|why| Deposit::ended(Err(why)))
    }

    /// Starts a write of at most 1 MiB. Writes that are under way together are executed in any order.
    ///
    /// # Errors
    /// Those of [`Memory::write`]; [`Kind::TooLarge`] for more than 1 MiB, however the segment is accessed.
    pub fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        let allowed = self.check_started(offset, bytes.len(), Rights::WRITE);
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

    /// Starts a compare-and-swap. The word's former value is deposited as a word in `into`, a segment of this
    /// process, at its offset `at`, as [`Remote::start_read_into`] deposits bytes.
    ///
    /// # Errors
    /// Those of [`Memory::compare_and_swap`] and of [`Remote::start_read_into`]. If the former value was
    /// dropped (`Ran::Yes`), the word may have been swapped.
    pub fn start_compare_and_swap_into(
        &self,
        offset: u64,
        (old, new): (u64, u64),
        into: &Segment,
        at: u64,
        notify: bool,
    ) -> Deposit {
        let start = || {
            self.check_word(offset)?;
            check_alignment(at)?;
            let target = into.deposit_target(at, size_of::<u64>(), notify)?;
            Ok(self.carrier.start_compare_and_swap_into(offset, old, new, target))
        };
        start().unwrap_or_else(|why| Deposit::ended(Err(why)))
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

    /// Refuses a started access that is longer than one access may be. Every carrier has this bound, so a
    /// program that works with a mapped segment also works over a network.
    fn check_started(&self, offset: u64, len: usize, right: Rights) -> Result<()> {
        self.check(offset, len, right)?;
        if len > MAX_ACCESS_BYTES { Err(too_long(len).into()) } else { Ok(()) }
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
