//! The calling half of a connection's memory: claims slots, makes requests in them, and waits for answers.
//! The server can write any word at any time, so no word that is read here is trusted.
//!
//! A slot holds one request and its reply. What does not fit a slot goes through a ring of larger parts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bulk_ring::{BulkConsumer, BulkProducer, Carries, fetched};
use crate::copy::{append, put};
use crate::layout::{
    BITMAP_WORDS, FETCH_PARTS, MAX_DRAINED, PART_BYTES, RING_COUNT, RING_PARTS, SLOT_BODY_BYTES, SLOT_COUNT,
    Shared, Slot, bit_of,
};
use crate::server::{BULK, CALL, Call, FETCH, FORGET, KIND_SHIFT, RING_SHIFT, TRACED, VALUE_MASK, ring_word};
use crate::wake_word::PrivateWake;
use crate::{CallMemory, SleepIntent, Status};

/// The calling half of a connection's memory. Any thread may use it.
#[derive(Debug)]
pub struct Caller {
    memory: Arc<CallMemory>,
    /// A bit for each free slot.
    free: [AtomicU64; BITMAP_WORDS],
    /// The number of each slot's last request. Written by the thread that has claimed the slot.
    numbers: Box<[AtomicU64; SLOT_COUNT]>,
    /// The number of each slot's last request that was given up.
    given_up: Box<[AtomicU64; SLOT_COUNT]>,
    /// The rings for arguments, in which a call passes what its slot cannot hold.
    rings: Mutex<Rings>,
    /// Notified when a ring is returned for which a thread waits.
    returned: Condvar,
    /// How many rings are held: kept after the server has emptied them ([`ArgumentRing::hold`]).
    held: AtomicUsize,
    /// Requests for whose answers no thread waits any more, and that the server has not answered yet.
    abandoned: Mutex<Vec<Abandoned>>,
    /// The length of `abandoned`, which can be read without the lock.
    abandoned_count: AtomicUsize,
    /// Wakes the service thread.
    service_wake: PrivateWake,
}

/// Identifies a request: its slot, and its number among the requests of that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    slot: usize,
    number: u64,
}

/// A request for whose answer no thread waits.
#[derive(Clone, Copy, Debug)]
struct Abandoned {
    id: RequestId,
    /// Whether this request tells the server to forget what it keeps of the slot's reply. Such a request is
    /// the last one before the slot is free.
    forgets: bool,
}

/// The rings for arguments.
#[derive(Debug)]
struct Rings {
    /// The rings that no thread uses.
    idle: Vec<IdleRing>,
    /// How many threads wait for a ring. Notifying takes a system call, even if no thread waits.
    waiting: usize,
}

/// A ring for arguments that no thread uses.
#[derive(Debug)]
struct IdleRing {
    producer: BulkProducer,
    free: Free,
}

/// From when on the server no longer uses a ring, so that it is free.
#[derive(Clone, Copy, Debug)]
enum Free {
    Now,
    OnceEmptied,
    OnceAnswered(RequestId),
}

/// A ring for arguments that belongs to one thread until this value is dropped.
#[derive(Debug)]
pub struct ArgumentRing {
    caller: Arc<Caller>,
    /// `Some` until this is dropped.
    ring: Option<IdleRing>,
    held: bool,
}

/// The maximum number of rings that may be held. All others are free as soon as the server has emptied them.
const MAX_HELD_RINGS: usize = RING_COUNT / 2;

impl Caller {
    /// Makes the calling half of this memory, through which no call was made yet.
    pub fn new(memory: Arc<CallMemory>) -> Caller {
        let idle = |index| IdleRing {
            producer: BulkProducer::new(&memory, Carries::Arguments, index),
            free: Free::Now,
        };
        Caller {
            rings: Mutex::new(Rings { idle: (0..RING_COUNT).map(idle).collect(), waiting: 0 }),
            memory,
            free: [const { AtomicU64::new(u64::MAX) }; BITMAP_WORDS],
            numbers: Box::new([const { AtomicU64::new(0) }; SLOT_COUNT]),
            given_up: Box::new([const { AtomicU64::new(0) }; SLOT_COUNT]),
            returned: Condvar::new(),
            held: AtomicUsize::new(0),
            abandoned: Mutex::default(),
            abandoned_count: AtomicUsize::new(0),
            service_wake: PrivateWake::new(),
        }
    }

    #[inline]
    fn shared(&self) -> &Shared {
        self.memory.shared()
    }

