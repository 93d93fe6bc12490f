//! The serving half of a connection's memory: takes requests, reads them and answers them. The caller can
//! write any word at any time, so no word that is read here is trusted.
//!
//! A slot holds one request and its reply. What does not fit a slot goes through a ring of larger parts. The
//! cursor notes which requests the server has taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use crate::bulk_ring::{BulkConsumer, BulkProducer, Carries, fetched};
use crate::copy::{append, put};
use crate::layout::{
    BITMAP_WORDS, FETCH_PARTS, MAX_DRAINED, PART_BYTES, RING_COUNT, SLOT_BODY_BYTES, SLOT_COUNT, Shared,
    Slot, bit_of,
};
use crate::wake_word::PrivateWake;
use crate::words::get;
use crate::{CallMemory, SleepIntent, Status};

/// The serving half of a connection's memory. Any thread may answer a request. Only the thread with the
/// [`RequestCursor`] may take requests.
#[derive(Clone, Debug)]
pub struct Server {
    memory: Arc<CallMemory>,
    /// Wakes the receiving thread.
    receiver_wake: Arc<PrivateWake>,
}

/// Which requests the server has taken. This is in the server's private memory, out of the caller's reach.
#[derive(Debug)]
pub struct RequestCursor {
    seen: SeenWork,
    given_up: [u64; BITMAP_WORDS],
    /// A bit for each slot whose last request had been given up when it was taken.
    given_up_before: [u64; BITMAP_WORDS],
    /// A bit for each slot with a request that was found at the last look and is not taken yet. All of these
    /// are taken before the next look, so no slot waits for ever.
    batch: [u64; BITMAP_WORDS],
    /// The number of each slot's last request.
    numbers: Box<[u64; SLOT_COUNT]>,
}

/// The caller's bits and counts, as the server last saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenWork {
    ready: [u64; BITMAP_WORDS],
    cancels: u32,
    parts: u32,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Execute a call.
    Call {
        /// The call.
        call: Call,
        /// How many bytes of arguments the slot holds, at most [`SLOT_BODY_BYTES`].
        len: usize,
        /// The arguments in a bulk ring, if there are any. The arguments in the slot follow them.
        bulk: Option<BulkArguments>,
    },
    /// Copy a part of the slot's reply into a fetch buffer, where the caller reads it.
    Fetch {
        /// The ring whose fetch buffer is to be used, less than [`RING_COUNT`].
        ring: usize,
        /// The part of the fetch buffer, less than [`FETCH_PARTS`].
        part: usize,
        /// The offset in the reply from which to copy, in bytes.
        offset: u64,
    },
    /// Forget the slot's reply.
    Forget,
    /// Something that no honest caller writes.
    Nonsense,
}

/// Arguments in a bulk ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkArguments {
    /// The ring, less than [`RING_COUNT`].
    pub ring: usize,
    /// The number of bytes.
    pub len: u64,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The identifier of the export.
    pub export: u64,
    /// The procedure's number.
    pub procedure: u32,
    /// How long the caller waits.
    pub within: Option<Duration>,
    /// The trace's 16 bytes and the span's 8.
    pub trace: Option<[u8; 24]>,
}

/// The kinds of requests, in the bits of `more` from [`KIND_SHIFT`] on.
pub(crate) const CALL: u64 = 0;
pub(crate) const FETCH: u64 = 1;
pub(crate) const FORGET: u64 = 2;
/// Flag of a call: there is a trace.
pub(crate) const TRACED: u64 = 1 << 62;
/// Flag of a call: there are arguments in a bulk ring.
pub(crate) const BULK: u64 = 1 << 63;
pub(crate) const KIND_SHIFT: u32 = 60;
/// The bits of `more` below the kind: a time or an offset.
pub(crate) const VALUE_MASK: u64 = (1 << KIND_SHIFT) - 1;
/// The word that describes bulk arguments has the ring's index from this bit on, and the length below it.
pub(crate) const RING_SHIFT: u32 = 48;

impl RequestCursor {
    /// Makes the cursor of memory through which no call was made yet.
    #[expect(clippy::new_without_default)]
    pub fn new() -> RequestCursor {
        let none = [0; BITMAP_WORDS];
        let numbers = Box::new([0; SLOT_COUNT]);
        RequestCursor {
            seen: SeenWork::default(),
            given_up: none,
            given_up_before: none,
            batch: none,
            numbers,
        }
    }

