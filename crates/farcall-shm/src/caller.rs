//! The calling half: slots, requests in them, and waiting for their turns. It trusts no word that it reads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::bell::Recall;
use crate::copy::{append, put};
use crate::lane::{Emptier, Filler, Way, fetched};
use crate::layout::{BITMAP, FETCHED, INLINE, LANES, PART, PARTS, SLOTS, Shared, Slot, place};
use crate::server::{ADDED, CALL, Call, FETCH, FORGET, KIND_SHIFT, LANE_SHIFT, MOST, TRACED, stream};
use crate::{Lying, Page, Status};

/// The calling half of a memory file. Any thread may use it.
#[derive(Debug)]
pub struct Caller {
    page: Arc<Page>,
    /// A bit for each slot that nobody has.
    free: [AtomicU64; BITMAP],
    /// The number of each slot's last request. Whoever has the slot writes it.
    numbers: Box<[AtomicU64; SLOTS]>,
    /// The number of each slot's last request that was given up.
    given_up: Box<[AtomicU64; SLOTS]>,
    /// Lanes that nobody has.
    lanes: Mutex<Vec<Idle>>,
    returned: Condvar,
    /// How many lanes are held beyond the moment in which they are emptied.
    held: AtomicUsize,
    /// Slots whose requests were given up, and are answered some time.
    abandoned: Mutex<Vec<Abandoned>>,
    abandonments: AtomicUsize,
    /// Wakes the service thread.
    recall: Recall,
}

/// A request that was made: where, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: usize,
    number: u64,
}

/// A request for whose answer nobody waits.
#[derive(Clone, Copy, Debug)]
struct Abandoned {
    ticket: Ticket,
    /// Whether it is the last request of its slot: the server was told that nobody wants what it keeps.
    told: bool,
}

/// A lane that nobody has.
#[derive(Debug)]
struct Idle {
    filler: Filler,
    /// Until then the server may touch it: until it has emptied it, or has answered that.
    until: Until,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Now,
    Emptied,
    Answered(Ticket),
}

/// A lane that nobody else has until it is dropped.
#[derive(Debug)]
pub struct Lane {
    caller: Arc<Caller>,
    /// Always there, until it is dropped.
    filler: Option<Filler>,
    until: Until,
    held: bool,
}

/// So many lanes may be held; the others are free as soon as they are emptied.
const MOST_HELD: usize = LANES / 2;

impl Caller {
    /// The calling half of this memory, which nobody has called through yet.
    pub fn new(page: Arc<Page>) -> Caller {
        let idle = |which| Idle { filler: Filler::new(&page, Way::Arguments, which), until: Until::Now };
        Caller {
            lanes: Mutex::new((0..LANES).map(idle).collect()),
            page,
            free: [const { AtomicU64::new(u64::MAX) }; BITMAP],
            numbers: Box::new([const { AtomicU64::new(0) }; SLOTS]),
            given_up: Box::new([const { AtomicU64::new(0) }; SLOTS]),
            returned: Condvar::new(),
            held: AtomicUsize::new(0),
            abandoned: Mutex::default(),
            abandonments: AtomicUsize::new(0),
            recall: Recall::new(),
        }
    }

    #[inline]
    fn shared(&self) -> &Shared {
        self.page.shared()
    }

    fn slot(&self, slot: usize) -> &Slot {
        &self.shared().slots[slot % SLOTS]
    }

    /// A slot that nobody has, the lowest first, so that few are ever touched. To be given back by
    /// [`Caller::release`] or [`Caller::abandon`].
    #[inline]
    pub fn claim(&self) -> Option<usize> {
        self.lowest().or_else(|| {
            self.reclaim();
            self.lowest()
        })
    }

