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
use crate::exchange::Exchanges;
use crate::stub::{
    Dispatched, EncodedArguments, Ended, Handling, OpenCall, Procedure, Reply, Sink, send_beside,
};
use crate::{CallFailed, Ran, lock};

/// A started call whose signals are answered.
pub(super) struct ExchangingCall {
    pub(super) started: Started,
    exchanges: Arc<CallExchanges>,
    /// Held while handlers run, which only the thread or task does that waits for the call.
    handling: Mutex<Handling>,
}

impl ExchangingCall {
    fn new(target: &Target, started: Started, request: &CallRequest<'_>) -> ExchangingCall {
        let exchanges = Arc::new(CallExchanges::new(&target.endpoint, &target.peer, &started));
        let mut handling = Handling::new(request.call);
        handling.begin(&*exchanges);
        ExchangingCall { started, exchanges, handling: Mutex::new(handling) }
    }

    /// Sends a call to a server. If an iterator gives the items of an argument that is a stream, starts a
    /// thread that sends them.
    ///
    /// # Errors
    /// When the call cannot be sent, or the thread cannot be started. The failure says whether the call may
    /// have run.
    pub(super) fn start(target: &Target, request: &CallRequest<'_>) -> Result<ExchangingCall, CallFailed> {
        let started = Started::start(&target.endpoint, &target.peer, (target.export, request), None)?;
        ExchangingCall::sending(target, started, request)
    }

    /// Sends a call to a server, as [`ExchangingCall::start`] does, for a thread that waits for it at once.
    /// That thread does not run the iterator of a stream: an iterator that gives nothing must not keep the
    /// thread from the end of the call.
    ///
    /// # Errors
    /// As of [`ExchangingCall::start`].
    pub(super) fn start_to_wait(
        target: &Target,
        request: &CallRequest<'_>,
    ) -> Result<ExchangingCall, CallFailed> {
        let started = Started::start_to_wait(&target.endpoint, &target.peer, (target.export, request))?;
        ExchangingCall::sending(target, started, request)
    }

    /// Has a thread send the argument of a call that was sent, if an iterator gives its items.
    fn sending(
        target: &Target,
        started: Started,
        request: &CallRequest<'_>,
    ) -> Result<ExchangingCall, CallFailed> {
        let call = ExchangingCall::new(target, started, request);
        let iterated = lock(&call.handling).take_for_thread();
        let Some(sending) = iterated else { return Ok(call) };
        if let Err(why) = send_beside(&**call.exchanges.env(), call.exchanges.clone(), sending) {
            call.started.cancel(&target.endpoint, &target.peer);
            return Err(CallFailed::local("starting a thread", why).but_ran(Ran::Maybe));
        }
        Ok(call)
    }

    /// Returns whether the call, which has ended, must not be repeated, because a handler of its caller has
    /// run.
    pub(super) fn is_touched(&self) -> bool {
        lock(&self.handling).touched
    }

    /// Blocks until the call has ended, or the server begins to send the stream that is its result. Answers
    /// the call's signals and sends its argument that is a stream.
    fn attend(&self) -> Result<(), CallFailed> {
        let mut handling = lock(&self.handling);
        let _away = handling.sends().then(|| self.exchanges.step_away());
        handling.attend(&*self.exchanges, &|| self.started.is_over())
    }

