//! The threads of a server, of which never more than so many execute, and the watchdog that looks after them.
//!
//! A thread waits at a *receive point* (a socket, or all connections together) and runs the procedures of the
//! calls that it finds there itself: to hand a call over costs more than most procedures. So that a long one
//! does not hold up others, another thread receives there: before a procedure that is known to be slow, and
//! otherwise as soon as the *watchdog* sees a thread in the same procedure at two of its looks. The watchdog
//! sleeps while nothing happens.
//!
//! Orderings: SeqCst where one thread writes a word of these and then reads another, which a second thread
//! writes and reads the other way round, so that at least one of them sees what the other wrote. The pairs are
//! `turn` of a worker and `awake` (a thread that begins to execute, and the watchdog before it sleeps);
//! `stopped` and `present`, `executing` (`stop`, and a thread that leaves); `waiting` and `called` (a thread
//! that leaves a point, and the watchdog); `aside` and the number of calls put aside (a procedure that waits,
//! and a receiver that puts a call aside); `sweeping` and what is to be swept.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use farcall::env::{Condition, Env, Time};
use farcall::workers::{Jobs, Refused};
use farcall::{CallFailed, Kind, Ran, lock, serving};

use super::caller;
use super::hosts::SHARE;
use super::peer::PeerConnection;

/// Where threads wait for calls.
pub(super) trait ReceivePoint: Send + Sync {
    /// Waits, and serves, until the server stops or enough others wait.
    fn watch(&self, worker: &Arc<Worker>);

    /// The threads that receive here.
    fn receivers(&self) -> &Arc<Receivers>;

    /// Makes one who waits look whether the server has stopped.
    fn wake(&self);

    /// Has the point look whether calls that it has put aside may be executed now, because fewer others
    /// execute.
    fn look_aside(&self) {}

    /// Acts on what has taken too long; gives how long it need not be asked again.
    fn sweep(&self, _now: Time) -> Option<Duration> {
        None
    }
}

/// What a thread serves, and another thread can go on with.
pub(super) trait Held: Send + Sync {
    /// Has another thread go on, unless this turn has ended.
    fn pass(&self, turn: u64);
}

/// The threads that receive at a point.
#[derive(Default)]
pub(super) struct Receivers {
    waiting: AtomicUsize,
    /// Who belongs to the point or is on the way there, and who of them executes.
    present: AtomicUsize,
    executing: AtomicUsize,
    /// Counts those who began to wait; and what that was when the watchdog last looked.
    arrivals: AtomicU64,
    seen: AtomicU64,
    /// One more was called, and has not come yet.
    called: AtomicBool,
}

impl Receivers {
    /// A thread that was called has come. From now on another may be called: this one may execute something
    /// before it waits.
    pub(super) fn come(&self) {
        self.called.store(false, Ordering::Relaxed);
    }

