//! Counts the threads that waiting calls hold, for each host and each network of hosts.
//!
//! (tests/workers.rs includes this file.)

use std::collections::HashMap;
use std::hash::Hash;

/// How many threads the waiting calls of each host hold, and those of each network. Hosts are known by their
/// numbers.
#[derive(Default)]
pub(super) struct HeldThreads {
    hosts: HashMap<u64, usize>,
    networks: HashMap<u64, usize>,
}

impl HeldThreads {
    /// Counts one more thread that a waiting call of the host holds.
    pub fn add(&mut self, host: u64) {
        *self.hosts.entry(host).or_default() += 1;
        *self.networks.entry(network(host)).or_default() += 1;
    }

    /// Counts one thread less.
    pub fn remove(&mut self, host: u64) {
        remove(&mut self.hosts, host);
        remove(&mut self.networks, network(host));
    }

    pub fn of_host(&self, host: u64) -> usize {
        self.hosts.get(&host).copied().unwrap_or(0)
    }

    pub fn of_network_of(&self, host: u64) -> usize {
        self.networks.get(&network(host)).copied().unwrap_or(0)
    }
}

fn remove<N: Eq + Hash>(held: &mut HashMap<N, usize>, name: N) {
    if let Some(threads) = held.get_mut(&name) {
        *threads -= 1;
        if *threads == 0 {
            held.remove(&name);
        }
    }
}

/// Returns a number for the network of the host with this number. Hosts have one network if
/// [`Host::network`](crate::host::Host::network) says so.
///
/// The number of an IPv6 host is the upper half of its address, or 1 for ::1. That of an IPv4 host is the
/// lower half of the mapped IPv6 address. A local call has the number 0.
pub(super) fn network(host: u64) -> u64 {
    // ::ffff:127.0.0.0.
    const LOOPBACK: u64 = 0xffff_7f00_0000;
    if host >> 24 == LOOPBACK >> 24 { 0 } else { host >> 16 }
}
