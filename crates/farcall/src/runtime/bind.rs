//! Binds a name to an export: asks the servers that may export the name, and takes the first good answer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use farcall_names::{Address, Label, Name, NameError};
use farcall_proto::Failure;
use farcall_proto::client::Bound;

use super::place::Place;
use super::tasks::Tasks;
use super::{Inner, registry_failed, say};
use crate::client::{Asking, Endpoint, Peer};
use crate::env::Time;
use crate::idl::{self, Refusal};
use crate::shm::{Link, NoLink};
use crate::stub::Procedure;
use crate::{CallFailed, Kind, Ran};

/// An export that calls can be made to.
pub(super) struct Target {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) peer: Arc<Peer>,
    pub(super) address: SocketAddr,
    pub(super) export: u64,
    /// The connection through shared memory, if there is one.
    pub(super) link: Option<Arc<Link>>,
    /// Procedures of the importer's interface that the exporter lacks, or has with another meaning.
    refused: Vec<Refused>,
}

/// A procedure that must not be called at an exporter.
pub(super) struct Refused {
    number: u32,
    /// The names of the interface and the procedure, as in `Store.get`.
    procedure: String,
    why: Refusal,
}

impl Target {
    /// Returns whether the exporter has the procedure that the importer means by this number.
    #[inline]
    pub(super) fn has(&self, procedure: u32) -> bool {
        self.refused.is_empty() || !self.refused.iter().any(|refused| refused.number == procedure)
    }

    /// Returns the failure of a call of a procedure that the exporter does not [have](Target::has).
    #[cold]
    pub(super) fn refusal(&self, procedure: &Procedure) -> CallFailed {
        let refused = self.refused.iter().find(|refused| refused.number == procedure.number);
        let (kind, what) = match refused {
            Some(Refused { procedure, why, .. }) => (kind_of(why), format!("{procedure}: {why}")),
            None => (Kind::NoSuchProcedure, procedure.name.to_owned()),
        };
        CallFailed::new(kind, Ran::No).because(format!("{what} (at {})", self.address))
    }

    /// Returns whether the exporter has other procedures under numbers that the importer uses. Then another
    /// exporter may be the right one. An exporter that only lacks some procedures is of an older version,
    /// which is usual while servers are updated.
    fn differs(&self) -> bool {
        self.refused.iter().any(|refused| kind_of(&refused.why) == Kind::Mismatch)
    }

    /// Returns the number of messages that the server has sent to this process.
    pub(super) fn heard(&self) -> u64 {
        self.link.as_ref().map_or_else(|| self.peer.received(), |link| link.answers())
    }
}

/// A server that may export a name, and the name under which to ask it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    address: SocketAddr,
    name: String,
}

impl Candidate {
    fn at_each(addresses: &[SocketAddr], type_name: &Label, instance: Option<&Label>) -> Vec<Candidate> {
        addresses.iter().map(|&address| Candidate { address, name: full_name(type_name, instance) }).collect()
    }
}

pub(super) fn parse(name: &str) -> Result<Name, CallFailed> {
    name.parse().map_err(|why: NameError| CallFailed::new(Kind::NoSuchName, Ran::No).caused_by(why))
}

impl Inner {
    /// Binds a name: asks all candidates at once, and takes the first good answer. Candidates at `avoid` are
    /// asked only if there are no others. The wait ends at the deadline.
    pub(super) fn bind(
        &self,
        name: &Name,
        interface: &idl::Interface,
        avoid: &[SocketAddr],
        deadline: Option<Time>,
    ) -> Result<Target, CallFailed> {
        let (mut candidates, mut failed) = (self.candidates_but(name, avoid, deadline)?, Failures::default());
        let mut end = deadline;
        while !candidates.is_empty() {
            let (poll, later) = self.poll(name, interface, candidates);
            candidates = later;
            let mut poll = match poll {
                Ok(poll) => poll,
                Err(why) => {
                    failed.no_socket = Some(why);
                    continue;
                }
            };
            let mut by = end;
            if !candidates.is_empty() {
                // Half of the time is left for the candidates of the other address family.
                let now = self.env.now();
                let end = *end.get_or_insert(now + self.settings.patience);
                by = Some(now + end.since(now) / 2);
            }
            match poll.ask(by, deadline) {
                Ok(target) => return self.connect_memory(name, target),
                Err(why) => failed.add(why),
            }
        }
        Err(failed.of(name))
    }