    fn slot(&self, slot: usize) -> &Slot {
        &self.shared().slots[slot % SLOT_COUNT]
    }

    /// Claims the lowest free slot, so that few slots are ever touched. Give the slot back by
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

    /// Returns the number of slots that are not free: those that are claimed, and those that are abandoned
    /// and not answered yet.
    pub fn outstanding(&self) -> usize {
        self.free.iter().map(|free| free.load(Ordering::Relaxed).count_zeros() as usize).sum()
    }

    /// Gives back a slot whose request was answered, or that had no request.
    #[inline]
    pub fn release(&self, slot: usize) {
        let (word, bit) = bit_of(slot);
        self.free[word].fetch_or(bit, Ordering::Release);
    }

    /// Gives back a slot whose request is not answered yet. The slot becomes free once the answer has come.
    pub fn abandon(&self, id: RequestId) {
        self.reclaim();
        let mut abandoned = lock(&self.abandoned);
        abandoned.push(Abandoned { id, forgets: false });
        self.abandoned_count.store(abandoned.len(), Ordering::Relaxed);
    }

    /// Frees abandoned slots that were answered in the meantime, and the rings by which those answers came.
    #[cold]
    pub fn reclaim(&self) {
        if self.abandoned_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut abandoned = lock(&self.abandoned);
        abandoned.retain_mut(|Abandoned { id, forgets }| {
            if !self.is_answered(*id) {
                return true;
            }
            self.end_withdrawal(id.slot);
            if let Some(mut consumer) = self.result_ring(*id) {
                consumer.skip(self.ring_bytes(*id));
            }
            if !std::mem::replace(forgets, true) && self.may_be_kept(*id) {
                *id = self.forget(id.slot);
                return true;
            }
            self.release(id.slot);
            false
        });
        self.abandoned_count.store(abandoned.len(), Ordering::Relaxed);
    }

    /// Returns whether the server may keep more of an answer than has come, because the slot does not hold
    /// all of it.
    fn may_be_kept(&self, id: RequestId) -> bool {
        let len = self.slot(id.slot).reply.len.load(Ordering::Relaxed);
        len > SLOT_BODY_BYTES as u64 || self.is_part(id)
    }

    /// Makes a call. `arguments` has at most [`SLOT_BODY_BYTES`] bytes, which follow the arguments in the
    /// ring, if there is one.
    #[inline]
    pub fn call(
        &self,
        slot: usize,
        call: &Call,
        arguments: &[u8],
        ring: Option<&mut ArgumentRing>,
    ) -> RequestId {
        let request = &self.slot(slot).request;
        put(&request.body, arguments);
        let mut more = CALL << KIND_SHIFT;
        if let Some(ring) = ring {
            request.bulk.store(ring.commit(), Ordering::Relaxed);
            more |= BULK;
        }
        if let Some(within) = call.within {
            more |= u64::try_from(within.as_nanos()).unwrap_or(VALUE_MASK).clamp(1, VALUE_MASK);
        }
        if let Some(trace) = &call.trace {
            put(&request.trace, trace);
            more |= TRACED;
        }
        let size = u64::from(call.procedure) << 32 | arguments.len().min(SLOT_BODY_BYTES) as u64;
        self.publish(slot, call.export, size, more)
    }

    /// Asks the server to copy the slot's reply from `offset` on into part `part` of the ring's fetch buffer.
    pub fn fetch(&self, slot: usize, ring: &mut ArgumentRing, part: usize, offset: u64) -> RequestId {
        let what = (ring.index() * FETCH_PARTS + part % FETCH_PARTS) as u64;
        let id = self.publish(slot, what, 0, FETCH << KIND_SHIFT | offset & VALUE_MASK);
        ring.free_again(Free::OnceAnswered(id));
        id
    }

    /// Tells the server to forget what it keeps of a slot's reply.
    pub fn forget(&self, slot: usize) -> RequestId {
        self.publish(slot, 0, 0, FORGET << KIND_SHIFT)
    }

    #[inline]
    fn publish(&self, slot: usize, what: u64, size: u64, more: u64) -> RequestId {
        let slot = slot % SLOT_COUNT;
        let request = &self.slot(slot).request;
        request.what.store(what, Ordering::Relaxed);
        request.size.store(size, Ordering::Relaxed);
        request.more.store(more, Ordering::Relaxed);
        let number = self.last_number(slot) + 1;
        self.numbers[slot].store(number, Ordering::Relaxed);
        let (word, bit) = bit_of(slot);
        let calls = &self.shared().calls;
        calls.ready[word].fetch_xor(bit, Ordering::AcqRel);
        calls.wake.wake();
        RequestId { slot, number }
    }

