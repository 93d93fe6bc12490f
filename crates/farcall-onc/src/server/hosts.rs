//! Counts what the server holds for each host: connections, bytes, and calls under way, which are also counted
//! for each network. When there are too many, whoever has most is the first to lose some.

use std::collections::HashMap;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcall::host::{HOST_SHARE, Host, Network};

use super::peer::Peer;

/// The hosts that have connections, and what is held for all of them.
#[derive(Debug)]
pub(super) struct Hosts {
    known: Mutex<Known>,
    bytes: AtomicUsize,
    budget: usize,
    /// How many calls of all hosts are under way. It may be below zero for a moment, when a call's end is
    /// counted before its beginning.
    ///
    /// SeqCst, here and in [`Holdings::running`]. The thread that ends a call writes these counts and then
    /// reads how many connections are parked. The thread that parks a connection writes that number and then
    /// reads these counts. At least one of them sees what the other wrote, and lets a connection go on.
    running: AtomicIsize,
}

#[derive(Debug, Default)]
struct Known {
    hosts: HashMap<Host, Arc<Holdings>>,
    networks: HashMap<Network, Arc<NetworkCalls>>,
}

/// The calls of a network.
#[derive(Debug, Default)]
struct NetworkCalls {
    /// How many calls are under way. It may be below zero for a moment, as that of a host.
    running: AtomicIsize,
    /// How many hosts of the network are known.
    hosts: AtomicUsize,
}

/// What is held for a host.
#[derive(Debug)]
pub(super) struct Holdings {
    host: Host,
    network: Arc<NetworkCalls>,
    connections: AtomicUsize,
    /// How many calls of the host are under way. It may be below zero for a moment, when a call's end is
    /// counted before its beginning.
    running: AtomicIsize,
}

/// Counts what is held for one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Account {
    hosts: Arc<Hosts>,
    host: Arc<Holdings>,
    bytes: AtomicUsize,
}

/// A connection that holds at most this many bytes is not closed to free memory.
pub(super) const PROTECTED_BYTES: usize = 16 << 10;

/// A network can have this many calls under way for each further one that there is room for. So the hosts of a
/// single network get at most eight ninths.
const NETWORK_SHARE: isize = 8;

impl Hosts {
    /// Makes an empty table, for at most `budget` bytes.
    pub(super) fn new(budget: usize) -> Arc<Hosts> {
        Arc::new(Hosts {
            known: Mutex::default(),
            bytes: AtomicUsize::new(0),
            budget,
            running: AtomicIsize::new(0),
        })
    }

    /// Opens an account for a new connection.
    pub(super) fn open(self: &Arc<Self>, peer: &Peer) -> Account {
        let host = peer.host();
        let held = {
            let mut known = self.lock();
            let held = known.enter(host);
            held.connections.fetch_add(1, Ordering::Relaxed);
            held
        };
        Account { hosts: self.clone(), host: held, bytes: AtomicUsize::new(0) }
    }

    /// Returns how many connections a peer's host has.
    pub(super) fn connections_of(&self, peer: &Peer) -> usize {
        self.lock().hosts.get(&peer.host()).map_or(0, |held| held.connections())
    }

    /// Returns how many connections each network has.
    pub(super) fn connections_of_networks(&self) -> HashMap<Network, usize> {
        let mut networks = HashMap::new();
        for (host, held) in &self.lock().hosts {
            *networks.entry(host.network()).or_default() += held.connections();
        }
        networks
    }

    /// Returns how many bytes are held for all hosts.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns by how many bytes the server exceeds its budget.
    pub(super) fn excess(&self) -> usize {
        self.bytes().saturating_sub(self.budget)
    }

    /// Returns how many bytes can be held for all hosts.
    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Returns what is held for a host.
    fn enter(&mut self, host: Host) -> Arc<Holdings> {
        let Known { hosts, networks } = self;
        let new = || {
            let network = networks.entry(host.network()).or_default().clone();
            network.hosts.fetch_add(1, Ordering::Relaxed);
            Arc::new(Holdings::new(host, network))
        };
        hosts.entry(host).or_insert_with(new).clone()
    }

    fn remove(&mut self, host: Host) {
        let Some(held) = self.hosts.remove(&host) else { return };
        if held.network.hosts.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.networks.remove(&host.network());
        }
    }
}

impl Holdings {
    fn new(host: Host, network: Arc<NetworkCalls>) -> Holdings {
        let (connections, running) = (AtomicUsize::new(0), AtomicIsize::new(0));
        Holdings { host, network, connections, running }
    }

