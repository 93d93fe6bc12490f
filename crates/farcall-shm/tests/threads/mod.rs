//! Waiting until a thread of this process sleeps, so that what wakes it is tried.

use rustix::thread::Pid;

/// Returns when the thread sleeps. Under Miri at once: there is no /proc.
pub fn until_asleep(thread: Pid) {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    while !cfg!(miri) && !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
        std::thread::yield_now();
    }
}

/// The thread that calls it.
pub fn this() -> Pid {
    if cfg!(miri) { Pid::INIT } else { rustix::thread::gettid() }
}
