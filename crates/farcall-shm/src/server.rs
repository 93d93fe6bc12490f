//! The serving half: which requests are there, what they say, and answering them. It trusts no word that it reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bell::Recall;
use crate::copy::{append, put};
use crate::lane::{Emptier, Filler, Way, fetched};
use crate::layout::{BITMAP, FETCHED, INLINE, LANES, PART, SLOTS, Shared, Slot, place};
use crate::words::get;
use crate::{Lying, Page, Status};

/// The serving half of a memory file. Any thread may answer; one at a time takes (it has the [`Taker`]).
#[derive(Clone, Debug)]
pub struct Server {
    page: Arc<Page>,
    /// Wakes the thread that takes.
    recall: Arc<Recall>,
}

/// What the server alone knows: how far it has followed the caller's bits.
#[derive(Debug)]
pub struct Taker {
    seen: Seen,
    given_up: [u64; BITMAP],
    /// Requests that were there at the last look and are not taken yet: each has its turn before any comes again.
    batch: [u64; BITMAP],
    /// The number of each slot's last request.
    numbers: Box<[u64; SLOTS]>,
}

/// The caller's bits and its counts, as followed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    ready: [u64; BITMAP],
    cancels: u32,
    parts: u32,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Execute this.
    Call {
        /// What.
        call: Call,
        /// How many bytes of arguments the slot holds, at most [`INLINE`].
        len: usize,
        /// They follow those that came by a lane.
        added: Option<Added>,
    },
    /// Put a part of the slot's reply there.
    Fetch {
        /// The lane, less than [`LANES`].
        lane: usize,
        /// The part, less than [`FETCHED`].
        part: usize,
        /// Where in the reply it begins.
        offset: u64,
    },
    /// The slot's reply is no longer wanted.
    Forget,
    /// Nothing that an honest caller writes.
    Nonsense,
}

/// Arguments that came by a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The lane, less than [`LANES`].
    pub lane: usize,
    /// How many bytes.
    pub len: u64,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The export.
    pub export: u64,
    /// The procedure's number.
    pub procedure: u32,
    /// How long the caller waits.
    pub within: Option<Duration>,
    /// The trace's 16 bytes and the span's 8.
    pub trace: Option<[u8; 24]>,
}

/// Kinds of requests.
pub(crate) const CALL: u64 = 0;
pub(crate) const FETCH: u64 = 1;
pub(crate) const FORGET: u64 = 2;
/// Of a call: there is a trace.
pub(crate) const TRACED: u64 = 1 << 62;
/// Of a call: arguments came by a lane.
pub(crate) const ADDED: u64 = 1 << 63;
pub(crate) const KIND_SHIFT: u32 = 60;
/// Of those arguments: the lane stands above so many bits, the length below.
pub(crate) const LANE_SHIFT: u32 = 48;
/// The largest number that stands below the kind.
pub(crate) const MOST: u64 = (1 << KIND_SHIFT) - 1;

impl Taker {
    /// Of a memory file that nobody has used yet.
    #[expect(clippy::new_without_default)]
    pub fn new() -> Taker {
        let none = [0; BITMAP];
        Taker { seen: Seen::default(), given_up: none, batch: none, numbers: Box::new([0; SLOTS]) }
    }

    /// What was seen so far, to look for more without the taker.
    #[inline]
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// The number of a slot's last request.
    pub fn number(&self, slot: usize) -> u64 {
        self.numbers[slot]
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, slot: usize, number: u64) {
        self.numbers[slot] = number;
    }
}

impl Server {
    /// The serving half of this memory.
    pub fn new(page: Arc<Page>) -> Server {
        Server { page, recall: Arc::new(Recall::new()) }
    }

    #[inline]
    fn shared(&self) -> &Shared {
        self.page.shared()
    }

    fn slot(&self, slot: usize) -> &Slot {
        &self.shared().slots[slot % SLOTS]
    }

