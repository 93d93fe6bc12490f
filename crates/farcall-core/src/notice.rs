//! Notices: they wake a procedure, or the task that executes it, when its call is given up.
//!
//! A call is given up when its caller cancels it or its deadline passes. [`Cancelled`](crate::Cancelled) and
//! the tasks of asynchronous servers register notices. The server and its watchdog take the notices when
//! calls are given up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::{CallKey, Time, lock};

/// Wakes one task or thread when a call is given up.
#[derive(Debug)]
pub struct Notice {
    /// Whether the call was given up.
    told: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// The call's deadline. When it passes, the call is given up even if its caller does not cancel it.
    deadline: Option<Time>,
}

/// The registered notices of all calls of a server. A call without a notice costs nothing here.
pub struct Notices {
    /// How many notices are registered. If there are none, no lock is needed to give up a call.
    count: AtomicUsize,
    /// A time in nanoseconds: no notice has an earlier deadline. [`NEVER`] if no notice has a deadline.
    earliest: AtomicU64,
    calls: Mutex<HashMap<CallKey, Vec<Arc<Notice>>>>,
}

/// The value of [`Notices::earliest`] if no notice has a deadline.
const NEVER: u64 = u64::MAX;

/// The shortest time between two searches for deadlines that have passed.
const MIN_SEARCH_INTERVAL: Duration = Duration::from_millis(1);

impl Notice {
    pub fn new(deadline: Option<Time>) -> Arc<Notice> {
        Arc::new(Notice { told: AtomicBool::new(false), waker: Mutex::default(), deadline })
    }

    /// Returns whether the call was given up.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// Sets the waker to wake when the call is given up. It replaces an earlier waker. Check
    /// [`Notice::is_told`] after this, because the call may have been given up before.
    pub fn watch(&self, waker: &Waker) {
        // A waker is the user's code, so it is cloned and dropped without the lock.
        let waker = Some(waker.clone());
        let former = std::mem::replace(&mut *lock(&self.waker), waker);
        drop(former);
    }

    /// Records that the call is given up, and returns the waker. The waker is the user's code, so wake it
    /// through [`guard`](crate::guard), without a lock.
    #[must_use]
    pub fn tell(&self) -> Option<Waker> {
        self.told.store(true, Ordering::Release);
        lock(&self.waker).take()
    }
}

impl Default for Notices {
    fn default() -> Notices {
        Notices { count: AtomicUsize::new(0), earliest: AtomicU64::new(NEVER), calls: Mutex::default() }
    }
}

impl Notices {
    /// Registers a notice of this call. Check after this whether the call was given up before. Returns
    /// whether the notice's deadline is the earliest, so that the watchdog must look sooner.
    #[must_use]
    pub fn add(&self, key: CallKey, notice: &Arc<Notice>) -> bool {
        let mut calls = lock(&self.calls);
        // Most calls have one notice.
        calls.entry(key).or_insert_with(|| Vec::with_capacity(1)).push(notice.clone());
        self.count.fetch_add(1, Ordering::AcqRel);
        let deadline = notice.deadline.map_or(NEVER, Time::as_nanos);
        deadline < self.earliest.fetch_min(deadline, Ordering::AcqRel)
    }

    /// Removes a notice that [`add`](Notices::add) registered.
    pub fn remove(&self, key: CallKey, notice: &Arc<Notice>) {
        let mut calls = lock(&self.calls);
        let Some(of_call) = calls.get_mut(&key) else { return };
        if let Some(at) = of_call.iter().position(|other| Arc::ptr_eq(other, notice)) {
            of_call.swap_remove(at);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        if of_call.is_empty() {
            calls.remove(&key);
        }
    }

    /// Takes the notices of a call that was given up, and returns their wakers.
    pub fn take(&self, key: CallKey) -> Vec<Waker> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let told = lock(&self.calls).remove(&key).unwrap_or_default();
        self.count.fetch_sub(told.len(), Ordering::AcqRel);
        told.iter().filter_map(|notice| notice.tell()).collect()
    }

    /// Returns a time before which no deadline passes, or `None` if no notice has a deadline.
    pub fn next(&self) -> Option<Time> {
        match self.earliest.load(Ordering::Acquire) {
            NEVER => None,
            earliest => Some(Time::from_nanos(earliest)),
        }
    }

    /// Takes the notices whose deadlines have passed, and returns their wakers, in the order of the calls'
    /// keys: that of a map of random hashes would let no simulation be repeated.
    pub fn take_late(&self, now: Time) -> Vec<Waker> {
        let late = |notice: &mut Arc<Notice>| notice.deadline.is_some_and(|deadline| deadline <= now);
        let mut told = Vec::new();
        let mut calls = lock(&self.calls);
        calls.retain(|key, of_call| {
            told.extend(of_call.extract_if(.., late).map(|notice| (*key, notice)));
            !of_call.is_empty()
        });
        let earliest = calls.values().flatten().filter_map(|notice| notice.deadline).min();
        let next = earliest.map_or(NEVER, |earliest| earliest.max(now + MIN_SEARCH_INTERVAL).as_nanos());
        self.earliest.store(next, Ordering::Release);
        self.count.fetch_sub(told.len(), Ordering::AcqRel);
        drop(calls);
        told.sort_by_key(|(key, _)| *key);
        told.iter().filter_map(|(_, notice)| notice.tell()).collect()
    }
}
