//! What a clerk has learnt from others: entries, by the clerk that they are from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::entry::Entry;

/// Others' segments, by their clerk and name.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<(SocketAddr, String), Known>);

/// An entry, and whether it has turned out since that it is no longer so.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) entry: Entry,
    pub(super) purged: Arc<AtomicBool>,
}

/// The most entries that are kept; one that is dropped is looked up again.
const MAX_KEPT: usize = 4096;

impl Known {
    /// An entry that no cache purges.
    pub(super) fn for_sure(entry: Entry) -> Known {
        Known { entry, purged: Arc::default() }
    }
}

impl Cache {
    pub(super) fn get(&self, home: SocketAddr, name: &str) -> Option<Known> {
        self.0.get(&(home, name.to_owned())).cloned()
    }

    /// An entry of that name, from any clerk.
    pub(super) fn find(&self, name: &str) -> Option<(SocketAddr, Known)> {
        let found = self.0.iter().find(|((_, known), _)| known == name);
        found.map(|((home, _), known)| (*home, known.clone()))
    }

    /// Keeps an entry, and purges a former one of its name that differs.
    pub(super) fn learn(&mut self, home: SocketAddr, entry: Entry) -> Known {
        let key = (home, entry.name.clone());
        if let Some(known) = self.0.get(&key)
            && known.entry == entry
        {
            return known.clone();
        }
        if self.0.len() >= MAX_KEPT && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        let known = Known::for_sure(entry);
        if let Some(former) = self.0.insert(key, known.clone()) {
            former.purged.store(true, Ordering::Release);
        }
        known
    }

    /// Forgets an entry. `purged` says that it is known to be no longer so.
    pub(super) fn forget(&mut self, home: SocketAddr, name: &str, purged: bool) {
        if let Some(former) = self.0.remove(&(home, name.to_owned()))
            && purged
        {
            former.purged.store(true, Ordering::Release);
        }
    }

    pub(super) fn all(&self) -> Vec<(SocketAddr, String)> {
        self.0.keys().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
