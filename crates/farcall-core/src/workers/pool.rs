//! Which threads of a carrier receive, which execute and which rest. It only counts: the carrier acts on it.
//!
//! (tests/workers.rs includes this file, and gives it loom's atomics through `super::sync`.)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::sync::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::env::{Event, Time};

/// A worker thread, as its pool knows it. The thread sleeps on `event` while it rests.
pub struct Worker {
    event: Arc<dyn Event>,
    /// The thread is to receive. `event`, which is set after it and waited for before it is read, orders the
    /// accesses.
    called: AtomicBool,
    /// What the thread does: one of the constants below. Read and written under the pool's lock.
    does: AtomicU8,
    /// Odd while the thread executes a call. Written by that thread alone.
    turn: AtomicU64,
    /// What `turn` was when the watchdog last looked for long calls.
    seen: AtomicU64,
    /// The number of the host whose call the thread executes; 0 if the call came from no host.
    host: AtomicU64,
}

/// The thread receives, rests, or changes from one to the other.
const NOTHING: u8 = 0;
/// The thread executes, and counts as a worker.
const EXECUTES: u8 = 1;
/// The thread executes a call that may wait for something, and does not count as a worker.
const IS_PARKED: u8 = 2;
/// Added to `EXECUTES` or `IS_PARKED`: the thread waits in a call of its own.
const WAITS: u8 = 4;

/// One in `RESERVED_ONE_IN` of a server's threads is kept for hosts whose waiting calls hold less than one in
/// `HOST_SHARE_ONE_IN` of those. A server with fewer than `MIN_THREADS_FOR_RESERVE` threads, besides the one
/// that receives, keeps none.
const RESERVED_ONE_IN: usize = 8;
const HOST_SHARE_ONE_IN: usize = 16;
const MIN_THREADS_FOR_RESERVE: usize = 63;

/// How long a thread rests before it ends.
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// Why a thread no longer rests.
pub enum Rested {
    /// It is to receive.
    Called,
    /// Nobody has called it for ten seconds.
    Idle,
    /// Its carrier has stopped.
    Over,
}

impl Worker {
    pub fn new(event: Arc<dyn Event>) -> Arc<Worker> {
        let (called, does) = (AtomicBool::new(false), AtomicU8::new(NOTHING));
        let [turn, seen, host] = [(); 3].map(|()| AtomicU64::new(0));
        Arc::new(Worker { event, called, does, turn, seen, host })
    }

    /// Notes that the thread begins a call. A thread does that by itself if it executes several calls in a row
    /// without asking its pool.
    #[inline(always)]
    pub fn begin_call(&self) {
        self.turn.store((self.turn.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed);
    }

    /// Notes that the thread executes no call, until it begins the next.
    #[inline(always)]
    pub fn end_call(&self) {
        self.turn.store((self.turn.load(Ordering::Relaxed) + 1) & !1, Ordering::Relaxed);
    }

    /// Whether the watchdog has found the thread in the same call at two looks, since it received.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.does.load(Ordering::Relaxed) & !WAITS == IS_PARKED
    }

    /// Whether the thread executes a call that does not wait in a call of its own.
    fn computes(&self) -> bool {
        let does = self.does.load(Ordering::Relaxed);
        does != NOTHING && does < WAITS && self.turn.load(Ordering::Relaxed) % 2 == 1
    }

    /// Has a resting thread look whether its carrier has stopped.
    pub fn wake(&self) {
        self.event.set();
    }

    /// Calls the resting thread to receive.
    pub fn call(&self) {
        self.called.store(true, Ordering::Relaxed);
        self.event.set();
    }

    /// Rests until the thread is called, or `over` returns true, or nobody has called for ten seconds.
    pub fn rest(&self, over: &dyn Fn() -> bool) -> Rested {
        loop {
            if self.called.swap(false, Ordering::Relaxed) {
                return Rested::Called;
            }
            if over() {
                return Rested::Over;
            }
            if !self.event.wait(Some(IDLE)) && !self.called.load(Ordering::Relaxed) {
                return Rested::Idle;
            }
        }
    }
}

/// The threads that a server may have, over all its carriers. Each carrier has one receiving thread that is
/// not counted.
pub struct Threads {
    max: usize,
    taken: AtomicUsize,
    /// How many more threads may wait in calls of their own, if such threads are not part of `max`; and how
    /// many do.
    max_waiting: Option<usize>,
    waiting: AtomicUsize,
}

