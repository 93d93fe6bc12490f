//! The segments of a machine according to the registry of names, from which a machine's clerks (its name
//! services for segments) learn of them.
//!
//! The registry lists each segment, and each clerk's table, as an instance of the type `Memory`. The
//! instance's name ends with the address of the segment's machine. A clerk without keys is called `clerk`;
//! one with keys also has the beginning of its key in its name, so that clerks of several identities stand
//! side by side, and nobody can take the name of all. A runtime with keys believes the clerks that its
//! registry calls genuine. One without keys does not call what has keys, because nobody there would answer
//! it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::Signatures::{Checked, Unchecked};
use super::entry::Entry;
use super::{CLERK_NAMES, COUNTERS, ClerkRuntime, TABLE, mailbox};
use crate::access::TYPE;
use farcall_core::CallFailed;
use farcall_core::context::inherited;
use farcall_names::{Label, Registry};

/// The most clerks of a machine, and exporters of a name, that are looked at: whoever writes the registry can
/// list any number.
const MAX_CANDIDATES: usize = 16;

/// The number of hexadecimal digits of a key in the name of its clerk.
const KEY_DIGITS: usize = 16;

/// A clerk as the registry lists it.
pub(super) struct ListedClerk {
    pub(super) address: SocketAddr,
    pub(super) instance: Label,
}

/// What the registry lists for a machine.
pub(super) struct Exported {
    /// The names of segments, and where to ask for them.
    pub(super) segments: Vec<(SocketAddr, String)>,
    /// The same, with all addresses of each.
    pub(super) listed: BTreeSet<(String, SocketAddr)>,
}

/// Returns whether a name is reserved for segments that farcall itself exports.
pub(super) fn is_reserved(name: &str) -> bool {
    is_clerk(name) || [mailbox::NAME, CLERK_NAMES, COUNTERS].contains(&name)
}

/// Returns whether a clerk's table is listed under this name.
fn is_clerk(name: &str) -> bool {
    let is_key = |key: &str| key.len() == KEY_DIGITS && key.bytes().all(|digit| digit.is_ascii_hexdigit());
    name == TABLE || name.strip_prefix(TABLE).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_key)
}

/// Returns the instance as which the registry lists a segment of a machine.
pub(super) fn instance(name: &str, machine: IpAddr) -> String {
    format!("{name}.{}", machine.to_string().replace(':', "-"))
}

/// Returns the instance as which the registry lists the clerk that a runtime starts on a machine.
pub(super) fn instance_of_clerk(runtime: &dyn ClerkRuntime, machine: IpAddr) -> String {
    match runtime.key_prefix() {
        Some(key) => instance(&format!("{TABLE}-{key:0digits$x}", digits = KEY_DIGITS), machine),
        None => instance(TABLE, machine),
    }
}

/// Returns the segments that the registry lists for a machine, except those that farcall itself exports.
/// Returns `None` if the registry fails.
pub(super) fn exported(runtime: &dyn ClerkRuntime, machine: IpAddr) -> Option<Exported> {
    let (kind, _) = labels(TABLE)?;
    let suffix = instance("", machine);
    let (mut segments, mut listed) = (Vec::new(), BTreeSet::new());
    for entry in runtime.listed(Checked, &kind, None).ok()? {
        let Some(name) = entry.instance.as_str().strip_suffix(&suffix) else { continue };
        if is_reserved(name) {
            continue;
        }
        listed.extend(entry.sockets().map(|at| (name.to_owned(), at)));
        let address = entry.address.socket().filter(|at| at.ip() == machine);
        if let Some(address) = address.filter(|_| is_for(runtime, &entry)) {
            segments.push((address, name.to_owned()));
        }
    }
    Some(Exported { segments, listed })
}

/// Returns whether the registry lists a segment of a machine at the entry's address. Returns `None` if the
/// registry fails, because the segment may be listed.
pub(super) fn is_listed(registry: &dyn Registry, entry: &Entry, machine: IpAddr) -> Option<bool> {
    let Some((kind, instance)) = labels(&instance(&entry.name, machine)) else { return Some(false) };
    let listed = registry.lookup(&kind, &instance).ok()?;
    Some(listed.is_some_and(|listed| listed.sockets().any(|at| at == entry.address)))
}

/// Returns where a machine exports a segment of this name, if the registry lists one for this runtime.
pub(super) fn exporter_of(runtime: &dyn ClerkRuntime, name: &str, machine: IpAddr) -> Option<SocketAddr> {
    let (kind, instance) = labels(&instance(name, machine)).filter(|_| !is_reserved(name))?;
    let listed = lookup(runtime, (&kind, &instance)).ok()?;
    let listed = listed.filter(|entry| is_for(runtime, entry))?;
    listed.sockets().find(|at| at.ip() == machine)
}

/// Returns where segments of this name are exported according to the registry, on this machine first.
pub(super) fn exporters_of(runtime: &dyn ClerkRuntime, name: &str, machine: IpAddr) -> Vec<SocketAddr> {
    let here = exporter_of(runtime, name, machine);
    let elsewhere = machines_of(runtime, name).into_iter().filter(|ip| *ip != machine);
    here.into_iter().chain(elsewhere.filter_map(|ip| exporter_of(runtime, name, ip))).collect()
}

