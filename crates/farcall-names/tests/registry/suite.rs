//! Runs the suite for registries: on the registries in memory and in a file, and on broken ones.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use farcall_names::{Entry, File, Label, Listing, Memory, Ownership, Registration, Registry, Result, suite};

use crate::common::{Scratch, entry};

#[test]
fn the_registry_in_memory_keeps_the_rules() {
    suite::check(Memory::new);
    suite::check(|| Arc::new(Memory::new()) as Arc<dyn Registry>);
}

#[test]
fn the_registry_in_a_file_keeps_the_rules() {
    let scratch = Scratch::new();
    let mut count = 0;
    suite::check(|| {
        count += 1;
        File::at(scratch.join(&count.to_string()))
    });
}

#[test]
fn a_registry_of_this_machine_is_reached_by_loopback() {
    let scratch = Scratch::new();
    for routes in [Memory::new().routes(), File::at(scratch.join("registry")).routes()] {
        assert_eq!(routes, [std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST)]);
    }
}

#[test]
fn the_refusal_of_a_taken_name_says_who_has_it() {
    let registry = Memory::new();
    let _kept = registry.publish(&entry("ebbets")).unwrap();
    let refused = registry.publish(&entry("ebbets")).unwrap_err();
    let here = std::process::id();
    let expected = format!("FileAccess/ebbets is already exported by process {here} at udp://127.0.0.1:7000");
    assert_eq!(refused.to_string(), expected);
}

/// A rule that a registry breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Break {
    AcceptsATakenName,
    IgnoresBounds,
    ForgetsFingerprints,
    KeepsDroppedEntries,
    WithdrawsWhatCameLater,
    StaysAtOneVersion,
    CountsReads,
    SortsByText,
    ListsOthersOfSimilarTypes,
    IgnoresCase,
    ClaimsToHaveWithdrawn,
    ForgetsBeyondSome,
    NamesNoOwner,
    IsNoHost,
    RepeatsAFence,
    OwnsWhatIsWithdrawn,
}

/// A registry that breaks a rule.
#[derive(Clone)]
struct Broken {
    breaks: Break,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    version: u64,
    serial: u64,
    entries: BTreeMap<(Label, Label), (u64, Entry)>,
}

impl Broken {
    fn new(breaks: Break) -> Broken {
        Broken { breaks, table: Arc::default() }
    }

    fn key(&self, type_name: &Label, instance: &Label) -> (Label, Label) {
        match self.breaks {
            Break::IgnoresCase => {
                (type_name.clone(), instance.as_str().to_ascii_lowercase().parse().unwrap())
            }
            _ => (type_name.clone(), instance.clone()),
        }
    }
}

