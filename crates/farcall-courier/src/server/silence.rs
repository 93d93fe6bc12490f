//! Since when a connection waits for a call.

use std::sync::atomic::{AtomicU64, Ordering};

use farcall::Time;

/// Since when a connection waits for a call, for the thread that may end it to make room for another.
#[derive(Debug, Default)]
pub(crate) struct Silence(AtomicU64);

impl Silence {
    /// Returns since when the connection waits for a call, or `None` if it does not.
    pub(crate) fn since(&self) -> Option<Time> {
        Some(self.0.load(Ordering::Relaxed)).filter(|nanos| *nanos != BUSY).map(Time::from_nanos)
    }

    pub(crate) fn begin(&self, now: Time) {
        self.0.store(now.as_nanos().min(BUSY - 1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }
}

/// The state of [`Silence`] while a call is received, executed or answered.
const BUSY: u64 = u64::MAX;
