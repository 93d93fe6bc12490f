//! The task that makes a started call which must be bound first, or which failed and is made again.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use farcall_proto::Failure;
use farcall_proto::client::Outcome;

use super::bind::Target;
use super::import::{Importer, give};
use super::sent::SentCall;
use super::tasks::{Room, Tasks};
use crate::Trace;
use crate::client::CallRequest;
use crate::env::{Event, Time};
use crate::retry::Retry;
use crate::stub::{Procedure, Reply, Sink, bad_arguments, no_reply};
use crate::xdr::Encoder;
use crate::{CallFailed, Kind, Ran, guard, lock};

/// A call with its arguments encoded: what it takes to make it again.
pub(super) struct EncodedCall {
    pub(super) importer: Arc<Importer>,
    pub(super) procedure: Procedure,
    /// Encoded.
    pub(super) arguments: Vec<u8>,
    pub(super) deadline: Option<Time>,
    pub(super) trace: Option<Trace>,
}

/// An attempt that failed, and at whom.
pub(super) type Failed = (Arc<Target>, Failure);

impl EncodedCall {
    pub(super) fn new(
        importer: &Arc<Importer>,
        request: &CallRequest<'_>,
    ) -> Result<EncodedCall, CallFailed> {
        let mut arguments = Vec::new();
        (request.encode)(&mut Encoder::new(&mut arguments)).map_err(bad_arguments)?;
        let CallRequest { procedure, deadline, trace, .. } = *request;
        Ok(EncodedCall { importer: importer.clone(), procedure: *procedure, arguments, deadline, trace })
    }

