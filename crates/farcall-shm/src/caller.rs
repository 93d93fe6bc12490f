//! The calling half: slots, requests in them, and waiting for their turns. It trusts no word that it reads.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::layout::{BITMAP, HALF, INLINE, LANES, SLOTS, Shared, Slot, place};
use crate::page::{append, put};
use crate::server::{ADD, ADDED, CALL, Call, FETCH, FORGET, KIND_SHIFT, MOST, NUMBERS, TRACED};
use crate::{Page, Status};

/// The calling half of a memory file. Any thread may use it.
#[derive(Debug)]
pub struct Caller {
    page: Arc<Page>,
    /// A bit for each slot that nobody has.
    free: [AtomicU64; BITMAP],
    /// The number of each slot's last request. Whoever has the slot writes it.
    numbers: Box<[AtomicU32; SLOTS]>,
    /// The number of each slot's last request that was given up.
    given_up: Box<[AtomicU32; SLOTS]>,
    /// Lanes that nobody has.
    lanes: Mutex<Vec<usize>>,
    returned: Condvar,
    /// Slots whose requests were given up, and are answered some time.
    abandoned: Mutex<Vec<Ticket>>,
    abandonments: AtomicUsize,
}

/// A request that was made: where, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: usize,
    number: u32,
}

/// A lane that is this thread's until it is dropped.
#[derive(Debug)]
pub struct Lane<'a> {
    caller: &'a Caller,
    which: usize,
}

/// One of a lane's two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half(pub usize);

impl Caller {
    /// The calling half of this memory, which nobody has called through yet.
    pub fn new(page: Arc<Page>) -> Caller {
        Caller {
            page,
            free: [const { AtomicU64::new(u64::MAX) }; BITMAP],
            numbers: Box::new([const { AtomicU32::new(0) }; SLOTS]),
            given_up: Box::new([const { AtomicU32::new(0) }; SLOTS]),
            lanes: Mutex::new((0..LANES).collect()),
            returned: Condvar::new(),
            abandoned: Mutex::default(),
            abandonments: AtomicUsize::new(0),
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
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.push(ticket);
        self.abandonments.store(abandoned.len(), Ordering::Relaxed);
    }

    /// Takes back abandoned slots that were answered since.
    #[cold]
    fn reclaim(&self) {
        if self.abandonments.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.retain(|ticket| {
            let answered = self.is_answered(*ticket);
            if answered {
                self.release(ticket.slot);
            }
            !answered
        });
        self.abandonments.store(abandoned.len(), Ordering::Relaxed);
    }

    /// Makes a call with at most [`INLINE`] bytes of arguments; `added`: they follow those that were added before.
    #[inline]
    pub fn call(&self, slot: usize, call: &Call, arguments: &[u8], added: bool) -> Ticket {
        let request = &self.slot(slot).request;
        put(&request.body, arguments);
        let mut more = CALL << KIND_SHIFT | if added { ADDED } else { 0 };
        if let Some(within) = call.within {
            more |= u64::try_from(within.as_nanos()).unwrap_or(MOST).clamp(1, MOST);
        }
        if let Some(trace) = &call.trace {
            put(&request.trace, trace);
            more |= TRACED;
        }
        self.publish(slot, call.export, u64::from(call.procedure) << 32 | arguments.len().min(INLINE) as u64, more)
    }

    /// Adds the first `len` bytes of half a lane to the `offset` bytes of arguments that a slot has.
    pub fn add(&self, slot: usize, lane: &Lane<'_>, half: Half, len: usize, offset: u64) -> Ticket {
        self.publish(slot, lane.name(half), len.min(HALF) as u64, ADD << KIND_SHIFT | offset & MOST)
    }

    /// Asks for a part of a slot's reply.
    pub fn fetch(&self, slot: usize, lane: &Lane<'_>, half: Half, offset: u64) -> Ticket {
        self.publish(slot, lane.name(half), 0, FETCH << KIND_SHIFT | offset & MOST)
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
        let number = self.numbers[slot].load(Ordering::Relaxed).wrapping_add(1) & NUMBERS;
        self.numbers[slot].store(number, Ordering::Relaxed);
        let (word, bit) = place(slot);
        let calls = &self.shared().calls;
        calls.ready[word].fetch_xor(bit, Ordering::AcqRel);
        calls.bell.ring();
        Ticket { slot, number }
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

    /// Whether the answer is there. Then, and until the next request, the slot's reply is ours to read.
    #[inline]
    pub fn is_answered(&self, ticket: Ticket) -> bool {
        self.slot(ticket.slot).reply.turn.is(ticket.number)
    }

    /// Sleeps until the answer may be there, or for `most`.
    #[inline]
    pub fn sleep(&self, ticket: Ticket, most: Option<Duration>) {
        self.slot(ticket.slot).reply.turn.sleep(ticket.number, most);
    }

    /// Has the bell rung when the answer comes. False: it may be there already.
    pub fn watch(&self, ticket: Ticket) -> bool {
        self.slot(ticket.slot).reply.turn.watch(ticket.number)
    }

    /// Of an answer that is there: what it is, and how long. Its body replaces `body`, except for what exceeds [`INLINE`].
    #[inline]
    pub fn answer(&self, ticket: Ticket, body: &mut Vec<u8>) -> (Status, u64) {
        let reply = &self.slot(ticket.slot).reply;
        let status = Status::from_code(reply.status.load(Ordering::Relaxed));
        let len = reply.len.load(Ordering::Relaxed);
        body.clear();
        append(&reply.body, usize::try_from(len).unwrap_or(usize::MAX), body);
        (status, len)
    }

    /// Whether an answer that is there is that of a part.
    pub fn is_part(&self, ticket: Ticket) -> bool {
        Status::from_code(self.slot(ticket.slot).reply.status.load(Ordering::Relaxed)) == Status::Part
    }

    /// Waits for a lane to be free, for `most`.
    pub fn lane(&self, most: Duration) -> Option<Lane<'_>> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.returned.wait_timeout_while(lanes, most, |lanes| lanes.is_empty());
        let which = waited.unwrap_or_else(PoisonError::into_inner).0.pop()?;
        Some(Lane { caller: self, which })
    }

    /// The service thread is about to sleep: it looks once more before [`Caller::rest`].
    pub fn lie_down(&self) {
        self.shared().returns.bell.lie_down();
    }

    /// Sleeps until something that is watched was answered, or for `most`.
    pub fn rest(&self, most: Option<Duration>) {
        self.shared().returns.bell.sleep(most);
    }

    /// Wakes the service thread.
    pub fn wake(&self) {
        self.shared().returns.bell.force();
    }
}

impl Ticket {
    /// The slot.
    pub fn slot(self) -> usize {
        self.slot
    }

    /// The number of the request among those of its slot.
    pub fn number(self) -> u32 {
        self.number
    }
}

impl Lane<'_> {
    fn name(&self, half: Half) -> u64 {
        (self.which << 1 | half.0 & 1) as u64
    }

    /// Fills a half, as far as it goes.
    pub fn fill(&self, half: Half, bytes: &[u8]) {
        put(&self.caller.shared().lanes[self.which][half.0 & 1], bytes);
    }

    /// Appends `len` bytes of a half, no more than it has.
    pub fn drain(&self, half: Half, len: usize, into: &mut Vec<u8>) {
        append(&self.caller.shared().lanes[self.which][half.0 & 1], len, into);
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.caller.lanes.lock().unwrap_or_else(PoisonError::into_inner).push(self.which);
        self.caller.returned.notify_one();
    }
}
