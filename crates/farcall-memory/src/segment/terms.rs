//! The terms on which importers access a segment, which the exporter may change at any time: who has which
//! rights, whose writes are inhibited, and of which accesses the exporter is notified.

use std::collections::HashMap;

use super::Settings;
use crate::access::{Refused, Rights, check_alignment, check_range};
use crate::runtime::Accessor;
use farcall_core::{CallFailed, Kind, Principal, Ran, Result};

/// When the exporter is notified of an importer's access. Accesses that are refused are never notified of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    /// Never.
    #[default]
    Never,
    /// At every write for which the writer asks it.
    Asked,
    /// At every write for which the writer asks it, and at every access that meets the exporter's condition.
    When(Condition),
    /// At every access: at reads too.
    Always,
}

/// A condition that an exporter sets for notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// An importer writes or swaps the word at this offset, and the word is then at least this value.
    Reaches {
        /// The offset of the word.
        offset: u64,
        /// The least value.
        value: u64,
    },
    /// An importer writes a byte of this range, or swaps a word of it.
    Written {
        /// The offset of the range.
        offset: u64,
        /// The length of the range in bytes.
        len: u64,
    },
    /// An importer reads or writes a byte of this range.
    Touched {
        /// The offset of the range.
        offset: u64,
        /// The length of the range in bytes.
        len: u64,
    },
}

/// Importers to whom an exporter gives rights, or whose writes it inhibits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importers<'a> {
    /// Every process that the exporter lets call: without keys, of its own user unless it is open.
    Anyone,
    /// Processes of the same user on the exporter's machine.
    SameUser,
    /// Processes whose key has this name at the exporter, in its files or in a grant. Only a runtime with
    /// keys knows principals.
    Principal(&'a str),
}

/// The terms of a segment.
#[derive(Debug)]
pub(super) struct Terms {
    anyone: Given,
    same_user: Given,
    principals: HashMap<Box<str>, Given>,
    pub(super) notify: Notify,
}

/// What was given to some importers.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    rights: Rights,
    writes_are_inhibited: bool,
}

/// The most principals of one segment.
const MAX_PRINCIPALS: usize = 1_024;

/// The terms as far as a read must know them that takes no lock: in one word, which changes whenever the
/// terms do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest(u64);

impl Terms {
    pub(super) fn new(settings: &Settings) -> Terms {
        let given = |rights| Given { rights, writes_are_inhibited: false };
        Terms {
            anyone: given(settings.anyone),
            same_user: given(settings.same_user),
            principals: HashMap::new(),
            notify: settings.notify,
        }
    }

    /// Returns the rights of the process that makes an access.
    pub(super) fn rights(&self, by: &Accessor) -> Rights {
        self.given(by.same_user, by.principal.as_deref()).rights
    }

    /// Returns the rights of a process that may be of another machine, and is this principal.
    pub(super) fn rights_of(&self, principal: Option<&Principal>) -> Rights {
        self.given(false, principal).rights
    }

    /// Returns the rights of every process.
    pub(super) fn rights_of_anyone(&self) -> Rights {
        self.anyone.rights
    }

    /// Returns whether writes of the process that makes an access are inhibited.
    pub(super) fn inhibit(&self, by: &Accessor) -> bool {
        self.given(by.same_user, by.principal.as_deref()).writes_are_inhibited
    }

    /// Returns whether a process may map the memory: to read it, or to do everything if it `writes`.
    pub(super) fn let_map(&self, by: &Accessor, writes: bool) -> bool {
        let given = self.given(by.same_user, by.principal.as_deref());
        let is_allowed = given.rights.contains(if writes { Rights::ALL } else { Rights::READ });
        is_allowed && !(writes && given.writes_are_inhibited) && self.notify.allows_mapping(writes)
    }

    /// Returns whether the memory may be offered to importers that map it.
    pub(super) fn let_some_map(&self, writes: bool) -> bool {
        let is_inhibited = self.anyone.writes_are_inhibited || self.same_user.writes_are_inhibited;
        !(writes && is_inhibited) && self.notify.allows_mapping(writes)
    }