    /// Binds to one of the candidates that [`Inner::candidates_later`] returned, on behalf of a task, which
    /// waits without blocking a thread. Gives up after the time that a caller would wait for a silent server.
    pub(super) async fn bind_later(
        self: &Arc<Self>,
        name: &Name,
        interface: &idl::Interface,
        mut candidates: Vec<Candidate>,
    ) -> Result<Target, CallFailed> {
        let mut failed = Failures::default();
        while !candidates.is_empty() {
            let (poll, later) = self.poll(name, interface, candidates);
            candidates = later;
            let mut poll = match poll {
                Ok(poll) => poll,
                Err(why) => {
                    failed.no_socket = Some(why);
                    continue;
                }
            };
            match poll.ask_later().await {
                Ok(target) if self.env.shares_memory() => {
                    return Tasks::run_blocking(self, || self.connect_memory(name, target));
                }
                Ok(target) => return self.connect_memory(name, target),
                Err(why) => failed.add(why),
            }
        }
        Err(failed.of(name))
    }

    /// Returns the candidates that a task is to ask, without those at `avoid` if there are others. Gives up
    /// when `over` returns an error.
    pub(super) async fn candidates_later(
        self: &Arc<Self>,
        name: &Name,
        avoid: &[SocketAddr],
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Result<Vec<Candidate>, CallFailed> {
        self.check_process()?;
        let candidates = match (Place::in_name(name), name) {
            (Some((place, type_name, instance)), _) => {
                let addresses = self.resolve_later(&place, over).await?;
                Candidate::at_each(&addresses, type_name, instance)
            }
            (None, Name::At { .. }) => self.candidates(name)?,
            _ => Tasks::run_blocking(self, || self.candidates(name))?,
        };
        without_avoided(name, candidates, avoid)
    }

    /// Returns the candidates for a name, without those at `avoid` if there are others.
    fn candidates_but(
        &self,
        name: &Name,
        avoid: &[SocketAddr],
        deadline: Option<Time>,
    ) -> Result<Vec<Candidate>, CallFailed> {
        self.check_process()?;
        let candidates = match Place::in_name(name) {
            Some((place, type_name, instance)) => {
                let addresses = self.resolve(name, &place, deadline)?;
                Candidate::at_each(&addresses, type_name, instance)
            }
            None => self.candidates(name)?,
        };
        without_avoided(name, candidates, avoid)
    }

    /// Divides the candidates into those that the first candidate's socket can reach, and the others. The
    /// former are asked at the same time. Returns an error in place of the former if there is no such socket,
    /// as for IPv6 on a machine without IPv6.
    fn poll<'a>(
        &'a self,
        name: &'a Name,
        interface: &'a idl::Interface,
        candidates: Vec<Candidate>,
    ) -> (Result<Poll<'a>, CallFailed>, Vec<Candidate>) {
        let from = |candidate: &Candidate| crate::client::bind_address(candidate.address);
        let endpoint = self.endpoint(candidates[0].address);
        let first = from(&candidates[0]);
        let (asked, later) = candidates.into_iter().partition(|candidate| from(candidate) == first);
        let poll = endpoint.map(|endpoint| Poll {
            inner: self,
            name,
            interface,
            endpoint,
            asked,
            bound: None,
            failed: None,
        });
        (poll, later)
    }

