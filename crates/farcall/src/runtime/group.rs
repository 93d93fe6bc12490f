//! The instances of a type as a group, followed in the registry.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall_names::{Address, Entry, Label, Name};

use super::bind::{Target, parse};
use super::import::{binding, binding_to};
use super::{Inner, Runtime};
use crate::env::Time;
use crate::multi::{Fixed, Group, Member, Members, Roster};
use crate::stub::Interface;
use crate::{CallFailed, Kind, Ran, context, idl, lock};

/// How long to wait for members that do not answer when they are bound. Later they cost nobody but
/// themselves: each is bound by its first call.
const PATIENCE: Duration = Duration::from_secs(1);

/// All instances of a type; the group of an instance, or of an address, is that alone.
pub(super) fn import_all<T: ?Sized + Interface>(
    runtime: &Runtime,
    name: &str,
) -> Result<Group<T::Client>, CallFailed> {
    Ok(Group::living(roster(runtime, name, Cow::Borrowed(T::interface()))?))
}

/// Who exports that interface under a name, from now on.
pub(super) fn roster(
    runtime: &Runtime,
    name: &str,
    interface: Cow<'static, idl::Interface>,
) -> Result<Arc<dyn Roster>, CallFailed> {
    let name = parse(name)?;
    let Name::Type(type_name) = &name else {
        let only = Member::new(name.to_string(), binding(runtime, name, interface, None)?);
        return Ok(Arc::new(Members::new(vec![only])));
    };
    let (inner, type_name) = (runtime.0.clone(), type_name.clone());
    let follower = Follower { inner, type_name, interface, known: Mutex::default() };
    if follower.follow()?.is_empty() {
        return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("nobody exports {name}")));
    }
    Ok(Arc::new(follower))
}

/// The members of these names, which are all bound at once. Who has none is bound by its first call.
pub(super) fn import_each<T: ?Sized + Interface>(
    runtime: &Runtime,
    names: &[&str],
) -> Result<Group<T::Client, Fixed>, CallFailed> {
    let inner = &runtime.0;
    let parsed = names.iter().map(|name| parse(name)).collect::<Result<Vec<_>, _>>()?;
    let known: Vec<(usize, (SocketAddr, String))> = parsed
        .iter()
        .enumerate()
        .filter_map(|(which, name)| Some((which, inner.whereabouts(name)?)))
        .collect();
    let (places, instances): (Vec<usize>, Vec<_>) = known.into_iter().unzip();
    let mut targets: Vec<Option<Target>> = names.iter().map(|_| None).collect();
    if !instances.is_empty() {
        let bound = inner.bind_each(&instances, T::interface(), inner.bound_by())?;
        places.into_iter().zip(bound).for_each(|(place, target)| targets[place] = target);
    }
    let member = |((name, parsed), target): ((&&str, Name), _)| {
        Member::new(*name, binding_to(inner, parsed, Cow::Borrowed(T::interface()), target))
    };
    let members = names.iter().zip(parsed).zip(targets).map(member).collect();
    Ok(Group::known(Members::new(members)))
}

impl Inner {
    /// Where an instance is, and what it is called there, as far as that is known without asking it.
    fn whereabouts(&self, name: &Name) -> Option<(SocketAddr, String)> {
        match name {
            Name::Instance { type_name, instance } => {
                let entry = self.registry.lookup(type_name, instance).ok().flatten()?;
                Some((entry.address.socket()?, name.to_string()))
            }
            // (A name that wants shared memory is bound by its first call.)
            Name::At { address: address @ Address::Udp(_), type_name, instance: Some(instance) } => {
                Some((address.socket()?, format!("{type_name}/{instance}")))
            }
            _ => None,
        }
    }

    /// Until when members that are bound are waited for.
    fn bound_by(&self) -> Time {
        let deadline = self.env.now() + PATIENCE;
        context::inherited().0.map_or(deadline, |inherited| deadline.min(inherited))
    }
}

/// Follows the instances of a type.
struct Follower {
    inner: Arc<Inner>,
    type_name: Label,
    interface: Cow<'static, idl::Interface>,
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
        self.follow().unwrap_or_else(|_| lock(&self.known).members.clone())
    }
}

impl Follower {
    /// The members as the registry knows them.
    fn follow(&self) -> Result<Members, CallFailed> {
        let failed = |why: farcall_names::Error| CallFailed::new(Kind::Registry, Ran::No).caused_by(why);
        let registry = &self.inner.registry;
        let version = registry.version().map_err(failed)?;
        let known = {
            let known = lock(&self.known);
            if known.version == Some(version) {
                return Ok(known.members.clone());
            }
            known.members.clone()
        };
        let entries = registry.instances(&self.type_name).map_err(failed)?;
        let members = self.renew(&known, &entries)?;
        *lock(&self.known) = Known { version: Some(version), members: members.clone() };
        Ok(members)
    }

    /// The members of these entries: those that are known stay as they are, the others are bound at once.
    fn renew(&self, known: &Members, entries: &[Entry]) -> Result<Members, CallFailed> {
        let known: HashMap<&str, &Member> = known.iter().map(|member| (member.name(), member)).collect();
        let joining = |entry: &Entry| {
            let name = Some(entry.name()).filter(|name| !known.contains_key(&name[..]))?;
            Some((entry.address.socket()?, name))
        };
        let joining: Vec<(SocketAddr, String)> = entries.iter().filter_map(joining).collect();
        let mut targets = HashMap::new();
        if !joining.is_empty() {
            let bound = self.inner.bind_each(&joining, &self.interface, self.inner.bound_by())?;
            targets.extend(joining.into_iter().map(|(_, name)| name).zip(bound));
        }
        let member = |entry: &Entry| {
            let name = entry.name();
            if let Some(&member) = known.get(&name[..]) {
                return member.clone();
            }
            let target = targets.remove(&name).flatten();
            let instance =
                Name::Instance { type_name: entry.type_name.clone(), instance: entry.instance.clone() };
            Member::new(name, binding_to(&self.inner, instance, self.interface.clone(), target))
        };
        Ok(Members::new(entries.iter().map(member).collect()))
    }
}
