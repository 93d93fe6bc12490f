//! What the exporters of a clerk's own machine say of their segments. The clerk, the machine's name service
//! for segments, believes only the registry of names and the exporters.
//!
//! A process that asks the clerk to add or to delete a name may be anybody's on this machine. So the clerk
//! adds a segment only if the registry lists it, at the address where the registry lists it, and with the
//! facts that the exporter itself gives. It deletes a segment only if the registry does not list it any more,
//! or its exporter says that the generation is over.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::entry::{Entry, check_name};
use super::{Core, Fault, Place, listings, own_memory, table};
use crate::access::{Access, AccessClient, Facts, Refused, TYPE};
use farcall_core::stub::Interface as _;
use farcall_core::{CallFailed, Error, Kind, Pending, Result, lock};

/// How long the clerk waits for an exporter that does not answer.
const EXPORTER_PATIENCE: Duration = Duration::from_secs(1);

/// How many exporters the clerk asks at the same time.
const BATCH_EXPORTERS: usize = 64;

/// The answer of an exporter.
enum Said {
    Exported(Facts),
    /// The segment was revoked, or its export has ended.
    NotExported,
    /// Nothing came, so the segment may be exported.
    Nothing,
}

impl Core {
    /// Adds a segment that another process says it exports.
    pub(super) fn add_verified(&self, claimed: &Entry) -> Result<(), Fault> {
        check_name(&claimed.name)?;
        let Entry { name, address, .. } = claimed;
        if listings::is_listed(&**self.runtime.registry(), claimed, self.address.ip()) != Some(true) {
            let why = format!("the registry of names does not list the segment {name:?} at {address}");
            return Err(Fault::Disbelieved(why).into());
        }
        match said(self.start_asking(*address, name)) {
            Said::Exported(facts) => {
                let mut entry = described(name, *address, &facts);
                // A process of the same user may have more rights than every process has.
                entry.rights &= claimed.rights;
                self.add_entry(&entry)
            }
            Said::NotExported => {
                let why = format!("the exporter at {address} does not export the segment {name:?}");
                Err(Fault::Disbelieved(why).into())
            }
            Said::Nothing => {
                Err(Fault::Silent(format!("the exporter of {name:?} at {address} does not answer")).into())
            }
        }
    }

    /// Deletes a segment of that generation, which another process says is over, if it is. Returns whether it
    /// was deleted.
    pub(super) fn delete_verified(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        let Some(entry) = self.with_table(|table| table::find(table, name)).map_err(own_memory)?.0 else {
            return Ok(false);
        };
        if entry.generation != generation {
            return Ok(false);
        }
        if self.is_listed(&entry) {
            match said(self.start_asking(entry.address, name)) {
                Said::Exported(facts) if facts.generation == generation => return Ok(false),
                // The next refresh deletes the name if the exporter is gone.
                Said::Nothing => return Ok(false),
                Said::Exported(_) | Said::NotExported => {}
            }
        }
        self.delete_entry(name, generation)
    }

    /// Makes the clerk's table agree with the registry and with the exporters. A new clerk fills its table in
    /// this way, and each refresh mends what could not be known before: an exporter that did not answer in
    /// time is asked again.
    ///
    /// A clerk that serves one runtime alone learns of no further segments in this way. Otherwise each of many
    /// such clerks would ask all exporters.
    pub(super) fn reconcile(&self) {
        // The entries are read before the registry: an entry that is added meanwhile was registered before it
        // was added.
        let entries = self.with_table(|table| table::entries(table)).unwrap_or_default();
        let Some(mut exported) = listings::exported(&*self.runtime, self.address.ip()) else { return };
        for entry in &entries {
            if !exported.listed.contains(&(entry.name.clone(), entry.address)) {
                let _ = self.delete_entry(&entry.name, entry.generation);
            }
        }
        if self.place == Place::Private {
            let known: BTreeSet<&str> = entries.iter().map(Entry::name).collect();
            exported.segments.retain(|(_, name)| known.contains(&**name));
        }
        for some in exported.segments.chunks(BATCH_EXPORTERS) {
            // All exporters are asked before the first answer is awaited.
            let asked: Vec<_> = some
                .iter()
                .map(|(address, name)| {
                    let known =
                        self.with_table(|table| table::find(table, name)).ok().and_then(|(known, _)| known);
                    (*address, name, known, self.start_asking(*address, name))
                })
                .collect();
            for (address, name, known, facts) in asked {
                self.reconcile_one(address, name, known, said(facts));
            }
        }
    }

