//! Wakes a thread that waits for sockets, or tells it to end. This is the host's thread, which accepts
//! callers, or the thread that watches exporters.

use std::sync::atomic::{AtomicBool, Ordering};

use farcall_shm::Alarm;

pub(super) struct HostSignal {
    pub(super) alarm: Alarm,
    stopped: AtomicBool,
}

impl HostSignal {
    /// Returns a signal that was not set.
    ///
    /// # Errors
    /// When the operating system refuses an eventfd.
    pub(super) fn new() -> std::io::Result<HostSignal> {
        Ok(HostSignal { alarm: Alarm::new()?, stopped: AtomicBool::new(false) })
    }

    /// Wakes the thread, because a session needs it.
    pub(super) fn wake(&self) {
        self.alarm.set();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
