//! Binds a name to an export: asks the servers that may export the name, and takes the first good answer.

use std::collections::{BTreeSet, HashSet};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{self, Context};
use std::time::Duration;

use farcall_names::{Address, Entry, Label, Name, NameError};
use farcall_proto::client::Bound;
use farcall_proto::{Failure, Obstacle};

use super::Inner;
use super::place::Place;
use super::tasks::Tasks;
use crate::client::{Answered, Asking, Endpoint, Peer, Questions};
use crate::env::Time;
use crate::idl::{self, Refusal};
use crate::retry::Retry;
use crate::shm::{Link, NoLink};
use crate::stub::{Procedure, subset};
use crate::{CallFailed, Kind, Ran};

/// How long the servers at one kind of address can answer before those at the next kind are asked too (RFC
/// 8305, section 5, says 250 ms for hosts far away).
const HEAD_START: Duration = Duration::from_millis(50);

/// The longest time that a meeting in shared memory may take. It is short, because the server has just
/// answered by UDP.
const MEETING_TIME: Duration = Duration::from_secs(1);

/// The longest time for which a server is asked again that has been silent for the whole patience of a call,
/// if there is no other: it may have come back just now. So the call waits for its patience once.
pub(super) const SILENT_SERVER_TIME: Duration = Duration::from_secs(1);

/// The most addresses that a bind asks. The registry may list any number, also of servers that have never
/// asked for it.
const MAX_ASKED: usize = 128;

/// How often a bind follows its name, which has moved while the former servers were asked.
pub(super) const MAX_MOVES: usize = 2;

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

    /// Returns whether the server has said that it takes no more calls.
    pub(super) fn is_drained(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_drained(self.export))
            || self.peer.is_drained(self.export)
    }

    /// Returns the number of messages that the server has sent to this process.
    pub(super) fn heard(&self) -> u64 {
        self.link.as_ref().map_or_else(|| self.peer.received(), |link| link.answers())
    }
}

/// A server that may export a name, and the name under which to ask it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    address: SocketAddr,
    name: String,
}

impl Candidate {
    fn at_each(addresses: &[SocketAddr], type_name: &Label, instance: Option<&Label>) -> Vec<Candidate> {
        addresses.iter().map(|&address| Candidate { address, name: full_name(type_name, instance) }).collect()
    }

    pub(super) fn of_entries(entries: &[Entry]) -> Vec<Candidate> {
        let sockets = |entry| {
            let with = move |socket| (entry, socket);
            Entry::sockets_from_here(entry).into_iter().map(with)
        };
        let mut sockets: Vec<(&Entry, SocketAddr)> = entries.iter().flat_map(sockets).collect();
        // The candidates that the first one's socket reaches are asked first, so it must be a near one.
        sockets.sort_by_key(|(entry, socket)| !socket.ip().is_loopback() || entry.owner.is_elsewhere());
        let candidate = |(entry, address): (&Entry, _)| Candidate { address, name: entry.asked_name() };
        sockets.into_iter().map(candidate).collect()
    }
}

pub(super) fn parse(name: &str) -> Result<Name, CallFailed> {
    name.parse().map_err(|why: NameError| CallFailed::new(Kind::NoSuchName, Ran::No).caused_by(why))
}

impl Inner {
    /// Binds a name: asks all candidates of one kind of address at once, and takes the first good answer.
    /// While none has come after [`HEAD_START`], asks those of the next kind too. The deadline holds for the
    /// registry, the resolver, the servers' answers and the meeting in shared memory together. If nobody
    /// could be bound, and the name has moved meanwhile, asks where it is now.
    pub(super) fn bind(
        &self,
        name: &Name,
        interface: &idl::Interface,
        deadline: Option<Time>,
    ) -> Result<Target, CallFailed> {
        let candidates = self.candidates_but(name, (&[], false), deadline)?;
        self.bind_among(name, interface, candidates, None, deadline)
    }

    /// Binds as [`Inner::bind`] does, first among these candidates. The servers that `again`, the failed
    /// attempts of a call, avoids are asked only if there are no others.
    pub(super) fn bind_among(
        &self,
        name: &Name,
        interface: &idl::Interface,
        mut candidates: Vec<Candidate>,
        again: Option<&Retry>,
        deadline: Option<Time>,
    ) -> Result<Target, CallFailed> {
        let avoid = again.map_or(&[][..], Retry::avoid);
        let is_brief = again.is_some_and(|again| asks_silent_ones(again, &candidates));
        let mut briefly = is_brief.then(|| self.env.now() + SILENT_SERVER_TIME);
        let mut moves = 0;
        loop {
            let by = deadline.into_iter().chain(briefly).min();
            let failed = match self.bind_to(name, interface, candidates.clone(), by) {
                Err(why) if moves < MAX_MOVES && (may_have_moved(&why) || briefly.is_some()) => why,
                ended => return ended,
            };
            briefly = None;
            moves += 1;
            let former = candidates;
            candidates = match self.candidates_but(name, (avoid, true), deadline) {
                Ok(now) if has_moved(&former, &now) => now,
                _ => return Err(failed),
            };
        }
    }

