//! Keyrings: all that an end knows about keys, and its judgement of others.

mod judge;

use std::collections::BTreeMap;

use crate::fault::LineFault;
use crate::grant::{Grant, Right};
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::lines::{Authority, AuthorizedKey, KnownServer};
use crate::name::{PrincipalName, Scope};
use crate::policy::{Decision, Policy};
use crate::presentation::{MAX_GRANTS_SHOWN, Presentation};
use crate::principal::{Asked, Principal};
use crate::refusal::{Refusal, RefusalKind};
use crate::revocation::RevocationList;
use crate::segment;
use judge::Moment;

/// An immutable snapshot of an end's identity, of what it may show, of whom it trusts, and of its policy.
/// [`KeyFiles`](crate::KeyFiles) reads one from files; programs can also put one together.
///
/// ```
/// use farcall_keys::{Identity, KnownServer, Keyring, Right};
///
/// let [server, client] = [1, 2].map(|byte| Identity::from_entropy([byte; 32]));
/// let known: KnownServer = format!("Store/main {}", server.public()).parse()?;
/// let authorized = format!("{} alice", client.public()).parse()?;
/// let server = Keyring::new(server).with_authorized_key(authorized)?;
/// let client = Keyring::new(client).with_known_server(known);
///
/// let shown = server.presentation("Store", "main", Right::Export);
/// let found = client.check_server("Store", "main", &shown, 1_800_000_000)?;
/// assert_eq!(found.key, server.identity().public());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Keyring {
    identity: Identity,
    grants: Vec<Grant>,
    authorities: BTreeMap<PublicKey, Authority>,
    authorized: BTreeMap<PublicKey, Vec<AuthorizedKey>>,
    /// By the type, or `*`.
    known: BTreeMap<String, Vec<KnownServer>>,
    /// Lines that keep grants of other keys from counting for their names, but let no key answer for them.
    pins: Vec<KnownServer>,
    /// By the authority. Lists of an authority that is not among `authorities` count, too.
    revocations: BTreeMap<PublicKey, RevocationList>,
    policy: Option<Policy>,
    /// The former policy, where it has to allow everything as well. `Some(None)` if there was none, so that
    /// nobody saw the conversations of others.
    restriction: Option<Option<Policy>>,
}

/// Making a keyring.
impl Keyring {
    /// Returns the keyring of an end that knows nobody.
    pub fn new(identity: Identity) -> Keyring {
        Keyring {
            identity,
            grants: Vec::new(),
            authorities: BTreeMap::new(),
            authorized: BTreeMap::new(),
            known: BTreeMap::new(),
            pins: Vec::new(),
            revocations: BTreeMap::new(),
            policy: None,
            restriction: None,
        }
    }

    /// Adds a grant that this end may show.
    ///
    /// # Errors
    /// If it is for another key, or forged.
    pub fn with_grant(mut self, grant: Grant) -> Result<Keyring, LineFault> {
        self.add_grant(grant)?;
        Ok(self)
    }

    pub(crate) fn add_grant(&mut self, grant: Grant) -> Result<(), LineFault> {
        let (own, key) = (self.identity.public(), grant.terms().key);
        if key != own {
            let advice = "remove it here, and give it to the owner of that key";
            return Err(LineFault::new(format!("a grant for {own}"), format!("a grant for {key}"), advice));
        }
        if !grant.is_genuine() {
            let found = format!("a grant that {} did not sign", grant.authority());
            let advice = "copy the whole line that `farcall keys grant` printed";
            return Err(LineFault::new("a grant with its authority's signature", found, advice));
        }
        self.grants.push(grant);
        Ok(())
    }

    /// Trusts an authority: its grants are believed.
    #[must_use]
    pub fn with_authority(mut self, key: PublicKey) -> Keyring {
        self.authorities.insert(key, Authority::new(key));
        self
    }

    /// Trusts an authority, as a line of `authorities` does. The line may limit about which principals.
    ///
    /// # Errors
    /// If the authority was added with another limit.
    pub fn with_limited_authority(mut self, line: Authority) -> Result<Keyring, LineFault> {
        self.add_authority(line)?;
        Ok(self)
    }

    pub(crate) fn add_authority(&mut self, line: Authority) -> Result<(), LineFault> {
        let former = self.authorities.get(&line.key);
        if former.is_some_and(|former| former.principals != line.principals) {
            let expected = format!("one line for the authority {}", line.key);
            let advice = "list all principals in one line, as in principals=team-*,alice";
            return Err(LineFault::new(expected, "another line with other principals", advice));
        }
        self.authorities.insert(line.key, line);
        Ok(())
    }