    pub(super) fn with_trip<R>(&self, f: impl FnOnce(&CallRequest<'_>) -> R) -> R {
        // Encoded arguments are a multiple of four bytes: opaque data of that length is just them.
        let encode = |e: &mut Encoder<'_>| e.opaque(&self.arguments);
        f(&CallRequest {
            procedure: &self.procedure,
            deadline: self.deadline,
            trace: self.trace,
            encode: &encode,
        })
    }
}

/// A call that a task makes, as its caller sees it.
pub(super) struct RetryTask {
    state: Mutex<State>,
    ended: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    /// There is an ending, or it was taken.
    over: bool,
    ending: Option<Ending>,
    cancelled: bool,
    /// Nobody waits for it, but it is to go on.
    detached: bool,
    /// The call, while there is a binding.
    started: Option<(SentCall, Arc<Target>)>,
    /// Who waits for the ending.
    waker: Option<Waker>,
    /// The task that makes the call.
    task: Option<Waker>,
}

/// A result or an exception, and from whom; or why the call failed at last.
type Ending = Result<(Outcome<'static>, Arc<Target>), CallFailed>;

impl RetryTask {
    /// Has the call made; again, if it was attempted before.
    ///
    /// # Errors
    /// There are too many already, or there can be no thread.
    pub(super) fn begin(call: EncodedCall, failed: Option<Failed>) -> Result<Arc<RetryTask>, CallFailed> {
        let inner = call.importer.inner.clone();
        let room = Room::take(&inner, call.arguments.len())?;
        let call_task = Arc::new(RetryTask { state: Mutex::default(), ended: inner.env.event() });
        let (ours, deadline) = (End(call_task.clone()), call.deadline);
        let steps = async move {
            let _room = room;
            ours.0.run(&call, failed).await;
        };
        let task = Tasks::spawn(&inner, deadline, Box::pin(steps));
        lock(&call_task.state).task = Some(task.map_err(|why| CallFailed::local("starting a thread", why))?);
        Ok(call_task)
    }

    async fn run(&self, call: &EncodedCall, failed: Option<Failed>) {
        let mut retry = Retry::default();
        let ended = self.attempts(call, failed, &mut retry).await;
        self.end(ended.map_err(|why| retry.of_all(why)));
    }

    /// Binds if need be, and calls, while that may help.
    async fn attempts(&self, call: &EncodedCall, mut failed: Option<Failed>, retry: &mut Retry) -> Ending {
        let EncodedCall { importer, procedure, .. } = call;
        loop {
            if let Some((target, failure)) = failed {
                // Whether another server is less busy is asked of the registry.
                match failure.kind == Kind::Overloaded {
                    true => Tasks::hold_up(&importer.inner, || {
                        importer.try_again(retry, &target, failure, procedure)
                    })?,
                    false => importer.try_again(retry, &target, failure, procedure)?,
                }
            }
            let target = importer.target_later(retry.avoid(), || self.is_wanted(call)).await;
            let target = target.map_err(|why| retry.no_server_found(why))?;
            failed = match self.attempt(call, &target).await? {
                Outcome::Failed(failure) => Some((target, failure)),
                outcome => return Ok((outcome, target)),
            };
        }
    }

    /// Whether somebody still waits for the call to be made.
    fn is_wanted(&self, call: &EncodedCall) -> Result<(), CallFailed> {
        if lock(&self.state).cancelled {
            return Err(CallFailed::new(Kind::Cancelled, Ran::No));
        }
        match call.deadline {
            Some(deadline) if deadline <= call.importer.inner.env.now() => Err(call.importer.too_late()),
            _ => Ok(()),
        }
    }

    /// Calls once.
    async fn attempt(
        &self,
        call: &EncodedCall,
        target: &Arc<Target>,
    ) -> Result<Outcome<'static>, CallFailed> {
        let started = call.with_trip(|request| SentCall::start(target, request))?;
        // Either this sees that it was cancelled meanwhile, or whoever cancels sees what to cancel.
        let (cancelled, detached) = {
            let mut state = lock(&self.state);
            state.started = Some((started.clone(), target.clone()));
            (state.cancelled, state.detached)
        };
        if cancelled {
            started.cancel(target);
        } else if detached {
            started.detach(target, false);
        }
        let mut ended = None;
        let waited = poll_fn(|context| {
            let taker = &mut |outcome: Outcome<'_>, _: &[u8]| ended = Some(outcome.into_owned());
            started.poll(target, context, taker)
        });
        waited.await?;
        ended.ok_or_else(no_reply)
    }

    pub(super) fn detach(&self) {
        let started = {
            let mut state = lock(&self.state);
            state.detached = true;
            state.started.clone()
        };
        if let Some((started, target)) = started {
            started.detach(&target, false);
        }
    }

    pub(super) fn cancel(&self) {
        let (started, task) = {
            let mut state = lock(&self.state);
            state.cancelled = true;
            (state.started.clone(), state.task.take())
        };
        if let Some((started, target)) = started {
            started.cancel(&target);
        }
        // It waits for a binding no longer.
        if let Some(task) = task {
            guard::run_alone("a waker", || task.wake());
        }
    }

    fn end(&self, ending: Ending) {
        let waker = {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut state.over, true) {
                return;
            }
            state.ending = Some(ending);
            state.waker.take()
        };
        self.ended.set();
        if let Some(waker) = waker {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    /// The export that the call is made to, while there is a binding.
    pub(super) fn export(&self) -> Option<u64> {
        lock(&self.state).started.as_ref().map(|(_, target)| target.export)
    }

    pub(super) fn wait(&self, sink: Sink<'_>) {
        if let Err(why) = crate::serving::may_wait() {
            return sink(Reply::Failed(why.but_ran(Ran::Maybe)));
        }
        let _waiting = crate::serving::wait_guard();
        loop {
            let ending = lock(&self.state).ending.take();
            if let Some(ending) = ending {
                return give_ending(ending, sink);
            }
            self.ended.wait(None);
        }
    }

    pub(super) fn poll(&self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        // A waker is the user's: it is cloned before, and dropped after, for that may drop a task, and what
        // it had started.
        let waker = context.waker().clone();
        let ending = {
            let mut state = lock(&self.state);
            match state.ending.take() {
                Some(ending) => ending,
                None => {
                    let former = state.waker.replace(waker);
                    drop(state);
                    drop(former);
                    return Poll::Pending;
                }
            }
        };
        give_ending(ending, sink);
        Poll::Ready(())
    }
}

fn give_ending(ending: Ending, sink: Sink<'_>) {
    match ending {
        // A failure among the outcomes was repaired, or described.
        Ok((outcome, target)) => drop(give(&target, outcome, sink)),
        Err(why) => sink(Reply::Failed(why)),
    }
}

/// Ends a call whose task ended without a word: a registry of the user's may panic.
struct End(Arc<RetryTask>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(Err(no_reply()));
    }
}
