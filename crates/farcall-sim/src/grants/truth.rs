//! What is true of grants: which there are, which of them are revoked when, and what the policy says when.

use std::collections::BTreeMap;
use std::time::Duration;

use farcall::key_files::{Grant, Identity, Keyring, Policy, Revoked, Rights, Scope, Terms};

use super::SLACK;
use crate::model::Tally;
use crate::oracle::Violation;
use crate::sim;

/// The bytes from which the keys follow.
pub(super) const SERVER: u8 = 1;
pub(super) const CLIENT: u8 = 2;
pub(super) const AUTHORITY: u8 = 3;

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Any grant suffices.
    Bind,
    Look,
    Erase,
    Read,
    Write,
}

/// A grant, and when it was revoked.
struct Facts {
    principal: &'static str,
    /// In Unix seconds.
    expires: u64,
    revoked: Option<Duration>,
}

/// The grants and policies of a run.
pub(super) struct Truth {
    /// By their serials.
    grants: BTreeMap<u64, Facts>,
    /// The policies, each with the time from which it was in force. A bit for each right and principal.
    policies: Vec<(Duration, u64)>,
    lists: u64,
    pub(super) tally: Tally,
    violation: Option<Violation>,
    /// What had been found when the run was over.
    at_end: Option<(Tally, Option<Violation>)>,
}

impl Truth {
    pub(super) fn new() -> Truth {
        let (tally, violation, at_end) = (Tally::default(), None, None);
        Truth { grants: BTreeMap::new(), policies: Vec::new(), lists: 0, tally, violation, at_end }
    }

    /// Ends the run.
    pub(super) fn end(&mut self) {
        self.at_end = Some((self.tally, self.violation.take()));
    }

    /// Returns what was found in the run.
    pub(super) fn found(&mut self) -> (Tally, Option<Violation>) {
        self.at_end.take().unwrap_or((self.tally, self.violation.take()))
    }

    /// Makes a new grant for the programs' key, or takes one of those that there are.
    pub(super) fn grant(&mut self) -> (u64, Grant) {
        let serials: Vec<u64> = self.grants.keys().copied().collect();
        if sim::below(4) == 0
            && let Some(serial) = serials.get(sim::below(serials.len().max(1) as u64) as usize)
        {
            return (*serial, self.signed(*serial));
        }
        let serial = serials.len() as u64 + 1;
        let principal = if sim::below(2) == 0 { "ops" } else { "guest" };
        let expires = sim::unix_seconds() + 1 + sim::below([6, 30, 3_600][sim::below(3) as usize]);
        self.grants.insert(serial, Facts { principal, expires, revoked: None });
        (serial, self.signed(serial))
    }

    fn signed(&self, serial: u64) -> Grant {
        let Facts { principal, expires, .. } = self.grants[&serial];
        let key = Identity::from_entropy([CLIENT; 32]).public();
        let (principal, rights, scope) = (principal.parse().expect("a name"), Rights::IMPORT, Scope::any());
        let terms = Terms { key, principal, rights, scope, serial, expires };
        Identity::from_entropy([AUTHORITY; 32]).grant(terms).expect("it is not too large")
    }

    /// Revokes one of the grants.
    pub(super) fn revoke(&mut self, which: u64) {
        let count = self.grants.len() as u64;
        let grant = self.grants.get_mut(&(which % count.max(1) + 1));
        if let Some(grant) = grant.filter(|grant| grant.revoked.is_none()) {
            grant.revoked = Some(sim::now());
        }
    }

    /// Puts another policy in force.
    pub(super) fn change_policy(&mut self, bits: u64) {
        // Operators may do most things, and guests few.
        self.policies.push((sim::now(), bits | 0b0011));
    }

    /// Returns the server's keys.
    pub(super) fn keyring(&mut self) -> Keyring {
        self.lists += 1;
        let revoked =
            self.grants.iter().filter(|(_, facts)| facts.revoked.is_some()).map(|(serial, _)| *serial);
        let revoked = Revoked::new([], revoked).expect("there are few");
        let authority = Identity::from_entropy([AUTHORITY; 32]);
        let list = authority.revoke(self.lists, sim::unix_seconds(), 365 * 86_400, revoked);
        // The server calls back its clients, whose key is not granted anything else.
        let bell = format!("Bell {}", Identity::from_entropy([CLIENT; 32]).public()).parse().expect("a line");
        let keyring = Keyring::new(Identity::from_entropy([SERVER; 32])).with_known_server(bell);
        let keyring =
            keyring.with_authority(authority.public()).with_revocations(list).expect("it is genuine");
        keyring.with_policy(self.policy())
    }

