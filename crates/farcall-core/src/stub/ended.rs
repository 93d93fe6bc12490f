//! The outcome of a call that has ended, kept in encoded form until its caller fetches it.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::channel::{PendingCall, Reply, Sink, no_reply};
use super::dispatch::{Dispatched, encoded};
use super::unwinding::Unwinding;
use crate::xdr::{Decoder, Encode};
use crate::{CallFailed, Kind};

/// How a call ended, and its encoded reply.
pub struct Ended {
    pub(crate) dispatched: Dispatched,
    pub(crate) reply: Bytes,
}

impl From<Unwinding> for Ended {
    fn from(unwinding: Unwinding) -> Ended {
        let (dispatched, reply) = unwinding.into_parts();
        Ended { dispatched, reply }
    }
}

impl Ended {
    /// Encodes an outcome. A failure stays as it is: it is not nested in another.
    pub fn of<T: Encode, E: Encode>(outcome: crate::Result<T, E>) -> Ended {
        let (dispatched, reply) = encoded(outcome);
        Ended { dispatched, reply: reply.into() }
    }

    /// Returns how the call ended, and its encoded reply.
    pub fn into_parts(self) -> (Dispatched, Bytes) {
        (self.dispatched, self.reply)
    }

    /// Returns why the call failed; `None` if it ended by a result or an exception.
    pub(crate) fn failure_kind(&self) -> Option<Kind> {
        match &self.dispatched {
            Dispatched::Result | Dispatched::Exception => None,
            Dispatched::Failed(why) => Some(why.kind()),
            Dispatched::BadArguments(_) => Some(Kind::BadArguments),
            Dispatched::BadResult(_) => Some(Kind::BadResult),
            Dispatched::NoSuchProcedure => Some(Kind::NoSuchProcedure),
        }
    }

    /// Returns how a call ended whose deadline has passed: if its procedure failed because what it waited for
    /// was over, the deadline is the cause.
    pub(crate) fn at_deadline(self) -> Ended {
        match &self.dispatched {
            Dispatched::Failed(why) if why.kind().is_of_what_it_waited_for() => {
                Ended::failed(CallFailed::new(Kind::Deadline, why.ran()))
            }
            _ => self,
        }
    }

    pub(crate) fn failed(why: CallFailed) -> Ended {
        Ended { dispatched: Dispatched::Failed(why), reply: Bytes::new() }
    }

    /// Passes the reply to the caller's sink.
    pub(crate) fn deliver(self, sink: Sink<'_>) {
        let decoder = Decoder::with_packet(&self.reply);
        sink(match self.dispatched {
            Dispatched::Result => Reply::Result(decoder),
            Dispatched::Exception => Reply::Exception(decoder),
            other => Reply::Failed(other.failure().unwrap_or_else(no_reply)),
        });
    }
}

impl PendingCall for Ended {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        self.deliver(sink);
    }

    fn poll(&mut self, _: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        std::mem::replace(self, Ended::failed(no_reply())).deliver(sink);
        Poll::Ready(())
    }

    fn cancel(&mut self) {}

    fn detach(self: Box<Self>) {}
}
