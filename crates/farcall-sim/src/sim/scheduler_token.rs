//! The scheduler token of a simulated thread: a thread runs while it has the token, so only one thread runs
//! at a time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The place where one thread receives the token.
#[derive(Default)]
pub(super) struct SchedulerToken {
    given: Mutex<bool>,
    changed: Condvar,
}

impl SchedulerToken {
    pub(super) fn give(&self) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits for the token.
    pub(super) fn take(&self) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let given = self.changed.wait_while(given, |given| !*given);
        *given.unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Waits for the token at most `time`. Returns whether it came.
    pub(super) fn take_within(&self, time: Duration) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(given, time, |given| !*given);
        let mut given = waited.unwrap_or_else(PoisonError::into_inner).0;
        std::mem::replace(&mut *given, false)
    }
}