    /// Binds a name to one of the candidates, as [`Inner::bind`] does.
    pub(super) fn bind_to(
        &self,
        name: &Name,
        interface: &idl::Interface,
        candidates: Vec<Candidate>,
        deadline: Option<Time>,
    ) -> Result<Target, CallFailed> {
        let (mut questions, mut polls) = (Questions::new(&self.env)?, Vec::new());
        let mut failed = Failures::default();
        let candidates = self.some_of(candidates);
        let mut kinds = by_kind(candidates, |candidate| candidate.address).into_iter().peekable();
        while let Some(candidates) = kinds.next() {
            let poll = match self.poll(name, interface, candidates) {
                Ok(poll) => poll,
                Err(why) => {
                    failed.no_socket = Some(why);
                    continue;
                }
            };
            questions.ask(&poll.endpoint, poll.peers())?;
            polls.push(poll);
            let by = if kinds.peek().is_some() { self.head_start(deadline) } else { deadline };
            while let Some(answered) = questions.next(by) {
                let kind = answered.endpoint;
                if polls[kind].take_answer(answered) {
                    drop(questions);
                    return self.connect_memory(name, polls.swap_remove(kind).outcome(false)?, deadline);
                }
            }
        }
        // The peers are forgotten with the questions.
        let obstacles: Vec<_> = polls.iter().map(|poll| self.obstacle(&poll.asked)).collect();
        drop(questions);
        let late = deadline.is_some_and(|deadline| deadline <= self.env.now());
        for (poll, obstacle) in polls.into_iter().zip(obstacles) {
            match poll.outcome(late) {
                Ok(target) => return self.connect_memory(name, target, deadline),
                Err(why) => failed.add(with_obstacle(why, obstacle)),
            }
        }
        Err(failed.of(name))
    }

