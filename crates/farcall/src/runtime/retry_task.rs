//! The task that makes a started call if that means to wait: the call must be bound first, or has failed and
//! is repeated.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use farcall_proto::client::Outcome;
use farcall_proto::{Failure, SharedArguments};

use super::bind::Target;
use super::exchanging::{ExchangingCall, OpenImported};
use super::import::{Importer, describe, give};
use super::sent::{Reached, SentCall};
use super::tasks::{Reservation, Tasks};
use crate::Trace;
use crate::client::CallRequest;
use crate::env::{Event, Time};
use crate::retry::Retry;
use crate::stub::{
    Call, EncodedArguments, Handlers, InterfaceId, Procedure, Reply, SendStream, Sink, bad_arguments,
    no_reply,
};
use crate::xdr::Encoder;
use crate::{CallFailed, Kind, Ran, guard, lock};

/// A call with its arguments encoded, so that it can be made again.
pub(super) struct EncodedCall {
    pub(super) importer: Arc<Importer>,
    pub(super) procedure: Procedure,
    /// The encoded arguments.
    pub(super) arguments: Arc<SharedArguments>,
    pub(super) deadline: Option<Time>,
    pub(super) rare: Rare,
}

/// The parts of a call that only few calls have.
#[derive(Clone, Default)]
pub(super) struct Rare {
    trace: Option<Trace>,
    /// The interface that is called, if the call may have exchanges.
    pub(super) interface: InterfaceId,
    /// The handlers, if the call may have exchanges.
    handlers: Handlers,
    /// Sends the argument that is a stream, if there is one.
    sending: Option<Arc<dyn SendStream>>,
    /// The procedures of the one-way calls that are packed into this call's arguments.
    carries: Vec<u32>,
    /// When the call must have begun, if its caller wants to try another server in the rest of the time.
    begin_by: Option<Time>,
}

impl Rare {
    #[cold]
    pub(super) fn new(request: &CallRequest<'_>) -> Rare {
        let CallRequest { call, begin_by, trace, .. } = *request;
        let (handlers, sending) = (call.handlers.clone(), call.sending.cloned());
        let (interface, carries) = (call.procedure.interface, call.carries.to_vec());
        Rare { trace, interface, handlers, sending, carries, begin_by }
    }
}

/// The server that was called and the failure of the call.
pub(super) type Failed = (Arc<Target>, Failure);

impl EncodedCall {
    pub(super) fn new(
        importer: &Arc<Importer>,
        request: &CallRequest<'_>,
    ) -> Result<EncodedCall, CallFailed> {
        let CallRequest { call, deadline, .. } = *request;
        let arguments = match call.shared {
            Some(shared) => shared.clone(),
            None => {
                let mut arguments = Vec::new();
                (call.encode)(&mut Encoder::new(&mut arguments)).map_err(bad_arguments)?;
                SharedArguments::new(arguments)
            }
        };
        let (importer, procedure) = (importer.clone(), *call.procedure);
        Ok(EncodedCall { importer, procedure, arguments, deadline, rare: Rare::new(request) })
    }

    /// Returns until when to wait for a server that executes the call.
    fn bind_by(&self) -> Option<Time> {
        self.rare.begin_by.or(self.deadline)
    }

