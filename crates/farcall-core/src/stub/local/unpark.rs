//! The waker of a thread that drives a future.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

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

    /// Waits until another thread wakes this one, perhaps without reason, but no longer than until the
    /// deadline, if there is one.
    ///
    /// # Errors
    /// When this thread drives a runtime whose tasks nobody else runs, and it was not woken soon.
    pub(super) fn wait_until(&self, deadline: Option<Time>) -> Result<(), CallFailed> {
        let left = deadline.map(|deadline| deadline.since(System.now()));
        if !self_wait::drives_tokio() {
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            return Ok(());
        }
        // This thread drives a runtime, whose tasks cannot run while it waits.
        let ends_first = left.filter(|left| *left <= self_wait::GRACE);
        let is_woken = self.is_woken_within(ends_first.unwrap_or(self_wait::GRACE));
        if is_woken || ends_first.is_some() { Ok(()) } else { Err(self_wait::refusal(Ran::Maybe)) }
    }

    /// Waits until another thread wakes this one, but no longer than `most`.
    fn is_woken_within(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
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
