//! Who receives, who executes, who rests. Counting only: the server acts on it.
//!
//! (tests/crew.rs includes this file, and gives it loom's atomics through `super::sync`.)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::sync::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::env::{Event, Time};

/// Where a worker rests, and what it does, as the crew sees it.
pub(crate) struct Seat {
    event: Arc<dyn Event>,
    called: AtomicBool,
    /// What its worker does: one of the constants below. Read and written under the crew's lock.
    does: AtomicU8,
    /// It was in the same call at the watchdog's last look.
    seen: AtomicBool,
    /// The number of the host whose call its worker executes; 0 if the call came from no host.
    host: AtomicU64,
}

/// It receives, rests, or is between the two.
const NOTHING: u8 = 0;
/// It executes, and counts as a worker.
const EXECUTES: u8 = 1;
/// It executes a call that may wait for something, and does not count.
const IS_PARKED: u8 = 2;
/// Added to one of these: it waits in a call of its own.
const WAITS: u8 = 4;

/// One in `RESERVE` of a server's threads is kept for hosts whose waiting calls hold less than one in `HOSTS`
/// of those. A server with fewer than `FEW_THREADS` threads, besides the one that receives, keeps none.
const RESERVE: usize = 8;
const HOSTS: usize = 16;
const FEW_THREADS: usize = 63;

/// How long a worker rests before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Why a worker rests no longer.
pub(crate) enum Rested {
    /// It is to receive.
    Called,
    /// Nobody has needed it.
    Idle,
    /// Nobody ever will.
    Over,
}

impl Seat {
    pub(crate) fn new(event: Arc<dyn Event>) -> Arc<Seat> {
        let (called, does, seen) = (AtomicBool::new(false), AtomicU8::new(NOTHING), AtomicBool::new(false));
        Arc::new(Seat { event, called, does, seen, host: AtomicU64::new(0) })
    }

    pub(crate) fn wake(&self) {
        self.event.set();
    }

    /// Calls the worker to receive.
    pub(crate) fn call(&self) {
        self.called.store(true, Ordering::SeqCst);
        self.event.set();
    }

    /// Rests until called, or `over`, or nobody has called for long.
    pub(crate) fn rest(&self, over: &dyn Fn() -> bool) -> Rested {
        loop {
            if self.called.swap(false, Ordering::SeqCst) {
                return Rested::Called;
            }
            if over() {
                return Rested::Over;
            }
            if !self.event.wait(Some(IDLE)) && !self.called.load(Ordering::SeqCst) {
                return Rested::Idle;
            }
        }
    }
}

/// The threads of a server, over all its carriers. For each carrier one thread that receives is not counted.
pub(crate) struct Threads {
    most: usize,
    taken: AtomicUsize,
}

impl Threads {
    /// At most `most` threads, the one that receives datagrams included.
    pub(crate) fn new(most: usize) -> Arc<Threads> {
        Arc::new(Threads { most: most.max(2) - 1, taken: AtomicUsize::new(0) })
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.most + 1
    }

