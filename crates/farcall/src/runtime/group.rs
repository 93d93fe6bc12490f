//! The instances of a type as a group. The group follows the registry.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use farcall_core::broken::Rule;
use farcall_names::{Address, Entry, Label, Name, Owner};

use super::bind::{Target, parse};
use super::import::{Importer, binding, binding_to, channel_of, importer_to};
use super::lookup::{Found, Lookups, Wanted};
use super::silence::SUSPICION;
use super::{Inner, Runtime};
use crate::balance::ShowMembers;
use crate::env::{Env, Time, breaks};
use crate::multi::{Fixed, Group, Member, Members, Roster};
use crate::stub::{Interface, Joining, subset};
use crate::{CallFailed, Kind, Ran, context, idl, lock};

/// How long to wait for members that do not answer while the members of a group are bound. A member that has
/// not answered is bound by its first call, which delays no other member.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// How long a call waits for the registry of its group, if the members are known that there were last: a
/// registry that is silent must cost calls little. A call with a deadline waits no longer than a quarter of
/// its time. The registry is asked further in the background.
const MEMBERS_PATIENCE: Duration = Duration::from_millis(50);

/// How long the registry is asked in the background, at most.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(5);

/// The most members that are bound when a group is imported, so that its first call need not wait for any.
const MAX_BOUND_AT_IMPORT: usize = 100;

/// How long a group keeps members that the registry has ceased to list, while it lists nobody who takes calls
/// (after Finagle's `StabilizingAddr`, which also keeps them for ten minutes).
const UNLISTED_KEPT_FOR: Duration = Duration::from_secs(600);

/// The most members that are remembered after the registry has ceased to list them.
const MAX_UNLISTED: usize = 1_000;

/// Imports all instances of a type. If the name is that of an instance, or an address, the group has one
/// member.
pub(super) fn import_all<T: ?Sized + Interface>(
    runtime: &Runtime,
    name: &str,
) -> Result<Group<T::Client>, CallFailed> {
    Ok(Group::living(roster(runtime, name, Cow::Borrowed(T::interface()), None)?))
}

/// Returns the present and future exporters of an interface under a name. Waits until the deadline at most.
pub(super) fn roster(
    runtime: &Runtime,
    name: &str,
    interface: Cow<'static, idl::Interface>,
    deadline: Option<Time>,
) -> Result<Arc<dyn Roster>, CallFailed> {
    let name = parse(name)?;
    let Name::Type(type_name) = &name else {
        let only = Member::new(name.to_string(), binding(runtime, name, interface, deadline)?);
        return Ok(Arc::new(Members::new(vec![only])));
    };
    let (inner, type_name) = (runtime.0.clone(), type_name.clone());
    inner.names()?;
    let (known, is_slow, asks, has_former) = Default::default();
    let me = |me: &Weak<Follower>| {
        let me = me.clone();
        Follower { me, inner, type_name, interface, known, is_slow, asks, has_former }
    };
    let follower = Arc::new_cyclic(me);
    let deadline = [deadline, context::inherited().0].into_iter().flatten().min();
    let entries = follower.follow(deadline)?;
    if entries.is_empty() {
        return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("nobody exports {name}")));
    }
    // The members of a large group are bound by the first group call, or as a balancer chooses them.
    if entries.len() <= MAX_BOUND_AT_IMPORT {
        let now = follower.inner.env.now();
        follower.members().join(deadline.map_or(BIND_PATIENCE, |by| by.since(now).min(BIND_PATIENCE)));
    }
    Ok(follower)
}

