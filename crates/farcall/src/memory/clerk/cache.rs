//! What a clerk has learnt from others: entries, by the clerk that they are from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Entry;

/// Others' segments, by their clerk and name.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<(SocketAddr, String), Known>);

/// An entry, and whether it has turned out since that it is no longer so.
#[derive(Clone)]
pub(crate) struct Known {
    pub(super) entry: Entry,
    pub(super) purged: Arc<AtomicBool>,
}

/// No more are kept: what is left out is looked up again.
const MOST: usize = 4096;

impl Known {
    /// What needs no cache.
    pub(super) fn for_sure(entry: Entry) -> Known {
        Known { entry, purged: Arc::default() }
    }
}

impl Cache {
    pub(super) fn get(&self, home: SocketAddr, name: &str) -> Option<Known> {
        self.0.get(&(home, name.to_owned())).cloned()
    }

    /// One of that name, whoever it is from.
    pub(super) fn find(&self, name: &str) -> Option<(SocketAddr, Known)> {
        let found = self.0.iter().find(|((_, known), _)| known == name);
        found.map(|((home, _), known)| (*home, known.clone()))
    }

    /// This is so, and nothing else.
    pub(super) fn learn(&mut self, home: SocketAddr, entry: Entry) -> Known {
        let key = (home, entry.name.clone());
        if let Some(known) = self.0.get(&key)
            && known.entry == entry
        {
            return known.clone();
        }
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        let known = Known::for_sure(entry);
        if let Some(former) = self.0.insert(key, known.clone()) {
            former.purged.store(true, Ordering::Release);
        }
        known
    }

    /// Forgets it: because it is no longer so, if that is known.
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