    /// Blocks until the call has ended, or the server has begun to send the stream that is the result.
    /// Answers the call's signals meanwhile. Returns true if the server has begun to send that stream, and
    /// false if the call has ended. Cancels the call if a handler panics or this thread must not wait.
    pub(super) fn wait(&self, target: &Target, taker: Taker<'_>) -> Result<bool, CallFailed> {
        struct CancelOnDrop<'a>(&'a Started, &'a Target);
        impl Drop for CancelOnDrop<'_> {
            fn drop(&mut self) {
                self.0.cancel(&self.1.endpoint, &self.1.peer);
            }
        }
        let cancel = CancelOnDrop(&self.started, target);
        self.attend()?;
        let streams = self.streams();
        if !streams {
            let taker =
                &mut |own: Outcome<'_>, encoded: EncodedArguments<'_>| self.leave(own, encoded, taker);
            self.started.wait(&target.endpoint, &target.peer, taker)?;
        }
        // The call has ended, or goes on as a stream.
        std::mem::forget(cancel);
        Ok(streams)
    }

    /// Answers the signals that have arrived, and sends the items that a polled argument has. Returns true if
    /// the server has begun to send the stream that is the result. Returns false if the call has ended, after
    /// giving the outcome to `taker`. Otherwise the task is woken when there is more to do.
    pub(super) fn poll(&self, target: &Target, context: &mut Context<'_>, taker: Taker<'_>) -> Poll<bool> {
        let epoch = self.exchanges.epoch();
        let over = self.started.is_over();
        lock(&self.handling).step(&*self.exchanges, epoch, context);
        if self.streams() {
            return Poll::Ready(true);
        }
        if over {
            let taker =
                &mut |own: Outcome<'_>, encoded: EncodedArguments<'_>| self.leave(own, encoded, taker);
            return self.started.poll(&target.endpoint, &target.peer, context, taker).map(|()| false);
        }
        self.exchanges.watch(0, epoch, context.waker());
        Poll::Pending
    }

    /// Lets the call run, and discards its reply. If this task would have to send the rest of an argument,
    /// the call cannot go on, and is cancelled.
    pub(super) fn detach(&self, target: &Target, later: bool) {
        match lock(&self.handling).sends() {
            true => self.started.cancel(&target.endpoint, &target.peer),
            false => self.started.detach(&target.endpoint, &target.peer, later),
        }
    }

    /// Whether the server has begun to send the stream that is the result.
    fn streams(&self) -> bool {
        lock(&self.handling).stream.is_some()
    }

    /// Gives the outcome of the call, which has ended so, or that of the handler which has unwound it.
    fn leave(&self, own: Outcome<'_>, encoded: EncodedArguments<'_>, taker: Taker<'_>) {
        let failure = if let Outcome::Failed(why) = &own { Some(why.kind) } else { None };
        let left = lock(&self.handling).take_outcome(failure);
        match left {
            Some(ended) => taker(outcome(ended), EncodedArguments { bytes: &[], shared: None }),
            None => taker(own, encoded),
        }
    }
}

/// A call whose result is a stream. Dropping it cancels the call.
pub(super) struct OpenImported {
    call: Arc<ExchangingCall>,
    target: Arc<Target>,
    procedure: Procedure,
}

impl OpenImported {
    /// Gives the sink a call that brings the stream which is its result.
    #[cold]
    pub(super) fn give(
        call: Arc<ExchangingCall>,
        target: &Arc<Target>,
        procedure: &Procedure,
        sink: Sink<'_>,
    ) {
        let (target, procedure) = (target.clone(), *procedure);
        sink(Reply::Stream(Box::new(OpenImported { call, target, procedure })));
    }

    /// Gives the failure of a call that has ended to the sink, if it failed.
    fn conclude(&self, failed: Option<Failure>, sink: Sink<'_>) {
        let describe = |failure| describe(failure, &self.procedure, self.target.address);
        failed.into_iter().for_each(|failure| sink(Reply::Failed(describe(failure))));
    }
}

impl OpenCall for OpenImported {
    fn exchanges(&self) -> Arc<dyn Exchanges> {
        self.call.exchanges.clone()
    }

    fn stream(&self) -> u32 {
        lock(&self.call.handling).stream.expect("the server has begun to send the stream")
    }

    fn sends(&self) -> bool {
        lock(&self.call.handling).sends()
    }

    fn attend(&mut self, context: &mut Context<'_>) {
        let exchanges = &self.call.exchanges;
        lock(&self.call.handling).step(&**exchanges, exchanges.epoch(), context);
    }

    fn finish(self: Box<Self>, sink: Sink<'_>) {
        lock(&self.call.handling).stream = None;
        let mut failed = None;
        let taker =
            &mut |outcome: Outcome<'_>, _: EncodedArguments<'_>| failed = give(&self.target, outcome, sink);
        match self.call.wait(&self.target, taker) {
            Ok(_) => self.conclude(failed, sink),
            Err(why) => sink(Reply::Failed(why)),
        }
    }

    fn poll_finish(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        lock(&self.call.handling).stream = None;
        let mut failed = None;
        let taker =
            &mut |outcome: Outcome<'_>, _: EncodedArguments<'_>| failed = give(&self.target, outcome, sink);
        let polled = self.call.poll(&self.target, context, taker);
        polled.map(|_| self.conclude(failed, sink))
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
