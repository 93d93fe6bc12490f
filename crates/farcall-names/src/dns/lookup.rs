//! Finds the instances of a type: SRV records, and the addresses of their targets.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use farcall_base::work;

use super::domain::Domain;
use super::message::{Answer, Data, Kind, Message, Question, Record};
use super::resolver::Resolver;
use crate::{Address, Entry, Host, Label, MAX_ADDRESSES, Owner};

/// How long all questions of a lookup may take together.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest and the longest time for which an answer is kept.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(3600);

/// How long it is kept that there are no records, if no server says how long.
const NEGATIVE_TTL: u32 = 5;

/// The most aliases (CNAME records) between a name and its records.
const MAX_ALIASES: usize = 8;

/// A type, and the name of its SRV records.
pub(super) struct Service {
    type_name: Label,
    name: Domain,
}

/// What a lookup has found, and for how long it is good.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The instances, by ascending name.
    pub(super) entries: Vec<Entry>,
    /// The instances that exist, but whose addresses could not be found, and why.
    pub(super) unresolved: BTreeMap<Label, String>,
    pub(super) ttl: Duration,
}

/// The target of an SRV record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    priority: u16,
    host: Domain,
    port: u16,
}

/// The addresses of hosts.
struct Hosts {
    addresses: BTreeMap<Domain, BTreeSet<IpAddr>>,
    /// Why no server has told the addresses of a host.
    failed: BTreeMap<Domain, String>,
    /// The loopback or link-local address of a host that may not have one.
    refused: BTreeMap<Domain, IpAddr>,
    /// Whether every host may have such an address.
    accepts_local: bool,
    /// The shortest time for which all of this is good, in seconds.
    ttl: u32,
}

impl Service {
    /// Returns the service that a name names, for whichever type.
    pub(super) fn named(host: &Host) -> Option<Service> {
        Some(Service { type_name: "Any".parse().ok()?, name: Domain::parse(host.as_str())? })
    }

    /// Returns the service of a type in a domain. `None` if DNS cannot hold the type's name.
    pub(super) fn of_type(type_name: &Label, domain: &Domain) -> Option<Service> {
        let name = Domain::of_service(type_name, domain)?;
        Some(Service { type_name: type_name.clone(), name })
    }
}

impl Found {
    /// Returns that nothing was found, which stays so.
    pub(super) fn nothing() -> Found {
        Found { ttl: MAX_TTL, ..Found::default() }
    }
}

/// How a service is looked up.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// How long the lookup may take at most. It never takes longer than [`PATIENCE`].
    pub(super) within: Duration,
    /// Whether every host may have a loopback or link-local address. Otherwise only `localhost` may.
    pub(super) accepts_local: bool,
}

/// Asks questions. Returns an answer to each, or a text that says why there is none.
type Ask<'a> = dyn Fn(&[Question]) -> Vec<Result<Answer, String>> + 'a;

/// The questions of one lookup, and who answers them.
#[derive(Clone, Copy)]
struct Lookup<'a> {
    ask: &'a Ask<'a>,
    accepts_local: bool,
}

/// Returns the instances of a service. Blocks until DNS has answered, or the time is over.
///
/// # Errors
/// A text that says why a question has got no answer.
pub(super) fn look_up(resolver: &Resolver, service: &Service, terms: Terms) -> Result<Found, String> {
    let deadline = Instant::now() + terms.within.min(PATIENCE);
    find(&|questions| resolver.ask(questions, deadline), service, terms.accepts_local)
}

/// Returns the instances of a service, as the answers to the lookup's questions say.
fn find(ask: &Ask<'_>, service: &Service, accepts_local: bool) -> Result<Found, String> {
    let lookup = Lookup { ask, accepts_local };
    let Followed { answer, name, mut ttl } = lookup.follow(&service.name)?;
    let mut targets = BTreeSet::new();
    for record in of(&answer.records, &name, Kind::Service) {
        let Data::Target { priority, port, host } = &record.data else { continue };
        ttl = ttl.min(record.ttl);
        if *port != 0 {
            targets.insert(Target { priority: *priority, host: host.clone(), port: *port });
        }
    }
    if targets.is_empty() {
        ttl = ttl.min(answer.negative_ttl.unwrap_or(NEGATIVE_TTL));
    }
    let hosts = lookup.hosts(&targets, &answer);
    let ttl = Duration::from_secs(ttl.min(hosts.ttl).into()).clamp(MIN_TTL, MAX_TTL);
    Ok(found(&service.type_name, &targets, &hosts, ttl))
}

/// The SRV records of a name, behind its aliases.
struct Followed {
    /// The last answer.
    answer: Answer,
    /// The name of the records in it.
    name: Domain,
    /// The shortest time for which an alias is good, in seconds.
    ttl: u32,
}

