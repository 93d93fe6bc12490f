//! The simulated world of a test's processes. A token passes from thread to thread, and a thread runs while
//! it has the token. So only one thread runs at a time.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farcall::System;
use farcall::env::{Env as _, Event};
use farcall::guard::ProcessGone;
use farcall::names::Memory;

use super::faults::nanos;
use super::publication::Publication;
use super::services::Services;
use super::state::{Due, Main, State, Status, ThreadId, Ticket, Waits, enlist};
use crate::net::Nanos;

/// A simulated world, which all its threads share.
pub(super) struct World {
    state: Mutex<State>,
    /// The registry of all processes.
    pub(super) names: Memory,
    /// The last publication of each name. It is kept here because entries may be signed and must not be
    /// changed.
    pub(super) publications: Mutex<BTreeMap<String, Publication>>,
    pub(super) services: Services,
    /// Threads of the operating system, one for each of `State::threads`.
    handles: Mutex<BTreeMap<ThreadId, JoinHandle<()>>>,
    /// Receives the token when the run is over.
    supervisor: Arc<dyn Event>,
    /// The number of times that the token was passed.
    handed: AtomicU64,
    /// How long, in real time, a thread may keep the token.
    patience: Duration,
    /// Set when a thread kept the token longer than `patience`. From then on all threads stop for ever.
    lost: AtomicBool,
}

/// The lock on [`World::state`].
pub(super) type Guard<'a> = MutexGuard<'a, State>;

