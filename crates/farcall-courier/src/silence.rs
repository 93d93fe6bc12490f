//! What a connection does, for the thread that may end it to make room for another.

use std::sync::atomic::{AtomicU64, Ordering};

use farcall::Time;
use farcall::eviction::Usage;

/// Since when a connection waits for a call, receives one, or waits until its client takes a reply or sends
/// or takes bulk data. Nothing is known while a call is executed: its thread would go on if the connection
/// ended.
///
/// The last bit says whether a part of a message is on its way; the others are the time in steps of two
/// nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Silence(AtomicU64);

impl Silence {
    /// Returns what the connection is used for, or `None` while a call is executed.
    pub(crate) fn usage(&self, now: Time) -> Option<Usage> {
        let state = self.0.load(Ordering::Relaxed);
        let time = now.since(Time::from_nanos(state & !PARTIAL));
        match state {
            BUSY => None,
            state if state & PARTIAL != 0 => Some(Usage::PartialCall(time)),
            _ => Some(Usage::Idle(time)),
        }
    }

    /// Notes that the connection waits for a call.
    pub(crate) fn begin(&self, now: Time) {
        self.0.store(now.as_nanos() & !PARTIAL, Ordering::Relaxed);
    }

    /// Notes that a part of a call has come, whose first byte came at `begun`.
    pub(crate) fn receive(&self, begun: Time) {
        // (BUSY would be a time of 584 years.)
        self.0.store(begun.as_nanos() | PARTIAL, Ordering::Relaxed);
    }

    /// Notes that a call is executed.
    pub(crate) fn end(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }

    /// Does something that waits for the client since `begun`, such as sending a reply. Afterwards the
    /// connection is used as before.
    pub(crate) fn wait_for_client<R>(&self, begun: Time, wait: impl FnOnce() -> R) -> R {
        let before = self.0.swap(begun.as_nanos() | PARTIAL, Ordering::Relaxed);
        let done = wait();
        self.0.store(before, Ordering::Relaxed);
        done
    }
}

const PARTIAL: u64 = 1;

/// The state of [`Silence`] while a call is executed.
const BUSY: u64 = u64::MAX;
