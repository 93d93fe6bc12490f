//! The instances of a type as a group. The group follows the registry.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall_names::{Address, Entry, Label, Name};

use super::bind::{Target, parse};
use super::import::{binding, binding_to};
use super::{Inner, Runtime, registry_failed};
use crate::env::Time;
use crate::multi::{Fixed, Group, Member, Members, Roster};
use crate::stub::Interface;
use crate::{CallFailed, Kind, Ran, context, idl, lock};

/// How long to wait for members that do not answer while the members of a group are bound. A member that has
/// not answered is bound by its first call, which delays no other member.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// Imports all instances of a type. If the name is that of an instance, or an address, the group has one
/// member.
pub(super) fn import_all<T: ?Sized + Interface>(
    runtime: &Runtime,
    name: &str,
) -> Result<Group<T::Client>, CallFailed> {
    Ok(Group::living(roster(runtime, name, Cow::Borrowed(T::interface()))?))
}

/// Returns the present and future exporters of an interface under a name.
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

/// Imports the members with these names, and binds all of them at once. A member that cannot be bound now is
/// bound by its first call.
pub(super) fn import_each<T: ?Sized + Interface>(
    runtime: &Runtime,
    names: &[&str],
) -> Result<Group<T::Client, Fixed>, CallFailed> {
    let inner = &runtime.0;
    let parsed = names.iter().map(|name| parse(name)).collect::<Result<Vec<_>, _>>()?;
    let known: Vec<(usize, (Vec<SocketAddr>, String))> = parsed
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
    /// Returns the addresses of an instance and its name there, if both are known without asking the instance.
    fn whereabouts(&self, name: &Name) -> Option<(Vec<SocketAddr>, String)> {
        match name {
            Name::Instance { type_name, instance } => {
                let entry = self.registry.lookup(type_name, instance).ok().flatten()?;
                Some((entry.sockets_from_here(), entry.asked_name()))
            }
            // A name that asks for shared memory is bound by its first call.
            Name::At { address: address @ Address::Udp(_), type_name, instance: Some(instance) } => {
                Some((vec![address.socket()?], format!("{type_name}/{instance}")))
            }
            _ => None,
        }
    }

    /// Returns until when to wait for the answers of members that are being bound.
    fn bound_by(&self) -> Time {
        let deadline = self.env.now() + BIND_PATIENCE;
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

/// The members of the group, as of one version of the registry.
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
    /// Returns the members. If the registry fails, returns the members that it knew last.
    fn members(&self) -> Members {
        self.follow().unwrap_or_else(|_| lock(&self.known).members.clone())
    }
}

impl Follower {
    /// Returns the members that the registry knows now.
    fn follow(&self) -> Result<Members, CallFailed> {
        let registry = &self.inner.registry;
        let version = registry.version().map_err(registry_failed)?;
        let known = {
            let known = lock(&self.known);
            if known.version == Some(version) {
                return Ok(known.members.clone());
            }
            known.members.clone()
        };
        let entries = registry.instances(&self.type_name).map_err(registry_failed)?;
        let members = self.renew(&known, &entries)?;
        *lock(&self.known) = Known { version: Some(version), members: members.clone() };
        Ok(members)
    }

    /// Returns the members for these entries. Known members stay as they are. The others are bound, all at
    /// once.
    fn renew(&self, known: &Members, entries: &[Entry]) -> Result<Members, CallFailed> {
        let known: HashMap<&str, &Member> = known.iter().map(|member| (member.name(), member)).collect();
        let joining = |entry: &Entry| {
            let name = Some(entry.name()).filter(|name| !known.contains_key(&name[..]))?;
            Some((name, (entry.sockets_from_here(), entry.asked_name())))
        };
        let (joining, asked): (Vec<String>, Vec<_>) = entries.iter().filter_map(joining).unzip();
        let mut targets = HashMap::new();
        if !joining.is_empty() {
            let bound = self.inner.bind_each(&asked, &self.interface, self.inner.bound_by())?;
            targets.extend(joining.into_iter().zip(bound));
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
