//! The places for connections that hosts share, and which connection makes way when all are taken. Without
//! sockets and threads. Each operation takes a time that grows with the logarithm of the connections.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use farcall::Time;
use farcall::host::{Host, Network};

/// Places for connections of one kind.
#[derive(Default)]
pub(super) struct Places {
    most: usize,
    taken: usize,
    hosts: HashMap<Host, Held>,
    networks: HashMap<Network, Hosts>,
    /// The networks that have idle connections. The last one is the first to lose one.
    ranking: BTreeSet<Rank<Network>>,
    /// How many entries of the maps and sets were looked at, for a test.
    #[cfg(test)]
    pub(super) steps: usize,
}

/// What a host has.
#[derive(Default)]
struct Held {
    connections: usize,
    idle: BTreeSet<Idle>,
}

/// What the hosts of a network have.
#[derive(Default)]
struct Hosts {
    connections: usize,
    /// The hosts that have idle connections. The last one is the first to lose one.
    ranking: BTreeSet<Rank<Host>>,
}

/// An idle connection: since when, and the server's handle.
pub(super) type Idle = (Time, u32);

/// A host's or a network's rank: how many connections it has, then how long the idle one has been idle that
/// it loses first.
type Rank<Of> = (usize, Reverse<Idle>, Of);

impl Places {
    pub(super) fn new(most: usize) -> Places {
        Places { most: most.max(1), ..Places::default() }
    }

    /// Returns whether all places are taken.
    pub(super) fn is_full(&self) -> bool {
        self.taken >= self.most
    }

    /// Returns the handle of the connection that makes way for another: of the networks with idle
    /// connections, the one that has most, in it the host that has most, and of this the longest idle one.
    /// Returns `None` if no connection is idle.
    pub(super) fn victim(&self) -> Option<u32> {
        self.ranking.last().map(|(_, Reverse((_, handle)), _)| *handle)
    }

    /// Takes a place for a connection that is not idle.
    pub(super) fn take(&mut self, host: Host) {
        self.taken += 1;
        self.change(host, |held| held.connections += 1);
    }

    /// Gives up the place of a connection. `idle` is its entry if it is idle.
    pub(super) fn leave(&mut self, host: Host, idle: Option<Idle>) {
        self.taken -= 1;
        self.change(host, |held| {
            held.connections -= 1;
            if let Some(idle) = idle {
                held.idle.remove(&idle);
            }
        });
    }

    /// Notes that a connection is idle from now on.
    pub(super) fn rest(&mut self, host: Host, idle: Idle) {
        self.change(host, |held| {
            held.idle.insert(idle);
        });
    }

    /// Notes that a connection is no longer idle.
    pub(super) fn work(&mut self, host: Host, idle: Idle) {
        self.change(host, |held| {
            held.idle.remove(&idle);
        });
    }

    /// Changes what a host has, and with it the ranks of the host and of its network.
    fn change(&mut self, host: Host, change: impl FnOnce(&mut Held)) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let name = host.network();
        let (held, network) = (self.hosts.entry(host).or_default(), self.networks.entry(name).or_default());
        if let Some(rank) = network.rank(name) {
            self.ranking.remove(&rank);
        }
        if let Some(rank) = held.rank(host) {
            network.ranking.remove(&rank);
        }
        network.connections -= held.connections;
        change(held);
        network.connections += held.connections;
        if let Some(rank) = held.rank(host) {
            network.ranking.insert(rank);
        }
        if let Some(rank) = network.rank(name) {
            self.ranking.insert(rank);
        }
        if held.connections == 0 {
            self.hosts.remove(&host);
        }
        if network.connections == 0 {
            self.networks.remove(&name);
        }
    }
}

impl Held {
    fn rank(&self, host: Host) -> Option<Rank<Host>> {
        self.idle.first().map(|idle| (self.connections, Reverse(*idle), host))
    }
}

impl Hosts {
    fn rank(&self, network: Network) -> Option<Rank<Network>> {
        self.ranking.last().map(|(_, idle, _)| (self.connections, *idle, network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn the_longest_idle_connection_of_the_host_with_most_makes_way() {
        let [many, few] = [Host::V4(1), Host::V4(2)];
        let mut places = Places::new(4);
        for (host, handle) in [(few, 1), (many, 2), (many, 3), (many, 4)] {
            assert!(!places.is_full());
            places.take(host);
            places.rest(host, (at(handle.into()), handle));
        }
        assert!(places.is_full());
        assert_eq!(places.victim(), Some(2));
        places.work(many, (at(2), 2));
        assert_eq!(places.victim(), Some(3), "one that is in use stays");
        places.leave(many, Some((at(3), 3)));
        places.leave(many, Some((at(4), 4)));
        assert_eq!(places.victim(), Some(1));
        places.leave(few, Some((at(1), 1)));
        assert_eq!(places.victim(), None);
        places.leave(many, None);
        assert!(places.hosts.is_empty() && places.networks.is_empty() && places.ranking.is_empty());
        assert_eq!(places.taken, 0);
    }

    #[test]
    fn many_hosts_of_one_network_take_no_places_of_another() {
        let (honest, network) = (Host::V6(7 << 16), Host::V6(8 << 16).network());
        let mut places = Places::new(9);
        for handle in 1..=2 {
            places.take(honest);
            places.rest(honest, (at(handle.into()), handle));
        }
        for handle in 3..=1_000 {
            if places.is_full() {
                let victim = places.victim().expect("all are idle");
                assert!(victim > 2, "{victim} is the honest host's");
                places.leave(Host::V6(8 << 16 | u64::from(victim)), Some((at(victim.into()), victim)));
            }
            let host = Host::V6(8 << 16 | u64::from(handle));
            assert_eq!(host.network(), network);
            places.take(host);
            places.rest(host, (at(handle.into()), handle));
        }
    }

    #[test]
    fn among_hosts_with_equally_many_the_longest_idle_connection_makes_way() {
        let mut places = Places::new(9);
        for number in [5, 3, 7] {
            places.take(Host::V4(number));
            places.rest(Host::V4(number), (at(number.into()), number));
        }
        assert_eq!(places.victim(), Some(3));
    }
}
