//! A server's threads: they receive calls and execute them, a bounded number at a time. A watchdog looks
//! after them.
//!
//! A thread waits at a *receive point*, which is a UDP socket or the set of all connections, and itself runs
//! the procedures of the calls that it receives there. Each point has a [`Pool`], which decides when another
//! thread receives there. The points share a budget of threads, the idle threads, and the watchdog.
//!
//! Orderings: `checks_timeouts` is SeqCst. The watchdog clears `checks_timeouts` and then looks for
//! connections; another thread adds a connection and then reads `checks_timeouts`. So at least one of the two
//! sees what the other wrote.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use farcall::env::{Condition, Env, Event, Time};
use farcall::host::HOST_SHARE;
use farcall::lock;
use farcall::serving::{self, WorkerPool};
use farcall::workers::{
    Carrier, Habit, Job, Jobs, MayNotWait, Pace, Plan, Pool, Refused, Threads, Watch, Worker, replace, start,
};

/// A place where threads wait for calls: a UDP socket, or the set of all connections.
pub(super) trait ReceivePoint: Send + Sync {
    /// Receives and serves calls until the server stops or enough other threads receive here. Returns true in
    /// the second case: the thread is to rest.
    fn watch(&self, thread: &ServingThread) -> bool;

    /// Makes a waiting thread check whether the server has stopped.
    fn wake(&self);

    /// Makes the point check whether calls that it has put aside can execute now. The pool calls this when
    /// fewer threads execute than before.
    fn look_aside(&self) {}

    /// Closes connections that have been silent, or whose records have been incomplete, for too long. Returns
    /// after how long to check again, or `None` if there is nothing to check until
    /// [`Workers::watch_timeouts`] is called.
    fn check_timeouts(&self, _now: Time) -> Option<Duration> {
        None
    }
}

/// A connection whose calls one thread serves, and which another thread can take over.
pub(super) trait Held: Send + Sync {
    /// Lets another thread take over, unless the turn with this number has ended.
    fn pass(&self, turn: u64);

    /// Notes that a call under way begins to wait in a remote call of its own (`begins`), or no longer waits.
    /// A waiting call does not count as under way.
    fn count_waiting(&self, begins: bool);
}

/// The threads of a server, at all its points.
pub(crate) struct Workers {
    env: Arc<dyn Env>,
    /// Runs the threads. An idle thread can go to any point.
    jobs: Arc<Jobs>,
    /// The number of threads that the server can have, besides one receiving thread for each point.
    budget: Arc<Threads>,
    /// How many procedures can run at once.
    limit: usize,
    stopped: AtomicBool,
    state: Mutex<State>,
    /// Notified while the server stops, when a thread has left a point or begun to execute there, and when
    /// the watchdog has ended.
    changed: Condition,
    /// Wakes the watchdog.
    watchdog: Arc<dyn Event>,
    /// Whether the watchdog will call [`ReceivePoint::check_timeouts`] by itself.
    checks_timeouts: AtomicBool,
    /// How often the watchdog looks, and when it sleeps.
    habit: Habit,
}

#[derive(Default)]
struct State {
    points: Vec<Arc<Point>>,
    /// Within this time the watchdog is to call [`ReceivePoint::check_timeouts`].
    within: Option<Duration>,
    /// Whether the watchdog's thread runs. It holds references to the points.
    watched: bool,
}

/// The shortest time between two looks of the watchdog. After it is woken, the watchdog looks first after
/// this time.
const FIRST_NAP: Duration = Duration::from_millis(1);
/// The watchdog sleeps after this many looks in a row that found nothing new. If threads can linger at
/// connections, it looks more often, for as long as a thread can linger.
const QUIET_LOOKS: u32 = 8;

impl Workers {
    /// Makes a pool without threads. At most `limit` threads execute at once, and `max_waiting` more can wait
    /// in remote calls of their own. `lingers` is how long a thread can linger at a connection that it
    /// served.
    pub(super) fn new(
        env: Arc<dyn Env>,
        limit: usize,
        max_waiting: usize,
        lingers: Duration,
    ) -> Arc<Workers> {
        let looks = u32::try_from(lingers.as_millis() / FIRST_NAP.as_millis()).unwrap_or(u32::MAX);
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

    /// Starts the watchdog's thread.
    pub(super) fn start_watchdog(self: &Arc<Self>) -> io::Result<()> {
        self.lock().watched = true;
        let watchdog = Watchdog(self.clone());
        self.env.spawn("onc-watchdog", Box::new(move || watchdog.0.watch_points()))
    }

    /// Adds a receive point with its pool, and starts its first thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
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

    /// Makes a pool for one point.
    pub(super) fn pool(&self) -> Pool {
        Pool::new(usize::MAX, self.budget.clone())
    }

    pub(super) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Returns how many procedures can run at once.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns whether so many threads are busy that each host is limited to its share of the threads.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.budget.is_half_taken()
    }

