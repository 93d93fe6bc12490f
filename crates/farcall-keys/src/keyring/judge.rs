//! The judgement: which evidence makes a key a principal.

use std::sync::Arc;

use crate::grant::Grant;
use crate::key::PublicKey;
use crate::keyring::Keyring;
use crate::lines::KnownServer;
use crate::name::Scope;
use crate::principal::{Asked, Principal};
use crate::refusal::{Refusal, RefusalKind};
use crate::segment::{OWN_KEY, is_of_clerk};

/// When evidence is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// For a new binding: signatures are checked, and revocation lists must be fresh.
    Binding,
    /// For a new binding: signatures were checked just now, and revocation lists must be fresh.
    Verified,
    /// For a binding that exists: its signatures were checked, and revocation lists may be stale.
    Bound,
}

impl Keyring {
    /// Judges a key and its grants for a new binding. The signatures of the grants were checked.
    pub(crate) fn judge_verified(
        &self,
        key: PublicKey,
        grants: &[Grant],
        asked: Asked,
        now: u64,
    ) -> Result<Principal, Refusal> {
        self.judge(key, grants, asked, now, Moment::Verified)
    }

    /// Judges a key and its grants. A line of a key file makes it the principal that the line names;
    /// otherwise the first good grant does, and the own key is believed for clerks. Of the grants, those that
    /// name this principal are kept.
    pub(super) fn judge(
        &self,
        key: PublicKey,
        grants: &[Grant],
        asked: Asked,
        now: u64,
        moment: Moment,
    ) -> Result<Principal, Refusal> {
        if let Some(why) = self.revoked_key(&key) {
            return Err(why);
        }
        let listed = self.listed_name(&key, &asked);
        let mut name = listed.clone();
        let (mut good, mut first_refusal) = (Vec::new(), None);
        for grant in grants {
            match self.judge_grant(grant, &asked, now, moment) {
                Ok(()) if name.as_deref().is_none_or(|name| *name == **grant.terms().principal) => {
                    name.get_or_insert_with(|| grant.terms().principal.to_string());
                    good.push(grant.clone());
                }
                Ok(()) => {}
                Err(why) => first_refusal = first_refusal.or(Some(why)),
            }
        }
        let is_own = key == self.identity.public() && is_for_own_key(&asked);
        let Some(name) = name.or_else(|| is_own.then(|| OWN_KEY.to_owned())) else {
            return Err(first_refusal.unwrap_or_else(|| self.unknown(&key, &asked)));
        };
        let by_grant = listed.is_none();
        let first = good.first().filter(|_| by_grant);
        Ok(Principal {
            name: name.into(),
            key,
            grant: first.map(|grant| (grant.authority(), grant.terms().serial)),
            expires: first.and_then(|_| good.iter().map(|grant| grant.terms().expires).max()),
            lines: self.lines_of(&key, &asked),
            asked,
            grants: good.into(),
        })
    }

    /// Returns what the lines of a key file let a client with this key.
    fn lines_of(&self, key: &PublicKey, asked: &Asked) -> Arc<[Scope]> {
        let lines = self.authorized.get(key).filter(|_| *asked == Asked::Client);
        lines.into_iter().flatten().map(|line| line.scope.clone()).collect()
    }

    /// Returns the name that a key file gives to the key.
    fn listed_name(&self, key: &PublicKey, asked: &Asked) -> Option<String> {
        match asked {
            Asked::Client => self.authorized_name(key).map(|name| name.to_string()),
            Asked::Server { type_name, instance } => {
                let line = self.lines_for(type_name, instance).find(|line| line.key == *key);
                line.map(|line| line.scope.to_string())
            }
        }
    }

