//! A server's crew and its sentinel, under loom: in every interleaving some thread receives, whatever the
//! executing threads do.
//!
//! A binary of its own: it compiles the library's files with loom's types.
#![allow(missing_docs)]

#[path = "../src/server/crew.rs"]
#[allow(dead_code)]
mod crew;
mod modelled;
#[path = "../src/server/watch.rs"]
#[allow(dead_code)]
mod watch;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
    // (Read and written under the crew's lock.)
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

    pub(crate) use farcall_proto::Time;

    /// `farcall::env::Event`.
    pub(crate) trait Event: Send + Sync + 'static {
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

use crew::{Crew, Pace, Plan, Relief, Rested, Seat, Threads};
use env::{Event, Time};
use watch::Watch;

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

/// A call: its pace, the other call for whose end it waits, and whether it says that it waits. If it is an
/// errand, it is a datagram without a call, after which the receiver has code of the user's to run (deferred
/// work).
#[derive(Clone, Copy)]
struct Call {
    pace: Pace,
    waits_for: Option<usize>,
    says_so: bool,
    is_errand: bool,
}

const QUICK: Call = Call { pace: Pace::Quick, waits_for: None, says_so: false, is_errand: false };
const ANY: Call = Call { pace: Pace::Any, ..QUICK };
const BLOCKING: Call = Call { pace: Pace::Blocking, ..QUICK };
const ERRAND: Call = Call { is_errand: true, ..QUICK };

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
    sentinel: Arc<dyn Event>,
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
    crew: Crew,
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
    fn new(crew: Crew, calls: &[Call], impatient: usize) -> Arc<Server> {
        let server = Arc::new(Server {
            calls: calls.to_vec(),
            core: Mutex::new(Core { crew, queue: VecDeque::new() }),
            sentinel: Flag::new(usize::MAX),
            stopped: AtomicBool::new(false),
            socket: Mutex::default(),
            arrived: Condvar::new(),
            ended: Mutex::new(vec![false; calls.len()]),
            one_ended: Condvar::new(),
            threads: Mutex::default(),
            impatient: AtomicUsize::new(impatient),
        });
        server.core.lock().unwrap().crew.born();
        server.spawn(Server::work);
        server.spawn(Server::stand);
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
        self.sentinel.set();
        let (receiving, resting) = {
            let core = self.core.lock().unwrap();
            (core.crew.receiving(), core.crew.resting())
        };
        resting.iter().for_each(|seat| seat.wake());
        (0..receiving.max(1)).for_each(|_| self.wake());
        loop {
            let Some(thread) = self.threads.lock().unwrap().pop() else { return };
            thread.join().unwrap();
        }
    }

    /// `Server::relieve`.
    fn relieve(self: &Arc<Self>, relief: Relief) {
        match relief {
            Relief::Rested(seat) => seat.call(),
            Relief::New => self.spawn(Server::work),
        }
    }

    /// `Server::stand`: the sentinel's life.
    fn stand(self: Arc<Self>) {
        while !self.is_stopped() {
            if !self.core.lock().unwrap().crew.guarded {
                self.sentinel.wait(None);
                continue;
            }
            let mut watch = Watch::new(&self.core.lock().unwrap().crew);
            while !watch.is_over() {
                self.sentinel.wait(Some(watch.nap()));
                if self.is_stopped() {
                    return;
                }
                let relief = watch.look(&mut self.core.lock().unwrap().crew);
                relief.into_iter().for_each(|relief| self.relieve(relief));
            }
        }
    }

    /// `Worker::live`.
    fn work(self: Arc<Self>) {
        let seat = Seat::new(Flag::new(self.impatient.swap(0, Ordering::Relaxed)));
        self.core.lock().unwrap().crew.join(&seat);
        let mut next = self.next(&seat);
        while !self.is_stopped() {
            next = match next {
                Next::Execute(call) => self.execute(&seat, call),
                Next::Receive => self.take_in(&seat),
                Next::Rest => match seat.rest(&|| self.is_stopped()) {
                    Rested::Called => self.next(&seat),
                    Rested::Idle if !self.core.lock().unwrap().crew.retire(&seat) => Next::Rest,
                    Rested::Idle | Rested::Over => return,
                },
            };
        }
    }

    /// `Worker::receive`, and `take_in`.
    fn take_in(self: &Arc<Self>, seat: &Arc<Seat>) -> Next {
        let Some(call) = self.receive() else { return self.next(seat) };
        if self.calls[call].is_errand {
            return self.run_errands(seat, call);
        }
        let mut refused = Vec::new();
        let planned = {
            let mut core = self.core.lock().unwrap();
            core.queue.push_back(call);
            core.next_in_line(&self.calls, seat, &mut refused)
        };
        self.begin(planned, refused, false)
    }

    /// `Worker::run_errands`.
    fn run_errands(self: &Arc<Self>, seat: &Arc<Seat>, errand: usize) -> Next {
        let plan = self.core.lock().unwrap().crew.plan_errands(seat);
        self.leave_to_others(plan);
        if let Some(other) = self.calls[errand].waits_for {
            self.wait_for(other);
        }
        self.end(errand);
        self.core.lock().unwrap().crew.done(seat);
        self.next(seat)
    }

    /// `Worker::next`.
    fn next(self: &Arc<Self>, seat: &Arc<Seat>) -> Next {
        let mut refused = Vec::new();
        let (planned, rest) = {
            let mut core = self.core.lock().unwrap();
            let planned = core.next_in_line(&self.calls, seat, &mut refused);
            let rest = planned.is_none() && core.crew.rest(seat);
            (planned, rest)
        };
        self.begin(planned, refused, rest)
    }

    /// `Worker::execute`.
    fn execute(self: &Arc<Self>, seat: &Arc<Seat>, call: usize) -> Next {
        if let Some(other) = self.calls[call].waits_for {
            self.wait_in_call(seat, other, self.calls[call].says_so);
        }
        self.end(call);
        let mut refused = Vec::new();
        let (planned, rest) = {
            let mut core = self.core.lock().unwrap();
            core.crew.done(seat);
            let planned = core.next_in_line(&self.calls, seat, &mut refused);
            let rest = planned.is_none() && core.crew.rest(seat);
            (planned, rest)
        };
        self.begin(planned, refused, rest)
    }

    /// `Placed`: how a worker waits in a call of its own. (The last one that could receive is refused the
    /// call.)
    fn wait_in_call(self: &Arc<Self>, seat: &Arc<Seat>, other: usize, says_so: bool) {
        if !says_so {
            return self.wait_for(other);
        }
        if self.core.lock().unwrap().crew.is_last() {
            return;
        }
        let (relief, wake) = {
            let mut core = self.core.lock().unwrap();
            assert!(core.crew.step_aside(seat));
            match core.crew.relieve_waiting() {
                None if !core.queue.is_empty() => core.summon(&self.calls),
                relief => (relief, false),
            }
        };
        relief.into_iter().for_each(|relief| self.relieve(relief));
        if wake {
            self.wake();
        }
        self.wait_for(other);
        self.core.lock().unwrap().crew.step_back(seat);
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
            Plan::Execute(Some(relief)) => self.relieve(relief),
            Plan::Guarded(true) => self.sentinel.set(),
            _ => {}
        }
    }
}