    fn given(&self, same_user: bool, principal: Option<&Principal>) -> Given {
        let mut given = self.anyone;
        if same_user {
            given = given.and(self.same_user);
        }
        match principal.and_then(|principal| self.principals.get(&*principal.name)) {
            Some(own) => given.and(*own),
            None => given,
        }
    }

    /// Gives rights to importers, beside those that they have.
    pub(super) fn grant(&mut self, to: Importers<'_>, rights: Rights) -> Result<()> {
        let given = self.entry(to)?;
        given.rights = given.rights | rights;
        self.forget(to);
        Ok(())
    }

    /// Takes all rights from importers that were given to these. Returns the rights that they had and no
    /// longer have: rights that were given to others may cover them too.
    pub(super) fn withdraw(&mut self, from: Importers<'_>) -> Rights {
        let before = self.rights_given(from);
        if let Some(given) = self.known(from) {
            given.rights = Rights::NONE;
        }
        self.forget(from);
        before.without(self.rights_given(from))
    }

    /// Inhibits or allows the writes of importers.
    pub(super) fn inhibit_writes(&mut self, of: Importers<'_>, inhibited: bool) -> Result<()> {
        match inhibited {
            true => self.entry(of)?.writes_are_inhibited = true,
            false => self.known(of).into_iter().for_each(|given| given.writes_are_inhibited = false),
        }
        self.forget(of);
        Ok(())
    }

    /// Returns the greatest rights that these importers can have.
    fn rights_given(&self, to: Importers<'_>) -> Rights {
        let here = self.anyone.rights | self.same_user.rights;
        match to {
            Importers::Anyone | Importers::SameUser => here,
            Importers::Principal(name) => {
                here | self.principals.get(name).map_or(Rights::NONE, |given| given.rights)
            }
        }
    }

    fn known(&mut self, who: Importers<'_>) -> Option<&mut Given> {
        match who {
            Importers::Anyone => Some(&mut self.anyone),
            Importers::SameUser => Some(&mut self.same_user),
            Importers::Principal(name) => self.principals.get_mut(name),
        }
    }

    fn entry(&mut self, who: Importers<'_>) -> Result<&mut Given> {
        match who {
            Importers::Anyone => Ok(&mut self.anyone),
            Importers::SameUser => Ok(&mut self.same_user),
            Importers::Principal(name) => {
                if !self.principals.contains_key(name) && self.principals.len() >= MAX_PRINCIPALS {
                    let why = format!("a segment knows at most {MAX_PRINCIPALS} principals; withdraw some");
                    return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why).into());
                }
                Ok(self.principals.entry(name.into()).or_default())
            }
        }
    }

    /// Forgets a principal to whom nothing applies.
    fn forget(&mut self, who: Importers<'_>) {
        if let Importers::Principal(name) = who
            && self.principals.get(name).is_some_and(Given::is_nothing)
        {
            self.principals.remove(name);
        }
    }
}

impl Given {
    fn and(self, other: Given) -> Given {
        let writes_are_inhibited = self.writes_are_inhibited || other.writes_are_inhibited;
        Given { rights: self.rights | other.rights, writes_are_inhibited }
    }

    fn is_nothing(&self) -> bool {
        self.rights == Rights::NONE && !self.writes_are_inhibited
    }
}

impl Notify {
    /// Checks that the condition, if there is one, is within a segment of `size` bytes.
    pub(super) fn check(self, size: u64) -> Result<(), Refused> {
        match self {
            Notify::When(Condition::Reaches { offset, .. }) => {
                check_alignment(offset)?;
                check_range(size, offset, 8)
            }
            Notify::When(Condition::Written { offset, len } | Condition::Touched { offset, len }) => {
                check_range(size, offset, len)
            }
            Notify::Never | Notify::Asked | Notify::Always => Ok(()),
        }
    }

    /// Returns whether the memory may be mapped: nothing notifies the exporter of accesses to mapped memory,
    /// except that writers ask.
    pub(super) fn allows_mapping(self, writes: bool) -> bool {
        match self {
            Notify::Never | Notify::Asked => true,
            Notify::When(Condition::Reaches { .. } | Condition::Written { .. }) => !writes,
            Notify::When(Condition::Touched { .. }) | Notify::Always => false,
        }
    }

