//! One-way calls: their caller does not wait, and is told nothing (Larus 1983, section 5).
//!
//! The one-way calls of a stub wait in a queue, and leave in batches. A batch is one ordinary call, which
//! executes them in order ([`BATCH`]). The next batch leaves when the one before has ended. So the server
//! executes the calls in the order in which they were made, each at most once, and while a batch is under
//! way further calls collect and share datagrams (RFC 896).
//!
//! No thread of the queue's own is needed: whichever thread learns that a batch has ended sends the next.
//! Where that would run the user's code, which may block, a thread of the queue does it ([`CarriedBy`]).

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};

use super::alarm::{Alarm, Timer};
use super::arguments::{EncodeArguments, bad_arguments};
use super::batch::{self, BATCH, BatchPlace, MAX_CALL, MAX_WAITING};
use super::behind::{Behind, Waiting};
use super::channel::{Call, CarriedBy, Channel, PendingCall, Procedure, Reply, decode_reply, no_reply};
use super::dispatch::panicked;
use super::handlers::NO_HANDLERS;
use crate::context::outside;
use crate::env::{Condition, Env, Time};
use crate::retry::either_ran;
use crate::self_wait::{self, GRACE};
use crate::sys::fork;
use crate::workers::{Jobs, Refused, Threads};
use crate::xdr::Encoder;
use crate::{CallFailed, Error, Kind, Ran, guard, lock, serving};

/// The queue of a stub's one-way calls, which the first of them makes.
#[derive(Default)]
pub(super) struct Oneway(OnceLock<Arc<Queue>>);

impl Oneway {
    /// Returns the queue for a stub that continues the order of this one.
    pub(super) fn continued(&self) -> Oneway {
        Oneway(self.0.clone())
    }

    /// Returns the queue, and makes it if there is none.
    pub(super) fn queue(&self, channel: &Arc<dyn Channel>) -> &Arc<Queue> {
        self.0.get_or_init(|| Arc::new(Queue::new(channel)))
    }

    /// Returns the queue, if one-way calls were made.
    pub(super) fn made(&self) -> Option<&Arc<Queue>> {
        self.0.get()
    }
}

/// A clone of a stub has an order of its own.
impl Clone for Oneway {
    fn clone(&self) -> Oneway {
        Oneway::default()
    }
}

/// One-way calls that wait for their batch, and the batch that is under way.
pub(super) struct Queue {
    channel: Arc<dyn Channel>,
    env: Arc<dyn Env>,
    /// The process that made the queue. Nobody carries it on in a process forked from that one.
    generation: u64,
    carried_by: CarriedBy,
    /// The number of the calls' order, by which servers know it.
    order: u64,
    /// The one thread that carries the queue on where that may block. It ends when it is idle.
    thread: Option<Arc<Jobs>>,
    /// Wakes the tasks that await calls behind the one-way calls, at the calls' deadlines.
    alarm: OnceLock<Arc<Alarm>>,
    state: Mutex<State>,
    /// Notified when calls are over, and when waiting calls have left.
    changed: Condition,
}

#[derive(Default)]
struct State {
    waiting: Batch,
    /// The buffers of an earlier batch, for the next one.
    spare: Batch,
    /// How many calls were accepted, and how many of those have ended.
    accepted: u64,
    ended: u64,
    stage: Stage,
    /// The batch that is under way is to be polled.
    woken: bool,
    /// Why calls were lost, until somebody asks.
    lost: Option<CallFailed>,
    /// Started calls that follow the one-way calls.
    behind: Waiting,
}

/// One-way calls in wire form.
#[derive(Default)]
struct Batch {
    /// How many calls the stub has made before the first one of the batch.
    first: u64,
    calls: u64,
    bytes: Vec<u8>,
    /// The numbers of their procedures, each once.
    procedures: Vec<u32>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    /// This thread starts or polls a batch.
    Busy(ThreadId),
    Sent(Box<dyn PendingCall>, Batch),
}

enum Step {
    Send(Batch),
    Poll(Box<dyn PendingCall>, Batch),
}

