//! A started call that was sent to its server, by datagrams or through shared memory. Exchanges are signals
//! and streams that pass while a call runs.

use std::sync::Arc;
use std::task::{Context, Poll};

use farcall_proto::client::Outcome;
use farcall_proto::{Failure, SharedArguments};

use super::bind::Target;
use super::exchanging::ExchangingCall;
use crate::client::{self, CallRequest, Taker};
use crate::stub::{EncodedArguments, bad_arguments};
use crate::xdr::Encoder;
use crate::{CallFailed, Kind, Ran, shm};

/// A started call that was sent.
#[derive(Clone)]
pub(super) enum SentCall {
    Datagrams(client::Started),
    /// By datagrams, with exchanges: the caller answers signals meanwhile.
    Exchanging(Arc<ExchangingCall>),
    Memory(Arc<shm::Started>),
    /// Not at all: the connection through shared memory had ended, or the server takes no more calls.
    Unsent(Arc<UnsentCall>),
}

/// A call that has failed before it was sent. It fails as an attempt does that was sent, so the thread that
/// waits for the call binds again.
pub(super) struct UnsentCall {
    failure: Failure,
    arguments: Arc<SharedArguments>,
}

impl UnsentCall {
    #[cold]
    fn new(why: &CallFailed, request: &CallRequest<'_>) -> Result<Arc<UnsentCall>, CallFailed> {
        let failure = Failure::new(why.kind(), why.ran()).with_detail(why.detail());
        let arguments = match request.call.shared {
            Some(shared) => shared.clone(),
            None => {
                let mut arguments = Vec::new();
                (request.call.encode)(&mut Encoder::new(&mut arguments)).map_err(bad_arguments)?;
                SharedArguments::new(arguments)
            }
        };
        Ok(Arc::new(UnsentCall { failure, arguments }))
    }

    fn give(&self, taker: Taker<'_>) {
        taker(Outcome::Failed(self.failure.clone()), EncodedArguments::of(&self.arguments));
    }
}

/// The state in which a wait for a started call left it.
pub(super) enum Reached {
    /// The call has ended.
    End,
    /// The call's result is a stream, which the server has begun to send.
    Stream(Arc<ExchangingCall>),
}

impl SentCall {
    /// Sends a call to a server.
    ///
    /// # Errors
    /// When the call cannot be sent, or the thread that is to send its stream cannot be started. The failure
    /// says whether the call may have run.
    pub(super) fn start(target: &Target, request: &CallRequest<'_>) -> Result<SentCall, CallFailed> {
        if !target.has(request.call.procedure.number) {
            return Err(target.refusal(request.call.procedure));
        }
        if request.call.carries.iter().any(|procedure| !target.has(*procedure)) {
            let why = "the server has other procedures in the place of some that were called one-way";
            return Err(CallFailed::new(Kind::NoSuchProcedure, Ran::No).because(why));
        }
        let call = (target.export, request);
        if request.call.procedure.exchanges {
            return ExchangingCall::start(target, request).map(Arc::new).map(SentCall::Exchanging);
        }
        if let Some(link) = &target.link {
            match shm::Started::start(link, call) {
                Ok(Some(started)) => return Ok(SentCall::Memory(started)),
                Ok(None) => {}
                Err(why) if why.kind() == Kind::Unreachable || client::breaks_binding(&why) => {
                    return UnsentCall::new(&why, request).map(SentCall::Unsent);
                }
                Err(why) => return Err(why),
            }
        }
        client::Started::start(&target.endpoint, &target.peer, call, None).map(SentCall::Datagrams)
    }

    /// Returns whether the call must not be repeated, because a handler of its caller has run.
    pub(super) fn is_touched(&self) -> bool {
        matches!(self, SentCall::Exchanging(call) if call.is_touched())
    }

    /// Blocks until the call has ended, or the server has begun to send the stream that is its result.
    pub(super) fn wait(&self, target: &Target, taker: Taker<'_>) -> Result<Reached, CallFailed> {
        match self {
            SentCall::Datagrams(started) => started.wait(&target.endpoint, &target.peer, taker)?,
            SentCall::Exchanging(call) => {
                if call.wait(target, taker)? {
                    return Ok(Reached::Stream(call.clone()));
                }
            }
            SentCall::Memory(started) => started.wait(taker)?,
            SentCall::Unsent(call) => call.give(taker),
        }
        Ok(Reached::End)
    }

    pub(super) fn poll(
        &self,
        target: &Target,
        context: &mut Context<'_>,
        taker: Taker<'_>,
    ) -> Poll<Result<Reached, CallFailed>> {
        let ended = match self {
            SentCall::Datagrams(started) => {
                started.poll(&target.endpoint, &target.peer, context, taker).map(Ok)
            }
            SentCall::Exchanging(call) => {
                let streams = call.poll(target, context, taker);
                return streams
                    .map(|streams| Ok(if streams { Reached::Stream(call.clone()) } else { Reached::End }));
            }
            SentCall::Memory(started) => started.poll(context, taker),
            SentCall::Unsent(call) => {
                call.give(taker);
                Poll::Ready(Ok(()))
            }
        };
        ended.map(|ended| ended.map(|()| Reached::End))
    }

    pub(super) fn detach(&self, target: &Target, later: bool) {
        match self {
            SentCall::Datagrams(started) => started.detach(&target.endpoint, &target.peer, later),
            SentCall::Exchanging(call) => call.detach(target, later),
            SentCall::Memory(started) => started.detach(),
            SentCall::Unsent(_) => {}
        }
    }

    pub(super) fn cancel(&self, target: &Target) {
        match self {
            SentCall::Datagrams(started) => started.cancel(&target.endpoint, &target.peer),
            SentCall::Exchanging(call) => call.started.cancel(&target.endpoint, &target.peer),
            SentCall::Memory(started) => started.cancel(),
            SentCall::Unsent(_) => {}
        }
    }
}
