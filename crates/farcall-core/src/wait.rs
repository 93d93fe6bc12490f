//! Where a thread waits for the ends of several calls, and how it learns which may have ended.
//!
//! [`ReadyList`] says which of a thread's calls may have ended. A [`WaitPoint`] is where the thread waits: at an
//! endpoint that it serves meanwhile, or [parked](Parking).

mod point;
mod ready;

mod sync {
    //! What `ready` is made of; loom's types replace these in tests/ready.rs.
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};

    /// A number that no other living thread has, and that is not 0.
    pub(super) fn this_thread() -> usize {
        thread_local! {
            static HERE: u8 = const { 0 };
        }
        HERE.with(|here| std::ptr::from_ref(here).addr())
    }
}

pub use point::{Parking, WaitPoint};
pub use ready::{Interrupt, ReadyList, ReadyToken};
