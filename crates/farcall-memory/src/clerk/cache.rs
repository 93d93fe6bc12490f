//! A clerk's cache of entries that it has read at other clerks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::entry::Entry;

/// Entries of other clerks, by clerk and name.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<(SocketAddr, String), Known>);

/// An entry, and whether a cache has found the entry outdated in the meantime.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) entry: Entry,
    pub(super) purged: Arc<AtomicBool>,
}

/// The most entries in the cache. A dropped entry is looked up again when it is needed.
const MAX_ENTRIES: usize = 4096;

impl Known {
    /// Wraps an entry with a fresh flag, which no cache has set.
    pub(super) fn valid(entry: Entry) -> Known {
        Known { entry, purged: Arc::default() }
    }
}

impl Cache {
    pub(super) fn get(&self, home: SocketAddr, name: &str) -> Option<Known> {
        self.0.get(&(home, name.to_owned())).cloned()
    }

    /// Returns an entry with this name, of any clerk.
    pub(super) fn find(&self, name: &str) -> Option<(SocketAddr, Known)> {
        let found = self.0.iter().find(|((_, known), _)| known == name);
        found.map(|((home, _), known)| (*home, known.clone()))
    }

    /// Adds an entry of the clerk at `home`. Purges the former entry of the same name if it differs.
    pub(super) fn learn(&mut self, home: SocketAddr, entry: Entry) -> Known {
        let key = (home, entry.name.clone());
        if let Some(known) = self.0.get(&key)
            && known.entry == entry
        {
            return known.clone();
        }
        if self.0.len() >= MAX_ENTRIES && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        let known = Known::valid(entry);
        if let Some(former) = self.0.insert(key, known.clone()) {
            former.purged.store(true, Ordering::Release);
        }
        known
    }

    /// Removes an entry. `purged` says that the entry is known to be outdated.
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
