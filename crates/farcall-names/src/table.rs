//! The table in which a registry keeps its entries. Each change gives the table a new version.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::{Entry, Label, Owner};

/// The greatest version that a file may have, so that its successors are greater for ever.
pub(crate) const MAX_VERSION: u64 = u64::MAX / 2;

/// The entries of a registry, by type and instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The number of changes.
    version: u64,
    held: BTreeMap<Label, BTreeMap<Label, Held>>,
    /// How many entries there are.
    len: usize,
    /// The names of each owner's entries, so that the entries of a dead owner are found without a search.
    owned: BTreeMap<Owner, BTreeSet<(Label, Label)>>,
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

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the entries with their revisions, by ascending name.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Held> {
        self.held.values().flat_map(BTreeMap::values)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.held().map(|held| &held.entry)
    }

    /// Returns the entries of a type, by ascending instance.
    pub(crate) fn of_type(&self, type_name: &Label) -> impl Iterator<Item = &Entry> {
        self.held.get(type_name).into_iter().flat_map(BTreeMap::values).map(|held| &held.entry)
    }

    pub(crate) fn find(&self, type_name: &Label, instance: &Label) -> Option<&Entry> {
        self.get(type_name, instance).map(|held| &held.entry)
    }

    pub(crate) fn get(&self, type_name: &Label, instance: &Label) -> Option<&Held> {
        self.held.get(type_name)?.get(instance)
    }

    /// Returns the owners of entries, at most so many: first those after this one, then the others.
    pub(crate) fn owners_after(&self, owner: Option<Owner>, most: usize) -> Vec<Owner> {
        let Some(owner) = owner else { return self.owned.keys().take(most).copied().collect() };
        let after = self.owned.range((Bound::Excluded(owner), Bound::Unbounded));
        after.chain(self.owned.range(..=owner)).map(|(owner, _)| *owner).take(most).collect()
    }

    /// Returns the names of an owner's entries.
    pub(crate) fn names_of(&self, owner: &Owner) -> Vec<(Label, Label)> {
        self.owned.get(owner).into_iter().flatten().cloned().collect()
    }

    /// Adds an entry with its revision, as it was read from a file. Returns false if the table already had an
    /// entry of the same name.
    pub(crate) fn restore(&mut self, held: Held) -> bool {
        self.insert(held).is_none()
    }

    /// Adds or replaces an entry with its revision, as a change of a file says.
    pub(crate) fn replay(&mut self, held: Held) -> Option<Held> {
        self.changed();
        self.insert(held)
    }

    /// Adds or replaces an entry. Returns its new revision.
    pub(crate) fn put(&mut self, entry: Entry) -> u64 {
        let revision = self.changed();
        self.insert(Held { entry, revision });
        revision
    }

    /// Replaces the entry of this name if it still has this revision, which stays. Returns whether it was
    /// there.
    pub(crate) fn renew(&mut self, entry: &Entry, revision: u64) -> bool {
        let is_there =
            self.get(&entry.type_name, &entry.instance).is_some_and(|held| held.revision == revision);
        if is_there {
            self.changed();
            self.insert(Held { entry: entry.clone(), revision });
        }
        is_there
    }

    pub(crate) fn remove(&mut self, type_name: &Label, instance: &Label) -> Option<Held> {
        let of_type = self.held.get_mut(type_name)?;
        let removed = of_type.remove(instance)?;
        if of_type.is_empty() {
            self.held.remove(type_name);
        }
        self.len -= 1;
        self.disown(&removed.entry);
        self.changed();
        Some(removed)
    }

    fn insert(&mut self, held: Held) -> Option<Held> {
        let (type_name, instance) = (held.entry.type_name.clone(), held.entry.instance.clone());
        let owner = held.entry.owner;
        let former = self.held.entry(type_name.clone()).or_default().insert(instance.clone(), held);
        match &former {
            Some(former) => self.disown(&former.entry),
            None => self.len += 1,
        }
        self.owned.entry(owner).or_default().insert((type_name, instance));
        former
    }

    fn disown(&mut self, entry: &Entry) {
        let Some(names) = self.owned.get_mut(&entry.owner) else { return };
        names.remove(&(entry.type_name.clone(), entry.instance.clone()));
        if names.is_empty() {
            self.owned.remove(&entry.owner);
        }
    }

    fn changed(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}