    /// Enters what an exporter has said, unless its entry has changed from `known` since it was asked.
    fn reconcile_one(&self, address: SocketAddr, name: &str, known: Option<Entry>, said: Said) {
        match (said, known) {
            (Said::Exported(facts), known) => {
                let said = described(name, address, &facts);
                let is_same = |known: &Entry| {
                    (known.address, known.generation, known.size) == (address, said.generation, said.size)
                };
                if !known.as_ref().is_some_and(is_same) {
                    let _ = self.replace_entry(known.as_ref(), &said);
                }
            }
            (Said::NotExported, Some(known)) => drop(self.delete_entry(name, known.generation)),
            // The exporter is asked again at the next refresh.
            (Said::Nothing, None) => self.note_entry(),
            (Said::NotExported, None) | (Said::Nothing, Some(_)) => {}
        }
    }

    /// Looks for a segment of this machine where the registry lists it: its exporter may use another clerk.
    pub(super) fn learn_here(&self, name: &str) -> Result<Option<Entry>, Fault> {
        let listed = listings::exporter_of(&*self.runtime, name, self.address.ip());
        let Some(address) = listed else { return Ok(None) };
        match said(self.start_asking(address, name)) {
            Said::Exported(facts) => {
                let entry = described(name, address, &facts);
                // The entry is true although the table may have no room for it.
                let _ = self.add_entry(&entry);
                Ok(Some(entry))
            }
            Said::NotExported => Ok(None),
            Said::Nothing => {
                Err(Fault::Silent(format!("the exporter of {name:?} at {address} does not answer")).into())
            }
        }
    }

    /// Adds an entry if the table still has `known` for its name.
    fn replace_entry(&self, known: Option<&Entry>, entry: &Entry) -> Result<(), Fault> {
        {
            let mut held = lock(&self.writing);
            let found = self.with_table(|table| table::find(table, &entry.name)).map_err(own_memory)?;
            if found.0.as_ref() != known {
                return Ok(());
            }
            self.add_or_grow(&mut held, entry)?;
        }
        self.note_entry();
        Ok(())
    }

    /// Starts to ask an exporter of this machine for a segment's facts.
    fn start_asking(&self, address: SocketAddr, name: &str) -> Option<Pending<Facts, Refused>> {
        let url = format!("udp://{address}/{TYPE}/{name}");
        let binding = self.runtime.bind_later(&url, <dyn Access>::interface()).ok()?;
        Some(AccessClient::from(binding.within(EXPORTER_PATIENCE)).start_facts())
    }
}

fn said(asked: Option<Pending<Facts, Refused>>) -> Said {
    match asked.map(Pending::wait) {
        Some(Ok(facts)) => Said::Exported(facts),
        Some(Err(Error::Declared(_))) => Said::NotExported,
        Some(Err(Error::CallFailed(why))) if is_without(&why) => Said::NotExported,
        Some(Err(Error::CallFailed(_))) | None => Said::Nothing,
    }
}

/// Returns whether a server has said that it does not have the export.
fn is_without(why: &CallFailed) -> bool {
    matches!(why.kind(), Kind::NotExported | Kind::Draining | Kind::NoSuchName | Kind::ServerRestarted)
}

fn described(name: &str, address: SocketAddr, facts: &Facts) -> Entry {
    let (generation, size, rights) = (facts.generation, facts.size, facts.rights().bits());
    Entry { name: name.to_owned(), address, generation, size, rights }
}