    /// Binds several instances at once, each at the first of its addresses that answers. Returns `None` for
    /// an instance that has not answered by the deadline.
    pub(super) fn bind_each(
        &self,
        instances: &[(Vec<SocketAddr>, String)],
        interface: &idl::Interface,
        deadline: Time,
    ) -> Result<Vec<Option<Target>>, CallFailed> {
        self.check_process()?;
        let mut targets: Vec<Option<Target>> = instances.iter().map(|_| None).collect();
        let at_each = |(which, (addresses, _)): (usize, &(Vec<SocketAddr>, String))| {
            addresses.iter().map(move |&address| (which, address)).collect::<Vec<_>>()
        };
        let mut left: Vec<(usize, SocketAddr)> = instances.iter().enumerate().flat_map(at_each).collect();
        while let Some(&(_, first)) = left.first() {
            let from = crate::client::bind_address(first);
            let (now, later): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|(_, address)| crate::client::bind_address(*address) == from);
            // Without a socket for IPv6, say, these addresses are out of reach, and others may do.
            let Ok(endpoint) = self.endpoint(first) else {
                left = later;
                continue;
            };
            let peer = |(which, address): &(usize, SocketAddr)| {
                (endpoint.peer(*address), instances[*which].1.clone())
            };
            let peers: Vec<(Arc<Peer>, String)> = now.iter().map(peer).collect();
            let mut unbound = BTreeSet::from_iter(now.iter().map(|(which, _)| *which));
            // Half of the time is left for the addresses of the other family.
            let asked_at = self.env.now();
            let by = if later.is_empty() { deadline } else { asked_at + deadline.since(asked_at) / 2 };
            endpoint.bind(&peers, Some(by), &mut |place, answer| {
                let which = now[place].0;
                if let Ok(target) = self.judge(&endpoint, &peers[place].0, answer, interface) {
                    targets[which].get_or_insert(target);
                    unbound.remove(&which);
                }
                unbound.is_empty()
            })?;
            left = later;
            left.retain(|(which, _)| targets[*which].is_none());
        }
        Ok(targets)
    }

    /// Connects the target through shared memory where that is possible.
    ///
    /// # Errors
    /// When the name asks for shared memory alone, and there is none.
    fn connect_memory(&self, name: &Name, mut target: Target) -> Result<Target, CallFailed> {
        let wanted = matches!(name, Name::At { address: Address::Shm(_), .. });
        let mut unproven = None;
        if self.env.shares_memory() && (wanted || self.settings.shared_memory) {
            match self.link(&target) {
                Ok(link) => target.link = Some(link),
                Err(NoLink::Unproven) => unproven = Some(self.tell_unproven(target.address)),
                Err(NoLink::NotOffered) => {}
            }
        }
        if wanted && target.link.is_none() {
            let why = unproven.unwrap_or_else(|| format!("no memory is shared with {}", target.address));
            return Err(CallFailed::new(Kind::Unreachable, Ran::No).because(why));
        }
        Ok(target)
    }

    /// Returns the connection through shared memory with a server. Makes one if there is no sound one.
    fn link(&self, target: &Target) -> Result<Arc<Link>, NoLink> {
        let former = {
            let mut state = self.lock();
            state.links.retain(|(_, link)| link.strong_count() > 0);
            state
                .links
                .iter()
                .find(|(address, _)| *address == target.address)
                .and_then(|(_, link)| link.upgrade())
        };
        // This is outside of the lock, because it may drop the last reference to an unsound link.
        if let Some(link) = former.filter(|link| link.is_sound() && link.is_to(&target.peer)) {
            return Ok(link);
        }
        let config = self.client_config();
        let link = Link::connect(&self.env, &target.peer, target.export, &config, self.settings.spin)?;
        let mut state = self.lock();
        state.links.retain(|(address, _)| *address != target.address);
        state.links.push((target.address, Arc::downgrade(&link)));
        drop(state);
        // The server's key may have been taken away while nobody knew of the link.
        if !link.is_to(&target.peer) {
            link.distrust();
        }
        Ok(link)
    }

    /// Says on standard error that calls to a server go by UDP, because another process answers in its place
    /// in shared memory. Does not say it again if the last such message was the same. Returns the message.
    #[cold]
    fn tell_unproven(&self, address: SocketAddr) -> String {
        let line = format!(
            "{address} is not called through shared memory: another process has taken the name that its server needs for that"
        );
        let former = self.lock().no_memory_reason.replace(line.clone());
        if former.as_ref() != Some(&line) {
            say(&line);
        }
        line
    }

    /// Returns the candidates for a name that contains no name of a host or a service.
    fn candidates(&self, name: &Name) -> Result<Vec<Candidate>, CallFailed> {
        let entries = match name {
            Name::At { address, type_name, instance } => {
                return Ok(Candidate::at_each(address.socket().as_slice(), type_name, instance.as_ref()));
            }
            Name::Type(type_name) => self.names()?.instances(type_name).map_err(registry_failed)?,
            Name::Instance { type_name, instance } => {
                Vec::from_iter(self.names()?.lookup(type_name, instance).map_err(registry_failed)?)
            }
            other => {
                let why = format!("this version cannot bind {other}");
                return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why));
            }
        };
        let sockets = |entry| {
            let with = move |socket| (entry, socket);
            farcall_names::Entry::sockets_from_here(entry).into_iter().map(with)
        };
        let mut sockets: Vec<(&farcall_names::Entry, SocketAddr)> =
            entries.iter().flat_map(sockets).collect();
        // The candidates that the first one's socket reaches are asked first, so it must be a near one.
        sockets.sort_by_key(|(entry, socket)| !socket.ip().is_loopback() || entry.owner.is_elsewhere());
        let candidate =
            |(entry, address): (&farcall_names::Entry, _)| Candidate { address, name: entry.asked_name() };
        Ok(sockets.into_iter().map(candidate).collect())
    }

    /// Turns a server's answer into a target.
    fn judge(
        &self,
        endpoint: &Arc<Endpoint>,
        peer: &Arc<Peer>,
        answer: Result<Bound, Failure>,
        interface: &idl::Interface,
    ) -> Result<Target, CallFailed> {
        let address = peer.address();
        let bound = answer.map_err(|failure| bind_failed(address, failure))?;
        let known = |&farcall_proto::Fingerprint { number, types, name }: &_| idl::Fingerprint {
            number,
            types,
            name,
        };
        let theirs: Vec<idl::Fingerprint> = bound.procedures.iter().map(known).collect();
        let refused = |(number, why)| {
            let name = interface.by_number(number).map_or("", |procedure| &procedure.name);
            Refused { number, procedure: format!("{}.{name}", interface.name), why }
        };
        let refused = idl::refusals(interface, &theirs).into_iter().map(refused).collect();
        let (endpoint, peer) = (endpoint.clone(), peer.clone());
        Ok(Target { endpoint, peer, address, export: bound.export, link: None, refused })
    }
}

