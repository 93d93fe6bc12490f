//! A started call in which something passes besides its arguments and its result: the thread or task that
//! waits for it answers its signals, and sends and takes its streams.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use farcall_proto::Failure;
use farcall_proto::client::Outcome;

use super::bind::Target;
use super::import::{describe, give};
use crate::client::{CallExchanges, CallRequest, Started, Taker};
use crate::env::Env;
use crate::exchange::Exchanges;
use crate::stub::{Dispatched, Ended, Handling, OpenCall, Procedure, Reply, Sink, send_beside};
use crate::{CallFailed, Ran, lock};

/// A started call whose signals are answered.
pub(super) struct ExchangingCall {
    pub(super) started: Started,
    exchanges: Arc<CallExchanges>,
    /// Held while handlers run, which only the thread or task does that waits for the call.
    handling: Mutex<Handling>,
}

impl ExchangingCall {
    pub(super) fn new(target: &Target, started: Started, request: &CallRequest<'_>) -> ExchangingCall {
        let exchanges = Arc::new(CallExchanges::new(&target.endpoint, &target.peer, &started));
        let handling = Handling::new(request.call.handlers, request.call.sending);
        handling.begin(&*exchanges);
        ExchangingCall { started, exchanges, handling: Mutex::new(handling) }
    }

    /// Whether the call, which has ended, is not to be repeated.
    pub(super) fn is_touched(&self) -> bool {
        lock(&self.handling).touched
    }

    /// Blocks until the call has ended, or the server begins to send the stream that is its result. Answers
    /// the call's signals and sends its argument that is a stream.
    fn attend(&self) -> Result<(), CallFailed> {
        lock(&self.handling).attend(&*self.exchanges, &|| self.started.is_over())
    }

    /// Blocks until the call has ended, and answers its signals.
    pub(super) fn wait(&self, target: &Target, taker: Taker<'_>) -> Result<(), CallFailed> {
        self.attend()?;
        if self.leave(taker) {
            return Ok(());
        }
        self.started.wait(&target.endpoint, &target.peer, taker)
    }

    /// Answers the signals that have arrived. Gives the outcome if the call has ended; else the task is woken
    /// when there is more to do.
    pub(super) fn poll(&self, target: &Target, context: &mut Context<'_>, taker: Taker<'_>) -> Poll<()> {
        let epoch = self.exchanges.epoch();
        self.answer_all();
        if self.started.is_over() && self.leave(taker) {
            return Poll::Ready(());
        }
        if !self.started.is_over() {
            self.exchanges.watch(0, epoch, context.waker());
        }
        self.started.poll(&target.endpoint, &target.peer, context, taker)
    }

    /// Answers the signals that have arrived, in this thread.
    pub(super) fn answer_all(&self) {
        lock(&self.handling).answer_all(&*self.exchanges);
    }

    /// Gives the outcome of a handler that has unwound the call. Returns false if none has.
    fn leave(&self, taker: Taker<'_>) -> bool {
        let Some(ended) = lock(&self.handling).take_outcome() else { return false };
        taker(outcome(ended), &[]);
        true
    }
}

/// A call whose result is a stream. Dropping it cancels the call.
pub(super) struct OpenImported {
    call: ExchangingCall,
    target: Arc<Target>,
    procedure: Procedure,
}

/// How a call whose result is a stream began.
pub(super) enum Begun {
    /// The server has begun to send the stream.
    Streaming,
    /// The call failed.
    Failed(Failure),
}

impl OpenImported {
    pub(super) fn new(call: ExchangingCall, target: Arc<Target>, procedure: &Procedure) -> OpenImported {
        OpenImported { call, target, procedure: *procedure }
    }

    /// Waits until the server begins to send the stream. Returns `None` if the call ended without it and the
    /// sink got the reply.
    ///
    /// # Errors
    /// When this thread must not wait.
    pub(super) fn begin(&self, sink: Sink<'_>) -> Result<Option<Begun>, CallFailed> {
        self.call.attend()?;
        if lock(&self.call.handling).stream.is_some() {
            return Ok(Some(Begun::Streaming));
        }
        Ok(self.outcome(sink)?.map(Begun::Failed))
    }

    /// Has a thread send the argument that is a stream, if there is one.
    pub(super) fn send_beside(&self, env: &dyn Env) -> Result<(), CallFailed> {
        let Some(sending) = lock(&self.call.handling).take_argument() else { return Ok(()) };
        let sent = send_beside(env, self.call.exchanges.clone(), sending);
        sent.map_err(|why| CallFailed::local("starting a thread", why).but_ran(Ran::Maybe))
    }

    pub(super) fn is_touched(&self) -> bool {
        self.call.is_touched()
    }

    /// Waits for the call's end, and gives its reply to the sink. Returns a failure.
    fn outcome(&self, sink: Sink<'_>) -> Result<Option<Failure>, CallFailed> {
        let mut failed = None;
        let taker = &mut |outcome: Outcome<'_>, _: &[u8]| failed = give(&self.target, outcome, sink);
        self.call.wait(&self.target, taker)?;
        Ok(failed)
    }
}

impl OpenCall for OpenImported {
    fn exchanges(&self) -> Arc<dyn Exchanges> {
        self.call.exchanges.clone()
    }

    fn stream(&self) -> u32 {
        lock(&self.call.handling).stream.expect("the server has begun to send the stream")
    }

    fn answer_signals(&mut self) {
        self.call.answer_all();
    }

    fn finish(self: Box<Self>, sink: Sink<'_>) {
        lock(&self.call.handling).stream = None;
        match self.outcome(sink) {
            Ok(None) => {}
            Ok(Some(failure)) => sink(Reply::Failed(describe(failure, &self.procedure, self.target.address))),
            Err(why) => sink(Reply::Failed(why)),
        }
    }
}

impl Drop for OpenImported {
    fn drop(&mut self) {
        self.call.started.cancel(&self.target.endpoint, &self.target.peer);
    }
}

fn outcome(ended: Ended) -> Outcome<'static> {
    let (dispatched, reply) = ended.into_parts();
    match dispatched {
        Dispatched::Result => Outcome::Result(Cow::Owned(reply.into())),
        Dispatched::Exception => Outcome::Exception(Cow::Owned(reply.into())),
        other => {
            let why = other.failure().unwrap_or_else(crate::stub::no_reply);
            Outcome::Failed(Failure::new(why.kind(), why.ran()).with_detail(why.detail()))
        }
    }
}
