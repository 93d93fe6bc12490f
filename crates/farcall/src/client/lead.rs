//! Who receives: of all threads that wait at one socket one leads, the others follow.
//!
//! Nothing here knows of sockets or calls, so that the hand-over can be tried in every interleaving
//! (tests/lead.rs includes this file and gives it loom's mutex through `super::sync`).
//!
//! The rule that must hold: while anyone waits, someone leads or has been woken to lead.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use super::sync::{Mutex, MutexGuard};

/// A place to wait in. It remembers being woken until its thread next waits.
pub(crate) trait Seat {
    fn wake(&self);
}

/// The lead of one socket. Whoever leads has a `T`, of which there is one.
pub(crate) struct Lead<S, T> {
    state: Mutex<State<S, T>>,
}

struct State<S, T> {
    /// Here while nobody leads, or one who was passed the lead has not come for it yet.
    baton: Option<T>,
    /// The leader's seat, by its address; 0 when nobody leads.
    leader: usize,
    /// Those who follow, the one who waits longest first.
    following: VecDeque<Arc<S>>,
    /// One that leads only when nobody else would: the service thread.
    standby: Option<Arc<S>>,
}

impl<S: Seat, T> Lead<S, T> {
    pub(crate) fn new(baton: T) -> Lead<S, T> {
        let state = State { baton: Some(baton), leader: 0, following: VecDeque::new(), standby: None };
        Lead { state: Mutex::new(state) }
    }

    /// The baton: lead, until [`Lead::pass`]. Nothing: wait in the seat; when woken, see whether
    /// you [lead](Lead::take) now.
    pub(crate) fn join(&self, seat: &Arc<S>) -> Option<T> {
        let mut state = self.lock();
        if state.leader == 0 {
            state.leader = id(seat);
            return state.baton.take();
        }
        state.following.push_back(seat.clone());
        None
    }

    /// As [`Lead::join`], for the one who leads only when nobody else would.
    pub(crate) fn stand_by(&self, seat: &Arc<S>) -> Option<T> {
        let mut state = self.lock();
        if state.leader == 0 {
            state.leader = id(seat);
            return state.baton.take();
        }
        state.standby = Some(seat.clone());
        None
    }

    /// The baton, if the lead was passed to this seat.
    pub(crate) fn take(&self, seat: &Arc<S>) -> Option<T> {
        let mut state = self.lock();
        if state.leader == id(seat) { state.baton.take() } else { None }
    }

    /// Leads no longer.
    #[inline]
    pub(crate) fn pass(&self, baton: T) {
        let mut state = self.lock();
        state.baton = Some(baton);
        Self::pass_on(state);
    }

    /// Follows no longer. One to whom the lead was passed meanwhile passes it on.
    pub(crate) fn leave(&self, seat: &Arc<S>) {
        let mut state = self.lock();
        if state.leader == id(seat) {
            return Self::pass_on(state);
        }
        state.following.retain(|follower| !Arc::ptr_eq(follower, seat));
        state.standby.take_if(|standby| Arc::ptr_eq(standby, seat));
    }

    #[inline(always)]
    fn pass_on(mut state: MutexGuard<'_, State<S, T>>) {
        let next = state.following.pop_front().or_else(|| state.standby.take());
        state.leader = next.as_ref().map_or(0, id);
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<S, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id<S>(seat: &Arc<S>) -> usize {
    Arc::as_ptr(seat) as usize
}
