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
pub(super) struct Wakes(Vec<Sleeper>);

/// A thread or a task that is to be woken.
enum Sleeper {
    Thread(Arc<dyn Parker>),
    /// One of the tasks that wait at the endpoint, which counts them.
    Task(Waker),
    /// A waker that the recipient of a reply has given. Its task does not count as one that waits at the
    /// endpoint.
    Uncounted(Waker),
    Gatherer(ReadyToken),
}

impl Wakes {
    #[inline]
    pub(super) fn add(&mut self, watcher: Watcher) {
        self.0.push(match watcher {
            Watcher::Nobody => return,
            Watcher::Thread(waiter) => Sleeper::Thread(waiter),
            Watcher::Task(waker) => Sleeper::Task(waker),
            Watcher::Gatherer(token) => Sleeper::Gatherer(token),
        });
    }

    pub(super) fn add_thread(&mut self, parker: Arc<dyn Parker>) {
        self.0.push(Sleeper::Thread(parker));
    }

    pub(super) fn add_uncounted(&mut self, waker: Waker) {
        self.0.push(Sleeper::Uncounted(waker));
    }

    #[inline]
    pub(super) fn run(&mut self) {
        if !self.0.is_empty() {
            self.wake_all();
        }
    }

    /// Returns the number of tasks that wait at the endpoint and are to be woken.
    #[inline]
    pub(super) fn tasks(&self) -> usize {
        self.0.iter().filter(|sleeper| matches!(sleeper, Sleeper::Task(_))).count()
    }

    fn wake_all(&mut self) {
        for sleeper in self.0.drain(..) {
            match sleeper {
                Sleeper::Thread(parker) => parker.wake(),
                // A panic in the user's waker must not unwind the leading thread.
                Sleeper::Task(waker) | Sleeper::Uncounted(waker) => {
                    guard::run_alone("a waker", || waker.wake());
                }
                Sleeper::Gatherer(token) => guard::run_alone("a waker", || token.mark_ready_serving()),
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