/// Imports the members with these names, and binds all of them at once. A member that cannot be bound now is
/// bound by its first call.
pub(super) fn import_each<T: ?Sized + Interface>(
    runtime: &Runtime,
    names: &[&str],
) -> Result<Group<T::Client, Fixed>, CallFailed> {
    let inner = &runtime.0;
    let parsed = names.iter().map(|name| parse(name)).collect::<Result<Vec<_>, _>>()?;
    let deadline = inner.bound_by();
    let known: Vec<(usize, (Vec<SocketAddr>, String))> = parsed
        .iter()
        .enumerate()
        .filter_map(|(which, name)| Some((which, inner.whereabouts(name, deadline)?)))
        .collect();
    let (places, instances): (Vec<usize>, Vec<_>) = known.into_iter().unzip();
    let mut targets: Vec<Option<Target>> = names.iter().map(|_| None).collect();
    if !instances.is_empty() {
        let bound = inner.bind_each(&instances, T::interface(), deadline)?;
        places.into_iter().zip(bound).for_each(|(place, target)| targets[place] = target);
    }
    let member = |((name, parsed), target): ((&&str, Name), Option<Target>)| {
        let is_near = target.as_ref().is_some_and(|target| target.address.ip().is_loopback());
        Member::new(*name, binding_to(inner, parsed, Cow::Borrowed(T::interface()), target))
            .on_this_machine(is_near)
    };
    let members = names.iter().zip(parsed).zip(targets).map(member).collect();
    Ok(Group::known(Members::new(members)))
}

