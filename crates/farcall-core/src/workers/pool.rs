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
    /// The thread was in the same call at the watchdog's last look at the queue.
    seen: AtomicBool,
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
        let (called, does, seen) = (AtomicBool::new(false), AtomicU8::new(NOTHING), AtomicBool::new(false));
        Arc::new(Worker { event, called, does, seen, host: AtomicU64::new(0) })
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
}

impl Threads {
    /// A budget of at most `max` threads, which include one that receives.
    pub fn new(max: usize) -> Arc<Threads> {
        Arc::new(Threads { max: max.max(2) - 1, taken: AtomicUsize::new(0) })
    }

    /// How many threads there may be.
    pub fn max(&self) -> usize {
        self.max + 1
    }

    fn take(&self) -> bool {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes one thread even if there is none left.
    fn overdraw(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    fn left(&self) -> usize {
        self.max.saturating_sub(self.taken.load(Ordering::Relaxed))
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
            rate: Rate { calls: 0, since: Time::default() },
        }
    }

    /// Makes two threads receive while calls are rare, so that one of them may execute whatever comes.
    pub fn in_pairs(mut self) -> Pool {
        self.in_pairs = true;
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
    pub fn plan(&mut self, worker: &Worker, host: u64, pace: Pace, now: Time) -> Plan {
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

    #[inline(always)]
    fn guard(&mut self, worker: &Worker) -> Plan {
        self.begin(worker, EXECUTES);
        self.progress = self.progress.wrapping_add(1);
        Plan::Guarded(!std::mem::replace(&mut self.guarded, true))
    }

    /// The plan for a call that is not quick, or that is executed while other threads receive.
    #[inline(never)]
    fn plan_beside(&mut self, worker: &Worker, host: u64, pace: Pace, now: Time) -> Plan {
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
    fn is_brisk(&mut self, now: Time) -> bool {
        self.rate.calls += 1;
        if self.rate.calls < BRISK.0 || !self.in_pairs {
            return false;
        }
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
        worker.seen.store(false, Ordering::Relaxed);
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

    /// Whether no thread would receive if one that executes began to wait.
    pub fn is_last(&self) -> bool {
        self.receiving == 0 && self.is_full()
    }

    /// Notes that the watchdog is about to sleep. Returns the thread that is to receive besides.
    pub fn unguard(&mut self) -> Option<Replacement> {
        self.guarded = false;
        if self.receiving < self.enough() { self.one_more() } else { None }
    }

    /// How many threads are to receive.
    #[inline]
    fn enough(&self) -> usize {
        if self.guarded || !self.in_pairs { 1 } else { 2 }
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
    /// wait.
    pub fn park_long(&mut self) {
        let workers = std::mem::take(&mut self.workers);
        for worker in &workers {
            if worker.does.load(Ordering::Relaxed) == EXECUTES && worker.seen.swap(true, Ordering::Relaxed) {
                worker.does.store(IS_PARKED, Ordering::Relaxed);
                self.executing -= 1;
                self.parked += 1;
                self.hold(worker);
            }
        }
        self.workers = workers;
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
    pub fn begin_wait(&mut self, worker: &Worker) -> bool {
        let does = worker.does.load(Ordering::Relaxed);
        if does == NOTHING || does >= WAITS {
            return false;
        }
        *self.count(does) -= 1;
        if does == EXECUTES {
            self.hold(worker);
        }
        worker.does.store(does + WAITS, Ordering::Relaxed);
        true
    }

    /// Notes that the thread waits no longer.
    pub fn end_wait(&mut self, worker: &Worker) {
        let does = worker.does.load(Ordering::Relaxed) - WAITS;
        *self.count(does) += 1;
        if does == EXECUTES {
            self.let_go(worker);
        }
        worker.does.store(does, Ordering::Relaxed);
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
