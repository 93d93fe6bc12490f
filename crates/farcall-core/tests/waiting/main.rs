//! Runs the waiting engine under the tool loom, which tries the interleavings of its threads.
//!
//! The modules here are the library's own files. `sync` gives them loom's types in place of the standard
//! library's.
#![allow(missing_docs)]

#[path = "../../src/wait/flush_signal.rs"]
#[allow(dead_code)]
mod flush_signal;
#[path = "../../src/wait/lead.rs"]
#[allow(dead_code)]
mod lead;
#[path = "../../../farcall/tests/modelled/mod.rs"]
mod modelled;
#[path = "../../src/wait/ready.rs"]
#[allow(dead_code)]
mod ready;
#[path = "../../src/wait/timers.rs"]
#[allow(dead_code)]
mod timers;

mod flush;
mod hand_over;
mod ready_calls;
mod timer_hints;

mod sync {
    pub(super) use farcall_base::Time;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    pub(super) use crate::modelled::AtomicU64;

    loom::thread_local! {
        static NUMBER: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    /// Returns the number that the test has given this thread by `be_thread`.
    pub(super) fn this_thread() -> usize {
        NUMBER.with(std::cell::Cell::get)
    }

    /// Gives this thread its number.
    pub(super) fn be_thread(number: usize) {
        NUMBER.with(|place| place.set(number));
    }
}