    #[inline]
    fn lowest(&self) -> Option<usize> {
        for (word, free) in self.free.iter().enumerate() {
            let mut bits = free.load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                bits = free.fetch_and(!bit, Ordering::Acquire);
                if bits & bit != 0 {
                    return Some(word * 64 + bit.trailing_zeros() as usize);
                }
            }
        }
        None
    }

    /// Slots that somebody has, or whose requests were given up and are not answered yet.
    pub fn outstanding(&self) -> usize {
        self.free.iter().map(|free| free.load(Ordering::Relaxed).count_zeros() as usize).sum()
    }

    /// Gives back a slot whose request was answered, or that had none.
    #[inline]
    pub fn release(&self, slot: usize) {
        let (word, bit) = place(slot);
        self.free[word].fetch_or(bit, Ordering::Release);
    }

    /// Gives back a slot whose request is not answered yet: it can be used again once it is.
    pub fn abandon(&self, ticket: Ticket) {
        self.reclaim();
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.push(Abandoned { ticket, told: false });
        self.abandonments.store(abandoned.len(), Ordering::Relaxed);
    }

    /// Takes back abandoned slots that were answered since, and the lanes by which those answers came.
    #[cold]
    pub fn reclaim(&self) {
        if self.abandonments.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.retain_mut(|Abandoned { ticket, told }| {
            if !self.is_answered(*ticket) {
                return true;
            }
            if let Some(mut emptier) = self.stream(*ticket) {
                emptier.skip(self.streamed(*ticket));
            }
            if !std::mem::replace(told, true) && self.may_be_kept(*ticket) {
                *ticket = self.forget(ticket.slot);
                return true;
            }
            self.release(ticket.slot);
            false
        });
        self.abandonments.store(abandoned.len(), Ordering::Relaxed);
    }

    /// Whether the server may keep something behind an answer that is there: what a slot does not hold, or
    /// further parts.
    fn may_be_kept(&self, ticket: Ticket) -> bool {
        let len = self.slot(ticket.slot).reply.len.load(Ordering::Relaxed);
        len > INLINE as u64 || self.is_part(ticket)
    }

    /// Makes a call with at most [`INLINE`] bytes of arguments, which follow those that went by the lane.
    #[inline]
    pub fn call(&self, slot: usize, call: &Call, arguments: &[u8], lane: Option<&mut Lane>) -> Ticket {
        let request = &self.slot(slot).request;
        put(&request.body, arguments);
        let mut more = CALL << KIND_SHIFT;
        if let Some(lane) = lane {
            request.added.store(lane.commit(), Ordering::Relaxed);
            more |= ADDED;
        }
        if let Some(within) = call.within {
            more |= u64::try_from(within.as_nanos()).unwrap_or(MOST).clamp(1, MOST);
        }
        if let Some(trace) = &call.trace {
            put(&request.trace, trace);
            more |= TRACED;
        }
        self.publish(
            slot,
            call.export,
            u64::from(call.procedure) << 32 | arguments.len().min(INLINE) as u64,
            more,
        )
    }

    /// Asks for a part of a slot's reply, to stand in that part of a lane.
    pub fn fetch(&self, slot: usize, lane: &mut Lane, part: usize, offset: u64) -> Ticket {
        let what = (lane.which() * FETCHED + part % FETCHED) as u64;
        let ticket = self.publish(slot, what, 0, FETCH << KIND_SHIFT | offset & MOST);
        lane.until = Until::Answered(ticket);
        ticket
    }

    /// Says that nobody wants what the server keeps of a slot's reply.
    pub fn forget(&self, slot: usize) -> Ticket {
        self.publish(slot, 0, 0, FORGET << KIND_SHIFT)
    }

    #[inline]
    fn publish(&self, slot: usize, what: u64, size: u64, more: u64) -> Ticket {
        let slot = slot % SLOTS;
        let request = &self.slot(slot).request;
        request.what.store(what, Ordering::Relaxed);
        request.size.store(size, Ordering::Relaxed);
        request.more.store(more, Ordering::Relaxed);
        let number = self.last(slot) + 1;
        self.numbers[slot].store(number, Ordering::Relaxed);
        let (word, bit) = place(slot);
        let calls = &self.shared().calls;
        calls.ready[word].fetch_xor(bit, Ordering::AcqRel);
        calls.bell.ring();
        Ticket { slot, number }
    }

    /// The number of a slot's last request.
    fn last(&self, slot: usize) -> u64 {
        self.numbers[slot].load(Ordering::Relaxed)
    }

    /// Whether the server has taken the slot's last request. One that has not, and is dead, never will.
    pub fn is_taken(&self, ticket: Ticket) -> bool {
        let (word, bit) = place(ticket.slot);
        let (ready, taken) = (&self.shared().calls.ready[word], &self.shared().taken.bits[word]);
        (ready.load(Ordering::Acquire) ^ taken.load(Ordering::Acquire)) & bit == 0
    }

    /// Tells the server that nobody waits for a request any more. It is answered nevertheless.
    pub fn give_up(&self, ticket: Ticket) {
        // Once: to invert the bit again would take the word back.
        if self.given_up[ticket.slot].swap(ticket.number, Ordering::Relaxed) == ticket.number {
            return;
        }
        let (word, bit) = place(ticket.slot);
        let calls = &self.shared().calls;
        self.shared().cancels.given_up[word].fetch_xor(bit, Ordering::AcqRel);
        calls.cancels.fetch_add(1, Ordering::AcqRel);
        calls.bell.ring();
    }

    /// Tells the server that nobody waits for a request, which is to go on also when this process is gone.
    pub fn detach(&self, ticket: Ticket) {
        self.slot(ticket.slot).request.detached.store(ticket.number, Ordering::Release);
    }

    /// Whether the answer is there. Then, and until the next request, the slot's reply is ours to read.
    #[inline]
    pub fn is_answered(&self, ticket: Ticket) -> bool {
        self.slot(ticket.slot).reply.turn.is(ticket.number)
    }

    /// Whether the answer comes by a lane, or has come.
    #[inline]
    pub fn is_streamed(&self, ticket: Ticket) -> bool {
        self.streams_by(ticket).is_some()
    }

    #[inline]
    fn streams_by(&self, ticket: Ticket) -> Option<usize> {
        let word = self.slot(ticket.slot).reply.stream.load(Ordering::Acquire);
        let which = (word as usize & 0xff).wrapping_sub(1);
        (which < LANES && word == stream(ticket.number, which)).then_some(which)
    }

    /// Who empties the lane by which the answer comes, if it comes by one.
    pub fn stream(&self, ticket: Ticket) -> Option<Emptier> {
        self.streams_by(ticket).map(|which| Emptier::new(&self.page, Way::Results, which))
    }

    /// How long an answer that comes by a lane will be, perhaps.
    pub fn expected(&self, ticket: Ticket) -> u64 {
        self.slot(ticket.slot).reply.expected.load(Ordering::Relaxed)
    }

    /// How much of an answer that is there came by a lane.
    pub fn streamed(&self, ticket: Ticket) -> u64 {
        self.slot(ticket.slot).reply.streamed.load(Ordering::Relaxed)
    }

    /// Sleeps until the answer may be there, or comes by a lane and `streamed` is false, or for `most`.
    #[inline]
    pub fn sleep(&self, ticket: Ticket, streamed: bool, most: Duration) {
        let has_work = || !streamed && self.is_streamed(ticket);
        self.slot(ticket.slot).reply.turn.sleep(ticket.number, most, has_work);
    }

    /// Has the bell rung when the answer comes. False: it may be there already.
    pub fn watch(&self, ticket: Ticket) -> bool {
        self.slot(ticket.slot).reply.turn.watch(ticket.number)
    }

    /// Of an answer that is there: what it is, and how long, but for what came by a lane. So many bytes are appended to
    /// `body`, except for what exceeds [`INLINE`].
    #[inline]
    pub fn answer(&self, ticket: Ticket, body: &mut Vec<u8>) -> (Status, u64) {
        let reply = &self.slot(ticket.slot).reply;
        let status = Status::from_code(reply.status.load(Ordering::Relaxed));
        let len = reply.len.load(Ordering::Relaxed);
        append(&reply.body, usize::try_from(len).unwrap_or(usize::MAX), body);
        (status, len)
    }

    /// Whether an answer that is there is that of a part.
    pub fn is_part(&self, ticket: Ticket) -> bool {
        Status::from_code(self.slot(ticket.slot).reply.status.load(Ordering::Relaxed)) == Status::Part
    }

    /// Waits for a lane to be free, for `most`. The lowest, so that few are ever touched.
    pub fn lane(self: &Arc<Self>, most: Duration) -> Option<Lane> {
        let is_free = |idle: &Idle| match idle.until {
            Until::Now => true,
            Until::Emptied => idle.filler.is_over(),
            Until::Answered(ticket) => self.is_answered(ticket) || self.last(ticket.slot) != ticket.number,
        };
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let none = |lanes: &mut Vec<Idle>| !lanes.iter().any(is_free);
        let waited = self.returned.wait_timeout_while(lanes, most, none);
        let mut lanes = waited.unwrap_or_else(PoisonError::into_inner).0;
        let free = lanes.iter().enumerate().filter(|(_, idle)| is_free(idle));
        let (place, _) = free.min_by_key(|(_, idle)| idle.filler.which())?;
        let mut filler = lanes.swap_remove(place).filler;
        filler.begin();
        Some(Lane { caller: self.clone(), filler: Some(filler), until: Until::Now, held: false })
    }

    /// The service thread is about to sleep: it looks once more before [`Caller::rest`].
    pub fn lie_down(&self) -> Lying {
        let made = self.recall.made();
        self.shared().returns.bell.lie_down();
        Lying(made)
    }

    /// Sleeps until something that is watched was answered, or for `most`; without that until
    /// [`Caller::wake`] at the latest.
    pub fn rest(&self, lying: Lying, most: Option<Duration>) {
        let bell = &self.shared().returns.bell;
        match most {
            Some(most) => bell.sleep(most),
            None => bell.sleep_until_recalled(&self.recall, lying.0),
        }
    }

    /// Wakes the service thread, whatever the server did to it.
    pub fn wake(&self) {
        self.recall.make(&self.shared().returns.bell);
    }
}

