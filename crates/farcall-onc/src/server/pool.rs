//! The threads of a server, of which never more than so many execute, and the watchdog that looks after them.
//!
//! A thread waits at a *receive point* (a socket, or all connections together) and runs the procedures of the
//! calls that it finds there itself. Each point has a [`Pool`], which decides when another thread receives
//! there. The points share the budget of threads, the threads that have nothing to do, and the watchdog.
//!
//! Orderings: SeqCst where one thread writes a word of these and then reads another, which a second thread
//! writes and reads the other way round, so that at least one of them sees what the other wrote: `checks_timeouts` and
//! what is to be swept.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use farcall::env::{Condition, Env, Event, Time};
use farcall::lock;
use farcall::serving::{self, WorkerPool};
use farcall::workers::{
    Carrier, Habit, Job, Jobs, MayNotWait, Pace, Plan, Pool, Refused, Threads, Watch, Worker, replace, start,
};

use super::hosts::HOST_SHARE;

/// Where threads wait for calls.
pub(super) trait ReceivePoint: Send + Sync {
    /// Waits, and serves, until the server stops or enough others wait. Returns whether enough others wait.
    fn watch(&self, thread: &ServingThread) -> bool;

    /// Makes a thread that waits look whether the server has stopped.
    fn wake(&self);

    /// Has the point look whether calls that it has put aside may be executed now, because fewer others
    /// execute.
    fn look_aside(&self) {}

    /// Acts on what has taken too long; gives how long it need not be asked again.
    fn check_timeouts(&self, _now: Time) -> Option<Duration> {
        None
    }
}

/// What a thread serves, and another thread can go on with.
pub(super) trait Held: Send + Sync {
    /// Has another thread go on, unless this turn has ended.
    fn pass(&self, turn: u64);

    /// Notes that a call under way begins to wait for another machine, or ends to. Until it ends to wait, it
    /// does not count as under way.
    fn count_waiting(&self, begins: bool);
}

/// The threads of a server, over all its points.
pub(crate) struct Workers {
    env: Arc<dyn Env>,
    /// The threads, with those that have nothing to do.
    jobs: Arc<Jobs>,
    /// How many threads there may be, besides one that receives at each point.
    budget: Arc<Threads>,
    limit: usize,
    stopped: AtomicBool,
    state: Mutex<State>,
    /// Notified while the server stops, when a thread has left a point or begun to execute there, and when the
    /// watchdog has ended.
    changed: Condition,
    watchdog: Arc<dyn Event>,
    /// The watchdog will act on what takes too long.
    checks_timeouts: AtomicBool,
    habit: Habit,
}

#[derive(Default)]
struct State {
    points: Vec<Arc<Point>>,
    /// The watchdog is to act on what takes too long within this time.
    within: Option<Duration>,
    /// The watchdog lives. It holds the points while it looks.
    watched: bool,
}

/// How long between two looks of the watchdog, at first.
const FIRST_NAP: Duration = Duration::from_millis(1);
/// After so many looks at which nothing had happened the watchdog sleeps, and after so many more as a thread
/// may stay with a connection that it served.
const QUIET_LOOKS: u32 = 8;

impl Workers {
    /// No threads yet, of which `limit` will execute at once, at most, and `max_waiting` more may wait for
    /// calls of their own. A thread may stay for `stays` with a connection that it served.
    pub(super) fn new(env: Arc<dyn Env>, limit: usize, max_waiting: usize, stays: Duration) -> Arc<Workers> {
        let looks = u32::try_from(stays.as_millis() / FIRST_NAP.as_millis()).unwrap_or(u32::MAX);
        let looks = looks.saturating_add(QUIET_LOOKS);
        Arc::new(Workers {
            jobs: Jobs::new(env.clone(), "onc-worker", Threads::besides_waiting(usize::MAX, 0), usize::MAX),
            budget: Threads::besides_waiting(limit, max_waiting),
            limit: limit.max(1),
            stopped: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condition::default(),
            watchdog: env.event(),
            checks_timeouts: AtomicBool::new(false),
            habit: Habit { nap: FIRST_NAP, calls: 1, looks, finds_long: true },
            env,
        })
    }

    /// Starts the watchdog.
    pub(super) fn start_watchdog(self: &Arc<Self>) -> io::Result<()> {
        self.lock().watched = true;
        let watchdog = Watchdog(self.clone());
        self.env.spawn("onc-watchdog", Box::new(move || watchdog.0.watch_points()))
    }

