//! The connections of a server, and which of them ends when there are too many.
//!
//! One host can have four fifths of all connections, and the hosts of one network all but a sixteenth: each
//! connection has a thread, and one that executes a call does not end for another.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{Condition, Env, Stream};
use farcall::eviction::{self, Candidate};
use farcall::host::{Host, Network, most_of_host, most_of_network};
use farcall::{Time, lock};

use crate::silence::Silence;

/// How often a server that drains looks which connections have no call.
const CALL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The open connections.
pub(super) struct Connections {
    most: usize,
    open: Mutex<Open>,
    /// Notified when a connection has ended.
    ended: Condition,
}

#[derive(Default)]
struct Open {
    connections: HashMap<u64, Entry>,
    /// How many connections each host has, and each network.
    hosts: HashMap<Host, usize>,
    networks: HashMap<Network, usize>,
    next: u64,
}

struct Entry {
    host: Host,
    stream: Arc<dyn Stream>,
    silence: Arc<Silence>,
}

impl Connections {
    pub(super) fn new(most: usize) -> Connections {
        Connections { most: most.max(1), open: Mutex::default(), ended: Condition::default() }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.open).connections.len()
    }

    /// Adds a connection, and returns its number. If the server has too many, ends another for it, as
    /// [`eviction::victim`] decides; one of the same host, or of the same network, if that has its share.
    /// Returns `None` if none can be ended.
    pub(super) fn add(
        &self,
        host: Host,
        stream: &Arc<dyn Stream>,
        silence: &Arc<Silence>,
        now: Time,
    ) -> Option<u64> {
        let mut open = lock(&self.open);
        let count = |of: Option<&usize>| of.copied().unwrap_or(0);
        let network = host.network();
        if count(open.hosts.get(&host)) >= most_of_host(self.most) {
            open.end_one(|other| other == host, Some(host), now)?;
        } else if count(open.networks.get(&network)) >= most_of_network(self.most) {
            open.end_one(|other| other.network() == network, Some(host), now)?;
        } else if open.connections.len() >= self.most {
            open.end_one(|_| true, Some(host), now)?;
        }
        Some(open.insert(Entry { host, stream: stream.clone(), silence: silence.clone() }))
    }

    /// Ends a connection because the system has no room for more.
    pub(super) fn make_room(&self, now: Time) {
        lock(&self.open).end_one(|_| true, None, now);
    }

    /// Forgets a connection that has ended.
    pub(super) fn remove(&self, id: u64) {
        let removed = lock(&self.open).remove(id);
        drop(removed);
        self.ended.notify_all();
    }

    /// Ends each connection as soon as no call has begun there, even if half of one has come. Waits until all
    /// have ended, but not longer than until then. Returns whether they have.
    pub(super) fn finish(&self, env: &Arc<dyn Env>, until: Time) -> bool {
        let mut open = lock(&self.open);
        // A thread whose connection is in use looks by itself before it waits for another call.
        open.connections.values().for_each(|entry| entry.silence.drain());
        while !open.connections.is_empty() && env.now() < until {
            let unused = open.connections.values().filter(|entry| !entry.silence.has_call());
            // Its thread finds the end of what the client sends.
            unused.for_each(|entry| entry.stream.shutdown(Shutdown::Read));
            let rest = until.since(env.now()).min(CALL_CHECK_INTERVAL);
            open = self.ended.wait(env, &self.open, open, Some(rest)).0;
        }
        open.connections.is_empty()
    }

    /// Ends all connections.
    pub(super) fn end_all(&self) {
        let ended = std::mem::take(&mut *lock(&self.open)).connections;
        ended.values().for_each(|entry| entry.stream.shutdown(Shutdown::Both));
    }
}

impl Open {
    /// Ends a connection to make room for another. `among` are the hosts that may lose one, and `newcomer` is
    /// the host of the other. A connection that executes a call stays, because its thread would go on without
    /// it.
    fn end_one(&mut self, among: impl Fn(Host) -> bool, newcomer: Option<Host>, now: Time) -> Option<()> {
        let all = self.connections.iter();
        let candidates: (Vec<u64>, Vec<Candidate>) = all
            .map(|(id, entry)| {
                let usage = entry.silence.usage(now).filter(|_| among(entry.host));
                (*id, Candidate { host: entry.host, usage })
            })
            .unzip();
        let chosen = eviction::victim(&candidates.1, newcomer)?;
        let entry = self.remove(*candidates.0.get(chosen)?)?;
        // Its thread finds the end of the connection.
        entry.stream.shutdown(Shutdown::Both);
        Some(())
    }

    fn insert(&mut self, entry: Entry) -> u64 {
        let id = self.next;
        self.next += 1;
        *self.hosts.entry(entry.host).or_default() += 1;
        *self.networks.entry(entry.host.network()).or_default() += 1;
        self.connections.insert(id, entry);
        id
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.connections.remove(&id)?;
        remove_one(&mut self.hosts, entry.host);
        remove_one(&mut self.networks, entry.host.network());
        Some(entry)
    }
}

fn remove_one<N: Eq + Hash>(counts: &mut HashMap<N, usize>, name: N) {
    if let Some(count) = counts.get_mut(&name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&name);
        }
    }
}