    fn last_number(&self, slot: usize) -> u64 {
        self.numbers[slot].load(Ordering::Relaxed)
    }

    /// Returns whether the server has taken the slot's last request. If it has not and its process is dead,
    /// the request certainly never ran.
    pub fn is_taken(&self, id: RequestId) -> bool {
        let (word, bit) = bit_of(id.slot);
        let (ready, taken) = (&self.shared().calls.ready[word], &self.shared().taken.bits[word]);
        (ready.load(Ordering::Acquire) ^ taken.load(Ordering::Acquire)) & bit == 0
    }

    /// Withdraws a call with a time limit that the server has not taken. Returns whether it is withdrawn:
    /// then it never runs, and [`Caller::abandon`] gives its slot back. Returns false if the server has taken
    /// it or may not heed withdrawals, or if another thread withdraws it.
    pub fn withdraw(&self, id: RequestId) -> bool {
        let Shared { cancels, taken, .. } = self.shared();
        if taken.heeds.load(Ordering::Acquire) == 0 || self.is_taken(id) {
            return false;
        }
        let (word, bit) = bit_of(id.slot);
        let former = cancels.withdrawn[word].fetch_or(bit, Ordering::AcqRel);
        if former & bit != 0 {
            return false;
        }
        // `Server::is_withdrawn` says why.
        fence(Ordering::SeqCst);
        let is_late = self.is_taken(id);
        if is_late {
            self.end_withdrawal(id.slot);
        }
        !is_late
    }

