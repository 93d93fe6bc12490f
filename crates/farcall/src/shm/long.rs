//! What a slot cannot hold, at the calling end: arguments and results that go by lanes while they are made.

use std::time::Duration;

use farcall_proto::{Failure, Kind, Ran};
use farcall_shm::{Emptier, FETCHED, INLINE, Lane, PART, Ticket};

use super::link::{Link, Stop, not_sent};
use super::spin;
use super::watch::FIRST_NAP;
use crate::env::Time;
use crate::xdr::Spill;

/// Arguments on their way. A lane is taken by the first that need one.
pub(super) struct Long<'a> {
    link: &'a Link,
    deadline: Option<Time>,
    pub(super) lane: Option<Lane>,
    failed: Option<Stop>,
    /// Room is not waited for, but for a moment.
    hasty: bool,
}

/// The arguments of a started call on their way. They are kept because the call may have to be made again: in
/// the bulk ring, where the server cannot write, and, beyond what the ring holds, in a copy.
pub(super) struct Kept<'a> {
    pub(super) long: Long<'a>,
    /// Behind what stands in the lane, if that is held.
    pub(super) bytes: Vec<u8>,
    /// It was decided where they are kept.
    begun: bool,
}

/// Room that is made for a long result before it comes, in bytes.
const AT_ONCE: u64 = 64 << 20;
/// What may follow that the server did not speak of yet.
const MORE: usize = 256;

impl<'a> Long<'a> {
    pub(super) fn new(link: &'a Link, deadline: Option<Time>) -> Long<'a> {
        Long { link, deadline, lane: None, failed: None, hasty: false }
    }

    /// Hands over what a slot does not hold. Returns what it does.
    #[inline]
    pub(super) fn finish<'b>(&mut self, arguments: &'b [u8]) -> Result<&'b [u8], Failure> {
        let rest = match arguments.len() > INLINE {
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

    fn lane(&mut self) -> Result<&mut Lane, Stop> {
        if self.lane.is_none() {
            self.lane = match self.hasty {
                true => self.link.caller.lane(Duration::ZERO),
                false => Some(self.link.lane(self.deadline)?),
            };
        }
        self.lane.as_mut().ok_or(Stop::Late)
    }

    fn try_put(&mut self, mut bytes: &[u8]) -> Result<(), Stop> {
        let (link, hasty, deadline) = (self.link, self.hasty, self.deadline);
        let lane = self.lane()?;
        loop {
            bytes = &bytes[lane.put(bytes).min(bytes.len())..];
            if bytes.is_empty() {
                return Ok(());
            }
            // While the server empties parts we fill others.
            if !spin(&*link.env, link.brisk, || lane.has_room()) {
                if hasty {
                    return Err(Stop::Late);
                }
                let _waiting = crate::serving::wait_guard();
                link.wait_until(deadline, |most| lane.sleep(most), || lane.has_room())?;
            }
        }
    }
}

impl Spill for Long<'_> {
    fn take(&mut self, before: &[u8], bytes: &[u8], _more: usize) -> Option<usize> {
        self.put(before);
        self.put(bytes);
        // If it failed nobody wants the rest.
        Some(bytes.len())
    }
}

impl<'a> Kept<'a> {
    pub(super) fn new(link: &'a Link) -> Kept<'a> {
        Kept { long: Long { hasty: true, ..Long::new(link, None) }, bytes: Vec::new(), begun: false }
    }

    /// Hands over what a slot does not hold. Returns what it does, which is kept too.
    pub(super) fn finish<'b>(&mut self, arguments: &'b [u8]) -> Result<&'b [u8], Failure> {
        let rest = match arguments.len() > INLINE {
            true => {
                self.begin(arguments.len());
                self.put(arguments);
                &[]
            }
            false => {
                self.bytes.extend_from_slice(arguments);
                arguments
            }
        };
        self.long.finish(rest)
    }

    /// The lane by which they went, if they are held there.
    pub(super) fn held(&mut self) -> Option<Lane> {
        self.long.lane.take_if(|lane| lane.is_held())
    }

    /// Decides where `len` bytes more are kept.
    fn begin(&mut self, len: usize) {
        let begun = std::mem::replace(&mut self.begun, true);
        // Without a lane nothing will be sent.
        let Ok(lane) = self.long.lane() else { return };
        if len <= lane.rest() && (lane.is_held() || (!begun && lane.hold())) {
            return;
        }
        let (env, spares) = (&self.long.link.env, &self.long.link.spares);
        if self.bytes.capacity() == 0 {
            self.bytes = spares.take(env.now(), len).unwrap_or_default();
        }
        self.bytes.reserve(len);
        // What went by the lane stands there until that has gone round.
        if let Some(lane) = self.long.lane.as_mut().filter(|lane| lane.is_held()) {
            lane.copy(&mut self.bytes);
            lane.let_go();
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.long.lane.as_ref().is_some_and(Lane::is_held) {
            return self.long.put(bytes);
        }
        // What is copied twice stands in the processor's cache then.
        for part in bytes.chunks(PART) {
            self.bytes.extend_from_slice(part);
            self.long.put(part);
        }
    }
}