    /// Returns whether one more call that came as a datagram from this host can execute. One call of each
    /// host always can. A single host can have four fifths of all threads; the rest is left for other hosts.
    #[cold]
    pub(super) fn may_execute(&self, host: NonZero<u64>) -> bool {
        let points = self.lock().points.clone();
        let computing = points.iter().map(|point| point.with_pool(|pool| pool.computing(host.get())));
        let (all, own) = computing.fold((0, 0), |sum, (all, own)| (sum.0 + all, sum.1 + own));
        own == 0 || own < HOST_SHARE * self.limit.saturating_sub(all)
    }

    /// Lets another thread receive at each point where none does, after a thread has become free. Returns the
    /// points.
    fn replace_receivers(&self) -> Vec<Arc<Point>> {
        let points = self.lock().points.clone();
        points.iter().for_each(|point| point.replace_receiver());
        points
    }

    /// Makes the watchdog check timeouts regularly from now on, because there is a connection.
    pub(super) fn watch_timeouts(&self) {
        if !self.checks_timeouts.load(Ordering::SeqCst) {
            self.watchdog.set();
        }
    }

    /// Makes the watchdog check timeouts within this time.
    pub(super) fn check_timeouts_within(&self, time: Duration) {
        let within = &mut self.lock().within;
        *within = Some(within.map_or(time, |within| within.min(time)));
        self.watchdog.set();
    }

    /// Stops the server: makes all threads leave, and waits until each remaining thread executes a procedure.
    /// Such a thread leaves when its procedure returns.
    pub(crate) fn stop(&self) {
        self.leave_points();
        // `jobs` is closed last, because the threads of this pool need it until they have left.
        self.jobs.close();
    }

    /// Stops the server, and waits until all procedures have returned, but not longer than until then.
    /// Returns whether they have.
    pub(super) fn finish(&self, until: Time) -> bool {
        let points = self.leave_points();
        let has_left = || points.iter().all(|point| point.with_pool(|pool| pool.is_empty()));
        let mut state = self.lock();
        while !has_left() && self.env.now() < until {
            let rest = until.since(self.env.now());
            state = self.changed.wait(&self.env, &self.state, state, Some(rest)).0;
        }
        drop(state);
        self.jobs.close();
        has_left()
    }

    /// Makes all threads leave, and waits until each remaining thread executes a procedure. Returns the
    /// points.
    fn leave_points(&self) -> Vec<Arc<Point>> {
        self.stopped.store(true, Ordering::SeqCst);
        let points = std::mem::take(&mut self.lock().points);
        self.watchdog.set();
        points.iter().filter_map(|point| point.close()).for_each(|receives| receives.wake());
        let mut state = self.lock();
        // A panicking thread does not wait, because it may be one of the threads that it would wait for.
        let is_left = |point: &Arc<Point>| point.with_pool(|pool| pool.all_execute());
        while (state.watched || !points.iter().all(is_left)) && !thread::panicking() {
            state = self.changed.wait(&self.env, &self.state, state, None).0;
        }
        drop(state);
        points
    }

