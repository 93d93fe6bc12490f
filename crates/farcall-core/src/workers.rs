//! The threads that serve calls: one way to count, start, rest, replace and watch them, for every carrier.
//!
//! ```text
//! pool      which threads of a carrier receive, execute and rest, and the budget of threads of a server
//! carrier   what a pool asks of its carrier, and how a thread is started
//! watch     what the watchdog of a pool finds
//! usual     how long a procedure takes, and so whether it is quick
//! jobs      threads that run what they are given, where nobody receives
//! ```
//!
//! **Who receives.** A worker receives a call and executes it itself, because to hand a call to another
//! thread costs more than most procedures. Before it executes a call that may take long, it has another
//! worker receive. A call that is known to be quick it may execute as the only receiver. A *watchdog* looks
//! after such a lone receiver, and has another worker receive when the lone one makes no progress. The
//! watchdog sleeps while calls are rare.
//!
//! **Who counts.** A pool's limit bounds how many procedures compute at the same time. The server's budget
//! ([`Threads`]) bounds its threads over all carriers. A thread that only waits does not count as a worker:
//! while its procedure waits in a call of its own, while it executes a `#[blocking]` procedure, and, if other
//! calls wait for a worker, once it was found in the same call at two looks.
//!
//! **No deadlock.** If all threads wait in calls of their own, a new call is refused at once, because each of
//! them may wait for that very call. For the same reason the last thread that could receive may not begin to
//! wait. Of the last threads some are kept for hosts whose waiting calls hold few. Threads that rest for long
//! end.

mod carrier;
mod jobs;
mod pool;
#[cfg(test)]
mod tests;
mod usual;
mod watch;

mod sync {
    //! What `pool` is made of. tests/workers.rs puts loom's types in its place.
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
}

pub use carrier::{Carrier, replace, run, start};
pub use jobs::{Job, Jobs, Refused};
pub use pool::{MayNotWait, Pace, Plan, Pool, Quota, Replacement, Rested, Threads, Worker};
pub use usual::UsualTime;
pub use watch::{Found, Habit, Watch};
