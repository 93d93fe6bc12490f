//! From a name to an export at some address.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall_names::{Address, Label, Name, NameError};
use farcall_proto::Failure;
use farcall_proto::client::Bound;

use super::Inner;
use crate::client::{Endpoint, Peer};
use crate::env::Time;
use crate::idl;
use crate::shm::Link;
use crate::{CallFailed, Kind, Ran};

/// An export that calls can be made to.
pub(super) struct Target {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) peer: Arc<Peer>,
    pub(super) address: SocketAddr,
    pub(super) export: u64,
    /// The connection through shared memory, if there is one.
    pub(super) link: Option<Arc<Link>>,
    /// Procedures of the importer's that the exporter does not have.
    lacking: Vec<u32>,
}

impl Target {
    /// Whether the exporter has the procedure.
    #[inline]
    pub(super) fn has(&self, procedure: u32) -> bool {
        self.lacking.is_empty() || !self.lacking.contains(&procedure)
    }

    /// How often the server was heard.
    pub(super) fn heard(&self) -> u64 {
        self.link.as_ref().map_or_else(|| self.peer.received(), |link| link.heard())
    }
}

/// Somebody who may export a name, and by what name to ask there.
struct Candidate {
    address: SocketAddr,
    name: String,
}

pub(super) fn parse(name: &str) -> Result<Name, CallFailed> {
    name.parse().map_err(|why: NameError| CallFailed::new(Kind::NoSuchName, Ran::No).caused_by(why))
}

