//! A server's pool of workers and its watchdog, under loom: in every interleaving some thread receives,
//! whatever the executing threads do.
//!
//! A binary of its own: it compiles the library's files with loom's types.
#![allow(missing_docs)]

#[path = "../src/workers/budget.rs"]
#[allow(dead_code)]
mod budget;
#[path = "../src/workers/held.rs"]
mod held;
#[path = "../../farcall/tests/modelled/mod.rs"]
mod modelled;
#[path = "../src/workers/pool.rs"]
#[allow(dead_code)]
mod pool;
#[path = "../src/workers/watch.rs"]
#[allow(dead_code)]
mod watch;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
    // (Read and written under the pool's lock.)
    pub(super) use std::sync::atomic::AtomicU64;

    /// Loom leaves open which came last, a store or an exchange, even if the exchange has read what was there
    /// before the store: so stores are exchanges here.
    pub(super) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(super) fn new(value: bool) -> AtomicBool {
            AtomicBool(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(super) fn load(&self, ordering: Ordering) -> bool {
            self.0.load(ordering)
        }

        pub(super) fn store(&self, value: bool, ordering: Ordering) {
            self.0.swap(value, ordering);
        }

        pub(super) fn swap(&self, value: bool, ordering: Ordering) -> bool {
            self.0.swap(value, ordering)
        }
    }
}

mod env {
    use std::time::Duration;

    pub use farcall_base::Time;

    /// `farcall_core::env::Event`.
    pub trait Event: Send + Sync + 'static {
        fn set(&self);
        fn wait(&self, timeout: Option<Duration>) -> bool;
    }
}

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};

use budget::Threads;
use env::{Event, Time};
use pool::{Pace, Plan, Pool, Replacement, Rested, Worker};
use watch::{Habit, Watch};

/// An event. Of waits with a time limit so many are over at once if nothing has happened; the others last.
struct Flag {
    event: modelled::Event,
    impatient: AtomicUsize,
}

impl Flag {
    fn new(impatient: usize) -> Arc<Flag> {
        Arc::new(Flag { event: modelled::Event::default(), impatient: AtomicUsize::new(impatient) })
    }
}

impl Event for Flag {
    fn set(&self) {
        self.event.set();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let one_less = |times: usize| times.checked_sub(1);
        let is_one = || self.impatient.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        let ends = timeout.is_some() && is_one();
        if !ends {
            self.event.wait();
            return true;
        }
        // Others get on meanwhile, if they can.
        thread::yield_now();
        self.event.take()
    }
}

/// A call: its pace, the other call for whose end it waits, and whether it says that it waits. If it is
/// deferred work, it is a datagram without a call, after which the receiver has code of the user's to run. An
/// access to memory is executed by the thread that receives it.
#[derive(Clone, Copy)]
struct Call {
    pace: Pace,
    waits_for: Option<usize>,
    says_so: bool,
    is_deferred_work: bool,
    is_access: bool,
}

/// How the watchdog looks after the pool.
const HABIT: Habit = Habit { nap: Duration::from_micros(100), calls: 8, looks: 8, finds_long: false };

const QUICK: Call =
    Call { pace: Pace::Quick, waits_for: None, says_so: false, is_deferred_work: false, is_access: false };
const ANY: Call = Call { pace: Pace::Any, ..QUICK };
const BLOCKING: Call = Call { pace: Pace::Blocking, ..QUICK };
const DEFERRED_WORK: Call = Call { is_deferred_work: true, ..QUICK };
const ACCESS: Call = Call { is_access: true, ..QUICK };

impl Call {
    const fn waits_for(self, other: usize) -> Call {
        Call { waits_for: Some(other), ..self }
    }

    /// It waits in a call of its own.
    const fn calls(self, other: usize) -> Call {
        Call { says_so: true, ..self.waits_for(other) }
    }
}

/// A server, and the calls of a run, of which each is known by its number.
struct Server {
    calls: Vec<Call>,
    core: Mutex<Core>,
    watchdog: Arc<dyn Event>,
    stopped: AtomicBool,
    socket: Mutex<Socket>,
    arrived: Condvar,
    ended: Mutex<Vec<bool>>,
    one_ended: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// How often the first worker, if it rests, has rested for too long.
    impatient: AtomicUsize,
}