    /// Whether there is more than was seen.
    #[inline]
    pub fn is_rung(&self, seen: &Seen) -> bool {
        let calls = &self.shared().calls;
        let differs = |(ready, seen): (&AtomicU64, &u64)| ready.load(Ordering::Acquire) != *seen;
        calls.ready.iter().zip(&seen.ready).any(differs)
            || calls.cancels.load(Ordering::Acquire) != seen.cancels
            || calls.parts.load(Ordering::Acquire) != seen.parts
    }

    /// Whether there are parts of arguments since the last look.
    #[inline]
    pub fn has_parts(&self, taker: &mut Taker) -> bool {
        let parts = self.shared().calls.parts.load(Ordering::Acquire);
        std::mem::replace(&mut taker.seen.parts, parts) != parts
    }

    /// Takes a request: its slot and its number. From now on it may have run.
    #[inline]
    pub fn take(&self, taker: &mut Taker) -> Option<(usize, u64)> {
        if taker.batch == [0; BITMAP] {
            let ready = &self.shared().calls.ready;
            for ((ready, seen), batch) in ready.iter().zip(taker.seen.ready).zip(&mut taker.batch) {
                *batch = ready.load(Ordering::Acquire) ^ seen;
            }
        }
        let word = taker.batch.iter().position(|batch| *batch != 0)?;
        let slot = word * 64 + taker.batch[word].trailing_zeros() as usize;
        let (_, bit) = place(slot);
        taker.batch[word] &= !bit;
        taker.seen.ready[word] ^= bit;
        // A server that is killed after this has taken the call, one that is killed before has not and never will.
        self.shared().taken.bits[word].store(taker.seen.ready[word], Ordering::Release);
        let number = taker.numbers[slot] + 1;
        taker.numbers[slot] = number;
        Some((slot, number))
    }

    /// A slot whose caller has given its request up since the last look. (Whoever gives a request up has made it before:
    /// of one that is not taken yet this waits until it is.)
    pub fn given_up(&self, taker: &mut Taker) -> Option<usize> {
        let Shared { calls, cancels, .. } = self.shared();
        let count = calls.cancels.load(Ordering::Acquire);
        if count == taker.seen.cancels {
            return None;
        }
        let mut left = false;
        for word in 0..BITMAP {
            let new = cancels.given_up[word].load(Ordering::Acquire) ^ taker.given_up[word];
            let untaken = calls.ready[word].load(Ordering::Acquire) ^ taker.seen.ready[word];
            let ripe = new & !untaken;
            if ripe != 0 {
                taker.given_up[word] ^= ripe & ripe.wrapping_neg();
                return Some(word * 64 + ripe.trailing_zeros() as usize);
            }
            left |= new != 0;
        }
        if !left {
            taker.seen.cancels = count;
        }
        None
    }

    /// Whether the request of that number in that slot goes on when its caller is gone.
    pub fn is_detached(&self, slot: usize, number: u64) -> bool {
        self.slot(slot).request.detached.load(Ordering::Acquire) == number
    }

    /// Reads the request in a slot that was taken.
    #[inline]
    pub fn request(&self, slot: usize) -> Request {
        let request = &self.slot(slot).request;
        // Each word once: the caller may change it meanwhile.
        let what = request.what.load(Ordering::Relaxed);
        let size = request.size.load(Ordering::Relaxed);
        let more = request.more.load(Ordering::Relaxed);
        let (procedure, len) = ((size >> 32) as u32, size as u32 as usize);
        let (lane, part, offset) = (what as usize / FETCHED, what as usize % FETCHED, more & MOST);
        match more >> KIND_SHIFT & 3 {
            CALL if len <= INLINE => {
                let within = (offset != 0).then(|| Duration::from_nanos(offset));
                let trace = (more & TRACED != 0).then(|| {
                    let mut trace = [0; 24];
                    get(&request.trace, &mut trace);
                    trace
                });
                let added = (more & ADDED != 0).then(|| {
                    let added = request.added.load(Ordering::Relaxed);
                    Added {
                        lane: (added >> LANE_SHIFT) as usize % LANES,
                        len: added & ((1 << LANE_SHIFT) - 1),
                    }
                });
                Request::Call { call: Call { export: what, procedure, within, trace }, len, added }
            }
            FETCH if lane < LANES => Request::Fetch { lane, part, offset },
            FORGET => Request::Forget,
            _ => Request::Nonsense,
        }
    }

