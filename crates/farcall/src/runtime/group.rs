//! The instances of a type as a group, followed in the registry.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall_names::{Address, Entry, Label, Name};

use super::bind::parse;
use super::import::{binding_to, client};
use super::{Inner, Runtime};
use crate::multi::{Group, Member, Members, Roster};
use crate::stub::{Client, Interface};
use crate::{CallFailed, Kind, Ran, context, idl};

/// How long to wait for members that do not answer when they are bound. Later they cost nobody but themselves:
/// each is bound by its first call.
const PATIENCE: Duration = Duration::from_secs(1);

/// All instances of a type; the group of an instance, or of an address, is that alone.
pub(super) fn import_all<T: ?Sized + Interface>(runtime: &Runtime, name: &str) -> Result<Group<T::Client>, CallFailed> {
    let name = parse(name)?;
    let Name::Type(type_name) = &name else {
        let only = Member::new(name.to_string(), client::<T>(runtime, name)?.binding().clone());
        return Ok(Group::living(Arc::new(Members::new(vec![only]))));
    };
    let (inner, type_name) = (runtime.0.clone(), type_name.clone());
    let roster = Follower { inner, type_name, interface: T::interface(), known: Mutex::default() };
    if roster.follow()?.is_empty() {
        return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("nobody exports {name}")));
    }
    Ok(Group::living(Arc::new(roster)))
}

/// Follows the instances of a type.
struct Follower {
    inner: Arc<Inner>,
    type_name: Label,
    interface: &'static idl::Interface,
    known: Mutex<Known>,
}

/// The members at one version of the registry.
struct Known {
    version: Option<u64>,
    members: Members,
}

impl Default for Known {
    fn default() -> Known {
        Known { version: None, members: Members::new(Vec::new()) }
    }
}

impl Roster for Follower {
    /// A registry that fails now may not fail later: until then the members are those that it knew.
    fn members(&self) -> Members {
        self.follow().unwrap_or_else(|_| self.lock().members.clone())
    }
}

impl Follower {
    /// The members as the registry knows them.
    fn follow(&self) -> Result<Members, CallFailed> {
        let failed = |why: farcall_names::Error| CallFailed::new(Kind::Registry, Ran::No).caused_by(why);
        let registry = &self.inner.registry;
        let version = registry.version().map_err(failed)?;
        let known = {
            let known = self.lock();
            if known.version == Some(version) {
                return Ok(known.members.clone());
            }
            known.members.clone()
        };
        let entries = registry.instances(&self.type_name).map_err(failed)?;
        let members = self.renew(&known, &entries)?;
        *self.lock() = Known { version: Some(version), members: members.clone() };
        Ok(members)
    }

    /// The members of these entries: those that are known stay as they are, the others are bound at once.
    fn renew(&self, known: &Members, entries: &[Entry]) -> Result<Members, CallFailed> {
        let known: HashMap<&str, &Member> = known.iter().map(|member| (member.name(), member)).collect();
        let joining = |entry: &Entry| match entry.address {
            Address::Udp(address) if !known.contains_key(&entry.name()[..]) => Some((address, entry.name())),
            _ => None,
        };
        let joining: Vec<(SocketAddr, String)> = entries.iter().filter_map(joining).collect();
        let mut deadline = self.inner.env.now() + PATIENCE;
        if let Some(inherited) = context::inherited().0 {
            deadline = deadline.min(inherited);
        }
        let mut targets = HashMap::new();
        if !joining.is_empty() {
            let bound = self.inner.bind_each(&joining, self.interface, deadline)?;
            targets.extend(joining.into_iter().map(|(_, name)| name).zip(bound));
        }
        let member = |entry: &Entry| {
            let name = entry.name();
            if let Some(&member) = known.get(&name[..]) {
                return member.clone();
            }
            let target = targets.remove(&name).flatten();
            let instance = Name::Instance { type_name: entry.type_name.clone(), instance: entry.instance.clone() };
            Member::new(name, binding_to(&self.inner, instance, Cow::Borrowed(self.interface), target))
        };
        Ok(Members::new(entries.iter().map(member).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
