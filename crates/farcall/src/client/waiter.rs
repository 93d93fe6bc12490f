//! Threads and tasks that wait for outcomes, and how they are woken when a call ends.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::result_slot::ResultSlot;
use crate::env::{Env, Event};
use crate::guard;
use crate::wait::{Parker, ReadyToken};

/// A waiting thread, as other threads see it.
pub(super) struct Waiter {
    event: Arc<dyn Event>,
    /// Gets the outcome of the thread's call, if another thread leads (receives for all).
    pub(super) slot: ResultSlot,
}

impl Parker for Waiter {
    fn wake(&self) {
        self.event.set();
    }
}

impl Waiter {
    pub(super) fn new(env: &dyn Env) -> Arc<Waiter> {
        Arc::new(Waiter { event: env.event(), slot: ResultSlot::default() })
    }

    /// Waits until another thread wakes this one, perhaps without reason, or until `most` has passed.
    pub(super) fn wait(&self, most: Option<Duration>) {
        self.event.wait(most);
    }
}

/// The thread or task that waits for a started call.
#[derive(Clone, Default)]
pub(super) enum Watcher {
    #[default]
    Nobody,
    Thread(Arc<Waiter>),
    Task(Waker),
    /// A thread that waits for several calls at once.
    Gatherer(ReadyToken),
}

impl Watcher {
    pub(super) fn is_task(&self) -> bool {
        matches!(self, Watcher::Task(_))
    }
}

/// Threads and tasks that are to be woken as soon as no lock is held.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) waiters: Vec<Arc<Waiter>>,
    pub(super) others: Vec<Watcher>,
    /// Wakers that recipients of replies have given. They do not count as tasks that wait at the endpoint.
    pub(super) wakers: Vec<Waker>,
    /// Threads that wait for signals or items of streams in a call.
    pub(super) parkers: Vec<Arc<dyn Parker>>,
}

impl Wakes {
    #[inline]
    pub(super) fn add(&mut self, watcher: Watcher) {
        match watcher {
            Watcher::Nobody => {}
            Watcher::Thread(waiter) => self.waiters.push(waiter),
            Watcher::Task(_) | Watcher::Gatherer(_) => self.others.push(watcher),
        }
    }

    pub(super) fn add_waker(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    #[inline]
    pub(super) fn run(&mut self) {
        if !self.waiters.is_empty()
            || !self.others.is_empty()
            || !self.wakers.is_empty()
            || !self.parkers.is_empty()
        {
            self.wake_all();
        }
    }

    /// Returns the number of tasks among the threads and tasks to be woken.
    #[inline]
    pub(super) fn tasks(&self) -> usize {
        if self.others.is_empty() {
            return 0;
        }
        self.others.iter().filter(|other| other.is_task()).count()
    }

    fn wake_all(&mut self) {
        self.waiters.drain(..).for_each(|waiter| waiter.wake());
        self.parkers.drain(..).for_each(|parker| parker.wake());
        for waker in self.wakers.drain(..) {
            guard::run_alone("a waker", || waker.wake());
        }
        for other in self.others.drain(..) {
            match other {
                // A panic in the user's waker must not unwind the leading thread.
                Watcher::Task(waker) => guard::run_alone("a waker", || waker.wake()),
                Watcher::Gatherer(token) => guard::run_alone("a waker", || token.mark_ready_serving()),
                Watcher::Nobody | Watcher::Thread(_) => {}
            }
        }
    }
}

/// Wakes the remaining threads and tasks even when the leading thread is unwound, because the decoding of its
/// own result has panicked.
impl Drop for Wakes {
    fn drop(&mut self) {
        self.run();
    }
}
