//! Tells callers through shared memory that the server takes no more calls, as DRAIN tells those by UDP
//! (docs/protocol.md, section 5.8). The word is in the memory, so a caller that calls nothing meanwhile finds
//! it too, even if the server's process has ended.

use std::sync::{Arc, Mutex, Weak};

use crate::lock;

/// A connection whose caller can be told of drains.
pub(super) trait Told: Send + Sync {
    /// Tells the caller that the server takes no more calls of an export, or of any. [`Drains`] calls this
    /// under its lock.
    fn tell_drained(&self, export: Option<u64>);
}

/// The callers that a server tells, and what it has told them.
#[derive(Default)]
pub(super) struct Drains(Mutex<State>);

#[derive(Default)]
struct State {
    /// The exports of which the server takes no more calls; `None` stands for all.
    drained: Vec<Option<u64>>,
    callers: Vec<Weak<dyn Told>>,
}

impl Drains {
    /// Adds a caller, and tells it what is drained already.
    pub(super) fn add(&self, caller: Arc<dyn Told>) {
        let mut told = lock(&self.0);
        told.drained.iter().for_each(|export| caller.tell_drained(*export));
        told.callers.retain(|caller| caller.strong_count() > 0);
        told.callers.push(Arc::downgrade(&caller));
    }

    /// Tells every caller that the server takes no more calls of an export, or of any.
    pub(super) fn tell(&self, export: Option<u64>) {
        let mut told = lock(&self.0);
        // A caller that comes later cannot know an export that drains alone.
        if export.is_none() {
            told.drained = vec![None];
        }
        told.callers.iter().filter_map(Weak::upgrade).for_each(|caller| caller.tell_drained(export));
    }
}