struct Core {
    pool: Pool,
    queue: VecDeque<usize>,
}

#[derive(Default)]
struct Socket {
    datagrams: VecDeque<usize>,
    wakes: usize,
}

/// What a worker does next.
enum Next {
    Execute(usize),
    Receive,
    Rest,
}

impl Server {
    fn new(pool: Pool, calls: &[Call], impatient: usize) -> Arc<Server> {
        let server = Arc::new(Server {
            calls: calls.to_vec(),
            core: Mutex::new(Core { pool, queue: VecDeque::new() }),
            watchdog: Flag::new(usize::MAX),
            stopped: AtomicBool::new(false),
            socket: Mutex::default(),
            arrived: Condvar::new(),
            ended: Mutex::new(vec![false; calls.len()]),
            one_ended: Condvar::new(),
            threads: Mutex::default(),
            impatient: AtomicUsize::new(impatient),
        });
        server.core.lock().unwrap().pool.add_first();
        server.spawn(Server::work);
        server.spawn(Server::run_watchdog);
        server
    }

    fn spawn(self: &Arc<Self>, run: fn(Arc<Server>)) {
        let server = self.clone();
        let thread = thread::spawn(move || run(server));
        self.threads.lock().unwrap().push(thread);
    }

    fn send(&self, call: usize) {
        self.socket.lock().unwrap().datagrams.push_back(call);
        self.arrived.notify_one();
    }

    fn wake(&self) {
        self.socket.lock().unwrap().wakes += 1;
        self.arrived.notify_one();
    }

    /// A call that has arrived, or nothing if somebody has woken whoever receives.
    fn receive(&self) -> Option<usize> {
        let mut socket = self.socket.lock().unwrap();
        loop {
            if socket.wakes > 0 {
                socket.wakes -= 1;
                return None;
            }
            if let Some(call) = socket.datagrams.pop_front() {
                return Some(call);
            }
            socket = self.arrived.wait(socket).unwrap();
        }
    }

    /// It was executed, or refused.
    fn end(&self, call: usize) {
        self.ended.lock().unwrap()[call] = true;
        self.one_ended.notify_all();
    }

