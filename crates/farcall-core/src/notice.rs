//! How a procedure learns that nobody waits for its call any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::{CallKey, Time};

/// One task or thread that is to be told when a call is given up.
#[derive(Debug)]
pub struct Notice {
    told: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// When the call is given up though nobody says so.
    deadline: Option<Time>,
}

/// The notices that are told when calls of a server are given up. A call without a notice costs nothing here.
pub struct Notices {
    /// How many there are, so that whoever gives a call up takes no lock if there are none.
    count: AtomicUsize,
    /// The earliest deadline of all, in nanoseconds, or an earlier time.
    earliest: AtomicU64,
    calls: Mutex<HashMap<CallKey, Vec<Arc<Notice>>>>,
}

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The least time between two looks at all deadlines.
const GRAIN: Duration = Duration::from_millis(1);

impl Notice {
    pub fn new(deadline: Option<Time>) -> Arc<Notice> {
        Arc::new(Notice { told: AtomicBool::new(false), waker: Mutex::default(), deadline })
    }

    /// Whether the call was given up.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::SeqCst)
    }

    /// Has `waker` woken when the call is given up, instead of who was to be: look once more after this.
    pub fn watch(&self, waker: &Waker) {
        // Wakers are the user's: they are cloned and dropped without the lock.
        let waker = Some(waker.clone());
        let former = std::mem::replace(&mut *lock(&self.waker), waker);
        drop(former);
    }

    /// The call is given up. Whoever is to be woken is the user's.
    #[must_use]
    pub fn tell(&self) -> Option<Waker> {
        self.told.store(true, Ordering::SeqCst);
        lock(&self.waker).take()
    }
}

impl Default for Notices {
    fn default() -> Notices {
        Notices { count: AtomicUsize::new(0), earliest: AtomicU64::new(NEVER), calls: Mutex::default() }
    }
}

impl Notices {
    /// Registers a notice that is told when this call is given up. The caller has to check afterwards whether
    /// the call was given up before. Returns whether the call's deadline is earlier than all others here.
    #[must_use]
    pub fn add(&self, key: CallKey, notice: &Arc<Notice>) -> bool {
        let mut calls = lock(&self.calls);
        calls.entry(key).or_default().push(notice.clone());
        self.count.fetch_add(1, Ordering::SeqCst);
        let deadline = notice.deadline.map_or(NEVER, Time::as_nanos);
        deadline < self.earliest.fetch_min(deadline, Ordering::SeqCst)
    }

    /// Removes a notice that [`add`](Notices::add) registered.
    pub fn remove(&self, key: CallKey, notice: &Arc<Notice>) {
        let mut calls = lock(&self.calls);
        let Some(of_call) = calls.get_mut(&key) else { return };
        if let Some(at) = of_call.iter().position(|other| Arc::ptr_eq(other, notice)) {
            of_call.swap_remove(at);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        if of_call.is_empty() {
            calls.remove(&key);
        }
    }

    /// A call was given up: whoever is to be woken.
    pub fn take(&self, key: CallKey) -> Vec<Waker> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let told = lock(&self.calls).remove(&key).unwrap_or_default();
        self.count.fetch_sub(told.len(), Ordering::SeqCst);
        told.iter().filter_map(|notice| notice.tell()).collect()
    }

    /// When the next deadline passes, at the earliest.
    pub fn next(&self) -> Option<Time> {
        match self.earliest.load(Ordering::SeqCst) {
            NEVER => None,
            earliest => Some(Time::from_nanos(earliest)),
        }
    }

    /// Deadlines have passed: whoever is to be woken.
    pub fn take_late(&self, now: Time) -> Vec<Waker> {
        let late = |notice: &mut Arc<Notice>| notice.deadline.is_some_and(|deadline| deadline <= now);
        let mut told = Vec::new();
        let mut calls = lock(&self.calls);
        calls.retain(|_, of_call| {
            told.extend(of_call.extract_if(.., late));
            !of_call.is_empty()
        });
        let earliest = calls.values().flatten().filter_map(|notice| notice.deadline).min();
        let next = earliest.map_or(NEVER, |earliest| earliest.max(now + GRAIN).as_nanos());
        self.earliest.store(next, Ordering::SeqCst);
        self.count.fetch_sub(told.len(), Ordering::SeqCst);
        drop(calls);
        told.iter().filter_map(|notice| notice.tell()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
