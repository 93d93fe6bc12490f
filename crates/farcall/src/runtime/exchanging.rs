//! A started call in which something passes besides its arguments and its result: the thread or task that waits
//! for it answers its signals.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use farcall_proto::Failure;
use farcall_proto::client::Outcome;

use super::bind::Target;
use crate::client::{CallExchanges, CallRequest, Started, Taker};
use crate::exchange::{Exchanges as _, Handling};
use crate::stub::{Dispatched, Ended};
use crate::{CallFailed, lock};

/// A started call whose signals are answered.
pub(super) struct ExchangingCall {
    pub(super) started: Started,
    exchanges: CallExchanges,
    /// Held while handlers run, which only the thread or task does that waits for the call.
    handling: Mutex<Handling>,
    /// Whether a handler ran. Then the call is not repeated.
    touched: AtomicBool,
}

impl ExchangingCall {
    pub(super) fn new(target: &Target, started: Started, request: &CallRequest<'_>) -> ExchangingCall {
        let exchanges = CallExchanges::new(&target.endpoint, &target.peer, &started);
        let handling = Mutex::new(Handling::new(request.handlers));
        ExchangingCall { started, exchanges, handling, touched: AtomicBool::new(false) }
    }

    /// Whether a handler ran. Then the call is not repeated.
    pub(super) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed)
    }

    /// Blocks until the call has ended, and answers its signals.
    pub(super) fn wait(&self, target: &Target, taker: Taker<'_>) -> Result<(), CallFailed> {
        loop {
            let epoch = self.exchanges.epoch();
            self.answer_all();
            if self.started.is_over() {
                break;
            }
            self.exchanges.wait(epoch)?;
        }
        if self.leave(taker) {
            return Ok(());
        }
        self.started.wait(&target.endpoint, &target.peer, taker)
    }

    /// Answers the signals that have arrived. Gives the outcome if the call has ended; else the task is woken
    /// when there is more to do.
    pub(super) fn poll(&self, target: &Target, context: &mut Context<'_>, taker: Taker<'_>) -> Poll<()> {
        if !self.started.is_over() {
            self.exchanges.watch(context.waker());
        }
        self.answer_all();
        if self.started.is_over() && self.leave(taker) {
            return Poll::Ready(());
        }
        self.started.poll(&target.endpoint, &target.peer, context, taker)
    }

    /// Answers the signals that have arrived, in this thread.
    pub(super) fn answer_all(&self) {
        let mut handling = lock(&self.handling);
        handling.answer_all(&self.exchanges);
        self.touched.store(handling.touched, Ordering::Relaxed);
    }

    /// Gives the outcome of a handler that has unwound the call. Returns false if none has.
    fn leave(&self, taker: Taker<'_>) -> bool {
        let Some(ended) = lock(&self.handling).take_outcome() else { return false };
        taker(outcome(ended), &[]);
        true
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