impl Inner {
    /// Returns the addresses of an instance and its name there, if both are known without asking the
    /// instance.
    fn whereabouts(&self, name: &Name, deadline: Time) -> Option<(Vec<SocketAddr>, String)> {
        match name {
            Name::Instance { .. } => {
                let entry = self.entries(name, false, Some(deadline)).ok()?.into_iter().next()?;
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
///
/// The registry's list decides who is a member, except while nobody in it takes calls. Then the registry has
/// more likely lost its entries than every server its life: etcd that was stopped for longer than the leases
/// ends all of them. The servers publish again one after the other, and the first may drain before the others
/// are listed. So the members that the registry listed before count too while they take calls.
struct Follower {
    me: Weak<Follower>,
    inner: Arc<Inner>,
    type_name: Label,
    interface: Cow<'static, idl::Interface>,
    known: Mutex<Known>,
    /// Whether the registry has not answered in time, and not since.
    is_slow: AtomicBool,
    /// Whether it is being asked in the background.
    asks: AtomicBool,
    /// Whether there may be members that the registry no longer lists.
    has_former: AtomicBool,
}

/// What is known of the group, as of one version of the registry.
#[derive(Default)]
struct Known {
    version: Option<u64>,
    /// Whether the entries are to be read again, although the version is the same.
    is_doubtful: bool,
    /// Whether a call has waited in vain for that.
    has_waited: bool,
    entries: Arc<[Entry]>,
    /// Until when former members are members, too, because the only one that is listed did not begin a call.
    late_until: Option<Time>,
    /// The members whose entries the registry no longer lists, by name.
    unlisted: BTreeMap<String, Unlisted>,
    /// The members that have been bound, or are about to be, by name.
    bound: HashMap<String, BoundMember>,
    /// The members that were returned for these entries: all, or a subset of at most so many by a number.
    all: Option<Members>,
    subset: Option<((usize, u64), Members)>,
}

/// What a version of the registry means for what is known.
enum Look {
    /// These are its entries.
    Known(Arc<[Entry]>),
    Read(Reading),
}

/// Entries that are being read from the registry.
struct Reading {
    version: u64,
    /// Whether they are read because those that are known may be wrong.
    is_doubtful: bool,
    wanted: Wanted,
}

struct BoundMember {
    member: Member,
    importer: Arc<Importer>,
}

/// A member that the registry no longer lists.
struct Unlisted {
    entry: Entry,
    since: Time,
}

impl Known {
    /// Notes what the registry lists.
    fn note(&mut self, version: u64, entries: Arc<[Entry]>, now: Time) {
        let names: HashSet<String> = entries.iter().map(Entry::name).collect();
        let Known { entries: former, mut unlisted, mut bound, late_until, .. } = std::mem::take(self);
        let is_usable = |name: &str| bound.get(name).is_some_and(|it| it.importer.is_usable());
        unlisted.retain(|name, it| {
            !names.contains(name) && now.since(it.since) < UNLISTED_KEPT_FOR && is_usable(name)
        });
        for entry in &former[..] {
            let name = entry.name();
            if unlisted.len() < MAX_UNLISTED && !names.contains(&name) && is_usable(&name) {
                unlisted.insert(name, Unlisted { entry: entry.clone(), since: now });
            }
        }
        bound.retain(|name, _| names.contains(name) || unlisted.contains_key(name));
        *self = Known { version: Some(version), entries, unlisted, bound, late_until, ..Known::default() };
    }

    /// Returns the entries of members that the registry listed until lately and that still take calls: their
    /// bindings stand, or they have started just before and nobody has called them, and they are not silent.
    fn still_taking_calls(&self, now: Time) -> impl Iterator<Item = &Entry> {
        let takes_calls = move |(name, unlisted): &(&String, &Unlisted)| {
            let is_kept = now.since(unlisted.since) < UNLISTED_KEPT_FOR;
            is_kept && self.bound.get(*name).is_some_and(BoundMember::takes_calls)
        };
        self.unlisted.iter().filter(takes_calls).map(|(_, unlisted)| &unlisted.entry)
    }

    /// Returns whether the registry lists a member that takes calls, or of which nothing is known so far.
    fn lists_somebody(&self) -> bool {
        self.entries.iter().any(|entry| self.bound.get(&entry.name()).is_none_or(BoundMember::takes_calls))
    }
}

impl BoundMember {
    /// Returns whether the member takes calls, as far as that is known.
    fn takes_calls(&self) -> bool {
        self.importer.is_usable() && self.importer.known_silence().is_none()
    }
}

impl Roster for Follower {
    /// Returns the members. If the registry fails, returns the members that it knew last.
    fn members(&self) -> Members {
        self.all_of(self.present(None, false))
    }

    fn at_most(&self, most: usize, number: u64, within: Option<Duration>) -> Members {
        let entries = self.present(within, true);
        if entries.len() <= most {
            return self.all_of(entries);
        }
        let by = (most, number);
        if let Some(known) = self.known_for(&entries)
            && let Some((_, members)) = known.subset.as_ref().filter(|subset| subset.0 == by)
        {
            return members.clone();
        }
        let here = Owner::current();
        let names: Vec<String> = entries.iter().map(Entry::name).collect();
        let near = names.iter().zip(&entries[..]).map(|(name, entry)| (&name[..], is_near(entry, &here)));
        let chosen = subset(near, most, number);
        let members = self.bind(chosen.iter().map(|&which| &entries[which]));
        if let Some(mut known) = self.known_for(&entries) {
            known.subset = Some((by, members.clone()));
        }
        members
    }

    /// The registry says at once that it has changed, but not to everybody at the same time: another process
    /// may know of the change, and act on it, before this one is told of it.
    fn ask_anew(&self) {
        let mut known = lock(&self.known);
        (known.is_doubtful, known.has_waited) = (true, false);
    }

    fn has_former(&self) -> bool {
        // Mostly there are none. That is known without the lock.
        self.has_former.load(Relaxed) && {
            let now = self.inner.env.now();
            lock(&self.known).still_taking_calls(now).next().is_some()
        }
    }

    fn note_late(&self) {
        lock(&self.known).late_until = Some(self.inner.env.now() + SUSPICION);
    }

    fn env(&self) -> Arc<dyn Env> {
        self.inner.env.clone()
    }

    fn note_balancer(&self, balancer: Weak<dyn ShowMembers>) {
        self.inner.balancers.add(self.type_name.to_string(), balancer);
    }
}

impl Follower {
    /// Returns the members for these entries.
    fn all_of(&self, entries: Arc<[Entry]>) -> Members {
        if let Some(members) = self.known_for(&entries).and_then(|known| known.all.clone()) {
            return members;
        }
        let members = self.bind(entries.iter());
        if let Some(mut known) = self.known_for(&entries) {
            known.all = Some(members.clone());
        }
        members
    }

    /// Returns what is known, if it is about these entries: the registry may have changed meanwhile.
    fn known_for(&self, entries: &Arc<[Entry]>) -> Option<MutexGuard<'_, Known>> {
        Some(lock(&self.known)).filter(|known| Arc::ptr_eq(&known.entries, entries))
    }

    /// Returns the entries that the registry has now, for a call that may take `within`. If none of these
    /// members takes calls, returns those of former members too that still do. If `for_late` is true, does
    /// the same when all of these members are late.
    fn present(&self, within: Option<Duration>, for_late: bool) -> Arc<[Entry]> {
        let listed = self.listed(within);
        let known = lock(&self.known);
        if known.unlisted.is_empty() {
            return listed;
        }
        let now = self.inner.env.now();
        let is_late = for_late && known.late_until.is_some_and(|until| now < until);
        if !is_late && known.lists_somebody() {
            return listed;
        }
        // Another thread may have noted a newer list meanwhile, which lacks some of these.
        let is_listed = |entry: &Entry| listed.iter().any(|other| other.name() == entry.name());
        let former: Vec<Entry> =
            known.still_taking_calls(now).filter(|entry| !is_listed(entry)).cloned().collect();
        if former.is_empty() || breaks(Rule::UnlistedIsKept, || self.inner.env.clone()) {
            return listed;
        }
        listed.iter().chain(&former[..]).cloned().collect()
    }

    /// Returns the entries that the registry has now. If it fails, or does not answer soon, returns those
    /// that it had last.
    fn listed(&self, within: Option<Duration>) -> Arc<[Entry]> {
        let is_urgent = {
            let known = lock(&self.known);
            known.is_doubtful && !known.has_waited
        };
        if breaks(Rule::KnownMembersServe, || self.inner.env.clone()) {
            let known = |_| lock(&self.known).entries.clone();
            return self.follow(Some(self.inner.bound_by())).unwrap_or_else(known);
        }
        if !is_urgent && self.is_slow.load(Relaxed) {
            self.ask_in_background();
            return lock(&self.known).entries.clone();
        }
        let (part, patience) = if is_urgent { (2, BIND_PATIENCE) } else { (4, MEMBERS_PATIENCE) };
        let asked = self.inner.env.now();
        let inherited = context::inherited().0.map(|deadline| deadline.since(asked));
        let most = [within, inherited].into_iter().flatten().min();
        let most = most.map_or(patience, |within| patience.min(within / part));
        if let Ok(entries) = self.follow(Some(asked + most)) {
            return entries;
        }
        if self.inner.env.now().since(asked) >= most / 2 {
            self.is_slow.store(true, Relaxed);
            self.ask_in_background();
        }
        let mut known = lock(&self.known);
        known.has_waited |= is_urgent;
        known.entries.clone()
    }

    /// Asks the registry in the background, so that no call waits for it while it is slow. The runtime may end
    /// meanwhile.
    #[cold]
    fn ask_in_background(&self) {
        struct Asks(Weak<Follower>);
        impl Drop for Asks {
            fn drop(&mut self) {
                if let Some(follower) = self.0.upgrade() {
                    follower.asks.store(false, Relaxed);
                }
            }
        }
        if self.asks.swap(true, Relaxed) {
            return;
        }
        let asks = Asks(self.me.clone());
        let by = self.inner.env.now() + BACKGROUND_PATIENCE;
        let work = move |lookups: &Lookups| {
            let Ok(version) = lookups.ask(&Wanted::Version, Some(by)) else { return };
            let Some(look) = asks.0.upgrade().map(|follower| follower.look_at(version)) else { return };
            let Look::Read(reading) = look else { return };
            let found = lookups.ask(&reading.wanted, Some(by));
            let Some(follower) = asks.0.upgrade() else { return };
            let _ = follower.take(reading, found);
        };
        // If there is no thread, the next call tries again: the work is dropped.
        let _ = self.inner.lookups.ask_in_background(self.inner.random(), work);
    }

    /// Returns the entries that the registry has now. Waits until the deadline at most.
    fn follow(&self, deadline: Option<Time>) -> Result<Arc<[Entry]>, CallFailed> {
        let lookups = &self.inner.lookups;
        match self.look_at(lookups.ask(&Wanted::Version, deadline)?) {
            Look::Known(entries) => Ok(entries),
            Look::Read(reading) => {
                let found = lookups.ask(&reading.wanted, deadline);
                self.take(reading, found)
            }
        }
    }

    /// Returns whether the entries must be read at this version of the registry.
    fn look_at(&self, version: Found) -> Look {
        let Found::Version(version) = version else { return Look::Known(Arc::default()) };
        let known = lock(&self.known);
        let is_doubtful = known.is_doubtful;
        if known.version == Some(version) && !is_doubtful {
            self.note_answer();
            return Look::Known(known.entries.clone());
        }
        let wanted = if is_doubtful { Wanted::InstancesNow } else { Wanted::Instances };
        Look::Read(Reading { version, is_doubtful, wanted: wanted(self.type_name.clone()) })
    }

    /// Notes which entries the registry has, and returns them.
    fn take(&self, reading: Reading, found: Result<Found, CallFailed>) -> Result<Arc<[Entry]>, CallFailed> {
        let Reading { version, is_doubtful, .. } = reading;
        let now = self.inner.env.now();
        let mut known = lock(&self.known);
        match found {
            // None of the entries counts any more, so the group has no members.
            Err(why) if known.version.is_some() && is_not_genuine(&why) => {
                *known = Known { version: Some(version), ..Known::default() };
            }
            found => {
                let entries = found?.into_entries().into();
                // A member may have left while this question was on its way.
                let (is_doubtful, has_waited) = (known.is_doubtful && !is_doubtful, known.has_waited);
                known.note(version, entries, now);
                self.has_former.store(!known.unlisted.is_empty(), Relaxed);
                (known.is_doubtful, known.has_waited) = (is_doubtful, has_waited);
            }
        }
        self.note_answer();
        Ok(known.entries.clone())
    }

    /// Notes that the registry has answered in time.
    fn note_answer(&self) {
        if self.is_slow.load(Relaxed) {
            self.is_slow.store(false, Relaxed);
        }
    }

    /// Returns the members for these entries. Known members stay as they are. The others are bound, all at
    /// once, when somebody is about to call them. One that cannot be bound then is bound by its first call.
    fn bind<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Members {
        let here = Owner::current();
        let (mut members, mut joining) = (Vec::new(), Vec::new());
        {
            let mut known = lock(&self.known);
            for entry in entries {
                let name = entry.name();
                let bound = known.bound.entry(name.clone()).or_insert_with(|| {
                    let (type_name, instance) = (entry.type_name.clone(), entry.instance.clone());
                    let named = Name::Instance { type_name, instance };
                    let importer = importer_to(&self.inner, named, self.interface.clone());
                    let asked = (entry.sockets_from_here(), entry.asked_name());
                    joining.push(Joiner { importer: importer.clone(), asked });
                    BoundMember { member: Member::new(name, channel_of(&importer)), importer }
                });
                bound.importer.bound.note_listed(entry);
                members.push(bound.member.clone().on_this_machine(is_near(entry, &here)));
            }
        }
        let members = Members::new(members);
        if joining.is_empty() {
            return members;
        }
        let (inner, interface) = (self.inner.clone(), self.interface.clone());
        members.joining(Arc::new(Joiners {
            inner,
            interface,
            joiners: Mutex::new(joining),
            taken: AtomicBool::default(),
        }))
    }
}

/// A member that has joined, and has not been bound.
struct Joiner {
    importer: Arc<Importer>,
    /// Its addresses, and its name there.
    asked: (Vec<SocketAddr>, String),
}

/// The members that have joined, until somebody is about to call them.
struct Joiners {
    inner: Arc<Inner>,
    interface: Cow<'static, idl::Interface>,
    joiners: Mutex<Vec<Joiner>>,
    /// Whether somebody has taken the joiners. Every group call reads this.
    taken: AtomicBool,
}

impl Joining for Joiners {
    fn join(&self, most: Duration) {
        if self.taken.load(Relaxed) || self.taken.swap(true, Relaxed) {
            return;
        }
        let mut joiners = std::mem::take(&mut *lock(&self.joiners));
        joiners.retain(|joiner| joiner.importer.bound.first().is_none());
        if joiners.is_empty() {
            return;
        }
        let by = self.inner.bound_by().min(self.inner.env.now() + most);
        let (importers, asked): (Vec<_>, Vec<_>) =
            joiners.into_iter().map(|joiner| (joiner.importer, joiner.asked)).unzip();
        let bound = self.inner.bind_each(&asked, &self.interface, by).unwrap_or_default();
        for (importer, target) in importers.iter().zip(bound) {
            target.map(|target| importer.bound.set(Arc::new(target)));
        }
    }
}

fn is_not_genuine(why: &CallFailed) -> bool {
    let source = std::error::Error::source(why).and_then(|source| source.downcast_ref());
    matches!(source, Some(farcall_names::Error::NotGenuine { .. }))
}

/// Returns whether an entry's process is known to run on this machine.
fn is_near(entry: &Entry, here: &Owner) -> bool {
    match entry.owner.boot {
        0 => entry.sockets().any(|socket| socket.ip().is_loopback()),
        boot => boot == here.boot,
    }
}
