//! A queue that is fair between hosts, and between the prefixes of their addresses. Networks take turns, in
//! each network its subnetworks, in each of these its hosts. So many hosts of one network get as many turns
//! as one host of another network (a hierarchy of round robins; Nagle 1987, "On packet switches with infinite
//! storage").
//!
//! The queue is for a few hundred entries: every operation may look at all of them.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::hosts::HostName;

/// The lengths of the prefixes that take turns, the shortest first, above the host. IPv4 addresses are mapped
/// to IPv6.
const PREFIXES_V4: [u32; 4] = [96 + 16, 96 + 16, 96 + 24, 96 + 24];
const PREFIXES_V6: [u32; 4] = [32, 48, 56, 63];

/// Those of 127.0.0.0/8: any process of this machine can have all of these addresses.
const PREFIXES_LOOPBACK: [u32; 4] = [96 + 8, 96 + 8, 96 + 16, 96 + 24];

/// Which turns an address shares: those of each prefix, the shortest first, and of its host.
pub(super) type Path = [u128; PREFIXES_V6.len() + 1];

/// Returns the path of an address. If `alone` is true, each host has turns of its own.
pub(super) fn path(address: &SocketAddr, alone: bool) -> Path {
    let [upper, lower] = HostName::at(address).0.map(u128::from);
    let (ip, prefixes) = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_loopback() => (ip.to_ipv6_mapped().to_bits(), PREFIXES_LOOPBACK),
        IpAddr::V4(ip) => (ip.to_ipv6_mapped().to_bits(), PREFIXES_V4),
        IpAddr::V6(ip) => (ip.to_bits(), PREFIXES_V6),
    };
    let [a, b, c, d] = prefixes.map(|len| if alone { 0 } else { ip & !(u128::MAX >> len) });
    [a, b, c, d, upper << 64 | lower]
}

/// The queue, or the part of it that has one prefix.
#[derive(Debug)]
pub(super) struct Turns<T> {
    prefix: u128,
    /// The longer prefixes that have entries, in the order of their turns.
    parts: VecDeque<Turns<T>>,
    /// The entries of a host. Those that have a place stand first.
    placed: VecDeque<T>,
    others: VecDeque<T>,
    /// How many entries there are, and how many of them have no place.
    len: usize,
    unplaced: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns::new(0)
    }
}

impl<T> Turns<T> {
    fn new(prefix: u128) -> Turns<T> {
        let (parts, placed, others) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Turns { prefix, parts, placed, others, len: 0, unplaced: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry. One that has a place is before those of its host that have none, and makes way last.
    pub fn push(&mut self, path: &[u128], entry: T, has_place: bool) {
        self.len += 1;
        self.unplaced += usize::from(!has_place);
        let Some((prefix, longer)) = path.split_first() else {
            return if has_place { self.placed.push_back(entry) } else { self.others.push_back(entry) };
        };
        let known = self.parts.iter().position(|part| part.prefix == *prefix);
        let at = known.unwrap_or_else(|| {
            self.parts.push_back(Turns::new(*prefix));
            self.parts.len() - 1
        });
        self.parts[at].push(longer, entry, has_place);
    }

    /// Takes out the entry whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let Some(mut first) = self.parts.pop_front() else {
            let placed = self.placed.pop_front();
            self.unplaced -= usize::from(placed.is_none() && !self.others.is_empty());
            let entry = placed.or_else(|| self.others.pop_front())?;
            self.len -= 1;
            return Some(entry);
        };
        let unplaced = first.unplaced;
        let entry = first.pop();
        self.len -= usize::from(entry.is_some());
        self.unplaced -= unplaced - first.unplaced;
        if first.len > 0 {
            self.parts.push_back(first);
        }
        entry
    }

    /// Takes out the entry that makes way for others: of the networks, then of its hosts, the one that has
    /// most entries, and of this host the newest entry. Those that have a place make way if there are no
    /// others.
    pub fn evict(&mut self) -> Option<T> {
        self.evict_of(self.unplaced > 0)
    }

