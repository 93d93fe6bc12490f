//! Sends long arguments while they are encoded, and receives long results, at the caller's end of a
//! connection through shared memory. Both pass through rings, which carry long data in parts; short arguments
//! and results are in the call's slot.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcall_proto::{Counted, Failure, Kind, MAX_UNCOUNTED_ARGUMENT_BYTES, Ran, SharedArguments};
use farcall_shm::{ArgumentRing, BulkConsumer, FETCH_PARTS, PART_BYTES, RequestId, SLOT_BODY_BYTES};

use super::link::{Link, Stop, not_sent};
use super::watch::FIRST_NAP;
use crate::env::Time;
use crate::xdr::Spill;
use farcall_core::room::{self, NoMemory};

/// The long arguments of one call while they are sent. A ring is taken when the first bytes need one.
pub(super) struct Long<'a> {
    link: &'a Link,
    deadline: Option<Time>,
    pub(super) ring: Option<ArgumentRing>,
    failed: Option<Stop>,
    /// Whether to give up after a short poll instead of waiting for room in a ring.
    hasty: bool,
}

/// The arguments of a started call while they are sent. They are kept, because the call may have to be made
/// again. They are kept in the bulk ring, where the server cannot write, as far as the ring holds them.
/// Otherwise they are kept in a copy.
pub(super) struct Kept<'a> {
    pub(super) long: Long<'a>,
    /// The kept bytes. If the ring still holds the first bytes, only the rest is here.
    pub(super) bytes: Vec<u8>,
    /// Whether the first bytes were sent. Then it is decided where the bytes are kept.
    begun: bool,
}

/// What the arguments of a started call take of the budget of kept arguments. Given back when dropped.
pub(super) struct KeptBytes {
    link: Arc<Link>,
    bytes: usize,
    /// Set if the arguments are not shared: shared ones are counted by themselves.
    _counted: Option<Counted>,
}

impl KeptBytes {
    /// Counts arguments of `bytes` bytes. Returns `None` for short ones, which are not counted.
    ///
    /// # Errors
    /// When the budget has no room.
    pub(super) fn of(
        link: &Arc<Link>,
        bytes: usize,
        shared: Option<&SharedArguments>,
    ) -> Result<Option<KeptBytes>, ()> {
        if bytes <= MAX_UNCOUNTED_ARGUMENT_BYTES {
            return Ok(None);
        }
        if !link.budget.admits(link.kept_bytes.load(Ordering::Relaxed), bytes, shared) {
            return Err(());
        }
        link.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
        let counted = match shared {
            Some(shared) => {
                shared.count_in(&link.budget);
                None
            }
            None => Some(Counted::new(&link.budget, bytes)),
        };
        Ok(Some(KeptBytes { link: link.clone(), bytes, _counted: counted }))
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.link.kept_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The most bytes that are reserved for a long result before it arrives.
const MAX_RESERVED_BYTES: u64 = 64 << 20;
/// Bytes reserved in addition to the announced length.
const SPARE_BYTES: usize = 256;

impl<'a> Long<'a> {
    pub(super) fn new(link: &'a Link, deadline: Option<Time>) -> Long<'a> {
        Long { link, deadline, ring: None, failed: None, hasty: false }
    }

    /// Puts arguments that a slot cannot hold into the ring. Returns the arguments that go into the slot.
    #[inline]
    pub(super) fn finish<'b>(&mut self, arguments: &'b [u8]) -> Result<&'b [u8], Failure> {
        let rest = match arguments.len() > SLOT_BODY_BYTES {
            true => {
                self.put(arguments);
                &[]
            }
            false => arguments,
        };
        match self.failed {
            None => Ok(rest),
            Some(stop) => Err(not_sent(stop)),
        }
    }

    #[cold]
    fn put(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.try_put(bytes).err();
        }
    }

    fn ring(&mut self) -> Result<&mut ArgumentRing, Stop> {
        if self.ring.is_none() {
            self.ring = match self.hasty {
                true => self.link.caller.argument_ring(Duration::ZERO),
                false => Some(self.link.ring(self.deadline)?),
            };
        }
        self.ring.as_mut().ok_or(Stop::Late)
    }

    fn try_put(&mut self, mut bytes: &[u8]) -> Result<(), Stop> {
        let (link, hasty, deadline) = (self.link, self.hasty, self.deadline);
        let ring = self.ring()?;
        loop {
            bytes = &bytes[ring.put(bytes).min(bytes.len())..];
            if bytes.is_empty() {
                return Ok(());
            }
            // The server empties parts while this thread fills others.
            if !link.poll(link.brisk, || ring.has_room()) {
                if hasty {
                    return Err(Stop::Late);
                }
                let _waiting = crate::serving::wait_guard();
                link.wait_until(deadline, |most| ring.sleep(most), || ring.has_room())?;
            }
        }
    }
}