    /// Lets a client in without a grant. A key may be added several times, with several scopes.
    ///
    /// # Errors
    /// If the key was added as another principal.
    pub fn with_authorized_key(mut self, line: AuthorizedKey) -> Result<Keyring, LineFault> {
        self.add_authorized_key(line)?;
        Ok(self)
    }

    pub(crate) fn add_authorized_key(&mut self, line: AuthorizedKey) -> Result<(), LineFault> {
        let lines = self.authorized.entry(line.key).or_default();
        // All lines of a key have the same principal, so the first speaks for them.
        if let Some(other) = lines.first().filter(|other| other.principal != line.principal) {
            let expected = format!("one principal for a key; {} is {:?}", line.key, &**other.principal);
            let advice = "give both lines the same principal, or remove one";
            return Err(LineFault::new(
                expected,
                format!("{:?} for the same key", &**line.principal),
                advice,
            ));
        }
        lines.push(line);
        Ok(())
    }

    /// Lets a key answer for a name without a grant.
    #[must_use]
    pub fn with_known_server(mut self, line: KnownServer) -> Keyring {
        self.add_known_server(line);
        self
    }

    pub(crate) fn add_known_server(&mut self, line: KnownServer) {
        self.known.entry(line.scope.type_name().to_string()).or_default().push(line);
    }

    /// Keeps grants of other keys from counting for the line's names.
    pub(crate) fn add_pin(&mut self, line: KnownServer) {
        self.pins.push(line);
    }

    /// Adds the revocation list of an authority that was added before. It takes the place of an older one.
    ///
    /// # Errors
    /// If its authority is not trusted, it is forged, or its serial is smaller than that of a list that was
    /// added before.
    pub fn with_revocations(mut self, list: RevocationList) -> Result<Keyring, LineFault> {
        self.add_revocations(list, false)?;
        Ok(self)
    }

    /// Adds a revocation list. With `is_trusted` its authority is trusted although it was not added.
    pub(crate) fn add_revocations(
        &mut self,
        list: RevocationList,
        is_trusted: bool,
    ) -> Result<(), LineFault> {
        let (authority, serial) = (list.authority(), list.serial());
        if !is_trusted && !self.authorities.contains_key(&authority) {
            let advice = "trust this authority (a line in authorities), or remove its list";
            let found = format!("a list of {authority}");
            return Err(LineFault::new("a revocation list of a trusted authority", found, advice));
        }
        if !list.is_genuine() {
            let found = format!("a list that {authority} did not sign");
            let advice = "ask the authority for its list again (`farcall keys revoke` writes it)";
            return Err(LineFault::new("a revocation list with its authority's signature", found, advice));
        }
        if let Some(known) =
            self.revocations.get(&authority).map(RevocationList::serial).filter(|it| *it > serial)
        {
            return Err(older_list(authority, known, &format!("serial {serial}")));
        }
        self.revocations.insert(authority, list);
        Ok(())
    }

    /// Returns whether grants of this authority are believed.
    pub(crate) fn trusts(&self, authority: &PublicKey) -> bool {
        self.authorities.contains_key(authority)
    }

    /// Adds a list that was checked before, in the place of an older one.
    pub(crate) fn keep_revocations(&mut self, list: RevocationList) {
        let known = self.revocations.get(&list.authority());
        if known.is_none_or(|known| known.serial() < list.serial()) {
            self.revocations.insert(list.authority(), list);
        }
    }

    /// Sets the policy. Without one, every authenticated principal may do everything in its scope, except see
    /// the conversations of others.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Keyring {
        Keyring { policy: Some(policy), ..self }
    }

    /// Sets the former policy, which has to allow everything as well. `None` if there was none.
    #[must_use]
    pub(crate) fn with_restriction(self, former: Option<Policy>) -> Keyring {
        Keyring { restriction: Some(former), ..self }
    }

    pub(crate) fn policy_mut(&mut self) -> &mut Policy {
        self.policy.get_or_insert_default()
    }
}

/// Judging others.
impl Keyring {
    /// Returns what this end shows to one that knows it by a name, in at most
    /// [`MAX_PRESENTATION_BYTES`](crate::MAX_PRESENTATION_BYTES): its key, and the grants with this right
    /// that fit the name. Of several grants it takes those that expire last, of two authorities if it can. An
    /// empty instance stands for any instance, and an empty type for any name. A grant for a segment also
    /// fits the name under which a registry lists it.
    pub fn presentation(&self, type_name: &str, instance: &str, right: Right) -> Vec<u8> {
        self.presentation_for(&[(type_name, instance)], right)
    }

