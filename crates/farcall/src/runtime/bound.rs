//! Holds the server to which an importer is bound. Every call reads it. It changes when the binding breaks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use farcall_names::Entry;

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
    /// The server as the registry listed it last, if this is a member of a group that follows the registry.
    listed: Option<Box<Listed>>,
}

/// A server that the registry has listed.
struct Listed {
    entry: Entry,
    /// Whether its export was bound, or was asked for in vain.
    is_met: bool,
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
        state.meet(target.export);
        if let Some(place) = self.places.get(state.used) {
            state.used += 1;
            // Only this line fills places, each of them once.
            let _ = place.set(target.clone());
            self.current.store(state.used, Ordering::Release);
        }
        target
    }

    /// Notes the server as the registry lists it.
    pub(super) fn note_listed(&self, entry: &Entry) {
        let state = &mut *lock(&self.state);
        if state.listed.as_ref().is_some_and(|listed| listed.entry == *entry) {
            return;
        }
        let is_bound = state.target.as_ref().is_some_and(|target| target.export == entry.export);
        let former = state.listed.as_ref().filter(|listed| listed.entry.export == entry.export);
        let is_met = is_bound || former.is_some_and(|listed| listed.is_met);
        state.listed = Some(Box::new(Listed { entry: entry.clone(), is_met }));
    }

    /// Returns whether the registry has listed a server to which nobody has tried to bind so far.
    pub(super) fn has_unmet(&self) -> bool {
        lock(&self.state).unmet().is_some()
    }

    /// Returns the server as the registry listed it last, if nobody has tried to bind to it so far: it was
    /// started just before.
    pub(super) fn unmet(&self) -> Option<Entry> {
        lock(&self.state).unmet().cloned()
    }

    /// Returns the server as the registry listed it last, if this is a member of a group that follows the
    /// registry.
    pub(super) fn listed(&self) -> Option<Entry> {
        lock(&self.state).listed.as_ref().map(|listed| listed.entry.clone())
    }

    /// Notes that an export was asked for in vain.
    pub(super) fn note_met(&self, export: u64) {
        lock(&self.state).meet(export);
    }

    /// Forgets a binding that broke.
    pub(super) fn break_off(&self, target: &Arc<Target>) {
        let mut state = lock(&self.state);
        if state.target.take_if(|bound| Arc::ptr_eq(bound, target)).is_some() {
            self.current.store(0, Ordering::Release);
        }
    }
}

impl State {
    fn unmet(&self) -> Option<&Entry> {
        self.listed.as_ref().filter(|listed| !listed.is_met).map(|listed| &listed.entry)
    }

    fn meet(&mut self, export: u64) {
        let listed = self.listed.iter_mut().filter(|listed| listed.entry.export == export);
        listed.for_each(|listed| listed.is_met = true);
    }
}
