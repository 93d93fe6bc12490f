//! The connections of a server, and which of them ends when there are too many.
//!
//! One host can have four fifths of all connections.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::Stream;
use farcall::host::{Host, most_of_host};
use farcall::{Time, lock};

use super::silence::Silence;

/// A connection must have been silent for so long to be ended for another one.
const MIN_SILENCE: Duration = Duration::from_secs(5);

/// The open connections.
pub(super) struct Connections {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    connections: HashMap<u64, Entry>,
    next: u64,
}

struct Entry {
    host: Host,
    stream: Arc<dyn Stream>,
    silence: Arc<Silence>,
}

impl Connections {
    pub(super) fn new(most: usize) -> Connections {
        Connections { most: most.max(1), open: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.open).connections.len()
    }

    /// Adds a connection, and returns its number. If the server has too many, ends one for it that has been
    /// silent: the longest silent one of the host with most connections, or of the same host if that has its
    /// share. Returns `None` if none can be ended.
    pub(super) fn add(
        &self,
        host: Host,
        stream: &Arc<dyn Stream>,
        silence: &Arc<Silence>,
        now: Time,
    ) -> Option<u64> {
        let mut open = lock(&self.open);
        let own = open.count(host);
        if own >= most_of_host(self.most) {
            open.end_silent(host, now)?;
        } else if open.connections.len() >= self.most {
            let most = open.largest_host()?;
            open.end_silent(most, now)?;
        }
        let id = open.next;
        open.next += 1;
        open.connections.insert(id, Entry { host, stream: stream.clone(), silence: silence.clone() });
        Some(id)
    }

    /// Ends a silent connection because the system has no room for more.
    pub(super) fn make_room(&self, now: Time) {
        let mut open = lock(&self.open);
        if let Some(most) = open.largest_host() {
            open.end_silent(most, now);
        }
    }

    /// Forgets a connection that has ended.
    pub(super) fn remove(&self, id: u64) {
        let removed = lock(&self.open).connections.remove(&id);
        drop(removed);
    }

    /// Ends all connections.
    pub(super) fn end_all(&self) {
        let ended = std::mem::take(&mut lock(&self.open).connections);
        ended.values().for_each(|entry| entry.stream.shutdown(Shutdown::Both));
    }
}

impl Open {
    fn count(&self, host: Host) -> usize {
        self.connections.values().filter(|entry| entry.host == host).count()
    }

    fn largest_host(&self) -> Option<Host> {
        let mut counts: HashMap<Host, usize> = HashMap::new();
        self.connections.values().for_each(|entry| *counts.entry(entry.host).or_default() += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(host, _)| host)
    }

    /// Ends the connection of a host that has been silent longest, if it has been silent for long enough.
    fn end_silent(&mut self, host: Host, now: Time) -> Option<()> {
        let silent = self.connections.iter().filter(|(_, entry)| entry.host == host);
        let silent = silent.filter_map(|(id, entry)| Some((entry.silence.since()?, *id)));
        let (_, id) = silent.min().filter(|(since, _)| now.since(*since) >= MIN_SILENCE)?;
        let entry = self.connections.remove(&id)?;
        // Its thread finds the end of the connection.
        entry.stream.shutdown(Shutdown::Both);
        Some(())
    }
}
