//! The future of an `async fn` that executes a call in this process.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use super::unpark::Unpark;
use crate::exchange::LocalExchanges;
use crate::guard;
use crate::stub::dispatch::{AsyncDispatched, Dispatched, panicked};
use crate::stub::ended::Ended;
use crate::stub::{catching, scope};

/// A call that a future executes. Dropping it ends the call; a panic of the user's `Drop` code is caught.
pub(super) struct Execution {
    /// `None` while it is dropped.
    future: Option<AsyncDispatched>,
    /// The procedure's end of the call's exchanges, if it may have any.
    callee: Option<Arc<LocalExchanges>>,
}

impl Execution {
    pub(super) fn new(future: AsyncDispatched, callee: Option<Arc<LocalExchanges>>) -> Execution {
        Execution { future: Some(future), callee }
    }

    /// Polls the future. If it panics, the call has failed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let _hidden = catching::hide();
        let _exchanging = self.callee.clone().map(|callee| scope::enter(Some(callee)));
        match guard::run(|| future.as_mut().poll(context)) {
            Ok(polled) => polled.map(|(dispatched, reply)| Ended { dispatched, reply: reply.into() }),
            Err(panic) => {
                let dispatched = Dispatched::Failed(panicked(panic));
                Poll::Ready(Ended { dispatched, reply: Vec::new().into() })
            }
        }
    }

    /// Drives the future to its end in a thread of its own, because no caller waits for it any more. If no
    /// thread can be started, the future is dropped: no caller waits that could be told.
    pub(super) fn go_on(mut self) {
        let run = move || {
            let unpark = Unpark::new();
            let waker = Waker::from(unpark.clone());
            while self.poll(&mut Context::from_waker(&waker)).is_pending() {
                if unpark.wait_until(None).is_err() {
                    return;
                }
            }
        };
        let _ = thread::Builder::new().name("farcall-local".into()).spawn(run);
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        let future = self.future.take();
        guard::run_alone("the drop of an async procedure", || drop(future));
    }
}