impl Spill for Long<'_> {
    fn take(&mut self, before: &[u8], bytes: &[u8], _more: usize) -> Option<usize> {
        self.put(before);
        self.put(bytes);
        // After a failure the remaining bytes are not needed.
        Some(bytes.len())
    }
}

impl<'a> Kept<'a> {
    pub(super) fn new(link: &'a Link) -> Kept<'a> {
        Kept { long: Long { hasty: true, ..Long::new(link, None) }, bytes: Vec::new(), begun: false }
    }

    /// Puts arguments that a slot cannot hold into the ring. Returns the arguments that go into the slot, and
    /// keeps a copy of them.
    pub(super) fn finish<'b>(&mut self, arguments: &'b [u8]) -> Result<&'b [u8], Failure> {
        let rest = match arguments.len() > SLOT_BODY_BYTES {
            true => {
                self.begin(arguments.len());
                self.put(arguments);
                &[]
            }
            false => {
                if self.reserve(arguments.len()) {
                    self.bytes.extend_from_slice(arguments);
                }
                arguments
            }
        };
        self.long.finish(rest)
    }

    /// Takes the ring out, if it still holds the arguments.
    pub(super) fn held(&mut self) -> Option<ArgumentRing> {
        self.long.ring.take_if(|ring| ring.is_held())
    }

    /// Decides where the next `len` bytes are kept.
    fn begin(&mut self, len: usize) {
        let begun = std::mem::replace(&mut self.begun, true);
        // If there is no ring, the call is not sent, so nothing needs to be kept.
        let Ok(ring) = self.long.ring() else { return };
        if len <= ring.rest() && (ring.is_held() || (!begun && ring.hold())) {
            return;
        }
        let (env, spares) = (&self.long.link.env, &self.long.link.spares);
        if self.bytes.capacity() == 0 {
            self.bytes = spares.take(env.now(), len).unwrap_or_default();
        }
        // The ring still has the earlier bytes, unless newer bytes have overwritten them.
        let held = self.long.ring.as_ref().filter(|ring| ring.is_held()).map_or(0, ArgumentRing::filled);
        if !self.reserve(held.saturating_add(len)) {
            return;
        }
        if let Some(ring) = self.long.ring.as_mut().filter(|ring| ring.is_held()) {
            ring.copy(&mut self.bytes);
            ring.let_go();
        }
    }

    /// Makes room for more kept bytes. Returns false if this process has no memory for them: then the call is
    /// not sent through shared memory.
    fn reserve(&mut self, more: usize) -> bool {
        let reserved = room::reserve(&mut self.bytes, more).is_ok();
        if !reserved {
            self.long.failed = Some(Stop::Late);
        }
        reserved
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.long.failed.is_some() {
            return;
        }
        if self.long.ring.as_ref().is_some_and(ArgumentRing::is_held) {
            return self.long.put(bytes);
        }
        // Both copies of a part are made while the part is in the processor's cache.
        for part in bytes.chunks(PART_BYTES) {
            self.bytes.extend_from_slice(part);
            self.long.put(part);
        }
    }
}

impl Spill for Kept<'_> {
    fn take(&mut self, before: &[u8], bytes: &[u8], more: usize) -> Option<usize> {
        self.begin(before.len() + bytes.len() + more + SPARE_BYTES);
        self.put(before);
        self.put(bytes);
        Some(bytes.len())
    }
}

#[cold]
fn no_room_for_result(why: NoMemory) -> Failure {
    Failure::new(Kind::TooLarge, Ran::Yes).with_detail(format!("the result: {why}"))
}

