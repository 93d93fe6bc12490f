//! Compares two versions of an interface: what the new version breaks for programs that know the old one.

mod types;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use farcall_xdr::schema::{Type, TypeHashes};

use self::types::Compared;
use crate::binding::{Refusal, refusals};
use crate::{Interface, Procedure};

/// One difference between two versions of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whether a caller of one version and a server of the other can no longer understand each other.
    pub breaking: bool,
    /// The place of the difference: `Store.get argument key`, `Store.list result[].size`.
    pub place: String,
    /// The difference: `string<255> became opaque<>`.
    pub what: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.breaking { "breaking" } else { "fine" };
        write!(f, "{mark}: {}: {}", self.place, self.what)
    }
}

/// Returns the differences that matter, in the order of the old interface. For each argument, result and
/// exception of a procedure, the list ends with the first breaking difference.
///
/// The work is linear in the size of both descriptions. If so many procedures use types that differ that not
/// every difference can be listed, the last item says so; breaking ones are listed nevertheless.
///
/// ```
/// use farcall_idl::{Interface, check};
/// let mut old = Interface::new("Store");
/// old.procedure(1, "get").argument::<String>("key").result::<u64>();
/// let mut new = Interface::new("Store");
/// new.procedure(1, "get").argument::<Vec<u8>>("key").result::<u64>();
/// assert_eq!(check(&old, &new)[0].to_string(), "breaking: Store.get argument key: string<> became opaque<>");
/// ```
pub fn check(old: &Interface, new: &Interface) -> Vec<Change> {
    let mut comparison = Comparison {
        old,
        new,
        hashes: [TypeHashes::new(&old.types), TypeHashes::new(&new.types)],
        numbers: first_of_each(old.procedures.iter().map(|procedure| (procedure.number, ()))),
        names: first_of_each(old.procedures.iter().map(|procedure| (&procedure.name[..], ()))),
        present: first_of_each(new.procedures.iter().map(|procedure| (procedure.number, procedure))),
        refusals: refusals(old, &new.fingerprints()).into_iter().collect(),
        types: Compared::new(old, new),
        changes: Vec::new(),
    };
    if old.name != new.name {
        comparison.add(true, &old.name, format!("is named {} now: importers ask for the old name", new.name));
    }
    for procedure in &old.procedures {
        comparison.procedure(procedure);
    }
    for procedure in &new.procedures {
        if !comparison.numbers.contains_key(&procedure.number) {
            comparison.added(procedure);
        }
    }
    if comparison.types.is_exhausted() {
        comparison.add(false, &old.name, "has more differences in its types than are listed here");
    }
    comparison.changes
}

/// Returns the first value of each key.
fn first_of_each<K: Hash + Eq, V>(all: impl Iterator<Item = (K, V)>) -> HashMap<K, V> {
    let mut first = HashMap::new();
    for (key, value) in all {
        first.entry(key).or_insert(value);
    }
    first
}

struct Comparison<'a> {
    old: &'a Interface,
    new: &'a Interface,
    /// The hashes of the types of the old and of the new version.
    hashes: [TypeHashes; 2],
    /// The numbers of the old version's procedures.
    numbers: HashMap<u32, ()>,
    /// The names of the old version's procedures.
    names: HashMap<&'a str, ()>,
    /// The procedures of the new version by number.
    present: HashMap<u32, &'a Procedure>,
    /// The procedures of the old version that a binding refuses, by number, and why.
    refusals: HashMap<u32, Refusal>,
    /// What is known of pairs of types.
    types: Compared,
    changes: Vec<Change>,
}

impl<'a> Comparison<'a> {
    fn add(&mut self, breaking: bool, place: impl Into<String>, what: impl Into<String>) {
        self.changes.push(Change { breaking, place: place.into(), what: what.into() });
    }

    fn place(&self, procedure: &Procedure) -> String {
        format!("{}.{}", self.old.name, procedure.name)
    }

    fn added(&mut self, procedure: &Procedure) {
        if self.names.contains_key(&procedure.name[..]) {
            return; // the procedure has moved, which was reported at its former number
        }
        let what = format!("is new, as procedure {}", procedure.number);
        self.add(false, self.place(procedure), what);
    }

    fn procedure(&mut self, was: &'a Procedure) {
        let place = self.place(was);
        let is = match (self.refusals.remove(&was.number), self.present.get(&was.number).copied()) {
            (None | Some(Refusal::Renamed { .. } | Refusal::Types { .. }), Some(is)) => is,
            (refusal, _) => {
                let refusal = refusal.unwrap_or(Refusal::Gone { number: was.number });
                return self.add(true, place, refusal.to_string());
            }
        };
        if was.name != is.name && (was.pinned || is.pinned) {
            self.add(false, &*place, format!("is named {} now", is.name));
        } else if was.name != is.name {
            let what = format!("is named {} now; pin it with #[procedure({})]", is.name, was.number);
            self.add(true, &*place, what);
        }
        let before = self.changes.len();
        self.arguments(&place, was, is);
        self.types(format!("{place} result"), &was.result, &is.result);
        self.types(format!("{place} exception"), &was.exception, &is.exception);
        let found = self.changes[before..].iter().any(|change| change.breaking);
        if !found && was.fingerprint(&self.hashes[0]) != is.fingerprint(&self.hashes[1]) {
            self.add(true, &*place, "has another fingerprint: importers of the old version refuse it");
        }
        self.facts(&place, was, is);
    }

    fn arguments(&mut self, place: &str, was: &'a Procedure, is: &'a Procedure) {
        for (before, after) in was.arguments.iter().zip(&is.arguments) {
            let place = format!("{place} argument {}", before.name);
            if before.name != after.name {
                self.add(false, &*place, format!("is named {} now", after.name));
            }
            self.types(place, &before.ty, &after.ty);
        }
        let common = was.arguments.len().min(is.arguments.len());
        for gone in &was.arguments[common..] {
            self.add(true, format!("{place} argument {}", gone.name), "is gone");
        }
        for added in &is.arguments[common..] {
            let what = "is new; add a procedure instead, or a trailing field to an extensible struct";
            self.add(true, format!("{place} argument {}", added.name), what);
        }
    }

    /// Compares the facts other than types on which callers rely.
    fn facts(&mut self, place: &str, was: &Procedure, is: &Procedure) {
        match (was.idempotent, is.idempotent) {
            (true, false) => {
                self.add(false, place, "is no longer idempotent; callers of the old version still repeat it");
            }
            (false, true) => self.add(false, place, "is idempotent now"),
            _ => {}
        }
        if was.oneway != is.oneway {
            let what = if is.oneway { "is one-way now" } else { "is no longer one-way" };
            self.add(false, place, what);
        }
        if was.deadline_ms != is.deadline_ms {
            let spell = |ms: Option<u64>| ms.map_or_else(|| "none".into(), |ms| format!("{ms} ms"));
            let what = format!("deadline {} became {}", spell(was.deadline_ms), spell(is.deadline_ms));
            self.add(false, place, what);
        }
    }

    fn types(&mut self, place: String, was: &'a Type, is: &'a Type) {
        self.changes.extend(self.types.compare([&self.old.types, &self.new.types], place, was, is));
    }
}
