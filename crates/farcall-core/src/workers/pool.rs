//! Decides which of a carrier's threads receive, execute and rest. A carrier is what a server's threads
//! receive calls from, such as a socket. A pool only counts and decides; its carrier acts on the decisions.
//!
//! (tests/workers.rs includes this file, and gives it loom's atomics through `super::sync`.)

use std::sync::Arc;
use std::time::Duration;

use super::budget::{MayNotWait, Quota, Threads};
use super::held::HeldThreads;
use super::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::env::{Event, Time};

/// A worker thread, as its pool sees it. The thread sleeps on `event` while it rests.
pub struct Worker {
    event: Arc<dyn Event>,
    /// Whether the resting thread was called to receive. `event` orders the accesses: it is set after
    /// `called` is written, and waited for before `called` is read.
    called: AtomicBool,
    /// What the thread does: one of the constants below. Read and written under the pool's lock.
    does: AtomicU8,
    /// Odd while the thread executes a call. Written by that thread alone.
    pub(super) turn: AtomicU64,
    /// The number of the host whose call the thread executes; 0 for a local call.
    host: AtomicU64,
    /// The number of the thread, if its environment tells which threads sleep.
    pub(super) thread: Option<u32>,
    /// What `turn` was when the watchdog last looked for long calls.
    pub(super) seen: AtomicU64,
    /// The time of the look that first saw the thread in that turn, in nanoseconds.
    pub(super) seen_at: AtomicU64,
    /// When the thread was parked because it slept, in nanoseconds; 0 if it was not, or if it is known
    /// whether that was right.
    pub(super) suspected_at: AtomicU64,
}

/// The thread receives, rests, or changes from one to the other.
const NOTHING: u8 = 0;
/// The thread executes, and counts as a worker.
const EXECUTES: u8 = 1;
/// The thread executes a call that may wait for something, and does not count as a worker.
const IS_PARKED: u8 = 2;
/// Added to `EXECUTES` or `IS_PARKED` if the thread waits in a remote call of its own.
const WAITS: u8 = 4;

/// How long a thread rests before it ends.
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// Why a thread no longer rests.
pub enum Rested {
    /// The thread was called to receive.
    Called,
    /// The thread was not called for ten seconds.
    Idle,
    /// The carrier has stopped.
    Over,
}

impl Worker {
    pub fn new(event: Arc<dyn Event>) -> Arc<Worker> {
        Worker::in_thread(event, None)
    }

    /// Makes a worker of the thread with this number
    /// ([`Env::thread_number`](crate::env::Env::thread_number)).
    pub fn in_thread(event: Arc<dyn Event>, thread: Option<u32>) -> Arc<Worker> {
        let (called, does) = (AtomicBool::new(false), AtomicU8::new(NOTHING));
        let [turn, host, seen, seen_at, suspected_at] = [(); 5].map(|()| AtomicU64::new(0));
        Arc::new(Worker { event, called, does, turn, host, thread, seen, seen_at, suspected_at })
    }

    /// Returns whether the thread executes, and counts as a worker.
    pub(super) fn counts(&self) -> bool {
        self.does.load(Ordering::Relaxed) == EXECUTES
    }

    /// Notes that the thread begins a call. A thread that executes several calls in a row without asking its
    /// pool calls this itself.
    #[inline(always)]
    pub fn begin_call(&self) {
        self.turn.store((self.turn.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed);
    }

    /// Notes that the thread executes no call, until it begins the next.
    #[inline(always)]
    pub fn end_call(&self) {
        self.turn.store((self.turn.load(Ordering::Relaxed) + 1) & !1, Ordering::Relaxed);
    }

    /// Returns whether the watchdog has found the thread in the same call at two looks since the thread last
    /// received.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.does.load(Ordering::Relaxed) & !WAITS == IS_PARKED
    }

    /// Returns whether the thread executes a call that does not wait in a remote call of its own.
    fn computes(&self) -> bool {
        let does = self.does.load(Ordering::Relaxed);
        does != NOTHING && does < WAITS && self.turn.load(Ordering::Relaxed) % 2 == 1
    }

    /// Makes a resting thread check whether its carrier has stopped.
    pub fn wake(&self) {
        self.event.set();
    }

