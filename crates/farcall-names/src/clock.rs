//! A clock that goes on while the machine sleeps and that nobody can set. Leases are counted by it.

use std::time::Duration;

/// The clock of this process, or in tests one that the test moves.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    #[cfg(test)]
    moved: Option<std::sync::Arc<std::sync::Mutex<Duration>>>,
}

impl Clock {
    /// Returns a clock that shows what the test writes.
    #[cfg(test)]
    pub(crate) fn moved(time: std::sync::Arc<std::sync::Mutex<Duration>>) -> Clock {
        Clock { moved: Some(time) }
    }

    /// Returns the time since some moment, which is the same for all clocks of the process.
    pub(crate) fn now(&self) -> Duration {
        #[cfg(test)]
        if let Some(moved) = &self.moved {
            return *farcall_base::lock(moved);
        }
        since_boot()
    }
}

/// `Instant` stands still while the machine sleeps (CLOCK_MONOTONIC of clock_gettime(2)), and a server counts
/// on meanwhile.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
