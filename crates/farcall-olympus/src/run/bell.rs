//! Wakes the thread that interprets a graph, from other threads.
//!
//! That thread waits for the ends of calls in [`Calls`](farcall::Calls). Among them it puts one that is no
//! call: it ends when the bell rings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farcall::Pending;
use farcall::dynamic::Encoded;
use farcall::env::{Env, Event};
use farcall::stub::{PendingCall, Reply, Sink};
use farcall::xdr::Decoder;

/// A bell. Clones are the same.
#[derive(Clone)]
pub struct Bell(Arc<Inner>);

struct Inner {
    /// Wakes the thread if it waits for nothing but the bell.
    event: Arc<dyn Event>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rung: bool,
    /// Wakes the thread if it waits for calls, too.
    waker: Option<Waker>,
}

impl Bell {
    pub fn new(env: &Arc<dyn Env>) -> Bell {
        Bell(Arc::new(Inner { event: env.event(), state: Mutex::default() }))
    }

    /// Wakes the thread, now or when it next waits.
    pub fn ring(&self) {
        let mut state = self.lock();
        state.rung = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        self.0.event.set();
    }

    /// Waits until the bell has rung, or this time has passed.
    pub fn wait(&self, time: Option<Duration>) {
        if !std::mem::take(&mut self.lock().rung) {
            self.0.event.wait(time);
            self.lock().rung = false;
        }
    }

    /// Returns what ends when the bell rings.
    pub fn pending(&self) -> Pending<Encoded, Encoded> {
        Pending::new(Box::new(Ring(self.clone())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Ring(Bell);

impl PendingCall for Ring {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        self.0.wait(None);
        sink(Reply::Result(Decoder::new(&[])));
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if !std::mem::take(&mut state.rung) {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        sink(Reply::Result(Decoder::new(&[])));
        Poll::Ready(())
    }

    fn cancel(&mut self) {}

    fn detach(self: Box<Self>) {}
}
