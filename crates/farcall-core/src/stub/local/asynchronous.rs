//! The in-process channel to a server of `async fn`s. The thread or task that waits for a call drives its
//! future.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::arguments_in_time;
use super::driven::Exchanging;
use super::execution::Execution;
use super::unpark::Unpark;
use crate::env::{Env as _, Time};
use crate::guard;
use crate::stub::alarm::{Alarm, Timer};
use crate::stub::batch::{BATCH, execute_each_later};
use crate::stub::channel::{Call, CarriedBy, Channel, PendingCall, Reply, Sink};
use crate::stub::ended::Ended;
use crate::stub::interface::AsyncServer;
use crate::{CallFailed, Kind, Ran, System};

pub(super) struct Local<S> {
    server: Arc<S>,
    /// Wakes the tasks that await calls, at the calls' deadlines.
    alarm: Arc<Alarm>,
}

impl<S: AsyncServer> Local<S> {
    pub(super) fn new(server: S) -> Local<S> {
        Local { server: Arc::new(server), alarm: Alarm::new(Arc::new(System)) }
    }

    fn begin(&self, call: &Call<'_>) -> Result<Started, CallFailed> {
        let (arguments, deadline) = arguments_in_time(call)?;
        let server = self.server.clone();
        let future = match call.procedure.number == BATCH.number {
            true => execute_each_later(
                arguments,
                |_| std::future::ready(Ok(())),
                move |procedure, arguments| server.clone().dispatch(procedure, arguments),
                |_, _| (),
            ),
            false => server.dispatch(call.procedure.number, arguments),
        };
        Ok(Started {
            execution: Some(Execution::new(future, None)),
            polled: false,
            waker: None,
            deadline: deadline.map(|deadline| (deadline, self.alarm.timer())),
            uncancelled: call.procedure.uncancelled,
        })
    }
}

impl<S: AsyncServer> Channel for Local<S> {
    fn carried_by(&self) -> CarriedBy {
        CarriedBy::Caller
    }

    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        if call.procedure.exchanges {
            return self.start(call).wait(sink);
        }
        match self.begin(&call) {
            Ok(started) => started.block().deliver(sink),
            Err(why) => sink(Reply::Failed(why)),
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        if call.procedure.exchanges {
            let begin = |arguments| self.server.clone().dispatch(call.procedure.number, arguments);
            return match arguments_in_time(&call).and_then(|(arguments, deadline)| {
                Exchanging::new(begin(arguments), &call, deadline.map(|at| (at, self.alarm.timer())))
            }) {
                Ok(started) => Box::new(started),
                Err(why) => Box::new(why),
            };
        }
        match self.begin(&call) {
            Ok(started) => Box::new(started),
            Err(why) => Box::new(why),
        }
    }
}

struct Started {
    /// `None` once the call was cancelled or has ended.
    execution: Option<Execution>,
    polled: bool,
    waker: Option<Waker>,
    /// The deadline, and what wakes the task at it.
    deadline: Option<(Time, Timer)>,
    /// Whether the future is driven to its end even if the call is given up.
    uncancelled: bool,
}

impl Started {
    fn step(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        let ran = if self.polled { Ran::Maybe } else { Ran::No };
        let Some(execution) = &mut self.execution else {
            return Poll::Ready(Ended::failed(CallFailed::new(Kind::Cancelled, ran)));
        };
        let is_late = |at: Option<Time>| at.is_some_and(|at| at <= System.now());
        let deadline = self.deadline.as_ref().map(|(at, _)| *at);
        if is_late(deadline) {
            self.give_up();
            return Poll::Ready(Ended::failed(CallFailed::new(Kind::Deadline, ran)));
        }
        self.polled = true;
        let polled = execution.poll(context);
        if polled.is_ready() {
            self.execution = None;
            return if is_late(deadline) { polled.map(Ended::at_deadline) } else { polled };
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Has the task woken at the deadline.
    fn set_timer(&self, context: &Context<'_>) -> Result<(), CallFailed> {
        let Some((at, timer)) = &self.deadline else { return Ok(()) };
        timer.set(*at, context.waker())
    }

    /// Drives the future on this thread.
    fn block(mut self) -> Ended {
        let unpark = Unpark::new();
        let waker = Waker::from(unpark.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(ended) = self.step(&mut context) {
                return ended;
            }
            let deadline = self.deadline.as_ref().map(|(at, _)| *at);
            if let Err(why) = unpark.wait_until(deadline) {
                return Ended::failed(why);
            }
        }
    }

    /// Gives the call up: drops the future, unless it has begun and is `uncancelled`.
    fn give_up(&mut self) {
        if let Some(execution) = self.execution.take()
            && self.uncancelled
            && self.polled
        {
            execution.go_on();
        }
    }
}

impl PendingCall for Started {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        self.block().deliver(sink);
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let ended = match self.step(context) {
            Poll::Ready(ended) => ended,
            Poll::Pending => match self.set_timer(context) {
                Ok(()) => return Poll::Pending,
                Err(why) => {
                    self.give_up();
                    Ended::failed(why.but_ran(Ran::Maybe))
                }
            },
        };
        ended.deliver(sink);
        Poll::Ready(())
    }

    fn cancel(&mut self) {
        self.give_up();
        if let Some(waker) = self.waker.take() {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    fn detach(mut self: Box<Self>) {
        if let Some(execution) = self.execution.take() {
            execution.go_on();
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.give_up();
    }
}