    /// Calls `f` with the request of this call.
    pub(super) fn with_request<R>(&self, f: impl FnOnce(&CallRequest<'_>) -> R) -> R {
        // The length of encoded arguments is a multiple of four, so `opaque` adds no padding to them.
        let (encode, shared) =
            (|e: &mut Encoder<'_>| e.opaque(self.arguments.bytes()), Some(&self.arguments));
        let Rare { trace, handlers, sending, carries, begin_by, interface: _ } = &self.rare;
        let (procedure, sending) = (&self.procedure, sending.as_ref());
        let (within, hurries) = (None, begin_by.is_some());
        let call = Call { procedure, within, encode: &encode, shared, handlers, sending, carries, hurries };
        f(&CallRequest { call: &call, deadline: self.deadline, begin_by: *begin_by, trace: *trace })
    }
}

/// The caller's handle to a call that a task makes.
pub(super) struct RetryTask {
    state: Mutex<State>,
    ended: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    /// Whether the call has ended. The caller may have taken `ending` already.
    over: bool,
    ending: Option<Ending>,
    cancelled: bool,
    /// Whether the call is to go on although no caller waits for it.
    detached: bool,
    /// The latest attempt, with the server it was sent to.
    started: Option<(SentCall, Arc<Target>)>,
    /// Wakes the caller's task that waits for the ending.
    waker: Option<Waker>,
    /// Wakes the task that makes the call.
    task: Option<Waker>,
}

/// How a call ended, with the server that was called; or why the call failed in the end.
type Ending = Result<(Came, Arc<Target>), CallFailed>;

/// What a call came to.
enum Came {
    /// A result or an exception.
    Outcome(Outcome<'static>),
    /// The server has begun to send the stream that is the call's result.
    Stream(Arc<ExchangingCall>, Box<Procedure>),
}

impl RetryTask {
    /// Starts a task that makes the call. `failed` is the attempt that was made before, if there was one.
    ///
    /// # Errors
    /// When there are too many such calls, or no thread can be started.
    pub(super) fn begin(call: EncodedCall, failed: Option<Failed>) -> Result<Arc<RetryTask>, CallFailed> {
        let inner = call.importer.inner.clone();
        let reservation =
            Reservation::take(&inner, call.importer.load.get_or_init(Arc::default), &call.arguments)?;
        let call_task = Arc::new(RetryTask { state: Mutex::default(), ended: inner.env.event() });
        let (ours, deadline) = (End(call_task.clone()), call.bind_by());
        let steps = async move {
            let _reservation = reservation;
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

    /// Binds if there is no binding, and calls, until the call succeeds or another attempt would not help.
    async fn attempts(&self, call: &EncodedCall, mut failed: Option<Failed>, retry: &mut Retry) -> Ending {
        let EncodedCall { importer, procedure, .. } = call;
        loop {
            if let Some((target, failure)) = failed {
                // After an overload `try_again` asks the registry for other servers, which may block.
                match failure.kind == Kind::Overloaded {
                    true => Tasks::run_blocking(&importer.inner, || {
                        importer.try_again(retry, &target, failure, (procedure, call.deadline))
                    })?,
                    false => importer.try_again(retry, &target, failure, (procedure, call.deadline))?,
                }
            }
            let target = self.target(call, retry).await.map_err(|why| retry.no_server_found(why))?;
            failed = match self.attempt(call, &target).await? {
                Came::Outcome(Outcome::Failed(failure)) => Some((target, failure)),
                came => return Ok((came, target)),
            };
        }
    }

    /// Returns the server to call. Binds if there is no binding.
    async fn target(&self, call: &EncodedCall, retry: &Retry) -> Result<Arc<Target>, CallFailed> {
        loop {
            let by = self.bind_by(call);
            match call.importer.target_later(retry, by, || self.is_wanted(call)).await {
                // It was detached meanwhile.
                Err(_) if by != self.bind_by(call) => {}
                ended => return ended,
            }
        }
    }

    /// Returns until when to wait for a server that executes the call. One that was detached has all of its
    /// time, because nobody tries another server.
    fn bind_by(&self, call: &EncodedCall) -> Option<Time> {
        if lock(&self.state).detached { call.deadline } else { call.bind_by() }
    }

    /// Returns an error if the call is not to be made any more: its caller has cancelled it, or its deadline
    /// has passed.
    fn is_wanted(&self, call: &EncodedCall) -> Result<(), CallFailed> {
        if lock(&self.state).cancelled {
            return Err(CallFailed::new(Kind::Cancelled, Ran::No));
        }
        match self.bind_by(call) {
            Some(deadline) if deadline <= call.importer.inner.env.now() => Err(call.importer.too_late()),
            _ => Ok(()),
        }
    }

    /// Makes one attempt of the call, and waits for its outcome.
    async fn attempt(&self, call: &EncodedCall, target: &Arc<Target>) -> Result<Came, CallFailed> {
        let started = call.with_request(|request| SentCall::start(target, request))?;
        // The attempt is stored, and the flags are read, under one lock. So either this task sees that the
        // caller has cancelled the call, or the cancelling thread sees the attempt and cancels it.
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
            let taker =
                &mut |outcome: Outcome<'_>, _: EncodedArguments<'_>| ended = Some(outcome.into_owned());
            if call.procedure.exchanges {
                // Handlers are the user's code, and may wait for other tasks.
                return Tasks::run_blocking(&call.importer.inner, || started.poll(target, context, taker));
            }
            started.poll(target, context, taker)
        });
        if let Reached::Stream(streams) = waited.await? {
            return Ok(Came::Stream(streams, Box::new(call.procedure)));
        }
        match ended {
            Some(Outcome::Failed(failure)) if started.is_touched() => {
                Err(describe(failure, &call.procedure, target.address).after_handler())
            }
            ended => ended.map(Came::Outcome).ok_or_else(no_reply),
        }
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
        // The task may be waiting for a binding. It is woken, and then sees that the call was cancelled.
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

    /// Returns the export that the latest attempt was sent to.
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
        // Cloning and dropping a waker run the user's code, so both happen without the lock. Dropping one may
        // drop a task, and with it the calls that the task has started.
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
        // This outcome is a result or an exception, so `give` returns no failure.
        Ok((Came::Outcome(outcome), target)) => drop(give(&target, outcome, sink)),
        Ok((Came::Stream(call, procedure), target)) => {
            OpenImported::give(call, &target, &procedure, sink);
        }
        Err(why) => sink(Reply::Failed(why)),
    }
}

/// Ends the call when its task is dropped without having ended it, for example because the user's registry
/// panicked.
struct End(Arc<RetryTask>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(Err(no_reply()));
    }
}
