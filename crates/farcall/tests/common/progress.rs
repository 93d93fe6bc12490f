//! Helpers for the tests that kill processes: how far the callers have come, and settings.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

/// The number of calls that have ended, for threads that wait for more.
#[derive(Default)]
pub struct Progress {
    ended: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    pub fn one_more(&self) {
        *self.ended.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    pub fn wait_for(&self, more: u64) {
        let ended = self.ended.lock().unwrap();
        let goal = ended.saturating_add(more);
        drop(self.changed.wait_while(ended, |ended| *ended < goal).unwrap());
    }
}

/// Ends all waits for a caller's progress when it is dropped, because a caller that is gone makes none.
pub struct Gone<'a>(pub &'a Progress);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        *self.0.ended.lock().unwrap() = u64::MAX / 2;
        self.0.changed.notify_all();
    }
}

/// Sets a flag when it is dropped, whether the test passes or panics.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns a number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    Some(env::var(name).ok()?.parse().unwrap_or_else(|why| panic!("{name}: {why}")))
}
