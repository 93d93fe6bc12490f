//! Holds the members that calls go to. Every call reads them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::Choice;
use crate::lock;

/// The number of a balancer's first lists that calls read without a lock. Each of them stays in memory until
/// the balancer is dropped.
const LOCK_FREE_LISTS: usize = 16;

/// The present list of members.
///
/// Calls read the first [`LOCK_FREE_LISTS`] lists without a lock. They lock the present list once the members
/// have changed more often.
pub(super) struct List {
    places: [OnceLock<Arc<[Choice]>>; LOCK_FREE_LISTS],
    /// One more than the index of the present list in `places`, or 0 if the list is not there.
    current: AtomicUsize,
    present: Mutex<Present>,
}

struct Present {
    /// The number of places that have been filled.
    used: usize,
    choices: Arc<[Choice]>,
}

impl List {
    /// Returns a list without members.
    pub fn new() -> List {
        List {
            places: Default::default(),
            current: AtomicUsize::new(0),
            present: Mutex::new(Present { used: 0, choices: Arc::new([]) }),
        }
    }

    /// Returns the present members without a lock, if their list is in a place.
    #[inline(always)]
    pub fn first(&self) -> Option<&Arc<[Choice]>> {
        let place = self.current.load(Ordering::Acquire).wrapping_sub(1);
        self.places.get(place)?.get()
    }

    /// Returns the present members.
    pub fn get(&self) -> Arc<[Choice]> {
        match self.first() {
            Some(choices) => choices.clone(),
            None => lock(&self.present).choices.clone(),
        }
    }

    pub fn set(&self, choices: Arc<[Choice]>) {
        let mut present = lock(&self.present);
        present.choices = choices.clone();
        let current = match self.places.get(present.used) {
            Some(place) => {
                present.used += 1;
                // Only this line fills places, each of them once.
                let _ = place.set(choices);
                present.used
            }
            None => 0,
        };
        self.current.store(current, Ordering::Release);
    }
}
