//! What an importer is bound to: read by every call, changed when a binding breaks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::bind::Target;
use crate::lock;

/// A binding, or none. The first ones are read without a lock, which each call would take: they stay
/// where they are put. A name that was bound more often costs its callers a lock.
#[derive(Default)]
pub(super) struct Binding {
    places: [OnceLock<Arc<Target>>; PLACES],
    /// One more than the place of the binding; 0 when it is not in a place.
    current: AtomicUsize,
    state: Mutex<State>,
}

const PLACES: usize = 8;

#[derive(Default)]
struct State {
    /// Places that were used.
    used: usize,
    target: Option<Arc<Target>>,
}

impl Binding {
    /// The binding, if there is one and it is among the first.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<&Arc<Target>> {
        let place = self.current.load(Ordering::Acquire).wrapping_sub(1);
        self.places.get(place)?.get()
    }

    /// The binding, if there is one.
    pub(super) fn get(&self) -> Option<Arc<Target>> {
        lock(&self.state).target.clone()
    }

    /// Binds, unless another thread has done so meanwhile; the binding.
    pub(super) fn set(&self, target: Arc<Target>) -> Arc<Target> {
        let mut state = lock(&self.state);
        if let Some(target) = &state.target {
            return target.clone();
        }
        state.target = Some(target.clone());
        if let Some(place) = self.places.get(state.used) {
            state.used += 1;
            // Each is filled once, here.
            let _ = place.set(target.clone());
            self.current.store(state.used, Ordering::Release);
        }
        target
    }

    /// Forgets a binding that broke.
    pub(super) fn break_off(&self, target: &Arc<Target>) {
        let mut state = lock(&self.state);
        if state.target.take_if(|bound| Arc::ptr_eq(bound, target)).is_some() {
            self.current.store(0, Ordering::Release);
        }
    }
}
