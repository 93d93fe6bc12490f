//! Servers whose threads are all taken, and whose last receiver executes a quick call itself. The call may
//! end the waits of the others. If it holds the receiver instead, one more thread receives, but executes no
//! call.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::common::{self, builder};
use crate::threads::Threads;
use farcall::memory::Counters;
use farcall::{Builder, CallFailed, Calls, Export, Kind, Pending, Ran, Runtime};

#[farcall::interface]
trait Hall {
    /// Waits for a visit.
    #[blocking]
    fn wait(&self) -> farcall::Result<()>;
    /// Waits until its caller gives it up.
    #[blocking]
    fn wait_for_ever(&self) -> farcall::Result<()>;
    fn visit(&self) -> farcall::Result<()>;
    /// Ends at once or, if `stays`, when the test closes the hall.
    fn look(&self, stays: bool) -> farcall::Result<()>;
}

#[derive(Default)]
struct Rooms {
    state: Mutex<State>,
    changed: Condvar,
}

/// How many calls have begun.
#[derive(Clone, Copy, Default)]
struct State {
    waits: usize,
    visits: usize,
    stays: usize,
    closed: bool,
}

impl Rooms {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn wait_while(&self, condition: impl Fn(&State) -> bool) {
        drop(self.changed.wait_while(self.state(), |state| condition(state)).unwrap());
    }
}

impl Hall for Rooms {
    fn wait(&self) -> farcall::Result<()> {
        let visits = self.state().visits;
        self.change(|state| state.waits += 1);
        self.wait_while(|state| state.visits == visits);
        Ok(())
    }

    fn wait_for_ever(&self) -> farcall::Result<()> {
        self.change(|state| state.waits += 1);
        farcall::context().cancelled().wait(LONG);
        Ok(())
    }

    fn visit(&self) -> farcall::Result<()> {
        self.change(|state| state.visits += 1);
        Ok(())
    }

    fn look(&self, stays: bool) -> farcall::Result<()> {
        if stays {
            self.change(|state| state.stays += 1);
            self.wait_while(|state| !state.closed);
        }
        Ok(())
    }
}

/// Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);
/// The threads of a server, including one that receives.
const THREADS: usize = 4;
/// So often a procedure is called to be known as quick.
const OFTEN: usize = 100;

/// A server, and its clients: the first calls over UDP, and the second, if there is one, through shared
/// memory. The server has a receiver for each of them.
struct Place {
    rooms: Arc<Rooms>,
    _server: (Runtime, Export),
    counters: (Runtime, Counters),
    clients: Vec<(HallClient, Runtime)>,
}

impl Place {
    fn new(shared: bool, set: impl FnOnce(Builder) -> Builder) -> Place {
        let rooms = Arc::new(Rooms::default());
        // (A thread of the connection through shared memory may rest for 10 s before another can have it.)
        let builder = builder().shared_memory(shared).queue_time(LONG);
        let server = set(builder.workers(THREADS - 1).threads(THREADS)).build().unwrap();
        let export = server.export::<dyn Hall>("Hall", rooms.clone()).unwrap();
        let reader = common::builder().shared_memory(false).build().unwrap();
        let counters = Counters::import(&reader, export.address()).unwrap();
        let clients = (0..=usize::from(shared)).map(|which| {
            let runtime = common::builder().shared_memory(which == 1).build().unwrap();
            let hall = runtime.import::<dyn Hall>(&export.url()).unwrap().within(LONG);
            hall.look(false).unwrap();
            assert_eq!(runtime.stats().links.len(), which);
            (hall, runtime)
        });
        let clients = clients.collect();
        Place { rooms, _server: (server, export), counters: (reader, counters), clients }
    }

    /// Returns the client whose calls are tested.
    fn hall(&self) -> &HallClient {
        &self.clients.last().unwrap().0
    }

    fn queued(&self) -> usize {
        self.counters.1.read().unwrap().queued as usize
    }

    /// Starts a call. Waits until it has begun or is queued, and returns whether it has begun.
    fn begins(&self, begun: fn(&State) -> usize, start: impl FnOnce() -> Pending<()>) -> (bool, Pending<()>) {
        let (begun_before, queued_before) = (begun(&self.rooms.state()), self.queued());
        let (call, started) = (start(), Instant::now());
        while started.elapsed() < LONG {
            if begun(&self.rooms.state()) > begun_before {
                return (true, call);
            }
            if self.queued() > queued_before {
                return (false, call);
            }
            std::thread::yield_now();
        }
        panic!("nobody receives the call");
    }

    /// Lets every thread that may execute wait, and makes the procedures known as quick before.
    fn fill(&self) -> Waiting {
        (0..OFTEN).for_each(|_| self.hall().look(false).unwrap());
        (0..OFTEN).for_each(|_| self.hall().visit().unwrap());
        let waits = self.rooms.state().waits + THREADS - 1;
        let for_ever = self.hall().start().wait_for_ever();
        let for_visit = (2..THREADS).map(|_| self.hall().start().wait()).collect();
        self.rooms.wait_while(|state| state.waits < waits);
        Waiting { for_ever, for_visit, held: Vec::new() }
    }