    /// Returns what the server has seen so far, so that a thread without the cursor can look for more.
    #[inline]
    pub fn seen(&self) -> SeenWork {
        self.seen
    }

    /// Returns the number of a slot's last request.
    pub fn number(&self, slot: usize) -> u64 {
        self.numbers[slot]
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, slot: usize, number: u64) {
        self.numbers[slot] = number;
    }
}

impl Server {
    /// Returns the serving half of this memory.
    pub fn new(memory: Arc<CallMemory>) -> Server {
        memory.shared().taken.heeds.store(1, Ordering::Release);
        Server { memory, receiver_wake: Arc::new(PrivateWake::new()) }
    }

    #[inline]
    fn shared(&self) -> &Shared {
        self.memory.shared()
    }

    fn slot(&self, slot: usize) -> &Slot {
        &self.shared().slots[slot % SLOT_COUNT]
    }

    /// Returns whether there is more work than in `seen`.
    #[inline]
    pub fn has_work(&self, seen: &SeenWork) -> bool {
        let calls = &self.shared().calls;
        let differs = |(ready, seen): (&AtomicU64, &u64)| ready.load(Ordering::Acquire) != *seen;
        calls.ready.iter().zip(&seen.ready).any(differs)
            || calls.cancels.load(Ordering::Acquire) != seen.cancels
            || calls.parts.load(Ordering::Acquire) != seen.parts
    }

    /// Returns whether parts of arguments were filled since the last look.
    #[inline]
    pub fn has_parts(&self, cursor: &mut RequestCursor) -> bool {
        let parts = self.shared().calls.parts.load(Ordering::Acquire);
        std::mem::replace(&mut cursor.seen.parts, parts) != parts
    }

    /// Takes a request, and returns its slot and its number. The caller learns of it by
    /// [`tell_taken`](Server::tell_taken) alone.
    #[inline]
    pub fn take(&self, cursor: &mut RequestCursor) -> Option<(usize, u64)> {
        if cursor.batch == [0; BITMAP_WORDS] {
            let ready = &self.shared().calls.ready;
            for ((ready, seen), batch) in ready.iter().zip(cursor.seen.ready).zip(&mut cursor.batch) {
                *batch = ready.load(Ordering::Acquire) ^ seen;
            }
        }
        let word = cursor.batch.iter().position(|batch| *batch != 0)?;
        let slot = word * 64 + cursor.batch[word].trailing_zeros() as usize;
        let (_, bit) = bit_of(slot);
        cursor.batch[word] &= !bit;
        cursor.seen.ready[word] ^= bit;
        let number = cursor.numbers[slot] + 1;
        cursor.numbers[slot] = number;
        if self.shared().calls.cancels.load(Ordering::Acquire) != cursor.seen.cancels {
            self.part_cancels(cursor, slot, number);
        }
        Some((slot, number))
    }

    /// Notes whether the request that was just taken, or only an earlier one of its slot, was given up. An
    /// earlier one was answered before this one was made, so its cancel must not end this one.
    #[cold]
    fn part_cancels(&self, cursor: &mut RequestCursor, slot: usize, number: u64) {
        let (word, bit) = bit_of(slot);
        // The caller writes the number first. If it gives this request up after the bit was read here, the
        // bit differs from what the cursor has, and `given_up` finds it.
        let bits = self.shared().cancels.given_up[word].load(Ordering::Acquire);
        let last = self.slot(slot).reply.given_up.load(Ordering::Acquire);
        if last == 0 {
            // Nothing was given up in this slot, or the caller does not say which request it was.
            return;
        }
        cursor.given_up[word] = cursor.given_up[word] & !bit | bits & bit;
        cursor.given_up_before[word] &= !bit;
        if last == number {
            cursor.given_up_before[word] |= bit;
        }
    }

    /// Returns whether one of these requests of a word of slots, which are not taken yet, was given up.
    fn has_given_up_untaken(&self, cursor: &RequestCursor, word: usize, mut untaken: u64) -> bool {
        while untaken != 0 {
            let slot = word * 64 + untaken.trailing_zeros() as usize;
            untaken &= untaken - 1;
            if self.slot(slot).reply.given_up.load(Ordering::Acquire) == cursor.numbers[slot] + 1 {
                return true;
            }
        }
        false
    }