/// Candidates that are asked at the same time. The first good answer wins. An exporter that has other
/// procedures under the importer's numbers is taken only if there is no good answer.
struct Poll<'a> {
    inner: &'a Inner,
    name: &'a Name,
    interface: &'a idl::Interface,
    endpoint: Arc<Endpoint>,
    asked: Vec<Candidate>,
    bound: Option<Target>,
    failed: Option<CallFailed>,
}

impl Poll<'_> {
    /// Asks all candidates, and waits for answers until `by`. `deadline` is the caller's own, which may be
    /// later.
    fn ask(&mut self, by: Option<Time>, deadline: Option<Time>) -> Result<Target, CallFailed> {
        let (endpoint, peers) = (self.endpoint.clone(), self.peers());
        endpoint.bind(&peers, by, &mut |which, answer| self.take_answer(&peers[which].0, answer))?;
        let late = deadline.is_some_and(|deadline| deadline <= self.inner.env.now());
        self.outcome(late)
    }

    async fn ask_later(&mut self) -> Result<Target, CallFailed> {
        let (endpoint, peers) = (self.endpoint.clone(), self.peers());
        let mut asking = Asking::new(&endpoint, &peers);
        while let Some((which, answer)) = asking.next().await? {
            if self.take_answer(&peers[which].0, answer) {
                break;
            }
        }
        self.outcome(false)
    }

    fn peers(&self) -> Vec<(Arc<Peer>, String)> {
        let peer = |candidate: &Candidate| (self.endpoint.peer(candidate.address), candidate.name.clone());
        self.asked.iter().map(peer).collect()
    }

    /// Records a server's answer. Returns whether it is good, so that no other answer is needed.
    fn take_answer(&mut self, peer: &Arc<Peer>, answer: Result<Bound, Failure>) -> bool {
        match self.inner.judge(&self.endpoint, peer, answer, self.interface) {
            Ok(target) => {
                let good = !target.differs();
                if good || self.bound.is_none() {
                    self.bound = Some(target);
                }
                good
            }
            Err(why) => {
                self.failed = Some(more_telling(self.failed.take(), why));
                false
            }
        }
    }

    fn outcome(&mut self, late: bool) -> Result<Target, CallFailed> {
        let failed = self.failed.take();
        self.bound.take().ok_or_else(|| {
            failed.unwrap_or_else(|| if late { too_late(self.name) } else { no_answer(self.name) })
        })
    }
}