/// Returns the clerks of the other machines that export the name according to the registry.
pub(super) fn homes(runtime: &dyn ClerkRuntime, name: &str, machine: IpAddr) -> Vec<SocketAddr> {
    let elsewhere = machines_of(runtime, name).into_iter().filter(|ip| *ip != machine);
    elsewhere.filter_map(|ip| Some(clerks_of(runtime, ip).into_iter().next()?.address)).collect()
}

/// Returns the machines for which the registry has the name, whoever has written that.
fn machines_of(runtime: &dyn ClerkRuntime, name: &str) -> BTreeSet<IpAddr> {
    let Some((kind, _)) = labels(TABLE) else { return BTreeSet::new() };
    let entries = unchecked(runtime, &kind).into_iter();
    let machines = entries.filter_map(|entry| {
        let ip = entry.address.socket()?.ip();
        (entry.instance.as_str() == instance(name, ip)).then_some(ip)
    });
    machines.take(MAX_CANDIDATES).collect()
}

/// Returns the clerks of a machine that a runtime believes.
pub(super) fn clerks_of(runtime: &dyn ClerkRuntime, machine: IpAddr) -> Vec<ListedClerk> {
    let Some((kind, plain)) = labels(&instance(TABLE, machine)) else { return Vec::new() };
    let instances = match runtime.key_prefix() {
        None => vec![plain],
        Some(_) => {
            let suffix = instance("", machine);
            let listed = unchecked(runtime, &kind).into_iter();
            let clerks = listed.map(|entry| entry.instance);
            clerks.filter(|label| label.as_str().strip_suffix(&suffix).is_some_and(is_clerk)).collect()
        }
    };
    let believed = instances.into_iter().take(MAX_CANDIDATES).filter_map(|instance| {
        let entry = lookup(runtime, (&kind, &instance)).ok()??;
        let address = entry.address.socket().filter(|_| is_for(runtime, &entry))?;
        Some(ListedClerk { address, instance })
    });
    believed.collect()
}

/// Returns the address at which the registry lists the clerk of this runtime's own keys, or of programs
/// without keys, whoever has written that.
pub(super) fn own_clerk(runtime: &dyn ClerkRuntime, machine: IpAddr) -> Option<SocketAddr> {
    let (kind, instance) = labels(&instance_of_clerk(runtime, machine))?;
    runtime.listed(Unchecked, &kind, Some(&instance)).ok()?.pop()?.address.socket()
}

/// Returns which clerks of a machine, and which exporters of a name, the registry lists and this runtime
/// passes over, and why.
#[cold]
pub(super) fn passed_over(runtime: &dyn ClerkRuntime, name: &str, machine: IpAddr) -> Vec<String> {
    /// The most that a message names.
    const MAX_NAMED: usize = 4;
    let Some((kind, _)) = labels(TABLE) else { return Vec::new() };
    let entries = unchecked(runtime, &kind).into_iter();
    let here = instance("", machine);
    let passed = entries.filter_map(|entry| {
        let at = entry.address.socket()?;
        let listed = entry.instance.as_str();
        let what = match listed.strip_suffix(&here).is_some_and(is_clerk) {
            true => format!("the clerk {listed} at {at}"),
            false if listed == instance(name, at.ip()) => format!("the exporter at {at}"),
            false => return None,
        };
        if !is_for(runtime, &entry) {
            return Some(format!("{what} was passed over, because it has keys and this program has none"));
        }
        let why = lookup(runtime, (&kind, &entry.instance)).err()?;
        Some(format!("{what} was passed over, because it is not believed: {why}"))
    });
    passed.take(MAX_NAMED).collect()
}

/// Returns whether the registry still lists a clerk, for this runtime.
pub(super) fn is_clerk_listed(runtime: &dyn ClerkRuntime, clerk: &ListedClerk) -> bool {
    let Some((kind, _)) = labels(TABLE) else { return false };
    let listed = lookup(runtime, (&kind, &clerk.instance));
    match listed {
        Ok(listed) => listed.and_then(|entry| entry.address.socket()) == Some(clerk.address),
        // That this thread has no more time says nothing of the clerk.
        Err(_) => remaining(runtime) == Some(Duration::ZERO),
    }
}

/// Returns the entry of an instance whose signature is good.
fn lookup(
    runtime: &dyn ClerkRuntime,
    (kind, instance): (&Label, &Label),
) -> Result<Option<farcall_names::Entry>, CallFailed> {
    Ok(runtime.listed(Checked, kind, Some(instance))?.pop())
}

/// Returns the entries of a type, with or without a good signature.
fn unchecked(runtime: &dyn ClerkRuntime, kind: &Label) -> Vec<farcall_names::Entry> {
    runtime.listed(Unchecked, kind, None).unwrap_or_default()
}

/// Returns how much time this thread has: what is left of that of the call that it serves, or of one that its
/// program has set for all that waits.
pub(super) fn remaining(runtime: &dyn ClerkRuntime) -> Option<Duration> {
    Some(inherited().0?.since(runtime.env().now()))
}

/// Returns whether a runtime can call the exporter of an entry of its registry: one without keys calls no
/// exporter that has keys.
fn is_for(runtime: &dyn ClerkRuntime, entry: &farcall_names::Entry) -> bool {
    entry.proof.is_empty() || runtime.key_prefix().is_some()
}

fn labels(instance: &str) -> Option<(Label, Label)> {
    Some((TYPE.parse().ok()?, instance.parse().ok()?))
}
