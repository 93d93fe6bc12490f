//! Counts what the server keeps for each host of clients, and for each network of hosts. When a budget is
//! exceeded, the network for which the most is kept pays: of its hosts, the one for which the most is kept
//! gives something up (docs/protocol.md, "Bounds").
//!
//! A host is an IPv4 address or an IPv6 /64, however many conversations it has. One machine can have all
//! hosts of an IPv6 network. A conversation for which something is kept remembers its host's place in this
//! table, and a host that of its network, so counting is two additions.
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other. An exchange is a signal or a stream within a call.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::{Mutant, Rule};

/// The kinds of things that are counted, each with a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Bytes of arguments that have not arrived completely.
    Arguments,
    /// Bytes of results that fit one datagram each and are longer than [`SHORT_RESULT`].
    Results,
    /// Bytes of results that are being sent in fragments.
    Sending,
    /// The part of `Sending` that is results of accesses to memory.
    Accessed,
    /// Calls for which anything is kept. A short result is a part of its call.
    Calls,
    /// Memory of activities beyond the first, in units of 16 bytes.
    Activities,
    /// Bytes of memory of exchanges.
    Exchanges,
}

impl Kept {
    pub const ALL: [Kept; 7] = [
        Kept::Arguments,
        Kept::Results,
        Kept::Sending,
        Kept::Accessed,
        Kept::Calls,
        Kept::Activities,
        Kept::Exchanges,
    ];
}

/// The length of the longest result that is counted as a part of its call, in bytes. (To count it by itself
/// would cost 2 % of the instructions of a short call.)
pub(super) const SHORT_RESULT: usize = 64;

/// Returns the amount of [`Kept::Results`] for a result of `len` bytes.
#[inline(always)]
pub(super) fn counted_result(len: usize) -> usize {
    if len <= SHORT_RESULT { 0 } else { len }
}

/// An amount of each kind.
pub(super) type Amounts = [usize; PLACES];

/// The length of an array with an element for each kind. It is a power of two, so that an index is computed
/// by a shift.
const PLACES: usize = Kept::ALL.len().next_power_of_two();

/// The name of a host: an IPv4 address, or an IPv6 /64. The name is the upper half of the IPv6 address. If
/// that half is zero, as for mapped IPv4 addresses, the name is the whole address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(pub(super) [u64; 2]);

impl HostName {
    /// Returns the host of an address.
    pub fn at(address: &SocketAddr) -> HostName {
        match address.ip() {
            // The lower half of the address that `to_ipv6_mapped` gives. It is computed here because this
            // runs for each call.
            IpAddr::V4(ip) => HostName([0, 0xffff << 32 | u64::from(ip.to_bits())]),
            IpAddr::V6(ip) => HostName::of([(ip.to_bits() >> 64) as u64, ip.to_bits() as u64]),
        }
    }

    /// Returns a number for the host: not zero, and different for every two hosts. (No hosts have addresses
    /// in `0:ffff::/32`.)
    #[inline]
    pub fn number(self) -> u64 {
        (self.0[0] | self.0[1]).max(1)
    }

    pub(super) const fn of([upper, lower]: [u64; 2]) -> HostName {
        HostName([upper, if upper == 0 { lower } else { 0 }])
    }

    /// Returns the host's network.
    pub(super) fn network(self) -> NetworkName {
        // ::ffff:127.0.0.0.
        const LOOPBACK: u64 = 0xffff_7f00_0000;
        let number = self.number();
        // (The number of ::1 is 1.)
        NetworkName(if number >> 24 == LOOPBACK >> 24 { 0 } else { number >> 16 })
    }
}

/// The name of a network of hosts: an IPv4 /16, an IPv6 /48, or all loopback addresses, which any process of
/// this machine can have. (`farcall-core` has the same networks.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NetworkName(pub u64);

/// How much is kept for a host, or for all hosts of a network.
#[derive(Debug, Default)]
struct Load {
    kept: Amounts,
    /// The ranks by which the host or the network stands in the orders: 1 for less than a unit, 2 for one
    /// unit, and so on; 0 if it stands in none.
    ranks: [u32; PLACES],
}

