//! A thread that waits for an outcome: where others leave it, and who is woken when a call ends.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::result_slot::ResultSlot;
use crate::env::{Env, Event};
use crate::guard;
use crate::wait::{Parker, ReadyToken};

/// A thread that waits, seen by the others.
pub(super) struct Waiter {
    event: Arc<dyn Event>,
    /// Where the outcome of its call comes to while another thread receives.
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

    /// Waits until somebody wakes it, perhaps without reason, or `most` has passed.
    pub(super) fn wait(&self, most: Option<Duration>) {
        self.event.wait(most);
    }
}

/// Who waits for a call that was started.
#[derive(Clone, Default)]
pub(super) enum Watcher {
    #[default]
    Nobody,
    Thread(Arc<Waiter>),
    Task(Waker),
    /// One who gathers the ends of several calls.
    Gatherer(ReadyToken),
}

impl Watcher {
    pub(super) fn is_task(&self) -> bool {
        matches!(self, Watcher::Task(_))
    }
}

/// Whom to wake when no lock is held.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) waiters: Vec<Arc<Waiter>>,
    pub(super) others: Vec<Watcher>,
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

    #[inline]
    pub(super) fn run(&mut self) {
        if !self.waiters.is_empty() || !self.others.is_empty() {
            self.wake_all();
        }
    }

    /// How many tasks are among them.
    #[inline]
    pub(super) fn tasks(&self) -> usize {
        if self.others.is_empty() {
            return 0;
        }
        self.others.iter().filter(|other| other.is_task()).count()
    }

    fn wake_all(&mut self) {
        self.waiters.drain(..).for_each(|waiter| waiter.wake());
        for other in self.others.drain(..) {
            match other {
                // A panic in it is not that of the caller who happens to lead.
                Watcher::Task(waker) => guard::run_alone("a waker", || waker.wake()),
                Watcher::Gatherer(token) => guard::run_alone("a waker", || token.mark_ready_serving()),
                Watcher::Nobody | Watcher::Thread(_) => {}
            }
        }
    }
}

/// A type's decoding that panics in the leader must cost nobody else the word that its outcome is there.
impl Drop for Wakes {
    fn drop(&mut self) {
        self.run();
    }
}