    /// Begins to wait; false if `enough` do.
    #[inline]
    pub(super) fn arrive(&self, enough: usize) -> bool {
        self.come();
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= enough {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        self.arrivals.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Executes, which stops nobody from ending the point.
    #[inline]
    pub(super) fn execute<R>(&self, serve: impl FnOnce() -> R) -> R {
        self.executing.fetch_add(1, Ordering::SeqCst);
        let result = serve();
        self.executing.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Whether all who belong to the point execute.
    fn is_left(&self) -> bool {
        self.present.load(Ordering::SeqCst) == self.executing.load(Ordering::SeqCst)
    }

    /// Has done waiting; true if nobody else waits.
    #[inline]
    pub(super) fn leave(&self) -> bool {
        self.waiting.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Whether nobody waits.
    #[inline]
    pub(super) fn is_deserted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }
}

/// The threads.
pub(crate) struct Pool {
    env: Arc<dyn Env>,
    /// The threads. Those that wait for calls of their own do not count.
    jobs: Arc<Jobs>,
    state: Mutex<State>,
    /// Somebody has left a point, or the watchdog has ended.
    left: Condition,
    /// How many execute, at most, and how many more may wait for calls of their own.
    limit: usize,
    max_aside: usize,
    /// Hosts' shares matter while more threads than this run jobs: more than half of those that may execute
    /// procedures, and one that waits at each point.
    busy_above: AtomicUsize,
    stopped: AtomicBool,
    /// The watchdog looks now and then.
    awake: AtomicBool,
    watchdog: Condition,
    /// It will act on what takes too long.
    sweeping: AtomicBool,
}

#[derive(Default)]
struct State {
    points: Vec<Arc<dyn ReceivePoint>>,
    workers: Vec<Arc<Worker>>,
    /// Threads that wait for calls of their own: at most `Pool::max_aside`.
    aside: usize,
    /// The watchdog is to look at once.
    asked: bool,
    /// It is to act on what takes too long within this time.
    within: Option<Duration>,
    /// The watchdog lives. It holds the points while it looks.
    watched: bool,
}

/// How long between two looks of the watchdog.
const NAP: Duration = Duration::from_millis(1);
/// After so many looks at which nothing had happened it sleeps.
const QUIET: u32 = 16;

impl Pool {
    /// No threads yet, of which `limit` will execute at once, at most, and `max_aside` more may wait for
    /// calls of their own.
    pub(crate) fn new(env: Arc<dyn Env>, limit: usize, max_aside: usize) -> Arc<Pool> {
        let limit = limit.max(1);
        Arc::new(Pool {
            jobs: Jobs::new(env.clone(), "onc-worker", limit, usize::MAX),
            env,
            state: Mutex::default(),
            left: Condition::default(),
            limit,
            max_aside,
            busy_above: AtomicUsize::new(limit / 2),
            stopped: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            watchdog: Condition::default(),
            sweeping: AtomicBool::new(false),
        })
    }

    /// Starts the watchdog.
    pub(super) fn start_watchdog(self: &Arc<Self>) -> io::Result<()> {
        self.lock().watched = true;
        let watchdog = Watchdog(self.clone());
        self.env.spawn("onc-watchdog", Box::new(move || watchdog.0.keep()))
    }

    /// Has a first thread receive at a point.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn receive_at(self: &Arc<Self>, point: Arc<dyn ReceivePoint>) -> io::Result<()> {
        // Somebody may wait at each point, however many execute.
        self.jobs.allow_one_more();
        self.busy_above.fetch_add(1, Ordering::Relaxed);
        self.lock().points.push(point.clone());
        match self.send_to(point) {
            Err(Refused::NoThread(why)) => Err(why),
            Err(Refused::Full) | Ok(()) => Ok(()),
        }
    }

    fn send_to(self: &Arc<Self>, point: Arc<dyn ReceivePoint>) -> Result<(), Refused> {
        let list = point.receivers().clone();
        list.present.fetch_add(1, Ordering::SeqCst);
        let present = Present { pool: self.clone(), list, point: Some(point) };
        self.submit(move |worker| present.point.iter().for_each(|point| point.watch(worker)))
    }

    /// Has a thread of the pool do this, as soon as there is one.
    pub(super) fn submit(
        self: &Arc<Self>,
        job: impl FnOnce(&Arc<Worker>) + Send + 'static,
    ) -> Result<(), Refused> {
        let pool = self.clone();
        self.jobs.submit(Box::new(move || pool.work(job)))
    }

    /// How many procedures may run at once.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Whether so many threads execute procedures that hosts' shares matter.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.jobs.busy() > self.busy_above.load(Ordering::Relaxed)
    }

    /// Whether one more call of a host, of those that come as datagrams, may execute. One call of each host
    /// always may. A host that is alone may have four fifths of all; the rest is left for other hosts.
    #[cold]
    pub(super) fn may_execute(&self, host: NonZero<u64>) -> bool {
        let (mut all, mut own) = (0, 0);
        for worker in self.lock().workers.iter().filter(|worker| worker.executes()) {
            all += 1;
            own += usize::from(worker.host.load(Ordering::Relaxed) == host.get());
        }
        own == 0 || own < SHARE * self.limit.saturating_sub(all)
    }

    /// No thread receives at a point, and one is about to execute: calls another.
    pub(super) fn replace_receiver(self: &Arc<Self>, list: &Receivers) {
        self.call_receiver(list, 1);
    }

    /// Calls one more thread to a point at which fewer than `than` wait.
    fn call_receiver(self: &Arc<Self>, list: &Receivers, than: usize) {
        if list.waiting.load(Ordering::SeqCst) >= than || list.called.swap(true, Ordering::SeqCst) {
            return;
        }
        let point = self.lock().points.iter().find(|point| std::ptr::eq(&**point.receivers(), list)).cloned();
        if let Some(point) = point {
            // If there is no thread, the watchdog looks again.
            if self.send_to(point).is_err() {
                list.called.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Has the watchdog look after who begins to execute now.
    #[inline]
    pub(super) fn guard(&self) {
        if !self.is_guarded() {
            self.wake_watchdog();
        }
    }

    /// Whether the watchdog looks after who executes.
    #[inline]
    pub(super) fn is_guarded(&self) -> bool {
        self.awake.load(Ordering::SeqCst)
    }

    #[cold]
    fn wake_watchdog(&self) {
        self.awake.store(true, Ordering::SeqCst);
        self.lock().asked = true;
        self.watchdog.notify_one();
    }

    /// There is something that may take too long.
    pub(super) fn sweep_later(&self) {
        if !self.sweeping.load(Ordering::SeqCst) {
            self.lock().asked = true;
            self.watchdog.notify_one();
        }
    }

    /// There is something that is to be looked at within this time, however long nothing else takes.
    pub(super) fn sweep_within(&self, time: Duration) {
        let mut state = self.lock();
        state.asked = true;
        state.within = Some(state.within.map_or(time, |within| within.min(time)));
        self.watchdog.notify_one();
    }

    /// Has everybody leave, and waits until only who executes has not. Procedures that run end by themselves.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let points = {
            let mut state = self.lock();
            state.asked = true;
            std::mem::take(&mut state.points)
        };
        self.jobs.stop();
        self.watchdog.notify_all();
        points.iter().for_each(|point| point.wake());
        let lists: Vec<_> = points.iter().map(|point| point.receivers().clone()).collect();
        drop(points);
        let mut state = self.lock();
        // A thread that unwinds waits for nobody.
        while (state.watched || !lists.iter().all(|list| list.is_left())) && !thread::panicking() {
            state = self.left.wait(&self.env, &self.state, state, None).0;
        }
    }

    /// Somebody has left a point.
    fn left(&self) {
        if self.is_stopped() {
            drop(self.lock());
            self.left.notify_all();
        }
    }

    /// Does a job as a thread of the pool.
    fn work(self: &Arc<Self>, job: impl FnOnce(&Arc<Worker>)) {
        let worker = Arc::new(Worker::default());
        self.lock().workers.push(worker.clone());
        let _working = Working { pool: self, worker: &worker };
        let member = Member { pool: self.clone(), worker: worker.clone(), connection: Mutex::default() };
        serving::serve_elsewhere(Some(Arc::new(member)));
        job(&worker);
    }

    /// The watchdog's life.
    fn keep(self: &Arc<Self>) {
        let (mut quiet, mut progress) = (0, 0);
        let mut sweep = Some(Duration::ZERO);
        let mut swept = self.env.now();
        while !self.is_stopped() {
            let (workers, points) = self.rest(&mut sweep);
            let done = workers.iter().map(|worker| worker.look()).fold(0, u64::wrapping_add);
            let arrivals = points.iter().map(|point| self.look(&**point)).fold(0, u64::wrapping_add);
            let moved = std::mem::replace(&mut progress, done.wrapping_add(arrivals)) != progress;
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > QUIET {
                self.awake.store(false, Ordering::SeqCst);
                // Somebody may have begun before that could be seen.
                if workers.iter().any(|worker| worker.is_unguarded()) {
                    self.awake.store(true, Ordering::SeqCst);
                } else {
                    points.iter().for_each(|point| self.call_receiver(point.receivers(), 2));
                }
            }
            let now = self.env.now();
            if sweep.is_none_or(|after| now.since(swept) >= after) {
                // Before it looks: what begins after that look is then told of.
                self.sweeping.store(false, Ordering::SeqCst);
                sweep = points.iter().filter_map(|point| point.sweep(now)).min();
                self.sweeping.store(sweep.is_some(), Ordering::SeqCst);
                swept = now;
            }
        }
    }

    /// Waits for the next look. `sweep` is when to act on what takes too long, which may become sooner.
    fn rest(&self, sweep: &mut Option<Duration>) -> (Vec<Arc<Worker>>, Vec<Arc<dyn ReceivePoint>>) {
        let mut state = self.lock();
        while !std::mem::take(&mut state.asked) {
            let nap = if self.awake.load(Ordering::SeqCst) { Some(NAP) } else { *sweep };
            let notified;
            (state, notified) = self.watchdog.wait(&self.env, &self.state, state, nap);
            if !notified {
                break;
            }
        }
        *sweep = [*sweep, state.within.take()].into_iter().flatten().min();
        (state.workers.clone(), state.points.clone())
    }

    /// Calls a thread to a point that none has come back to since the last look.
    fn look(self: &Arc<Self>, point: &dyn ReceivePoint) -> u64 {
        let list = point.receivers();
        let arrivals = list.arrivals.load(Ordering::Relaxed);
        if list.seen.swap(arrivals, Ordering::Relaxed) == arrivals {
            self.replace_receiver(list);
        }
        arrivals
    }

    /// Returns the state if one more thread may wait for a call of its own.
    fn room_aside(&self) -> Result<MutexGuard<'_, State>, CallFailed> {
        let state = self.lock();
        if state.aside < self.max_aside {
            return Ok(state);
        }
        let why = "too many procedures of this server wait in calls of their own";
        Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that looks after the others.
struct Watchdog(Arc<Pool>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.lock().watched = false;
        self.0.left.notify_all();
    }
}

/// A thread that does a job of the pool's, which knows its worker meanwhile.
struct Working<'c> {
    pool: &'c Pool,
    worker: &'c Arc<Worker>,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        serving::serve_elsewhere(None);
        self.pool.lock().workers.retain(|other| !Arc::ptr_eq(other, self.worker));
    }
}