impl Link {
    /// Takes a ring for long arguments or for parts of a result. Waits until a ring is free.
    fn ring(&self, deadline: Option<Time>) -> Result<ArgumentRing, Stop> {
        if let Some(ring) = self.caller.argument_ring(Duration::ZERO) {
            return Ok(ring);
        }
        let _waiting = crate::serving::wait_guard();
        loop {
            self.caller.reclaim();
            if let Some(ring) = self.caller.argument_ring(FIRST_NAP) {
                return Ok(ring);
            }
            let now = self.env.now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(Stop::Late);
            }
            self.watch.look(now);
            if let Some(broken) = self.watch.broken() {
                return Err(Stop::Broken(broken));
            }
        }
    }

    /// Takes the bytes of an answer that arrive by a ring, until the answer itself has arrived. Returns the
    /// number of these bytes.
    #[cold]
    pub(super) fn draw(
        &self,
        id: RequestId,
        mut ring: BulkConsumer,
        deadline: Option<Time>,
        body: &mut Vec<u8>,
    ) -> Result<usize, Failure> {
        let lost = |kind| Failure::new(kind, Ran::Yes);
        let expected = self.caller.expected_bytes(id).min(self.max_result).min(MAX_RESERVED_BYTES) as usize;
        if body.capacity() < expected {
            *body = self.spares.take(self.env.now(), expected).unwrap_or_default();
            // If there is no memory for it, the first part that has none says so.
            let _ = room::reserve(body, expected + SPARE_BYTES);
        }
        loop {
            // The answer is checked before the parts. The server puts all parts in place before the answer.
            if self.caller.is_answered(id) {
                break;
            }
            while ring.has_part() && body.len() as u64 <= self.max_result {
                if let Err(why) = room::reserve(body, PART_BYTES) {
                    self.caller.abandon(id);
                    return Err(no_room_for_result(why));
                }
                ring.take(Some(body));
            }
            if body.len() as u64 > self.max_result {
                self.caller.abandon(id);
                return Err(lost(Kind::TooLarge));
            }
            let is_there = || ring.has_part() || self.caller.is_answered(id);
            if self.poll(self.brisk, is_there) {
                continue;
            }
            let sleep = |most| self.caller.sleep(id, true, most);
            if let Err(stop) = self.wait_until(deadline, sleep, is_there) {
                self.caller.give_up(id);
                self.caller.abandon(id);
                return Err(lost(if stop == Stop::Late { Kind::Deadline } else { Kind::Unreachable }));
            }
        }
        let len = self.caller.ring_bytes(id);
        // The rest of the ring is at most what the ring holds.
        let rest = (len as usize).saturating_sub(body.len()).min(farcall_shm::RING_PARTS * PART_BYTES);
        if let Err(why) = room::reserve(body, rest) {
            self.caller.release(id.slot());
            return Err(no_room_for_result(why));
        }
        if !ring.finish(len, Some(body)) {
            self.caller.release(id.slot());
            return Err(lost(Kind::BadResult));
        }
        Ok(len as usize)
    }

    /// Fetches the rest of an answer that is too long for its slot. The answer has `len` bytes, and `body`
    /// holds the first ones.
    #[cold]
    pub(super) fn pull(
        &self,
        id: RequestId,
        len: u64,
        deadline: Option<Time>,
        body: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let lost = |kind| Failure::new(kind, Ran::Yes);
        let slot = id.slot();
        if len.saturating_add(body.len() as u64) > self.max_result + SLOT_BODY_BYTES as u64 {
            self.caller.abandon(self.caller.forget(slot));
            return Err(lost(Kind::TooLarge));
        }
        let stopped = |id, stop| {
            self.caller.abandon(id);
            lost(if stop == Stop::Late { Kind::Deadline } else { Kind::Unreachable })
        };
        let mut ring = self.ring(deadline).map_err(|stop| stopped(self.caller.forget(slot), stop))?;
        // A longer result grows as it arrives, because the server may announce more than it has. If there is
        // no memory for it, the first part that has none says so.
        let _ = room::reserve(body, len.min(MAX_RESERVED_BYTES) as usize);
        let (mut part, mut offset) = (0, SLOT_BODY_BYTES as u64);
        let mut asked = self.caller.fetch(slot, &mut ring, part, offset);
        while offset < len {
            self.wait_for_part(asked, deadline).map_err(|stop| stopped(asked, stop))?;
            ring.fetched();
            // If the answer is not a part, the server has forgotten the result.
            if !self.caller.is_part(asked) {
                self.caller.release(slot);
                return Err(lost(Kind::ResultLost));
            }
            let (filled, here) = (part, (len - offset).min(PART_BYTES as u64));
            if let Err(why) = room::reserve(body, here as usize) {
                self.caller.release(slot);
                return Err(no_room_for_result(why));
            }
            offset += here;
            part = (part + 1) % FETCH_PARTS;
            if offset < len {
                // The server fills the next part while this thread empties this one.
                asked = self.caller.fetch(slot, &mut ring, part, offset);
            }
            ring.drain(filled, here as usize, body);
        }
        self.caller.release(slot);
        Ok(())
    }

    /// Waits for the part that request `id` asked for.
    fn wait_for_part(&self, id: RequestId, deadline: Option<Time>) -> Result<(), Stop> {
        let is_answered = || self.caller.is_answered(id);
        match self.poll(self.brisk, is_answered) {
            true => Ok(()),
            false => self.wait_until(deadline, |most| self.caller.sleep(id, true, most), is_answered),
        }
    }
}