impl Lookup<'_> {
    /// Asks for the SRV records of a name, and follows its aliases.
    fn follow(&self, name: &Domain) -> Result<Followed, String> {
        let (mut name, mut ttl) = (name.clone(), u32::MAX);
        // Each answer brings the name at least one alias further, or is the last.
        for _ in 0..=MAX_ALIASES {
            let question = Question { name: name.clone(), kind: Kind::Service };
            let answer = (self.ask)(&[question]).pop().unwrap_or_else(|| Err(String::new()))?;
            let (last, alias_ttl) = resolve_aliases(&answer, &name)?;
            ttl = ttl.min(alias_ttl);
            if last == name || of(&answer.records, &last, Kind::Service).next().is_some() {
                return Ok(Followed { answer, name: last, ttl });
            }
            name = last;
        }
        Err(too_many_aliases(&name))
    }

    /// Returns the addresses of the hosts of all targets: those that came with the answer, or else those that
    /// DNS knows.
    fn hosts(&self, targets: &BTreeSet<Target>, answer: &Answer) -> Hosts {
        let names = targets.iter().map(|target| (target.host.clone(), BTreeSet::new()));
        let (failed, refused, accepts_local) = (BTreeMap::new(), BTreeMap::new(), self.accepts_local);
        let mut hosts = Hosts { addresses: names.collect(), failed, refused, accepts_local, ttl: u32::MAX };
        for record in &answer.additional {
            hosts.add(&record.name, record);
        }
        let unknown = hosts.addresses.iter().filter(|(_, addresses)| addresses.is_empty());
        let questions: Vec<Question> = unknown
            .flat_map(|(name, _)| [Kind::Ipv4, Kind::Ipv6].map(|kind| Question { name: name.clone(), kind }))
            .collect();
        let mut negative_ttl = u32::MAX;
        for (question, answer) in questions.iter().zip((self.ask)(&questions)) {
            let resolved = answer.and_then(|answer| {
                let (name, alias_ttl) = resolve_aliases(&answer, &question.name)?;
                Ok((answer, name, alias_ttl))
            });
            match resolved {
                Ok((answer, name, alias_ttl)) => {
                    let records = of(&answer.records, &name, question.kind);
                    records.for_each(|record| hosts.add(&question.name, record));
                    hosts.ttl = hosts.ttl.min(alias_ttl);
                    negative_ttl = negative_ttl.min(answer.negative_ttl.unwrap_or(NEGATIVE_TTL));
                }
                Err(why) => {
                    hosts.failed.insert(question.name.clone(), why);
                }
            }
        }
        // A host may have addresses of one family only.
        let Hosts { addresses, failed, ttl, .. } = &mut hosts;
        failed.retain(|host, _| addresses.get(host).is_none_or(BTreeSet::is_empty));
        if addresses.values().any(BTreeSet::is_empty) {
            *ttl = (*ttl).min(negative_ttl);
        }
        hosts
    }
}

/// Returns the last of the aliases that an answer has for a name, which can be the name itself, and the
/// shortest time for which an alias is good.
fn resolve_aliases(answer: &Answer, name: &Domain) -> Result<(Domain, u32), String> {
    let (mut last, mut ttl) = (name, u32::MAX);
    for _ in 0..=MAX_ALIASES {
        let alias = answer.records.iter().find_map(|record| match &record.data {
            Data::Alias(alias) if is_of(record, last) => Some((alias, record.ttl)),
            _ => None,
        });
        let Some((alias, alias_ttl)) = alias else { return Ok((last.clone(), ttl)) };
        (last, ttl) = (alias, ttl.min(alias_ttl));
    }
    Err(too_many_aliases(name))
}

fn too_many_aliases(name: &Domain) -> String {
    format!("{name} has more than {MAX_ALIASES} aliases")
}

/// Returns the records of a name and a type. Other records are not used, whatever they say.
fn of<'a>(records: &'a [Record], name: &'a Domain, kind: Kind) -> impl Iterator<Item = &'a Record> {
    records.iter().filter(move |record| is_of(record, name) && record.data.is(kind))
}

fn is_of(record: &Record, name: &Domain) -> bool {
    work::step();
    record.name == *name
}

impl Hosts {
    /// Adds the address of a record to a host, if it is one that was asked for.
    fn add(&mut self, host: &Domain, record: &Record) {
        work::step();
        let (Some(addresses), Data::Address(ip)) = (self.addresses.get_mut(host), &record.data) else {
            return;
        };
        // An address of one link needs the name of a network interface, which DNS does not have.
        let is_of_one_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let is_of_many = ip.is_unspecified() || ip.is_multicast() || *ip == Ipv4Addr::BROADCAST;
        if !self.accepts_local && is_local(ip) && !host.is_localhost() {
            self.refused.insert(host.clone(), *ip);
        } else if !is_of_one_link && !is_of_many && addresses.len() < MAX_ADDRESSES {
            addresses.insert(*ip);
            self.ttl = self.ttl.min(record.ttl);
        }
    }
}

/// Returns whether a server at this address is on the caller's machine, or on a network of the caller's that
/// DNS cannot know. A name of somebody else's domain that has such an address would lead calls to servers
/// that only this machine can reach (DNS rebinding).
fn is_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
        // Those of one link never count.
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

