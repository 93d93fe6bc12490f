//! A bounded queue for servers, fair between networks, between the hosts of a network, and between the
//! callers of a host. Networks take turns, and so do the hosts of a network and the callers of a host.
//!
//! When the queue is full, the network with the most entries loses one: of its host that has the most, the
//! newest entry of the caller that has the most of them (Nagle 1987, "On packet switches with infinite
//! storage"). One machine can have all addresses of an IPv6 network, so to count hosts alone would let it
//! keep all others out.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::host::{Host, Network};

/// An entry of a queue.
pub trait Waits {
    /// A caller that belongs to a host. Callers of different hosts never compare equal.
    type Caller: Copy + Eq + Hash;
    /// The type of key that distinguishes a caller's entries.
    type Key: PartialEq;

    /// Returns the key of this entry, which differs from the keys of its caller's other entries.
    fn key(&self) -> Self::Key;
    /// Returns the host that pays: the one whose share of the queue the entry uses.
    fn payer(&self) -> Host;
    /// Returns the caller whose entry this is.
    fn caller(&self) -> Self::Caller;
    /// Returns how many bytes it takes to keep this entry.
    fn bytes(&self) -> usize;
}

/// A queue of waiting and held entries. Waiting entries are taken out in turn. Held entries are not, until
/// [`admit`](FairQueue::admit) makes them wait for a turn.
pub struct FairQueue<T: Waits> {
    most: usize,
    most_bytes: usize,
    all: Weight,
    /// The callers that have an entry, waiting or held.
    callers: HashMap<T::Caller, Line<T>>,
    hosts: HashMap<Host, Turns<T::Caller>>,
    networks: HashMap<Network, Turns<Host>>,
    /// The networks that have a waiting entry, in the order of their turns.
    turns: VecDeque<Network>,
    /// How many entries are held.
    held: usize,
    /// The number of entries that were ever added.
    arrivals: u64,
}

/// The number of entries and of bytes of a network, of a host, of a caller, or of all. Held entries count
/// too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    len: usize,
    bytes: usize,
}

/// The entries of one caller.
struct Line<T: Waits> {
    /// The host of the first entry. A caller that moves to another host meanwhile still counts for this
    /// host.
    host: Host,
    waiting: VecDeque<T>,
    held: VecDeque<T>,
    weight: Weight,
    /// The number, among all arrivals, of the entry that came last.
    latest: u64,
}

/// The callers of one host, or the hosts of one network, and the number of their entries and bytes together.
struct Turns<C> {
    weight: Weight,
    latest: u64,
    /// The callers or hosts that have a waiting entry, in the order of their turns.
    turns: VecDeque<C>,
}

impl<C> Default for Turns<C> {
    fn default() -> Turns<C> {
        Turns { weight: Weight::default(), latest: 0, turns: VecDeque::new() }
    }
}

impl<C> Turns<C> {
    /// Counts an entry that is added. `latest` is its arrival number, or 0 if it is put back.
    fn add(&mut self, bytes: usize, latest: u64) {
        self.weight.add(bytes);
        self.latest = self.latest.max(latest);
    }
}

impl Weight {
    fn add(&mut self, bytes: usize) {
        self.len += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.len -= 1;
        self.bytes -= bytes;
    }
}

