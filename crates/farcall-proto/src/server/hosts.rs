//! Counts, for each host of clients, what the server keeps for it. When a budget is exceeded, the host for
//! which the most is kept gives something up (docs/protocol.md, "Bounds").
//!
//! A host is an IPv4 address or an IPv6 /64, however many conversations it has. A conversation for which
//! something is kept remembers its host's place in this table, so counting is one addition.
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other. An exchange is a signal or a stream within a call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// The kinds of things that are counted, each with a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Bytes of arguments that have not arrived completely.
    Arguments,
    /// Bytes of results that fit one datagram each.
    Results,
    /// Bytes of results that are being sent in fragments.
    Sending,
    /// The part of `Sending` that is results of accesses to memory.
    Accessed,
    /// Calls for which anything is kept.
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
}

/// A host for which something is kept.
#[derive(Debug, Default)]
pub(super) struct Host {
    name: HostName,
    /// The number of the host's conversations for which something is kept.
    pub conversations: usize,
    pub kept: Amounts,
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

/// All hosts for which something is kept.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    all: Vec<Host>,
    free: Vec<u32>,
    places: BTreeMap<HostName, u32>,
    total: Amounts,
    /// For each kind, the exponent of the unit in which amounts are compared. The unit is a power of two,
    /// about a thousandth of the budget.
    unit: [u32; PLACES],
    /// Hosts that have at least one unit, ordered by amount.
    order: [BTreeSet<(usize, u32)>; Kept::ALL.len()],
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
    pub fn new(budgets: Amounts) -> Hosts {
        let unit = budgets.map(|budget| budget.max(1).ilog2().saturating_sub(10));
        Hosts { unit, ..Hosts::default() }
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
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(Host::default());
            self.all.len() as u32 - 1
        });
        self.all[place as usize].name = name;
        self.places.insert(name, place);
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
            debug_assert_eq!(host.kept, Amounts::default());
            self.places.remove(&host.name);
            self.listed -= host.calls.len();
            *host = Host { has_turn: host.has_turn, ..Host::default() };
            self.free.push(place);
        }
    }

    /// Corrects the counts after a thing that is kept for a host has changed from the amount `from` to the
    /// amount `to`.
    #[inline(always)]
    pub fn recount(&mut self, place: u32, kind: Kept, from: usize, to: usize) {
        let total = &mut self.total[kind as usize];
        *total = *total + to - from;
        let kept = &mut self.all[place as usize].kept[kind as usize];
        let before = *kept;
        *kept = before + to - from;
        if (before ^ *kept) >> self.unit[kind as usize] != 0 {
            self.reorder(place, kind, before);
        }
    }

    #[cold]
    fn reorder(&mut self, place: u32, kind: Kept, before: usize) {
        let (unit, now) = (self.unit[kind as usize], self.all[place as usize].kept[kind as usize]);
        let order = &mut self.order[kind as usize];
        order.remove(&(before >> unit, place));
        if now >> unit > 0 {
            order.insert((now >> unit, place));
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
        for kind in Kept::ALL {
            let unit = self.unit[kind as usize];
            let heavy = |(place, host): (usize, &Host)| (host.kept[kind as usize] >> unit, place as u32);
            let order: BTreeSet<_> =
                self.all.iter().enumerate().map(heavy).filter(|(units, _)| *units > 0).collect();
            assert_eq!(order, self.order[kind as usize], "hosts in order");
        }
        (self.places.len(), self.total)
    }

    /// Returns how much is kept for one host.
    pub fn kept(&self, place: u32, kind: Kept) -> usize {
        self.all[place as usize].kept[kind as usize]
    }

    /// Returns the host for which the most of a kind is kept. If all have less than a unit, returns any host
    /// that has something.
    pub fn heaviest(&self, kind: Kept) -> Option<u32> {
        self.order[kind as usize].last().map(|(_, place)| *place).or_else(|| self.first(kind))
    }

    /// Returns the first host in the table for which anything of a kind is kept.
    pub fn first(&self, kind: Kept) -> Option<u32> {
        self.all.iter().position(|host| host.kept[kind as usize] > 0).map(|place| place as u32)
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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
        let mut hosts = Hosts::new([1 << 20; PLACES]);
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
    fn the_heaviest_host_is_never_one_that_keeps_nothing() {
        let (mut hosts, places) = with_calls(&[1; 2000]);
        assert_eq!(hosts.heaviest(Kept::Arguments), None);
        for place in &places[1000..] {
            hosts.recount(*place, Kept::Arguments, 0, 1000);
        }
        assert_eq!(hosts.heaviest(Kept::Arguments), Some(places[1000]));
        hosts.recount(places[1500], Kept::Arguments, 0, 1000);
        assert_eq!(hosts.heaviest(Kept::Arguments), Some(places[1500]));
        hosts.audit();
        for place in &places[1000..] {
            hosts.recount(*place, Kept::Arguments, 1000, 0);
        }
        assert_eq!(hosts.heaviest(Kept::Arguments), Some(places[1500]), "it keeps 1,000 bytes still");
    }
}
