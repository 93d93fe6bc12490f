//! All connections of a server, and the listeners that accept them.

pub(super) mod connection;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use farcall::env::{
    Accepted, Condition, Env, Interest, Listener, Poller, Stream, Time, is_of_one_connection,
};
use farcall::eviction::{self, Candidate, MIN_SILENCE};
use farcall::host::{Host, Network};

use super::hosts::{Hosts, PROTECTED_BYTES};
use super::peer::{Peer, PeerConnection as _, Transport};
use super::pool::{ReceivePoint, ServingThread, Workers};
use super::programs::Programs;
use crate::wire::record;
use connection::{Connection, Scratch};

/// The limits on a server's connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamLimits {
    /// The most connections.
    pub(super) connections: usize,
    /// The most bytes that all connections together can hold.
    pub(super) memory: usize,
    /// How long a connection can be silent before it is closed.
    pub(super) idle: Duration,
    pub(super) records: record::Limits,
    /// How long a thread polls a connection for the next call before it waits.
    pub(super) spin: Duration,
    /// The most threads that linger at the same time. A thread lingers while it waits at a connection that it
    /// has served ([`LINGER_TIME`]).
    pub(super) lingering: usize,
}

/// All connections of a server. Threads wait at them as one receive point: a thread receives from whichever
/// connection is ready.
pub(super) struct Streams {
    env: Arc<dyn Env>,
    ready: Arc<dyn Poller>,
    pub(super) limits: StreamLimits,
    pub(super) workers: Arc<Workers>,
    pub(super) programs: Arc<Programs>,
    pub(super) hosts: Arc<Hosts>,
    /// The listeners. Each has its position as its key in `ready`; the keys of connections follow.
    listeners: Vec<Arc<dyn Listener>>,
    connections: RwLock<HashMap<u64, Arc<Connection>, Numbered>>,
    /// The number of the next connection.
    next: AtomicU64,
    /// How many threads linger, each at a connection that it has served.
    lingering: AtomicUsize,
    /// The keys of listeners that pause because the system lacks descriptors or memory.
    waiting: Mutex<Vec<u64>>,
    /// Accepted connections that are not served until another connection ends.
    deferred: Mutex<VecDeque<(Arc<dyn Stream>, Peer)>>,
    /// Connections that wait until their host has fewer calls under way.
    parked: Mutex<Vec<Arc<Connection>>>,
    /// The length of `parked`. SeqCst for the reason given at `Hosts::running`.
    parked_count: AtomicUsize,
    /// Locked while a thread frees bytes.
    freeing: Mutex<()>,
    /// Whether the server drains. (A thread that reads an old value serves a call more.)
    draining: AtomicBool,
    /// For `ended`.
    leaving: Mutex<()>,
    /// Notified when a connection has ended while the server drains.
    ended: Condition,
    /// A reference to this value, for new connections.
    this: Weak<Streams>,
}

/// Counts a thread as lingering at a connection, until this value is dropped.
pub(super) struct Lingering<'a>(&'a AtomicUsize);

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a thread that has served a connection waits there for the connection's next call, if another
/// thread receives for the other connections. That saves two system calls if the next call follows soon.
pub(super) const LINGER_TIME: Duration = Duration::from_millis(20);
/// How long a listener pauses when the system lacks descriptors or memory for a connection.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How often a server that drains looks which connections have become idle.
const LOOKS_FOR_IDLE: Duration = Duration::from_millis(10);
/// The most accepted connections that wait until another connection ends. When there are more, the host with
/// most waiting connections loses its newest one.
const MAX_DEFERRED: usize = 64;

impl Streams {
    pub(super) fn new(
        env: Arc<dyn Env>,
        listeners: Vec<Arc<dyn Listener>>,
        limits: StreamLimits,
        workers: &Arc<Workers>,
        programs: &Arc<Programs>,
    ) -> io::Result<Arc<Streams>> {
        let ready = env.poller()?;
        let limits = StreamLimits { connections: limits.connections.min(descriptors()), ..limits };
        // This leaves room for two hosts, each with a partly received record of the greatest length. Such a
        // record can hold twice its bytes.
        let hosts = Hosts::new(limits.memory.max(limits.records.record.saturating_mul(4)));
        for (key, listener) in listeners.iter().enumerate() {
            ready.add(listener.source(), key as u64)?;
            ready.arm(listener.source(), key as u64, Interest::READ)?;
        }
        Ok(Arc::new_cyclic(|this| Streams {
            env,
            ready,
            limits,
            workers: workers.clone(),
            programs: programs.clone(),
            hosts,
            next: AtomicU64::new(listeners.len() as u64),
            listeners,
            lingering: AtomicUsize::new(0),
            connections: RwLock::default(),
            waiting: Mutex::default(),
            deferred: Mutex::default(),
            parked: Mutex::default(),
            parked_count: AtomicUsize::new(0),
            freeing: Mutex::default(),
            draining: AtomicBool::new(false),
            leaving: Mutex::default(),
            ended: Condition::default(),
            this: this.clone(),
        }))
    }

