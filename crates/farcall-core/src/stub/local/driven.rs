//! A call with exchanges to a server of `async fn`s in this process: each wait in the exchanges drives the
//! future that executes the call.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::execution::Execution;
use super::send_in_thread;
use super::unpark::Unpark;
use crate::env::Time;
use crate::exchange::{self, Exchanges, LocalExchanges, Tail};
use crate::stub::alarm::Timer;
use crate::stub::channel::{Call, OpenCall, PendingCall, Reply, Sink};
use crate::stub::dispatch::AsyncDispatched;
use crate::stub::ended::Ended;
use crate::stub::handling::Handling;
use crate::{CallFailed, Kind, Ran, lock};

/// A started call.
pub(super) struct Exchanging {
    driven: Arc<Driven>,
    handling: Handling,
    /// Whether another handle has the call, or nobody.
    is_left: bool,
}

impl Exchanging {
    /// Prepares a call, which runs while its caller waits, until its deadline if it has one. A thread sends
    /// the argument that is a stream of an iterator: the iterator may wait for what the future does.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn new(
        future: AsyncDispatched,
        call: &Call<'_>,
        deadline: Option<(Time, Timer)>,
    ) -> Result<Exchanging, CallFailed> {
        let (near, callee) = exchange::pair(deadline.as_ref().map(|(at, _)| *at));
        let (near, callee) = (Arc::new(near), Arc::new(callee));
        let timer = match deadline {
            // The thread or task that waits in the exchanges is woken then, and sees that the deadline has passed.
            Some((at, timer)) => timer.set(at, &near.nudge()).map(|()| Some(timer))?,
            None => None,
        };
        let mut handling = Handling::new(call);
        handling.begin(&*near);
        send_in_thread(&near, &mut handling)?;
        let execution = Execution::new(future, Some(callee.clone()));
        let (stage, uncancelled) = (Mutex::new(Stage::Prepared(execution)), call.procedure.uncancelled);
        let driven = Arc::new(Driven { near, callee, uncancelled, _timer: timer, stage });
        Ok(Exchanging { driven, handling, is_left: false })
    }

    /// Gives the call to the sink if its result is a stream which the server has begun to send. Returns
    /// whether it did.
    fn give_stream(&mut self, sink: Sink<'_>) -> bool {
        if self.handling.stream.is_none() {
            return false;
        }
        let (driven, handling) = (self.driven.clone(), std::mem::take(&mut self.handling));
        self.is_left = true;
        sink(Reply::Stream(Box::new(Exchanging { driven, handling, is_left: false })));
        true
    }

    /// Gives the outcome of the call that has ended, or that of the handler which has unwound it.
    fn deliver(&mut self, sink: Sink<'_>) {
        let ended = self.driven.take();
        ended.into_iter().for_each(|ended| self.handling.leave(ended).deliver(sink));
    }
}

impl PendingCall for Exchanging {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        let driven = self.driven.clone();
        if let Err(why) = self.handling.attend(&*driven, &|| driven.near.is_late() || driven.is_over()) {
            return sink(Reply::Failed(why.but_ran(Ran::Maybe)));
        }
        if self.handling.stream.is_none() && driven.near.is_late() {
            self.driven.give_up(Kind::Deadline);
        }
        if !self.give_stream(sink) {
            self.deliver(sink);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let epoch = self.driven.epoch();
        self.driven.end_if_late();
        let over = self.driven.is_over();
        self.handling.step(&*self.driven, epoch, context);
        if self.give_stream(sink) {
            return Poll::Ready(());
        }
        if over {
            self.deliver(sink);
            return Poll::Ready(());
        }
        self.driven.watch(0, epoch, context.waker());
        Poll::Pending
    }

    fn cancel(&mut self) {
        self.driven.give_up(Kind::Cancelled);
    }

    fn detach(mut self: Box<Self>) {
        // Nobody sends the rest of an argument, so the call cannot go on.
        if self.handling.sends() {
            return;
        }
        self.is_left = true;
        if let Some(execution) = self.driven.leave() {
            execution.go_on();
        }
    }
}

impl OpenCall for Exchanging {
    fn exchanges(&self) -> Arc<dyn Exchanges> {
        self.driven.clone()
    }

    fn stream(&self) -> u32 {
        self.handling.stream.expect("the server has begun to send the stream")
    }

    fn sends(&self) -> bool {
        self.handling.sends()
    }

    fn attend(&mut self, context: &mut Context<'_>) {
        self.handling.step(&*self.driven, self.driven.epoch(), context);
    }

    fn finish(mut self: Box<Self>, sink: Sink<'_>) {
        self.handling.stream = None;
        PendingCall::wait(self, sink);
    }

    fn poll_finish(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        self.handling.stream = None;
        PendingCall::poll(self, context, sink)
    }
}