    fn evict_of(&mut self, unplaced: bool) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        self.unplaced -= usize::from(unplaced);
        // Of parts that have as many, the one that came last.
        let rank = |part: &Turns<T>| if unplaced { (part.unplaced, part.len) } else { (part.len, 0) };
        let most = self.parts.iter().enumerate().max_by_key(|(_, part)| rank(part)).map(|(at, _)| at);
        let Some(at) = most else {
            return if unplaced { self.others.pop_back() } else { self.placed.pop_back() };
        };
        let entry = self.parts[at].evict_of(unplaced);
        if self.parts[at].len == 0 {
            self.parts.remove(at);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Path {
        path(&SocketAddr::new(address.parse().unwrap(), 1), false)
    }

    fn fill(addresses: &[(&'static str, usize)]) -> Turns<&'static str> {
        let mut turns = Turns::default();
        for (address, times) in addresses {
            (0..*times).for_each(|_| turns.push(&at(address), *address, false));
        }
        turns
    }

    #[test]
    fn networks_take_turns_and_so_do_the_hosts_of_a_network() {
        let mut turns = fill(&[("10.0.0.1", 4), ("10.0.0.2", 4), ("10.0.0.3", 4), ("192.0.2.1", 4)]);
        let order: Vec<&str> = std::iter::from_fn(|| turns.pop()).take(8).collect();
        let of_other = order.iter().filter(|address| **address == "192.0.2.1").count();
        assert_eq!(of_other, 4, "{order:?}");
        assert_eq!(order.iter().filter(|address| **address == "10.0.0.1").count(), 2);
    }

    #[test]
    fn a_thousand_hosts_of_one_prefix_get_as_many_turns_as_one_host_of_another() {
        for other in ["2001:db8:1::1", "2001:db9::1", "::1", "127.0.0.1"] {
            let mut turns = Turns::default();
            for n in 0..1_000_u16 {
                turns.push(&at(&format!("2001:db8:0:{n:x}::1")), "many", false);
            }
            (0..10).for_each(|_| turns.push(&at(other), "one", false));
            let order: Vec<&str> = std::iter::from_fn(|| turns.pop()).take(20).collect();
            assert_eq!(order.iter().filter(|who| **who == "one").count(), 10, "{other}");
        }
    }

    #[test]
    fn all_loopback_addresses_together_get_as_many_turns_as_one_other_host() {
        let mut turns = Turns::default();
        for n in 0..1_000_u16 {
            turns.push(&at(&format!("127.{}.{}.1", n % 256, n / 256)), "many", false);
        }
        (0..10).for_each(|_| turns.push(&at("192.0.2.1"), "one", false));
        let order: Vec<&str> = std::iter::from_fn(|| turns.pop()).take(20).collect();
        assert_eq!(order.iter().filter(|who| **who == "one").count(), 10);
    }

    #[test]
    fn a_63_counts_as_one_host_and_a_mapped_address_as_its_ipv4_address() {
        let [a, b] = ["2001:db8:0:2::1", "2001:db8:0:3::1"].map(at);
        assert_eq!(a[..4], b[..4]);
        assert_ne!(a, b);
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("127.0.0.1")[0], at("::1")[0]);
    }

    #[test]
    fn whoever_has_most_makes_way_and_places_are_kept() {
        let mut turns = fill(&[("10.0.0.1", 3), ("10.0.0.2", 4), ("192.0.2.1", 5)]);
        turns.push(&at("10.0.0.2"), "placed", true);
        assert_eq!((turns.evict(), turns.evict()), (Some("10.0.0.2"), Some("10.0.0.2")));
        let mut rest = Vec::new();
        while let Some(evicted) = turns.evict() {
            rest.push(evicted);
        }
        assert_eq!((rest.len(), rest.last(), turns.len()), (11, Some(&"placed"), 0));
    }

    #[test]
    fn it_holds_what_was_pushed_however_it_is_emptied() {
        let (mut x, mut turns, mut held) = (7_u64, Turns::default(), 0_usize);
        for _ in 0..20_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            match x % 5 {
                0..=2 if held < 300 => {
                    let address = format!("10.{}.0.{}", x >> 20 & 3, x >> 30 & 7);
                    turns.push(&at(&address), x, x >> 40 & 1 == 0);
                    held += 1;
                }
                3 => held -= usize::from(turns.pop().is_some()),
                _ => held -= usize::from(turns.evict().is_some()),
            }
            assert_eq!(turns.len(), held);
            assert!(turns.unplaced <= turns.len);
        }
        while turns.pop().is_some() {
            held -= 1;
        }
        assert_eq!((held, turns.unplaced, turns.parts.len()), (0, 0, 0));
    }
}