impl Load {
    /// Returns whether the rank is that of the amount, or the rank of less than a unit for an amount of zero.
    #[inline(always)]
    fn is_in_order(&self, kind: usize, unit: u32) -> bool {
        let (kept, rank) = (self.kept[kind], self.ranks[kind]);
        rank == rank_of(kept, unit) || kept == 0 && rank <= 1
    }
}

#[inline(always)]
fn rank_of(kept: usize, unit: u32) -> u32 {
    1 + (kept >> unit) as u32
}

/// A host for which something is kept.
#[derive(Debug, Default)]
pub(super) struct Host {
    name: HostName,
    /// The place of the host's network.
    network: u32,
    /// The number of the host's conversations for which something is kept.
    pub conversations: usize,
    load: Load,
    /// Calls for which something is kept, oldest first. An entry can be out of date: nothing is kept for its
    /// call any more, or the conversation has moved to another host.
    pub calls: VecDeque<(u64, u32)>,
    /// Calls whose arguments are arriving in fragments. An entry may be out of date.
    pub receiving: VecDeque<(u64, u32)>,
    /// The number of calls whose arguments are arriving.
    pub arriving: usize,
    /// Conversations with activities beyond the first.
    pub wide: VecDeque<u64>,
    /// Whether the host is in `Hosts::turns`.
    has_turn: bool,
}

/// A network that has hosts for which something is kept.
#[derive(Debug, Default)]
struct Network {
    name: NetworkName,
    /// How many such hosts it has.
    hosts: usize,
    load: Load,
}

/// The order in which hosts and networks pay for one kind: the heaviest network stands last, and of its hosts
/// the heaviest. Amounts are compared in units. Whoever has less than a unit, or nothing any more, stays in
/// the order until it is looked at, so that short calls do not change the order.
#[derive(Debug, Default)]
struct Order {
    /// Ranks and networks.
    networks: BTreeSet<(u32, u32)>,
    /// Networks, ranks and hosts.
    hosts: BTreeSet<(u32, u32, u32)>,
}

/// The maximum number of hosts, or networks, without anything of a kind that are taken out of an order at
/// once. A search that finds only such ones is continued by the next search.
const MAX_LOOKS: usize = 1024;

/// All hosts for which something is kept.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    all: Vec<Host>,
    free: Vec<u32>,
    places: BTreeMap<HostName, u32>,
    networks: Vec<Network>,
    free_networks: Vec<u32>,
    network_places: BTreeMap<NetworkName, u32>,
    total: Amounts,
    /// For each kind, the exponent of the unit in which amounts are compared. The unit is a power of two,
    /// about a thousandth of the budget.
    unit: [u32; PLACES],
    orders: [Order; Kept::ALL.len()],
    mutant: Mutant,
    /// Hosts that have calls in their lists. The hosts take turns; in its turn, all calls of a host are
    /// looked at.
    turns: VecDeque<u32>,
    /// The number of calls that are left in the first host's turn.
    left: usize,
    /// The number of entries in all hosts' lists of calls.
    pub listed: usize,
}

impl Hosts {
    /// Makes an empty table. Amounts of a kind are compared in units of about a thousandth of its budget.
    pub fn new(budgets: Amounts, mutant: Mutant) -> Hosts {
        let unit = budgets.map(|budget| budget.max(1).ilog2().saturating_sub(10));
        Hosts { unit, mutant, ..Hosts::default() }
    }

    /// Notes that something is kept for one more conversation of a host, and returns the host's place.
    pub fn enter(&mut self, name: HostName) -> u32 {
        let place = match self.places.get(&name) {
            Some(place) => *place,
            None => self.add(name),
        };
        self.all[place as usize].conversations += 1;
        place
    }

    fn add(&mut self, name: HostName) -> u32 {
        let network = self.enter_network(name);
        let place = take_place(&mut self.all, &mut self.free);
        let host = &mut self.all[place as usize];
        (host.name, host.network) = (name, network);
        self.places.insert(name, place);
        place
    }

