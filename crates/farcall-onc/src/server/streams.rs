//! A server's connections, all of them, and where they come from.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use super::caller::{Peer, Transport};
use super::connection::{Connection, Desk};
use super::crew::{Crew, Post, Seat, WatchList};
use super::programs::Programs;
use super::ready::{Interest, Ready};
use crate::wire::record;

/// What clients may do to a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamLimits {
    pub(super) connections: usize,
    pub(super) idle: Duration,
    pub(super) records: record::Limits,
    pub(super) spin: Duration,
    /// How many threads may stay with a connection that they served, at most.
    pub(super) lingering: usize,
}

/// All connections.
pub(super) struct Streams {
    pub(super) ready: Ready,
    pub(super) limits: StreamLimits,
    pub(super) crew: Arc<Crew>,
    pub(super) programs: Arc<Programs>,
    pub(super) list: Arc<WatchList>,
    /// Their keys are their places; those of connections follow.
    listeners: Vec<Listener>,
    connections: RwLock<HashMap<u64, Arc<Connection>, Numbered>>,
    next: AtomicU64,
    /// Threads that stay with a connection.
    lingering: AtomicUsize,
    /// Listeners that wait for another connection to end, or for the system to have room.
    waiting: Mutex<Vec<u64>>,
    /// For the connections.
    this: Weak<Streams>,
}

/// A thread stays with a connection.
pub(super) struct Lingering<'a>(&'a AtomicUsize);

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where connections come from.
pub(super) enum Listener {
    /// From other machines.
    Tcp(TcpListener),
    /// From this one.
    Unix(UnixListener),
}

/// How long after the system had no room for a connection it is tried again.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The last connection that came is served before another is closed for it to have room.
const GRACE: Duration = Duration::from_secs(5);

impl Streams {
    pub(super) fn new(
        listeners: Vec<Listener>,
        limits: StreamLimits,
        crew: &Arc<Crew>,
        programs: &Arc<Programs>,
    ) -> io::Result<Arc<Streams>> {
        let ready = Ready::new()?;
        for (key, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking()?;
            ready.add(listener, key as u64)?;
            ready.arm(listener, key as u64, READ)?;
        }
        Ok(Arc::new_cyclic(|this| Streams {
            ready,
            limits,
            crew: crew.clone(),
            programs: programs.clone(),
            list: Arc::default(),
            next: AtomicU64::new(listeners.len() as u64),
            listeners,
            lingering: AtomicUsize::new(0),
            connections: RwLock::default(),
            waiting: Mutex::default(),
            this: this.clone(),
        }))
    }

    /// Lets a thread stay with a connection for a while, if others wait for the rest and few others stay.
    pub(super) fn linger(&self) -> Option<Lingering<'_>> {
        if self.list.is_deserted() {
            return None;
        }
        let lingering = Lingering(&self.lingering);
        (self.lingering.fetch_add(1, Ordering::Relaxed) < self.limits.lingering).then_some(lingering)
    }

    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes in what has come to a listener.
    fn accept(&self, key: u64, listener: &Listener) {
        /// So many before others have their turn.
        const MOST: usize = 64;
        for _ in 0..MOST {
            if self.len() >= self.limits.connections && !self.make_room() {
                return self.wait_for_room(key);
            }
            match listener.accept() {
                Ok((socket, peer)) => self.begin(socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_of_the_connection(&error) => {}
                // Too many files, or no memory.
                Err(_) => {
                    self.make_room();
                    return self.wait_for_room(key);
                }
            }
        }
        let _ = self.ready.arm(listener, key, READ);
    }

    fn begin(&self, socket: OwnedFd, peer: Peer) {
        let Some(this) = self.this.upgrade() else { return };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, socket, peer, this));
        connection.fate().begin(&connection);
        if self.ready.add(connection.socket(), id).is_err() {
            return;
        }
        self.connections.write().unwrap_or_else(PoisonError::into_inner).insert(id, connection.clone());
        if self.ready.arm(connection.socket(), id, READ).is_err() {
            connection.close();
        }
        self.crew.mind();
    }

    /// Closes the connection that has been silent longest, if any has been for a while.
    fn make_room(&self) -> bool {
        let now = Instant::now();
        let idlest = {
            let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
            let idle = connections.values().filter_map(|connection| Some((connection.idle(now)?, connection)));
            idle.max_by_key(|(idle, _)| *idle).filter(|(idle, _)| *idle >= GRACE).map(|(_, idlest)| idlest.clone())
        };
        idlest.inspect(|idlest| idlest.close()).is_some()
    }

    fn wait_for_room(&self, key: u64) {
        lock(&self.waiting).push(key);
        // Nobody else may ever look.
        self.crew.mind_within(BACK_OFF);
    }

    /// Those who wait for room try again.
    fn resume(&self) {
        for key in std::mem::take(&mut *lock(&self.waiting)) {
            if let Some(listener) = self.listeners.get(key as usize) {
                let _ = self.ready.arm(listener, key, READ);
            }
        }
    }

    /// A connection has ended.
    pub(super) fn forget(&self, connection: &Connection) {
        self.ready.remove(connection.socket(), connection.id);
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(&connection.id);
        self.resume();
    }

    /// Ends all connections, and takes no more.
    pub(super) fn close(&self) {
        // Whoever serves a connection has us still; the ports are to be free at once.
        self.listeners.iter().for_each(Listener::shutdown);
        let all: Vec<_> = self.connections.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.iter().for_each(|connection| connection.close());
    }

    fn find(&self, key: u64) -> Option<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }
}

