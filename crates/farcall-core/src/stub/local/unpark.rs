//! The waker of a thread that drives a future.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Instant;

use crate::env::{Env as _, Time};
use crate::{CallFailed, Ran, System, self_wait};

pub(super) struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Unpark {
    /// Returns a waker of the calling thread.
    pub(super) fn new() -> Arc<Unpark> {
        Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(false) })
    }

    /// Waits until another thread wakes this one, perhaps without reason.
    ///
    /// # Errors
    /// When this thread drives a runtime whose tasks nobody else runs, and it was not woken soon.
    pub(super) fn wait(&self) -> Result<(), CallFailed> {
        self.wait_until(None)
    }

    /// Waits as [`Unpark::wait`] does, but no longer than until the deadline, if there is one.
    pub(super) fn wait_until(&self, deadline: Option<Time>) -> Result<(), CallFailed> {
        if !self_wait::drives_tokio() {
            match deadline {
                Some(deadline) => thread::park_timeout(deadline.since(System.now())),
                None => thread::park(),
            }
            return Ok(());
        }
        if self.is_woken_soon() { Ok(()) } else { Err(self_wait::refusal(Ran::Maybe)) }
    }

    /// Waits until another thread wakes this one, but no longer than [`self_wait::GRACE`]. This thread drives
    /// a runtime, whose tasks cannot run while it waits.
    fn is_woken_soon(&self) -> bool {
        let end = Instant::now() + self_wait::GRACE;
        while !self.woken.swap(false, Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}
