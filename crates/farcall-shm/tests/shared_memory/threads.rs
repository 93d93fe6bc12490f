//! Waking a thread of this process that sleeps.

use std::time::{Duration, Instant};

use rustix::thread::Pid;

/// How long a thread is given to fall asleep.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `wake` once the thread sleeps. Under Miri it calls `wake` at once, because there is no /proc.
///
/// # Panics
/// If the thread does not fall asleep within [`PATIENCE`]. Then too `wake` is called first: the thread can
/// end, and the test fails instead of hanging.
pub fn once_asleep(thread: Pid, wake: impl FnOnce()) {
    let deadline = Instant::now() + PATIENCE;
    let slept = loop {
        let slept = sleeps(thread);
        if slept || Instant::now() >= deadline {
            break slept;
        }
        std::thread::yield_now();
    };
    wake();
    assert!(slept, "{thread:?} was to fall asleep before it is woken, and did not within {PATIENCE:?}");
}

fn sleeps(thread: Pid) -> bool {
    let stat = || std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    cfg!(miri) || stat().unwrap().contains(") S ")
}

/// The thread that calls it.
pub fn this() -> Pid {
    if cfg!(miri) { Pid::INIT } else { rustix::thread::gettid() }
}