impl Spill for Kept<'_> {
    fn take(&mut self, before: &[u8], bytes: &[u8], more: usize) -> Option<usize> {
        self.begin(before.len() + bytes.len() + more + MORE);
        self.put(before);
        self.put(bytes);
        Some(bytes.len())
    }
}

impl Link {
    /// A lane for what is long.
    fn lane(&self, deadline: Option<Time>) -> Result<Lane, Stop> {
        if let Some(lane) = self.caller.lane(Duration::ZERO) {
            return Ok(lane);
        }
        let _waiting = crate::serving::wait_guard();
        loop {
            self.caller.reclaim();
            if let Some(lane) = self.caller.lane(FIRST_NAP) {
                return Ok(lane);
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

    /// Takes what comes of an answer by a lane, until the answer itself is there. Returns how long that was.
    #[cold]
    pub(super) fn draw(
        &self,
        ticket: Ticket,
        mut lane: Emptier,
        deadline: Option<Time>,
        body: &mut Vec<u8>,
    ) -> Result<usize, Failure> {
        let lost = |kind| Failure::new(kind, Ran::Yes);
        let expected = self.caller.expected(ticket).min(self.max_result).min(AT_ONCE) as usize;
        if body.capacity() < expected {
            *body = self.spares.take(self.env.now(), expected).unwrap_or_default();
            body.reserve(expected + MORE);
        }
        loop {
            // Before the parts are looked for: they were there before the answer was.
            if self.caller.is_answered(ticket) {
                break;
            }
            while lane.has_part() && body.len() as u64 <= self.max_result {
                lane.take(Some(body));
            }
            if body.len() as u64 > self.max_result {
                self.caller.abandon(ticket);
                return Err(lost(Kind::TooLarge));
            }
            let is_there = || lane.has_part() || self.caller.is_answered(ticket);
            if spin(&*self.env, self.brisk, is_there) {
                continue;
            }
            let sleep = |most| self.caller.sleep(ticket, true, most);
            if let Err(stop) = self.wait_until(deadline, sleep, is_there) {
                self.caller.give_up(ticket);
                self.caller.abandon(ticket);
                return Err(lost(if stop == Stop::Late { Kind::Deadline } else { Kind::Unreachable }));
            }
        }
        let len = self.caller.streamed(ticket);
        if !lane.finish(len, Some(body)) {
            self.caller.release(ticket.slot());
            return Err(lost(Kind::BadResult));
        }
        Ok(len as usize)
    }

    /// Fetches the rest of an answer that nothing else holds: `len` bytes, of which `body` has the beginning.
    #[cold]
    pub(super) fn pull(
        &self,
        ticket: Ticket,
        len: u64,
        deadline: Option<Time>,
        body: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let lost = |kind| Failure::new(kind, Ran::Yes);
        let slot = ticket.slot();
        if len.saturating_add(body.len() as u64) > self.max_result + INLINE as u64 {
            self.caller.abandon(self.caller.forget(slot));
            return Err(lost(Kind::TooLarge));
        }
        let stopped = |ticket, stop| {
            self.caller.abandon(ticket);
            lost(if stop == Stop::Late { Kind::Deadline } else { Kind::Unreachable })
        };
        let mut lane = self.lane(deadline).map_err(|stop| stopped(self.caller.forget(slot), stop))?;
        // What is longer grows as it comes: the server may say more than it has.
        body.reserve(len.min(AT_ONCE) as usize);
        let (mut part, mut offset) = (0, INLINE as u64);
        let mut asked = self.caller.fetch(slot, &mut lane, part, offset);
        while offset < len {
            self.wait_for_part(asked, deadline).map_err(|stop| stopped(asked, stop))?;
            lane.fetched();
            // (An answer that is no part was forgotten by the server: it broke our rules, or we its patience.)
            if !self.caller.is_part(asked) {
                self.caller.release(slot);
                return Err(lost(Kind::ResultLost));
            }
            let (filled, here) = (part, (len - offset).min(PART as u64));
            offset += here;
            part = (part + 1) % FETCHED;
            if offset < len {
                // While we empty one part the server fills the next.
                asked = self.caller.fetch(slot, &mut lane, part, offset);
            }
            lane.drain(filled, here as usize, body);
        }
        self.caller.release(slot);
        Ok(())
    }

    /// Waits for a part that was asked for.
    fn wait_for_part(&self, ticket: Ticket, deadline: Option<Time>) -> Result<(), Stop> {
        let is_answered = || self.caller.is_answered(ticket);
        match spin(&*self.env, self.brisk, is_answered) {
            true => Ok(()),
            false => self.wait_until(deadline, |most| self.caller.sleep(ticket, true, most), is_answered),
        }
    }
}
