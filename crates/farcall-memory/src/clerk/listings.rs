//! The segments of a machine according to the registry of names, from which a machine's clerk (its name
//! service for segments) learns of them.
//!
//! The registry lists each segment, and each clerk's table, as an instance of the type `Memory`. The
//! instance's name ends with the address of the segment's machine.

use std::net::{IpAddr, SocketAddr};

use super::entry::Entry;
use super::{COUNTERS, TABLE, mailbox};
use crate::access::TYPE;
use farcall_names::{Label, Registry};

/// Returns whether a name is reserved for segments that farcall itself exports.
pub(super) fn is_reserved(name: &str) -> bool {
    name == TABLE || name == mailbox::NAME || name == COUNTERS
}

/// Returns the instance as which the registry lists a segment of a machine.
pub(super) fn instance(name: &str, machine: IpAddr) -> String {
    format!("{name}.{}", machine.to_string().replace(':', "-"))
}

/// Returns the segments that the registry lists for a machine, except those that farcall itself exports.
pub(super) fn exported(registry: &dyn Registry, machine: IpAddr) -> Vec<(SocketAddr, String)> {
    let suffix = instance("", machine);
    let exported = segments(registry).into_iter().filter_map(|(address, instance)| {
        let name = instance.as_str().strip_suffix(&suffix)?.to_owned();
        (!is_reserved(&name) && address.ip() == machine).then_some((address, name))
    });
    exported.collect()
}

/// Returns whether the registry lists a segment of a machine at the entry's address. Returns `None` if the
/// registry fails, because the segment may be listed.
pub(super) fn is_listed(registry: &dyn Registry, entry: &Entry, machine: IpAddr) -> Option<bool> {
    let Some((kind, instance)) = labels(&instance(&entry.name, machine)) else { return Some(false) };
    let listed = registry.lookup(&kind, &instance).ok()?;
    Some(listed.is_some_and(|listed| listed.sockets().any(|at| at == entry.address)))
}

/// Returns the clerks of the other machines that export the name according to the registry.
pub(super) fn homes(registry: &dyn Registry, name: &str, machine: IpAddr) -> Vec<SocketAddr> {
    let is_elsewhere =
        |(at, known): &(SocketAddr, Label)| at.ip() != machine && known.as_str() == instance(name, at.ip());
    let there = segments(registry).into_iter().filter(is_elsewhere);
    there.filter_map(|(at, _)| clerk_of(registry, at.ip())).collect()
}

/// Returns the address of a machine's clerk, if the registry lists one.
pub(super) fn clerk_of(registry: &dyn Registry, machine: IpAddr) -> Option<SocketAddr> {
    let (kind, instance) = labels(&instance(TABLE, machine))?;
    registry.lookup(&kind, &instance).ok()??.address.socket()
}

/// Returns the addresses and instances of all segments that the registry lists.
fn segments(registry: &dyn Registry) -> Vec<(SocketAddr, Label)> {
    let Some((kind, _)) = labels(TABLE) else { return Vec::new() };
    let entries = registry.instances(&kind).unwrap_or_default().into_iter();
    entries.filter_map(|entry| Some((entry.address.socket()?, entry.instance))).collect()
}

fn labels(instance: &str) -> Option<(Label, Label)> {
    Some((TYPE.parse().ok()?, instance.parse().ok()?))
}
