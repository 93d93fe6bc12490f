//! What wakes the host's thread, and tells others that it has stopped.

use std::sync::atomic::{AtomicBool, Ordering};

use farcall_shm::Alarm;

pub(super) struct HostSignal {
    pub(super) alarm: Alarm,
    stopped: AtomicBool,
}

impl HostSignal {
    /// # Errors
    /// What the operating system says.
    pub(super) fn new() -> std::io::Result<HostSignal> {
        Ok(HostSignal { alarm: Alarm::new()?, stopped: AtomicBool::new(false) })
    }

    /// There is something for the host to look after.
    pub(super) fn wake(&self) {
        self.alarm.set();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}
