//! The code by which threads wait for the ends of calls. It is the same for every socket, connection and ring
//! by which calls go.
//!
//! ```text
//! lead          which thread receives: leader and followers
//! timers        how long the leader sleeps
//! flush_signal  tells the service thread that calls are queued
//! ready         which of a thread's calls may have ended
//! point         where a thread waits for any of several calls
//! ```
//!
//! Each socket, connection or ring has an instance of its own. The tool loom tries each part in every
//! interleaving (tests/waiting).

mod flush_signal;
mod lead;
mod point;
mod ready;
mod timers;

mod sync {
    //! The atomic types that this code uses. In tests/waiting loom's types replace them.
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
    pub(super) use std::sync::{Mutex, MutexGuard};

    pub(super) use crate::env::Time;

    /// Returns a number that no other living thread has, and that is not 0.
    pub(super) fn this_thread() -> usize {
        thread_local! {
            static HERE: u8 = const { 0 };
        }
        HERE.with(|here| std::ptr::from_ref(here).addr())
    }
}

pub use flush_signal::{Duty, FlushSignal};
pub use lead::{Lead, Parker};
pub use point::{Parking, SteppedAway, WaitPoint};
pub use ready::{Interrupt, ReadyList, ReadyToken};
pub use timers::{NEVER, Timers};

impl Parker for dyn crate::env::Event {
    fn wake(&self) {
        self.set();
    }
}
