//! One-way calls: their caller does not wait, and is told nothing (Larus 1983, section 5).
//!
//! The one-way calls of a stub wait in a queue, and leave in batches. A batch is one ordinary call, which
//! executes them in order ([`BATCH`]). The next batch leaves when the one before has ended. So the server
//! executes the calls in the order in which they were made, each at most once, and while a batch is under
//! way further calls collect and share datagrams (RFC 896).

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use super::arguments::{EncodeArguments, bad_arguments};
use super::batch::{self, BATCH};
use super::behind::Behind;
use super::channel::{Call, Channel, PendingCall, Procedure, decode_reply, no_reply};
use super::dispatch::panicked;
use super::handlers::NO_HANDLERS;
use crate::context::outside;
use crate::env::{Condition, Env, Time};
use crate::exchange::MAX_MESSAGE;
use crate::sys::fork;
use crate::xdr::Encoder;
use crate::{CallFailed, Error, Kind, Ran, guard, lock, self_wait, serving};

/// How many bytes of one-way calls wait before the next caller has to wait.
const MAX_WAITING: usize = 256 << 10;

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
    state: Mutex<State>,
    /// Notified when calls are over, and when waiting calls have left.
    changed: Condition,
}

#[derive(Default)]
struct State {
    waiting: Batch,
    /// What an earlier batch held, whose buffers the next one uses.
    spare: Batch,
    /// How many calls were accepted, and how many of those have ended.
    accepted: u64,
    ended: u64,
    stage: Stage,
    /// The batch that is under way was woken while a thread polled it.
    woken: bool,
    /// Why calls were lost, until somebody asks.
    lost: Option<CallFailed>,
    /// Calls that begin when as many one-way calls have ended.
    behind: VecDeque<(u64, Arc<Behind>)>,
}

/// One-way calls in wire form.
#[derive(Default)]
struct Batch {
    calls: u64,
    bytes: Vec<u8>,
    /// The numbers of their procedures, each once.
    procedures: Vec<u32>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    /// A thread starts or polls a batch.
    Busy,
    /// A batch of so many calls is under way.
    Sent(Box<dyn PendingCall>, u64),
}

enum Step {
    Send(Batch),
    Poll(Box<dyn PendingCall>, u64),
}

impl Queue {
    fn new(channel: &Arc<dyn Channel>) -> Queue {
        let (state, changed) = (Mutex::default(), Condition::default());
        Queue { channel: channel.clone(), env: channel.env(), generation: fork::generation(), state, changed }
    }