    fn wait_for(&self, call: usize) {
        let mut ended = self.ended.lock().unwrap();
        while !ended[call] {
            ended = self.one_ended.wait(ended).unwrap();
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// `Server::stop`, and its threads' ends.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.watchdog.set();
        let (receiving, resting) = {
            let core = self.core.lock().unwrap();
            (core.pool.receiving(), core.pool.resting())
        };
        resting.iter().for_each(|worker| worker.wake());
        (0..receiving.max(1)).for_each(|_| self.wake());
        loop {
            let Some(thread) = self.threads.lock().unwrap().pop() else { return };
            thread.join().unwrap();
        }
    }

    /// `workers::replace`.
    fn replace(self: &Arc<Self>, replacement: Replacement) {
        match replacement {
            Replacement::Rested(worker) => worker.call(),
            Replacement::New => self.spawn(Server::work),
        }
    }

    /// `Server::run_watchdog`: the watchdog's life.
    fn run_watchdog(self: Arc<Self>) {
        let mut watch = Watch::new(HABIT);
        while !self.is_stopped() {
            let found = watch.look(&mut self.core.lock().unwrap().pool);
            found.replacement.into_iter().for_each(|replacement| self.replace(replacement));
            self.watchdog.wait(watch.nap());
        }
    }

    /// `Worker::live`.
    fn work(self: Arc<Self>) {
        let worker = Worker::new(Flag::new(self.impatient.swap(0, Ordering::Relaxed)));
        self.core.lock().unwrap().pool.register(&worker);
        let mut next = self.next(&worker);
        while !self.is_stopped() {
            next = match next {
                Next::Execute(call) => self.execute(&worker, call),
                Next::Receive => self.take_in(&worker),
                Next::Rest => match worker.rest(&|| self.is_stopped()) {
                    Rested::Called => self.next(&worker),
                    Rested::Idle if !self.core.lock().unwrap().pool.retire(&worker) => Next::Rest,
                    Rested::Idle | Rested::Over => return,
                },
            };
        }
    }

    /// `Worker::receive`, and `take_in`.
    fn take_in(self: &Arc<Self>, worker: &Arc<Worker>) -> Next {
        let Some(call) = self.receive() else { return self.next(worker) };
        if self.calls[call].is_access {
            self.end(call);
            return if self.core.lock().unwrap().pool.make_way(worker) { Next::Rest } else { Next::Receive };
        }
        if self.calls[call].is_deferred_work {
            return self.run_deferred_work(worker, call);
        }
        let mut refused = Vec::new();
        let planned = {
            let mut core = self.core.lock().unwrap();
            core.queue.push_back(call);
            core.next_in_line(&self.calls, worker, &mut refused)
        };
        self.begin(planned, refused, false)
    }

    /// `Worker::run_deferred_work`.
    fn run_deferred_work(self: &Arc<Self>, worker: &Arc<Worker>, work: usize) -> Next {
        let plan = self.core.lock().unwrap().pool.plan_deferred(worker);
        self.leave_to_others(plan);
        if let Some(other) = self.calls[work].waits_for {
            self.wait_for(other);
        }
        self.end(work);
        self.core.lock().unwrap().pool.done(worker);
        self.next(worker)
    }

    /// `Worker::next`.
    fn next(self: &Arc<Self>, worker: &Arc<Worker>) -> Next {
        let mut refused = Vec::new();
        let (planned, rest) = {
            let mut core = self.core.lock().unwrap();
            let planned = core.next_in_line(&self.calls, worker, &mut refused);
            let rest = planned.is_none() && core.pool.rest(worker);
            (planned, rest)
        };
        self.begin(planned, refused, rest)
    }

    /// `Worker::execute`.
    fn execute(self: &Arc<Self>, worker: &Arc<Worker>, call: usize) -> Next {
        if let Some(other) = self.calls[call].waits_for {
            self.wait_in_call(worker, other, self.calls[call].says_so);
        }
        self.end(call);
        let mut refused = Vec::new();
        let (planned, rest) = {
            let mut core = self.core.lock().unwrap();
            core.pool.done(worker);
            let planned = core.next_in_line(&self.calls, worker, &mut refused);
            let rest = planned.is_none() && core.pool.rest(worker);
            (planned, rest)
        };
        self.begin(planned, refused, rest)
    }

    /// `Member`: how a worker waits in a call of its own. (The last one that could receive is refused the
    /// call.)
    fn wait_in_call(self: &Arc<Self>, worker: &Arc<Worker>, other: usize, says_so: bool) {
        if !says_so {
            return self.wait_for(other);
        }
        if self.core.lock().unwrap().pool.may_wait().is_err() {
            return;
        }
        let (replacement, wake) = {
            let mut core = self.core.lock().unwrap();
            assert!(core.pool.begin_wait(worker, false).unwrap());
            match core.pool.replace_waiting() {
                None if !core.queue.is_empty() => core.assign_queue(&self.calls),
                replacement => (replacement, false),
            }
        };
        replacement.into_iter().for_each(|replacement| self.replace(replacement));
        if wake {
            self.wake();
        }
        self.wait_for(other);
        self.core.lock().unwrap().pool.end_wait(worker);
    }

    /// `Worker::begin`.
    fn begin(self: &Arc<Self>, planned: Option<(usize, Plan)>, refused: Vec<usize>, rest: bool) -> Next {
        refused.into_iter().for_each(|call| self.end(call));
        let Some((call, plan)) = planned else { return if rest { Next::Rest } else { Next::Receive } };
        self.leave_to_others(plan);
        Next::Execute(call)
    }

    /// `Worker::leave_to_others`.
    fn leave_to_others(self: &Arc<Self>, plan: Plan) {
        match plan {
            Plan::Execute(Some(replacement)) => self.replace(replacement),
            Plan::Guarded(true) => self.watchdog.set(),
            _ => {}
        }
    }
}

impl Core {
    /// `Worker::next_in_line`.
    fn next_in_line(
        &mut self,
        calls: &[Call],
        worker: &Worker,
        refused: &mut Vec<usize>,
    ) -> Option<(usize, Plan)> {
        loop {
            let call = self.queue.pop_front()?;
            match self.pool.plan(worker, 0, calls[call].pace, Time::default) {
                Plan::Queue => {
                    self.queue.push_front(call);
                    return None;
                }
                Plan::Refuse => refused.push(call),
                plan => return Some((call, plan)),
            }
        }
    }