impl Post for Streams {
    fn watch(&self, seat: &Arc<Seat>) {
        const ENOUGH: usize = 2;
        let mut desk = Desk::default();
        while self.list.arrive(ENOUGH) {
            let event = if self.crew.is_stopped() { None } else { self.ready.wait() };
            if self.list.leave() {
                self.crew.guard();
            }
            if self.crew.is_stopped() {
                return;
            }
            let Some((key, interest)) = event else { continue };
            if let Some(listener) = self.listeners.get(key as usize) {
                self.accept(key, listener);
            } else if let Some(connection) = self.find(key) {
                self.list.execute(|| connection.ready(interest, seat, &mut desk));
            }
        }
    }

    fn watch_list(&self) -> &Arc<WatchList> {
        &self.list
    }

    fn wake(&self) {
        self.ready.ring();
    }

    fn sweep(&self, now: Instant) -> Option<Duration> {
        let waited_for = !lock(&self.waiting).is_empty();
        self.resume();
        let all: Vec<_> = self.connections.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for connection in &all {
            let idle = connection.idle(now).is_some_and(|idle| idle >= self.limits.idle);
            if idle || connection.is_stuck(now) {
                connection.close();
            }
        }
        let every = self.limits.idle.min(self.limits.records.time) / 4;
        let every = every.clamp(Duration::from_millis(10), GRACE);
        match (waited_for, all.is_empty()) {
            (true, _) => Some(BACK_OFF),
            (false, true) => None,
            (false, false) => Some(every),
        }
    }
}

impl Listener {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => listener.set_nonblocking(true),
            Listener::Unix(listener) => listener.set_nonblocking(true),
        }
    }

    /// Takes no more, and leaves its address to others.
    fn shutdown(&self) {
        let _ = shutdown(self, Shutdown::Both);
    }

    fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                // A reply must not wait for another (Nagle).
                stream.set_nodelay(true)?;
                // Where that is inherited from the listener.
                #[cfg(not(target_os = "linux"))]
                stream.set_nonblocking(false)?;
                Ok((stream.into(), tcp_peer(address)))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                #[cfg(target_os = "linux")]
                let user = rustix::net::sockopt::socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw());
                #[cfg(not(target_os = "linux"))]
                let user = {
                    stream.set_nonblocking(false)?;
                    None
                };
                Ok((stream.into(), Peer { transport: Transport::Unix, address: None, user, connection: None }))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Keys that we gave ourselves need no hashing.
type Numbered = BuildHasherDefault<Given>;

/// A hash that is given.
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
        // The table looks at the highest bits too.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn tcp_peer(address: SocketAddr) -> Peer {
    Peer { transport: Transport::Tcp, address: Some(address), user: None, connection: None }
}

/// Whether an error speaks of the connection that was to be accepted, and not of us (accept(2)).
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | InvalidInput)
        || matches!(error.kind(), HostUnreachable | NetworkUnreachable | NetworkDown | PermissionDenied | TimedOut)
}

const READ: Interest = Interest { read: true, write: false };

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
