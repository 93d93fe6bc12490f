//! The table in which a registry keeps its entries. Each change gives the table a new version.

use std::collections::BTreeMap;

use crate::{Entry, Label};

/// The greatest version that a file may have, so that its successors are greater for ever.
pub(crate) const MAX_VERSION: u64 = u64::MAX / 2;

/// The entries of a registry, by type and instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The number of changes.
    version: u64,
    held: BTreeMap<(Label, Label), Held>,
}

/// An entry, and its revision: the version of the table at which the entry was added. An entry that replaces
/// another has a different revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) entry: Entry,
    pub(crate) revision: u64,
}

impl Table {
    /// Returns an empty table with this version.
    pub(crate) fn at_version(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// Gives a table that has never changed this version.
    pub(crate) fn begin(&mut self, version: u64) {
        if self.version == 0 {
            self.version = version.min(MAX_VERSION);
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn held(&self) -> impl ExactSizeIterator<Item = &Held> {
        self.held.values()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.held().map(|held| &held.entry)
    }

    pub(crate) fn find(&self, type_name: &Label, instance: &Label) -> Option<&Entry> {
        self.get(type_name, instance).map(|held| &held.entry)
    }

    pub(crate) fn get(&self, type_name: &Label, instance: &Label) -> Option<&Held> {
        self.held.get(&key(type_name, instance))
    }

    /// Adds an entry with its revision, as it was read from a file. Returns false if the table already had an
    /// entry of the same name, which makes the file invalid.
    pub(crate) fn restore(&mut self, held: Held) -> bool {
        self.held.insert(key(&held.entry.type_name, &held.entry.instance), held).is_none()
    }

    /// Adds or replaces an entry. Returns its new revision.
    pub(crate) fn put(&mut self, entry: Entry) -> u64 {
        let revision = self.changed();
        self.held.insert(key(&entry.type_name, &entry.instance), Held { entry, revision });
        revision
    }

    /// Replaces the entry of this name if it still has this revision, which stays. Returns whether it was
    /// there.
    pub(crate) fn renew(&mut self, entry: &Entry, revision: u64) -> bool {
        let held = self.held.get_mut(&key(&entry.type_name, &entry.instance));
        let Some(held) = held.filter(|held| held.revision == revision) else { return false };
        held.entry = entry.clone();
        self.changed();
        true
    }

    pub(crate) fn remove(&mut self, type_name: &Label, instance: &Label) -> bool {
        let there = self.held.remove(&key(type_name, instance)).is_some();
        if there {
            self.changed();
        }
        there
    }

    /// Removes the entry of this name if it still has this revision. Returns whether it was removed.
    pub(crate) fn remove_revision(&mut self, type_name: &Label, instance: &Label, revision: u64) -> bool {
        let same = self.held.get(&key(type_name, instance)).is_some_and(|held| held.revision == revision);
        same && self.remove(type_name, instance)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        let before = self.held.len();
        self.held.retain(|_, held| keep(&held.entry));
        if self.held.len() != before {
            self.changed();
        }
    }

    fn changed(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

fn key(type_name: &Label, instance: &Label) -> (Label, Label) {
    (type_name.clone(), instance.clone())
}
