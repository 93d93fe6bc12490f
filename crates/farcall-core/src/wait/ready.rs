//! Keeps track of which calls of a thread may have ended, and wakes the thread or task that waits for them.
//!
//! This module uses no sockets and no calls, so that the tool loom can try every interleaving (tests/waiting
//! includes this file and gives it loom's types through `super::sync`).

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, this_thread};

/// The numbers of those calls of one thread that may have ended. Clones are the same list.
#[derive(Clone, Default)]
pub struct ReadyList(Arc<Shared>);

/// Marks one call of a [`ReadyList`] as ready: it may have ended.
#[derive(Clone)]
pub struct ReadyToken {
    list: ReadyList,
    call: u32,
}

#[derive(Default)]
struct Shared {
    /// The length of `State::ready`.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The calls that were marked and not taken, in the order of their marking.
    ready: VecDeque<u32>,
    /// The task to wake when the next call becomes ready.
    task: Option<Waker>,
    /// The number of the thread that waits for the next call, or 0.
    thread: usize,
    /// Ends the wait of `thread`.
    interrupt: Option<Arc<dyn Interrupt>>,
    /// The address of the wait point or event that `interrupt` wakes.
    waits_at: usize,
}

/// Ends one thread's wait.
pub trait Interrupt: Send + Sync {
    /// Ends the thread's wait, or the next wait that it begins. `serving` says that the calling thread serves
    /// the wait point, so that the waiting thread is certainly asleep.
    fn interrupt(&self, serving: bool);
}

impl ReadyList {
    /// Returns the token of a call.
    pub fn token(&self, call: u32) -> ReadyToken {
        ReadyToken { list: self.clone(), call }
    }

    /// Returns whether any call is ready.
    pub fn any(&self) -> bool {
        self.count() > 0
    }

    /// Returns how many calls are ready.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Takes the call that has been ready longest.
    pub fn take(&self) -> Option<u32> {
        if !self.any() {
            return None;
        }
        let mut state = self.lock();
        let call = state.ready.pop_front();
        self.0.count.store(state.ready.len(), Ordering::Relaxed);
        call
    }

    /// Sets the task to wake when the next call becomes ready.
    pub(crate) fn wake_by(&self, waker: &Waker) {
        let mut state = self.lock();
        let former = match &mut state.task {
            Some(former) if former.will_wake(waker) => None,
            place => place.replace(waker.clone()),
        };
        drop(state);
        // Dropping a waker can drop a task, so it is done without the lock.
        drop(former);
    }

    /// Runs `wait`, in which this thread waits until enough calls are ready. Each call that becomes ready
    /// meanwhile interrupts the wait. `waits_at` is the address of the wait point or event that `interrupt`
    /// wakes. As long as it stays the same, the stored interrupt is used again.
    pub fn wait_with<R>(
        &self,
        waits_at: usize,
        interrupt: impl FnOnce() -> Arc<dyn Interrupt>,
        wait: impl FnOnce() -> R,
    ) -> R {
        let former = {
            let mut state = self.lock();
            state.thread = this_thread();
            let is_new = state.interrupt.is_none() || state.waits_at != waits_at;
            state.waits_at = waits_at;
            if is_new { state.interrupt.replace(interrupt()) } else { None }
        };
        drop(former);
        let result = wait();
        self.lock().thread = 0;
        result
    }

    fn mark(&self, call: u32, serving: bool) {
        let (interrupt, task) = {
            let mut state = self.lock();
            state.ready.push_back(call);
            self.0.count.store(state.ready.len(), Ordering::Release);
            // A thread that marks a call during its own wait is receiving, and checks for ready calls
            // afterwards.
            let sleeps = state.thread != 0 && state.thread != this_thread();
            (sleeps.then(|| state.interrupt.clone()).flatten(), state.task.take())
        };
        if let Some(interrupt) = interrupt {
            interrupt.interrupt(serving);
        }
        if let Some(task) = task {
            task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadyToken {
    /// Marks the call as ready: it may have ended.
    pub fn mark_ready(&self) {
        self.list.mark(self.call, false);
    }

    /// Marks the call as ready, like [`ReadyToken::mark_ready`]. Called by the thread that serves the wait
    /// point at which another thread waits for the call.
    pub fn mark_ready_serving(&self) {
        self.list.mark(self.call, true);
    }
}

impl Wake for ReadyToken {
    fn wake(self: Arc<Self>) {
        self.mark_ready();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mark_ready();
    }
}
