//! The entries that the running program keeps published in registry files.
//!
//! An entry names its owner by process number and start time. Both stay the same when a process executes
//! another program (execve(2)). So a registry file can have an entry that an earlier program of this process
//! published. The running program does not serve that entry, and may publish its name again. To distinguish
//! its own entries from such entries, the running program records here each entry that it publishes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::table::Held;
use crate::{Entry, Ownership};
use farcall_base::lock;

/// Identifies a published entry: its name, the export's identifier, and the revision.
type Mark = (String, u64, u64);

/// The ownerships of the running program's registrations with each mark. Several registrations have the same
/// mark only if they are in different directories.
static OWN: Mutex<BTreeMap<Mark, Vec<Ownership>>> = Mutex::new(BTreeMap::new());

/// Records that the running program keeps an entry published, until this value is dropped.
pub(crate) struct Own(Mark, Ownership);

impl Own {
    pub(crate) fn new(entry: &Entry, revision: u64) -> Self {
        let mark = mark(entry, revision);
        let ownership = Ownership::lasting(revision);
        lock(&OWN).entry(mark.clone()).or_default().push(ownership.clone());
        Self(mark, ownership)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.0.2
    }

    /// Returns the ownership of the name, which lasts until it is ended.
    pub(crate) fn ownership(&self) -> &Ownership {
        &self.1
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut own = lock(&OWN);
        let Some(ownerships) = own.get_mut(&self.0) else { return };
        ownerships.retain(|ownership| !ownership.is(&self.1));
        if ownerships.is_empty() {
            own.remove(&self.0);
        }
    }
}

/// Returns whether the running program keeps the entry published.
pub(crate) fn has(held: &Held) -> bool {
    lock(&OWN).contains_key(&mark(&held.entry, held.revision))
}

/// Ends the ownership of the entry, if the running program keeps it published.
pub(crate) fn end(held: &Held) {
    if let Some(ownerships) = lock(&OWN).get(&mark(&held.entry, held.revision)) {
        ownerships.iter().for_each(Ownership::end);
    }
}

fn mark(entry: &Entry, revision: u64) -> Mark {
    (entry.name(), entry.export, revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_recorded_until_its_last_registration_is_dropped() {
        let address = "udp://127.0.0.1:7000".parse().unwrap();
        let entry = Entry::new("Own".parse().unwrap(), "ebbets".parse().unwrap(), address, 7);
        let held = Held { entry: entry.clone(), revision: 5 };
        assert!(!has(&held));
        // The entry is published in two directories, and both registrations have the same mark.
        let (first, second) = (Own::new(&entry, 5), Own::new(&entry, 5));
        assert_eq!((first.revision(), has(&held)), (5, true));
        assert!(!has(&Held { revision: 6, ..held.clone() }));
        assert!(!has(&Held { entry: Entry { export: 8, ..entry.clone() }, ..held.clone() }));
        drop(first);
        assert!(has(&held));
        drop(second);
        assert!(!has(&held));
    }
}