impl Inner {
    /// Binds: asks all who may export the name at once, and takes the first good answer. Those at
    /// `avoid` are asked only if there is nobody else. Nobody is waited for beyond the deadline.
    pub(super) fn bind(
        &self,
        name: &Name,
        interface: &idl::Interface,
        avoid: &[SocketAddr],
        deadline: Option<Time>,
    ) -> Result<Target, CallFailed> {
        self.check_process()?;
        let mut candidates = self.candidates(name)?;
        if candidates.is_empty() {
            let why = format!("nobody exports {name}");
            return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why));
        }
        if candidates.iter().any(|candidate| !avoid.contains(&candidate.address)) {
            candidates.retain(|candidate| !avoid.contains(&candidate.address));
        }
        let mut failed = None;
        while let Some(first) = candidates.first() {
            // Those that one socket reaches are asked at once; there may be two kinds.
            let endpoint = self.endpoint(first.address)?;
            let from = crate::client::bind_address(first.address);
            let (now, later) =
                candidates.into_iter().partition(|candidate| crate::client::bind_address(candidate.address) == from);
            match self.ask(&endpoint, now, name, interface, deadline) {
                Ok(target) => return self.near(name, target),
                Err(why) => failed = Some(worse(failed, why)),
            }
            candidates = later;
        }
        Err(failed.unwrap_or_else(|| CallFailed::new(Kind::NoSuchName, Ran::No)))
    }

    /// Binds several instances at once, each at its address. Who has not answered when the deadline comes has none.
    pub(super) fn bind_each(
        &self,
        instances: &[(SocketAddr, String)],
        interface: &idl::Interface,
        deadline: Time,
    ) -> Result<Vec<Option<Target>>, CallFailed> {
        self.check_process()?;
        let mut targets: Vec<Option<Target>> = instances.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..instances.len()).collect();
        while let Some(&first) = left.first() {
            let from = crate::client::bind_address(instances[first].0);
            let endpoint = self.endpoint(instances[first].0)?;
            let (now, later): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|which| crate::client::bind_address(instances[*which].0) == from);
            let peers: Vec<(Arc<Peer>, &str)> =
                now.iter().map(|which| (endpoint.peer(instances[*which].0), &instances[*which].1[..])).collect();
            endpoint.bind(&peers, Some(deadline), &mut |place, answer| {
                let address = peers[place].0.address();
                if let Ok((export, lacking)) = self.judge(address, answer, interface) {
                    let (endpoint, peer, link) = (endpoint.clone(), peers[place].0.clone(), None);
                    targets[now[place]] = Some(Target { endpoint, peer, address, export, link, lacking });
                }
                false
            })?;
            left = later;
        }
        Ok(targets)
    }

    /// The target with a connection through shared memory, if it can be had; a name may ask for nothing else.
    fn near(&self, name: &Name, mut target: Target) -> Result<Target, CallFailed> {
        let wanted = matches!(name, Name::At { address: Address::Shm(_), .. });
        if self.env.shares_memory() && (wanted || self.settings.shared_memory) {
            target.link = self.link(&target);
        }
        if wanted && target.link.is_none() {
            let why = format!("no memory is shared with {}", target.address);
            return Err(CallFailed::new(Kind::Unreachable, Ran::No).because(why));
        }
        Ok(target)
    }

    /// A connection with a server, new if need be.
    fn link(&self, target: &Target) -> Option<Arc<Link>> {
        let former = {
            let mut state = self.lock();
            state.links.retain(|(_, link)| link.strong_count() > 0);
            state.links.iter().find(|(address, _)| *address == target.address).and_then(|(_, link)| link.upgrade())
        };
        // (Asked outside of the lock: what it drops may be the last of it.)
        if let Some(link) = former.filter(|link| link.is_sound()) {
            return Some(link);
        }
        let (from, config) = (target.endpoint.local_address(), self.client_config());
        let link = Link::connect(&self.env, target.address, target.export, from, &config, self.settings.spin)?;
        let mut state = self.lock();
        state.links.retain(|(address, _)| *address != target.address);
        state.links.push((target.address, Arc::downgrade(&link)));
        Some(link)
    }

    /// Who may export the name.
    fn candidates(&self, name: &Name) -> Result<Vec<Candidate>, CallFailed> {
        let registry = |why: farcall_names::Error| CallFailed::new(Kind::Registry, Ran::No).caused_by(why);
        let entries = match name {
            Name::At { address: Address::Udp(address) | Address::Shm(address), type_name, instance } => {
                return Ok(vec![Candidate { address: *address, name: full_name(type_name, instance.as_ref()) }]);
            }
            Name::Type(type_name) => self.registry.instances(type_name).map_err(registry)?,
            Name::Instance { type_name, instance } => {
                Vec::from_iter(self.registry.lookup(type_name, instance).map_err(registry)?)
            }
            other => {
                let why = format!("this version cannot bind {other}");
                return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why));
            }
        };
        let candidate = |entry: &farcall_names::Entry| match entry.address {
            Address::Udp(address) => {
                Some(Candidate { address, name: full_name(&entry.type_name, Some(&entry.instance)) })
            }
            _ => None,
        };
        Ok(entries.iter().filter_map(candidate).collect())
    }

    /// Asks all candidates, and takes the first good answer.
    fn ask(
        &self,
        endpoint: &Arc<Endpoint>,
        candidates: Vec<Candidate>,
        name: &Name,
        interface: &idl::Interface,
        deadline: Option<Time>,
    ) -> Result<Target, CallFailed> {
        let peers: Vec<(Arc<Peer>, &str)> =
            candidates.iter().map(|candidate| (endpoint.peer(candidate.address), &candidate.name[..])).collect();
        let (mut bound, mut failed) = (None, None);
        endpoint.bind(&peers, deadline, &mut |which, answer| {
            let address = candidates[which].address;
            match self.judge(address, answer, interface) {
                Ok((export, lacking)) => {
                    let peer = peers[which].0.clone();
                    let (endpoint, link) = (endpoint.clone(), None);
                    bound = Some(Target { endpoint, peer, address, export, link, lacking });
                }
                Err(why) => failed = Some(worse(failed.take(), why)),
            }
            bound.is_some()
        })?;
        let late = deadline.is_some_and(|deadline| deadline <= self.env.now());
        bound.ok_or_else(|| failed.unwrap_or_else(|| if late { too_late(name) } else { nobody(name) }))
    }

    /// Whether an exporter will do; then its identifier, and the procedures that it lacks.
    fn judge(
        &self,
        address: SocketAddr,
        answer: Result<Bound, Failure>,
        interface: &idl::Interface,
    ) -> Result<(u64, Vec<u32>), CallFailed> {
        let bound = answer.map_err(|failure| {
            let detail = match &failure.detail[..] {
                "" => address.to_string(),
                detail => format!("{address}: {detail}"),
            };
            CallFailed::new(failure.kind, Ran::No).because(detail)
        })?;
        let mut lacking = Vec::new();
        for (number, ours) in interface.fingerprints() {
            match bound.procedures.iter().find(|(theirs, _)| *theirs == number) {
                None => lacking.push(number),
                Some((_, theirs)) if *theirs != ours => return Err(mismatch(address, interface, number)),
                Some(_) => {}
            }
        }
        Ok((bound.export, lacking))
    }
}

/// `Type` or `Type/instance`, as a server is asked.
fn full_name(type_name: &Label, instance: Option<&Label>) -> String {
    match instance {
        None => type_name.to_string(),
        Some(instance) => format!("{type_name}/{instance}"),
    }
}

#[cold]
fn nobody(name: &Name) -> CallFailed {
    CallFailed::new(Kind::Unreachable, Ran::No).because(format!("nobody answers to {name}"))
}

#[cold]
fn too_late(name: &Name) -> CallFailed {
    CallFailed::new(Kind::Deadline, Ran::No).because(format!("nobody has answered to {name} so far"))
}

#[cold]
fn mismatch(address: SocketAddr, interface: &idl::Interface, number: u32) -> CallFailed {
    let ours = match interface.by_number(number) {
        Some(procedure) => interface.signature(procedure),
        None => format!("procedure {number}"),
    };
    let why = format!("at {address} the procedure {number} of {} has other types than here: {ours}", interface.name);
    CallFailed::new(Kind::Mismatch, Ran::No).because(why)
}

/// Of two reasons why nobody could be bound, the one that says more: a server that answered no
/// says more than one that did not answer.
fn worse(former: Option<CallFailed>, now: CallFailed) -> CallFailed {
    match former {
        Some(former) if former.kind() != Kind::Unreachable => former,
        _ => now,
    }
}
