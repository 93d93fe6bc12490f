//! What the registry of names says of the segments of machines.
//!
//! The registry knows each segment, and each clerk's table, as an instance of the type of segments. The instance's name
//! ends with the address of its machine.

use std::net::{IpAddr, SocketAddr};

use super::entry::Entry;
use super::{COUNTERS, TABLE, mailbox};
use crate::access::TYPE;
use farcall_names::{Label, Registry};

/// Whether a name is kept for segments that farcall itself exports.
pub(super) fn is_reserved(name: &str) -> bool {
    name == TABLE || name == mailbox::NAME || name == COUNTERS
}

/// Returns the instance as which the registry knows a segment of a machine.
pub(super) fn instance(name: &str, machine: IpAddr) -> String {
    format!("{name}.{}", machine.to_string().replace(':', "-"))
}

/// Returns the segments that the registry says are exported on a machine, but for those that farcall itself exports.
pub(super) fn exported(registry: &dyn Registry, machine: IpAddr) -> Vec<(SocketAddr, String)> {
    let suffix = instance("", machine);
    let exported = segments(registry).into_iter().filter_map(|(address, instance)| {
        let name = instance.as_str().strip_suffix(&suffix)?.to_owned();
        (!is_reserved(&name) && address.ip() == machine).then_some((address, name))
    });
    exported.collect()
}

/// Whether the registry knows a segment of a machine at the entry's address. A registry that fails may know it.
pub(super) fn is_listed(registry: &dyn Registry, entry: &Entry, machine: IpAddr) -> bool {
    let Some((kind, instance)) = labels(&instance(&entry.name, machine)) else { return false };
    match registry.lookup(&kind, &instance) {
        Ok(listed) => listed.is_some_and(|listed| listed.address == entry.address.into()),
        Err(_) => true,
    }
}

/// Returns the clerks of the other machines of which the registry says that they export the name.
pub(super) fn homes(registry: &dyn Registry, name: &str, machine: IpAddr) -> Vec<SocketAddr> {
    let is_elsewhere =
        |(at, known): &(SocketAddr, Label)| at.ip() != machine && known.as_str() == instance(name, at.ip());
    let there = segments(registry).into_iter().filter(is_elsewhere);
    there.filter_map(|(at, _)| clerk_of(registry, at.ip())).collect()
}

/// Returns where the clerk of a machine is, if the registry knows one.
pub(super) fn clerk_of(registry: &dyn Registry, machine: IpAddr) -> Option<SocketAddr> {
    let (kind, instance) = labels(&instance(TABLE, machine))?;
    registry.lookup(&kind, &instance).ok()??.address.socket()
}

/// Returns the segments that the registry knows: where, and as what.
fn segments(registry: &dyn Registry) -> Vec<(SocketAddr, Label)> {
    let Some((kind, _)) = labels(TABLE) else { return Vec::new() };
    let entries = registry.instances(&kind).unwrap_or_default().into_iter();
    entries.filter_map(|entry| Some((entry.address.socket()?, entry.instance))).collect()
}

fn labels(instance: &str) -> Option<(Label, Label)> {
    Some((TYPE.parse().ok()?, instance.parse().ok()?))
}
