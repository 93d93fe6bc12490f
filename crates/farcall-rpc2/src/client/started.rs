//! Started calls: a thread of the import makes them in their order, and their callers wait for them or poll
//! them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farcall::env::Condition;
use farcall::stub::{PendingCall, Procedure, Sink};
use farcall::wait::{Parking, WaitPoint};
use farcall::{CallFailed, KeptArguments, Kind, Ran, Time, guard, lock, serving};

use super::connection::Attendant;
use super::target::{Outcome, Target};

/// The most started calls that wait.
const MAX_STARTED: usize = 1024;
/// After this time without a started call the thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// A subsystem at a server, and the started calls that wait for it.
pub(super) struct Starter {
    target: Target,
    queue: Mutex<Queue>,
    /// Notified when a call is started, or the binding is gone.
    more: Condition,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Arc<StartedCall>>,
    /// Whether a thread makes the calls.
    has_thread: bool,
    is_closed: bool,
}

impl Starter {
    pub fn new(target: Target) -> Starter {
        Starter { target, queue: Mutex::default(), more: Condition::default() }
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Lets the thread end when no calls wait.
    pub fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.more.notify_all();
    }

    /// Makes the started calls, until there have been none for a while, or the binding is gone.
    fn make_calls(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(call) = queue.calls.pop_front() {
                drop(queue);
                call.run(self);
                queue = lock(&self.queue);
                continue;
            }
            let (after, notified) = match queue.is_closed {
                true => (queue, false),
                false => self.more.wait(self.target.env(), &self.queue, queue, Some(IDLE)),
            };
            queue = after;
            if !notified && queue.calls.is_empty() {
                queue.has_thread = false;
                return;
            }
        }
    }

    /// Ends the waiting calls whose deadline has passed, and returns the earliest deadline of the others.
    fn end_late_calls(&self) -> Option<Time> {
        let (mut late, mut next) = (Vec::new(), None::<Time>);
        let now = self.target.env().now();
        lock(&self.queue).calls.retain(|call| match call.until {
            Some(until) if until <= now => {
                late.push(call.clone());
                false
            }
            Some(until) => {
                next = Some(next.map_or(until, |next| next.min(until)));
                true
            }
            None => true,
        });
        late.iter().for_each(|call| call.end_late(&self.target, lock(&call.state)));
        next
    }
}

/// What the thread does while it waits in a call.
struct Attending<'a> {
    starter: &'a Starter,
    call: &'a StartedCall,
}

impl Attendant for Attending<'_> {
    fn is_over(&self) -> bool {
        lock(&self.call.state).is_over
    }

    fn end_late_calls(&self) -> Option<Time> {
        self.starter.end_late_calls()
    }
}

/// A started call, which its thread and its caller share.
pub(super) struct StartedCall {
    procedure: Procedure,
    until: Option<Time>,
    state: Mutex<State>,
    /// Notified when the call has ended.
    ended: Condition,
}

#[derive(Default)]
struct State {
    /// The packed arguments, until the call is made or is over.
    packed: Option<KeptPacked>,
    /// Whether the call is being made.
    is_running: bool,
    /// Whether the call has ended, or nobody waits for it any more.
    is_over: bool,
    is_detached: bool,
    /// How the call ended, until its caller has that.
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// The packed arguments of a call.
struct KeptPacked {
    packed: Vec<u8>,
    /// Counts them.
    _kept: KeptArguments,
}

/// The caller's handle of a started call. Dropping it cancels the call.
pub(super) struct Started {
    starter: Arc<Starter>,
    call: Arc<StartedCall>,
}

impl Started {
    /// Starts a call.
    ///
    /// # Errors
    /// Too many calls wait, or keep too many bytes of arguments, or the system cannot start a thread.
    pub fn new(
        starter: &Arc<Starter>,
        procedure: Procedure,
        packed: Vec<u8>,
        until: Option<Time>,
    ) -> Result<Started, CallFailed> {
        let packed = Some(KeptPacked { _kept: starter.target.keep(packed.len())?, packed });
        let state = Mutex::new(State { packed, ..State::default() });
        let call = Arc::new(StartedCall { procedure, until, state, ended: Condition::default() });
        let mut queue = lock(&starter.queue);
        if queue.calls.len() >= MAX_STARTED {
            let why = format!("{MAX_STARTED} started calls wait already");
            return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
        }
        if !queue.has_thread {
            let own = starter.clone();
            let env = starter.target.env();
            env.spawn("rpc2-calls", Box::new(move || own.make_calls()))
                .map_err(|why| CallFailed::new(Kind::Local, Ran::No).because(why.to_string()))?;
            queue.has_thread = true;
        }
        queue.calls.push_back(call.clone());
        drop(queue);
        starter.more.notify_one();
        Ok(Started { starter: starter.clone(), call })
    }