    /// Returns the candidates to ask: all, or [`MAX_ASKED`] of them, chosen at random. Those on this machine
    /// have up to half of the places before others, which cannot be crowded out.
    fn some_of(&self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        if candidates.len() <= MAX_ASKED {
            return candidates;
        }
        let number = self.random();
        let (near, far): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|candidate| candidate.address.ip().is_loopback());
        let near = chosen(near, MAX_ASKED - far.len().min(MAX_ASKED / 2), number);
        let far = chosen(far, MAX_ASKED - near.len(), number);
        near.into_iter().chain(far).collect()
    }

    /// Returns why one of the candidates that are being asked may be silent, as far as that is known.
    #[cold]
    pub(super) fn obstacle(&self, asked: &[Candidate]) -> Option<(SocketAddr, Obstacle)> {
        asked.iter().find_map(|&Candidate { address, .. }| {
            let obstacle = self.endpoint(address).ok()?.obstacle(address)?;
            Some((address, obstacle))
        })
    }

    /// Returns until when to wait for answers from one kind of address before the next kind is asked too.
    fn head_start(&self, deadline: Option<Time>) -> Option<Time> {
        let end = self.env.now() + HEAD_START;
        Some(deadline.map_or(end, |deadline| deadline.min(end)))
    }

    /// Binds to one of the candidates that [`Inner::candidates_later`] returned, on behalf of a task, which
    /// waits without blocking a thread. Asks the candidates of all kinds at once, because a task has no
    /// timer. Gives up after the time that a caller would wait for a silent server, or at `by`, if the task
    /// is woken then.
    pub(super) async fn bind_later(
        self: &Arc<Self>,
        name: &Name,
        interface: &idl::Interface,
        candidates: Vec<Candidate>,
        by: Option<Time>,
    ) -> Result<Target, CallFailed> {
        let (mut failed, mut polls) = (Failures::default(), Vec::new());
        for candidates in by_kind(self.some_of(candidates), |candidate| candidate.address) {
            match self.poll(name, interface, candidates) {
                Ok(poll) => polls.push((Asking::new(poll.endpoint.clone(), poll.peers()), poll)),
                Err(why) => failed.no_socket = Some(why),
            }
        }
        let is_over = || by.is_some_and(|by| by <= self.env.now());
        let best = poll_fn(|context| match poll_each(&mut polls, context) {
            task::Poll::Pending if is_over() => task::Poll::Ready(None),
            polled => polled,
        });
        let best = best.await;
        if let Some(best) = best {
            polls.swap(0, best);
        }
        // Nobody else is asked any more.
        let polls: Vec<Poll<'_>> = polls.into_iter().map(|(_, poll)| poll).collect();
        for poll in polls {
            match poll.outcome(false) {
                Ok(target) if self.env.shares_memory() => {
                    return Tasks::run_blocking(self, || self.connect_memory(name, target, None));
                }
                Ok(target) => return self.connect_memory(name, target, None),
                Err(why) => failed.add(why),
            }
        }
        Err(failed.of(name))
    }

    /// Returns the candidates that a task is to ask, without those at `avoid` if there are others. With
    /// `anew` they are not from a copy that may be behind the registry. Gives up when `over` returns an
    /// error.
    pub(super) async fn candidates_later(
        self: &Arc<Self>,
        name: &Name,
        (avoid, anew): (&[SocketAddr], bool),
        deadline: Option<Time>,
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Result<Vec<Candidate>, CallFailed> {
        self.check_process()?;
        let candidates = match (Place::in_name(name), name) {
            (Some((place, type_name, instance)), _) => {
                let addresses = self.resolve_later(&place, deadline, over).await?;
                Candidate::at_each(&addresses, type_name, instance)
            }
            (None, Name::At { address, type_name, instance }) => {
                Candidate::at_each(address.socket().as_slice(), type_name, instance.as_ref())
            }
            _ => Candidate::of_entries(&self.entries_later(name, anew, deadline, over).await?),
        };
        without_avoided(name, candidates, avoid)
    }

    /// Returns the candidates for a name, without those at `avoid` if there are others. With `anew` they are
    /// not from a copy that may be behind the registry.
    pub(super) fn candidates_but(
        &self,
        name: &Name,
        (avoid, anew): (&[SocketAddr], bool),
        deadline: Option<Time>,
    ) -> Result<Vec<Candidate>, CallFailed> {
        if deadline.is_some_and(|deadline| deadline <= self.env.now()) {
            return Err(too_late(name));
        }
        self.check_process()?;
        let candidates = match Place::in_name(name) {
            Some((place, type_name, instance)) => {
                let addresses = self.resolve(name, &place, deadline)?;
                Candidate::at_each(&addresses, type_name, instance)
            }
            None => self.candidates(name, anew, deadline)?,
        };
        without_avoided(name, candidates, avoid)
    }

    /// Returns the poll of candidates that have one kind of address.
    ///
    /// # Errors
    /// When there is no socket for them, as for IPv6 on a machine without IPv6.
    fn poll<'a>(
        &'a self,
        name: &'a Name,
        interface: &'a idl::Interface,
        asked: Vec<Candidate>,
    ) -> Result<Poll<'a>, CallFailed> {
        let endpoint = self.endpoint(asked[0].address)?;
        let left = asked.len();
        Ok(Poll { inner: self, name, interface, endpoint, asked, left, bound: None, failed: None })
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
        let all: Vec<(usize, SocketAddr)> = instances.iter().enumerate().flat_map(at_each).collect();
        let (mut questions, mut unbound) = (Questions::new(&self.env)?, BTreeSet::<usize>::new());
        let mut asked: Vec<(Arc<Endpoint>, Vec<usize>)> = Vec::new();
        let mut kinds = by_kind(all, |(_, address)| *address).into_iter().peekable();
        while let Some(mut kind) = kinds.next() {
            kind.retain(|(which, _)| targets[*which].is_none());
            let Some(&(_, first)) = kind.first() else { continue };
            // Without a socket for IPv6, say, these addresses are out of reach, and others may do.
            let Ok(endpoint) = self.endpoint(first) else { continue };
            let peer = |(which, address): &(usize, SocketAddr)| {
                let name = &instances[*which].1;
                (endpoint.peer(*address, name), name.clone())
            };
            questions.ask(&endpoint, kind.iter().map(peer).collect())?;
            let places = Vec::from_iter(kind.iter().map(|(which, _)| *which));
            unbound.extend(&places);
            asked.push((endpoint, places));
            let by = if kinds.peek().is_some() { self.head_start(Some(deadline)) } else { Some(deadline) };
            while !unbound.is_empty()
                && let Some(answered) = questions.next(by)
            {
                let (endpoint, places) = &asked[answered.endpoint];
                let place = places[answered.which];
                if let Ok(target) = self.judge(endpoint, &answered.peer, answered.answer, interface) {
                    targets[place].get_or_insert(target);
                    unbound.remove(&place);
                }
            }
        }
        Ok(targets)
    }

    /// Connects the target through shared memory where that is possible.
    ///
    /// # Errors
    /// When the name asks for shared memory alone, and there is none; [`Kind::Deadline`] if the deadline has
    /// passed before the server was met.
    fn connect_memory(
        &self,
        name: &Name,
        mut target: Target,
        deadline: Option<Time>,
    ) -> Result<Target, CallFailed> {
        let wanted = matches!(name, Name::At { address: Address::Shm(_), .. });
        let mut unproven = None;
        if self.env.shares_memory() && (wanted || self.settings.shared_memory) {
            match self.link(&target, deadline) {
                Ok(link) => target.link = Some(link),
                // Without the deadline it might have been met, so the next call tries again.
                Err(_) if deadline.is_some_and(|deadline| deadline <= self.env.now()) => {
                    return Err(too_late(name));
                }
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
    fn link(&self, target: &Target, deadline: Option<Time>) -> Result<Arc<Link>, NoLink> {
        let former: Vec<Arc<Link>> = {
            let mut state = self.lock();
            state.links.retain(|(_, link)| link.strong_count() > 0);
            let here = state.links.iter().filter(|(address, _)| *address == target.address);
            here.filter_map(|(_, link)| link.upgrade()).collect()
        };
        // This is outside of the lock, because it may drop the last reference to an unsound link. A link
        // whose server has drained what was bound just now is that of an earlier server at the address.
        let (sound, unsound): (Vec<_>, Vec<_>) =
            former.into_iter().partition(|link| link.is_sound() && !link.is_drained(target.export));
        if let Some(link) = sound.into_iter().find(|link| link.is_for(&target.peer, target.export)) {
            link.admit(target.export);
            return Ok(link);
        }
        let config = self.client_config();
        let within =
            deadline.map_or(MEETING_TIME, |deadline| deadline.since(self.env.now()).min(MEETING_TIME));
        let link =
            Link::connect(&self.env, &target.peer, target.export, &config, self.settings.spin, within)?;
        let mut state = self.lock();
        state.links.retain(|(_, known)| !unsound.iter().any(|link| Arc::downgrade(link).ptr_eq(known)));
        state.links.push((target.address, Arc::downgrade(&link)));
        drop(state);
        link.admit(target.export);
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
            self.env.say(&line);
        }
        line
    }

    /// Returns the candidates for a name that contains no name of a host or a service.
    fn candidates(
        &self,
        name: &Name,
        anew: bool,
        deadline: Option<Time>,
    ) -> Result<Vec<Candidate>, CallFailed> {
        match name {
            Name::At { address, type_name, instance } => {
                Ok(Candidate::at_each(address.socket().as_slice(), type_name, instance.as_ref()))
            }
            name => Ok(Candidate::of_entries(&self.entries(name, anew, deadline)?)),
        }
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

/// Candidates with one kind of address, which are asked at the same time. The first good answer wins. An
/// exporter that has other procedures under the importer's numbers is taken only if there is no good answer.
struct Poll<'a> {
    inner: &'a Inner,
    name: &'a Name,
    interface: &'a idl::Interface,
    endpoint: Arc<Endpoint>,
    asked: Vec<Candidate>,
    /// The number of answers that are still expected.
    left: usize,
    bound: Option<Target>,
    failed: Option<CallFailed>,
}

impl Poll<'_> {
    fn peers(&self) -> Vec<(Arc<Peer>, String)> {
        let peer =
            |Candidate { address, name, .. }: &Candidate| (self.endpoint.peer(*address, name), name.clone());
        self.asked.iter().map(peer).collect()
    }

    /// Records a server's answer. Returns whether no other answer is needed: this one is good, or it is the
    /// last one and some exporter can be taken.
    fn take_answer(&mut self, answered: Answered) -> bool {
        self.left -= 1;
        match self.inner.judge(&self.endpoint, &answered.peer, answered.answer, self.interface) {
            Ok(target) => {
                let good = !target.differs();
                if good || self.bound.is_none() {
                    self.bound = Some(target);
                }
                if good {
                    return true;
                }
            }
            Err(why) => self.failed = Some(more_telling(self.failed.take(), why)),
        }
        self.left == 0 && self.bound.is_some()
    }

    fn outcome(self, late: bool) -> Result<Target, CallFailed> {
        let (name, failed) = (self.name, self.failed);
        self.bound
            .ok_or_else(|| failed.unwrap_or_else(|| if late { too_late(name) } else { no_answer(name) }))
    }
}

/// Takes the answers that have come, of the nearest kind first. Returns the index of the poll that needs no
/// other answer, or `None` if all polls have ended.
fn poll_each(polls: &mut [(Asking, Poll<'_>)], context: &mut Context<'_>) -> task::Poll<Option<usize>> {
    let mut all_ended = true;
    for (place, (asking, poll)) in polls.iter_mut().enumerate() {
        loop {
            match asking.poll(context) {
                task::Poll::Pending => all_ended = false,
                task::Poll::Ready(Ok(Some(answered))) => {
                    if poll.take_answer(answered) {
                        return task::Poll::Ready(Some(place));
                    }
                    continue;
                }
                task::Poll::Ready(Ok(None)) => {}
                task::Poll::Ready(Err(why)) => poll.failed = Some(why),
            }
            break;
        }
    }
    if all_ended { task::Poll::Ready(None) } else { task::Poll::Pending }
}

/// Divides what has an address by the kinds of address, in the order in which they first occur. Addresses of
/// one kind are reached from one socket: they are IPv4 or IPv6, and of this machine or of others.
fn by_kind<T>(all: Vec<T>, address: impl Fn(&T) -> SocketAddr) -> Vec<Vec<T>> {
    let mut kinds: Vec<(SocketAddr, Vec<T>)> = Vec::new();
    for one in all {
        let from = crate::client::bind_address(address(&one));
        match kinds.iter_mut().find(|(kind, _)| *kind == from) {
            Some((_, kind)) => kind.push(one),
            None => kinds.push((from, vec![one])),
        }
    }
    kinds.into_iter().map(|(_, kind)| kind).collect()
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

/// Returns whether a call whose server was silent for its whole patience finds no other servers than those
/// that it has met.
pub(super) fn asks_silent_ones(again: &Retry, candidates: &[Candidate]) -> bool {
    again.was_silent() && candidates.iter().all(|candidate| again.avoid().contains(&candidate.address))
}

/// Returns whether nobody could be bound for a reason that a move of the name explains.
pub(super) fn may_have_moved(why: &CallFailed) -> bool {
    matches!(why.kind(), Kind::Unreachable | Kind::Draining | Kind::NotExported)
}

/// Returns whether there is a server that was not there before.
pub(super) fn has_moved(former: &[Candidate], now: &[Candidate]) -> bool {
    let former: HashSet<&Candidate> = former.iter().collect();
    now.iter().any(|candidate| !former.contains(candidate))
}

/// Returns at most `most` of the candidates, in their order. `number` decides which.
fn chosen(candidates: Vec<Candidate>, most: usize, number: u64) -> Vec<Candidate> {
    let names = candidates.iter().map(|candidate| (&candidate.name[..], false));
    subset(names, most, number).into_iter().map(|which| candidates[which].clone()).collect()
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

/// Adds why a server may be silent to the failure that it has not answered in time.
pub(super) fn with_obstacle(why: CallFailed, obstacle: Option<(SocketAddr, Obstacle)>) -> CallFailed {
    match obstacle {
        Some((address, what)) if why.kind() == Kind::Deadline => {
            let detail = format!("{}: {address}: {what}", why.detail());
            why.because(detail)
        }
        _ => why,
    }
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
    fn of_many_candidates_some_are_asked_and_neither_kind_crowds_out_the_other() {
        let runtime = super::super::Runtime::builder().ignore_variables().build().unwrap();
        let some = |near: u16, far: u16| {
            let at = |ip: [u8; 4], port| SocketAddr::from((ip, port));
            let near = (0..near).map(|port| at([127, 0, 0, 1], port));
            let all = near.chain((0..far).map(|port| at([10, 0, 0, 7], port)));
            let candidate = |address| Candidate { address, name: format!("Store/{address}") };
            let all: Vec<Candidate> = all.map(candidate).collect();
            let some = runtime.0.some_of(all.clone());
            assert!(some.iter().all(|one| all.contains(one)));
            let near = some.iter().filter(|one| one.address.ip().is_loopback()).count();
            (near, some.len() - near)
        };
        assert_eq!((some(3, 5), some(0, 128)), ((3, 5), (0, 128)));
        assert_eq!((some(1_000, 0), some(0, 1_000)), ((128, 0), (0, 128)));
        assert_eq!((some(1_000, 10), some(10, 1_000)), ((118, 10), (10, 118)));
        assert_eq!(some(1_000, 1_000), (64, 64));
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
        let candidates = runtime.0.candidates(&parse("Store").unwrap(), false, None).unwrap();
        assert_eq!(candidates.iter().map(|one| one.address.port()).collect::<Vec<_>>(), [2, 3, 1]);
    }
}