    /// Lets every thread that may execute wait, and lets a quick call hold each receiver.
    fn hold(&self) -> Waiting {
        loop {
            let mut waiting = self.fill();
            let mut all_begun = true;
            for (hall, _) in &self.clients {
                let (begun, call) = self.begins(|state| state.stays, || hall.start().look(true));
                waiting.held.push(call);
                all_begun &= begun;
            }
            if all_begun {
                return waiting;
            }
            // The procedure is not known as quick, perhaps because the machine paused.
            self.release(waiting);
        }
    }

    /// Ends all waits.
    fn release(&self, mut waiting: Waiting) {
        self.rooms.change(|state| {
            state.visits += 1;
            state.closed = true;
        });
        waiting.for_ever.cancel();
        told(waiting.for_ever.wait());
        waiting.for_visit.into_iter().chain(waiting.held).for_each(|call| call.wait().unwrap());
        self.rooms.change(|state| state.closed = false);
    }

    /// Lets a quick call end the waits of all threads that may execute.
    fn end_waits_by_a_quick_call(&self) {
        loop {
            let waiting = self.fill();
            let (begun, call) = self.begins(|state| state.visits, || self.hall().start().visit());
            self.release(if begun { waiting.await_visit() } else { waiting });
            call.wait().unwrap();
            if begun {
                return;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If the test fails, the server stops nevertheless.
        self.rooms.change(|state| {
            state.visits += 1;
            state.closed = true;
        });
    }
}

/// The calls that take all threads of a server.
struct Waiting {
    for_ever: Pending<()>,
    for_visit: Vec<Pending<()>>,
    held: Vec<Pending<()>>,
}

impl Waiting {
    /// Waits until the calls have ended that wait for a visit.
    fn await_visit(mut self) -> Waiting {
        self.for_visit.drain(..).for_each(|call| call.wait().unwrap());
        self
    }
}

fn carriers() -> impl Iterator<Item = bool> {
    [false, true].into_iter().filter(|shared| !shared || cfg!(target_os = "linux"))
}

fn told<T>(outcome: farcall::Result<T>) -> CallFailed {
    outcome.err().expect("it fails").into()
}

#[test]
fn a_quick_call_ends_the_waits_of_all_threads_also_after_a_receiver_was_held() {
    for shared in carriers() {
        let place = Place::new(shared, |builder| builder);
        place.end_waits_by_a_quick_call();
        let waiting = place.hold();
        place.release(waiting);
        place.end_waits_by_a_quick_call();
    }
}

#[test]
fn while_all_receivers_are_held_the_server_hears_its_clients_and_executes_what_a_free_thread_can() {
    for shared in carriers() {
        let place = Place::new(shared, |builder| builder);
        let mut waiting = place.hold();
        let other = builder().shared_memory(shared).build().unwrap();
        drop(other.import::<dyn Hall>(&place._server.1.url()).unwrap());
        let (begun, visit) = place.begins(|state| state.visits, || place.hall().start().visit());
        assert!(!begun, "the last thread that receives executes a call");
        waiting.for_ever.cancel();
        // This call has a thread now.
        visit.wait().unwrap();
        place.release(waiting.await_visit());
    }
}

#[test]
fn a_server_has_one_thread_more_than_its_limit_whatever_holds_its_receivers() {
    for shared in carriers() {
        let env =
            if shared { Threads::sharing_memory("farcall-shm") } else { Threads::named("farcall-worker") };
        let place = Place::new(shared, |builder| builder.env(env.clone()));
        let mut waiting = place.hold();
        for _ in 0..2 * THREADS {
            let (begun, call) = place.begins(|state| state.stays, || place.hall().start().look(true));
            assert!(!begun, "the last thread that receives executes a call");
            waiting.held.push(call);
        }
        // The receiver of the connection through shared memory is not part of the limit.
        let limit = if shared { 1 } else { THREADS };
        assert_eq!(env.started() - env.ended(), limit + 1);
        place.release(waiting);
    }
}

#[test]
fn the_calls_that_wait_for_a_held_receiver_are_bounded() {
    const QUEUE: usize = 8;
    const CALLS: usize = 32;
    for shared in carriers() {
        let place = Place::new(shared, |builder| builder.queue(QUEUE));
        let waiting = place.hold();
        let mut calls = Calls::new();
        (0..CALLS).for_each(|call| calls.add(call, place.hall().start().visit()));
        for _ in QUEUE..CALLS {
            let why = told(calls.wait().unwrap().1);
            assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No), "{why}");
            assert!(why.detail().contains("8 calls wait for a worker (FARCALL_QUEUE)"), "{why}");
        }
        place.release(waiting);
        for _ in 0..QUEUE {
            calls.wait().unwrap().1.unwrap();
        }
    }
}