impl Registry for Broken {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        if self.breaks != Break::IgnoresBounds {
            entry.check()?;
        }
        let mut table = self.table.lock().unwrap();
        let key = self.key(&entry.type_name, &entry.instance);
        match (table.entries.get(&key), self.breaks) {
            (None, _) | (_, Break::AcceptsATakenName) => {}
            (Some((_, found)), Break::NamesNoOwner) => {
                let mut other = found.clone();
                other.owner.pid = 0;
                return Err(other.taken());
            }
            (Some((_, found)), _) => return Err(found.taken()),
        }
        let mut entry = entry.clone();
        if self.breaks == Break::ForgetsFingerprints {
            entry.fingerprints.clear();
        }
        if self.breaks == Break::ForgetsBeyondSome && table.entries.len() >= 80 {
            table.entries.pop_first();
        }
        table.version += u64::from(self.breaks != Break::StaysAtOneVersion);
        table.serial += 1;
        let (serial, name, this) = (table.serial, entry.name(), self.clone());
        table.entries.insert(key.clone(), (serial, entry));
        let registration = Registration::new(name, move || {
            let is_same =
                this.table.lock().unwrap().entries.get(&key).is_some_and(|(found, _)| *found == serial);
            match this.breaks {
                Break::KeepsDroppedEntries => Ok(is_same),
                Break::WithdrawsWhatCameLater => this.withdraw(&key.0, &key.1),
                _ if is_same => this.withdraw(&key.0, &key.1),
                _ => Ok(false),
            }
        });
        Ok(match self.breaks {
            Break::RepeatsAFence => registration.owning(Ownership::lasting(7)),
            Break::OwnsWhatIsWithdrawn => registration.owning(Ownership::lasting(serial)),
            _ => registration,
        })
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        let mut table = self.table.lock().unwrap();
        let found = table.entries.remove(&self.key(type_name, instance)).is_some();
        table.version += u64::from(found && self.breaks != Break::StaysAtOneVersion);
        Ok(found || self.breaks == Break::ClaimsToHaveWithdrawn)
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        let similar = |found: &str| match self.breaks {
            Break::ListsOthersOfSimilarTypes => found.starts_with(type_name.as_str()),
            _ => found == type_name.as_str(),
        };
        Ok(self.list()?.entries.into_iter().filter(|entry| similar(entry.type_name.as_str())).collect())
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        let key = self.key(type_name, instance);
        Ok(self.table.lock().unwrap().entries.get(&key).map(|(_, entry)| entry.clone()))
    }

    fn list(&self) -> Result<Listing> {
        let mut table = self.table.lock().unwrap();
        table.version += u64::from(self.breaks == Break::CountsReads);
        let mut entries: Vec<_> = table.entries.values().map(|(_, entry)| entry.clone()).collect();
        if self.breaks == Break::SortsByText {
            entries.sort_by_key(Entry::name);
        }
        Ok(Listing::new(table.version, entries))
    }

    fn version(&self) -> Result<u64> {
        Ok(self.list()?.version)
    }

    fn routes(&self) -> Vec<std::net::IpAddr> {
        Vec::from_iter((self.breaks == Break::IsNoHost).then_some(std::net::Ipv4Addr::UNSPECIFIED.into()))
    }
}

/// Returns the message with which `check` panics.
fn panic_of(check: impl FnOnce()) -> String {
    let panicked = catch_unwind(AssertUnwindSafe(check)).expect_err("no broken rule was found");
    *panicked.downcast::<String>().unwrap()
}

#[test]
fn broken_rules_are_found_and_named() {
    for (breaks, rule) in [
        (Break::AcceptsATakenName, "refused as taken"),
        (Break::IgnoresBounds, "beyond a bound"),
        (Break::ForgetsFingerprints, "as it was"),
        (Break::KeepsDroppedEntries, "dropping a registration"),
        (Break::WithdrawsWhatCameLater, "only the entry that it published"),
        (Break::StaysAtOneVersion, "changes the version"),
        (Break::CountsReads, "has the version that the registry has"),
        (Break::SortsByText, "ascending type"),
        (Break::ListsOthersOfSimilarTypes, "similar name"),
        (Break::IgnoresCase, "same to the letter"),
        (Break::ClaimsToHaveWithdrawn, "returns false"),
        (Break::ForgetsBeyondSome, "all of many entries"),
        (Break::NamesNoOwner, "refused as taken"),
        (Break::IsNoHost, "that of one host"),
        (Break::RepeatsAFence, "fence is greater"),
        (Break::OwnsWhatIsWithdrawn, "owned no more"),
    ] {
        let said = panic_of(|| suite::check(|| Broken::new(breaks)));
        assert!(
            said.starts_with("the registry breaks the rule that ") && said.contains(rule),
            "{breaks:?}: {said}"
        );
    }
}

#[test]
fn a_registry_that_can_be_changed_is_not_read_only() {
    let registry = Memory::new();
    let _kept = registry.publish(&entry("ebbets")).unwrap();
    let said = panic_of(|| suite::check_read_only(registry.clone(), &[entry("ebbets")]));
    assert!(said.contains("read-only"), "{said}");
    let said = panic_of(|| suite::check_read_only(registry, &[entry("ebbets"), entry("luther")]));
    assert!(said.contains("all its entries"), "{said}");
}