    fn network_of(&self, host: HostName) -> NetworkName {
        let is_ignored = self.mutant.breaks(Rule::NoShareOfNetworks);
        if is_ignored { NetworkName::default() } else { host.network() }
    }

    /// Counts one more host of a network, and returns the network's place.
    fn enter_network(&mut self, host: HostName) -> u32 {
        let name = self.network_of(host);
        let Hosts { networks, free_networks, network_places, .. } = self;
        let place = *network_places.entry(name).or_insert_with(|| take_place(networks, free_networks));
        let network = &mut networks[place as usize];
        network.name = name;
        network.hosts += 1;
        place
    }

    /// Notes that nothing is kept any more for a conversation of a host, or that the conversation has moved
    /// to another host. `kept` is what was kept for the conversation.
    pub fn leave(&mut self, place: u32, kept: &Amounts) {
        for kind in Kept::ALL {
            self.recount(place, kind, kept[kind as usize], 0);
        }
        let host = &mut self.all[place as usize];
        host.conversations -= 1;
        if host.conversations == 0 {
            self.remove(place);
        }
    }

    #[cold]
    fn remove(&mut self, place: u32) {
        let Host { name, network: of, load, calls, has_turn, .. } =
            std::mem::take(&mut self.all[place as usize]);
        debug_assert_eq!(load.kept, Amounts::default());
        self.places.remove(&name);
        self.listed -= calls.len();
        self.all[place as usize].has_turn = has_turn;
        self.free.push(place);
        for (order, rank) in self.orders.iter_mut().zip(load.ranks) {
            order.hosts.remove(&(of, rank, place));
        }
        let network = &mut self.networks[of as usize];
        network.hosts -= 1;
        if network.hosts == 0 {
            let Network { name, load, .. } = std::mem::take(network);
            self.network_places.remove(&name);
            self.free_networks.push(of);
            for (order, rank) in self.orders.iter_mut().zip(load.ranks) {
                order.networks.remove(&(rank, of));
            }
        }
    }

    /// Corrects the counts after a thing that is kept for a host has changed from the amount `from` to the
    /// amount `to`.
    #[inline(always)]
    pub fn recount(&mut self, place: u32, kind: Kept, from: usize, to: usize) {
        let at = kind as usize;
        let total = &mut self.total[at];
        *total = *total + to - from;
        let Host { network, load, .. } = &mut self.all[place as usize];
        let of_all = &mut self.networks[*network as usize].load;
        load.kept[at] = load.kept[at] + to - from;
        of_all.kept[at] = of_all.kept[at] + to - from;
        let unit = self.unit[at];
        if !(load.is_in_order(at, unit) && of_all.is_in_order(at, unit)) {
            self.reorder(place, kind);
        }
    }

    #[cold]
    fn reorder(&mut self, place: u32, kind: Kept) {
        let (at, unit) = (kind as usize, self.unit[kind as usize]);
        let Order { networks, hosts } = &mut self.orders[at];
        let Host { network: of, load, .. } = &mut self.all[place as usize];
        if !load.is_in_order(at, unit) {
            let rank = rank_of(load.kept[at], unit);
            hosts.remove(&(*of, std::mem::replace(&mut load.ranks[at], rank), place));
            hosts.insert((*of, rank, place));
        }
        let load = &mut self.networks[*of as usize].load;
        if !load.is_in_order(at, unit) {
            let rank = rank_of(load.kept[at], unit);
            networks.remove(&(std::mem::replace(&mut load.ranks[at], rank), *of));
            networks.insert((rank, *of));
        }
    }

    /// Returns how much is kept for all hosts.
    #[inline(always)]
    pub fn total(&self, kind: Kept) -> usize {
        self.total[kind as usize]
    }

    /// Returns a host's place.
    pub fn find(&self, name: HostName) -> Option<u32> {
        self.places.get(&name).copied()
    }