    /// Appends the bytes that a slot holds.
    #[inline]
    pub fn arguments(&self, slot: usize, len: usize, into: &mut Vec<u8>) {
        append(&self.slot(slot).request.body, len, into);
    }

    /// Those who empty the lanes of arguments.
    pub fn emptiers(&self) -> [Emptier; LANES] {
        std::array::from_fn(|which| Emptier::new(&self.page, Way::Arguments, which))
    }

    /// Those who fill the lanes of results.
    pub fn fillers(&self) -> [Filler; LANES] {
        std::array::from_fn(|which| Filler::new(&self.page, Way::Results, which))
    }

    /// Fills a part that was asked for.
    pub fn fill(&self, which: usize, part: usize, bytes: &[u8]) {
        put(fetched(&self.page, which, part), bytes.get(..PART).unwrap_or(bytes));
    }

    /// Says that what answers a request comes by a lane, as it is made, and how long it will be, perhaps.
    pub fn stream(&self, slot: usize, number: u64, filler: &Filler, expected: u64) {
        let reply = &self.slot(slot).reply;
        reply.expected.store(expected, Ordering::Relaxed);
        reply.stream.store(stream(number, filler.which()), Ordering::Release);
        // What is shorter is there as soon as a sleeper would be awake.
        if expected > 2 * PART as u64 {
            reply.turn.nudge();
        }
    }

    /// Answers the request of that number in that slot.
    #[inline]
    pub fn answer(&self, slot: usize, number: u64, status: Status, body: &[u8]) {
        self.prepare(slot, status, body);
        self.give(slot, number);
    }

    /// Says how much of the answer came by a lane; the body follows that.
    pub fn streamed(&self, slot: usize, len: u64) {
        self.slot(slot).reply.streamed.store(len, Ordering::Relaxed);
    }

    /// Writes an answer that nobody looks at yet. Of a body longer than [`INLINE`] the beginning stands in the slot, and
    /// the caller fetches the rest by parts.
    #[inline]
    pub fn prepare(&self, slot: usize, status: Status, body: &[u8]) {
        let reply = &self.slot(slot).reply;
        put(&reply.body, body.get(..INLINE).unwrap_or(body));
        reply.len.store(body.len() as u64, Ordering::Relaxed);
        reply.status.store(status.code(), Ordering::Relaxed);
    }

    /// Says that the answer is there.
    #[inline]
    pub fn give(&self, slot: usize, number: u64) {
        if self.slot(slot).reply.turn.give(number) {
            self.shared().returns.bell.ring();
        }
    }

    /// Says that this side is about to sleep: look once more before [`Server::sleep`].
    pub fn lie_down(&self) -> Lying {
        let made = self.recall.made();
        self.shared().calls.bell.lie_down();
        Lying(made)
    }

    /// Sleeps until there may be requests, or [`Server::wake`].
    pub fn sleep(&self, lying: Lying) {
        self.shared().calls.bell.sleep_until_recalled(&self.recall, lying.0);
    }

    /// This side is awake.
    pub fn get_up(&self) {
        self.shared().calls.bell.get_up();
    }

    /// Wakes the thread of this side that sleeps, whatever the caller did to it.
    pub fn wake(&self) {
        self.recall.make(&self.shared().calls.bell);
    }
}

/// What a reply says of the lane that it comes by.
pub(crate) fn stream(number: u64, which: usize) -> u64 {
    number << 8 | (which + 1) as u64
}