    /// Returns whether the exporter is notified of some reads.
    pub(super) fn hears_reads(self) -> bool {
        matches!(self, Notify::Always | Notify::When(Condition::Touched { .. }))
    }

    /// Returns whether the exporter is notified of a read of these bytes.
    pub(super) fn hears_read(self, offset: u64, len: u64) -> bool {
        match self {
            Notify::Always => true,
            Notify::When(Condition::Touched { offset: from, len: of }) => overlap((offset, len), (from, of)),
            _ => false,
        }
    }

    /// Returns whether the exporter is notified of a write of these bytes. `asked` says whether the writer
    /// asks it, and `load` returns the word at an offset, as it is after the write.
    pub(super) fn hears_write(self, asked: bool, at: (u64, u64), load: impl FnOnce(u64) -> u64) -> bool {
        let condition = match self {
            Notify::Never => return false,
            Notify::Asked => return asked,
            Notify::Always => return true,
            Notify::When(condition) => condition,
        };
        asked
            || match condition {
                Condition::Reaches { offset, value } => overlap(at, (offset, 8)) && load(offset) >= value,
                Condition::Written { offset, len } | Condition::Touched { offset, len } => {
                    overlap(at, (offset, len))
                }
            }
    }
}

/// Returns whether two ranges within a segment, each an offset and a length, have a byte in common.
fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0.max(other.0) < (one.0 + one.1).min(other.0 + other.1)
}

impl Digest {
    /// Set if reads take the lock, because the exporter may be notified of them.
    const HEARS_READS: u64 = 8;
    /// One change of the terms.
    const CHANGE: u64 = 16;

    pub(super) fn of(terms: &Terms) -> Digest {
        let hears = if terms.notify.hears_reads() { Digest::HEARS_READS } else { 0 };
        Digest(u64::from(terms.rights_of_anyone().bits()) | hears)
    }