    /// Has a first thread receive at a point, which has this pool.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn receive_at(
        self: &Arc<Self>,
        receives: Arc<dyn ReceivePoint>,
        pool: Pool,
    ) -> io::Result<()> {
        let mut pool = pool;
        pool.add_first();
        let (pool, receiving) = (Mutex::new(pool), AtomicUsize::new(1));
        let (receives, threads) = (Mutex::new(Some(receives)), Mutex::default());
        let point = Arc::new(Point { workers: self.clone(), pool, receiving, receives, threads });
        self.lock().points.push(point.clone());
        let started = start(&point);
        if started.is_err() {
            point.with_pool(Pool::start_failed);
        }
        started
    }

    /// Makes the pool of a point.
    pub(super) fn pool(&self) -> Pool {
        Pool::new(usize::MAX, self.budget.clone())
    }

    /// How many procedures may run at once.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Whether there are so many threads that hosts' shares may matter.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.budget.is_half_taken()
    }

    /// Whether one more call of a host, of those that come as datagrams, may execute. One call of each host
    /// always may. A host that is alone may have four fifths of all; the rest is left for other hosts.
    #[cold]
    pub(super) fn may_execute(&self, host: NonZero<u64>) -> bool {
        let points = self.lock().points.clone();
        let computing = points.iter().map(|point| point.with_pool(|pool| pool.computing(host.get())));
        let (all, own) = computing.fold((0, 0), |sum, (all, own)| (sum.0 + all, sum.1 + own));
        own == 0 || own < HOST_SHARE * self.limit.saturating_sub(all)
    }

    /// Has another thread receive at each point where none does, because there may be one more. Returns the
    /// points.
    fn replace_receivers(&self) -> Vec<Arc<Point>> {
        let points = self.lock().points.clone();
        points.iter().for_each(|point| point.replace_receiver());
        points
    }

    /// There is something that may take too long.
    pub(super) fn watch_timeouts(&self) {
        if !self.checks_timeouts.load(Ordering::SeqCst) {
            self.watchdog.set();
        }
    }

    /// There is something that is to be looked at within this time, however long nothing else takes.
    pub(super) fn check_timeouts_within(&self, time: Duration) {
        let within = &mut self.lock().within;
        *within = Some(within.map_or(time, |within| within.min(time)));
        self.watchdog.set();
    }

    /// Has everybody leave, and waits until only threads that execute have not. Procedures that run end by
    /// themselves.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let points = std::mem::take(&mut self.lock().points);
        self.watchdog.set();
        points.iter().filter_map(|point| point.close()).for_each(|receives| receives.wake());
        let mut state = self.lock();
        // A thread that unwinds waits for nobody.
        let is_left = |point: &Arc<Point>| point.with_pool(|pool| pool.all_execute());
        while (state.watched || !points.iter().all(is_left)) && !thread::panicking() {
            state = self.changed.wait(&self.env, &self.state, state, None).0;
        }
        // Until now there had to be a thread for each that was called.
        self.jobs.close();
    }

    /// Wakes the thread in [`Workers::stop`], if the server is being stopped: a thread has left a point, or
    /// executes there.
    #[inline]
    fn wake_stop(&self) {
        if self.is_stopped() {
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// The watchdog's life.
    fn watch_points(&self) {
        let mut watches: Vec<(Arc<Point>, Watch)> = Vec::new();
        let mut check_timeouts = Some(Duration::ZERO);
        let mut swept = self.env.now();
        while !self.is_stopped() {
            self.add_points(&mut watches, &mut check_timeouts);
            watches.iter_mut().for_each(|(point, watch)| point.pass_long(watch));
            let now = self.env.now();
            if check_timeouts.is_none_or(|after| now.since(swept) >= after) {
                // Before it looks: what begins after that look is then told of.
                self.checks_timeouts.store(false, Ordering::SeqCst);
                check_timeouts =
                    watches.iter().filter_map(|(point, _)| point.receives()?.check_timeouts(now)).min();
                self.checks_timeouts.store(check_timeouts.is_some(), Ordering::SeqCst);
                swept = now;
            }
            let naps = watches.iter().filter_map(|(_, watch)| watch.nap());
            self.watchdog.wait(naps.chain(check_timeouts).min());
        }
    }

    /// Takes in points that are new, and when to act on what takes too long, if that has become sooner.
    fn add_points(&self, watches: &mut Vec<(Arc<Point>, Watch)>, check_timeouts: &mut Option<Duration>) {
        let mut state = self.lock();
        *check_timeouts = [*check_timeouts, state.within.take()].into_iter().flatten().min();
        let known = watches.len();
        let new = state.points.iter().skip(known);
        watches.extend(new.map(|point| (point.clone(), Watch::new(self.habit))));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that looks after the others.
struct Watchdog(Arc<Workers>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.lock().watched = false;
        self.0.changed.notify_all();
    }
}

/// A receive point, and its threads.
struct Point {
    workers: Arc<Workers>,
    pool: Mutex<Pool>,
    /// How many threads receive, as the pool last said.
    receiving: AtomicUsize,
    /// What they receive from; `None` once the server has stopped. The last thread closes its socket.
    receives: Mutex<Option<Arc<dyn ReceivePoint>>>,
    threads: Mutex<Vec<Arc<ServingThread>>>,
}

impl Carrier for Point {
    const THREAD: &'static str = "onc-worker";

    fn env(&self) -> &Arc<dyn Env> {
        &self.workers.env
    }

    #[inline]
    fn with_pool<R>(&self, act: impl FnOnce(&mut Pool) -> R) -> R {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut pool);
        self.receiving.store(pool.receiving(), Ordering::Relaxed);
        result
    }

    fn enter(self: &Arc<Self>, pool: Arc<dyn WorkerPool>) {
        serving::serve_elsewhere(Some(pool));
    }

    fn live(self: &Arc<Self>, worker: &Arc<Worker>) {
        let thread =
            Arc::new(ServingThread { point: self.clone(), worker: worker.clone(), held: Mutex::default() });
        lock(&self.threads).push(thread.clone());
        let taken = LeaveGuard(thread);
        while self.receive(&taken.0) {}
    }

    fn wake_watchdog(&self) {
        self.workers.watchdog.set();
    }

    /// Has a thread live that has nothing to do, or a new one.
    fn spawn(&self, life: Job) -> io::Result<()> {
        self.workers.jobs.submit(life).map_err(|why| match why {
            Refused::NoThread(why) => why,
            Refused::Full => io::ErrorKind::Other.into(),
        })
    }

    /// Other threads take over what this thread has read and not served, and would have served next.
    fn begin_wait(self: &Arc<Self>, worker: &Worker, limited: bool) -> Result<bool, MayNotWait> {
        if !self.with_pool(|pool| pool.begin_wait(worker, limited))? {
            return Ok(false);
        }
        self.thread_of(worker).inspect(|thread| thread.begin_wait());
        for point in self.workers.replace_receivers() {
            point.receives().inspect(|receives| receives.look_aside());
        }
        Ok(true)
    }

    fn end_wait(&self, worker: &Worker) {
        self.with_pool(|pool| pool.end_wait(worker));
        self.thread_of(worker).inspect(|thread| thread.end_wait());
    }
}

impl Point {
    /// Receives until the thread is no longer wanted here, or the server stops. Returns whether the thread was
    /// called again meanwhile.
    fn receive(&self, thread: &ServingThread) -> bool {
        // What is received from is dropped before the thread counts as one that has left.
        let rests = self.receives().is_some_and(|receives| receives.watch(thread));
        if !rests {
            self.with_pool(|pool| pool.leave(&thread.worker));
            return false;
        }
        // The thread rests among those of all points.
        if self.with_pool(|pool| pool.retire(&thread.worker)) {
            self.workers.replace_receivers();
            return false;
        }
        thread.worker.rest(&|| false);
        true
    }

    fn receives(&self) -> Option<Arc<dyn ReceivePoint>> {
        lock(&self.receives).clone()
    }

    fn close(&self) -> Option<Arc<dyn ReceivePoint>> {
        lock(&self.receives).take()
    }

    /// Has another thread receive, if none does.
    fn replace_receiver(self: &Arc<Self>) {
        let replacement = self.with_pool(|pool| pool.replace_receiver());
        replacement.into_iter().for_each(|replacement| replace(self, replacement));
        // A thread that could not be started is no longer counted.
        self.workers.wake_stop();
    }

    /// Looks as the watchdog, and passes the turns of threads that have executed the same call for long.
    fn pass_long(self: &Arc<Self>, watch: &mut Watch) {
        let long = self.look(watch);
        long.iter().filter_map(|worker| self.thread_of(worker)).for_each(|thread| thread.pass());
    }

    fn thread_of(&self, worker: &Worker) -> Option<Arc<ServingThread>> {
        lock(&self.threads).iter().find(|thread| std::ptr::eq(&*thread.worker, worker)).cloned()
    }
}

/// The thread that is at a thread. Its drop removes the thread, and wakes [`Workers::stop`].
struct LeaveGuard(Arc<ServingThread>);

impl Drop for LeaveGuard {
    fn drop(&mut self) {
        let ServingThread { point, worker, .. } = &*self.0;
        lock(&point.threads).retain(|other| !Arc::ptr_eq(other, &self.0));
        serving::serve_elsewhere(None);
        if thread::panicking() {
            // A panic of the user's code never gets here, so this is a defect of this library. The server
            // survives it.
            point.with_pool(|pool| pool.remove_panicked(worker));
            point.replace_receiver();
        }
        point.workers.wake_stop();
    }
}

/// A thread at its point.
pub(super) struct ServingThread {
    point: Arc<Point>,
    worker: Arc<Worker>,
    /// The connection whose calls it serves, with the number of its turn there.
    held: Mutex<Option<(Arc<dyn Held>, u64)>>,
}

impl ServingThread {
    /// Begins to execute a call that came as a datagram from a host.
    #[inline]
    pub(super) fn begin(&self, host: NonZero<u64>) {
        let now = || self.point.workers.env.now();
        let plan = self.point.with_pool(|pool| pool.plan(&self.worker, host.get(), Pace::Quick, now));
        self.begun(&plan);
    }

    /// Begins to act on what came, which may be calls in a row. The watchdog looks after them.
    #[inline]
    pub(super) fn begin_calls(&self) {
        let plan = self.point.with_pool(|pool| pool.plan_guarded(&self.worker));
        self.worker.end_call();
        self.begun(&plan);
    }

    /// Tells the watchdog, and a thread that stops the server, that this thread executes.
    #[inline]
    fn begun(&self, plan: &Plan) {
        if let Plan::Guarded(true) = plan {
            self.point.workers.watchdog.set();
        }
        // The server may have stopped since this thread looked, and the procedure may never end. The thread
        // that stops the server looks at the pool after it has set `stopped`. If it looked before this thread
        // was counted as executing, this thread sees `stopped` here, by the pool's lock.
        self.point.workers.wake_stop();
    }

    /// Runs one of the calls that a thread serves in a row.
    #[inline]
    pub(super) fn run<R>(&self, procedure: impl FnOnce() -> R) -> R {
        self.worker.begin_call();
        let result = procedure();
        self.worker.end_call();
        result
    }

    /// Whether the watchdog has found a call of this thread to be long, since it received.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.worker.is_long()
    }

    /// Receives again. Returns true if enough others do, and `may_rest` says so too.
    #[inline]
    pub(super) fn done(&self, may_rest: impl FnOnce() -> bool) -> bool {
        self.point.with_pool(|pool| {
            pool.done(&self.worker);
            may_rest() && pool.rest(&self.worker)
        })
    }

    /// Has another thread receive, if none does.
    pub(super) fn replace_receiver(&self) {
        if self.is_deserted() {
            self.point.replace_receiver();
        }
    }

    /// Whether nobody receives.
    #[inline]
    pub(super) fn is_deserted(&self) -> bool {
        self.point.receiving.load(Ordering::Relaxed) == 0
    }

    /// From now on the thread serves this connection.
    pub(super) fn hold(&self, held: Option<(Arc<dyn Held>, u64)>) {
        *lock(&self.held) = held;
    }

    fn held(&self) -> Option<(Arc<dyn Held>, u64)> {
        lock(&self.held).clone()
    }

    /// Gives up the connection that the thread serves, for others to go on with it.
    fn pass(&self) {
        self.held().inspect(|(held, turn)| held.pass(*turn));
    }

    fn begin_wait(&self) {
        self.held().inspect(|(held, turn)| {
            held.pass(*turn);
            held.count_waiting(true);
        });
    }

    fn end_wait(&self) {
        self.held().inspect(|(held, _)| held.count_waiting(false));
    }
}

#[cfg(test)]
mod tests;