/// The identity of a simulated thread.
#[derive(Clone)]
pub(super) struct Here {
    pub(super) world: Arc<World>,
    pub(super) thread: ThreadId,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// The number of times that a killed thread may catch the unwinding. After that the thread is parked for
/// ever.
const MAX_RAISED: u32 = 100;

/// Returns which simulated thread this is, if it is one.
pub(super) fn here() -> Option<Here> {
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

impl World {
    pub(super) fn new(seed: u64, verbose: bool, patience: Duration) -> Arc<World> {
        Arc::new(World {
            state: Mutex::new(State::new(seed, verbose)),
            names: Memory::new(),
            publications: Mutex::default(),
            services: Services::default(),
            handles: Mutex::default(),
            supervisor: System.event(),
            handed: AtomicU64::new(0),
            patience,
            lost: AtomicBool::new(false),
        })
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a test, which is process 0, and everything that it starts. Returns when no thread is left.
    pub(super) fn run(self: &Arc<World>, test: Arc<Main>) {
        self.lock().add_process("test", test, false);
        if let Err(why) = self.start(0) {
            self.lock().failure = Some(format!("starting a thread: {why}"));
            return;
        }
        let mut state = self.lock();
        let next = state.next();
        self.give(state, next);
        self.supervise();
        self.clear();
    }

    /// Waits until the run is over.
    fn supervise(&self) {
        let mut handed = self.handed.load(Ordering::Relaxed);
        while !self.supervisor.wait(Some(self.patience)) {
            let now = self.handed.load(Ordering::Relaxed);
            if now != std::mem::replace(&mut handed, now) {
                continue;
            }
            self.lost.store(true, Ordering::SeqCst);
            let mut state = self.lock();
            let thread = &state.threads[state.running];
            let process = &state.processes[thread.process].name;
            let why = format!(
                "{process}: {} ran for {:?} of real time: it computes in a loop, or waits for something outside the \
                 simulation, such as a lock that a thread holds while it waits in a call, a channel, or a thread that \
                 `sim::spawn` did not start",
                thread.name, self.patience
            );
            state.failure.get_or_insert(why);
            return;
        }
    }

    /// Joins the ended threads, and breaks the reference cycles between the world and its processes.
    fn clear(&self) {
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        if self.lost.load(Ordering::SeqCst) {
            return;
        }
        for (thread, handle) in handles {
            if self.lock().threads[thread].status == Status::Ended {
                // The thread has ended except for the destructors of its thread-local values.
                let _ = handle.join();
            }
        }
        let mut state = self.lock();
        let held: Vec<_> =
            state.processes.iter_mut().map(|machine| (machine.main.take(), machine.env.take())).collect();
        drop(state);
        drop(held);
    }

    /// Starts a process that is not alive. If a simulated thread calls this, it is blocked until the new
    /// process first blocks.
    pub(super) fn start(self: &Arc<World>, process: usize) -> io::Result<()> {
        let starter = here();
        let (main, life, ticket) = {
            let mut state = self.lock();
            state.begin_life(process);
            let ticket = starter.as_ref().map(|here| state.ticket(here.thread));
            let Some(main) = state.processes[process].main.clone() else { return Ok(()) };
            (main, state.processes[process].life, ticket)
        };
        let world = self.clone();
        let body = Box::new(move || world.live(process, life, &*main));
        let mut state = self.lock();
        let thread = state.add_thread(process, "main", ticket);
        if let Err(why) = self.launch(state, thread, body) {
            self.lock().kill(process);
            return Err(why);
        }
        if let Some(here) = starter {
            drop(self.wait(self.lock(), here.thread, Waits::Start, None));
        }
        Ok(())
    }

    /// Runs the life of a process, on its main thread.
    fn live(self: &Arc<World>, process: usize, life: u32, main: &Main) {
        let runtime = super::runtime(self, process, life);
        let ended = match &runtime {
            Ok(runtime) => runtime.enter(main),
            Err(why) => Err(why.to_string()),
        };
        drop(runtime);
        let mut state = self.lock();
        if let Err(why) = ended
            && state.lives(process, life)
        {
            let name = state.processes[process].name.clone();
            state.fail(format!("{name} failed: {why}"));
        }
        // The process's other threads end with its main thread, as in any process.
        state.kill(process);
    }

    /// Starts a thread of a process.
    pub(super) fn spawn(
        self: &Arc<World>,
        process: usize,
        life: u32,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        if !state.lives(process, life) {
            return Err(io::Error::other("the process is gone"));
        }
        let thread = state.add_thread(process, name, None);
        self.launch(state, thread, body)
    }

    /// Starts the operating system's thread for a simulated thread.
    fn launch(
        self: &Arc<World>,
        state: Guard<'_>,
        thread: ThreadId,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<()> {
        let known = &state.threads[thread];
        let name = format!("{}: {}", state.processes[known.process].name, known.name);
        drop(state);
        let world = self.clone();
        let launched = thread::Builder::new().name(name).spawn(move || world.be(thread, body));
        match launched {
            Ok(handle) => self.keep(thread, handle),
            Err(why) => {
                let mut state = self.lock();
                state.ready.retain(|ready| *ready != thread);
                state.threads[thread].status = Status::Ended;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Keeps the handle of a thread, in the place of a former one's.
    fn keep(&self, thread: ThreadId, handle: JoinHandle<()>) {
        let former = {
            let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.insert(thread, handle)
        };
        // It has ended except for the destructors of its thread-local values.
        former.into_iter().for_each(|former| drop(former.join()));
    }

    /// Runs a simulated thread, from the first time that it receives the token to the last time that it gives
    /// it away.
    fn be(self: Arc<World>, thread: ThreadId, body: Box<dyn FnOnce() + Send>) {
        HERE.set(Some(Here { world: self.clone(), thread }));
        self.take_token(self.lock(), thread);
        let (killed, env) = {
            let state = self.lock();
            let known = &state.threads[thread];
            (known.killed, state.processes[known.process].env.clone())
        };
        env.into_iter().for_each(System::replace);
        let ended = catch_unwind(AssertUnwindSafe(|| if killed { drop(body) } else { body() }));
        if let Err(payload) = ended
            && !payload.is::<ProcessGone>()
        {
            self.panicked(thread, &text_of(&*payload), None);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        }
        HERE.set(None);
        self.leave(thread, Status::Ended);
    }

    /// Lets virtual time pass for the simulated thread that is running.
    pub(super) fn sleep(&self, time: Duration) {
        let Here { thread, .. } = here().expect("only simulated threads ask the services of the network");
        self.wait_for(thread, Waits::Sleep, Some(nanos(time)), |_| None::<()>, |_, _| {});
    }

    /// Waits until `look` returns something, and returns that. Returns `None` once `most` nanoseconds have
    /// passed. `enlist` gives the ticket of the wait to the events after which `look` may return something.
    ///
    /// Does not return if the process has ended.
    pub(super) fn wait_for<T>(
        &self,
        thread: ThreadId,
        why: Waits,
        most: Option<Nanos>,
        mut look: impl FnMut(&mut State) -> Option<T>,
        mut enlist: impl FnMut(&mut State, Ticket),
    ) -> Option<T> {
        let mut state = self.go_on(self.lock(), thread);
        let until = most.map(|most| state.net.now().saturating_add(most));
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            if until.is_some_and(|until| until <= state.net.now()) {
                return None;
            }
            let ticket = state.ticket(thread);
            enlist(&mut state, ticket);
            state = self.wait(state, thread, why, until);
        }
    }

    /// Waits until an event wakes this thread, or until the time `until`. An event wakes the thread by the
    /// ticket that the thread has taken before.
    ///
    /// Does not return if the process has ended.
    fn wait<'a>(&'a self, state: Guard<'a>, thread: ThreadId, why: Waits, until: Option<Nanos>) -> Guard<'a> {
        let mut state = self.go_on(state, thread);
        if let Some(until) = until {
            let ticket = state.present_ticket(thread);
            state.net.at(until, Due::Wake(ticket));
        }
        state.threads[thread].status = Status::Waiting(why);
        if let Some(starter) = state.threads[thread].starter.take() {
            state.wake(starter);
        }
        let state = self.switch(state, thread);
        self.go_on(state, thread)
    }

    /// Lets the other ready threads run. Does not return if the process has ended.
    pub(super) fn yield_now(&self, thread: ThreadId) {
        let mut state = self.go_on(self.lock(), thread);
        state.ready.push(thread);
        let state = self.switch(state, thread);
        drop(self.go_on(state, thread));
    }

    /// Gives the token to the next thread, and returns once this thread has it again.
    fn switch<'a>(&'a self, mut state: Guard<'a>, thread: ThreadId) -> Guard<'a> {
        let next = state.next();
        if next == Some(thread) {
            state.threads[thread].status = Status::Ready;
            return state;
        }
        let token = state.threads[thread].token.clone();
        self.give(state, next);
        token.wait(None);
        self.unless_lost();
        self.lock()
    }

    fn give(&self, mut state: Guard<'_>, next: Option<ThreadId>) {
        self.handed.fetch_add(1, Ordering::Relaxed);
        match next {
            None => {
                drop(state);
                self.supervisor.set();
            }
            Some(next) => {
                state.running = next;
                let token = state.threads[next].token.clone();
                drop(state);
                token.set();
            }
        }
    }

    fn take_token(&self, state: Guard<'_>, thread: ThreadId) {
        let token = state.threads[thread].token.clone();
        drop(state);
        token.wait(None);
        self.unless_lost();
    }

    /// Stops the calling thread for ever, if the world was given up.
    fn unless_lost(&self) {
        while self.lost.load(Ordering::SeqCst) {
            thread::park();
        }
    }

    /// Returns if the process is alive. Otherwise the thread unwinds or, if that is not possible, blocks here
    /// for ever.
    pub(super) fn go_on<'a>(&'a self, mut state: Guard<'a>, thread: ThreadId) -> Guard<'a> {
        let known = &mut state.threads[thread];
        if !known.killed {
            return state;
        }
        known.raised += 1;
        // A destructor that waits while its thread unwinds cannot be unwound itself.
        if thread::panicking() || known.raised > MAX_RAISED {
            drop(state);
            self.leave(thread, Status::Abandoned);
            loop {
                thread::park();
            }
        }
        drop(state);
        resume_unwind(Box::new(ProcessGone))
    }

    /// Gives the token away for the last time, because this thread ends.
    fn leave(&self, thread: ThreadId, status: Status) {
        let mut state = self.lock();
        state.end(thread, status);
        let next = state.next();
        self.give(state, next);
    }

    /// Stops a process as a crash of its machine would, and waits until none of its threads runs.
    pub(super) fn crash(&self, process: usize) {
        assert!(process != 0, "the test itself cannot crash");
        let mut state = self.lock();
        if !state.processes[process].alive {
            return;
        }
        state.kill(process);
        drop(state);
        self.wait_for_end(process);
    }

    /// Waits until no thread of a process runs.
    pub(super) fn wait_for_end(&self, process: usize) {
        let Some(Here { thread, .. }) = here() else { return };
        let gone = |state: &mut State| (!state.has_threads(process)).then_some(());
        self.wait_for(thread, Waits::Crash, None, gone, |state, ticket| {
            enlist(&state.threads, &mut state.processes[process].mourners, ticket);
        });
    }

    /// Waits until all processes except servers have ended.
    pub(super) fn wait_for_all(&self) {
        let Some(Here { thread, .. }) = here() else { return };
        let ended = |state: &mut State| (!state.any_to_wait_for()).then_some(());
        self.wait_for(thread, Waits::Processes, None, ended, |state, ticket| {
            let State { threads, processes, .. } = state;
            processes.iter_mut().for_each(|machine| enlist(threads, &mut machine.mourners, ticket));
        });
    }

    /// Notes a panic of the user's code.
    pub(super) fn panicked(&self, thread: ThreadId, message: &str, place: Option<String>) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            // The panic happened in this module, under the lock: it cannot be noted.
            Err(TryLockError::WouldBlock) => return,
        };
        let known = &state.threads[thread];
        if known.killed || state.panics_allowed {
            return;
        }
        let process = &state.processes[known.process].name;
        let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
        let why = format!("{process}: {} panicked{place}: {message}", known.name);
        state.fail(why);
    }

    /// Returns the reason why the run failed, if it did, its virtual time, and the hash of its trace.
    pub(super) fn outcome(&self) -> (Option<String>, Nanos, u64) {
        let mut state = self.lock();
        (state.failure.take(), state.net.now(), state.trace_hash())
    }
}

/// Returns the text of a panic.
pub(super) fn text_of(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a message".to_owned(),
    }
}
