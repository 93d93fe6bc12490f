//! Counters for each host in constant memory: a count-min sketch (Cormode & Muthukrishnan 2005). Each host
//! has two cells, which it can share with other hosts. A count is never too small, and is too large only for
//! a host that shares both its cells. Which hosts share cells depends on a secret of this incarnation.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::hosts::HostName;

/// The number of cells in each of the two rows. A host has one cell in each row.
const CELLS: usize = 1024;

#[derive(Debug)]
pub(super) struct Counts {
    key: [u8; 16],
    cells: Box<[u32]>,
}

impl Counts {
    /// Makes counts that are all zero. The secret `key` decides which hosts share cells.
    pub fn new(key: [u8; 16]) -> Counts {
        Counts { key, cells: vec![0; 2 * CELLS].into_boxed_slice() }
    }

    /// Returns the count of a host, or a larger number if the host shares both its cells.
    pub fn of(&self, host: HostName) -> u32 {
        self.places(host).map(|place| self.cells[place]).into_iter().min().unwrap_or(0)
    }

    /// Adds `more` to the count of a host.
    pub fn add(&mut self, host: HostName, more: u32) {
        self.places(host).into_iter().for_each(|place| self.cells[place] += more);
    }

    /// Sets all counts to zero.
    pub fn clear(&mut self) {
        self.cells.fill(0);
    }

    /// Subtracts one from the count of a host.
    pub fn remove(&mut self, host: HostName) {
        self.places(host).into_iter().for_each(|place| self.cells[place] -= 1);
    }

    fn places(&self, host: HostName) -> [usize; 2] {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        host.0.into_iter().for_each(|word| hasher.write_u64(word));
        let hash = hasher.finish128();
        [hash.h1 as usize % CELLS, CELLS + hash.h2 as usize % CELLS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_many_stands_out_among_many_hosts() {
        let mut counts = Counts::new([7; 16]);
        let host = |n: u64| HostName::of([n + 1, 0]);
        (0..20_000).for_each(|n| counts.add(host(n), 1));
        (0..2_000).for_each(|_| counts.add(host(0), 1));
        assert!(counts.of(host(0)) >= 2_001);
        assert!((1..20_000).filter(|n| counts.of(host(*n)) >= 1_000).count() <= 2);
        (0..20_000).for_each(|n| counts.remove(host(n)));
        assert_eq!((counts.of(host(0)), counts.of(host(1))), (2_000, 0));
    }

    #[test]
    fn a_host_that_is_added_once_is_counted_once() {
        for n in 0..5_000 {
            let mut counts = Counts::new([7; 16]);
            let host = HostName::of([n + 1, 0]);
            counts.add(host, 1);
            assert_eq!(counts.of(host), 1, "{n}");
        }
    }
}