    /// Returns the digest of changed terms. It differs from all former ones, so a read that was begun under
    /// former terms notices the change also if the same rights are given again.
    pub(super) fn next(self, terms: &Terms) -> Digest {
        let changes = (self.0 & !(Digest::CHANGE - 1)).wrapping_add(Digest::CHANGE);
        Digest(Digest::of(terms).0 | changes)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn from_word(word: u64) -> Digest {
        Digest(word)
    }

    /// Returns whether every process may read, and no read is notified of.
    #[inline]
    pub(super) fn lets_anyone_read(self) -> bool {
        let read = u64::from(Rights::READ.bits());
        self.0 & (read | Digest::HEARS_READS) == read
    }

    /// Returns whether the exporter may be notified of reads.
    pub(super) fn hears_reads(self) -> bool {
        self.0 & Digest::HEARS_READS != 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn terms(anyone: Rights) -> Terms {
        Terms::new(&Settings::new(64).anyone(anyone))
    }

    fn by(same_user: bool, name: &str) -> Accessor {
        let principal = (!name.is_empty()).then(|| Arc::new(Principal::new(name, [0; 32])));
        Accessor { same_user, principal, ..Accessor::default() }
    }

    #[test]
    fn rights_add_up_and_what_is_withdrawn_may_be_covered_by_others() {
        let mut terms = terms(Rights::READ);
        terms.grant(Importers::Principal("alice"), Rights::READ | Rights::WRITE).unwrap();
        terms.grant(Importers::SameUser, Rights::CAS).unwrap();
        let rights = |terms: &Terms| {
            [by(false, ""), by(true, ""), by(false, "alice"), by(true, "alice"), by(false, "bob")]
                .map(|by| terms.rights(&by).bits())
        };
        assert_eq!(rights(&terms), [1, 5, 3, 7, 1]);
        assert_eq!(terms.withdraw(Importers::Principal("alice")), Rights::WRITE);
        assert_eq!(rights(&terms), [1, 5, 1, 5, 1]);
        assert_eq!(terms.withdraw(Importers::Anyone), Rights::READ);
        assert_eq!(rights(&terms), [0, 4, 0, 4, 0]);
        assert_eq!(terms.withdraw(Importers::Principal("nobody")), Rights::NONE);
        assert!(terms.principals.is_empty(), "nothing is kept of who has nothing");
    }

    #[test]
    fn writes_are_inhibited_for_one_without_taking_the_right() {
        let mut terms = terms(Rights::ALL);
        terms.inhibit_writes(Importers::Principal("alice"), true).unwrap();
        assert!(terms.inhibit(&by(false, "alice")) && !terms.inhibit(&by(true, "bob")));
        assert!(!terms.let_map(&by(true, "alice"), true) && terms.let_map(&by(true, "bob"), true));
        assert!(terms.let_some_map(true));
        terms.inhibit_writes(Importers::SameUser, true).unwrap();
        assert!(terms.inhibit(&by(true, "bob")) && !terms.inhibit(&by(false, "bob")));
        assert!(!terms.let_some_map(true) && terms.let_some_map(false));
        terms.inhibit_writes(Importers::Principal("alice"), false).unwrap();
        assert!(!terms.inhibit(&by(false, "alice")) && terms.principals.is_empty());
    }

    #[test]
    fn a_segment_knows_a_bounded_number_of_principals() {
        let mut terms = terms(Rights::NONE);
        let mut grant =
            |name: usize| terms.grant(Importers::Principal(&name.to_string()), Rights::READ).is_ok();
        assert!((0..MAX_PRINCIPALS).all(&mut grant) && !grant(MAX_PRINCIPALS) && grant(7));
        terms.withdraw(Importers::Principal("3"));
        terms.grant(Importers::Principal("another"), Rights::READ).unwrap();
    }

    #[test]
    fn a_digest_differs_from_that_before_although_the_rights_are_the_same() {
        let mut terms = terms(Rights::READ);
        let first = Digest::of(&terms);
        terms.withdraw(Importers::Anyone);
        let second = first.next(&terms);
        terms.grant(Importers::Anyone, Rights::READ).unwrap();
        let third = second.next(&terms);
        assert!(first.lets_anyone_read() && !second.lets_anyone_read() && third.lets_anyone_read());
        assert!(first != third && second != third);
        terms.notify = Notify::Always;
        assert!(!third.next(&terms).lets_anyone_read());
        // The count begins anew without changing the rights.
        let last = Digest(!(Digest::CHANGE - 1) | 1);
        terms.notify = Notify::Never;
        assert!(last.next(&terms) == first);
    }

    #[test]
    fn conditions_are_met_by_the_accesses_that_they_name() {
        let at_ten = |_| 10;
        let hears = |condition, at| Notify::When(condition).hears_write(false, at, at_ten);
        let reaches = |value| Condition::Reaches { offset: 8, value };
        assert!(hears(reaches(10), (15, 1)) && hears(reaches(9), (0, 64)) && !hears(reaches(11), (8, 8)));
        assert!(!hears(reaches(0), (16, 8)) && !hears(reaches(0), (0, 8)) && !hears(reaches(0), (8, 0)));
        let range = (Condition::Written { offset: 3, len: 5 }, Condition::Touched { offset: 3, len: 5 });
        for condition in [range.0, range.1] {
            assert!(hears(condition, (7, 9)) && !hears(condition, (8, 9)) && !hears(condition, (0, 3)));
        }
        assert!(!Notify::When(range.0).hears_read(3, 1) && Notify::When(range.1).hears_read(3, 1));
        assert!(Notify::When(range.0).hears_write(true, (60, 1), at_ten), "the writer asks");
        assert!(!Notify::When(range.1).hears_read(8, 1) && Notify::Always.hears_read(8, 1));
    }

    #[test]
    fn a_condition_is_within_the_segment() {
        let outside = [
            Condition::Reaches { offset: 64, value: 0 },
            Condition::Reaches { offset: 4, value: 0 },
            Condition::Written { offset: 60, len: 5 },
            Condition::Touched { offset: u64::MAX, len: 2 },
        ];
        assert!(outside.iter().all(|condition| Notify::When(*condition).check(64).is_err()));
        assert!(Notify::When(Condition::Written { offset: 60, len: 4 }).check(64).is_ok());
    }
}