    /// Tells the caller that the request in a slot is taken. From now on the caller must assume that it may
    /// have run. This comes before the request is executed; if the server is killed before it, the request
    /// never runs. It comes after the answer to a request that is refused.
    #[inline]
    pub fn tell_taken(&self, cursor: &RequestCursor, slot: usize) {
        let (word, _) = bit_of(slot);
        self.shared().taken.bits[word].store(cursor.seen.ready[word], Ordering::Release);
    }

    /// Returns whether the caller has withdrawn the request in a slot, of which it was told just now that it
    /// is taken. Such a request must not be executed, and is answered as not run.
    ///
    /// Both sides write, and then read what the other side writes; the fences give an order to the two. So
    /// the caller sees that the request was taken before it was withdrawn, or the server sees that it is
    /// withdrawn.
    #[inline]
    pub fn is_withdrawn(&self, slot: usize) -> bool {
        let (word, bit) = bit_of(slot);
        fence(Ordering::SeqCst);
        self.shared().cancels.withdrawn[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Returns a slot whose caller has given up, since the last look, the last request that was taken there.
    /// A request that was given up before it is taken is returned once it is taken. One that was answered
    /// before the next request of its slot was taken need not be returned.
    pub fn given_up(&self, cursor: &mut RequestCursor) -> Option<usize> {
        let Shared { calls, cancels, .. } = self.shared();
        let count = calls.cancels.load(Ordering::Acquire);
        if count == cursor.seen.cancels {
            return None;
        }
        let mut left = false;
        for word in 0..BITMAP_WORDS {
            let inverted = cancels.given_up[word].load(Ordering::Acquire) ^ cursor.given_up[word];
            let new = inverted | cursor.given_up_before[word];
            let untaken = calls.ready[word].load(Ordering::Acquire) ^ cursor.seen.ready[word];
            let taken = new & !untaken;
            if taken != 0 {
                let bit = taken & taken.wrapping_neg();
                cursor.given_up[word] ^= inverted & bit;
                cursor.given_up_before[word] &= !bit;
                return Some(word * 64 + taken.trailing_zeros() as usize);
            }
            // Two cancels of a slot that come between two looks leave its bit as it was.
            left |= new != 0 || self.has_given_up_untaken(cursor, word, untaken);
        }
        if !left {
            cursor.seen.cancels = count;
        }
        None
    }

    /// Returns whether the request of that number in that slot is to go on even if the caller's process ends.
    pub fn is_detached(&self, slot: usize, number: u64) -> bool {
        self.slot(slot).request.detached.load(Ordering::Acquire) == number
    }

    /// Reads the request in a slot that was taken.
    #[inline]
    pub fn request(&self, slot: usize) -> Request {
        let request = &self.slot(slot).request;
        // Each word is read only once, because the caller can change it at any time.
        let what = request.what.load(Ordering::Relaxed);
        let size = request.size.load(Ordering::Relaxed);
        let more = request.more.load(Ordering::Relaxed);
        let (procedure, len) = ((size >> 32) as u32, size as u32 as usize);
        let (ring, part, value) =
            (what as usize / FETCH_PARTS, what as usize % FETCH_PARTS, more & VALUE_MASK);
        match more >> KIND_SHIFT & 3 {
            CALL if len <= SLOT_BODY_BYTES => {
                let within = (value != 0).then(|| Duration::from_nanos(value));
                let trace = (more & TRACED != 0).then(|| {
                    let mut trace = [0; 24];
                    get(&request.trace, &mut trace);
                    trace
                });
                let bulk = (more & BULK != 0).then(|| {
                    let bulk = request.bulk.load(Ordering::Relaxed);
                    let ring = (bulk >> RING_SHIFT) as usize % RING_COUNT;
                    BulkArguments { ring, len: bulk & ((1 << RING_SHIFT) - 1) }
                });
                Request::Call { call: Call { export: what, procedure, within, trace }, len, bulk }
            }
            FETCH if ring < RING_COUNT => Request::Fetch { ring, part, offset: value },
            FORGET => Request::Forget,
            _ => Request::Nonsense,
        }
    }

    /// Appends the first `len` bytes of arguments that a slot holds.
    #[inline]
    pub fn arguments(&self, slot: usize, len: usize, into: &mut Vec<u8>) {
        append(&self.slot(slot).request.body, len, into);
    }

    /// Returns the consumers of all rings for arguments.
    pub fn consumers(&self) -> [BulkConsumer; RING_COUNT] {
        std::array::from_fn(|index| BulkConsumer::new(&self.memory, Carries::Arguments, index))
    }

    /// Returns the producers of all rings for results.
    pub fn producers(&self) -> [BulkProducer; RING_COUNT] {
        std::array::from_fn(|index| BulkProducer::new(&self.memory, Carries::Results, index))
    }

    /// Copies bytes into the part of a fetch buffer that the caller asked for.
    pub fn fill(&self, ring: usize, part: usize, bytes: &[u8]) {
        put(fetched(&self.memory, ring, part), bytes.get(..PART_BYTES).unwrap_or(bytes));
    }

    /// Tells the caller that the answer to a request begins in a ring, which is still being filled, and about
    /// how many bytes it will carry.
    pub fn start_result(&self, slot: usize, number: u64, producer: &BulkProducer, expected: u64) {
        let reply = &self.slot(slot).reply;
        reply.expected.store(expected, Ordering::Relaxed);
        reply.ring.store(ring_word(number, producer.index()), Ordering::Release);
        // For a shorter result there is no wake-up, because the result would be complete before the caller is
        // awake.
        if expected > 2 * PART_BYTES as u64 {
            reply.answer.wake_early();
        }
    }

    /// Notes how many bytes of the answer the ring carried. The bytes in the slot follow them.
    pub fn end_result(&self, slot: usize, len: u64) {
        self.slot(slot).reply.ring_bytes.store(len, Ordering::Relaxed);
    }

    /// Answers the request of that number in that slot.
    #[inline]
    pub fn answer(&self, slot: usize, number: u64, status: Status, body: &[u8]) {
        self.prepare(slot, status, body);
        self.publish(slot, number);
    }

    /// Writes an answer without publishing it. Of a body longer than [`SLOT_BODY_BYTES`] the slot holds the
    /// beginning, and the caller fetches the rest in parts.
    #[inline]
    pub fn prepare(&self, slot: usize, status: Status, body: &[u8]) {
        let reply = &self.slot(slot).reply;
        put(&reply.body, body.get(..SLOT_BODY_BYTES).unwrap_or(body));
        reply.len.store(body.len() as u64, Ordering::Relaxed);
        reply.status.store(status.code(), Ordering::Relaxed);
    }

    /// Publishes the answer to the request of that number, and wakes the thread that waits for it.
    #[inline]
    pub fn publish(&self, slot: usize, number: u64) {
        if self.slot(slot).reply.answer.publish(number) {
            self.shared().returns.wake.wake();
        }
    }

    /// Tells the caller that the server takes no more calls of an export, or of any (`None`). The server must
    /// refuse them already. One thread at a time may call this.
    pub fn tell_drained(&self, export: Option<u64>) {
        let returns = &self.shared().returns;
        let (count, drained) = (returns.drains.load(Ordering::Relaxed) as usize, export.unwrap_or(0));
        // When all words are taken, the word for everything replaces one of them.
        let place = if export.is_none() { count.min(MAX_DRAINED - 1) } else { count };
        let Some(word) = returns.drained.get(place) else { return };
        word.store(drained, Ordering::Relaxed);
        returns.drains.store(place as u32 + 1, Ordering::Release);
    }

    /// Returns whether the caller last ran on the processor on which this thread runs now, so that the caller
    /// can run only when this thread sleeps. Tells the caller this thread's processor.
    #[inline]
    pub fn shares_processor(&self) -> bool {
        let Shared { calls, returns, .. } = self.shared();
        returns.processor.note_and_compare(&calls.processor)
    }

    /// Announces that the receiving thread is about to sleep. The thread must look for work once more before
    /// it calls [`Server::sleep`].
    pub fn announce_sleep(&self) -> SleepIntent {
        self.receiver_wake.announce_sleep(&self.shared().calls.wake)
    }

    /// Sleeps until there may be requests, or until [`Server::wake`].
    pub fn sleep(&self, intent: SleepIntent) {
        self.shared().calls.wake.sleep_until_private_wake(&self.receiver_wake, intent);
    }

    /// Announces that the receiving thread is awake.
    pub fn announce_awake(&self) {
        self.shared().calls.wake.announce_awake();
    }

    /// Wakes the receiving thread, even if a hostile caller has tampered with the words at which it sleeps.
    pub fn wake(&self) {
        self.receiver_wake.wake(&self.shared().calls.wake);
    }
}

/// Returns the word by which a reply says that it begins in the ring of that index.
pub(crate) fn ring_word(number: u64, index: usize) -> u64 {
    number << 8 | (index + 1) as u64
}