    fn take(&self) -> bool {
        let more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    fn are_taken(&self) -> bool {
        self.left() == 0
    }

    fn left(&self) -> usize {
        self.most.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Returns how many threads are kept for hosts whose calls hold few, and how many a host's calls may hold
    /// to count as few.
    fn reserve(&self) -> (usize, usize) {
        let reserve = if self.most < FEW_THREADS { 0 } else { self.most / RESERVE };
        (reserve, (reserve / HOSTS).max(1))
    }
}

/// The part of a server's threads that a crew may have, which it shares with other crews.
pub(crate) trait Quota: Send + Sync {
    /// Takes one more, or none (false).
    fn take(&self) -> bool;
    /// Takes one more even if there is none.
    fn overdraw(&self);
    fn give_back(&self);
    /// Whether there is none left.
    fn is_taken(&self) -> bool;
}

/// The workers of a server, or of one of its callers through shared memory.
pub(crate) struct Crew {
    /// How many may execute, not counting a receiver that executes something quick.
    limit: usize,
    /// The threads of the server, and how many of them are here.
    budget: Arc<Threads>,
    /// The part of them that may be here, if not all.
    quota: Option<Arc<dyn Quota>>,
    threads: usize,
    /// Those at the socket, or on their way to it.
    receiving: usize,
    /// Those that execute and count as workers.
    executing: usize,
    /// Those that execute and do not: what they execute is marked as blocking, or takes long.
    parked: usize,
    /// For each host, how many threads its waiting calls hold: calls that are parked, or that wait in calls
    /// of their own.
    held: HashMap<u64, usize>,
    seats: Vec<Arc<Seat>>,
    resting: Vec<Arc<Seat>>,
    /// Counts calls that a lone receiver has executed: the sentinel sees by it that things move.
    pub(crate) progress: u64,
    /// The sentinel is up.
    pub(crate) guarded: bool,
    /// Two receive while the sentinel sleeps.
    in_pairs: bool,
    /// Quick calls that came to one of two, and since when: whether they are worth a sentinel.
    quick: u32,
    since: Time,
}

/// What is known of how long a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Shorter than it takes to wake another thread: the receiver may execute it.
    Quick,
    /// Nothing in particular.
    Any,
    /// It waits for something, by its own account.
    Blocking,
}

/// So many quick calls within that time are worth a sentinel.
const BRISK: (u32, Duration) = (32, Duration::from_micros(1600));

/// Who is to receive next.
pub(crate) enum Relief {
    /// One who rested.
    Rested(Arc<Seat>),
    /// A new thread, counted already.
    New,
}

/// What a receiver does with a call.
pub(crate) enum Plan {
    /// Execute it; if there is a relief, that one receives meanwhile.
    Execute(Option<Relief>),
    /// Execute it as the only receiver, guarded by the sentinel. True: wake the sentinel.
    Guarded(bool),
    /// Leave it to others.
    Queue,
    /// Refuse it: it needs a thread, there can be no more, and all that there are wait in calls of their own.
    Refuse,
}

impl Crew {
    pub(crate) fn new(limit: usize, budget: Arc<Threads>) -> Crew {
        Crew {
            limit: limit.max(1),
            budget,
            quota: None,
            threads: 0,
            receiving: 0,
            executing: 0,
            parked: 0,
            held: HashMap::new(),
            seats: Vec::new(),
            resting: Vec::new(),
            progress: 0,
            guarded: false,
            in_pairs: false,
            quick: 0,
            since: Time::default(),
        }
    }

    /// From now on two receive while calls are rare, so that one of them may execute whatever comes.
    pub(crate) fn in_pairs(mut self) -> Crew {
        self.in_pairs = true;
        self
    }

    /// Limits the crew to the threads that a quota leaves to it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn within(mut self, quota: Arc<dyn Quota>) -> Crew {
        self.quota = Some(quota);
        self
    }

    /// The first worker was made.
    pub(crate) fn born(&mut self) {
        self.threads += 1;
        self.receiving += 1;
    }

    /// A worker's thread runs.
    pub(crate) fn join(&mut self, seat: &Arc<Seat>) {
        self.seats.push(seat.clone());
    }

    /// A worker could not be made: the sentinel has one made later, if nobody receives. True: wake it.
    pub(crate) fn lost(&mut self) -> bool {
        self.receiving -= 1;
        self.end_thread();
        !std::mem::replace(&mut self.guarded, true)
    }

    /// One who received is gone.
    pub(crate) fn leave(&mut self, seat: &Arc<Seat>) {
        self.receiving -= 1;
        self.forget(seat);
    }

    /// One who has rested for long ends, unless it was called meanwhile.
    pub(crate) fn retire(&mut self, seat: &Arc<Seat>) -> bool {
        let Some(place) = self.resting.iter().position(|resting| Arc::ptr_eq(resting, seat)) else {
            return false;
        };
        self.resting.remove(place);
        self.forget(seat);
        true
    }

    fn forget(&mut self, seat: &Arc<Seat>) {
        self.seats.retain(|other| !Arc::ptr_eq(other, seat));
        self.end_thread();
    }

    fn end_thread(&mut self) {
        self.threads -= 1;
        if self.threads > 0 {
            self.budget.give_back();
            self.quota.iter().for_each(|quota| quota.give_back());
        }
    }

    /// Takes one thread more, if there may be one.
    fn take_thread(&self) -> bool {
        if !self.quota.as_ref().is_none_or(|quota| quota.take()) {
            return false;
        }
        let taken = self.budget.take();
        if !taken {
            self.quota.iter().for_each(|quota| quota.give_back());
        }
        taken
    }

    pub(crate) fn receiving(&self) -> usize {
        self.receiving
    }

    /// How many execute, not counting those that wait in calls of their own, and how many threads there are.
    pub(crate) fn executing(&self) -> (usize, usize) {
        (self.executing + self.parked, self.threads)
    }

    pub(crate) fn nobody_executes(&self) -> bool {
        self.executing + self.parked == 0
    }

    pub(crate) fn resting(&self) -> Vec<Arc<Seat>> {
        self.resting.clone()
    }

    /// Says what a receiving thread is to do with a call of the host of that number (0: of no host), at about
    /// `now`.
    #[inline(always)]
    pub(crate) fn plan(&mut self, seat: &Seat, host: u64, pace: Pace, now: Time) -> Plan {
        seat.host.store(host, Ordering::Relaxed);
        if pace == Pace::Quick && self.receiving == 1 {
            self.guard(seat)
        } else {
            self.plan_beside(seat, host, pace, now)
        }
    }