/// Returns the targets of the lowest priority whose hosts have addresses, or may have some.
fn found(type_name: &Label, targets: &BTreeSet<Target>, hosts: &Hosts, ttl: Duration) -> Found {
    let addresses = |target: &Target| hosts.addresses.get(&target.host).into_iter().flatten();
    let is_usable =
        |target: &&Target| addresses(target).next().is_some() || hosts.failed.contains_key(&target.host);
    let lowest = targets.iter().find(is_usable).map(|target| target.priority);
    let usable: Vec<&Target> =
        targets.iter().filter(is_usable).filter(|target| Some(target.priority) == lowest).collect();
    let names = Names::of(&usable);
    let (mut entries, mut unresolved) = (BTreeMap::new(), BTreeMap::new());
    for target in &usable {
        let Some(instance) = names.instance(target) else { continue };
        let mut sockets = addresses(target).map(|ip| Address::Udp(SocketAddr::new(*ip, target.port)));
        let Some(first) = sockets.next() else {
            let why = hosts.failed.get(&target.host).map_or("", String::as_str);
            unresolved.insert(instance, format!("{}: {why}", target.host));
            continue;
        };
        let mut entry = Entry::new(type_name.clone(), instance.clone(), first, 0);
        entry.other_addresses = sockets.take(MAX_ADDRESSES - 1).collect();
        entry.owner = Owner::NONE;
        entry.by_type = true;
        if entry.check().is_ok() {
            entries.entry(instance).or_insert(entry);
        }
    }
    if entries.is_empty() && unresolved.is_empty() {
        unresolved = refused(targets, hosts);
    }
    Found { entries: entries.into_values().collect(), unresolved, ttl }
}

/// Returns the instances whose hosts have no other addresses than refused ones, and says what to do.
fn refused(targets: &BTreeSet<Target>, hosts: &Hosts) -> BTreeMap<Label, String> {
    let all: Vec<&Target> = targets.iter().collect();
    let names = Names::of(&all);
    let why = |target: &&Target| {
        let (host, ip) = hosts.refused.get_key_value(&target.host)?;
        let why = format!(
            "{host} has the address {ip} in DNS, which is loopback or link-local and counts for localhost alone; \
             if it is right, set FARCALL_DNS_LOCAL_ADDRESSES=1"
        );
        Some((names.instance(target)?, why))
    };
    all.iter().filter_map(why).collect()
}

/// What must be known of all targets to name the instance at one of them.
struct Names<'a> {
    /// For each first part of a host: the host, or none if several hosts begin alike.
    hosts: HashMap<&'a str, Option<&'a Domain>>,
    /// For each host: its port, or none if it has several.
    ports: HashMap<&'a str, Option<u16>>,
}

impl<'a> Names<'a> {
    fn of(all: &[&'a Target]) -> Names<'a> {
        let mut names = Names { hosts: HashMap::new(), ports: HashMap::new() };
        for target in all {
            work::step();
            let host = names.hosts.entry(target.host.first_part()).or_insert(Some(&target.host));
            *host = host.filter(|host| **host == target.host);
            let port = names.ports.entry(target.host.as_str()).or_insert(Some(target.port));
            *port = port.filter(|port| *port == target.port);
        }
        names
    }

    /// Returns the name of the instance at a target: the first part of its host, unless another host begins
    /// alike, and its port if other ports of that host are targets.
    fn instance(&self, target: &Target) -> Option<Label> {
        let short = target.host.first_part();
        let is_alone = self.hosts.get(short).is_some_and(Option::is_some);
        let host = if is_alone { short } else { target.host.as_str() };
        let has_other_ports = self.ports.get(target.host.as_str()).is_some_and(Option::is_none);
        let name = if has_other_ports { format!("{host}-{}", target.port) } else { host.to_owned() };
        name.parse().ok()
    }
}

/// Finds the instances of a service by messages of any bytes, each with its length in two bytes in front.
/// They answer the questions in turn.
pub(super) fn fuzz(messages: &[u8]) {
    let rest = std::cell::Cell::new(messages);
    let next = |question: &Question| {
        let (length, behind) = rest.get().split_first_chunk::<2>().ok_or("no server answers in time")?;
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (message, behind) = behind.split_at(length);
        rest.set(behind);
        match question.parse_answer(0, &question.answered(message)) {
            Message::Answer(answer) => Ok(answer),
            Message::Truncated => Err("its answer by TCP is truncated".to_owned()),
            Message::Failed(why) => Err(why),
            Message::Foreign => unreachable!("it repeats the question"),
        }
    };
    let ask = |questions: &[Question]| questions.iter().map(next).collect();
    let domain = Domain::parse("example.org").expect("a domain");
    let service = Service::of_type(&"Store".parse().expect("a type"), &domain).expect("a service");
    if let Ok(found) = find(&ask, &service, false) {
        assert!(found.entries.iter().all(|entry| entry.check().is_ok()));
        assert!(found.entries.is_sorted_by(|a, b| a.instance < b.instance));
        assert!((MIN_TTL..=MAX_TTL).contains(&found.ttl));
    }
}
