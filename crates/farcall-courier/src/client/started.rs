//! A started call: the carrier of its line makes it, and its caller waits for it or polls it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use farcall::env::Condition;
use farcall::stub::{PendingCall, Procedure, Reply, Sink};
use farcall::wait::{Parking, WaitPoint};
use farcall::xdr::Decoder;
use farcall::{CallFailed, KeptArguments, Kind, Ran, Time, guard, lock, room, serving};

use super::line::Job;
use super::outcome::{Deadline, Outcome};
use super::target::{CalledAt, Carrier, Target, waits_for_itself};
use crate::link::Attendant;

/// A started call, which its carrier and its caller share.
pub(crate) struct StartedCall<C: Carrier> {
    target: Arc<Target<C>>,
    procedure: Procedure,
    deadline: Deadline,
    state: Mutex<State>,
    /// Notified when the call has ended.
    ended: Condition,
}

struct State {
    /// The words of the arguments, until the call is made or is over.
    words: Option<KeptWords>,
    /// Whether the call is being made.
    is_running: bool,
    /// Whether the call has ended, or nobody waits for it any more.
    is_over: bool,
    is_detached: bool,
    /// How the call ended, until its caller has that.
    outcome: Option<(Outcome, Vec<u8>)>,
    waker: Option<Waker>,
}

/// The words of a call's arguments.
struct KeptWords {
    words: Vec<u8>,
    /// Counts the words.
    _kept: KeptArguments,
}

impl<C: Carrier> StartedCall<C> {
    /// Starts a call, and returns its caller's handle.
    ///
    /// # Errors
    /// Too many calls wait, or keep too many bytes of arguments, or the system cannot start a thread.
    pub(crate) fn start(
        target: &Arc<Target<C>>,
        procedure: Procedure,
        words: &[u8],
        deadline: Deadline,
    ) -> Result<Started<C>, CallFailed> {
        let Some(kept) = target.arguments.keep(words.len()) else {
            let why = CallFailed::new(Kind::Overloaded, Ran::No).because(target.arguments.refusal());
            return Err(target.about(why, &procedure));
        };
        let words = room::copied(words).map_err(|why| {
            target.about(CallFailed::new(Kind::BadArguments, Ran::No).because(why.to_string()), &procedure)
        })?;
        let words = Some(KeptWords { words, _kept: kept });
        let (is_running, is_over, is_detached, outcome, waker) = Default::default();
        let state = State { words, is_running, is_over, is_detached, outcome, waker };
        let (target, state, ended) = (target.clone(), Mutex::new(state), Condition::default());
        let call = Arc::new(StartedCall { target, procedure, deadline, state, ended });
        call.target.line.submit(call.clone()).map_err(|why| call.target.about(why, &call.procedure))?;
        Ok(Started(call))
    }