    /// Lets a thread linger at a connection, if another thread receives for the other connections and few
    /// threads linger. Returns `None` if the thread must not linger.
    pub(super) fn linger(&self, thread: &ServingThread) -> Option<Lingering<'_>> {
        if thread.is_deserted() {
            return None;
        }
        let lingering = Lingering(&self.lingering);
        (self.lingering.fetch_add(1, Ordering::Relaxed) < self.limits.lingering).then_some(lingering)
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Accepts the connections that wait at a listener.
    fn accept(&self, key: u64, listener: &dyn Listener) {
        /// How many connections to accept before other listeners and connections have their turn.
        const ACCEPTS_AT_A_TIME: usize = 64;
        for _ in 0..ACCEPTS_AT_A_TIME {
            match listener.accept() {
                Ok(accepted) => self.admit(accepted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_of_one_connection(&error) => {}
                // The listener is closed.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                // Too many files are open, or there is no memory.
                Err(_) => {
                    self.make_room(None);
                    return self.wait_for_room(key);
                }
            }
        }
        let _ = self.ready.arm(listener.source(), key, Interest::READ);
    }

    /// Begins to serve a connection.
    fn begin(&self, socket: Arc<dyn Stream>, peer: Peer) {
        let Some(this) = self.this.upgrade() else { return };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, socket, peer, this));
        connection.fate().begin(&connection);
        if self.ready.add(connection.source(), id).is_err() {
            return;
        }
        self.connections.write().unwrap_or_else(PoisonError::into_inner).insert(id, connection.clone());
        if self.ready.arm(connection.source(), id, Interest::READ).is_err() {
            connection.close();
        }
        self.workers.watch_timeouts();
    }

    /// Begins a connection if there is room, or puts it into `deferred`.
    fn admit(&self, Accepted { stream: socket, from, user }: Accepted) {
        let transport = if from.is_some() { Transport::Tcp } else { Transport::Unix };
        let peer = Peer { user, ..Peer::at(transport, from) };
        if self.len() < self.limits.connections || self.make_room(Some(&peer)) {
            return self.begin(socket, peer);
        }
        let mut deferred = lock(&self.deferred);
        deferred.push_back((socket, peer));
        if deferred.len() > MAX_DEFERRED {
            let hosts: Vec<_> = deferred.iter().map(|(_, peer)| peer.host()).collect();
            let many = |at: &usize| {
                let (host, network) = (hosts[*at], hosts[*at].network());
                let of_network = hosts.iter().filter(|other| other.network() == network);
                (of_network.count(), hosts.iter().filter(|other| **other == host).count())
            };
            // `max_by_key` returns the last one, which has waited for the shortest time.
            let one = (0..hosts.len()).max_by_key(many);
            drop(one.and_then(|one| deferred.remove(one)));
        }
    }

    /// Closes a connection to make room for a new one of `peer`. The peer is `None` if the system had no room
    /// to accept the connection. Returns false if no connection may be closed.
    fn make_room(&self, peer: Option<&Peer>) -> bool {
        let now = self.env.now();
        let all = self.all();
        let candidates = all.iter().map(|connection| Candidate {
            host: connection.account().host().host(),
            usage: Some(connection.usage(now)),
        });
        let candidates: Vec<Candidate> = candidates.collect();
        let closed = eviction::victim(&candidates, peer.map(Peer::host)).and_then(|place| all.get(place));
        closed.inspect(|closed| closed.close()).is_some()
    }

    /// Frees bytes if all connections together hold too many. First frees the memory that connections do not
    /// need. Then closes connections until an eighth of the budget is free: each time, of the network that
    /// holds most bytes, and of its host that does, the connection that has been silent longest.
    #[cold]
    pub(super) fn free_bytes(&self) {
        // One thread frees bytes at a time. Other threads that come here wait, and read nothing more until
        // there is room.
        let _one = lock(&self.freeing);
        if self.hosts.excess() == 0 {
            return;
        }
        let all = self.all();
        all.iter().for_each(|connection| connection.give_back());
        // The bytes of closed connections are not counted, because their threads free these bytes as soon as
        // they notice.
        let held: usize = all.iter().map(|connection| connection.account().bytes()).sum();
        if held <= self.hosts.budget() {
            return;
        }
        let now = self.env.now();
        let mut left = held - self.hosts.budget() / 8 * 7;
        let large = all.iter().map(|connection| (connection, connection.account().bytes()));
        let mut large: Vec<_> = large.filter(|(_, bytes)| *bytes > PROTECTED_BYTES).collect();
        large.sort_by_cached_key(|(connection, _)| connection.silent(now));
        // What each network holds, and each of its hosts.
        let mut networks: HashMap<Network, (usize, HashMap<Host, usize>)> = HashMap::new();
        for connection in &all {
            let (host, bytes) = (connection.account().host().host(), connection.account().bytes());
            let (held, hosts) = networks.entry(host.network()).or_default();
            *held += bytes;
            *hosts.entry(host).or_default() += bytes;
        }
        while left > 0 && !large.is_empty() {
            let heaviest = networks.iter_mut().max_by_key(|(_, (held, _))| *held);
            let Some((network, (held, hosts))) = heaviest else { return };
            let Some(host) = hosts.iter().max_by_key(|(_, bytes)| **bytes).map(|(host, _)| *host) else {
                let network = *network;
                networks.remove(&network);
                continue;
            };
            let is_its =
                |(connection, _): &(&Arc<Connection>, usize)| connection.account().host().host() == host;
            let Some(place) = large.iter().rposition(is_its) else {
                hosts.remove(&host);
                continue;
            };
            let (connection, bytes) = large.remove(place);
            connection.close();
            connection.forget_replies();
            left = left.saturating_sub(bytes);
            *held = held.saturating_sub(bytes);
            hosts.entry(host).and_modify(|held| *held = held.saturating_sub(bytes));
        }
    }

    /// Adds a connection that waits until its host has fewer calls under way.
    pub(super) fn park(&self, connection: Arc<Connection>) {
        let mut parked = lock(&self.parked);
        parked.push(connection);
        self.parked_count.store(parked.len(), Ordering::SeqCst);
    }

    /// Lets one parked connection continue, if its host can have one more call under way. That connection
    /// calls this function again, so others follow.
    #[inline]
    pub(super) fn unpark(&self) {
        if self.parked_count.load(Ordering::SeqCst) > 0 {
            self.unpark_one();
        }
    }

    /// Lets one parked connection continue.
    #[cold]
    fn unpark_one(&self) {
        let one = {
            let mut parked = lock(&self.parked);
            let one =
                parked.iter().position(|connection| connection.may_run()).map(|place| parked.remove(place));
            self.parked_count.store(parked.len(), Ordering::SeqCst);
            one
        };
        one.inspect(|one| one.unpark());
    }

    /// Lets a listener pause until a connection ends, or for [`BACK_OFF`].
    fn wait_for_room(&self, key: u64) {
        lock(&self.waiting).push(key);
        // The watchdog is asked because perhaps no other event will ever make this listener try again.
        self.workers.check_timeouts_within(BACK_OFF);
    }

    /// Lets waiting connections and paused listeners try again.
    fn resume(&self) {
        self.admit_deferred();
        for key in std::mem::take(&mut *lock(&self.waiting)) {
            if let Some(listener) = self.listeners.get(key as usize) {
                let _ = self.ready.arm(listener.source(), key, Interest::READ);
            }
        }
    }

    /// Begins a deferred connection if there is room. Chooses the network with the fewest connections, in it
    /// the host with the fewest, and its connection that has waited longest.
    fn admit_deferred(&self) {
        if self.len() >= self.limits.connections {
            return;
        }
        let next = {
            let mut deferred = lock(&self.deferred);
            let networks = self.hosts.connections_of_networks();
            let many = |peer: &Peer| {
                let of_network = networks.get(&peer.host().network()).copied().unwrap_or(0);
                (of_network, self.hosts.connections_of(peer))
            };
            let first = deferred.iter().enumerate().min_by_key(|(_, (_, peer))| many(peer));
            let first = first.map(|(place, _)| place);
            first.and_then(|place| deferred.remove(place))
        };
        if let Some((socket, peer)) = next {
            self.begin(socket, peer);
        }
    }

    /// Removes a connection that has ended.
    pub(super) fn forget(&self, connection: &Connection) {
        self.ready.remove(connection.source(), connection.id);
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(&connection.id);
        let gone = {
            let mut parked = lock(&self.parked);
            let place = parked.iter().position(|other| std::ptr::eq(&**other, connection));
            let gone = place.map(|place| parked.remove(place));
            self.parked_count.store(parked.len(), Ordering::SeqCst);
            gone
        };
        // The connection is dropped while nothing is locked.
        drop(gone);
        if self.is_draining() {
            self.ended.notify_all();
        }
        self.unpark();
        self.resume();
    }

    /// Closes the listeners, ends each connection when its calls are answered, and waits until all have
    /// ended, but not longer than until then. Returns whether they have.
    pub(super) fn drain(&self, until: Time) -> bool {
        self.listeners.iter().for_each(|listener| listener.close());
        self.draining.store(true, Ordering::Relaxed);
        lock(&self.deferred).clear();
        while self.len() > 0 && self.env.now() < until {
            let now = self.env.now();
            // A connection that is used looks by itself ([`Streams::is_draining`]).
            self.all().iter().filter(|one| one.idle(now).is_some()).for_each(|one| one.read_no_more());
            let leaving = lock(&self.leaving);
            let rest = until.since(now).min(LOOKS_FOR_IDLE);
            drop(self.ended.wait(&self.env, &self.leaving, leaving, Some(rest)));
        }
        self.len() == 0
    }

    /// Returns whether connections end as soon as they have no call.
    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Closes all connections and listeners.
    pub(super) fn close(&self) {
        // A thread that serves a connection may still hold a reference to this. The ports are to be free at
        // once, so the listeners are closed here.
        self.listeners.iter().for_each(|listener| listener.close());
        lock(&self.deferred).clear();
        self.all().iter().for_each(|connection| connection.close());
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn find(&self, key: u64) -> Option<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }
}