    /// Gives the call up.
    fn give_up(&self) {
        let state = lock(&self.call.state);
        let ran = if state.is_running { Ran::Maybe } else { Ran::No };
        let why = self.starter.target.about(CallFailed::new(Kind::Cancelled, ran), &self.call.procedure);
        self.call.end(state, Outcome::Failed(why));
        lock(&self.starter.queue).calls.retain(|waiting| !Arc::ptr_eq(waiting, &self.call));
    }
}

impl StartedCall {
    fn run(&self, starter: &Starter) {
        let arguments = {
            let mut state = lock(&self.state);
            let Some(arguments) = state.packed.take().filter(|_| !state.is_over) else { return };
            state.is_running = true;
            arguments
        };
        let attendant = Attending { starter, call: self };
        let outcome = starter.target.run(&self.procedure, &arguments.packed, self.until, &attendant);
        self.end(lock(&self.state), outcome);
    }

    /// Ends the call, unless it has ended. The outcome must be chosen under the same lock: `run` can begin
    /// the call as soon as the lock is free, and the call may then run.
    fn end(&self, mut state: MutexGuard<'_, State>, outcome: Outcome) {
        if state.is_over {
            drop(state);
            return;
        }
        state.is_over = true;
        state.packed = None;
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    /// Ends the call, whose deadline has passed before its turn came. If it is being made, its thread ends
    /// it.
    fn end_late(&self, target: &Target, state: MutexGuard<'_, State>) {
        if state.is_running {
            return;
        }
        let why = CallFailed::new(Kind::Deadline, Ran::No).because("no turn in time");
        self.end(state, Outcome::Failed(target.about(why, &self.procedure)));
    }
}

impl PendingCall for Started {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        let ended = lock(&self.call.state).outcome.take();
        if let Some(outcome) = ended {
            return outcome.deliver(sink);
        }
        let _waiting = match serving::try_wait_guard() {
            Ok(waiting) => waiting,
            // Only the wait is refused: the call may be running.
            Err(why) => {
                let why = self.starter.target.about(why.but_ran(Ran::Maybe), &self.call.procedure);
                return Outcome::Failed(why).deliver(sink);
            }
        };
        let mut state = lock(&self.call.state);
        let outcome = loop {
            if let Some(outcome) = state.outcome.take() {
                break outcome;
            }
            // The thread that makes a call ends it in time.
            let until = self.call.until.filter(|_| !state.is_running);
            let left = until.map(|until| until.since(self.starter.target.env().now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.call.end_late(&self.starter.target, state);
                state = lock(&self.call.state);
                continue;
            }
            state = self.call.ended.wait(self.starter.target.env(), &self.call.state, state, left).0;
        };
        drop(state);
        outcome.deliver(sink);
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        // Cloning and dropping a waker are the user's code, so no lock is held.
        let waker = context.waker().clone();
        let (outcome, former) = {
            let mut state = lock(&self.call.state);
            match state.outcome.take() {
                Some(outcome) => (Some(outcome), Some(waker)),
                None => (None, state.waker.replace(waker)),
            }
        };
        drop(former);
        match outcome {
            Some(outcome) => {
                outcome.deliver(sink);
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        Some(Arc::new(Parking::new(self.starter.target.env().clone())))
    }

    fn cancel(&mut self) {
        // The server cannot be asked to stop the call, so the call ends only here.
        self.give_up();
    }

    fn detach(self: Box<Self>) {
        lock(&self.call.state).is_detached = true;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let state = lock(&self.call.state);
        let is_done = state.is_over || state.is_detached;
        drop(state);
        if !is_done {
            self.give_up();
        }
    }
}
