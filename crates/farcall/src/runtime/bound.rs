//! Holds the server to which an importer is bound. Every call reads it. It changes when the binding breaks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::bind::Target;
use crate::lock;

/// The present binding of a name, if there is one.
///
/// Calls read the first [`LOCK_FREE_BINDINGS`] bindings of the name without a lock. These stay in memory
/// until the importer is dropped. Calls lock the state once the name has been bound more often.
#[derive(Default)]
pub(super) struct Binding {
    places: [OnceLock<Arc<Target>>; LOCK_FREE_BINDINGS],
    /// One more than the index of the present binding in `places`, or 0 if the binding is not there.
    current: AtomicUsize,
    state: Mutex<State>,
}

/// The number of a name's first bindings that calls read without a lock.
const LOCK_FREE_BINDINGS: usize = 8;

#[derive(Default)]
struct State {
    /// The number of places that have been filled.
    used: usize,
    target: Option<Arc<Target>>,
    /// The export that was bound last, or that was asked for and not found.
    met: Option<u64>,
}

impl Binding {
    /// Returns the binding without a lock, if there is one and it is in a place.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<&Arc<Target>> {
        let place = self.current.load(Ordering::Acquire).wrapping_sub(1);
        self.places.get(place)?.get()
    }

    /// Returns the binding, if there is one.
    pub(super) fn get(&self) -> Option<Arc<Target>> {
        lock(&self.state).target.clone()
    }

    /// Sets the binding, unless another thread has set one meanwhile. Returns the present binding.
    pub(super) fn set(&self, target: Arc<Target>) -> Arc<Target> {
        let mut state = lock(&self.state);
        if let Some(target) = &state.target {
            return target.clone();
        }
        state.target = Some(target.clone());
        state.met = Some(target.export);
        if let Some(place) = self.places.get(state.used) {
            state.used += 1;
            // Only this line fills places, each of them once.
            let _ = place.set(target.clone());
            self.current.store(state.used, Ordering::Release);
        }
        target
    }

    /// Returns whether an export was bound last, or was asked for in vain.
    pub(super) fn has_met(&self, export: u64) -> bool {
        lock(&self.state).met == Some(export)
    }

    /// Notes that an export was asked for in vain.
    pub(super) fn note_met(&self, export: u64) {
        lock(&self.state).met = Some(export);
    }

    /// Forgets a binding that broke.
    pub(super) fn break_off(&self, target: &Arc<Target>) {
        let mut state = lock(&self.state);
        if state.target.take_if(|bound| Arc::ptr_eq(bound, target)).is_some() {
            self.current.store(0, Ordering::Release);
        }
    }
}
