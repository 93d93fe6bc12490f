//! Counters for each host, and for each network of hosts, in constant memory: two count-min sketches (Cormode
//! & Muthukrishnan 2005). Each host has two cells, which it can share with other hosts, and so has each
//! network. A count is never too small, and is too large only if both cells are shared. Which ones share cells
//! depends on a secret of this incarnation.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::hosts::{HostName, NetworkName};
use crate::{Mutant, Rule};

/// The number of cells in each row. A host has one cell in each of two rows, a network in each of two others.
const CELLS: usize = 1024;

/// How many of something a host has, and all hosts of its network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count {
    /// The count of the network. It stands first, because networks are compared before hosts.
    pub network: u32,
    pub host: u32,
}

#[derive(Debug)]
pub(super) struct Counts {
    key: [u8; 16],
    /// Empty until something is counted.
    cells: Box<[u32]>,
    mutant: Mutant,
}

impl Counts {
    /// Makes counts that are all zero. The secret `key` decides which hosts and networks share cells.
    pub fn new(key: [u8; 16], mutant: Mutant) -> Counts {
        Counts { key, cells: Box::default(), mutant }
    }

    /// Returns the counts of a host and of its network, or larger numbers if they share both their cells.
    pub fn of(&self, host: HostName) -> Count {
        if self.cells.is_empty() {
            return Count::default();
        }
        let [a, b, c, d] = self.places(host).map(|place| self.cells[place]);
        let is_ignored = self.mutant.breaks(Rule::NoShareOfNetworks);
        Count { network: if is_ignored { 0 } else { a.min(b) }, host: c.min(d) }
    }

    /// Adds `more` to the counts of a host and of its network.
    pub fn add(&mut self, host: HostName, more: u32) {
        if self.cells.is_empty() {
            self.cells = vec![0; 4 * CELLS].into_boxed_slice();
        }
        self.places(host).into_iter().for_each(|place| self.cells[place] += more);
    }

    /// Sets all counts to zero.
    pub fn clear(&mut self) {
        self.cells.fill(0);
    }

    /// Subtracts one from the counts of a host and of its network.
    pub fn remove(&mut self, host: HostName) {
        self.places(host).into_iter().for_each(|place| self.cells[place] -= 1);
    }

    fn places(&self, host: HostName) -> [usize; 4] {
        let NetworkName(network) = host.network();
        let [a, b] = self.hash(&[network]);
        let [c, d] = self.hash(&host.0);
        [a, CELLS + b, 2 * CELLS + c, 3 * CELLS + d]
    }

    fn hash(&self, words: &[u64]) -> [usize; 2] {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        words.iter().for_each(|word| hasher.write_u64(*word));
        let hash = hasher.finish128();
        [hash.h1, hash.h2].map(|half| half as usize % CELLS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_many_stands_out_among_many_hosts() {
        let mut counts = Counts::new([7; 16], Mutant::default());
        let host = |n: u64| HostName::of([n + 1, 0]);
        (0..20_000).for_each(|n| counts.add(host(n), 1));
        (0..2_000).for_each(|_| counts.add(host(0), 1));
        assert!(counts.of(host(0)).host >= 2_001);
        assert!((1..20_000).filter(|n| counts.of(host(*n)).host >= 1_000).count() <= 2);
        (0..20_000).for_each(|n| counts.remove(host(n)));
        assert_eq!((counts.of(host(0)).host, counts.of(host(1)).host), (2_000, 0));
    }

    #[test]
    fn hosts_of_one_network_are_counted_together() {
        let mut counts = Counts::new([7; 16], Mutant::default());
        let host = |network: u64, n: u64| HostName::of([0x2001 << 48 | network << 16 | n, 0]);
        (0..20).for_each(|n| counts.add(host(1, n), 2));
        counts.add(host(2, 0), 7);
        let few = Count { network: 7, host: 7 };
        assert_eq!(counts.of(host(2, 0)), few);
        assert_eq!(counts.of(host(1, 900)).network, 40);
        assert!(counts.of(host(1, 0)) > few, "networks are compared before hosts");
    }

    #[test]
    fn a_host_that_is_added_once_is_counted_once() {
        for n in 0..5_000 {
            let mut counts = Counts::new([7; 16], Mutant::default());
            let host = HostName::of([n + 1, 0]);
            counts.add(host, 1);
            assert_eq!(counts.of(host), Count { network: 1, host: 1 }, "{n}");
        }
    }
}
