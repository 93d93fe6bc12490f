//! The threads that serve calls. This module counts, starts, rests, replaces and watches them, in the same
//! way for UDP, shared memory and ONC RPC.
//!
//! ```text
//! pool      which threads of a carrier receive, execute and rest, and the budget of threads of a server
//! carrier   what a pool asks of its carrier, and how a thread is started
//! watch     what the watchdog of a pool finds
//! usual     how long a procedure takes, and so whether it is quick
//! jobs      threads that run functions which are queued for them
//! ```
//!
//! **Which thread receives.** A worker receives a call and executes it itself, because handing a call to
//! another thread costs more than most procedures. Before it executes a call that may take long, it lets
//! another worker receive. If the call is known to be quick, the only receiver executes it without a
//! replacement. A *watchdog* looks after such a lone receiver: when the lone receiver makes no progress, the
//! watchdog lets another worker receive. The watchdog sleeps while calls are rare.
//!
//! **Which threads count.** A pool's limit bounds how many procedures compute at the same time. The server's
//! budget ([`Threads`]) bounds the number of its threads, over all the sockets and connections from which
//! they receive. A thread that only waits does not count as a worker. It counts as waiting while its
//! procedure waits in a remote call of its own, while it executes a `#[blocking]` procedure, and when the
//! watchdog has found it in the same call at two successive looks.
//!
//! **No deadlock.** If all threads wait in remote calls of their own, a new call is refused at once, because
//! they may all wait for that very call. For the same reason the last thread that could receive must not
//! begin to wait. When few threads are left, they are reserved for hosts whose waiting calls hold few.
//! Threads that rest for ten seconds end.

mod carrier;
mod jobs;
mod pool;
#[cfg(test)]
mod tests;
mod usual;
mod watch;

mod sync {
    //! The atomic types that `pool` uses. tests/workers.rs replaces them by loom's.
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
}

pub use carrier::{Carrier, replace, run, start};
pub use jobs::{Job, Jobs, Refused};
pub use pool::{MayNotWait, Pace, Plan, Pool, Quota, Replacement, Rested, Threads, Worker};
pub use usual::UsualTime;
pub use watch::{Found, Habit, Watch};