    fn judge_grant(&self, grant: &Grant, asked: &Asked, now: u64, moment: Moment) -> Result<(), Refusal> {
        let (terms, authority) = (grant.terms(), grant.authority());
        let Some(line) = self.authorities.get(&authority) else {
            return Err(Refusal::new(
                RefusalKind::UntrustedAuthority,
                "a grant of a trusted authority",
                format!("a grant of {authority} for {:?} ({})", &**terms.principal, terms.key),
                "add the authority to authorities if you trust it",
            ));
        };
        if !line.may_name(&terms.principal) {
            return Err(Refusal::new(
                RefusalKind::WrongPrincipal,
                format!("a grant for a principal that {authority} may name"),
                format!("a grant for {:?} ({})", &**terms.principal, terms.key),
                "widen principals= in the authority's line of authorities if it may name this principal, too",
            ));
        }
        let right = asked.right();
        if !terms.rights.has(right) {
            return Err(Refusal::new(
                RefusalKind::WrongRight,
                format!("a grant with the right to {right}"),
                format!("a grant for {:?} to {} {}", &**terms.principal, terms.rights, terms.scope),
                format!("sign a grant with --{right} (`farcall keys grant`)"),
            ));
        }
        self.judge_name(grant, asked)?;
        if now >= terms.expires {
            return Err(Refusal::new(
                RefusalKind::Expired,
                "a grant that has not expired",
                format!("a grant for {:?} that expired {} s ago", &**terms.principal, now - terms.expires),
                "sign a new grant (`farcall keys grant`)",
            ));
        }
        if moment == Moment::Binding && !grant.is_genuine() {
            return Err(Refusal::new(
                RefusalKind::Forged,
                format!("a grant that {authority} signed"),
                format!("a grant for {:?} with another signature", &**terms.principal),
                "sign a new grant (`farcall keys grant`)",
            ));
        }
        self.judge_revocation(grant, now, moment)
    }

    /// Checks that a server's grant is for the name that was asked for, and that the name is open to grants.
    fn judge_name(&self, grant: &Grant, asked: &Asked) -> Result<(), Refusal> {
        let Asked::Server { type_name, instance } = asked else { return Ok(()) };
        let terms = grant.terms();
        if !terms.scope.meets(type_name, instance) {
            return Err(Refusal::new(
                RefusalKind::WrongName,
                format!("a grant to export {}", asked_name(type_name, instance)),
                format!("a grant for {:?} to export {}", &**terms.principal, terms.scope),
                "sign a grant for this name (`farcall keys grant`)",
            ));
        }
        // Who asks for any instance gets that of the grant, if it is for a single one.
        let wanted = if instance.is_empty() { terms.scope.instance().exact() } else { Some(&**instance) };
        let mut lines = self.pins_for(type_name, wanted.unwrap_or_default());
        let pin = lines.find(|line| pins(line, type_name, wanted));
        let Some(pin) = pin else { return Ok(()) };
        Err(Refusal::new(
            RefusalKind::Pinned,
            format!("a key that known_servers has for {}, such as {}", pin.scope, pin.key),
            format!("the key {}, which shows a grant", terms.key),
            "write or-granted behind the key if grants are to count for this name, too",
        ))
    }

    fn judge_revocation(&self, grant: &Grant, now: u64, moment: Moment) -> Result<(), Refusal> {
        let (terms, authority) = (grant.terms(), grant.authority());
        if let Some(why) = self.revoked_key(&authority) {
            return Err(why);
        }
        let Some(list) = self.revocations.get(&authority) else { return Ok(()) };
        if list.has_grant(terms.serial) {
            return Err(Refusal::new(
                RefusalKind::Revoked,
                "a grant that is not revoked",
                format!(
                    "the grant {} for {:?}, which {authority} has revoked",
                    terms.serial, &**terms.principal
                ),
                "sign a new grant (`farcall keys grant`)",
            ));
        }
        if moment != Moment::Bound && list.is_stale(now) {
            return Err(Refusal::new(
                RefusalKind::StaleRevocations,
                format!("a revocation list of {authority} that is at most {} s old", list.greatest_age()),
                format!("one that was issued {} s ago", now.saturating_sub(list.issued())),
                "get the authority's newest list (`farcall keys revoke`): until then its grants do not count",
            ));
        }
        Ok(())
    }