    pub(super) fn host(&self) -> Host {
        self.host
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Account {
    pub(super) fn host(&self) -> &Arc<Holdings> {
        &self.host
    }

    /// Returns how many bytes are held for the connection.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts `bytes` more as held. Returns whether all hosts together hold too many.
    pub(super) fn add(&self, bytes: usize) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.hosts.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.hosts.budget
    }

    /// Counts `bytes` fewer as held.
    pub(super) fn subtract(&self, bytes: usize) {
        for held in [&self.bytes, &self.hosts.bytes] {
            held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Counts one more call of the connection as under way. A call that the connection's reading thread
    /// serves does not count, nor does a call that waits for another machine.
    pub(super) fn begin(&self) {
        self.host.running.fetch_add(1, Ordering::SeqCst);
        self.host.network.running.fetch_add(1, Ordering::SeqCst);
        self.hosts.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Undoes one [`Account::begin`]: one call fewer of the connection is under way.
    pub(super) fn end(&self) {
        self.host.running.fetch_sub(1, Ordering::SeqCst);
        self.host.network.running.fetch_sub(1, Ordering::SeqCst);
        self.hosts.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns whether the host can have one more call under way, if all hosts together can have `most`. Each
    /// network can always have one call, and so can each host of a network that is within its share. A single
    /// host can have four fifths of `most`, and the hosts of a single network eight ninths; the rest is left
    /// for others.
    #[inline]
    pub(super) fn may_run(&self, most: usize) -> bool {
        let running = |of: &AtomicIsize| of.load(Ordering::SeqCst);
        let most = isize::try_from(most).unwrap_or(isize::MAX);
        let left = most.saturating_sub(running(&self.hosts.running));
        let (of_network, of_host) = (running(&self.host.network.running), running(&self.host.running));
        let is_network_within = of_network < NETWORK_SHARE.saturating_mul(left);
        let is_host_within = of_host <= 0 || of_host < (HOST_SHARE as isize).saturating_mul(left);
        of_network <= 0 || is_network_within && is_host_within
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.subtract(self.bytes());
        let mut known = self.hosts.lock();
        if self.host.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            known.remove(self.host.host);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::peer::Transport;
    use super::*;

    fn peer(address: &str) -> Peer {
        let address: SocketAddr = address.parse().unwrap();
        Peer::at(Transport::Tcp, Some(address))
    }

    #[test]
    fn a_dropped_account_holds_no_bytes_and_no_connection() {
        let hosts = Hosts::new(100);
        let (a, b) = (hosts.open(&peer("10.0.0.7:1")), hosts.open(&peer("10.0.0.7:2")));
        assert!(!a.add(60) && b.add(60));
        assert_eq!((hosts.excess(), hosts.connections_of(&peer("10.0.0.7:3"))), (20, 2));
        drop(b);
        assert_eq!((hosts.excess(), hosts.bytes(), a.bytes()), (0, 60, 60));
        drop(a);
        assert!(
            hosts.lock().hosts.is_empty()
                && hosts.lock().networks.is_empty()
                && hosts.bytes.load(Ordering::Relaxed) == 0
        );
    }

    #[test]
    fn a_single_host_leaves_room_for_the_calls_of_other_hosts() {
        let hosts = Hosts::new(100);
        let run = |account: &Account, most| {
            std::iter::repeat_n((), 100)
                .take_while(|()| account.may_run(most))
                .map(|()| account.begin())
                .count()
        };
        let (a, b, c) = (
            hosts.open(&peer("10.0.0.7:1")),
            hosts.open(&peer("10.1.0.8:1")),
            hosts.open(&peer("10.2.0.9:1")),
        );
        assert_eq!((run(&a, 64), run(&b, 64), run(&c, 64)), (52, 10, 2));
        (0..52).for_each(|_| a.end());
        assert!(run(&c, 64) > 30);
        for workers in 1..4 {
            let hosts = Hosts::new(100);
            assert_eq!(
                run(&hosts.open(&peer("10.0.0.7:1")), workers),
                workers,
                "a single host may run calls on all of {workers} workers"
            );
        }
    }

    #[test]
    fn the_hosts_of_one_network_leave_room_for_the_calls_of_another() {
        let hosts = Hosts::new(100);
        let run = |address: &str| {
            let account = hosts.open(&peer(address));
            let may = account.may_run(64);
            (0..usize::from(may)).for_each(|_| account.begin());
            (may, account)
        };
        let many: Vec<_> = (0..200).map(|host| run(&format!("10.0.1.{host}:1"))).collect();
        assert_eq!(many.iter().filter(|(may, _)| *may).count(), 57);
        let others: Vec<_> = (0..5).map(|host| run(&format!("10.1.0.{host}:1"))).collect();
        assert!(others.iter().all(|(may, _)| *may));
        many.iter().filter(|(may, _)| *may).for_each(|(_, account)| account.end());
        assert!(run("10.0.2.1:1").0);
    }
}