    fn policy(&self) -> Policy {
        let bits = self.policies.last().map_or(0, |(_, bits)| *bits);
        let mut text = String::new();
        for principal in ["ops", "guest"] {
            let rights = [What::Look, What::Erase, What::Read, What::Write];
            let words = ["look,wait,watch,call_back", "erase,note", "@memory:read", "@memory:write"];
            for (what, words) in rights.into_iter().zip(words) {
                if bits & bit(principal, what) != 0 {
                    text += &format!("allow {principal} * {words}\n");
                }
            }
            text += &format!("allow {principal} * @describe,@health\n");
        }
        text.parse().expect("a policy")
    }

    /// Returns whether a grant counts at a time.
    fn counts(&self, serial: u64, at: Duration) -> bool {
        let Some(facts) = self.grants.get(&serial) else { return false };
        let second = sim::unix_seconds() - sim::now().as_secs() + at.as_secs();
        facts.revoked.is_none_or(|revoked| at < revoked) && second < facts.expires
    }

    /// Returns whether a policy of these bits lets the principal of a grant do that.
    fn lets(&self, serial: u64, what: What, bits: u64) -> bool {
        let principal = self.grants.get(&serial).map_or("", |facts| facts.principal);
        what == What::Bind || bits & bit(principal, what) != 0
    }

    /// Returns the policies that were in force within a span of time, each with when it began to be.
    fn policies(&self, from: Duration, to: Duration) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let nexts = self.policies.iter().skip(1).map(|(began, _)| *began).chain([Duration::MAX]);
        let with_ends = self.policies.iter().zip(nexts);
        with_ends.filter(move |((began, _), end)| *began <= to && *end >= from).map(|(policy, _)| *policy)
    }

    /// Checks that something that is executed now is allowed by its own conversation's grant, or was a moment
    /// before `began`.
    fn check(&mut self, serial: u64, what: What, began: Duration, told: &str) {
        let from = began.saturating_sub(SLACK);
        let allows = |(since, bits): (Duration, u64)| {
            self.lets(serial, what, bits) && self.counts(serial, since.max(from))
        };
        if !self.policies(from, sim::now()).any(allows) {
            self.violated("only-what-the-grant-allows", format!("{told} by grant {serial}: {what:?}"));
        }
    }

    /// Notes that a procedure is executed by a conversation of a grant, of which the server says who it is.
    pub(super) fn executes(&mut self, serial: u64, who: &str, what: What) {
        self.tally.executed += 1;
        let principal = self.grants.get(&serial).map_or("nobody", |facts| facts.principal);
        if who != principal {
            self.violated(
                "who-it-is",
                format!("{who} executes what grant {serial} of {principal} asked for"),
            );
        }
        self.check(serial, what, sim::now(), "a procedure was executed");
    }

    /// Notes that memory was read or written by an access that began then.
    pub(super) fn accessed(&mut self, serial: u64, what: What, began: Duration) {
        self.check(serial, what, began, "memory was accessed");
    }

    /// Notes that what was begun in a conversation of a grant goes on.
    pub(super) fn goes_on(&mut self, serial: u64, what: &str) {
        if !self.counts(serial, sim::now().saturating_sub(SLACK)) {
            self.violated("ends-with-its-grant", format!("{what} of grant {serial} goes on"));
        }
    }

    /// Notes that what began then was refused.
    pub(super) fn refused(&mut self, serial: u64, what: What, began: Duration, why: &str) {
        let (from, now) = (began.saturating_sub(SLACK), sim::now());
        let was_allowed = self.policies(from, now).all(|(_, bits)| self.lets(serial, what, bits));
        if was_allowed && self.counts(serial, now) {
            self.violated("rights-are-not-lost", format!("{what:?} by grant {serial} was refused: {why}"));
        }
    }

    fn violated(&mut self, rule: &'static str, what: String) {
        let at = sim::now().as_nanos() as u64;
        self.violation.get_or_insert(Violation { rule, at, what });
    }
}

/// Returns the bit of a right in a policy.
fn bit(principal: &str, what: What) -> u64 {
    let right = match what {
        What::Bind | What::Look => 0,
        What::Erase => 1,
        What::Read => 2,
        What::Write => 3,
    };
    1 << (right + if principal == "guest" { 4 } else { 0 })
}
