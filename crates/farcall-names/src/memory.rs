//! A registry within one process.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use crate::own::{self, Own};
use crate::table::Table;
use crate::{Entry, Label, Listing, Registration, Registry, Result};
use farcall_base::lock;

/// A registry within one process: for programs that are their own servers, and for tests.
///
/// Clones share one registry. All entries belong to this process, so their owner is never dead, and a name
/// stays taken until its registration is dropped or withdrawn.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    table: Arc<Mutex<Table>>,
}

impl Memory {
    /// Returns an empty registry.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Registry for Memory {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        entry.check()?;
        let own = {
            let mut table = lock(&self.table);
            if let Some(found) = table.find(&entry.type_name, &entry.instance) {
                return Err(found.taken());
            }
            Own::new(entry, table.put(entry.clone()))
        };
        let (registry, type_name, instance) = (self.clone(), entry.type_name.clone(), entry.instance.clone());
        let ownership = own.ownership().clone();
        Ok(Registration::new(entry.name(), move || {
            Ok(lock(&registry.table).remove_revision(&type_name, &instance, own.revision()))
        })
        .owning(ownership))
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        let mut table = lock(&self.table);
        table.get(type_name, instance).into_iter().for_each(own::end);
        Ok(table.remove(type_name, instance))
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        Ok(lock(&self.table).entries().filter(|e| e.type_name == *type_name).cloned().collect())
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        Ok(lock(&self.table).find(type_name, instance).cloned())
    }

    fn list(&self) -> Result<Listing> {
        let table = lock(&self.table);
        Ok(Listing::new(table.version(), table.entries().cloned().collect()))
    }

    fn version(&self) -> Result<u64> {
        Ok(lock(&self.table).version())
    }

    /// Returns a loopback address: all clients are on this machine.
    fn routes(&self) -> Vec<IpAddr> {
        vec![Ipv4Addr::LOCALHOST.into()]
    }
}
