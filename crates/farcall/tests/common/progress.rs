//! What the tests that kill processes share: how far the callers have come, and settings.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

/// How many calls have ended, for whoever waits for more.
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

/// A caller that is gone makes no progress any more: let nobody wait for it.
pub struct Gone<'a>(pub &'a Progress);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        *self.0.ended.lock().unwrap() = u64::MAX / 2;
        self.0.changed.notify_all();
    }
}

/// Says at the end, however it comes, that it is over.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    Some(env::var(name).ok()?.parse().unwrap_or_else(|why| panic!("{name}: {why}")))
}