    /// Calls the resting thread to receive.
    pub fn call(&self) {
        self.called.store(true, Ordering::Relaxed);
        self.event.set();
    }

    /// Rests until the thread is called, or `over` returns true, or ten seconds have passed without a call.
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

/// The worker threads of one carrier.
pub struct Pool {
    /// How many threads can execute at once. A lone receiver that executes a quick call does not count.
    limit: usize,
    /// How many more can until the watchdog's next look: calls that will probably wait.
    extra: usize,
    staff: Staff,
    /// How many threads receive, or are about to.
    receiving: usize,
    /// How many threads execute and count as workers.
    executing: usize,
    /// How many threads execute and do not count as workers, because their procedure is marked as blocking or
    /// has taken long.
    parked: usize,
    /// The threads that waiting calls hold. A call waits if it is parked, or waits in a remote call of its
    /// own.
    held: HeldThreads,
    workers: Vec<Arc<Worker>>,
    resting: Vec<Arc<Worker>>,
    /// Counts the calls that a lone receiver has executed. From this count the watchdog sees whether the
    /// receiver makes progress.
    progress: u64,
    /// Whether the watchdog looks after this pool.
    guarded: bool,
    /// Whether two threads receive while the watchdog sleeps.
    in_pairs: bool,
    /// Whether two threads always receive.
    always_in_pairs: bool,
    /// Whether the watchdog may give the pool a spare thread.
    may_have_spare: bool,
    /// Whether the pool has a spare thread, which is one more than its budget allows. It lets a thread
    /// receive although every thread of the budget executes. Any thread can be the spare: it is a resting
    /// one, or, if none rests, a receiving one.
    has_spare: bool,
    rate: Rate,
}

/// How many threads a pool has, and the budgets from which it takes more.
struct Staff {
    count: usize,
    /// The threads of the whole server.
    budget: Arc<Threads>,
    /// The part of the budget's threads that this pool can have; `None` if it can have all.
    quota: Option<Arc<dyn Quota>>,
}

/// The quick calls that came to one of two receivers since `since`.
struct Rate {
    calls: u32,
    since: Time,
}

/// What is known about how long a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Shorter than it takes to wake another thread: the receiver may execute it.
    Quick,
    /// Nothing is known.
    Any,
    /// The procedure is marked as blocking: it may wait for something.
    Blocking,
}

/// If this many quick calls come within this time, a lone receiver with a watchdog is cheaper than two
/// receivers.
const BRISK: (u32, Duration) = (32, Duration::from_micros(1600));

/// The thread that receives next.
pub enum Replacement {
    /// A thread that rested.
    Rested(Arc<Worker>),
    /// A new thread, which is to be started. The pool has counted it already.
    New,
}

/// What a receiving thread does with a call.
pub enum Plan {
    /// Execute it. If there is a replacement, that thread receives meanwhile.
    Execute(Option<Replacement>),
    /// Execute it as the only receiver, guarded by the watchdog. True: wake the watchdog.
    Guarded(bool),
    /// Queue it for another thread.
    Queue,
    /// Refuse it: there can be no more threads, and all threads wait in remote calls of their own.
    Refuse,
}

impl Pool {
    pub fn new(limit: usize, budget: Arc<Threads>) -> Pool {
        Pool {
            limit: limit.max(1),
            extra: 0,
            staff: Staff { count: 0, budget, quota: None },
            receiving: 0,
            executing: 0,
            parked: 0,
            held: HeldThreads::default(),
            workers: Vec::new(),
            resting: Vec::new(),
            progress: 0,
            guarded: false,
            in_pairs: false,
            always_in_pairs: false,
            may_have_spare: false,
            has_spare: false,
            rate: Rate { calls: 0, since: Time::default() },
        }
    }

    /// Makes two threads receive while calls are rare, so that either can execute a call at once.
    pub fn in_pairs(mut self) -> Pool {
        self.in_pairs = true;
        self
    }

    /// Makes two threads receive, however fast calls come.
    pub fn always_in_pairs(mut self) -> Pool {
        self.always_in_pairs = true;
        self
    }