/// Who belongs to a point, from when a thread is wanted there until that has left, or will not come.
struct Present {
    pool: Arc<Pool>,
    list: Arc<Receivers>,
    point: Option<Arc<dyn ReceivePoint>>,
}

impl Drop for Present {
    fn drop(&mut self) {
        // Its socket is closed by the last.
        self.point = None;
        self.list.present.fetch_sub(1, Ordering::SeqCst);
        self.pool.left();
    }
}

/// A thread, as the watchdog sees it.
#[derive(Default)]
pub(super) struct Worker {
    /// Odd while it is in a procedure.
    turn: AtomicU64,
    /// Its value when the watchdog last looked.
    seen: AtomicU64,
    /// The number of the host whose call the thread executes, if the call came as a datagram; otherwise 0.
    host: AtomicU64,
    /// The procedure waits in a call of its own.
    aside: AtomicBool,
    /// The connection whose calls it serves, with the number of its turn there.
    held: Mutex<Option<(Arc<dyn Held>, u64)>>,
}

impl Worker {
    /// Runs a procedure. True: it took so long that the thread was relieved.
    #[inline]
    pub(super) fn run<R>(&self, procedure: impl FnOnce() -> R) -> (R, bool) {
        // Nobody else writes it.
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn + 1, Ordering::SeqCst);
        let result = procedure();
        self.turn.store(turn + 2, Ordering::SeqCst);
        (result, self.seen.load(Ordering::Relaxed) == turn + 1 + SEEN_TWICE)
    }

    /// Runs a procedure, as [`Worker::run`], for a call that this host sent as a datagram.
    #[inline]
    pub(super) fn run_for<R>(&self, host: NonZero<u64>, procedure: impl FnOnce() -> R) -> (R, bool) {
        self.host.store(host.get(), Ordering::Relaxed);
        let run = self.run(procedure);
        self.host.store(0, Ordering::Relaxed);
        run
    }

    /// Whether the thread executes a procedure that does not wait in a call of its own.
    fn executes(&self) -> bool {
        self.turn.load(Ordering::SeqCst) % 2 == 1 && !self.aside.load(Ordering::SeqCst)
    }

    /// From now on it serves this connection.
    pub(super) fn hold(&self, held: Option<(Arc<dyn Held>, u64)>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    /// Gives up the connection that it serves, for others to go on with it.
    fn pass_turn(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((connection, turn)) = held {
            connection.pass(turn);
        }
    }

    /// Whether it is in a procedure, and was not found there twice.
    fn is_unguarded(&self) -> bool {
        let turn = self.turn.load(Ordering::SeqCst);
        turn % 2 == 1 && self.seen.load(Ordering::Relaxed) != turn + SEEN_TWICE
    }

    fn look(&self) -> u64 {
        let turn = self.turn.load(Ordering::SeqCst);
        let seen = self.seen.load(Ordering::Relaxed);
        if turn % 2 == 1 && seen == turn {
            self.pass_turn();
            self.seen.store(turn + SEEN_TWICE, Ordering::Relaxed);
        } else if seen != turn + SEEN_TWICE {
            self.seen.store(turn, Ordering::Relaxed);
        }
        turn
    }
}

