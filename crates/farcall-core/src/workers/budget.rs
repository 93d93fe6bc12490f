//! Bounds how many threads a server has, over all its carriers, and how many of them one pool can have.
//!
//! (tests/workers.rs includes this file, and gives it loom's atomics through `super::sync`.)

use std::sync::Arc;

use super::sync::{AtomicUsize, Ordering};

/// One in this many of a server's threads is reserved for hosts whose waiting calls hold few threads.
const RESERVED_ONE_IN: usize = 8;
/// How many reserved threads the waiting calls of one host can hold: one in this many, and at least one.
const HOST_SHARE_ONE_IN: usize = 16;
/// A server with fewer threads than this, besides the one that receives, reserves none.
const MIN_THREADS_FOR_RESERVE: usize = 63;

/// The budget of threads of a server, over all its carriers. One receiving thread of each carrier is not
/// counted.
pub struct Threads {
    max: usize,
    taken: AtomicUsize,
    /// How many more threads can wait in remote calls of their own. `None` if waiting threads are part of
    /// `max`.
    max_waiting: Option<usize>,
    /// How many such threads wait.
    waiting: AtomicUsize,
}

impl Threads {
    /// Makes a budget of at most `max` threads, including one that receives.
    pub fn new(max: usize) -> Arc<Threads> {
        Threads::make(max.max(2) - 1, None)
    }

    /// Makes a budget of at most `max` threads, and at most `max_waiting` more that wait in remote calls of
    /// their own.
    pub fn besides_waiting(max: usize, max_waiting: usize) -> Arc<Threads> {
        Threads::make(max.max(1), Some(max_waiting))
    }

    fn make(max: usize, max_waiting: Option<usize>) -> Arc<Threads> {
        let [taken, waiting] = [(); 2].map(|()| AtomicUsize::new(0));
        Arc::new(Threads { max, taken, max_waiting, waiting })
    }

    /// Returns how many threads there can be, including one that receives.
    pub fn max(&self) -> usize {
        self.max.saturating_add(1)
    }

    /// Returns whether more than half of the threads are taken.
    #[inline]
    pub fn is_half_taken(&self) -> bool {
        self.left() < self.max / 2
    }

    /// Returns how many threads there can be, including those that wait and are not part of `max`.
    #[inline]
    fn allowed(&self) -> usize {
        self.max.saturating_add(self.waiting.load(Ordering::Relaxed))
    }

    /// Returns whether waiting threads are part of `max`.
    pub(super) fn counts_waiting(&self) -> bool {
        self.max_waiting.is_none()
    }

    /// Checks whether one more thread can wait, if waiting threads are not part of `max`.
    pub(super) fn may_wait(&self) -> Result<(), MayNotWait> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if self.max_waiting.is_none_or(|max| waiting < max) { Ok(()) } else { Err(MayNotWait::Enough) }
    }

    /// Counts one more waiting thread, if waiting threads are not part of `max`. Fails if `limited` and no
    /// more can wait.
    pub(super) fn begin_wait(&self, limited: bool) -> Result<(), MayNotWait> {
        let Some(max) = self.max_waiting else { return Ok(()) };
        let more = |waiting| (!limited || waiting < max).then_some(waiting + 1);
        let begun = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.map_or(Err(MayNotWait::Enough), |_| Ok(()))
    }

    pub(super) fn end_wait(&self) {
        if self.max_waiting.is_some() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self) -> bool {
        let allowed = self.allowed();
        let more = |taken| (taken < allowed).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes one thread even if there is none left.
    pub(super) fn overdraw(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn left(&self) -> usize {
        self.allowed().saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Returns how many threads are reserved for hosts whose waiting calls hold few, and how many of them the
    /// waiting calls of one host can hold.
    pub(super) fn reserve(&self) -> (usize, usize) {
        let reserve = if self.max < MIN_THREADS_FOR_RESERVE { 0 } else { self.max / RESERVED_ONE_IN };
        (reserve, (reserve / HOST_SHARE_ONE_IN).max(1))
    }
}

/// The part of a server's threads that one pool can have, besides the budget that all pools share.
pub trait Quota: Send + Sync {
    /// Takes one more thread. Returns false if there is none left.
    fn take(&self) -> bool;
    /// Takes one more thread even if there is none left.
    fn overdraw(&self);
    fn give_back(&self);
    /// Returns whether there is none left.
    fn is_taken(&self) -> bool;
}

/// Why a thread must not wait in a remote call of its own.
#[derive(Debug)]
pub enum MayNotWait {
    /// It is the last thread that could receive. The value is the greatest number of threads.
    Last(usize),
    /// As many threads as are allowed wait already.
    Enough,
}