// Every name that can be published fits a question.
const _: () = assert!(farcall_names::MAX_EXPORT <= farcall_proto::MAX_NAME);

/// Returns `Type` or `Type/instance`: the name under which a server is asked.
fn full_name(type_name: &Label, instance: Option<&Label>) -> String {
    match instance {
        None => type_name.to_string(),
        Some(instance) => format!("{type_name}/{instance}"),
    }
}

/// Returns the candidates without those to avoid, or all of them if there are no others. Prefers those under
/// other names to further addresses of an instance that is to be avoided at one of them.
///
/// # Errors
/// When there are no candidates.
fn without_avoided(
    name: &Name,
    mut candidates: Vec<Candidate>,
    avoid: &[SocketAddr],
) -> Result<Vec<Candidate>, CallFailed> {
    if candidates.is_empty() {
        let why = format!("nobody exports {name}");
        return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why));
    }
    if avoid.is_empty() {
        return Ok(candidates);
    }
    let is_avoided = |candidate: &Candidate| avoid.contains(&candidate.address);
    let avoided = candidates.iter().filter(|candidate| is_avoided(candidate));
    let names = BTreeSet::from_iter(avoided.map(|candidate| candidate.name.clone()));
    if candidates.iter().any(|candidate| !names.contains(&candidate.name)) {
        candidates.retain(|candidate| !names.contains(&candidate.name));
    } else if !candidates.iter().all(is_avoided) {
        candidates.retain(|candidate| !is_avoided(candidate));
    }
    Ok(candidates)
}

/// The reasons why no candidate could be bound.
#[derive(Default)]
struct Failures {
    asked: Option<CallFailed>,
    /// Why some candidates could not be asked. The caller gets this reason only if no candidate was asked.
    no_socket: Option<CallFailed>,
}

impl Failures {
    fn add(&mut self, why: CallFailed) {
        self.asked = Some(more_telling(self.asked.take(), why));
    }

    #[cold]
    fn of(self, name: &Name) -> CallFailed {
        match self.asked.or(self.no_socket) {
            None => no_answer(name),
            Some(why) => match Place::in_name(name) {
                // The reason may name only an address, so the host's name is added.
                Some((place, ..)) if !why.detail().contains(place.host().as_str()) => {
                    let detail = format!("{place}: {}", why.detail());
                    why.because(detail)
                }
                _ => why,
            },
        }
    }
}

