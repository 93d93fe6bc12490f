//! Helpers for the tests under loom: sequentially consistent accesses, and an event that stays set until it
//! is taken.
#![allow(dead_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::task::Wake;

use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Condvar, Mutex};

/// Where a compiler places the fences that make accesses sequentially consistent.
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

/// Runs a test in every interleaving with at most `preemptions` preemptions, once for each placement of
/// fences. Loom treats a sequentially consistent access as one that only acquires and releases, but its
/// fences are sequentially consistent. So the types of this module make such an access of a weaker one and a
/// fence. Both placements of the fence are correct. But if a load or a store of the code is weaker than it
/// must be, perhaps only one placement shows it.
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
        /// A loom atomic. Fences make its accesses with `SeqCst` sequentially consistent.
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