    /// `Core::assign_queue`: who is to see to calls that wait, somebody more or whoever receives.
    fn assign_queue(&mut self, calls: &[Call]) -> (Option<Replacement>, bool) {
        let pace = calls[self.queue[0]].pace;
        if !self.pool.has_room(pace, 1) {
            return (None, false);
        }
        let replacement = self.pool.one_more_for_queue(pace);
        let wake = replacement.is_none();
        (replacement, wake)
    }
}

/// Checks a pool of that many threads, all of which may execute calls: every call ends, in whatever order the
/// calls arrive, and then every thread ends.
fn check<const N: usize>(preemptions: usize, threads: usize, impatient: usize, calls: [Call; N]) {
    let pool = move || Pool::new(threads, Threads::new(threads)).with_spare();
    check_pool(preemptions, pool, impatient, calls);
}

/// Does what [`check`] does, with any pool.
fn check_pool<const N: usize>(
    preemptions: usize,
    pool: impl Fn() -> Pool + Send + Sync + 'static,
    impatient: usize,
    calls: [Call; N],
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(move || {
        let server = Server::new(pool(), &calls, impatient);
        (0..N).for_each(|call| server.send(call));
        (0..N).for_each(|call| server.wait_for(call));
        server.stop();
    });
}

#[test]
fn a_lone_receiver_that_gets_stuck_is_replaced() {
    check(2, 3, 0, [QUICK.waits_for(1), QUICK]);
}

/// All threads wait for an access, and the last receiver too.
#[test]
fn a_receiver_that_gets_stuck_is_replaced_even_if_all_threads_are_taken() {
    check(1, 2, 0, [ANY.waits_for(2), QUICK.waits_for(2), ACCESS]);
}

/// The call that came last is executed when the others have ended.
#[test]
fn a_call_that_finds_every_thread_stuck_is_executed_when_one_is_free() {
    check(1, 2, 0, [ANY.waits_for(2), QUICK.waits_for(2), ACCESS, QUICK]);
}

#[test]
fn somebody_receives_before_a_call_is_executed_that_may_be_slow() {
    check(1, 3, 0, [ANY.waits_for(1), ANY]);
}

#[test]
fn a_call_that_waits_for_one_for_which_there_is_no_thread_hears_of_that() {
    check(2, 2, 0, [ANY.calls(1), ANY]);
}

#[test]
fn of_two_that_begin_to_wait_one_is_replaced() {
    check(1, 2, 0, [QUICK.calls(2), QUICK.calls(2), QUICK]);
}

#[test]
fn whoever_ends_because_it_rested_for_long_was_not_called() {
    check(1, 2, 1, [ANY, ANY, ANY]);
}

/// When the work arrives, two threads may be receiving although the only worker is executing a call.
#[test]
fn a_thread_that_ran_deferred_work_receives_again_even_if_no_call_may_begin() {
    let pool = || Pool::new(1, Threads::new(4)).in_pairs().with_spare();
    check_pool(1, pool, 0, [ANY.waits_for(2), BLOCKING, DEFERRED_WORK]);
}

/// The thread that waits is not part of the budget, which has room for one more then.
#[test]
fn a_thread_that_waits_beside_the_budget_is_replaced() {
    let pool = || Pool::new(usize::MAX, Threads::besides_waiting(1, 2)).always_in_pairs();
    check_pool(1, pool, 0, [QUICK.calls(1), QUICK.calls(2), QUICK]);
}
