//! What a connection does, for the thread that may end it: to make room for another, or because the server
//! drains.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farcall::Time;
use farcall::eviction::Usage;

/// Since when a connection waits for a call, receives one, or waits until its client takes a reply or sends
/// or takes bulk data. Nothing is known while a call is executed: its thread would go on if the connection
/// ended.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// The last two bits are flags; the others are the time in steps of four nanoseconds.
    state: AtomicU64,
    /// Whether the connection is to receive no more calls, because its server drains.
    is_draining: AtomicBool,
}

impl Silence {
    /// Returns what the connection is used for, or `None` while a call is executed.
    pub(crate) fn usage(&self, now: Time) -> Option<Usage> {
        let state = self.state.load(Ordering::Relaxed);
        let time = now.since(Time::from_nanos(state & !FLAGS));
        match state {
            BUSY => None,
            state if state & PARTIAL != 0 => Some(Usage::PartialCall(time)),
            _ => Some(Usage::Idle(time)),
        }
    }

    /// Returns whether a call has begun and is not answered yet. The bulk data that it takes and its reply
    /// belong to it.
    pub(crate) fn has_call(&self) -> bool {
        // (BUSY has all flags.)
        self.state.load(Ordering::SeqCst) & BEGUN != 0
    }

    /// Makes the connection's thread receive no more calls.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    /// Returns whether the connection's thread is to receive no more calls.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Notes that the connection waits for a call.
    pub(crate) fn begin(&self, now: Time) {
        self.state.store(now.as_nanos() & !FLAGS, Ordering::Relaxed);
    }

    /// Notes that a part of a call has come, whose first byte came at `begun`.
    pub(crate) fn receive(&self, begun: Time) {
        self.state.store(begun.as_nanos() & !FLAGS | PARTIAL, Ordering::Relaxed);
    }

    /// Notes that a call has come whole and is executed.
    pub(crate) fn end(&self) {
        // SeqCst: this thread writes the state and then reads `is_draining`; the thread that drains the
        // server writes that and then reads the state. At least one of them sees what the other wrote.
        self.state.store(BUSY, Ordering::SeqCst);
    }

    /// Does something that waits for the client since `begun`, such as sending a reply. Afterwards the
    /// connection is used as before.
    pub(crate) fn wait_for_client<R>(&self, begun: Time, wait: impl FnOnce() -> R) -> R {
        // (BUSY would be a time of 584 years.)
        let waits = begun.as_nanos() & !FLAGS | PARTIAL | BEGUN;
        let before = self.state.swap(waits, Ordering::Relaxed);
        let done = wait();
        self.state.store(before, Ordering::Relaxed);
        done
    }
}

/// The flag that a part of a message or of bulk data is on its way.
const PARTIAL: u64 = 1;
/// The flag that a call has begun, to which that part belongs.
const BEGUN: u64 = 2;
const FLAGS: u64 = PARTIAL | BEGUN;

/// The state of [`Silence`] while a call is executed.
const BUSY: u64 = u64::MAX;
