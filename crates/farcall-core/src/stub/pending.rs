//! A call that was started and not yet waited for.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::channel::{PendingCall, decode_reply, no_reply};
use super::ended::Ended;
use crate::xdr::{Decode, Encode};
use crate::{Never, Result};

/// A call under way, as `store.start().get(key)` gives it.
///
/// [`wait`](Pending::wait) blocks for its result, and so does `.await`, on any executor. Dropping it cancels the call;
/// [`detach`](Pending::detach) lets it run.
#[must_use = "dropping a Pending cancels its call; `detach()` lets it run"]
pub struct Pending<T, E = Never> {
    /// `None` once the reply was taken.
    call: Option<Box<dyn PendingCall>>,
    reply: PhantomData<fn() -> (T, E)>,
}

impl<T, E> Pending<T, E> {
    /// The handle of a call that a channel has started.
    pub fn new(call: Box<dyn PendingCall>) -> Pending<T, E> {
        Pending { call: Some(call), reply: PhantomData }
    }

    /// One that has ended already.
    pub fn ended(outcome: Result<T, E>) -> Pending<T, E>
    where
        T: Encode,
        E: Encode,
    {
        Pending::new(Box::new(Ended::of(outcome)))
    }

    /// Asks the server to stop, without waiting for it to do so. It means the same whatever carries the call:
    ///
    /// - A call that was not sent ends at once: cancelled, `Ran::No`.
    /// - One that was sent ends with the server's word, or with its outcome if that was faster, within three
    ///   round trips or 20 ms, whichever is longer; else then: cancelled, `Ran::Maybe`. (ONC RPC has no word
    ///   for it: there a call that was sent ends at once.)
    /// - The procedure is told ([`Context::cancelled`](crate::Context::cancelled)), and the future of an
    ///   `async fn` is dropped unless the procedure is `#[uncancelled]`. What a procedure gives after that
    ///   reaches nobody.
    ///
    /// To drop a `Pending` cancels its call too, and so does a deadline that passes.
    pub fn cancel(&mut self) {
        if let Some(call) = &mut self.call {
            call.cancel();
        }
    }

    /// Lets the call run, also when this process is gone; its result is discarded.
    pub fn detach(mut self) {
        if let Some(call) = self.call.take() {
            call.detach();
        }
    }
}

impl<T, E> Pending<T, E> {
    /// What it is the handle of, unless its reply was taken.
    pub fn into_call(self) -> Option<Box<dyn PendingCall>> {
        self.call
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Pending<T, E> {
    /// Blocks until the call has ended.
    ///
    /// # Errors
    /// As the call made directly.
    pub fn wait(mut self) -> Result<T, E> {
        let mut outcome = None;
        if let Some(call) = self.call.take() {
            call.wait(&mut |reply| outcome = Some(decode_reply(reply)));
        }
        outcome.unwrap_or_else(|| Err(no_reply().into()))
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Future for Pending<T, E> {
    type Output = Result<T, E>;

    /// # Panics
    /// If polled again after it was ready, as other futures do.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = None;
        let call = self.call.as_mut().expect("a Pending is not polled after it was ready");
        let polled = call.poll(context, &mut |reply| outcome = Some(decode_reply(reply)));
        if polled.is_pending() {
            return Poll::Pending;
        }
        self.call = None;
        Poll::Ready(outcome.unwrap_or_else(|| Err(no_reply().into())))
    }
}

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("ended", &self.call.is_none()).finish()
    }
}