    /// Checks the counts against the hosts, and returns the number of hosts and what is kept for all. For
    /// tests.
    pub fn audit(&self) -> (usize, Amounts) {
        let listed: usize = self.all.iter().map(|host| host.calls.len()).sum();
        assert_eq!(listed, self.listed, "calls that are listed");
        let in_use = |host: &&Host| host.conversations > 0;
        for kind in Kept::ALL {
            let (at, unit, order) = (kind as usize, self.unit[kind as usize], &self.orders[kind as usize]);
            assert!(self.all.iter().all(|host| host.load.is_in_order(at, unit)), "the ranks of hosts");
            let networks = &self.networks;
            assert!(networks.iter().all(|network| network.load.is_in_order(at, unit)), "those of networks");
            let hosts = (0..).zip(&self.all).map(|(place, host)| (host.network, host.load.ranks[at], place));
            let hosts: BTreeSet<_> = hosts.filter(|(_, rank, _)| *rank > 0).collect();
            assert_eq!(hosts, order.hosts, "hosts in order");
            let networks = (0..).zip(networks).map(|(place, network)| (network.load.ranks[at], place));
            let networks: BTreeSet<_> = networks.filter(|(rank, _)| *rank > 0).collect();
            assert_eq!(networks, order.networks, "networks in order");
            let mut kept = vec![0; self.networks.len()];
            self.all.iter().for_each(|host| kept[host.network as usize] += host.load.kept[at]);
            assert!(kept.iter().zip(&self.networks).all(|(kept, network)| *kept == network.load.kept[at]));
        }
        let hosts: usize = self.networks.iter().map(|network| network.hosts).sum();
        assert_eq!(hosts, self.all.iter().filter(in_use).count(), "the hosts of networks");
        (self.places.len(), self.total)
    }

    /// Returns how much is kept for one host.
    pub fn kept(&self, place: u32, kind: Kept) -> usize {
        self.all[place as usize].load.kept[kind as usize]
    }

    /// Returns how much is kept for all hosts of a host's network.
    pub fn kept_in_network(&self, place: u32, kind: Kept) -> usize {
        self.networks[self.all[place as usize].network as usize].load.kept[kind as usize]
    }

    /// Returns how much is kept for the host of that name, and for its network, if anything is.
    pub fn kept_at(&self, name: HostName, kind: Kept) -> (usize, usize) {
        let of_host = self.find(name).map_or(0, |place| self.kept(place, kind));
        let network = self.network_places.get(&self.network_of(name));
        (of_host, network.map_or(0, |place| self.networks[*place as usize].load.kept[kind as usize]))
    }

    /// Returns whether less than half as much is kept for the host of that name as for the host `place`, or
    /// for its network as for the other's.
    pub fn has_less_than_half(&self, name: HostName, place: u32, kind: Kept) -> bool {
        let (of_host, of_network) = self.kept_at(name, kind);
        let Some(other) = self.all.get(place as usize) else { return false };
        let of_same_network = self.network_of(name) == self.network_of(other.name);
        2 * of_network < self.kept_in_network(place, kind)
            || of_same_network && 2 * of_host < self.kept(place, kind)
    }

    /// Returns whether one host pays before another one: whether more is kept for its network or, if they are
    /// in the same one, for itself.
    pub fn pays_before(&self, one: u32, other: u32, kind: Kept) -> bool {
        let [a, b] = [one, other].map(|place| self.all[place as usize].network);
        if a == b {
            return self.kept(one, kind) > self.kept(other, kind);
        }
        self.kept_in_network(one, kind) > self.kept_in_network(other, kind)
    }

    /// Returns the host that pays for a kind: of the network for which the most is kept, the host for which
    /// the most is kept. Amounts that differ by less than a unit may count as equal. The host `spared` does
    /// not pay.
    pub fn heaviest(&mut self, kind: Kept, spared: Option<u32>) -> Option<u32> {
        let (at, mut below) = (kind as usize, (u32::MAX, 0));
        for _ in 0..MAX_LOOKS {
            let last = *self.orders[at].networks.range(..below).next_back()?;
            let load = &mut self.networks[last.1 as usize].load;
            if load.kept[at] == 0 {
                load.ranks[at] = 0;
                self.orders[at].networks.remove(&last);
            } else if let Some(host) = self.heaviest_of(last.1, kind, spared) {
                return Some(host);
            } else {
                below = last;
            }
        }
        None
    }