impl<T: Waits> FairQueue<T> {
    /// Makes a queue for at most `most` entries, of at most `most_bytes` bytes together.
    pub fn new(most: usize, most_bytes: usize) -> FairQueue<T> {
        FairQueue {
            most,
            most_bytes,
            all: Weight::default(),
            callers: HashMap::new(),
            hosts: HashMap::new(),
            networks: HashMap::new(),
            turns: VecDeque::new(),
            held: 0,
            arrivals: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.len == 0
    }

    pub fn len(&self) -> usize {
        self.all.len
    }

    /// Returns how many bytes it takes to keep all entries.
    pub fn bytes(&self) -> usize {
        self.all.bytes
    }

    /// Returns whether the queue has its greatest number of entries.
    pub fn is_full(&self) -> bool {
        self.all.len >= self.most
    }

    /// Returns whether any entry is held.
    pub fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// Returns whether any entry of this caller is held.
    pub fn holds(&self, caller: T::Caller) -> bool {
        self.callers.get(&caller).is_some_and(|line| !line.held.is_empty())
    }

    /// Adds an entry, which waits for its turn or is `held`. Returns the entries for which there is no room:
    /// this one, or the newest entries of callers whose entries take much more of the queue.
    #[must_use]
    pub fn push(&mut self, new: T, held: bool) -> Vec<T> {
        let mut evicted = Vec::new();
        while !self.has_room(&new) {
            let latest = self.makes_way_for(&new).and_then(|caller| self.take_latest(caller));
            let Some(latest) = latest else {
                evicted.push(new);
                return evicted;
            };
            evicted.push(latest);
        }
        if held {
            self.hold(new)
        } else {
            self.add(new)
        }
        evicted
    }

    /// Adds an entry that waits for its turn, whether there is room or not.
    pub fn add(&mut self, new: T) {
        self.arrivals += 1;
        let (caller, line) = (new.caller(), self.enter(&new, self.arrivals));
        let has_turn = !line.waiting.is_empty();
        line.waiting.push_back(new);
        self.line_up(caller, has_turn, false);
    }

    fn hold(&mut self, new: T) {
        self.arrivals += 1;
        self.enter(&new, self.arrivals).held.push_back(new);
        self.held += 1;
    }

    /// Puts an entry that was taken out back at the head of the queue.
    pub fn put_back(&mut self, first: T) {
        let (caller, line) = (first.caller(), self.enter(&first, 0));
        let has_turn = !line.waiting.is_empty();
        line.waiting.push_front(first);
        self.line_up(caller, has_turn, true);
    }

    /// Makes a caller's held entries wait for their turn, in their order, up to the first one that `may`
    /// refuses. Returns whether any entry changed.
    pub fn admit(&mut self, caller: T::Caller, mut may: impl FnMut(&T) -> bool) -> bool {
        let Some(line) = self.callers.get_mut(&caller) else { return false };
        let (before, has_turn) = (line.held.len(), !line.waiting.is_empty());
        while line.held.front().is_some_and(&mut may)
            && let Some(admitted) = line.held.pop_front()
        {
            line.waiting.push_back(admitted);
        }
        let admitted = before - line.held.len();
        self.held -= admitted;
        if admitted > 0 {
            self.line_up(caller, has_turn, false);
        }
        admitted > 0
    }

    /// Returns the entry whose turn it is.
    pub fn front(&self) -> Option<&T> {
        self.next_of(self.networks.get(self.turns.front()?)?.turns.front()?)
    }

    /// Returns a host's next entry.
    fn next_of(&self, host: &Host) -> Option<&T> {
        self.callers.get(self.hosts.get(host)?.turns.front()?)?.waiting.front()
    }

    /// Returns whether a host has any entry, waiting or held.
    pub fn has_any_of(&self, host: Host) -> bool {
        self.hosts.contains_key(&host)
    }

    /// Searches the next entries of at most `looks` hosts for one that `may` accepts, and makes it the entry
    /// whose turn it is. Returns whether there is one.
    ///
    /// Looks at one host of each network, then at a second one of each, and so on, so that the many hosts of
    /// one network hide no other network. The next search begins where this one ended for want of looks.
    pub fn turn_to(&mut self, looks: usize, mut may: impl FnMut(&T) -> bool) -> bool {
        self.front().is_some_and(&mut may) || self.search(looks, may)
    }

    #[cold]
    fn search(&mut self, looks: usize, mut may: impl FnMut(&T) -> bool) -> bool {
        let networks = self.turns.iter().take(looks);
        let hosts = networks.filter_map(|network| Some(&self.networks.get(network)?.turns));
        let mut unsearched: Vec<(usize, &VecDeque<Host>)> = hosts.enumerate().collect();
        let (searched, mut round, mut left) = (unsearched.len(), 0, looks);
        let found = loop {
            unsearched.retain(|(_, hosts)| round < hosts.len());
            if unsearched.is_empty() {
                return false;
            }
            if left < unsearched.len() {
                break None;
            }
            left -= unsearched.len();
            let mut next = unsearched.iter().map(|(place, hosts)| (*place, self.next_of(&hosts[round])));
            if let Some((place, _)) = next.find(|(_, next)| next.is_some_and(&mut may)) {
                break Some(place);
            }
            round += 1;
        };
        let turned = found.map_or(0..searched, |place| place..place + 1);
        for network in self.turns.range(turned) {
            let Some(network) = self.networks.get_mut(network) else { continue };
            let hosts = network.turns.len();
            network.turns.rotate_left(round.min(hosts));
        }
        self.turns.rotate_left(found.unwrap_or(searched));
        found.is_some()
    }

    /// Takes out the entry whose turn it is. Its network goes to the end of the networks' turns, its host to
    /// the end of that network's hosts, and its caller to the end of that host's callers.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Takes out the first entry, in the order of turns, that `may` accepts. Only the next entry of each
    /// host is looked at.
    pub fn pop_if(&mut self, mut may: impl FnMut(&T) -> bool) -> Option<T> {
        let networks = self.turns.iter().filter_map(|network| self.networks.get(network));
        let mut hosts = networks.flat_map(|network| &network.turns);
        let host = *hosts.find(|host| self.next_of(host).is_some_and(&mut may))?;
        pass_turn(&mut self.turns, host.network());
        pass_turn(&mut self.networks.get_mut(&host.network())?.turns, host);
        let callers = &mut self.hosts.get_mut(&host)?.turns;
        let caller = *callers.front()?;
        callers.rotate_left(1);
        let first = self.callers.get_mut(&caller)?.waiting.pop_front()?;
        self.leave(caller, first.bytes());
        Some(first)
    }

    /// Returns the first waiting entry of each caller.
    pub fn firsts(&self) -> impl Iterator<Item = &T> {
        self.callers.values().filter_map(|line| line.waiting.front())
    }

    /// Takes out the entry of this caller with this key, waiting or held.
    pub fn remove(&mut self, caller: T::Caller, key: T::Key) -> Option<T> {
        let line = self.callers.get_mut(&caller)?;
        let find = |all: &VecDeque<T>| all.iter().position(|one| one.key() == key);
        let removed = match find(&line.held) {
            Some(at) => line.held.remove(at).inspect(|_| self.held -= 1)?,
            None => line.waiting.remove(find(&line.waiting)?)?,
        };
        self.leave(caller, removed.bytes());
        Some(removed)
    }

    fn has_room(&self, new: &T) -> bool {
        self.all.len < self.most && self.all.bytes.saturating_add(new.bytes()) <= self.most_bytes
    }

    /// Returns the caller that is to lose an entry for `new`. First compares networks: if the one with the
    /// most entries or bytes has much more than the network of `new`, it pays, and in it the host and the
    /// caller that have most. Otherwise compares the hosts of the network of `new` in the same way, and then
    /// the callers of its host.
    #[cold]
    fn makes_way_for(&self, new: &T) -> Option<T::Caller> {
        let bytes = self.all.bytes.saturating_add(new.bytes());
        let by_bytes = bytes > self.most_bytes;
        let amount = |weight: &Weight| if by_bytes { weight.bytes } else { weight.len };
        // "Much more" means a difference of the size of `new` plus what must be removed for `new`. With a
        // smaller difference, more could be lost than is gained.
        let much = if by_bytes { new.bytes().saturating_add(bytes - self.most_bytes) } else { 2 };
        let allowed = |own: Option<&Weight>| own.map_or(0, amount).saturating_add(much);

        let own_caller = self.callers.get(&new.caller());
        let own = own_caller.map_or_else(|| new.payer(), |line| line.host);
        let networks = self.networks.iter().map(|(name, all)| (*name, amount(&all.weight), all.latest));
        let may_have = allowed(self.networks.get(&own.network()).map(|all| &all.weight));
        let heavier_network = heaviest(networks, Some(may_have));

        let network = heavier_network.unwrap_or(own.network());
        let hosts = self.hosts.iter().filter(|(name, _)| name.network() == network);
        let hosts = hosts.map(|(name, all)| (*name, amount(&all.weight), all.latest));
        let may_have = allowed(self.hosts.get(&own).map(|all| &all.weight));
        let heavier_host = heaviest(hosts, heavier_network.is_none().then_some(may_have));

        let host = heavier_host.unwrap_or(own);
        let callers = self.callers.iter().filter(|(_, line)| line.host == host);
        let callers = callers.map(|(name, line)| (*name, amount(&line.weight), line.latest));
        let may_have = allowed(own_caller.map(|line| &line.weight));
        heaviest(callers, heavier_host.is_none().then_some(may_have))
    }

    /// Takes out the newest entry of a caller: a held one, if there is any.
    fn take_latest(&mut self, caller: T::Caller) -> Option<T> {
        let line = self.callers.get_mut(&caller)?;
        let latest = match line.held.pop_back() {
            Some(held) => {
                self.held -= 1;
                held
            }
            None => line.waiting.pop_back()?,
        };
        self.leave(caller, latest.bytes());
        Some(latest)
    }

    /// Counts an entry that is added. `latest` is its arrival number, or 0 if it is put back.
    fn enter(&mut self, new: &T, latest: u64) -> &mut Line<T> {
        let bytes = new.bytes();
        let (waiting, held, weight) = (VecDeque::new(), VecDeque::new(), Weight::default());
        let line = || Line { host: new.payer(), waiting, held, weight, latest };
        let line = self.callers.entry(new.caller()).or_insert_with(line);
        line.weight.add(bytes);
        line.latest = line.latest.max(latest);
        self.hosts.entry(line.host).or_default().add(bytes, latest);
        self.networks.entry(line.host.network()).or_default().add(bytes, latest);
        self.all.add(bytes);
        line
    }

    /// Gives a caller a turn, unless `has_turn` says that it has one: the next turn if `next`, otherwise the
    /// last turn.
    fn line_up(&mut self, caller: T::Caller, has_turn: bool, next: bool) {
        let Some(name) = self.callers.get(&caller).map(|line| line.host) else { return };
        let Some(host) = self.hosts.get_mut(&name) else { return };
        let Some(network) = self.networks.get_mut(&name.network()) else { return };
        let (host_has_turn, network_has_turn) = (!host.turns.is_empty(), !network.turns.is_empty());
        give_turn(&mut host.turns, caller, has_turn, next);
        give_turn(&mut network.turns, name, host_has_turn, next);
        give_turn(&mut self.turns, name.network(), network_has_turn, next);
    }

    /// Counts an entry as taken out, and forgets callers, hosts and networks without entries.
    fn leave(&mut self, caller: T::Caller, bytes: usize) {
        self.all.remove(bytes);
        let Some(line) = self.callers.get_mut(&caller) else { return };
        line.weight.remove(bytes);
        let (name, waits, is_over) = (line.host, !line.waiting.is_empty(), line.weight.len == 0);
        if is_over {
            self.callers.remove(&caller);
        }
        let Some(host) = self.hosts.get_mut(&name) else { return };
        let Some(network) = self.networks.get_mut(&name.network()) else { return };
        host.weight.remove(bytes);
        network.weight.remove(bytes);
        if !waits {
            drop_turn(&mut host.turns, caller);
        }
        if host.turns.is_empty() {
            drop_turn(&mut network.turns, name);
        }
        if network.turns.is_empty() {
            drop_turn(&mut self.turns, name.network());
        }
        if host.weight.len == 0 {
            self.hosts.remove(&name);
        }
        if network.weight.len == 0 {
            self.networks.remove(&name.network());
        }
    }
}

/// Returns the name of the network, host or caller that has most, and among equals of the one with the newest
/// entry. Returns `None` if it has no more than `allowed`.
fn heaviest<N>(all: impl Iterator<Item = (N, usize, u64)>, allowed: Option<usize>) -> Option<N> {
    let (name, amount, _) = all.max_by_key(|(_, amount, latest)| (*amount, *latest))?;
    allowed.is_none_or(|allowed| amount > allowed).then_some(name)
}

/// Gives `name` a turn, unless `has_turn` says that it has one: the next turn if `next`, otherwise the last
/// turn.
fn give_turn<N: Copy + PartialEq>(turns: &mut VecDeque<N>, name: N, has_turn: bool, next: bool) {
    match next {
        true => {
            if has_turn {
                drop_turn(turns, name);
            }
            turns.push_front(name);
        }
        false if has_turn => (),
        false => turns.push_back(name),
    }
}

/// Moves `name` to the end of the turns.
fn pass_turn<N: Copy + PartialEq>(turns: &mut VecDeque<N>, name: N) {
    if let Some(at) = turns.iter().position(|other| *other == name) {
        turns.remove(at);
        turns.push_back(name);
    }
}

/// Removes a network, a host or a caller, `name`, from the turns. Searches from the end, because `name` is
/// there if it has just had its turn.
fn drop_turn<N: Copy + PartialEq>(turns: &mut VecDeque<N>, name: N) {
    if turns.back() == Some(&name) {
        turns.pop_back();
    } else if let Some(at) = turns.iter().position(|other| *other == name) {
        turns.remove(at);
    }
}

#[cfg(test)]
mod tests;