    fn revoked_key(&self, key: &PublicKey) -> Option<Refusal> {
        let list = self.revocations.values().find(|list| list.has_key(key))?;
        Some(Refusal::new(
            RefusalKind::Revoked,
            "a key that is not revoked",
            format!("the key {key}, which {} has revoked", list.authority()),
            "make a new identity (`farcall keys make`), and a grant for it",
        ))
    }

    /// Returns the refusal of a key that no line has and that shows no grant.
    fn unknown(&self, key: &PublicKey, asked: &Asked) -> Refusal {
        let found = format!("the key {key}, which is not listed and shows no grant");
        let Asked::Server { type_name, instance } = asked else {
            return Refusal::new(
                RefusalKind::UnknownKey,
                "a key that authorized_keys has, or that shows a grant of a trusted authority",
                found,
                format!("add \"{key} PRINCIPAL\" to authorized_keys, or sign a grant (`farcall keys grant`)"),
            );
        };
        let name = asked_name(type_name, instance);
        let wanted = Some(&**instance).filter(|instance| !instance.is_empty());
        let pin = self.pins_for(type_name, instance).find(|line| pins(line, type_name, wanted));
        match pin {
            Some(pin) => Refusal::new(
                RefusalKind::Pinned,
                format!("a key that known_servers has for {}, such as {}", pin.scope, pin.key),
                found,
                "if the server has a new key, put it into known_servers; else somebody imitates the server",
            ),
            None => Refusal::new(
                RefusalKind::UnknownKey,
                format!(
                    "a key that known_servers has for {name}, or that shows a grant of a trusted authority"
                ),
                found,
                format!("if you know that this is the server's key, add \"{name} {key}\" to known_servers"),
            ),
        }
    }

    /// Returns the lines that may keep the grants of other keys from counting for a name.
    fn pins_for<'a>(
        &'a self,
        type_name: &'a str,
        instance: &'a str,
    ) -> impl Iterator<Item = &'a KnownServer> + 'a {
        let further = self.pins.iter().filter(move |line| line.scope.meets(type_name, instance));
        self.lines_for(type_name, instance).chain(further)
    }

    /// Returns the lines of `known_servers` that have a name. An empty instance means any, and an empty type
    /// all lines.
    fn lines_for<'a>(
        &'a self,
        type_name: &'a str,
        instance: &'a str,
    ) -> impl Iterator<Item = &'a KnownServer> + 'a {
        let every = type_name.is_empty().then(|| self.known.values().flatten());
        let of_type = [type_name, "*"].map(|name| self.known.get(name).into_iter().flatten());
        let of_type = of_type.into_iter().flatten().filter(|_| !type_name.is_empty());
        every.into_iter().flatten().chain(of_type).filter(move |line| line.scope.meets(type_name, instance))
    }
}

/// Returns whether an end believes its own key in this role, although no line and no grant says so. As a
/// client it may use the names of clerks.
fn is_for_own_key(asked: &Asked) -> bool {
    match asked {
        Asked::Client => true,
        Asked::Server { type_name, instance } => is_of_clerk(type_name, instance),
    }
}

/// Returns whether a line keeps the grants of other keys from counting. A line for one instance does not do
/// so for a caller who asks for any instance.
fn pins(line: &KnownServer, type_name: &str, instance: Option<&str>) -> bool {
    let covers = match instance {
        Some(instance) => line.scope.covers(type_name, instance),
        None => line.scope.instance().is_any(),
    };
    !type_name.is_empty() && !line.or_granted && covers
}

fn asked_name(type_name: &str, instance: &str) -> String {
    match (type_name, instance) {
        ("", _) => "*".to_owned(),
        (type_name, "") => type_name.to_owned(),
        (type_name, instance) => format!("{type_name}/{instance}"),
    }
}