impl Ticket {
    /// The slot.
    pub fn slot(self) -> usize {
        self.slot
    }

    /// The number of the request among those of its slot.
    pub fn number(self) -> u64 {
        self.number
    }
}

impl Lane {
    fn filler(&self) -> &Filler {
        self.filler.as_ref().expect("a lane has its filler until it is dropped")
    }

    fn which(&self) -> usize {
        self.filler().which()
    }

    /// What a call says of its arguments: from now on the server may need them.
    fn commit(&mut self) -> u64 {
        self.until = Until::Emptied;
        (self.which() as u64) << LANE_SHIFT | self.filler().len()
    }

    /// Puts arguments in, as many bytes as there is room for, and says how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let Some(filler) = &mut self.filler else { return 0 };
        let calls = &self.caller.shared().calls;
        let mut taken = 0;
        for part in bytes.chunks(PART) {
            let len = filler.put(part);
            calls.parts.fetch_add(1, Ordering::AcqRel);
            calls.bell.ring();
            taken += len;
            if len < part.len() {
                break;
            }
        }
        taken
    }

    /// What is put in is to stand there until the lane is dropped, to be copied. False: too many lanes are held.
    pub fn hold(&mut self) -> bool {
        let one_more = |held| (held < MOST_HELD).then_some(held + 1);
        let held = &self.caller.held;
        self.held = self.held || held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok();
        self.held
    }

    /// It is not to be held any more.
    pub fn let_go(&mut self) {
        if std::mem::take(&mut self.held) {
            self.caller.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether it is held: what was put in stands there, whatever the server does.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// How many more bytes it has room for that are held.
    pub fn rest(&self) -> usize {
        (PARTS * PART).saturating_sub(self.filler().len() as usize)
    }

    /// Appends all that was put in and is held.
    pub fn copy(&self, into: &mut Vec<u8>) {
        self.filler().copy(into);
    }

    /// What was fetched is there.
    pub fn fetched(&mut self) {
        self.until = Until::Now;
    }

    /// Whether there is room for a byte.
    pub fn has_room(&self) -> bool {
        self.filler().has_room()
    }

    /// Sleeps until there may be room, or for `most`.
    pub fn sleep(&self, most: Duration) {
        self.filler().sleep(most);
    }

    /// Appends `len` bytes of a part that was fetched, no more than it has.
    pub fn drain(&self, part: usize, len: usize, into: &mut Vec<u8>) {
        append(fetched(&self.caller.page, self.which(), part), len, into);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.let_go();
        let Some(filler) = self.filler.take() else { return };
        let idle = Idle { filler, until: self.until };
        self.caller.lanes.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
        self.caller.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Server, Taker};

    /// A turn has room for 30 bits of a number.
    const TURNS: u64 = 1 << 30;

    fn halves() -> (Caller, Server, Taker) {
        let page = Page::alone();
        (Caller::new(page.clone()), Server::new(page), Taker::new())
    }

    #[test]
    fn a_result_that_came_by_a_lane_is_not_that_of_a_call_a_billion_later() {
        let (caller, server, mut taker) = halves();
        let call = Call { export: 7, procedure: 1, within: None, trace: None };
        let ticket = caller.call(caller.claim().unwrap(), &call, &[], None);
        let (slot, number) = server.take(&mut taker).unwrap();
        let mut filler = server.fillers().into_iter().next().unwrap();
        filler.begin();
        server.stream(slot, number, &filler, 9);
        filler.put(&[1; 9]);
        server.streamed(slot, filler.len());
        server.answer(slot, number, Status::Result, &[]);
        assert!(caller.is_streamed(ticket) && caller.is_answered(ticket));
        caller.release(slot);
        caller.give_up(ticket);
        // (All those between were short.)
        caller.numbers[slot].store(TURNS, Ordering::Relaxed);
        taker.skip_to(slot, TURNS);
        let ticket = caller.call(caller.claim().unwrap(), &call, &[], None);
        let (slot, number) = server.take(&mut taker).unwrap();
        server.answer(slot, number, Status::Result, &[2; 9]);
        assert!(caller.is_answered(ticket) && !caller.is_streamed(ticket));
        // Nor is it the one that was given up.
        assert_eq!(server.given_up(&mut taker), Some(slot));
        caller.give_up(ticket);
        assert_eq!(server.given_up(&mut taker), Some(slot));
    }

    #[test]
    fn a_sleeping_caller_is_woken_early_for_a_long_result_only() {
        let (caller, server, mut taker) = halves();
        let call = Call { export: 7, procedure: 1, within: None, trace: None };
        let ticket = caller.call(caller.claim().unwrap(), &call, &[], None);
        let (slot, number) = server.take(&mut taker).unwrap();
        let filler = server.fillers().into_iter().next().unwrap();
        let turn = &caller.slot(slot).reply.turn;
        for (expected, sleeps) in [(0, true), (2 * PART as u64, true), (2 * PART as u64 + 1, false)] {
            caller.sleep(ticket, true, Duration::ZERO);
            assert!(turn.has_sleeper());
            server.stream(slot, number, &filler, expected);
            assert_eq!(turn.has_sleeper(), sleeps, "{expected} bytes");
        }
    }

    #[test]
    fn recalls_are_counted_so_that_none_ends_a_later_sleep() {
        let (caller, server, _) = halves();
        for made in 0..3 {
            assert_eq!((caller.lie_down().0, server.lie_down().0), (made, made));
            caller.wake();
            server.wake();
        }
    }
}