impl Threads {
    /// A budget of at most `max` threads, which include one that receives.
    pub fn new(max: usize) -> Arc<Threads> {
        Threads::make(max.max(2) - 1, None)
    }

    /// A budget of at most `max` threads, besides those that wait in calls of their own. Of these there may be
    /// `max_waiting`.
    pub fn besides_waiting(max: usize, max_waiting: usize) -> Arc<Threads> {
        Threads::make(max.max(1), Some(max_waiting))
    }

    fn make(max: usize, max_waiting: Option<usize>) -> Arc<Threads> {
        let [taken, waiting] = [(); 2].map(|()| AtomicUsize::new(0));
        Arc::new(Threads { max, taken, max_waiting, waiting })
    }

    /// How many threads there may be.
    pub fn max(&self) -> usize {
        self.max.saturating_add(1)
    }

    /// Whether more than half of the threads are taken.
    #[inline]
    pub fn is_half_taken(&self) -> bool {
        self.left() < self.max / 2
    }

    /// How many threads there may be, with those that wait besides.
    #[inline]
    fn allowed(&self) -> usize {
        self.max.saturating_add(self.waiting.load(Ordering::Relaxed))
    }

    /// Whether one more thread may wait, of those that are not part of the budget.
    pub(super) fn may_wait(&self) -> Result<(), MayNotWait> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if self.max_waiting.is_none_or(|max| waiting < max) { Ok(()) } else { Err(MayNotWait::Enough) }
    }

    /// Counts one more thread that waits, if it is not part of the budget: when `limited`, only if one more
    /// may.
    pub(super) fn begin_wait(&self, limited: bool) -> Result<(), MayNotWait> {
        let Some(max) = self.max_waiting else { return Ok(()) };
        let more = |waiting| (!limited || waiting < max).then_some(waiting + 1);
        let begun = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.map_or(Err(MayNotWait::Enough), |_| Ok(()))
    }

    pub(super) fn end_wait(&self) {
        if self.max_waiting.is_some() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self) -> bool {
        let allowed = self.allowed();
        let more = |taken| (taken < allowed).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes one thread even if there is none left.
    fn overdraw(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    fn left(&self) -> usize {
        self.allowed().saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Returns how many threads are kept for hosts whose calls hold few, and how many a host's calls may hold
    /// to count as few.
    fn reserve(&self) -> (usize, usize) {
        let reserve = if self.max < MIN_THREADS_FOR_RESERVE { 0 } else { self.max / RESERVED_ONE_IN };
        (reserve, (reserve / HOST_SHARE_ONE_IN).max(1))
    }
}

/// The part of a server's threads that one pool may have, beside the budget that all its pools share.
pub trait Quota: Send + Sync {
    /// Takes one more thread. Returns false if there is none left.
    fn take(&self) -> bool;
    /// Takes one more thread even if there is none left.
    fn overdraw(&self);
    fn give_back(&self);
    /// Whether there is none left.
    fn is_taken(&self) -> bool;
}

/// The worker threads of one carrier.
pub struct Pool {
    /// How many may execute, not counting a receiver that executes something quick.
    limit: usize,
    staff: Staff,
    /// Threads that receive, or are about to.
    receiving: usize,
    /// Threads that execute, and count as workers.
    executing: usize,
    /// Threads that execute and do not count, because what they execute is marked as blocking or takes long.
    parked: usize,
    /// For each host, how many threads its waiting calls hold: calls that are parked, or that wait in calls
    /// of their own.
    held: HashMap<u64, usize>,
    workers: Vec<Arc<Worker>>,
    resting: Vec<Arc<Worker>>,
    /// Counts calls that a lone receiver has executed. The watchdog sees by it that things move.
    progress: u64,
    /// The watchdog looks after a lone receiver.
    guarded: bool,
    /// Two threads receive while the watchdog sleeps.
    in_pairs: bool,
    /// They do also while it is awake.
    always_in_pairs: bool,
    rate: Rate,
}

/// How many threads a pool has, and of how many it may have more.
struct Staff {
    count: usize,
    /// The threads of the whole server.
    budget: Arc<Threads>,
    /// The part of them that this pool may have, if not all.
    quota: Option<Arc<dyn Quota>>,
}

/// Quick calls that came to one of two receivers, counted since some moment.
struct Rate {
    calls: u32,
    since: Time,
}

/// What is known of how long a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Shorter than it takes to wake another thread: the receiver may execute it.
    Quick,
    /// Nothing in particular.
    Any,
    /// It waits for something, by its own account.
    Blocking,
}

/// So many quick calls within that time are worth a watchdog.
const BRISK: (u32, Duration) = (32, Duration::from_micros(1600));

/// The thread that receives next.
pub enum Replacement {
    /// One that rested.
    Rested(Arc<Worker>),
    /// A thread to be started. It is counted already.
    New,
}

/// Why a thread may not wait in a call of its own.
#[derive(Debug)]
pub enum MayNotWait {
    /// It is the last one that could receive, of so many.
    Last(usize),
    /// As many threads wait already as may.
    Enough,
}

/// What a receiving thread does with a call.
pub enum Plan {
    /// Execute it. If there is a replacement, that thread receives meanwhile.
    Execute(Option<Replacement>),
    /// Execute it as the only receiver, guarded by the watchdog. True: wake the watchdog.
    Guarded(bool),
    /// Leave it to others.
    Queue,
    /// Refuse it: it needs a thread, there can be no more, and all that there are wait in calls of their own.
    Refuse,
}

impl Pool {
    pub fn new(limit: usize, budget: Arc<Threads>) -> Pool {
        Pool {
            limit: limit.max(1),
            staff: Staff { count: 0, budget, quota: None },
            receiving: 0,
            executing: 0,
            parked: 0,
            held: HashMap::new(),
            workers: Vec::new(),
            resting: Vec::new(),
            progress: 0,
            guarded: false,
            in_pairs: false,
            always_in_pairs: false,
            rate: Rate { calls: 0, since: Time::default() },
        }
    }

    /// Makes two threads receive while calls are rare, so that one of them may execute whatever comes.
    pub fn in_pairs(mut self) -> Pool {
        self.in_pairs = true;
        self
    }

    /// Makes two threads receive, however fast calls come.
    pub fn always_in_pairs(mut self) -> Pool {
        self.always_in_pairs = true;
        self
    }

    /// Limits the pool to the threads that a quota leaves to it.
    pub fn within(mut self, quota: Arc<dyn Quota>) -> Pool {
        self.staff.quota = Some(quota);
        self
    }

    /// Counts the first thread, which is not part of the budget.
    pub fn add_first(&mut self) {
        self.staff.count += 1;
        self.receiving += 1;
    }

    /// Registers a thread that was counted before, and now runs.
    pub fn register(&mut self, worker: &Arc<Worker>) {
        self.workers.push(worker.clone());
    }

    /// Uncounts a thread that could not be started. The watchdog has one started later, if no thread
    /// receives. Returns whether it is to be woken.
    pub fn start_failed(&mut self) -> bool {
        self.receiving -= 1;
        self.staff.give_back();
        !std::mem::replace(&mut self.guarded, true)
    }

    /// Removes a receiving thread, which ends.
    pub fn leave(&mut self, worker: &Arc<Worker>) {
        self.receiving -= 1;
        self.forget(worker);
    }

    /// Removes a resting thread, which is to end. Returns false if it was called meanwhile.
    pub fn retire(&mut self, worker: &Arc<Worker>) -> bool {
        let Some(place) = self.resting.iter().position(|resting| Arc::ptr_eq(resting, worker)) else {
            return false;
        };
        self.resting.remove(place);
        self.forget(worker);
        true
    }

    /// Removes a thread whose own code has panicked, whether it received, executed or rested.
    pub fn remove_panicked(&mut self, worker: &Arc<Worker>) {
        if self.retire(worker) {
            return;
        }
        if worker.does.load(Ordering::Relaxed) != NOTHING {
            self.done(worker);
        }
        self.leave(worker);
    }

    fn forget(&mut self, worker: &Arc<Worker>) {
        self.workers.retain(|other| !Arc::ptr_eq(other, worker));
        self.staff.give_back();
    }

    /// How many threads receive.
    #[inline]
    pub fn receiving(&self) -> usize {
        self.receiving
    }

    /// How many threads execute, not counting those that wait in calls of their own, and how many there are.
    pub fn executing(&self) -> (usize, usize) {
        (self.executing + self.parked, self.staff.count)
    }

    /// Whether no thread executes, not counting those that wait in calls of their own.
    #[inline]
    pub fn nobody_executes(&self) -> bool {
        self.executing + self.parked == 0
    }

    /// How many threads execute calls that do not wait in calls of their own, and how many of these calls came
    /// from the host of that number.
    pub fn computing(&self, host: u64) -> (usize, usize) {
        let computing = self.workers.iter().filter(|worker| worker.computes());
        computing.fold((0, 0), |(all, own), worker| {
            (all + 1, own + usize::from(worker.host.load(Ordering::Relaxed) == host))
        })
    }

    /// How many threads the whole server may have.
    pub fn max_threads(&self) -> usize {
        self.staff.budget.max()
    }

    /// The threads that rest.
    pub fn resting(&self) -> Vec<Arc<Worker>> {
        self.resting.clone()
    }

    /// Counts calls that a lone receiver has executed.
    pub fn progress(&self) -> u64 {
        self.progress
    }

    /// Whether the watchdog looks after this pool.
    #[inline]
    pub fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Returns what a receiving thread is to do with a call that came at about `now` from the host of that
    /// number. The number is 0 if the call came from no host.
    #[inline(always)]
    pub fn plan(&mut self, worker: &Worker, host: u64, pace: Pace, now: impl FnOnce() -> Time) -> Plan {
        worker.host.store(host, Ordering::Relaxed);
        if pace == Pace::Quick && self.receiving == 1 {
            self.guard(worker)
        } else {
            self.plan_beside(worker, host, pace, now)
        }
    }

    /// Returns how a receiving thread is to run code of the user's that belongs to no call. The thread runs
    /// it even if no more calls may be executed, or its host has its share, because no other thread could run
    /// it.
    pub fn plan_deferred(&mut self, worker: &Worker) -> Plan {
        worker.host.store(0, Ordering::Relaxed);
        if self.receiving == 1 {
            return self.guard(worker);
        }
        self.begin(worker, EXECUTES);
        Plan::Execute(None)
    }

    /// Has a receiving thread execute what came, guarded by the watchdog even if other threads receive.
    #[inline]
    pub fn plan_guarded(&mut self, worker: &Worker) -> Plan {
        worker.host.store(0, Ordering::Relaxed);
        self.guard(worker)
    }

    #[inline(always)]
    fn guard(&mut self, worker: &Worker) -> Plan {
        self.begin(worker, EXECUTES);
        self.progress = self.progress.wrapping_add(1);
        Plan::Guarded(!std::mem::replace(&mut self.guarded, true))
    }

    /// The plan for a call that is not quick, or that is executed while other threads receive.
    #[inline(never)]
    fn plan_beside(&mut self, worker: &Worker, host: u64, pace: Pace, now: impl FnOnce() -> Time) -> Plan {
        let others = self.receiving - 1;
        if pace == Pace::Quick && !self.guarded && self.is_brisk(now) {
            return self.guard(worker);
        }
        if !self.has_room(pace, 1) {
            return Plan::Queue;
        }
        if pace != Pace::Quick && self.has_share(host) {
            return if self.all_wait() { Plan::Refuse } else { Plan::Queue };
        }
        let does = if pace == Pace::Blocking { IS_PARKED } else { EXECUTES };
        if others > 0 {
            self.begin(worker, does);
            return Plan::Execute(None);
        }
        match self.one_more() {
            None if self.is_stuck() => Plan::Refuse,
            None => Plan::Queue,
            replacement => {
                self.begin(worker, does);
                Plan::Execute(replacement)
            }
        }
    }

    /// Counts a quick call that came to one of two receivers. Returns whether such calls come so fast that it
    /// is cheaper to look after one receiver than to change between two.
    #[cold]
    #[inline(never)]
    fn is_brisk(&mut self, now: impl FnOnce() -> Time) -> bool {
        self.rate.calls += 1;
        if self.rate.calls < BRISK.0 || !self.in_pairs {
            return false;
        }
        let now = now();
        let former = std::mem::replace(&mut self.rate, Rate { calls: 0, since: now });
        now.since(former.since) < BRISK.1
    }

    /// A receiving thread begins to execute.
    #[inline(always)]
    fn begin(&mut self, worker: &Worker, does: u8) {
        self.receiving -= 1;
        *self.count(does) += 1;
        if does == IS_PARKED {
            self.hold(worker);
        }
        worker.does.store(does, Ordering::Relaxed);
        worker.begin_call();
    }

    /// A thread that executed receives again.
    #[inline]
    pub fn done(&mut self, worker: &Worker) {
        let does = worker.does.load(Ordering::Relaxed);
        debug_assert!(does == EXECUTES || does == IS_PARKED, "a thread that is done had begun to execute");
        *self.count(does) -= 1;
        if does == IS_PARKED {
            self.let_go(worker);
        }
        worker.does.store(NOTHING, Ordering::Relaxed);
        worker.end_call();
        self.receiving += 1;
    }

    /// Counts a thread as held by a call that waits.
    #[cold]
    fn hold(&mut self, worker: &Worker) {
        *self.held.entry(worker.host.load(Ordering::Relaxed)).or_default() += 1;
    }

    /// Counts a thread as held no longer, because its call waits no more.
    #[cold]
    fn let_go(&mut self, worker: &Worker) {
        let host = worker.host.load(Ordering::Relaxed);
        if let Some(held) = self.held.get_mut(&host) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&host);
            }
        }
    }

    /// Whether few threads are left, and waiting calls of that host hold its share of them already.
    fn has_share(&self, host: u64) -> bool {
        let (reserve, share) = self.staff.budget.reserve();
        reserve > 0
            && self.staff.budget.left() + self.resting.len() <= reserve
            && self.held.get(&host).is_some_and(|held| *held >= share)
    }

    /// Whether a queued call may be taken out as far as its host's share is concerned: to be executed, or to
    /// be refused because all threads wait.
    pub fn may_begin(&self, host: u64, pace: Pace) -> bool {
        pace == Pace::Quick || !self.has_share(host) || self.all_wait()
    }

    /// Whether all threads, except one that receives, wait in calls of their own.
    fn all_wait(&self) -> bool {
        self.nobody_executes() && self.receiving <= 1
    }

    /// How many threads do that.
    #[inline]
    fn count(&mut self, does: u8) -> &mut usize {
        if does == EXECUTES { &mut self.executing } else { &mut self.parked }
    }

    /// One more thread to receive, if there can be one.
    fn one_more(&mut self) -> Option<Replacement> {
        if let Some(worker) = self.resting.pop() {
            self.receiving += 1;
            return Some(Replacement::Rested(worker));
        }
        self.staff.take().then(|| self.count_new())
    }

    fn count_new(&mut self) -> Replacement {
        self.staff.count += 1;
        self.receiving += 1;
        Replacement::New
    }

    /// Whether no more threads can receive or execute than do.
    pub fn is_full(&self) -> bool {
        self.resting.is_empty() && self.staff.is_full()
    }

    /// Whether there can be no more threads, and all that there are, except one that receives, wait in calls
    /// of their own. They may wait for the very call that would need another thread.
    pub fn is_stuck(&self) -> bool {
        self.all_wait() && self.is_full()
    }

    /// Whether one thread more may begin to wait in a call of its own. If the budget counts such threads, the
    /// last one may not that could receive.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may_wait(&self) -> Result<(), MayNotWait> {
        if self.staff.budget.max_waiting.is_none() && self.receiving == 0 && self.is_full() {
            return Err(MayNotWait::Last(self.max_threads()));
        }
        self.staff.budget.may_wait()
    }

    /// Whether each thread executes, or waits in a call of its own.
    pub fn all_execute(&self) -> bool {
        let executes = |worker: &&Arc<Worker>| worker.does.load(Ordering::Relaxed) != NOTHING;
        self.workers.iter().filter(executes).count() == self.staff.count
    }

    /// Notes that the watchdog is about to sleep. Returns the thread that is to receive besides.
    pub fn unguard(&mut self) -> Option<Replacement> {
        self.guarded = false;
        if self.receiving < self.enough() { self.one_more() } else { None }
    }

    /// How many threads are to receive.
    #[inline]
    fn enough(&self) -> usize {
        if self.always_in_pairs || (self.in_pairs && !self.guarded) { 2 } else { 1 }
    }

    /// Returns a thread to receive if none does, and there can be one.
    pub fn replace_receiver(&mut self) -> Option<Replacement> {
        if self.receiving > 0 { None } else { self.one_more() }
    }

    /// Whether so many more calls of that pace may be executed, as far as workers are counted.
    pub fn has_room(&self, pace: Pace, more: usize) -> bool {
        pace == Pace::Blocking || self.executing + more <= self.limit
    }

    /// Returns a thread to execute queued calls, of which the first has that pace, if there may be one.
    pub fn one_more_for_queue(&mut self, pace: Pace) -> Option<Replacement> {
        if self.has_room(pace, 1) { self.one_more() } else { None }
    }

    /// Stops counting as workers the threads that were in the same call at the last look, too: perhaps they
    /// wait. Returns these threads, and whether any thread has begun or ended a call since that look.
    pub fn park_long(&mut self) -> (Vec<Arc<Worker>>, bool) {
        let (mut long, mut moved) = (Vec::new(), false);
        for worker in &self.workers {
            let turn = worker.turn.load(Ordering::Relaxed);
            let seen = worker.seen.swap(turn, Ordering::Relaxed) == turn;
            moved |= !seen;
            if seen && turn % 2 == 1 && worker.does.load(Ordering::Relaxed) == EXECUTES {
                long.push(worker.clone());
            }
        }
        for worker in &long {
            worker.does.store(IS_PARKED, Ordering::Relaxed);
            self.executing -= 1;
            self.parked += 1;
            self.hold(worker);
        }
        (long, moved)
    }

    /// Has a receiving thread rest if enough others receive. Returns whether it is to rest.
    #[inline]
    pub fn rest(&mut self, worker: &Arc<Worker>) -> bool {
        self.receiving > 1 && self.receiving > self.enough() && self.rest_beside(worker)
    }

    /// Has a thread rest that received something else than a call, if another thread receives. Returns
    /// whether it is to rest.
    #[inline(always)]
    pub fn make_way(&mut self, worker: &Arc<Worker>) -> bool {
        self.receiving > 1 && self.rest_beside(worker)
    }

    #[cold]
    fn rest_beside(&mut self, worker: &Arc<Worker>) -> bool {
        self.receiving -= 1;
        self.resting.push(worker.clone());
        true
    }

    /// Notes that a thread that executes begins to wait in a call of its own. If no thread receives now, the
    /// caller has to find one that does. Returns false if the thread waits already.
    ///
    /// # Errors
    /// When `limited`, and the thread may not wait.
    pub fn begin_wait(&mut self, worker: &Worker, limited: bool) -> Result<bool, MayNotWait> {
        let does = worker.does.load(Ordering::Relaxed);
        if does == NOTHING || does >= WAITS {
            return Ok(false);
        }
        if limited {
            self.may_wait()?;
        }
        self.staff.budget.begin_wait(limited)?;
        *self.count(does) -= 1;
        if does == EXECUTES {
            self.hold(worker);
        }
        worker.does.store(does + WAITS, Ordering::Relaxed);
        Ok(true)
    }

    /// Notes that the thread waits no longer.
    pub fn end_wait(&mut self, worker: &Worker) {
        let does = worker.does.load(Ordering::Relaxed) - WAITS;
        *self.count(does) += 1;
        if does == EXECUTES {
            self.let_go(worker);
        }
        worker.does.store(does, Ordering::Relaxed);
        self.staff.budget.end_wait();
    }

    /// Returns a thread to receive if none does, even if that makes one thread more than there may be: of two
    /// threads that began to wait at the same time, perhaps neither saw that it was the last.
    pub fn replace_waiting(&mut self) -> Option<Replacement> {
        if self.receiving > 0 {
            return None;
        }
        let replacement = self.one_more();
        replacement.or_else(|| {
            self.staff.overdraw();
            Some(self.count_new())
        })
    }
}

impl Staff {
    /// Takes one thread more out of the budget and the quota, if there may be one. The pool's first thread is
    /// not part of them.
    fn take(&self) -> bool {
        if self.count == 0 {
            return true;
        }
        if !self.quota.as_ref().is_none_or(|quota| quota.take()) {
            return false;
        }
        let taken = self.budget.take();
        if !taken {
            self.quota.iter().for_each(|quota| quota.give_back());
        }
        taken
    }

    /// Takes one thread more even if there may be none.
    fn overdraw(&self) {
        self.budget.overdraw();
        self.quota.iter().for_each(|quota| quota.overdraw());
    }

    /// Gives one thread back.
    fn give_back(&mut self) {
        self.count -= 1;
        if self.count > 0 {
            self.budget.give_back();
            self.quota.iter().for_each(|quota| quota.give_back());
        }
    }

    /// Whether there can be no more threads.
    fn is_full(&self) -> bool {
        self.budget.left() == 0 || self.quota.as_ref().is_some_and(|quota| quota.is_taken())
    }
}