    /// Lets a slot's next request run: the one that was withdrawn is answered.
    fn end_withdrawal(&self, slot: usize) {
        let (word, bit) = bit_of(slot);
        let withdrawn = &self.shared().cancels.withdrawn[word];
        if withdrawn.load(Ordering::Relaxed) & bit != 0 {
            // The slot's next request is published later, with release ordering.
            withdrawn.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Tells the server that no thread waits for a request any more. The server answers the request
    /// nevertheless.
    pub fn give_up(&self, id: RequestId) {
        // This is done only once: inverting the bit again would take the message back.
        if self.given_up[id.slot].swap(id.number, Ordering::Relaxed) == id.number {
            return;
        }
        let (word, bit) = bit_of(id.slot);
        let calls = &self.shared().calls;
        self.slot(id.slot).reply.given_up.store(id.number, Ordering::Relaxed);
        self.shared().cancels.given_up[word].fetch_xor(bit, Ordering::AcqRel);
        calls.cancels.fetch_add(1, Ordering::AcqRel);
        calls.wake.wake();
    }

    /// Tells the server that no thread waits for a request, but that the request is to go on even if this
    /// process ends.
    pub fn detach(&self, id: RequestId) {
        self.slot(id.slot).request.detached.store(id.number, Ordering::Release);
    }

    /// Marks the next request of a slot as detached: the request is to go on even if this process ends. The
    /// server sees the mark when it finds the request.
    pub fn detach_next(&self, slot: usize) {
        let slot = slot % SLOT_COUNT;
        // The request is published with release ordering.
        self.slot(slot).request.detached.store(self.last_number(slot) + 1, Ordering::Relaxed);
    }

    /// Returns whether the answer has come. If so, this side may read the slot's reply until it makes the
    /// slot's next request.
    #[inline]
    pub fn is_answered(&self, id: RequestId) -> bool {
        self.slot(id.slot).reply.answer.has(id.number)
    }

    /// Returns whether the answer begins in a result ring (in which the server passes what a slot cannot
    /// hold). The answer need not be complete.
    #[inline]
    pub fn has_result_ring(&self, id: RequestId) -> bool {
        self.result_ring_index(id).is_some()
    }

    #[inline]
    fn result_ring_index(&self, id: RequestId) -> Option<usize> {
        let word = self.slot(id.slot).reply.ring.load(Ordering::Acquire);
        let index = (word as usize & 0xff).wrapping_sub(1);
        (index < RING_COUNT && word == ring_word(id.number, index)).then_some(index)
    }

    /// Returns the consumer of the ring in which the answer begins, if it begins in one.
    pub fn result_ring(&self, id: RequestId) -> Option<BulkConsumer> {
        self.result_ring_index(id).map(|index| BulkConsumer::new(&self.memory, Carries::Results, index))
    }

    /// Returns the server's estimate of the bytes that the result ring will carry.
    pub fn expected_bytes(&self, id: RequestId) -> u64 {
        self.slot(id.slot).reply.expected.load(Ordering::Relaxed)
    }

    /// Returns how many bytes the result ring carried of an answer that has come.
    pub fn ring_bytes(&self, id: RequestId) -> u64 {
        self.slot(id.slot).reply.ring_bytes.load(Ordering::Relaxed)
    }

    /// Sleeps until the answer may have come, for at most `most`. Unless `knows_ring` is true, also wakes
    /// when the answer begins in a result ring.
    #[inline]
    pub fn sleep(&self, id: RequestId, knows_ring: bool, most: Duration) {
        let has_work = || !knows_ring && self.has_result_ring(id);
        self.slot(id.slot).reply.answer.sleep(id.number, most, has_work);
    }

    /// Returns whether the server has said that it takes no more calls of an export.
    #[inline]
    pub fn is_drained(&self, export: u64) -> bool {
        self.shared().returns.drains.load(Ordering::Acquire) != 0 && self.has_drained(export)
    }

    #[cold]
    fn has_drained(&self, export: u64) -> bool {
        let returns = &self.shared().returns;
        let count = (returns.drains.load(Ordering::Acquire) as usize).min(MAX_DRAINED);
        let mut drained = returns.drained[..count].iter().map(|word| word.load(Ordering::Relaxed));
        drained.any(|drained| drained == 0 || drained == export)
    }

    /// Returns whether the server was last about to wait on the processor on which this thread runs now, so
    /// that the server can run only when this thread sleeps. Tells the server this thread's processor.
    #[inline]
    pub fn shares_processor(&self) -> bool {
        let Shared { calls, returns, .. } = self.shared();
        calls.processor.note_and_compare(&returns.processor)
    }

    /// Asks the server to wake the service thread (a thread of this process) when the answer comes. Returns
    /// false if the answer may have come already.
    pub fn watch(&self, id: RequestId) -> bool {
        self.slot(id.slot).reply.answer.watch(id.number)
    }

    /// Reads an answer that has come. Returns its status, and its length without the bytes that a ring
    /// carried. Appends the first [`SLOT_BODY_BYTES`] of these bytes to `body`.
    #[inline]
    pub fn answer(&self, id: RequestId, body: &mut Vec<u8>) -> (Status, u64) {
        let reply = &self.slot(id.slot).reply;
        let status = Status::from_code(reply.status.load(Ordering::Relaxed));
        let len = reply.len.load(Ordering::Relaxed);
        append(&reply.body, usize::try_from(len).unwrap_or(usize::MAX), body);
        (status, len)
    }

    /// Returns whether an answer that has come says that a part was copied.
    pub fn is_part(&self, id: RequestId) -> bool {
        Status::from_code(self.slot(id.slot).reply.status.load(Ordering::Relaxed)) == Status::Part
    }

    /// Waits for a free ring for arguments, for at most `most`. Returns the lowest free ring, so that few
    /// rings are ever touched.
    pub fn argument_ring(self: &Arc<Self>, most: Duration) -> Option<ArgumentRing> {
        let is_free = |ring: &IdleRing| match ring.free {
            Free::Now => true,
            Free::OnceEmptied => ring.producer.is_over(),
            Free::OnceAnswered(id) => self.is_answered(id) || self.last_number(id.slot) != id.number,
        };
        let none = |rings: &mut Rings| !rings.idle.iter().any(is_free);
        let mut rings = lock(&self.rings);
        rings.waiting += 1;
        let waited = self.returned.wait_timeout_while(rings, most, none);
        rings = waited.unwrap_or_else(PoisonError::into_inner).0;
        rings.waiting -= 1;
        let free = rings.idle.iter().enumerate().filter(|(_, ring)| is_free(ring));
        let (place, _) = free.min_by_key(|(_, ring)| ring.producer.index())?;
        let mut ring = rings.idle.swap_remove(place);
        ring.producer.begin();
        ring.free = Free::Now;
        Some(ArgumentRing { caller: self.clone(), ring: Some(ring), held: false })
    }

    /// Announces that the service thread is about to sleep. The thread must look for work once more before it
    /// calls [`Caller::sleep_until_woken`].
    pub fn announce_sleep(&self) -> SleepIntent {
        self.service_wake.announce_sleep(&self.shared().returns.wake)
    }

    /// Lets the service thread sleep until a watched request is answered, for at most `most`. Without `most`,
    /// [`Caller::wake`] wakes it too.
    pub fn sleep_until_woken(&self, intent: SleepIntent, most: Option<Duration>) {
        let wake = &self.shared().returns.wake;
        match most {
            Some(most) => wake.sleep(most),
            None => wake.sleep_until_private_wake(&self.service_wake, intent),
        }
    }

    /// Wakes the service thread, even if a hostile server has tampered with the words at which it sleeps.
    pub fn wake(&self) {
        self.service_wake.wake(&self.shared().returns.wake);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RequestId {
    /// Returns the slot.
    pub fn slot(self) -> usize {
        self.slot
    }

    /// Returns the number of the request among those of its slot.
    pub fn number(self) -> u64 {
        self.number
    }
}

impl ArgumentRing {
    fn producer(&self) -> &BulkProducer {
        &self.ring.as_ref().expect("the ring is there until this is dropped").producer
    }

    fn index(&self) -> usize {
        self.producer().index()
    }

    fn free_again(&mut self, when: Free) {
        self.ring.iter_mut().for_each(|ring| ring.free = when);
    }

    /// Returns the word by which a call describes the arguments in the ring. From now on the server may need
    /// them.
    fn commit(&mut self) -> u64 {
        self.free_again(Free::OnceEmptied);
        (self.index() as u64) << RING_SHIFT | self.producer().len()
    }

    /// Puts bytes into the ring, as many as there is room for. Returns how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let Some(IdleRing { producer, .. }) = &mut self.ring else { return 0 };
        let calls = &self.caller.shared().calls;
        let mut taken = 0;
        for part in bytes.chunks(PART_BYTES) {
            let len = producer.put(part);
            calls.parts.fetch_add(1, Ordering::AcqRel);
            // A server that needs this processor can run only when this thread sleeps, and is woken before
            // that: by the request, or by `sleep`.
            if !self.caller.shares_processor() {
                calls.wake.wake();
            }
            taken += len;
            if len < part.len() {
                break;
            }
        }
        taken
    }

    /// Holds the ring: its content stays until this value is dropped, so that it can be copied. Returns false
    /// if too many rings are held.
    pub fn hold(&mut self) -> bool {
        let one_more = |held| (held < MAX_HELD_RINGS).then_some(held + 1);
        let held = &self.caller.held;
        self.held = self.held || held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok();
        self.held
    }

    /// Stops holding the ring.
    pub fn let_go(&mut self) {
        if std::mem::take(&mut self.held) {
            self.caller.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether the ring is held, so that its content stays, whatever the server does.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Returns how many bytes were put into the ring.
    pub fn filled(&self) -> usize {
        self.producer().len() as usize
    }

    /// Returns how many more bytes the ring can hold.
    pub fn rest(&self) -> usize {
        (RING_PARTS * PART_BYTES).saturating_sub(self.filled())
    }

    /// Appends everything that was put into the ring to `into`. The ring must be held.
    pub fn copy(&self, into: &mut Vec<u8>) {
        self.producer().copy(into);
    }

    /// Notes that the answer to a fetch has come, so that the ring is free once this value is dropped.
    pub fn fetched(&mut self) {
        self.free_again(Free::Now);
    }

    /// Returns whether there is room for a byte.
    pub fn has_room(&self) -> bool {
        self.producer().has_room()
    }

    /// Sleeps until there may be room, for at most `most`. Wakes the server before.
    pub fn sleep(&self, most: Duration) {
        self.caller.shared().calls.wake.wake();
        self.producer().sleep(most);
    }

    /// Appends the first `len` bytes of a fetched part to `into`.
    pub fn drain(&self, part: usize, len: usize, into: &mut Vec<u8>) {
        append(fetched(&self.caller.memory, self.index(), part), len, into);
    }
}

impl Drop for ArgumentRing {
    fn drop(&mut self) {
        self.let_go();
        let mut rings = lock(&self.caller.rings);
        rings.idle.extend(self.ring.take());
        let is_awaited = rings.waiting > 0;
        drop(rings);
        if is_awaited {
            self.caller.returned.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequestCursor, Server};

    /// An answer word has room for 30 bits of a number.
    const ANSWER_NUMBERS: u64 = 1 << 30;

    fn halves() -> (Caller, Server, RequestCursor) {
        let memory = CallMemory::alone();
        (Caller::new(memory.clone()), Server::new(memory), RequestCursor::new())
    }

    #[test]
    fn a_result_in_a_ring_is_not_taken_for_that_of_a_call_a_billion_later() {
        let (caller, server, mut cursor) = halves();
        let call = Call { export: 7, procedure: 1, within: None, trace: None };
        let id = caller.call(caller.claim().unwrap(), &call, &[], None);
        let (slot, number) = server.take(&mut cursor).unwrap();
        let mut producer = server.producers().into_iter().next().unwrap();
        producer.begin();
        server.start_result(slot, number, &producer, 9);
        producer.put(&[1; 9]);
        server.end_result(slot, producer.len());
        server.answer(slot, number, Status::Result, &[]);
        assert!(caller.has_result_ring(id) && caller.is_answered(id));
        caller.release(slot);
        caller.give_up(id);
        // (All those between were short.)
        caller.numbers[slot].store(ANSWER_NUMBERS, Ordering::Relaxed);
        cursor.skip_to(slot, ANSWER_NUMBERS);
        let id = caller.call(caller.claim().unwrap(), &call, &[], None);
        let (slot, number) = server.take(&mut cursor).unwrap();
        server.answer(slot, number, Status::Result, &[2; 9]);
        assert!(caller.is_answered(id) && !caller.has_result_ring(id));
        // Nor is it the one that was given up.
        assert_eq!(server.given_up(&mut cursor), None);
        caller.give_up(id);
        assert_eq!(server.given_up(&mut cursor), Some(slot));
    }

    #[test]
    fn a_sleeping_caller_is_woken_early_for_a_long_result_only() {
        let (caller, server, mut cursor) = halves();
        let call = Call { export: 7, procedure: 1, within: None, trace: None };
        let id = caller.call(caller.claim().unwrap(), &call, &[], None);
        let (slot, number) = server.take(&mut cursor).unwrap();
        let producer = server.producers().into_iter().next().unwrap();
        let word = &caller.slot(slot).reply.answer;
        for (expected, sleeps) in
            [(0, true), (2 * PART_BYTES as u64, true), (2 * PART_BYTES as u64 + 1, false)]
        {
            caller.sleep(id, true, Duration::ZERO);
            assert!(word.has_sleeper());
            server.start_result(slot, number, &producer, expected);
            assert_eq!(word.has_sleeper(), sleeps, "{expected} bytes");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn a_server_that_needs_the_callers_processor_is_not_woken_before_the_caller_sleeps() {
        let (caller, server, mut cursor) = halves();
        let caller = Arc::new(caller);
        let wake = &caller.shared().calls.wake;
        let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
        server.announce_sleep();
        ring.put(&[1]);
        assert!(wake.is_awake(), "the server may have a processor of its own");
        crate::processor::bind_this_thread();
        assert!(server.has_parts(&mut cursor));
        let _ = server.shares_processor();
        server.announce_sleep();
        ring.put(&[1]);
        assert!(!wake.is_awake() && server.has_parts(&mut cursor));
        ring.sleep(Duration::ZERO);
        assert!(wake.is_awake());
        server.announce_sleep();
        let call = Call { export: 7, procedure: 1, within: None, trace: None };
        caller.call(caller.claim().unwrap(), &call, &[], Some(&mut ring));
        assert!(wake.is_awake());
    }

    #[test]
    fn a_thread_that_waits_for_a_ring_gets_the_one_that_is_returned() {
        let caller = Arc::new(halves().0);
        let mut rings: Vec<_> =
            (0..RING_COUNT).map(|_| caller.argument_ring(Duration::ZERO).unwrap()).collect();
        assert!(caller.argument_ring(Duration::ZERO).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| caller.argument_ring(Duration::MAX).unwrap().index());
            while lock(&caller.rings).waiting == 0 {
                std::thread::yield_now();
            }
            let returned = rings.remove(0);
            let index = returned.index();
            drop(returned);
            assert_eq!(waiting.join().unwrap(), index);
        });
        assert_eq!(lock(&caller.rings).waiting, 0);
    }

    #[test]
    fn wake_ups_are_counted_so_that_none_ends_a_later_sleep() {
        let (caller, server, _) = halves();
        for count in 0..3 {
            assert_eq!((caller.announce_sleep().0, server.announce_sleep().0), (count, count));
            caller.wake();
            server.wake();
        }
    }
}