impl ReceivePoint for Streams {
    fn watch(&self, thread: &ServingThread) -> bool {
        let mut scratch = Scratch::default();
        while !self.workers.is_stopped() {
            let event = self.ready.wait();
            if self.workers.is_stopped() {
                break;
            }
            let Some((key, interest)) = event else { continue };
            thread.begin_calls();
            if let Some(listener) = self.listeners.get(key as usize) {
                self.accept(key, &**listener);
            } else if let Some(connection) = self.find(key) {
                connection.ready(interest, thread, &mut scratch);
            }
            if thread.done(|| true) {
                return true;
            }
        }
        false
    }

    fn wake(&self) {
        self.ready.wake();
    }

    fn check_timeouts(&self, now: Time) -> Option<Duration> {
        let waited_for = !lock(&self.waiting).is_empty();
        self.resume();
        let all = self.all();
        for connection in &all {
            let idle = connection.idle(now).is_some_and(|idle| idle >= self.limits.idle);
            if idle || connection.is_stuck(now) {
                connection.close();
            }
        }
        let every = self.limits.idle.min(self.limits.records.time) / 4;
        let every = every.clamp(Duration::from_millis(10), MIN_SILENCE);
        match (waited_for, all.is_empty()) {
            (true, _) => Some(BACK_OFF),
            (false, true) => None,
            (false, false) => Some(every),
        }
    }
}

/// Returns how many connections the system's limit on descriptors allows: three quarters of the limit, less
/// the deferred connections. The rest is left to the server's procedures.
fn descriptors() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(usize::MAX, |most| usize::try_from(most - most / 4).unwrap_or(usize::MAX))
        .saturating_sub(MAX_DEFERRED)
        .max(1)
}

/// A hasher for the connections' numbers. The server chooses these numbers, so no client can choose equal
/// hashes.
type Numbered = BuildHasherDefault<Given>;

/// The state of the hasher, which multiplies a number by a constant.
#[derive(Clone, Copy, Default)]
pub(super) struct Given(u64);

impl Hasher for Given {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 << 8) | u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        // The table uses the highest bits too.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
