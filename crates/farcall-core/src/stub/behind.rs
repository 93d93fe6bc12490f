//! A started call that begins when the one-way calls before it have ended.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::channel::{Call, Channel, PendingCall, Procedure, Reply, Sink};
use super::dispatch::panicked;
use super::handlers::Handlers;
use crate::context::{self, context};
use crate::env::{Condition, Env, Time};
use crate::wait::{Parking, WaitPoint};
use crate::xdr::Encoder;
use crate::{CallFailed, Kind, Ran, guard, lock, serving};

/// A call that has not begun, or has.
pub(super) struct Behind {
    channel: Arc<dyn Channel>,
    handlers: Handlers,
    procedure: Procedure,
    arguments: Vec<u8>,
    until: Option<Time>,
    /// The call that the caller's thread serves, from which this one inherits.
    context: context::Context,
    env: Arc<dyn Env>,
    state: Mutex<State>,
    /// Notified when the call has begun.
    begun: Condition,
}

enum State {
    Waiting(Option<Waker>),
    /// Nobody waits for the call, and it is to run.
    Detached,
    Begun(Box<dyn PendingCall>),
    /// The call was given up before it began, or its caller has the reply.
    Over,
}

impl Behind {
    pub(super) fn new(
        (channel, handlers): (&Arc<dyn Channel>, &Handlers),
        procedure: &Procedure,
        arguments: Vec<u8>,
        (env, until): (&Arc<dyn Env>, Option<Time>),
    ) -> Arc<Behind> {
        Arc::new(Behind {
            channel: channel.clone(),
            handlers: handlers.clone(),
            procedure: *procedure,
            arguments,
            until,
            context: context(),
            env: env.clone(),
            state: Mutex::new(State::Waiting(None)),
            begun: Condition::default(),
        })
    }

    /// Begins the call, unless its caller has given it up.
    pub(super) fn begin(&self) {
        if !matches!(*lock(&self.state), State::Waiting(_) | State::Detached) {
            return;
        }
        let left = self.until.map(|until| until.since(self.env.now()));
        let call: Box<dyn PendingCall> = match left {
            Some(left) if left.is_zero() => Box::new(CallFailed::new(Kind::Deadline, Ran::No)),
            // Interceptors are the user's code.
            _ => guard::run(|| self.start(left)).unwrap_or_else(|panic| Box::new(panicked(panic))),
        };
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Over) {
            State::Waiting(waker) => {
                *state = State::Begun(call);
                drop(state);
                self.begun.notify_all();
                if let Some(waker) = waker {
                    guard::run_alone("a waker", || waker.wake());
                }
            }
            State::Detached => {
                drop(state);
                call.detach();
            }
            // The caller has given the call up meanwhile. Its drop cancels it.
            given_up => {
                *state = given_up;
                drop(state);
                drop(call);
            }
        }
    }

    fn start(&self, within: Option<Duration>) -> Box<dyn PendingCall> {
        let _inherits = self.context.enter();
        let encode = |e: &mut Encoder<'_>| e.opaque(&self.arguments);
        let (procedure, handlers) = (&self.procedure, &self.handlers);
        let call = Call { procedure, within, encode: &encode, handlers, sending: None, carries: &[] };
        self.channel.start(call)
    }

    /// Takes the call if it has begun.
    fn take(&self) -> Option<Box<dyn PendingCall>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Over) {
            State::Begun(call) => Some(call),
            other => {
                *state = other;
                None
            }
        }
    }
}

/// The caller's handle of a call that waits for earlier ones.
pub(super) struct BehindCall(pub(super) Arc<Behind>);

impl PendingCall for BehindCall {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        let behind = &self.0;
        let _waiting = match serving::try_wait_guard() {
            Ok(waiting) => waiting,
            Err(why) => return sink(Reply::Failed(why.but_ran(Ran::No))),
        };
        let mut state = lock(&behind.state);
        while matches!(*state, State::Waiting(_)) {
            (state, _) = behind.begun.wait(&behind.env, &behind.state, state, None);
        }
        drop(state);
        match behind.take() {
            Some(call) => call.wait(sink),
            None => sink(Reply::Failed(CallFailed::new(Kind::Cancelled, Ran::No))),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        // Cloning and dropping a waker are the user's code, so no lock is held.
        let waker = context.waker().clone();
        let former = match &mut *lock(&self.0.state) {
            State::Waiting(place) => Some(place.replace(waker)),
            _ => None,
        };
        if former.is_some() {
            return Poll::Pending;
        }
        let Some(mut call) = self.0.take() else {
            sink(Reply::Failed(CallFailed::new(Kind::Cancelled, Ran::No)));
            return Poll::Ready(());
        };
        let polled = call.poll(context, sink);
        if polled.is_pending() {
            *lock(&self.0.state) = State::Begun(call);
        }
        polled
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        // The wait must use the environment's time, which need not be the system's.
        Some(Arc::new(Parking::new(self.0.env.clone())))
    }

    fn cancel(&mut self) {
        if let Some(mut call) = self.0.take() {
            call.cancel();
            *lock(&self.0.state) = State::Begun(call);
            return;
        }
        let former = std::mem::replace(&mut *lock(&self.0.state), State::Over);
        if let State::Waiting(Some(waker)) = former {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    fn detach(self: Box<Self>) {
        let begun = {
            let mut state = lock(&self.0.state);
            match std::mem::replace(&mut *state, State::Over) {
                State::Begun(call) => Some(call),
                State::Waiting(_) => {
                    *state = State::Detached;
                    None
                }
                other => {
                    *state = other;
                    None
                }
            }
        };
        if let Some(call) = begun {
            call.detach();
        }
    }
}

/// Cancels the call, unless it was detached or is over.
impl Drop for BehindCall {
    fn drop(&mut self) {
        let former = {
            let mut state = lock(&self.0.state);
            match &*state {
                State::Detached => return,
                _ => std::mem::replace(&mut *state, State::Over),
            }
        };
        drop(former);
    }
}
