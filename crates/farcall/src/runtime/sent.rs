//! A call that was sent to the server that it is bound to, by what carries it.

use std::sync::Arc;
use std::task::{Context, Poll};

use farcall_proto::Failure;
use farcall_proto::client::Outcome;

use super::bind::Target;
use super::import;
use crate::client::{self, CallRequest, Outgoing, Taker};
use crate::stub::Sink;
use crate::{CallFailed, shm};

/// A call that was sent, by what carries it.
#[derive(Clone)]
pub(super) enum SentCall {
    Datagrams(client::Started),
    Memory(Arc<shm::Started>),
}

/// Sends a call to a server that it is bound to.
///
/// # Errors
/// What is known at once; nothing was sent.
pub(super) fn send(target: &Target, request: &CallRequest<'_>) -> Result<SentCall, CallFailed> {
    if !target.has(request.procedure.number) {
        return Err(target.refusal(request.procedure));
    }
    SentCall::start(target, &Outgoing { export: target.export, request })
}

impl SentCall {
    fn start(target: &Target, outgoing: &Outgoing<'_>) -> Result<SentCall, CallFailed> {
        if let Some(link) = &target.link
            && let Some(started) = shm::Started::start(link, outgoing)?
        {
            return Ok(SentCall::Memory(started));
        }
        client::Started::start(&target.endpoint, &target.peer, outgoing).map(SentCall::Datagrams)
    }

    pub(super) fn wait(&self, target: &Target, taker: Taker<'_>) -> Result<(), CallFailed> {
        match self {
            SentCall::Datagrams(started) => started.wait(&target.endpoint, &target.peer, taker),
            SentCall::Memory(started) => started.wait(taker),
        }
    }

    pub(super) fn poll(
        &self,
        target: &Target,
        context: &mut Context<'_>,
        taker: Taker<'_>,
    ) -> Poll<Result<(), CallFailed>> {
        match self {
            SentCall::Datagrams(started) => {
                started.poll(&target.endpoint, &target.peer, context, taker).map(Ok)
            }
            SentCall::Memory(started) => started.poll(context, taker),
        }
    }

    pub(super) fn detach(&self, target: &Target, later: bool) {
        match self {
            SentCall::Datagrams(started) => started.detach(&target.endpoint, &target.peer, later),
            SentCall::Memory(started) => started.detach(),
        }
    }

    pub(super) fn cancel(&self, target: &Target) {
        match self {
            SentCall::Datagrams(started) => started.cancel(&target.endpoint, &target.peer),
            SentCall::Memory(started) => started.cancel(),
        }
    }
}

/// Gives a result or an exception to the sink; a failure is returned, with the arguments.
pub(super) fn give(
    target: &Target,
    outcome: Outcome<'_>,
    arguments: &[u8],
    sink: Sink<'_>,
) -> Option<(Failure, Vec<u8>)> {
    import::give(target, outcome, sink).map(|failure| (failure, arguments.to_vec()))
}
