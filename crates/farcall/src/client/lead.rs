//! Who receives: of all threads that wait at one socket one leads, the others follow.
//!
//! Nothing here knows of sockets or calls, so that the hand-over can be tried in every interleaving
//! (tests/lead.rs includes this file and gives it loom's types through `super::sync`).
//!
//! The rule that must hold: while anyone waits, someone leads or has been woken to lead.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};

/// A place to wait in. It remembers being woken until its thread next waits.
pub(crate) trait Seat {
    fn wake(&self);
}

/// The lead of one socket. A thread that is alone takes it and gives it back by an instruction each.
pub(crate) struct Lead<S> {
    /// One of the three below. Only one who holds the mutex makes it `MANY` or, from that, anything else.
    word: AtomicUsize,
    many: Mutex<Many<S>>,
}

/// Nobody leads, and nobody waits.
const FREE: usize = 0;
/// Somebody leads, and nobody else waits.
const ALONE: usize = 1;
/// Somebody leads, or was woken to; who else waits stands in `Many`.
const MANY: usize = 2;

struct Many<S> {
    /// One to whom the lead was passed and who has not come for it yet: its seat's address, else 0.
    next: usize,
    /// Those who follow, the one who waits longest first.
    following: VecDeque<Arc<S>>,
    /// One that leads only when nobody else would: the service thread.
    standby: Option<Arc<S>>,
}

impl<S: Seat> Lead<S> {
    pub(crate) fn new() -> Lead<S> {
        let many = Many { next: 0, following: VecDeque::new(), standby: None };
        Lead { word: AtomicUsize::new(FREE), many: Mutex::new(many) }
    }

    /// True: lead, until [`Lead::pass`]. False: wait in the seat; when woken, see whether you
    /// [lead](Lead::take) now.
    #[inline]
    pub(crate) fn join(&self, seat: &Arc<S>) -> bool {
        self.begin() || self.queue(|many| many.following.push_back(seat.clone()))
    }

    /// As [`Lead::join`], for the one who leads only when nobody else would.
    pub(crate) fn stand_by(&self, seat: &Arc<S>) -> bool {
        self.begin() || self.queue(|many| many.standby = Some(seat.clone()))
    }

    /// As [`Lead::join`], but nothing has changed if somebody else leads.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        self.change(FREE, ALONE)
    }

    /// Whether the lead was passed to this seat.
    pub(crate) fn take(&self, seat: &Arc<S>) -> bool {
        let mut many = self.lock();
        let passed = many.next == id(seat);
        if passed {
            many.next = 0;
        }
        passed
    }

    /// Whether nobody leads.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == FREE
    }

    /// Of the leader: whether anyone has come to wait since it took the lead from nobody.
    pub(crate) fn is_followed(&self) -> bool {
        self.word.load(Ordering::Acquire) == MANY
    }

    /// Leads no longer.
    #[inline]
    pub(crate) fn pass(&self) {
        if !self.change(ALONE, FREE) {
            self.pass_on(self.lock());
        }
    }

    /// Follows no longer. One to whom the lead was passed meanwhile passes it on.
    #[inline(never)]
    pub(crate) fn leave(&self, seat: &Arc<S>) {
        let mut many = self.lock();
        if many.next == id(seat) {
            return self.pass_on(many);
        }
        many.following.retain(|follower| !Arc::ptr_eq(follower, seat));
        many.standby.take_if(|standby| Arc::ptr_eq(standby, seat));
    }

    #[inline]
    fn change(&self, from: usize, to: usize) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Becomes one of many, and true if it leads after all.
    #[cold]
    fn queue(&self, wait: impl FnOnce(&mut Many<S>)) -> bool {
        let mut many = self.lock();
        if self.word.swap(MANY, Ordering::AcqRel) == FREE {
            self.word.store(ALONE, Ordering::Release);
            return true;
        }
        wait(&mut many);
        false
    }

    #[cold]
    fn pass_on(&self, mut many: MutexGuard<'_, Many<S>>) {
        let next = many.following.pop_front().or_else(|| many.standby.take());
        many.next = next.as_ref().map_or(0, id);
        let Some(next) = next else { return self.word.store(FREE, Ordering::Release) };
        drop(many);
        next.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Many<S>> {
        self.many.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id<S>(seat: &Arc<S>) -> usize {
    Arc::as_ptr(seat) as usize
}
