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

/// The lead of one socket.
pub(crate) struct Lead<S> {
    state: Mutex<State<S>>,
}

struct State<S> {
    /// The leader's seat, by its address; 0 when nobody leads.
    leader: usize,
    /// Those who follow, the one who waits longest first.
    following: VecDeque<Arc<S>>,
    /// One that leads only when nobody else would: the service thread.
    standby: Option<Arc<S>>,
}

impl<S: Seat> Lead<S> {
    pub(crate) fn new() -> Lead<S> {
        let state = State { leader: 0, following: VecDeque::new(), standby: None };
        Lead { state: Mutex::new(state) }
    }

    /// True: lead, until [`Lead::leave`]. False: wait in the seat; when woken, see whether you
    /// [lead](Lead::leads) now.
    pub(crate) fn join(&self, seat: &Arc<S>) -> bool {
        let mut state = self.lock();
        if state.leader == 0 {
            state.leader = id(seat);
            return true;
        }
        state.following.push_back(seat.clone());
        false
    }

    /// As [`Lead::join`], for the one who leads only when nobody else would.
    pub(crate) fn stand_by(&self, seat: &Arc<S>) -> bool {
        let mut state = self.lock();
        if state.leader == 0 {
            state.leader = id(seat);
            return true;
        }
        state.standby = Some(seat.clone());
        false
    }

    /// Whether the lead was passed to this seat.
    pub(crate) fn leads(&self, seat: &Arc<S>) -> bool {
        self.lock().leader == id(seat)
    }

    /// Waits no longer. Whoever leads, also one that learns of it only now, passes the lead on.
    pub(crate) fn leave(&self, seat: &Arc<S>) {
        let mut state = self.lock();
        if state.leader != id(seat) {
            state.following.retain(|follower| !Arc::ptr_eq(follower, seat));
            state.standby.take_if(|standby| Arc::ptr_eq(standby, seat));
            return;
        }
        let next = state.following.pop_front().or_else(|| state.standby.take());
        state.leader = next.as_ref().map_or(0, id);
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id<S>(seat: &Arc<S>) -> usize {
    Arc::as_ptr(seat) as usize
}