    /// Lets the watchdog add one thread beyond the budget if the last receiver is stuck in a call. That
    /// thread receives, but the calls that only it could execute are planned as [`Plan::Queue`].
    pub fn with_spare(mut self) -> Pool {
        self.may_have_spare = true;
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

    /// Uncounts a thread that could not be started. If now no thread receives, the watchdog later tries again
    /// to start one. Returns whether the watchdog must be woken for that.
    pub fn start_failed(&mut self) -> bool {
        self.receiving -= 1;
        self.give_back();
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
        self.give_back();
    }

    /// Gives one thread back. If there was a spare one, the pool now keeps to its budget.
    fn give_back(&mut self) {
        self.staff.give_back();
        self.has_spare = false;
    }

    /// Returns how many threads receive.
    #[inline]
    pub fn receiving(&self) -> usize {
        self.receiving
    }

    /// Returns how many threads receive and may execute a call: all that receive, except the spare.
    #[inline]
    pub fn receiving_to_execute(&self) -> usize {
        self.receiving.saturating_sub(usize::from(self.spare_receives()))
    }

    #[inline]
    fn spare_receives(&self) -> bool {
        self.has_spare && self.resting.is_empty()
    }

    /// Returns how many resting threads may be called to execute or to let others execute.
    fn resting_to_execute(&self) -> usize {
        self.resting.len().saturating_sub(usize::from(self.has_spare))
    }

    /// Returns the number of threads that execute, not counting those that wait in remote calls of their own,
    /// and the number of all threads of the pool.
    pub fn executing(&self) -> (usize, usize) {
        (self.executing + self.parked, self.staff.count)
    }

    /// Returns whether no thread executes, not counting those that wait in remote calls of their own.
    #[inline]
    pub fn nobody_executes(&self) -> bool {
        self.executing + self.parked == 0
    }

    /// Returns how many threads execute calls that do not wait in remote calls of their own, and how many of
    /// these calls came from the host with number `host`.
    pub fn computing(&self, host: u64) -> (usize, usize) {
        let computing = self.workers.iter().filter(|worker| worker.computes());
        computing.fold((0, 0), |(all, own), worker| {
            (all + 1, own + usize::from(worker.host.load(Ordering::Relaxed) == host))
        })
    }

    /// Returns how many threads the whole server can have.
    pub fn max_threads(&self) -> usize {
        self.staff.budget.max()
    }

    /// Returns the resting threads.
    pub fn resting(&self) -> Vec<Arc<Worker>> {
        self.resting.clone()
    }

    /// Returns how many calls a lone receiver has executed.
    pub fn progress(&self) -> u64 {
        self.progress
    }

    /// Returns whether the watchdog looks after this pool.
    #[inline]
    pub fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Returns what a receiving thread is to do with a call that came at about `now` from the host with
    /// number `host`, which is 0 for a local call.
    #[inline(always)]
    pub fn plan(&mut self, worker: &Worker, host: u64, pace: Pace, now: impl FnOnce() -> Time) -> Plan {
        worker.host.store(host, Ordering::Relaxed);
        if pace == Pace::Quick && self.receiving_to_execute() == 1 {
            self.guard(worker)
        } else {
            self.plan_beside(worker, host, pace, now)
        }
    }

    /// Returns how a receiving thread is to run code of the user's that belongs to no call. The thread runs
    /// it even if no more calls can execute, because no other thread could run it.
    pub fn plan_deferred(&mut self, worker: &Worker) -> Plan {
        worker.host.store(0, Ordering::Relaxed);
        if self.receiving == 1 {
            return self.guard(worker);
        }
        self.begin(worker, EXECUTES);
        Plan::Execute(None)
    }

    /// Makes a receiving thread execute what it has received, guarded by the watchdog even if other threads
    /// receive.
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

    /// Returns the plan for a call that is not quick, or that comes while other threads receive.
    #[inline(never)]
    fn plan_beside(&mut self, worker: &Worker, host: u64, pace: Pace, now: impl FnOnce() -> Time) -> Plan {
        let others = self.receiving_to_execute().saturating_sub(1);
        if pace == Pace::Quick && others > 0 && !self.guarded && self.is_brisk(now) {
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

    /// Counts a quick call that came to one of two receivers. Returns whether such calls come so fast that
    /// one receiver with a watchdog is cheaper.
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

    /// Notes that a receiving thread begins to execute.
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

    /// Notes that a thread that executed receives again.
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
        self.held.add(worker.host.load(Ordering::Relaxed));
    }

    /// Stops counting a thread as held by a call that waits.
    #[cold]
    fn let_go(&mut self, worker: &Worker) {
        self.held.remove(worker.host.load(Ordering::Relaxed));
    }

    /// Returns whether only threads are left that are reserved for other hosts, or for hosts of other
    /// networks, because the waiting calls of this host or of its network hold their share already.
    fn has_share(&self, host: u64) -> bool {
        let budget = &self.staff.budget;
        if !budget.has_reserve() {
            return false;
        }
        let left = budget.left() + self.resting_to_execute();
        let reserve = budget.reserve(host, left);
        left <= reserve.for_hosts && self.held.of_host(host) >= reserve.share
            || left <= reserve.for_networks && self.held.of_network_of(host) >= reserve.share
    }

    /// Returns whether a queued call of the host may be taken out of the queue. It is then executed, or
    /// refused if all threads wait.
    pub fn may_begin(&self, host: u64, pace: Pace) -> bool {
        pace == Pace::Quick || !self.has_share(host) || self.all_wait()
    }

    /// Returns whether all threads, except one that receives, wait in remote calls of their own.
    fn all_wait(&self) -> bool {
        self.nobody_executes() && self.receiving_to_execute() <= 1
    }

    /// Returns the number of threads whose state is `does`, to be changed.
    #[inline]
    fn count(&mut self, does: u8) -> &mut usize {
        if does == EXECUTES { &mut self.executing } else { &mut self.parked }
    }

    /// Returns one more thread to receive, if there can be one.
    fn one_more(&mut self) -> Option<Replacement> {
        if self.resting_to_execute() > 0 {
            return self.call_resting();
        }
        self.staff.take().then(|| self.count_new())
    }

    fn call_resting(&mut self) -> Option<Replacement> {
        let worker = self.resting.pop()?;
        self.receiving += 1;
        Some(Replacement::Rested(worker))
    }

    fn count_new(&mut self) -> Replacement {
        self.staff.count += 1;
        self.receiving += 1;
        Replacement::New
    }

    /// Returns whether no further thread can receive or execute.
    pub fn is_full(&self) -> bool {
        self.resting_to_execute() == 0 && self.staff.is_full()
    }

    /// Returns whether there can be no more threads, and all threads except one that receives wait in remote
    /// calls of their own. They may wait for the very call that needs another thread.
    pub fn is_stuck(&self) -> bool {
        self.all_wait() && self.is_full()
    }

    /// Checks whether one more thread may begin to wait in a remote call of its own. If the budget counts
    /// waiting threads, the last thread that could receive must not wait.
    ///
    /// # Errors
    /// Why the thread must not wait.
    pub fn may_wait(&self) -> Result<(), MayNotWait> {
        let is_last = self.receiving_to_execute() == 0 && self.is_full();
        if self.staff.budget.counts_waiting() && is_last {
            return Err(MayNotWait::Last(self.max_threads()));
        }
        self.staff.budget.may_wait()
    }

    /// Returns whether every thread executes, or waits in a remote call of its own.
    pub fn all_execute(&self) -> bool {
        let executes = |worker: &&Arc<Worker>| worker.does.load(Ordering::Relaxed) != NOTHING;
        self.workers.iter().filter(executes).count() == self.staff.count
    }

    /// Returns whether every thread has left.
    pub fn is_empty(&self) -> bool {
        self.staff.count == 0
    }

    /// Notes that the watchdog is about to sleep. Returns a further thread to receive, if more must receive
    /// then.
    pub fn unguard(&mut self) -> Option<Replacement> {
        self.guarded = false;
        if self.receiving < self.enough() { self.one_more() } else { None }
    }

    /// Returns how many threads should receive.
    #[inline]
    fn enough(&self) -> usize {
        if self.always_in_pairs || (self.in_pairs && !self.guarded) { 2 } else { 1 }
    }

    /// Returns a thread to receive if none does, and there can be one.
    pub fn replace_receiver(&mut self) -> Option<Replacement> {
        if self.receiving > 0 { None } else { self.one_more() }
    }

    /// Returns a thread that receives while no thread is left that could execute what it receives: one of the
    /// budget, or else the spare, if there can be one.
    pub fn replace_stuck(&mut self) -> Option<Replacement> {
        self.one_more().or_else(|| self.call_spare())
    }

    fn call_spare(&mut self) -> Option<Replacement> {
        if self.has_spare || !self.may_have_spare || self.staff.budget.left() > 0 {
            return self.call_resting();
        }
        self.has_spare = true;
        self.staff.overdraw();
        Some(self.count_new())
    }

    /// Returns whether the limit on workers allows `more` further calls of this pace.
    pub fn has_room(&self, pace: Pace, more: usize) -> bool {
        pace == Pace::Blocking || self.executing + more <= self.limit + self.extra
    }

    /// Lets so many more threads execute at once than the limit says.
    pub(super) fn allow_extra(&mut self, extra: usize) {
        self.extra = extra;
    }

    /// Returns whether more threads may execute at once than the limit says.
    pub fn allows_extra(&self) -> bool {
        self.extra > 0
    }

    /// Returns a thread for queued calls, the first of which has this pace, if there can be one.
    pub fn one_more_for_queue(&mut self, pace: Pace) -> Option<Replacement> {
        if self.has_room(pace, 1) { self.one_more() } else { None }
    }

    /// Parks the threads that are in the same call as at the last look: they probably wait, and no longer
    /// count as workers. Returns these threads, and whether any thread has begun or ended a call since that
    /// look.
    pub fn park_long(&mut self) -> (Vec<Arc<Worker>>, bool) {
        let (mut long, mut moved) = (Vec::new(), false);
        for worker in &self.workers {
            let turn = worker.turn.load(Ordering::Relaxed);
            let seen = worker.seen.swap(turn, Ordering::Relaxed) == turn;
            moved |= !seen;
            if seen && turn % 2 == 1 && worker.counts() {
                long.push((worker.clone(), turn));
            }
        }
        long.retain(|(worker, turn)| self.park(worker, *turn));
        (long.into_iter().map(|(worker, _)| worker).collect(), moved)
    }

    /// Parks a thread if it is still in this turn: it no longer counts as a worker. Returns whether it is.
    pub(super) fn park(&mut self, worker: &Worker, turn: u64) -> bool {
        if worker.turn.load(Ordering::Relaxed) != turn || !worker.counts() {
            return false;
        }
        worker.does.store(IS_PARKED, Ordering::Relaxed);
        self.executing -= 1;
        self.parked += 1;
        self.hold(worker);
        true
    }

    pub(super) fn workers(&self) -> &[Arc<Worker>] {
        &self.workers
    }

    /// Makes a receiving thread rest if enough others receive. Returns whether it is to rest.
    #[inline]
    pub fn rest(&mut self, worker: &Arc<Worker>) -> bool {
        self.receiving > 1
            && (self.receiving > self.enough() || self.spare_receives())
            && self.rest_beside(worker)
    }

    /// Makes a thread that received something other than a call rest, if another thread receives. Returns
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

    /// Notes that an executing thread begins to wait in a remote call of its own. If no thread receives now,
    /// the caller must let one receive. Returns false if the thread waits already.
    ///
    /// # Errors
    /// If `limited` and the thread must not wait.
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

    /// Returns a thread to receive if none does, even if that exceeds the budget by one: two threads that
    /// begin to wait at the same time may both fail to see that no other is left.
    pub fn replace_waiting(&mut self) -> Option<Replacement> {
        if self.receiving_to_execute() > 0 {
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
    /// Takes one more thread from the budget and the quota, if there is one left. The pool's first thread is
    /// not part of them. Returns false if there is none left.
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

    /// Takes one more thread even if there is none left.
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

    /// Returns whether there can be no more threads.
    fn is_full(&self) -> bool {
        self.budget.left() == 0 || self.quota.as_ref().is_some_and(|quota| quota.is_taken())
    }
}