impl Queue {
    fn new(channel: &Arc<dyn Channel>) -> Queue {
        let (env, carried_by) = (channel.env(), channel.carried_by());
        let thread = (carried_by == CarriedBy::Blocking)
            .then(|| Jobs::new(env.clone(), "farcall-oneway", Threads::besides_waiting(1, 0), 1));
        let (generation, state, changed) = (fork::generation(), Mutex::default(), Condition::default());
        let mut order = [0; 8];
        env.entropy(&mut order);
        let (channel, order, alarm) = (channel.clone(), u64::from_ne_bytes(order), OnceLock::new());
        Queue { channel, env, generation, carried_by, order, thread, alarm, state, changed }
    }

    /// Returns a timer for a started call behind the one-way calls.
    pub(super) fn timer(&self) -> Timer {
        self.alarm.get_or_init(|| Alarm::new(self.env.clone())).timer()
    }

    /// Accepts a one-way call. Waits while too many bytes wait already, until the time `until` at most.
    ///
    /// # Errors
    /// When the arguments cannot be encoded or are too long, the time has come, or this thread must not wait.
    pub(super) fn accept(
        self: &Arc<Self>,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
        until: Option<Time>,
    ) -> Result<(), CallFailed> {
        self.check_process()?;
        if until.is_some_and(|until| until <= self.env.now()) {
            return Err(CallFailed::new(Kind::Deadline, Ran::No));
        }
        // Encoding is the user's code, so no lock is held.
        let mut arguments = ARGUMENTS.try_with(Cell::take).unwrap_or_default();
        arguments.clear();
        encode(&mut Encoder::new(&mut arguments)).map_err(bad_arguments)?;
        if arguments.len() > MAX_CALL {
            let why = format!("a one-way call has at most {MAX_CALL} bytes of arguments");
            return Err(CallFailed::new(Kind::TooLarge, Ran::No).because(why));
        }
        if self.carried_by == CarriedBy::Caller {
            self.execute(procedure.number, &arguments);
        } else {
            self.add(procedure.number, &arguments, until)?;
        }
        if arguments.capacity() <= MAX_WAITING {
            // A thread that is ending drops the buffer.
            let _ = ARGUMENTS.try_with(|kept| kept.set(arguments));
        }
        Ok(())
    }

    /// Executes a call in this thread, where the channel has no other.
    fn execute(&self, procedure: u32, arguments: &[u8]) {
        let mut batch = Batch::default();
        batch.add(procedure, arguments);
        let mut outcome = Err(no_reply());
        batch.with_call(self.order, |call| self.channel.call(call, &mut |reply| outcome = ended(reply)));
        if let Err(why) = outcome {
            lock(&self.state).lose(why);
        }
    }

    fn add(
        self: &Arc<Self>,
        procedure: u32,
        arguments: &[u8],
        until: Option<Time>,
    ) -> Result<(), CallFailed> {
        let mut state = lock(&self.state);
        if state.waiting.bytes.len() >= MAX_WAITING {
            state = self.wait_until(state, until, |state| state.waiting.bytes.len() < MAX_WAITING)?;
        }
        let State { waiting, accepted, stage, .. } = &mut *state;
        waiting.add(procedure, arguments);
        *accepted += 1;
        let is_idle = matches!(stage, Stage::Idle);
        drop(state);
        if is_idle {
            self.run();
        }
        Ok(())
    }

    /// Waits until every call that was accepted so far has ended. Returns whether it waited.
    ///
    /// # Errors
    /// When the time `until` has come, or this thread must not wait.
    pub(super) fn settle(&self, until: Option<Time>) -> Result<bool, CallFailed> {
        self.check_process()?;
        let state = lock(&self.state);
        let accepted = state.accepted;
        if state.ended >= accepted {
            return Ok(false);
        }
        self.wait_until(state, until, |state| state.ended >= accepted).map(|_| true)
    }

    /// Returns why calls were lost since this was asked last.
    pub(super) fn take_lost(&self) -> Option<CallFailed> {
        lock(&self.state).lost.take()
    }

