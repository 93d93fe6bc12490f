//! The threads of a server, of which never more than so many execute, and who looks after them.
//!
//! A thread waits at a *post* (a socket, or all connections together) and runs the procedures of the calls that it finds
//! there itself: to hand a call over costs more than most procedures. So that a long one does not hold up others, another
//! thread takes the post: before a procedure that is known to be slow, and otherwise as soon as the *keeper* sees that
//! a thread has been in the same procedure at two of its looks. The keeper sleeps while nothing happens.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use farcall::env::{Condition, Env, Time};
use farcall::guard;

use super::caller;
use super::hosts::SHARE;
use super::peer::PeerConnection;
use crate::wait_guard::{self, WorkerPool};

/// What a thread is wanted for.
type Job = Box<dyn FnOnce(&Arc<Seat>) + Send>;

/// Where threads wait for calls.
pub(super) trait Post: Send + Sync {
    /// Waits, and serves, until the server stops or enough others wait.
    fn watch(&self, seat: &Arc<Seat>);

    /// Who waits there.
    fn watch_list(&self) -> &Arc<WatchList>;

    /// Makes one who waits look whether the server has stopped.
    fn wake(&self);

    /// Has the post look whether calls that it has put aside may be executed now, because fewer others
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

/// Who waits at a post.
#[derive(Default)]
pub(super) struct WatchList {
    waiting: AtomicUsize,
    /// Who belongs to the post or is on the way there, and who of them executes.
    present: AtomicUsize,
    executing: AtomicUsize,
    /// Counts those who began to wait; and what that was when the keeper last looked.
    arrivals: AtomicU64,
    seen: AtomicU64,
    /// One more was called, and has not come yet.
    called: AtomicBool,
}

impl WatchList {
    /// Begins to wait; false if `enough` do.
    #[inline]
    pub(super) fn arrive(&self, enough: usize) -> bool {
        self.called.store(false, Ordering::Relaxed);
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= enough {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        self.arrivals.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Executes, which stops nobody from ending the post.
    #[inline]
    pub(super) fn execute<R>(&self, serve: impl FnOnce() -> R) -> R {
        self.executing.fetch_add(1, Ordering::SeqCst);
        let result = serve();
        self.executing.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Whether all who belong to the post execute.
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
pub(crate) struct Crew {
    env: Arc<dyn Env>,
    state: Mutex<State>,
    /// There is a job, or somebody has left.
    bell: Condition,
    /// How many execute, at most, and how many more may wait for calls of their own.
    limit: usize,
    most_aside: usize,
    stopped: AtomicBool,
    /// The keeper looks now and then.
    awake: AtomicBool,
    keeper: Condition,
    /// It will act on what takes too long.
    sweeping: AtomicBool,
    /// Whether more than half of the threads that may execute procedures seem to do so.
    busy: AtomicBool,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    posts: Vec<Arc<dyn Post>>,
    seats: Vec<Arc<Seat>>,
    idle: usize,
    threads: usize,
    /// Threads that wait for calls of their own, which do not count: at most `Crew::most_aside`.
    aside: usize,
    /// The keeper is to look at once.
    asked: bool,
    /// It is to act on what takes too long within this time.
    within: Option<Duration>,
    /// The keeper lives. It holds the posts while it looks.
    kept: bool,
}

/// How long between two looks of the keeper.
const NAP: Duration = Duration::from_millis(1);
/// After so many looks at which nothing had happened it sleeps.
const QUIET: u32 = 16;
/// A thread that is not needed for so long ends.
const PATIENCE: Duration = Duration::from_secs(10);

impl Crew {
    /// No threads yet, of which `limit` will execute at once, at most, and `most_aside` more may wait for calls of their own.
    pub(crate) fn new(env: Arc<dyn Env>, limit: usize, most_aside: usize) -> Arc<Crew> {
        Arc::new(Crew {
            env,
            state: Mutex::default(),
            bell: Condition::default(),
            limit: limit.max(1),
            most_aside,
            stopped: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            keeper: Condition::default(),
            sweeping: AtomicBool::new(false),
            busy: AtomicBool::new(false),
        })
    }

    /// Has somebody look after those who wait at posts.
    pub(super) fn start_keeper(self: &Arc<Self>) -> io::Result<()> {
        self.lock().kept = true;
        let keeper = Keeper(self.clone());
        self.env.spawn("onc-keeper", Box::new(move || keeper.0.keep()))
    }

    /// Puts a first thread at a post.
    pub(super) fn man(self: &Arc<Self>, post: Arc<dyn Post>) {
        self.lock().posts.push(post.clone());
        self.send_to(post);
    }

    fn send_to(self: &Arc<Self>, post: Arc<dyn Post>) {
        let list = post.watch_list().clone();
        list.present.fetch_add(1, Ordering::SeqCst);
        let present = Present { crew: self.clone(), list, post: Some(post) };
        self.submit(Box::new(move |seat| present.post.iter().for_each(|post| post.watch(seat))));
    }

    /// How many procedures may run at once.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Has a thread do this, as soon as there is one.
    pub(super) fn submit(self: &Arc<Self>, job: Job) {
        let mut state = self.lock();
        if self.is_stopped() {
            // With nothing locked.
            drop(state);
            return drop(job);
        }
        state.jobs.push_back(job);
        self.staff(&mut state);
    }

    /// Whether so many threads execute procedures that hosts' shares matter.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether one more call of a host, of those that come as datagrams, may execute. One call of each host
    /// always may. A host that is alone may have four fifths of all; the rest is left for other hosts.
    #[cold]
    pub(super) fn may_execute(&self, host: NonZero<u64>) -> bool {
        let (mut all, mut own) = (0, 0);
        for seat in self.lock().seats.iter().filter(|seat| seat.executes()) {
            all += 1;
            own += usize::from(seat.host.load(Ordering::Relaxed) == host.get());
        }
        own == 0 || own < SHARE * self.limit.saturating_sub(all)
    }

    /// Notes whether hosts' shares matter. At least one thread waits at each post, and does not execute.
    fn note_busy(&self, state: &State) {
        let execute = state.threads.saturating_sub(state.idle + state.posts.len());
        self.busy.store(execute * 2 > self.limit, Ordering::Relaxed);
    }

    /// Sees to it that somebody will come to the jobs, if there may be one more.
    fn staff(self: &Arc<Self>, state: &mut State) {
        self.staff_quietly(state);
        self.note_busy(state);
    }

    fn staff_quietly(self: &Arc<Self>, state: &mut State) {
        if state.idle >= state.jobs.len() {
            return self.bell.notify_one();
        }
        // Somebody may wait at each post, however many execute.
        if state.threads >= self.limit + state.aside + state.posts.len() {
            return;
        }
        let (crew, seat) = (self.clone(), Arc::new(Seat::default()));
        state.seats.push(seat.clone());
        state.threads += 1;
        if self.env.spawn("onc-worker", Box::new(move || crew.work(&seat))).is_err() {
            // Those that there are will come to it.
            state.threads -= 1;
            state.seats.pop();
        }
    }

    /// A post has been left by all; somebody who is on the way to a procedure wants it manned.
    pub(super) fn relieve(self: &Arc<Self>, list: &WatchList) {
        self.reinforce(list, 1);
    }

    /// Calls one more to a post at which fewer wait.
    fn reinforce(self: &Arc<Self>, list: &WatchList, than: usize) {
        if list.waiting.load(Ordering::SeqCst) >= than || list.called.swap(true, Ordering::SeqCst) {
            return;
        }
        let post = self.lock().posts.iter().find(|post| std::ptr::eq(&**post.watch_list(), list)).cloned();
        if let Some(post) = post {
            self.send_to(post);
        }
    }

    /// Has the keeper look after who begins to execute now.
    #[inline]
    pub(super) fn guard(&self) {
        if !self.is_guarded() {
            self.rouse();
        }
    }

    /// Whether the keeper looks after who executes.
    #[inline]
    pub(super) fn is_guarded(&self) -> bool {
        self.awake.load(Ordering::SeqCst)
    }

    #[cold]
    fn rouse(&self) {
        self.awake.store(true, Ordering::SeqCst);
        self.lock().asked = true;
        self.keeper.notify_one();
    }

    /// There is something that may take too long.
    pub(super) fn mind(&self) {
        if !self.sweeping.load(Ordering::SeqCst) {
            self.lock().asked = true;
            self.keeper.notify_one();
        }
    }

    /// There is something that is to be looked at within this time, however long nothing else takes.
    pub(super) fn mind_within(&self, time: Duration) {
        let mut state = self.lock();
        state.asked = true;
        state.within = Some(state.within.map_or(time, |within| within.min(time)));
        self.keeper.notify_one();
    }

    /// Has everybody leave, and waits until only who executes has not. Procedures that run end by themselves.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let (posts, jobs) = {
            let mut state = self.lock();
            state.asked = true;
            (std::mem::take(&mut state.posts), std::mem::take(&mut state.jobs))
        };
        drop(jobs);
        self.bell.notify_all();
        self.keeper.notify_all();
        posts.iter().for_each(|post| post.wake());
        let lists: Vec<_> = posts.iter().map(|post| post.watch_list().clone()).collect();
        drop(posts);
        let mut state = self.lock();
        // A thread that unwinds waits for nobody.
        while (state.kept || !lists.iter().all(|list| list.is_left())) && !thread::panicking() {
            state = self.bell.wait(&self.env, &self.state, state, None).0;
        }
    }

    /// Somebody has left a post.
    fn left(&self) {
        if self.is_stopped() {
            drop(self.lock());
            self.bell.notify_all();
        }
    }

    /// A thread's life.
    fn work(self: &Arc<Self>, seat: &Arc<Seat>) {
        let (crew, connection) = (self.clone(), Cell::new(None));
        wait_guard::join(Some(Rc::new(Member { crew, seat: seat.clone(), connection })));
        while let Some(job) = self.next() {
            // The user's code is guarded where it runs. If anything else panics, the other threads go on.
            guard::run_alone("a server's thread", || job(seat));
        }
        wait_guard::join(None);
        let mut state = self.lock();
        state.threads -= 1;
        self.note_busy(&state);
        state.seats.retain(|other| !Arc::ptr_eq(other, seat));
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        while !self.is_stopped() {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            self.note_busy(&state);
            let notified;
            (state, notified) = self.bell.wait(&self.env, &self.state, state, Some(PATIENCE));
            state.idle -= 1;
            if !notified && state.jobs.is_empty() {
                return None;
            }
        }
        None
    }

    /// The keeper's life.
    fn keep(self: &Arc<Self>) {
        let (mut quiet, mut progress) = (0, 0);
        let mut sweep = Some(Duration::ZERO);
        let mut swept = self.env.now();
        while !self.is_stopped() {
            let (seats, posts) = self.rest(&mut sweep);
            let done = seats.iter().map(|seat| seat.look()).fold(0, u64::wrapping_add);
            let arrivals = posts.iter().map(|post| self.look(&**post)).fold(0, u64::wrapping_add);
            let moved = std::mem::replace(&mut progress, done.wrapping_add(arrivals)) != progress;
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > QUIET {
                self.awake.store(false, Ordering::SeqCst);
                // Somebody may have begun before that could be seen.
                if seats.iter().any(|seat| seat.is_unguarded()) {
                    self.awake.store(true, Ordering::SeqCst);
                } else {
                    posts.iter().for_each(|post| self.reinforce(post.watch_list(), 2));
                }
            }
            let now = self.env.now();
            if sweep.is_none_or(|after| now.since(swept) >= after) {
                // Before it looks: what begins after that look is then told of.
                self.sweeping.store(false, Ordering::SeqCst);
                sweep = posts.iter().filter_map(|post| post.sweep(now)).min();
                self.sweeping.store(sweep.is_some(), Ordering::SeqCst);
                swept = now;
            }
        }
    }

    /// Waits for the next look. `sweep` is when to act on what takes too long, which may become sooner.
    fn rest(&self, sweep: &mut Option<Duration>) -> (Vec<Arc<Seat>>, Vec<Arc<dyn Post>>) {
        let mut state = self.lock();
        while !std::mem::take(&mut state.asked) {
            let nap = if self.awake.load(Ordering::SeqCst) { Some(NAP) } else { *sweep };
            let notified;
            (state, notified) = self.keeper.wait(&self.env, &self.state, state, nap);
            if !notified {
                break;
            }
        }
        *sweep = [*sweep, state.within.take()].into_iter().flatten().min();
        (state.seats.clone(), state.posts.clone())
    }

    /// Mans a post that nobody has come back to since the last look.
    fn look(self: &Arc<Self>, post: &dyn Post) -> u64 {
        let list = post.watch_list();
        let arrivals = list.arrivals.load(Ordering::Relaxed);
        if list.seen.swap(arrivals, Ordering::Relaxed) == arrivals {
            self.relieve(list);
        }
        arrivals
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that looks after the others.
struct Keeper(Arc<Crew>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.lock().kept = false;
        self.0.bell.notify_all();
    }
}

/// Who belongs to a post, from when a thread is wanted there until that has left, or will not come.
struct Present {
    crew: Arc<Crew>,
    list: Arc<WatchList>,
    post: Option<Arc<dyn Post>>,
}

impl Drop for Present {
    fn drop(&mut self) {
        // Its socket is closed by the last.
        self.post = None;
        self.list.present.fetch_sub(1, Ordering::SeqCst);
        self.crew.left();
    }
}

/// A thread, as the keeper sees it.
#[derive(Default)]
pub(super) struct Seat {
    /// Odd while it is in a procedure.
    turn: AtomicU64,
    /// Its value when the keeper last looked.
    seen: AtomicU64,
    /// The number of the host whose call the thread executes, if the call came as a datagram; otherwise 0.
    host: AtomicU64,
    /// The procedure waits in a call of its own.
    aside: AtomicBool,
    /// The connection whose calls it serves, with the number of its turn there.
    held: Mutex<Option<(Arc<dyn Held>, u64)>>,
}

impl Seat {
    /// Runs a procedure. True: it took so long that the thread was relieved.
    #[inline]
    pub(super) fn run<R>(&self, procedure: impl FnOnce() -> R) -> (R, bool) {
        // Nobody else writes it.
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn + 1, Ordering::SeqCst);
        let result = procedure();
        self.turn.store(turn + 2, Ordering::SeqCst);
        (result, self.seen.load(Ordering::Relaxed) == turn + 1 + OVERDUE)
    }

    /// Runs a procedure, as [`Seat::run`], for a call that this host sent as a datagram.
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
    fn let_go(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((connection, turn)) = held {
            connection.pass(turn);
        }
    }

    /// Whether it is in a procedure, and was not found there twice.
    fn is_unguarded(&self) -> bool {
        let turn = self.turn.load(Ordering::SeqCst);
        turn % 2 == 1 && self.seen.load(Ordering::Relaxed) != turn + OVERDUE
    }

    fn look(&self) -> u64 {
        let turn = self.turn.load(Ordering::SeqCst);
        let seen = self.seen.load(Ordering::Relaxed);
        if turn % 2 == 1 && seen == turn {
            self.let_go();
            self.seen.store(turn + OVERDUE, Ordering::Relaxed);
        } else if seen != turn + OVERDUE {
            self.seen.store(turn, Ordering::Relaxed);
        }
        turn
    }
}

/// Added to a turn that was seen twice.
const OVERDUE: u64 = 1 << 63;

/// A thread of the crew, to the calls that its procedures make.
struct Member {
    crew: Arc<Crew>,
    seat: Arc<Seat>,
    /// The connection of the call that waits in a call of its own: its host's calls under way are one fewer meanwhile.
    connection: Cell<Option<Arc<dyn PeerConnection>>>,
}

impl WorkerPool for Member {
    fn may_wait(&self) -> bool {
        let mut state = self.crew.lock();
        let may = state.aside < self.crew.most_aside;
        state.aside += usize::from(may);
        may
    }

    fn begin_wait(&self) {
        self.seat.let_go();
        self.seat.aside.store(true, Ordering::SeqCst);
        let connection = caller::connection();
        connection.iter().for_each(|connection| connection.count_waiting(true));
        self.connection.set(connection);
        let posts = {
            let mut state = self.crew.lock();
            self.crew.staff(&mut state);
            state.posts.clone()
        };
        for post in posts {
            self.crew.relieve(post.watch_list());
            post.look_aside();
        }
    }

    fn end_wait(&self) {
        self.crew.lock().aside -= 1;
        self.seat.aside.store(false, Ordering::SeqCst);
        self.connection.take().inspect(|connection| connection.count_waiting(false));
    }
}