    /// Wakes the thread in [`Workers::stop`], if the server is being stopped. To be called when a thread has
    /// left a point, or executes there.
    #[inline]
    fn wake_stop(&self) {
        if self.is_stopped() {
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Runs the watchdog until the server stops.
    fn watch_points(&self) {
        let mut watches: Vec<(Arc<Point>, Watch)> = Vec::new();
        let mut check_timeouts = Some(Duration::ZERO);
        let mut checked = self.env.now();
        while !self.is_stopped() {
            self.add_points(&mut watches, &mut check_timeouts);
            watches.iter_mut().for_each(|(point, watch)| point.pass_long(watch));
            let now = self.env.now();
            if check_timeouts.is_none_or(|after| now.since(checked) >= after) {
                // The flag is cleared before the check, so that a connection that begins after the check
                // wakes the watchdog.
                self.checks_timeouts.store(false, Ordering::SeqCst);
                check_timeouts =
                    watches.iter().filter_map(|(point, _)| point.receives()?.check_timeouts(now)).min();
                self.checks_timeouts.store(check_timeouts.is_some(), Ordering::SeqCst);
                checked = now;
            }
            let naps = watches.iter().filter_map(|(_, watch)| watch.nap());
            self.watchdog.wait(naps.chain(check_timeouts).min());
        }
    }

    /// Adds new points to `watches`, and brings `check_timeouts` forward if another thread asked for that.
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

/// The watchdog. Its drop tells [`Workers::stop`] that it has ended.
struct Watchdog(Arc<Workers>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.lock().watched = false;
        self.0.changed.notify_all();
    }
}

/// A receive point with its threads.
struct Point {
    workers: Arc<Workers>,
    pool: Mutex<Pool>,
    /// A copy of the pool's number of receiving threads, which can be read without the lock.
    receiving: AtomicUsize,
    /// What the threads receive from; `None` once the server has stopped. The last thread that drops it
    /// closes the socket.
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

    /// Runs the life of a worker in an idle thread, or in a new one.
    fn spawn(&self, life: Job) -> io::Result<()> {
        self.workers.jobs.submit(life).map_err(|why| match why {
            Refused::NoThread(why) => why,
            Refused::Full => io::ErrorKind::Other.into(),
        })
    }

    /// Lets other threads take over the records that this thread has read and not served yet.
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
    /// Receives until the thread is no longer needed here, or the server stops. Returns true if the thread
    /// rested and was called back.
    fn receive(&self, thread: &ServingThread) -> bool {
        // The reference to the receive point is dropped before the thread counts as gone.
        let rests = self.receives().is_some_and(|receives| receives.watch(thread));
        if !rests {
            self.with_pool(|pool| pool.leave(&thread.worker));
            return false;
        }
        // The thread leaves this point, and is idle for all points.
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

    /// Lets another thread receive here, if none does.
    fn replace_receiver(self: &Arc<Self>) {
        let replacement = self.with_pool(|pool| pool.replace_receiver());
        replacement.into_iter().for_each(|replacement| replace(self, replacement));
        // A thread that could not be started is no longer counted.
        self.workers.wake_stop();
    }

    /// Looks at the pool as its watchdog. Ends the turn of each thread that has executed the same call since
    /// the last look.
    fn pass_long(self: &Arc<Self>, watch: &mut Watch) {
        let long = self.look(watch);
        long.iter().filter_map(|worker| self.thread_of(worker)).for_each(|thread| thread.pass());
    }

    fn thread_of(&self, worker: &Worker) -> Option<Arc<ServingThread>> {
        lock(&self.threads).iter().find(|thread| std::ptr::eq(&*thread.worker, worker)).cloned()
    }
}

/// Removes a thread from its point when it is dropped, and wakes [`Workers::stop`].
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

/// A thread that serves at a point.
pub(super) struct ServingThread {
    point: Arc<Point>,
    worker: Arc<Worker>,
    /// The connection whose calls the thread serves, and the number of the thread's turn there.
    held: Mutex<Option<(Arc<dyn Held>, u64)>>,
}

impl ServingThread {
    /// Notes that the thread begins to execute a call that came as a datagram from `host`.
    #[inline]
    pub(super) fn begin(&self, host: NonZero<u64>) {
        let now = || self.point.workers.env.now();
        let plan = self.point.with_pool(|pool| pool.plan(&self.worker, host.get(), Pace::Quick, now));
        self.begun(&plan);
    }

    /// Notes that the thread begins to serve a connection, which may have several calls in a row. The
    /// watchdog looks after it.
    #[inline]
    pub(super) fn begin_calls(&self) {
        let plan = self.point.with_pool(|pool| pool.plan_guarded(&self.worker));
        self.worker.end_call();
        self.begun(&plan);
    }

    /// Tells the watchdog, and a thread that is stopping the server, that this thread executes.
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

    /// Runs one of several calls that the thread serves in a row.
    #[inline]
    pub(super) fn run<R>(&self, procedure: impl FnOnce() -> R) -> R {
        self.worker.begin_call();
        let result = procedure();
        self.worker.end_call();
        result
    }

    /// Returns whether the watchdog has found a call of this thread to take long, since the thread last
    /// received.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.worker.is_long()
    }

    /// Notes that the thread has executed, and receives again. Returns true if the thread is to rest instead:
    /// enough other threads receive, and `may_rest` returns true.
    #[inline]
    pub(super) fn done(&self, may_rest: impl FnOnce() -> bool) -> bool {
        self.point.with_pool(|pool| {
            pool.done(&self.worker);
            may_rest() && pool.rest(&self.worker)
        })
    }

    /// Lets another thread receive here, if none does.
    pub(super) fn replace_receiver(&self) {
        if self.is_deserted() {
            self.point.replace_receiver();
        }
    }

    /// Returns whether no thread receives at this point.
    #[inline]
    pub(super) fn is_deserted(&self) -> bool {
        self.point.receiving.load(Ordering::Relaxed) == 0
    }

    /// Sets the connection that the thread serves from now on.
    pub(super) fn hold(&self, held: Option<(Arc<dyn Held>, u64)>) {
        *lock(&self.held) = held;
    }

    fn held(&self) -> Option<(Arc<dyn Held>, u64)> {
        lock(&self.held).clone()
    }

    /// Lets another thread take over the connection that this thread serves.
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