    /// Returns the host for which the most of a kind is kept in the network of a host.
    pub fn heaviest_beside(&mut self, place: u32, kind: Kept) -> Option<u32> {
        self.heaviest_of(self.all[place as usize].network, kind, None)
    }

    fn heaviest_of(&mut self, network: u32, kind: Kept, spared: Option<u32>) -> Option<u32> {
        let (at, all) = (kind as usize, (network, 0, 0)..=(network, u32::MAX, u32::MAX));
        for _ in 0..MAX_LOOKS {
            let mut hosts = self.orders[at].hosts.range(all.clone()).rev();
            let last = *hosts.find(|(.., place)| Some(*place) != spared)?;
            let load = &mut self.all[last.2 as usize].load;
            if load.kept[at] > 0 {
                return Some(last.2);
            }
            load.ranks[at] = 0;
            self.orders[at].hosts.remove(&last);
        }
        None
    }

    /// Returns the first host in the table for which anything of a kind is kept.
    pub fn first(&self, kind: Kept) -> Option<u32> {
        self.all.iter().position(|host| host.load.kept[kind as usize] > 0).map(|place| place as u32)
    }

    /// Returns the number of places for hosts.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn at(&self, place: u32) -> &Host {
        &self.all[place as usize]
    }

    pub fn at_mut(&mut self, place: u32) -> &mut Host {
        &mut self.all[place as usize]
    }

    /// Adds a call to its host's list.
    pub fn list(&mut self, place: u32, call: (u64, u32)) {
        let host = &mut self.all[place as usize];
        host.calls.push_back(call);
        self.listed += 1;
        if !std::mem::replace(&mut host.has_turn, true) {
            self.turns.push_back(place);
        }
    }

    /// Keeps, in a host's list of calls, the oldest entry of each call for which `is_kept` returns true.
    #[cold]
    pub fn retain_calls(&mut self, place: u32, is_kept: impl Fn((u64, u32)) -> bool) {
        let calls = &mut self.all[place as usize].calls;
        let (before, mut seen) = (calls.len(), HashSet::new());
        calls.retain(|call| is_kept(*call) && seen.insert(*call));
        self.listed -= before - calls.len();
    }

    /// Takes the oldest call out of a host's list.
    pub fn oldest(&mut self, place: u32) -> Option<(u64, u32)> {
        let oldest = self.all[place as usize].calls.pop_front()?;
        self.listed -= 1;
        Some(oldest)
    }

    /// Takes the next call out of the hosts' lists, in turn, and returns it with its host's place. A call
    /// that is [put back](Hosts::list) is taken again only after all others.
    pub fn next(&mut self) -> Option<(u32, (u64, u32))> {
        loop {
            let place = *self.turns.front()?;
            if self.left == 0 {
                self.left = self.all[place as usize].calls.len();
            }
            let call = self.oldest(place);
            self.left = if call.is_some() { self.left - 1 } else { 0 };
            match call {
                Some(call) => {
                    if self.left == 0 {
                        self.turns.rotate_left(1);
                    }
                    return Some((place, call));
                }
                None => {
                    self.turns.pop_front();
                    self.all[place as usize].has_turn = false;
                }
            }
        }
    }

    /// Notes that arguments of a call begin to arrive in fragments.
    pub fn begin_receiving(&mut self, place: u32, call: (u64, u32)) {
        let host = &mut self.all[place as usize];
        host.receiving.push_back(call);
        host.arriving += 1;
    }

    /// Notes that the arguments of a call have all arrived, or were dropped.
    pub fn end_receiving(&mut self, place: u32, call: (u64, u32)) {
        let host = &mut self.all[place as usize];
        host.arriving -= 1;
        if host.receiving.front() == Some(&call) {
            host.receiving.pop_front();
        }
    }
}