    /// Says how a receiving thread is to run code of the user's that belongs to no call. The thread runs it
    /// even if no more calls may be executed, or its host has its share, because no other thread could run
    /// it.
    pub(crate) fn plan_errands(&mut self, seat: &Seat) -> Plan {
        seat.host.store(0, Ordering::Relaxed);
        if self.receiving == 1 {
            return self.guard(seat);
        }
        self.leave_socket(seat, EXECUTES);
        Plan::Execute(None)
    }

    #[inline(always)]
    fn guard(&mut self, seat: &Seat) -> Plan {
        self.leave_socket(seat, EXECUTES);
        self.progress = self.progress.wrapping_add(1);
        Plan::Guarded(!std::mem::replace(&mut self.guarded, true))
    }

    /// The plan for a call that is not quick, or that is executed while other threads receive.
    #[inline(never)]
    fn plan_beside(&mut self, seat: &Seat, host: u64, pace: Pace, now: Time) -> Plan {
        let others = self.receiving - 1;
        if pace == Pace::Quick && !self.guarded && self.is_brisk(now) {
            return self.guard(seat);
        }
        if !self.has_room(pace, 1) {
            return Plan::Queue;
        }
        if pace != Pace::Quick && self.has_share(host) {
            return if self.all_wait() { Plan::Refuse } else { Plan::Queue };
        }
        let does = if pace == Pace::Blocking { IS_PARKED } else { EXECUTES };
        if others > 0 {
            self.leave_socket(seat, does);
            return Plan::Execute(None);
        }
        match self.relieve() {
            None if self.is_stuck() => Plan::Refuse,
            None => Plan::Queue,
            relief => {
                self.leave_socket(seat, does);
                Plan::Execute(relief)
            }
        }
    }

    /// Counts a quick call that came to one of two. Whether they come so fast that it is cheaper to look after one
    /// receiver than to change between two.
    #[cold]
    #[inline(never)]
    fn is_brisk(&mut self, now: Time) -> bool {
        self.quick += 1;
        if self.quick < BRISK.0 || !self.in_pairs {
            return false;
        }
        self.quick = 0;
        now.since(std::mem::replace(&mut self.since, now)) < BRISK.1
    }

    #[inline(always)]
    fn leave_socket(&mut self, seat: &Seat, does: u8) {
        self.receiving -= 1;
        *self.count(does) += 1;
        if does == IS_PARKED {
            self.hold(seat);
        }
        seat.does.store(does, Ordering::Relaxed);
        seat.seen.store(false, Ordering::Relaxed);
    }

    /// Counts a thread as held by a call that waits.
    #[cold]
    fn hold(&mut self, seat: &Seat) {
        *self.held.entry(seat.host.load(Ordering::Relaxed)).or_default() += 1;
    }