    /// Returns what this end shows to one that knows it by several names, each with its type and instance, as
    /// [`Keyring::presentation`] does for one. While there is room, each name in turn gets a grant that fits
    /// it, unless one fits that an earlier name got.
    pub fn presentation_for(&self, names: &[(&str, &str)], right: Right) -> Vec<u8> {
        let fits = |grant: &Grant, (type_name, instance): (&str, &str)| {
            let listed = segment::without_machine(type_name, instance);
            let mut instances = [Some(instance), listed].into_iter().flatten();
            instances.any(|instance| grant.terms().scope.meets(type_name, instance))
        };
        let has_right = |grant: &&Grant| grant.terms().rights.has(right);
        let fits_any = |grant: &&Grant| names.iter().any(|name| fits(grant, *name));
        let mut rest: Vec<&Grant> = self.grants.iter().filter(has_right).filter(fits_any).collect();
        rest.sort_by_key(|grant| std::cmp::Reverse(grant.terms().expires));
        let mut shown: Vec<&Grant> = Vec::new();
        for name in names {
            if shown.len() == MAX_GRANTS_SHOWN {
                break;
            }
            let has_one = shown.iter().any(|grant| fits(grant, *name));
            let best = rest.iter().position(|grant| !has_one && fits(grant, *name));
            shown.extend(best.map(|at| rest.remove(at)));
        }
        // The sort is stable: of another authority, the last to expire comes next.
        rest.sort_by_key(|grant| shown.iter().any(|first| first.authority() == grant.authority()));
        let shown = shown.into_iter().chain(rest).take(MAX_GRANTS_SHOWN).cloned();
        Presentation::new(self.identity.public(), shown).encode()
    }

