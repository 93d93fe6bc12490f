//! The waiting engine in every interleaving that loom finds.
//!
//! It compiles the library's files with loom's types.
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

    /// Given by the test.
    pub(super) fn this_thread() -> usize {
        NUMBER.with(std::cell::Cell::get)
    }

    pub(super) fn be_thread(number: usize) {
        NUMBER.with(|place| place.set(number));
    }
}