    /// Accepts a one-way call. Waits while too many bytes wait already.
    ///
    /// # Errors
    /// When the arguments cannot be encoded or are too long, or this thread must not wait.
    pub(super) fn accept(
        self: &Arc<Self>,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
    ) -> Result<(), CallFailed> {
        self.check_process()?;
        // Encoding is the user's code, so no lock is held.
        let mut arguments = ARGUMENTS.take();
        arguments.clear();
        encode(&mut Encoder::new(&mut arguments)).map_err(bad_arguments)?;
        if arguments.len() > MAX_MESSAGE {
            let why = format!("a one-way call has at most {MAX_MESSAGE} bytes of arguments");
            return Err(CallFailed::new(Kind::TooLarge, Ran::No).because(why));
        }
        let mut state = lock(&self.state);
        if state.waiting.bytes.len() >= MAX_WAITING {
            state = self.wait_until(state, None, |state| state.waiting.bytes.len() < MAX_WAITING)?;
        }
        let State { waiting, accepted, stage, .. } = &mut *state;
        waiting.add(procedure.number, &arguments);
        *accepted += 1;
        let is_idle = matches!(stage, Stage::Idle);
        drop(state);
        if arguments.capacity() <= MAX_WAITING {
            ARGUMENTS.set(arguments);
        }
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

    /// Has a call begin when every one-way call that was accepted so far has ended. Returns false if all have.
    pub(super) fn put_behind(&self, call: &Arc<Behind>) -> bool {
        let mut state = lock(&self.state);
        // In a forked process the call itself tells why it cannot be made.
        let waits = state.ended < state.accepted && self.check_process().is_ok();
        if waits {
            let place = state.accepted;
            state.behind.push_back((place, call.clone()));
        }
        waits
    }

    fn check_process(&self) -> Result<(), CallFailed> {
        if self.generation == fork::generation() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    pub(super) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn wait_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Option<Time>,
        enough: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>, CallFailed> {
        // The thread that drives the runtime in which the server runs would wait for itself.
        if self_wait::is_possible() {
            return Err(self_wait::refusal(Ran::No));
        }
        let _waiting = serving::try_wait_guard()?;
        while !enough(&state) {
            let left = until.map(|until| until.since(self.env.now()));
            if left.is_some_and(|left| left.is_zero()) {
                let why = "one-way calls that were made earlier have not ended";
                return Err(CallFailed::new(Kind::Deadline, Ran::No).because(why));
            }
            (state, _) = self.changed.wait(&self.env, &self.state, state, left);
        }
        Ok(state)
    }

    /// Carries the batches on: takes the outcome of the one that is under way, and sends the next.
    fn run(self: &Arc<Self>) {
        while let Some(step) = self.next_step() {
            match step {
                Step::Send(batch) => self.send(batch),
                Step::Poll(call, calls) => self.poll(call, calls),
            }
        }
    }

    /// Decides what this thread does next. A thread that finds another one busy leaves the rest to it.
    fn next_step(&self) -> Option<Step> {
        let mut state = lock(&self.state);
        let woken = std::mem::take(&mut state.woken);
        match std::mem::replace(&mut state.stage, Stage::Busy) {
            Stage::Busy => {
                state.woken = true;
                None
            }
            Stage::Sent(call, calls) if woken => Some(Step::Poll(call, calls)),
            Stage::Idle if state.waiting.calls > 0 => {
                let spare = std::mem::take(&mut state.spare);
                let batch = std::mem::replace(&mut state.waiting, spare);
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
        let lacked: Vec<u32> =
            batch.procedures.iter().copied().filter(|procedure| self.channel.lacks(*procedure)).collect();
        let calls = batch.calls;
        if !lacked.is_empty() {
            // The others are still the ones that they were.
            batch = batch.without(&lacked);
            let why = "the server has other procedures in the place of some that were called one-way";
            lock(&self.state)
                .lost
                .get_or_insert(CallFailed::new(Kind::NoSuchProcedure, Ran::No).because(why));
        }
        let started = {
            let encode = |e: &mut Encoder<'_>| e.opaque(&batch.bytes);
            let call = Call {
                procedure: &BATCH,
                within: None,
                encode: &encode,
                handlers: &NO_HANDLERS,
                sending: None,
                carries: &batch.procedures,
            };
            // The calls outlive the call that this thread may serve. Interceptors are the user's code.
            let _outside = outside();
            guard::run(|| self.channel.start(call))
        };
        let call = started.unwrap_or_else(|panic| Box::new(panicked(panic).but_ran(Ran::No)));
        batch.clear();
        let mut state = lock(&self.state);
        (state.spare, state.stage, state.woken) = (batch, Stage::Sent(call, calls), true);
    }

    fn poll(self: &Arc<Self>, mut call: Box<dyn PendingCall>, calls: u64) {
        let waker = Waker::from(self.clone());
        let mut outcome: crate::Result<()> = Err(no_reply().into());
        let polled = guard::run(|| {
            call.poll(&mut Context::from_waker(&waker), &mut |reply| outcome = decode_reply(reply))
        });
        let lost = match polled {
            Ok(Poll::Pending) => {
                lock(&self.state).stage = Stage::Sent(call, calls);
                return;
            }
            Ok(Poll::Ready(())) => match outcome {
                Ok(()) => None,
                Err(Error::CallFailed(why)) => Some(why),
                Err(Error::Declared(never)) => match never {},
            },
            Err(panic) => Some(panicked(panic)),
        };
        let behind = {
            let mut state = lock(&self.state);
            state.stage = Stage::Idle;
            state.ended += calls;
            if state.lost.is_none() {
                state.lost = lost;
            }
            let ended = state.ended;
            let begin = state.behind.iter().take_while(|(place, _)| *place <= ended).count();
            state.behind.drain(..begin).collect::<Vec<_>>()
        };
        self.changed.notify_all();
        behind.iter().for_each(|(_, call)| call.begin());
    }
}

/// Carries the batches on when the one that is under way may have ended.
impl Wake for Queue {
    fn wake(self: Arc<Self>) {
        lock(&self.state).woken = true;
        self.run();
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

    /// Returns the calls of other procedures than these.
    fn without(&self, procedures: &[u32]) -> Batch {
        let mut rest = Batch::default();
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

thread_local! {
    /// A buffer for the encoded arguments of a one-way call.
    static ARGUMENTS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}
