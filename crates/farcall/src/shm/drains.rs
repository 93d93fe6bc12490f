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
    /// Whether the server takes no more calls of any export.
    all: bool,
    callers: Vec<Weak<dyn Told>>,
}

impl Drains {
    /// Adds a caller, and tells it if the server takes no more calls. (A caller that comes later cannot know
    /// an export that has drained alone.)
    pub(super) fn add(&self, caller: Arc<dyn Told>) {
        let mut told = lock(&self.0);
        if told.all {
            caller.tell_drained(None);
        }
        told.callers.retain(|caller| caller.strong_count() > 0);
        told.callers.push(Arc::downgrade(&caller));
    }

    /// Tells every caller that the server takes no more calls of an export, or of any.
    pub(super) fn tell(&self, export: Option<u64>) {
        let mut told = lock(&self.0);
        told.all |= export.is_none();
        told.callers.iter().filter_map(Weak::upgrade).for_each(|caller| caller.tell_drained(export));
    }
}
