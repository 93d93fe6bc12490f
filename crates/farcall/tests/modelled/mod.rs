//! Helpers for the tests under loom: sequentially consistent accesses, and an event that stays set until it
//! is taken.
#![allow(dead_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::task::Wake;

use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Condvar, Mutex};

/// Where a compiler puts the fences of sequentially consistent accesses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fences {
    /// Before each access, as on POWER.
    Before,
    /// Behind each access that writes, as on x86.
    Behind,
}

std::thread_local! {
    // All of loom's threads run on this thread.
    static FENCES: Cell<Fences> = const { Cell::new(Fences::Before) };
}

/// Runs a test in every interleaving with at most `preemptions` preemptions. Loom treats a sequentially
/// consistent access as one that acquires and releases, and knows only fences that are stronger. The standard
/// allows both ways to make an access of fences, and only one of them shows that a load, or a store, was made
/// weaker. So there are two rounds.
pub fn check(preemptions: usize, test: impl Fn() + Send + Sync + Copy + 'static) {
    for fences in [Fences::Before, Fences::Behind] {
        FENCES.set(fences);
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.max_branches = 10_000;
        model.check(test);
    }
}

fn before(ordering: Ordering) {
    if ordering == Ordering::SeqCst && FENCES.get() == Fences::Before {
        fence(Ordering::SeqCst);
    }
}

fn behind(ordering: Ordering) {
    if ordering == Ordering::SeqCst && FENCES.get() == Fences::Behind {
        fence(Ordering::SeqCst);
    }
}

macro_rules! atomics {
    ($($name:ident: $value:ty),*) => {$(
        /// An atomic of loom's with the fences that make its accesses sequentially consistent.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            pub fn load(&self, ordering: Ordering) -> $value {
                before(ordering);
                self.0.load(ordering)
            }

            pub fn store(&self, value: $value, ordering: Ordering) {
                before(ordering);
                self.0.store(value, ordering);
                behind(ordering);
            }

            pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                before(ordering);
                let former = self.0.swap(value, ordering);
                behind(ordering);
                former
            }
        }
    )*};
}

atomics!(AtomicBool: bool, AtomicU64: u64);

impl AtomicU64 {
    pub fn fetch_min(&self, value: u64, ordering: Ordering) -> u64 {
        before(ordering);
        let former = self.0.fetch_min(value, ordering);
        behind(ordering);
        former
    }
}

/// An event that several threads set and one waits for. If it is never set, loom reports a deadlock.
#[derive(Debug, Default)]
pub struct Event {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    pub fn set(&self) {
        *self.set.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Waits until the event is set, and clears it.
    pub fn wait(&self) {
        let mut set = self.set.lock().unwrap();
        while !*set {
            set = self.changed.wait(set).unwrap();
        }
        *set = false;
    }

    /// Clears the event, and returns whether it was set.
    pub fn take(&self) -> bool {
        std::mem::take(&mut *self.set.lock().unwrap())
    }
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.set();
    }
}
