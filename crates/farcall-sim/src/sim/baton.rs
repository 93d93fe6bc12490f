//! The baton: a thread runs while it has it.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Where one thread is given the baton.
#[derive(Default)]
pub(super) struct Baton {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Baton {
    pub(super) fn give(&self) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits for it.
    pub(super) fn take(&self) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let given = self.changed.wait_while(given, |given| !*given);
        *given.unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Waits for it no longer than `time`. True: it was given.
    pub(super) fn take_within(&self, time: Duration) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(given, time, |given| !*given);
        let mut given = waited.unwrap_or_else(PoisonError::into_inner).0;
        std::mem::replace(&mut *given, false)
    }
}