    /// Has a call begin when every one-way call that was accepted so far has ended. Returns false if all
    /// have.
    ///
    /// # Errors
    /// When too many calls wait so.
    pub(super) fn put_behind(&self, call: &Arc<Behind>) -> Result<bool, CallFailed> {
        if self.check_process().is_err() {
            // The call itself tells why it cannot be made.
            return Ok(false);
        }
        let mut state = lock(&self.state);
        let State { accepted, ended, behind, .. } = &mut *state;
        if *ended >= *accepted {
            return Ok(false);
        }
        behind.add(*accepted, call).map(|()| true)
    }

    pub(super) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn check_process(&self) -> Result<(), CallFailed> {
        if self.generation == fork::generation() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    fn wait_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Option<Time>,
        enough: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>, CallFailed> {
        // An interceptor of the batch makes one-way calls by the same stub.
        let waits_for_itself = matches!(state.stage, Stage::Busy(thread) if thread == thread::current().id());
        drop(state);
        if waits_for_itself {
            let why = "this thread sends one-way calls of the stub, and would wait until it has";
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        self.channel.may_wait()?;
        let _waiting = serving::try_wait_guard()?;
        // The server may run in the runtime that this thread drives.
        let drives = self_wait::drives_tokio();
        state = lock(&self.state);
        while !enough(&state) {
            let left = until.map(|until| until.since(self.env.now()));
            if left.is_some_and(|left| left.is_zero()) {
                let why = "one-way calls that were made earlier have not ended";
                return Err(CallFailed::new(Kind::Deadline, Ran::No).because(why));
            }
            let (most, ended) =
                (if drives { left.min(Some(GRACE)).or(Some(GRACE)) } else { left }, state.ended);
            let notified;
            (state, notified) = self.changed.wait(&self.env, &self.state, state, most);
            if drives && !notified && most == Some(GRACE) && state.ended == ended && !enough(&state) {
                return Err(self_wait::refusal(Ran::No));
            }
        }
        Ok(state)
    }

    /// Carries the batches on: takes the outcome of the one that is under way, and sends the next.
    fn run(self: &Arc<Self>) {
        while let Some(step) = self.next_step() {
            match step {
                Step::Send(batch) => self.send(batch),
                Step::Poll(call, batch) => self.poll(call, batch),
            }
        }
    }

    /// Decides what this thread does next. A thread that finds another one busy leaves the rest to it.
    fn next_step(&self) -> Option<Step> {
        let mut state = lock(&self.state);
        let woken = std::mem::take(&mut state.woken);
        match std::mem::replace(&mut state.stage, Stage::Busy(thread::current().id())) {
            Stage::Busy(other) => {
                (state.stage, state.woken) = (Stage::Busy(other), true);
                None
            }
            Stage::Sent(call, batch) if woken => Some(Step::Poll(call, batch)),
            Stage::Idle if state.waiting.calls > 0 => {
                let spare = std::mem::take(&mut state.spare);
                let mut batch = std::mem::replace(&mut state.waiting, spare);
                batch.first = state.ended;
                drop(state);
                // There is room to wait again.
                self.changed.notify_all();
                Some(Step::Send(batch))
            }
            rest => {
                state.stage = rest;
                None
            }
        }
    }

    fn send(&self, mut batch: Batch) {
        self.drop_lacked(&mut batch);
        let started = guard::run(|| batch.with_call(self.order, |call| self.channel.start(call)));
        let call = started.unwrap_or_else(|panic| Box::new(panicked(panic).but_ran(Ran::No)));
        let mut state = lock(&self.state);
        (state.stage, state.woken) = (Stage::Sent(call, batch), true);
    }

    /// Drops the calls of procedures that the server does not have. Returns whether there were any. The other
    /// procedures are still the ones that they were.
    fn drop_lacked(&self, batch: &mut Batch) -> bool {
        let lacked: Vec<u32> =
            batch.procedures.iter().copied().filter(|procedure| self.channel.lacks(*procedure)).collect();
        if lacked.is_empty() {
            return false;
        }
        let rest = batch.without(&lacked);
        let calls = batch.calls - rest.calls;
        *batch = rest;
        let why = "the server has other procedures in the place of some that were called one-way";
        let why = CallFailed::new(Kind::NoSuchProcedure, Ran::No).because(why);
        let mut state = lock(&self.state);
        state.lose(why);
        state.ended += calls;
        true
    }

    fn poll(self: &Arc<Self>, mut call: Box<dyn PendingCall>, mut batch: Batch) {
        let waker = Waker::from(self.clone());
        let mut outcome = Err(no_reply());
        let polled =
            guard::run(|| call.poll(&mut Context::from_waker(&waker), &mut |reply| outcome = ended(reply)));
        let lost = match polled {
            Ok(Poll::Pending) => {
                lock(&self.state).stage = Stage::Sent(call, batch);
                return;
            }
            Ok(Poll::Ready(())) => outcome.err(),
            Err(panic) => Some(panicked(panic).but_ran(Ran::Maybe)),
        };
        drop(call);
        // The batch may have met a server of another version than the one that it was made for.
        let other_version = lost.as_ref().is_some_and(|why| why.ran() == Ran::No);
        if other_version && self.drop_lacked(&mut batch) && batch.calls > 0 {
            return self.send(batch);
        }
        let behind = {
            let mut state = lock(&self.state);
            state.stage = Stage::Idle;
            state.ended += batch.calls;
            if let Some(why) = lost.filter(|_| batch.calls > 0) {
                state.lose(why);
            }
            batch.clear();
            state.spare = batch;
            let ended = state.ended;
            state.behind.take_due(ended)
        };
        self.changed.notify_all();
        behind.iter().for_each(|call| call.begin());
    }
}

/// Carries the batches on when the one that is under way may have ended.
impl Wake for Queue {
    fn wake(self: Arc<Self>) {
        lock(&self.state).woken = true;
        match self.thread.clone() {
            Some(thread) => {
                let queue = self.clone();
                match thread.submit(Box::new(move || queue.run())) {
                    // A job that waits to begin does this too.
                    Ok(()) | Err(Refused::Full) => {}
                    Err(Refused::NoThread(_)) => self.run(),
                }
            }
            None => self.run(),
        }
    }
}

impl State {
    /// Notes that calls were lost. Their `ran` covers all that were lost.
    fn lose(&mut self, why: CallFailed) {
        self.lost = Some(match self.lost.take() {
            Some(first) => {
                let ran = either_ran(first.ran(), why.ran());
                first.but_ran(ran)
            }
            None => why,
        });
    }
}

impl Batch {
    fn add(&mut self, procedure: u32, arguments: &[u8]) {
        batch::append(&mut self.bytes, procedure, arguments);
        self.calls += 1;
        if !self.procedures.contains(&procedure) {
            self.procedures.push(procedure);
        }
    }

    /// Gives `f` the call that executes the batch. It inherits nothing from the call that this thread may
    /// serve, because the calls of the batch outlive that.
    fn with_call<R>(&self, order: u64, f: impl FnOnce(Call<'_>) -> R) -> R {
        let place = BatchPlace { order, first: self.first };
        let encode = |e: &mut Encoder<'_>| {
            place.encode(e)?;
            e.opaque(&self.bytes)
        };
        let _outside = outside();
        f(Call {
            procedure: &BATCH,
            within: None,
            encode: &encode,
            handlers: &NO_HANDLERS,
            sending: None,
            shared: None,
            carries: &self.procedures,
            hurries: false,
        })
    }

    /// Returns the calls of other procedures than these.
    fn without(&self, procedures: &[u32]) -> Batch {
        let mut rest = Batch { first: self.first, ..Batch::default() };
        batch::each(&self.bytes, |procedure, arguments| {
            if !procedures.contains(&procedure) {
                rest.add(procedure, arguments);
            }
        });
        rest
    }

    /// Forgets the calls, and keeps the buffers unless a long call has made them large.
    fn clear(&mut self) {
        self.calls = 0;
        self.bytes.clear();
        self.bytes.shrink_to(2 * MAX_WAITING);
        self.procedures.clear();
    }
}

/// Returns how a batch ended.
fn ended(reply: Reply<'_>) -> Result<(), CallFailed> {
    let outcome: crate::Result<()> = decode_reply(reply);
    outcome.map_err(|why| match why {
        Error::CallFailed(why) => why,
        Error::Declared(never) => match never {},
    })
}

thread_local! {
    /// A buffer for the encoded arguments of a one-way call.
    static ARGUMENTS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}
