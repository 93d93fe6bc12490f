//! A registry within one process.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use crate::table::Table;
use crate::{Entry, Label, Listing, Owner, Ownership, Registration, Registry, Result};
use farcall_base::lock;

/// A registry within one process: for programs that are their own servers, and for tests.
///
/// Clones share one registry. All entries belong to this process, so their owner is never dead, and a name
/// stays taken until its registration is dropped or withdrawn.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    table: Table,
    /// The ownerships of the entries that processes have published, by their revisions.
    ownerships: BTreeMap<u64, Ownership>,
}

impl Memory {
    /// Returns an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the entry of this revision if it still has this ownership. Returns whether it has.
    fn renew(&self, entry: &Entry, revision: u64, own: &Ownership) -> bool {
        let Kept { table, ownerships } = &mut *lock(&self.kept);
        ownerships.get(&revision).is_some_and(|kept| own.is(kept)) && table.renew(entry, revision)
    }

    /// Removes the entry of this name and ends its ownership. If `own` is given, only an entry with that
    /// ownership. Returns whether there was such an entry.
    fn remove(&self, type_name: &Label, instance: &Label, own: Option<&Ownership>) -> Result<bool> {
        let Kept { table, ownerships } = &mut *lock(&self.kept);
        let Some(revision) = table.get(type_name, instance).map(|held| held.revision) else {
            return Ok(false);
        };
        let is_another = |own: &Ownership| !ownerships.get(&revision).is_some_and(|kept| own.is(kept));
        if own.is_some_and(is_another) {
            return Ok(false);
        }
        ownerships.remove(&revision).iter().for_each(Ownership::end);
        Ok(table.remove(type_name, instance).is_some())
    }
}

impl Registry for Memory {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        entry.check()?;
        let (ownership, revision) = {
            let Kept { table, ownerships } = &mut *lock(&self.kept);
            if let Some(found) = table.find(&entry.type_name, &entry.instance) {
                return Err(found.taken());
            }
            let revision = table.put(entry.clone());
            let ownership = Ownership::lasting(revision);
            ownerships.insert(revision, ownership.clone());
            (ownership, revision)
        };
        let (registry, own) = (self.clone(), ownership.clone());
        let (type_name, instance) = (entry.type_name.clone(), entry.instance.clone());
        let undo = move || registry.remove(&type_name, &instance, Some(&own));
        let (registry, own) = (self.clone(), ownership.clone());
        let renew = move |entry: &Entry| Ok(registry.renew(entry, revision, &own));
        Ok(Registration::new(entry.name(), undo).renewing(renew).owning(ownership))
    }

    fn add(&self, entry: &Entry) -> Result<()> {
        entry.check()?;
        let Kept { table, .. } = &mut *lock(&self.kept);
        if let Some(found) = table.find(&entry.type_name, &entry.instance) {
            return Err(found.taken());
        }
        table.put(Entry { owner: Owner::NONE, ..entry.clone() });
        Ok(())
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        self.remove(type_name, instance, None)
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        Ok(lock(&self.kept).table.of_type(type_name).cloned().collect())
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        Ok(lock(&self.kept).table.find(type_name, instance).cloned())
    }

    fn list(&self) -> Result<Listing> {
        let Kept { table, .. } = &*lock(&self.kept);
        Ok(Listing::new(table.version(), table.entries().cloned().collect()))
    }

    fn version(&self) -> Result<u64> {
        Ok(lock(&self.kept).table.version())
    }

    /// Returns a loopback address: all clients are on this machine.
    fn routes(&self) -> Vec<IpAddr> {
        vec![Ipv4Addr::LOCALHOST.into()]
    }

    /// Returns true: nothing here waits for a network.
    fn keeps_deadlines(&self) -> bool {
        true
    }
}