    /// Counts a thread as held no longer, because its call waits no more.
    #[cold]
    fn let_go(&mut self, seat: &Seat) {
        let host = seat.host.load(Ordering::Relaxed);
        if let Some(held) = self.held.get_mut(&host) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&host);
            }
        }
    }

    /// Whether few threads are left, and waiting calls of that host hold its share of them already.
    fn has_share(&self, host: u64) -> bool {
        let (reserve, share) = self.budget.reserve();
        reserve > 0
            && self.budget.left() + self.resting.len() <= reserve
            && self.held.get(&host).is_some_and(|held| *held >= share)
    }

    /// Whether a queued call may be taken out as far as its host's share is concerned: to be executed, or to
    /// be refused because all threads wait.
    pub(crate) fn may_begin(&self, host: u64, pace: Pace) -> bool {
        pace == Pace::Quick || !self.has_share(host) || self.all_wait()
    }

    /// Whether all threads, except one that receives, wait in calls of their own.
    fn all_wait(&self) -> bool {
        self.nobody_executes() && self.receiving <= 1
    }

    /// How many do that.
    #[inline]
    fn count(&mut self, does: u8) -> &mut usize {
        if does == EXECUTES { &mut self.executing } else { &mut self.parked }
    }

    /// Somebody more to receive, if there can be.
    fn relieve(&mut self) -> Option<Relief> {
        if let Some(seat) = self.resting.pop() {
            self.receiving += 1;
            return Some(Relief::Rested(seat));
        }
        // One is not counted.
        (self.threads == 0 || self.take_thread()).then(|| self.one_more())
    }

    fn one_more(&mut self) -> Relief {
        self.threads += 1;
        self.receiving += 1;
        Relief::New
    }

    /// Whether nobody more can receive or execute than do.
    pub(crate) fn is_full(&self) -> bool {
        self.resting.is_empty()
            && (self.budget.are_taken() || self.quota.as_ref().is_some_and(|quota| quota.is_taken()))
    }

    /// Whether there can be no more threads, and all that there are, except one that receives, wait in calls
    /// of their own. They may wait for the very call that would need another thread.
    pub(crate) fn is_stuck(&self) -> bool {
        self.all_wait() && self.is_full()
    }

    /// Whether nobody would receive if one who executes began to wait.
    pub(crate) fn is_last(&self) -> bool {
        self.receiving == 0 && self.is_full()
    }

    /// The sentinel is to sleep: who is to receive besides.
    pub(crate) fn unguard(&mut self) -> Option<Relief> {
        self.guarded = false;
        if self.receiving < self.enough() { self.relieve() } else { None }
    }

    /// How many are to receive.
    #[inline]
    fn enough(&self) -> usize {
        if self.guarded || !self.in_pairs { 1 } else { 2 }
    }

    /// Somebody to receive if nobody does.
    pub(crate) fn relieve_if_alone(&mut self) -> Option<Relief> {
        if self.receiving > 0 { None } else { self.relieve() }
    }

    /// Whether so many more such calls may be executed, as far as workers are counted.
    pub(crate) fn has_room(&self, pace: Pace, more: usize) -> bool {
        pace == Pace::Blocking || self.executing + more <= self.limit
    }

    /// Somebody to execute what is queued, such a call first, if there may be.
    pub(crate) fn relieve_for_queue(&mut self, pace: Pace) -> Option<Relief> {
        if self.has_room(pace, 1) { self.relieve() } else { None }
    }

    /// Stops counting as workers the threads that were in the same call at the last look, too: perhaps they
    /// wait.
    pub(crate) fn park_long(&mut self) {
        let seats = std::mem::take(&mut self.seats);
        for seat in &seats {
            if seat.does.load(Ordering::Relaxed) == EXECUTES && seat.seen.swap(true, Ordering::Relaxed) {
                seat.does.store(IS_PARKED, Ordering::Relaxed);
                self.executing -= 1;
                self.parked += 1;
                self.hold(seat);
            }
        }
        self.seats = seats;
    }

    /// One who executed is at the socket again.
    #[inline]
    pub(crate) fn done(&mut self, seat: &Seat) {
        let does = seat.does.load(Ordering::Relaxed);
        debug_assert!(does == EXECUTES || does == IS_PARKED, "a thread that is done had left the socket");
        *self.count(does) -= 1;
        if does == IS_PARKED {
            self.let_go(seat);
        }
        seat.does.store(NOTHING, Ordering::Relaxed);
        self.receiving += 1;
    }

    /// True: others receive, so rest.
    pub(crate) fn rest(&mut self, seat: &Arc<Seat>) -> bool {
        self.receiving > 1 && self.receiving > self.enough() && self.make_way(seat)
    }

    /// Has a thread rest that received something else than a call, if another thread receives. Returns
    /// whether it is to rest.
    #[inline(always)]
    pub(crate) fn make_way(&mut self, seat: &Arc<Seat>) -> bool {
        self.receiving > 1 && self.rest_beside(seat)
    }

    #[cold]
    fn rest_beside(&mut self, seat: &Arc<Seat>) -> bool {
        self.receiving -= 1;
        self.resting.push(seat.clone());
        true
    }

    /// A thread that executes begins to wait in a call of its own. If none receives now, the caller has to
    /// find one that does. Returns false if the thread waits already.
    pub(crate) fn step_aside(&mut self, seat: &Seat) -> bool {
        let does = seat.does.load(Ordering::Relaxed);
        if does == NOTHING || does >= WAITS {
            return false;
        }
        *self.count(does) -= 1;
        if does == EXECUTES {
            self.hold(seat);
        }
        seat.does.store(does + WAITS, Ordering::Relaxed);
        true
    }

    /// The thread waits no longer.
    pub(crate) fn step_back(&mut self, seat: &Seat) {
        let does = seat.does.load(Ordering::Relaxed) - WAITS;
        *self.count(does) += 1;
        if does == EXECUTES {
            self.let_go(seat);
        }
        seat.does.store(does, Ordering::Relaxed);
    }

    /// Returns a thread to receive if none does, even if that makes one thread more than there may be: of two
    /// threads that began to wait at the same time, perhaps neither saw that it was the last.
    pub(crate) fn relieve_waiting(&mut self) -> Option<Relief> {
        if self.receiving > 0 {
            return None;
        }
        let relief = self.relieve();
        relief.or_else(|| {
            self.budget.taken.fetch_add(1, Ordering::Relaxed);
            self.quota.iter().for_each(|quota| quota.overdraw());
            Some(self.one_more())
        })
    }
}