impl Drop for Exchanging {
    fn drop(&mut self) {
        if !self.is_left {
            self.driven.give_up(Kind::Cancelled);
        }
    }
}

/// The caller's end of a call's exchanges, and the future that executes the call.
struct Driven {
    near: Arc<LocalExchanges>,
    callee: Arc<LocalExchanges>,
    /// Whether the future is driven to its end even if the call is given up.
    uncancelled: bool,
    /// Wakes the thread or task that waits for the call, at its deadline.
    _timer: Option<Timer>,
    stage: Mutex<Stage>,
}

enum Stage {
    Prepared(Execution),
    Running(Execution),
    Ended(Ended),
    /// The caller has the outcome, or the call was detached.
    Left,
}

/// The waker of the thread that waits, among those of the exchanges.
const THREAD: u32 = u32::MAX;

impl Driven {
    fn is_over(&self) -> bool {
        matches!(*lock(&self.stage), Stage::Ended(_) | Stage::Left)
    }

    /// Takes the outcome.
    fn take(&self) -> Option<Ended> {
        match std::mem::replace(&mut *lock(&self.stage), Stage::Left) {
            Stage::Ended(ended) => Some(ended),
            Stage::Prepared(_) | Stage::Running(_) | Stage::Left => None,
        }
    }

    /// Ends the call if its deadline has passed.
    fn end_if_late(&self) {
        if self.near.is_late() {
            self.give_up(Kind::Deadline);
        }
    }

    /// Polls the future once, unless the call has ended.
    fn step(&self, context: &mut Context<'_>) {
        self.end_if_late();
        // The future is out of the lock while the user's code runs.
        let mut execution = {
            let mut stage = lock(&self.stage);
            match std::mem::replace(&mut *stage, Stage::Left) {
                Stage::Prepared(execution) | Stage::Running(execution) => execution,
                other => {
                    *stage = other;
                    return;
                }
            }
        };
        let ended = match execution.poll(context) {
            Poll::Ready(ended) => ended,
            Poll::Pending => return *lock(&self.stage) = Stage::Running(execution),
        };
        *lock(&self.stage) = Stage::Ended(ended);
        drop(execution);
        self.callee.end_all();
    }

    /// Ends the call by a failure of this kind, unless it has ended.
    fn give_up(&self, kind: Kind) {
        let cancelled = |ran| Stage::Ended(Ended::failed(CallFailed::new(kind, ran)));
        let (execution, goes_on) = {
            let mut stage = lock(&self.stage);
            match std::mem::replace(&mut *stage, Stage::Left) {
                Stage::Prepared(execution) => {
                    *stage = cancelled(Ran::No);
                    (execution, false)
                }
                Stage::Running(execution) => {
                    *stage = cancelled(Ran::Maybe);
                    (execution, self.uncancelled)
                }
                Stage::Ended(how) if kind == Kind::Deadline => {
                    *stage = Stage::Ended(how.at_deadline());
                    return;
                }
                other => {
                    *stage = other;
                    return;
                }
            }
        };
        self.near.end_all();
        if goes_on {
            execution.go_on();
        }
    }

    /// Returns the execution of a call that no caller waits for any more, if it has not ended.
    fn leave(&self) -> Option<Execution> {
        self.near.end_all();
        match std::mem::replace(&mut *lock(&self.stage), Stage::Left) {
            Stage::Prepared(execution) | Stage::Running(execution) => Some(execution),
            Stage::Ended(_) | Stage::Left => None,
        }
    }
}

impl Exchanges for Driven {
    fn open(&self) -> Option<u32> {
        self.near.open()
    }

    fn send(&self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        self.near.send(exchange, bytes, tail)
    }

    fn take(&self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.near.take(exchange, into, most)
    }

    fn stop(&self, exchange: u32) {
        self.near.stop(exchange);
    }

    fn give_up(&self) {
        self.near.give_up();
    }

    fn next_opened(&self) -> Option<u32> {
        self.near.next_opened()
    }

    fn epoch(&self) -> u64 {
        self.near.epoch()
    }

    fn wait(&self, epoch: u64) -> Result<(), CallFailed> {
        let unpark = Unpark::new();
        let waker = Waker::from(unpark.clone());
        while self.epoch() == epoch {
            self.near.watch(THREAD, epoch, &waker);
            self.step(&mut Context::from_waker(&waker));
            if self.near.is_late() {
                self.near.end_all();
            }
            if self.epoch() == epoch {
                unpark.wait_until(self.near.deadline())?;
            }
        }
        Ok(())
    }

    fn watch(&self, exchange: u32, epoch: u64, waker: &Waker) {
        self.near.watch(exchange, epoch, waker);
        self.step(&mut Context::from_waker(waker));
    }

    fn nudge(&self) -> Waker {
        self.near.nudge()
    }
}