    /// Judges whether the key that a server shows may answer for a name, at a time in Unix seconds. An empty
    /// instance asks for any instance of the type, and an empty type for any key that may answer for
    /// anything. This end's own key may answer for the names of clerks, unless it is revoked.
    ///
    /// The presentation proves nothing by itself. The caller makes the handshake with the
    /// [exchange key](PublicKey::exchange_key) of the principal's key.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn check_server(
        &self,
        type_name: &str,
        instance: &str,
        presentation: &[u8],
        now: u64,
    ) -> Result<Principal, Refusal> {
        let shown = decode(presentation)?;
        let asked = Asked::Server { type_name: type_name.into(), instance: instance.into() };
        self.judge(shown.key(), shown.grants(), asked, now, Moment::Binding)
    }

    /// Judges which principal a client is, at a time in Unix seconds. `exchange_key` is the client's static
    /// key in the handshake. What the principal may use, [`Keyring::admit`] says. This end's own key needs no
    /// line and no grant to use the names of clerks.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn check_client(
        &self,
        exchange_key: &[u8; 32],
        presentation: &[u8],
        now: u64,
    ) -> Result<Principal, Refusal> {
        let shown = decode(presentation)?;
        if shown.key().exchange_key() != *exchange_key {
            return Err(Refusal::new(
                RefusalKind::OtherKey,
                "a handshake by the key that is shown",
                format!("a handshake by another key than {}", shown.key()),
                "the client is broken, or somebody imitates it",
            ));
        }
        self.judge(shown.key(), shown.grants(), Asked::Client, now, Moment::Binding)
    }

    /// Says what a client may do with an export, at a time in Unix seconds, when it binds to it: its scope
    /// must cover the name, and the policy decides about the rest.
    ///
    /// # Errors
    /// If it no longer stands, or no grant and no line of `authorized_keys` covers the name.
    pub fn admit(
        &self,
        client: &Principal,
        type_name: &str,
        instance: &str,
        now: u64,
    ) -> Result<Decision, Refusal> {
        self.decide(client, type_name, instance, now, Moment::Binding)
    }

    /// Says what a client that is bound to an export may still do with it, as [`Keyring::admit`] does. A
    /// stale revocation list does not end what is bound.
    ///
    /// # Errors
    /// As [`Keyring::admit`].
    pub fn still_admits(
        &self,
        client: &Principal,
        type_name: &str,
        instance: &str,
        now: u64,
    ) -> Result<Decision, Refusal> {
        self.decide(client, type_name, instance, now, Moment::Bound)
    }

    /// Checks that a principal, whom this or an earlier keyring accepted, is still accepted at a time in Unix
    /// seconds: neither revoked nor expired, and not removed from a key file. A client is accepted while all
    /// its lines and grants count by which it was accepted, or those that still count let it as much: a call
    /// may be under way by any of them. A stale revocation list does not end what is bound.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn still_stands(&self, principal: &Principal, now: u64) -> Result<(), Refusal> {
        let again = self.rejudge(principal, now, Moment::Bound)?;
        match principal.lost(&again) {
            None => Ok(()),
            Some(scope) => Err(Refusal::new(
                RefusalKind::WrongName,
                format!("the right to import {scope}, by which calls may be under way"),
                "that it was revoked, has expired or was removed",
                "bind again: what is left counts then",
            )),
        }
    }

    fn rejudge(&self, principal: &Principal, now: u64, moment: Moment) -> Result<Principal, Refusal> {
        let again = self.judge(principal.key, &principal.grants, principal.asked.clone(), now, moment)?;
        if again.name != principal.name {
            return Err(Refusal::new(
                RefusalKind::OtherPrincipal,
                format!("the principal {:?}", principal.name),
                format!("{:?}, who the key {} is now", again.name, principal.key),
                "bind again",
            ));
        }
        Ok(again)
    }

    fn decide(
        &self,
        client: &Principal,
        type_name: &str,
        instance: &str,
        now: u64,
        moment: Moment,
    ) -> Result<Decision, Refusal> {
        let client = self.rejudge(client, now, moment)?;
        let is_own = client.key == self.identity.public() && client.right() == Right::Import;
        if is_own && segment::is_of_clerk(type_name, instance) {
            return Ok(Decision::without_policy());
        }
        let scopes = client.scopes();
        if client.right() != Right::Import || !scopes.clone().any(|scope| scope.covers(type_name, instance)) {
            if is_own && segment::is_segment(type_name) {
                // The clerk of programs with this key asks them what they export.
                return Ok(Decision::facts_alone());
            }
            let found = scopes.map(Scope::to_string).collect::<Vec<_>>().join(", ");
            return Err(Refusal::new(
                RefusalKind::WrongName,
                format!("the right to import {type_name}/{instance}"),
                format!("that {:?} may import {found}", client.name),
                "add a line to authorized_keys, or sign a grant for this name (`farcall keys grant`)",
            ));
        }
        let by = |policy: &Option<Policy>| match policy {
            Some(policy) => policy.rights(&client.name, type_name, instance),
            None => Decision::without_policy(),
        };
        let decision = by(&self.policy);
        Ok(match self.restriction.as_ref().map(by) {
            Some(restriction) => decision.restricted_by(restriction),
            None => decision,
        })
    }
}

/// What a keyring has.
impl Keyring {
    /// Returns this end's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the grants that this end may show.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns the trusted authorities, in the order of their keys.
    pub fn authorities(&self) -> impl Iterator<Item = &Authority> {
        self.authorities.values()
    }

    /// Returns the clients that are known without a grant, in the order of their keys.
    pub fn authorized_keys(&self) -> impl Iterator<Item = &AuthorizedKey> {
        self.authorized.values().flatten()
    }

    /// Returns the servers that are known without a grant, in the order of their types.
    pub fn known_servers(&self) -> impl Iterator<Item = &KnownServer> {
        self.known.values().flatten()
    }

    /// Returns the revocation lists, one for an authority at most.
    pub fn revocations(&self) -> impl Iterator<Item = &RevocationList> {
        self.revocations.values()
    }

    /// Returns the policy, if there is one.
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Returns the name of a client's key in `authorized_keys`.
    fn authorized_name(&self, key: &PublicKey) -> Option<&PrincipalName> {
        self.authorized.get(key)?.first().map(|line| &line.principal)
    }
}

/// Returns the fault that a revocation list is older than one that was loaded before.
pub(crate) fn older_list(authority: PublicKey, known: u64, found: &str) -> LineFault {
    LineFault::new(
        format!(
            "a revocation list of {authority} with a serial of at least {known}, which was loaded before"
        ),
        found,
        "ask the authority for its newest list: an old one would let revoked keys in again",
    )
}

fn decode(presentation: &[u8]) -> Result<Presentation, Refusal> {
    Presentation::decode(presentation).map_err(|why| {
        Refusal::new(
            RefusalKind::Malformed,
            "a presentation of a key and its grants",
            why.to_string(),
            "use a version of farcall at the other end that this one understands",
        )
    })
}