/// Added to a turn that was seen twice.
const SEEN_TWICE: u64 = 1 << 63;

/// A thread of the pool, to the calls that its procedures make.
struct Member {
    pool: Arc<Pool>,
    worker: Arc<Worker>,
    /// The connection of the call that waits in a call of its own: its host's calls under way are one fewer
    /// meanwhile.
    connection: Mutex<Option<Arc<dyn PeerConnection>>>,
}

impl Member {
    /// Has other threads take over what this thread has read and not served, and would have served next.
    fn step_aside(&self) {
        self.pool.jobs.allow_one_more();
        self.worker.pass_turn();
        self.worker.aside.store(true, Ordering::SeqCst);
        let connection = caller::connection();
        connection.iter().for_each(|connection| connection.count_waiting(true));
        *lock(&self.connection) = connection;
        let points = self.pool.lock().points.clone();
        for point in points {
            self.pool.replace_receiver(point.receivers());
            point.look_aside();
        }
    }

    fn is_aside(&self) -> bool {
        self.worker.aside.load(Ordering::SeqCst)
    }
}

/// A wait of a procedure for a call of its own, or for a group of them, by any protocol.
impl serving::WorkerPool for Member {
    fn may_wait(&self) -> Result<(), CallFailed> {
        self.pool.room_aside().map(drop)
    }

    fn begin_wait(&self) -> bool {
        if self.is_aside() {
            return false;
        }
        // Threads that asked at the same time may exceed the bound by as many as execute.
        self.pool.lock().aside += 1;
        self.step_aside();
        true
    }

    fn try_begin_wait(&self) -> Result<bool, CallFailed> {
        if self.is_aside() {
            return Ok(false);
        }
        self.pool.room_aside()?.aside += 1;
        self.step_aside();
        Ok(true)
    }

    fn end_wait(&self) {
        self.pool.lock().aside -= 1;
        self.pool.jobs.allow_one_fewer();
        self.worker.aside.store(false, Ordering::SeqCst);
        lock(&self.connection).take().inspect(|connection| connection.count_waiting(false));
    }
}