/// Returns a free place for one more item.
fn take_place<T: Default>(all: &mut Vec<T>, free: &mut Vec<u32>) -> u32 {
    free.pop().unwrap_or_else(|| {
        all.push(T::default());
        all.len() as u32 - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::at(&SocketAddr::new(text.parse().unwrap(), 7))
    }

    #[test]
    fn a_host_is_an_ipv4_address_or_an_ipv6_network_of_64_bits() {
        assert_eq!(name("10.0.0.1"), name("::ffff:10.0.0.1"));
        assert_eq!(name("2001:db8:0:1::1"), name("2001:db8:0:1:ffff::"));
        let all = ["10.0.0.1", "10.0.0.2", "2001:db8:0:1::1", "2001:db8:0:2::1", "::1", "::2"].map(name);
        let distinct_numbers = |numbers: &[u64]| numbers.iter().collect::<HashSet<_>>().len();
        assert_eq!(distinct_numbers(&all.map(HostName::number)), all.len());
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!((name("::").number(), name("::2").number()), (1, 2));
    }

    /// Makes one host for each entry, with that many listed calls. Returns the hosts and their places.
    fn with_calls(many: &[u32]) -> (Hosts, Vec<u32>) {
        let mut hosts = Hosts::new([1 << 20; PLACES], Mutant::default());
        let mut places = Vec::new();
        for (n, calls) in many.iter().enumerate() {
            let place = hosts.enter(HostName::of([1 + n as u64, 0]));
            (0..*calls).for_each(|call| hosts.list(place, (n as u64, call)));
            places.push(place);
        }
        (hosts, places)
    }

    #[test]
    fn next_visits_the_calls_of_each_host_in_turn_and_a_relisted_call_last() {
        let (mut hosts, _) = with_calls(&[3, 0, 1, 2]);
        for _ in 0..3 {
            let mut seen = Vec::new();
            for _ in 0..6 {
                let (place, call) = hosts.next().expect("six calls are listed");
                seen.push(call);
                hosts.list(place, call);
            }
            assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (2, 0), (3, 0), (3, 1)]);
        }
        let left: Vec<_> = std::iter::from_fn(|| hosts.next()).map(|(_, call)| call).collect();
        assert_eq!((left.len(), hosts.listed), (6, 0));
    }

    #[test]
    fn a_host_that_leaves_and_returns_has_one_turn() {
        let (mut hosts, _) = with_calls(&[1]);
        for _ in 0..100 {
            let place = hosts.enter(HostName::of([9, 0]));
            hosts.list(place, (9, 0));
            hosts.leave(place, &Amounts::default());
        }
        assert_eq!((hosts.turns.len(), hosts.listed), (2, 1));
        let place = hosts.enter(HostName::of([9, 0]));
        hosts.list(place, (9, 0));
        let calls: Vec<_> = std::iter::from_fn(|| hosts.next()).map(|(_, call)| call).collect();
        assert_eq!(calls, [(0, 0), (9, 0)]);
    }

    #[test]
    fn a_network_is_a_16_a_48_or_loopback() {
        let network = |text| name(text).network();
        assert_eq!(network("10.0.0.7"), network("10.0.255.1"));
        assert_eq!(network("10.0.0.7"), network("::ffff:10.0.0.8"));
        assert_ne!(network("10.0.0.7"), network("10.1.0.7"));
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:ffff::1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:1::1"));
        assert_eq!(network("127.0.0.1"), network("127.255.7.1"));
        assert_eq!(network("127.0.0.1"), network("::1"));
    }

    /// Makes a host with this number in a network.
    fn host_in(hosts: &mut Hosts, network: u64, number: u64) -> u32 {
        hosts.enter(HostName::of([0x2001 << 48 | network << 16 | number, 0]))
    }

    #[test]
    fn the_network_with_most_pays_and_of_it_the_host_with_most() {
        let mut hosts = Hosts::new([1 << 20; PLACES], Mutant::default());
        let lone = host_in(&mut hosts, 1, 0);
        hosts.recount(lone, Kept::Sending, 0, 50_000);
        let many: Vec<u32> = (0..100).map(|number| host_in(&mut hosts, 2, number)).collect();
        // Each of them has less than a unit.
        many.iter().for_each(|host| hosts.recount(*host, Kept::Sending, 0, 600));
        let payer = hosts.heaviest(Kept::Sending, None).unwrap();
        assert!(many.contains(&payer));
        assert!(hosts.pays_before(payer, lone, Kept::Sending));
        assert_eq!(
            hosts.kept_at(HostName::of([0x2001 << 48 | 2 << 16 | 7, 0]), Kept::Sending),
            (600, 60_000)
        );
        hosts.recount(many[40], Kept::Sending, 600, 3_000);
        assert_eq!(hosts.heaviest(Kept::Sending, None), Some(many[40]));
        assert!(hosts.heaviest(Kept::Sending, Some(many[40])).is_some_and(|host| many.contains(&host)));
        assert_eq!(hosts.heaviest_beside(many[0], Kept::Sending), Some(many[40]));
        hosts.audit();
        many[..30].iter().for_each(|host| hosts.recount(*host, Kept::Sending, 600, 0));
        assert_eq!(hosts.heaviest(Kept::Sending, None), Some(lone));
        assert!(hosts.heaviest(Kept::Sending, Some(lone)).is_some_and(|host| many.contains(&host)));
        hosts.audit();
    }

    #[test]
    fn whoever_pays_has_something_and_is_the_heaviest_by_a_unit_whatever_came_before() {
        const BUDGET: usize = 1 << 16;
        let mut hosts = Hosts::new([BUDGET; PLACES], Mutant::default());
        let (mut x, mut all) = (7_u64, BTreeMap::<(u64, u64), (u32, usize)>::new());
        for _ in 0..20_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let key = (x >> 8 & 3, x >> 16 & 15);
            let amount = (x >> 24) as usize % [1, 50, 2_000][x as usize % 3];
            match all.get(&key).copied() {
                None => {
                    let place = host_in(&mut hosts, key.0, key.1);
                    hosts.recount(place, Kept::Results, 0, amount);
                    all.insert(key, (place, amount));
                }
                Some((place, before)) if x >> 60 == 0 => {
                    let mut kept = Amounts::default();
                    kept[Kept::Results as usize] = before;
                    hosts.leave(place, &kept);
                    all.remove(&key);
                }
                Some((place, before)) => {
                    hosts.recount(place, Kept::Results, before, amount);
                    all.insert(key, (place, amount));
                }
            }
            if x >> 40 & 15 > 0 {
                continue;
            }
            hosts.audit();
            let of = |network| all.iter().filter(move |(key, _)| key.0 == network).map(|(_, host)| host.1);
            let Some(payer) = hosts.heaviest(Kept::Results, None) else {
                assert_eq!(hosts.total(Kept::Results), 0);
                continue;
            };
            let (network, _) = *all.iter().find(|(_, host)| host.0 == payer).unwrap().0;
            let unit = BUDGET >> 10;
            let heaviest = (0..4).map(|network| of(network).sum::<usize>()).max().unwrap();
            assert!(of(network).sum::<usize>() + unit > heaviest);
            let kept = hosts.kept(payer, Kept::Results);
            assert!(kept > 0 && kept + unit > of(network).max().unwrap());
        }
    }

    #[test]
    fn the_heaviest_host_is_never_one_that_keeps_nothing() {
        let (mut hosts, places) = with_calls(&[1; 2000]);
        assert_eq!(hosts.heaviest(Kept::Arguments, None), None);
        for place in &places[1000..] {
            hosts.recount(*place, Kept::Arguments, 0, 1000);
        }
        assert!(hosts.heaviest(Kept::Arguments, None).is_some_and(|place| places[1000..].contains(&place)));
        hosts.recount(places[1500], Kept::Arguments, 0, 1000);
        assert_eq!(hosts.heaviest(Kept::Arguments, None), Some(places[1500]));
        hosts.audit();
        for place in &places[1000..] {
            hosts.recount(*place, Kept::Arguments, 1000, 0);
        }
        assert_eq!(hosts.heaviest(Kept::Arguments, None), Some(places[1500]), "it keeps 1,000 bytes still");
    }
}
