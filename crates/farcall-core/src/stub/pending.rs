//! The typed handle of a started call, which its caller waits for, awaits, cancels or detaches.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::channel::{PendingCall, blocking_result, poll_result};
use super::ended::Ended;
use crate::xdr::{Decode, Encode};
use crate::{Never, Result};

/// A started call: `store.start().get(key)` returns it.
///
/// [`wait`](Pending::wait) blocks until the call has ended. `.await` waits for it in a task of any executor.
/// Dropping the handle cancels the call; [`detach`](Pending::detach) lets it run.
#[must_use = "dropping a Pending cancels its call; `detach()` lets it run"]
pub struct Pending<T, E = Never> {
    /// `None` once the caller has the reply.
    call: Option<Box<dyn PendingCall>>,
    reply: PhantomData<fn() -> (T, E)>,
}

impl<T, E> Pending<T, E> {
    /// Returns the handle of a call that a channel has started.
    pub fn new(call: Box<dyn PendingCall>) -> Pending<T, E> {
        Pending { call: Some(call), reply: PhantomData }
    }

    /// Returns the handle of a call that has already ended, with this outcome.
    pub fn ended(outcome: Result<T, E>) -> Pending<T, E>
    where
        T: Encode,
        E: Encode,
    {
        Pending::new(Box::new(Ended::of(outcome)))
    }

    /// Asks the server to stop, and returns at once. Every carrier of calls treats it alike:
    ///
    /// - A call that was not sent yet ends at once: cancelled, `Ran::No`.
    /// - A call that was sent ends when the server confirms the cancellation, or when the outcome arrives
    ///   that the server had sent before. If neither arrives within three round trips or 20 ms, whichever is
    ///   longer, the call ends as cancelled, `Ran::Maybe`. ONC RPC cannot ask a server to stop: there the
    ///   call ends at once.
    /// - The procedure can learn of it by [`Context::cancelled`](crate::Context::cancelled). The future of an
    ///   `async fn` is dropped, unless the procedure is `#[uncancelled]`. A result that the procedure returns
    ///   later is discarded.
    ///
    /// Dropping a `Pending` cancels its call too. So does a deadline that passes.
    pub fn cancel(&mut self) {
        if let Some(call) = &mut self.call {
            call.cancel();
        }
    }

    /// Lets the call run, even if this process ends, and discards its result.
    pub fn detach(mut self) {
        if let Some(call) = self.call.take() {
            call.detach();
        }
    }
}

impl<T, E> Pending<T, E> {
    /// Returns the channel's handle, unless the caller has the reply already.
    pub fn into_call(self) -> Option<Box<dyn PendingCall>> {
        self.call
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Pending<T, E> {
    /// Blocks until the call has ended.
    ///
    /// # Errors
    /// The errors of a blocking call of the same procedure.
    pub fn wait(mut self) -> Result<T, E> {
        blocking_result(|sink| {
            if let Some(call) = self.call.take() {
                call.wait(sink);
            }
        })
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Future for Pending<T, E> {
    type Output = Result<T, E>;

    /// # Panics
    /// Panics if it is polled again after it returned its outcome, as other futures do.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.call.as_mut().expect("a Pending is not polled after it was ready");
        let polled = poll_result(|sink| call.poll(context, sink));
        if polled.is_ready() {
            self.call = None;
        }
        polled
    }
}

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("ended", &self.call.is_none()).finish()
    }
}