#[cold]
fn no_answer(name: &Name) -> CallFailed {
    CallFailed::new(Kind::Unreachable, Ran::No).because(format!("nobody answers to {name}"))
}

#[cold]
pub(super) fn too_late(name: &Name) -> CallFailed {
    CallFailed::new(Kind::Deadline, Ran::No).because(format!("nobody has answered to {name} so far"))
}

/// Returns the kind of failure of a call that is refused for this reason.
fn kind_of(why: &Refusal) -> Kind {
    match why {
        Refusal::Gone { .. } => Kind::NoSuchProcedure,
        Refusal::Moved { .. } | Refusal::Another { .. } | Refusal::Renamed { .. } | Refusal::Types { .. } => {
            Kind::Mismatch
        }
    }
}

/// Returns the reason that says more about why no server could be bound. A server's refusal says more than
/// its silence.
fn more_telling(former: Option<CallFailed>, now: CallFailed) -> CallFailed {
    match former {
        Some(former) if former.kind() != Kind::Unreachable => former,
        _ => now,
    }
}

/// Returns the failure of a question that the server at an address refused.
pub(super) fn bind_failed(address: SocketAddr, failure: Failure) -> CallFailed {
    let detail = match &failure.detail[..] {
        "" => address.to_string(),
        detail => format!("{address}: {detail}"),
    };
    CallFailed::new(failure.kind, Ran::No).because(detail)
}

#[cfg(test)]
mod tests {
    use farcall_names::Registry as _;

    use super::*;

    /// Returns the ports of the candidates that are left. Candidates are an instance and a port.
    fn left(candidates: &[(&str, u16)], avoid: &[u16]) -> Vec<u16> {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let candidate = |&(name, port): &(&str, u16)| Candidate { address: at(port), name: name.to_owned() };
        let avoid: Vec<SocketAddr> = avoid.iter().copied().map(at).collect();
        let name = parse("Store").unwrap();
        let left = without_avoided(&name, candidates.iter().map(candidate).collect(), &avoid).unwrap();
        left.iter().map(|candidate| candidate.address.port()).collect()
    }

    #[test]
    fn an_instance_to_avoid_is_asked_at_its_other_addresses_only_if_there_is_no_other_instance() {
        let two = [("Store/a", 1), ("Store/a", 2), ("Store/b", 3), ("Store/b", 4)];
        assert_eq!(left(&two, &[]), [1, 2, 3, 4]);
        assert_eq!(left(&two, &[1]), [3, 4]);
        assert_eq!(left(&two, &[1, 4]), [2, 3]);
        assert_eq!(left(&two, &[1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(left(&two[..2], &[2]), [1]);
        // Two instances of one server.
        assert_eq!(left(&[("Store/a", 1), ("Store/b", 1), ("Store/c", 2)], &[1]), [2]);
    }

    #[test]
    fn instances_on_this_machine_are_asked_before_others() {
        let registry = Arc::new(farcall_names::Memory::new());
        let instances = [("a", "udp://10.0.0.7:1"), ("b", "udp://127.0.0.1:2"), ("c", "udp://[::1]:3")];
        let label = |text: &str| text.parse::<Label>().unwrap();
        let publish = |(instance, address): (&str, &str)| {
            let address = address.parse().unwrap();
            registry.publish(&farcall_names::Entry::new(label("Store"), label(instance), address, 1)).unwrap()
        };
        let _published = instances.map(publish);
        let runtime = super::super::Runtime::builder().registry(registry.clone()).build().unwrap();
        let candidates = runtime.0.candidates(&parse("Store").unwrap()).unwrap();
        assert_eq!(candidates.iter().map(|one| one.address.port()).collect::<Vec<_>>(), [2, 3, 1]);
    }
}
