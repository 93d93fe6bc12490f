//! The threads that serve calls. This module counts, starts, rests, replaces and watches them, in the same
//! way for UDP, shared memory and ONC RPC.
//!
//! ```text
//! pool      which threads of a carrier receive, execute and rest
//! budget    how many threads a server and each of its pools can have
//! held      how many threads the waiting calls of a host and of a network hold
//! carrier   what a pool asks of its carrier, and how a thread is started
//! watch     what the watchdog of a pool finds
//! waits     which threads wait in a call, as the kernel tells, while other calls queue
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
//! watchdog has found it in the same call at two successive looks. While calls queue, the watchdog looks for
//! threads that the kernel says are asleep.
//!
//! **A spare thread.** While all threads of the budget execute, the last receiver executes quick calls
//! itself, because they may be what the others wait for. If such a call holds it, nothing would be received.
//! So the watchdog then lets one thread beyond the budget receive, if the carrier allows that
//! ([`Pool::with_spare`]). Calls that it could only execute itself are queued.
//!
//! **No deadlock.** If all threads wait in remote calls of their own, a new call is refused at once, because
//! they may all wait for that very call. For the same reason the last thread that could receive must not
//! begin to wait. When few threads are left, they are reserved for hosts whose waiting calls hold few, and the
//! last of these for networks whose waiting calls hold few. Threads that rest for ten seconds end.

mod budget;
mod carrier;
mod held;
mod jobs;
mod pool;
#[cfg(test)]
mod tests;
mod usual;
mod waits;
mod watch;

mod sync {
    //! The atomic types that `pool` and `budget` use. tests/workers.rs replaces them by loom's.
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
}

pub use budget::{MayNotWait, Quota, Threads};
pub use carrier::{Carrier, replace, run, start};
pub use jobs::{Job, Jobs, Refused};
pub use pool::{Pace, Plan, Pool, Replacement, Rested, Worker};
pub use usual::UsualTime;
pub use waits::{InCall, WaitWatch};
pub use watch::{Found, Habit, Watch};