impl Core {
    /// `Worker::next_in_line`.
    fn next_in_line(
        &mut self,
        calls: &[Call],
        seat: &Seat,
        refused: &mut Vec<usize>,
    ) -> Option<(usize, Plan)> {
        loop {
            let call = self.queue.pop_front()?;
            match self.crew.plan(seat, 0, calls[call].pace, Time::default()) {
                Plan::Queue => {
                    self.queue.push_front(call);
                    return None;
                }
                Plan::Refuse => refused.push(call),
                plan => return Some((call, plan)),
            }
        }
    }

    /// `Core::summon`: who is to see to calls that wait, somebody more or whoever receives.
    fn summon(&mut self, calls: &[Call]) -> (Option<Relief>, bool) {
        let pace = calls[self.queue[0]].pace;
        if !self.crew.has_room(pace, 1) {
            return (None, false);
        }
        let relief = self.crew.relieve_for_queue(pace);
        let wake = relief.is_none();
        (relief, wake)
    }
}

/// Checks a crew of that many threads, all of which may execute calls: every call ends, in whatever order the
/// calls arrive, and then every thread ends.
fn check<const N: usize>(preemptions: usize, threads: usize, impatient: usize, calls: [Call; N]) {
    check_crew(preemptions, move || Crew::new(threads, Threads::new(threads)), impatient, calls);
}

/// Does what [`check`] does, with any crew.
fn check_crew<const N: usize>(
    preemptions: usize,
    crew: impl Fn() -> Crew + Send + Sync + 'static,
    impatient: usize,
    calls: [Call; N],
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(move || {
        let server = Server::new(crew(), &calls, impatient);
        (0..N).for_each(|call| server.send(call));
        (0..N).for_each(|call| server.wait_for(call));
        server.stop();
    });
}

#[test]
fn a_lone_receiver_that_gets_stuck_is_relieved() {
    check(2, 3, 0, [QUICK.waits_for(1), QUICK]);
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
fn of_two_that_begin_to_wait_one_is_relieved() {
    check(1, 2, 0, [QUICK.calls(2), QUICK.calls(2), QUICK]);
}

#[test]
fn whoever_ends_because_it_rested_for_long_was_not_called() {
    check(1, 2, 1, [ANY, ANY, ANY]);
}

/// When the errand arrives, two threads may be receiving although the only worker is executing a call.
#[test]
fn a_thread_that_ran_an_errand_receives_again_even_if_no_call_may_begin() {
    let crew = || Crew::new(1, Threads::new(4)).in_pairs();
    check_crew(1, crew, 0, [ANY.waits_for(2), BLOCKING, ERRAND]);
}