    /// Ends the call, unless it has ended. The outcome must be chosen under the same lock: `run` can begin
    /// the call as soon as the lock is free, and the call may then run.
    fn end(&self, mut state: MutexGuard<'_, State>, outcome: Outcome, xdr: Vec<u8>) {
        if state.is_over {
            drop(state);
            return;
        }
        state.is_over = true;
        state.words = None;
        state.outcome = Some((outcome, xdr));
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    /// Gives the call up, and returns whether it was being made. Nobody waits for its reply any more.
    fn give_up(&self, outcome: impl FnOnce(Ran) -> Outcome) {
        let state = lock(&self.state);
        let ran = if state.is_running { Ran::Maybe } else { Ran::No };
        self.end(state, outcome(ran), Vec::new());
        self.target.line.withdraw(self);
    }

    fn deliver(&self, (outcome, xdr): (Outcome, Vec<u8>), sink: Sink<'_>) {
        let origin = CalledAt { target: &self.target, procedure: &self.procedure };
        sink(match outcome {
            Outcome::Result => Reply::ResultOf(Decoder::new(&xdr), &origin),
            Outcome::Exception => Reply::Exception(Decoder::new(&xdr)),
            Outcome::Failed(why) => Reply::Failed(why),
        });
    }

    /// Blocks until the call has ended.
    fn wait(&self) -> Result<(Outcome, Vec<u8>), CallFailed> {
        let ended = lock(&self.state).outcome.take();
        if let Some(outcome) = ended {
            return Ok(outcome);
        }
        if self.target.line.is_held_here() {
            // It has not begun, because this thread has the turn.
            self.give_up(|_| Outcome::Failed(self.target.about(waits_for_itself(), &self.procedure)));
        }
        // Only the wait can be refused: the call may be running.
        let _waiting = serving::try_wait_guard()
            .map_err(|why| self.target.about(why.but_ran(Ran::Maybe), &self.procedure))?;
        let env = self.target.env();
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Ok(outcome);
            }
            let until = self.deadline.until.filter(|_| !state.is_running);
            let left = until.map(|until| until.since(env.now()));
            if left.is_some_and(|left| left.is_zero()) {
                drop(state);
                self.end_late();
                self.target.line.withdraw(self);
                state = lock(&self.state);
                continue;
            }
            // The carrier ends a call that is being made.
            state = self.ended.wait(env, &self.state, state, left).0;
        }
    }
}

impl<C: Carrier> Job<C::Connection> for StartedCall<C> {
    fn run(&self, connection: Option<C::Connection>, attendant: &dyn Attendant) -> Option<C::Connection> {
        let arguments = {
            let mut state = lock(&self.state);
            let Some(arguments) = state.words.take().filter(|_| !state.is_over) else { return connection };
            state.is_running = true;
            arguments
        };
        let (mut connection, mut xdr) = (connection, Vec::new());
        let call = (&self.procedure, &arguments.words[..]);
        let outcome = self.target.run(call, self.deadline, &mut connection, Some(attendant), None, &mut xdr);
        self.end(lock(&self.state), outcome, xdr);
        connection
    }

    fn until(&self) -> Option<Time> {
        self.deadline.until
    }

    fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    fn end_late(&self) {
        let state = lock(&self.state);
        if state.is_running {
            return;
        }
        let why = self.target.late(&self.procedure, self.deadline);
        self.end(state, Outcome::Failed(why), Vec::new());
    }
}

/// The caller's handle of a started call. Dropping it cancels the call.
pub(crate) struct Started<C: Carrier>(Arc<StartedCall<C>>);

impl<C: Carrier> PendingCall for Started<C> {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        match self.0.wait() {
            Ok(outcome) => self.0.deliver(outcome, sink),
            Err(why) => sink(Reply::Failed(why)),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        // Cloning and dropping a waker are the user's code, so no lock is held.
        let waker = context.waker().clone();
        let (outcome, former) = {
            let mut state = lock(&self.0.state);
            match state.outcome.take() {
                Some(outcome) => (Some(outcome), Some(waker)),
                None => (None, state.waker.replace(waker)),
            }
        };
        drop(former);
        match outcome {
            Some(outcome) => {
                self.0.deliver(outcome, sink);
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        Some(Arc::new(Parking::new(self.0.target.env().clone())))
    }

    fn cancel(&mut self) {
        // The server cannot be asked to stop the call, so the call ends only here.
        let call = &self.0;
        call.give_up(|ran| {
            let why = CallFailed::new(Kind::Cancelled, ran);
            Outcome::Failed(call.target.about(why, &call.procedure))
        });
    }

    fn detach(self: Box<Self>) {
        lock(&self.0.state).is_detached = true;
    }
}

impl<C: Carrier> Drop for Started<C> {
    fn drop(&mut self) {
        let state = lock(&self.0.state);
        let is_done = state.is_over || state.is_detached;
        drop(state);
        if !is_done {
            self.0.give_up(|ran| Outcome::Failed(CallFailed::new(Kind::Cancelled, ran)));
        }
    }
}
