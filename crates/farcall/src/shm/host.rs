//! The server's end of calls through shared memory. One thread, the host, accepts callers, answers their
//! probes, and notices when they end. It also watches over the threads that receive from them, as the
//! server's watchdog watches over the receiver at the UDP socket.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farcall_shm::{CHALLENGE_BYTES, EpollSet, Listener, MAX_HELLO_BYTES, Received, UnixChannel, Wants};

use super::budget::{Budget, Share};
use super::drains::Drains;
use super::host_signal::HostSignal;
use super::meet::{Meeting, Met};
use super::offers::Offers;
use super::proof::{Importer, Threshold};
use super::session::{HABIT, Means, Session};
use super::watch::PROBE;
use crate::env::Time;
use crate::server::Server;
use crate::workers::{Carrier as _, Watch};

/// The handle of a server's host thread. Stopping it ends the thread.
#[derive(Clone)]
pub(crate) struct Host {
    signal: Arc<HostSignal>,
    drains: Arc<Drains>,
}

/// The most connections. Further callers call by UDP.
const MAX_CONNECTIONS: usize = 1024;
/// The least number of connections that each process can have, as long as any are left.
const LEAST_CONNECTIONS: usize = 4;
/// The most connections that have not sent their first message, the hello, yet. A further connection replaces
/// the oldest of them.
const MAX_SILENT: usize = 64;
/// How long a connection may take to send its hello.
const HELLO_TIME: Duration = Duration::from_secs(1);
/// The most connections that cannot be closed, because closing a file that their peer passed blocks. At this
/// number no caller is accepted.
const MAX_UNCLOSED: usize = 64;
/// The size of the pool of bytes that all callers together can make the server hold. The pool has room for
/// two results of the greatest length. In addition, each process has [`LEAST_BYTES`].
const POOL_BYTES: usize = 2 * ((1 << 30) + (1 << 20));
/// The least number of bytes that each process can make the server hold.
const LEAST_BYTES: usize = 512 << 10;
/// The least number of threads, besides receivers, that the connections of each process can use, as long as
/// any are left.
const LEAST_THREADS: usize = 2;
/// The key of the alarm in the epoll set.
const ALARM: u64 = 0;
/// The keys of the listeners in the epoll set.
const LISTENERS: Range<u64> = 1..4;
/// How long the host accepts no caller when too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Host {
    /// Starts the thread that accepts the callers of a server.
    ///
    /// # Errors
    /// When a socket, an eventfd, an epoll set or a thread cannot be made.
    pub(crate) fn new(server: &Arc<Server>, offers: &Arc<Offers>, spin: Duration) -> std::io::Result<Host> {
        let listeners = callable_at(server.address()).into_iter().map(|at| Ok((at, Listener::bind(at)?)));
        let listeners = listeners.collect::<std::io::Result<Vec<(SocketAddr, Listener)>>>()?;
        let (signal, drains) = (Arc::new(HostSignal::new()?), Arc::<Drains>::default());
        let epoll = EpollSet::new()?;
        epoll.add(&signal.alarm, ALARM)?;
        for ((_, listener), name) in listeners.iter().zip(LISTENERS) {
            epoll.add(listener, name)?;
        }
        // The other half of the file descriptors is left to the rest of the process.
        let most = MAX_CONNECTIONS.min(farcall_shm::file_limit() / 2);
        let threads = server.threads().max();
        let body = HostThread {
            epoll,
            next: LISTENERS.end,
            server: server.clone(),
            signal: signal.clone(),
            drains: drains.clone(),
            met: Arc::default(),
            listeners,
            resting: None,
            spin,
            offers: offers.clone(),
            places: Budget::new(most / 2, LEAST_CONNECTIONS, most),
            threads: Budget::new(threads, LEAST_THREADS, threads),
            bytes: Budget::new(POOL_BYTES, LEAST_BYTES, POOL_BYTES + MAX_CONNECTIONS * LEAST_BYTES),
            connections: HashMap::new(),
            silent: VecDeque::new(),
        };
        server.env().spawn("farcall-host", Box::new(move || body.live()))?;
        let host = Host { signal, drains };
        let told = host.drains.clone();
        server.tell_drains_by(Box::new(move |export| told.tell(export)));
        Ok(host)
    }

    pub(crate) fn stop(&self) {
        self.signal.stop();
    }

    /// Ends the connections whose conversations have ended.
    #[cfg(feature = "secure")]
    pub(crate) fn end_forgotten(&self) {
        self.signal.wake();
    }
}

/// The state of the host's thread.
struct HostThread {
    server: Arc<Server>,
    signal: Arc<HostSignal>,
    drains: Arc<Drains>,
    /// The outcomes of finished meetings. In a meeting, a separate thread examines the files that a new
    /// caller has passed.
    met: Arc<Met>,
    /// The listeners, each with the address by which its callers know the server.
    listeners: Vec<(SocketAddr, Listener)>,
    /// Until when no caller is accepted.
    resting: Option<Time>,
    epoll: EpollSet,
    /// The key of the next connection in the epoll set.
    next: u64,
    spin: Duration,
    /// Segments that may be mapped.
    offers: Arc<Offers>,
    /// How many connections each process may have.
    places: Arc<Budget>,
    /// How many bytes of long arguments and results each process may make the server hold.
    bytes: Arc<Budget>,
    /// How many of the server's threads each process's connections may use, besides one receiver for each
    /// connection.
    threads: Arc<Budget>,
    connections: HashMap<u64, Connection>,
    /// The connections that have not sent a hello, each with the time at which it is dropped, in the order of
    /// these times.
    silent: VecDeque<(Time, u64)>,
}

/// A connection. It takes one of the places that its caller's process may have.
struct Connection {
    /// The server's address that the caller used.
    at: SocketAddr,
    channel: Arc<UnixChannel>,
    /// The challenge that was sent to the peer, if this server has keys.
    challenge: Option<[u8; CHALLENGE_BYTES]>,
    place: Share,
    stage: Stage,
}

enum Stage {
    /// The peer has not sent its hello.
    Silent,
    /// A separate thread examines the files that the peer has passed.
    Meeting,
    /// The peer has mapped a segment, and sends nothing more.
    Guest,
    /// The peer makes calls. The watch is the watchdog's state for the peer's receiver.
    Calling(Arc<Session>, Watch),
}

impl HostThread {
    fn live(mut self) {
        let mut ready = Vec::new();
        while !self.signal.is_stopped() {
            let most = self.nap();
            self.epoll.wait(most, &mut ready);
            for name in ready.drain(..) {
                match name {
                    ALARM => self.signal.alarm.clear(),
                    _ if LISTENERS.contains(&name) => self.accept(name),
                    _ => self.receive(name),
                }
            }
            self.take_met();
            self.end_silence();
            self.end_forgotten();
            self.sessions().for_each(|(session, watch)| drop(session.look(watch)));
        }
        self.end();
    }

    /// Closes all sessions, then their sockets. The order matters: once a caller learns that the server is
    /// gone, a call that no receiver has taken must never run.
    fn end(mut self) {
        self.take_met();
        self.sessions().for_each(|(session, _)| session.close());
        self.sessions().for_each(|(session, _)| session.channel().close());
    }

    fn sessions(&mut self) -> impl Iterator<Item = (&Arc<Session>, &mut Watch)> {
        self.connections.values_mut().filter_map(|connection| match &mut connection.stage {
            Stage::Calling(session, watch) => Some((&*session, watch)),
            Stage::Silent | Stage::Meeting | Stage::Guest => None,
        })
    }

    /// Returns how long to sleep, or `None` to sleep until an event.
    fn nap(&mut self) -> Option<Duration> {
        let naps = self.sessions().filter_map(|(_, watch)| watch.nap()).min();
        let until = self.silent.front().map(|(until, _)| *until).into_iter().chain(self.resting).min();
        let left = until.map(|until| until.since(self.server.env().now()));
        naps.into_iter().chain(left).min()
    }

    fn accept(&mut self, listener: u64) {
        if farcall_shm::unclosed() >= MAX_UNCLOSED {
            return self.rest();
        }
        let Some((at, listener)) = self.listeners.get((listener - LISTENERS.start) as usize) else { return };
        let (channel, process) = match listener.accept() {
            Ok(Some(arrived)) => arrived,
            Ok(None) => return,
            // Perhaps too many files are open.
            Err(_) => return self.rest(),
        };
        let place = self.places.share(process);
        if !place.take(1) {
            return;
        }
        let challenge = self.server.has_keys().then(|| {
            let mut challenge = [0; CHALLENGE_BYTES];
            self.server.env().entropy(&mut challenge);
            challenge
        });
        // If it is not sent, the peer goes on by UDP, and its connection is dropped when it says nothing.
        if let Some(challenge) = &challenge {
            let _ = channel.send(challenge, None);
        }
        let (name, stage) = (self.next, Stage::Silent);
        self.next += 1;
        let connection = Connection { at: *at, channel: Arc::new(channel), challenge, place, stage };
        if self.epoll.add(&*connection.channel, name).is_err() {
            return;
        }
        self.connections.insert(name, connection);
        if self.silent.len() >= MAX_SILENT {
            let longest = self.silent.pop_front();
            longest.into_iter().for_each(|(_, name)| self.drop_connection(name));
        }
        self.silent.push_back((self.server.env().now() + HELLO_TIME, name));
    }

    /// Accepts no caller for a while.
    fn rest(&mut self) {
        self.listeners.iter().for_each(|(_, listener)| self.epoll.remove(listener));
        self.resting = Some(self.server.env().now() + ACCEPT_PAUSE);
    }

    /// Drops connections that have not sent a hello for too long. Accepts callers again when the pause after
    /// an error is over.
    fn end_silence(&mut self) {
        if self.silent.is_empty() && self.resting.is_none() {
            return;
        }
        let now = self.server.env().now();
        while let Some((_, name)) = self.silent.front().copied().filter(|(until, _)| *until <= now) {
            self.silent.pop_front();
            self.drop_connection(name);
        }
        if self.resting.is_some_and(|until| until <= now) {
            // If the system has no memory for this now, the host accepts no caller for another while.
            let watched = self.watch_listeners();
            self.resting = watched.err().map(|_| now + ACCEPT_PAUSE);
        }
    }

    fn watch_listeners(&self) -> std::io::Result<()> {
        for ((_, listener), name) in self.listeners.iter().zip(LISTENERS) {
            // One listener may still be watched since the last rest, if there was no memory for the other.
            self.epoll.remove(listener);
            self.epoll.add(listener, name)?;
        }
        Ok(())
    }

    /// Receives a message from a connection.
    fn receive(&mut self, name: u64) {
        let Some(connection) = self.connections.get_mut(&name) else { return };
        match &connection.stage {
            Stage::Silent => self.take_hello(name),
            Stage::Calling(session, _) => match session.channel().receive(&mut [0; 8]) {
                // An unanswered probe does no harm: the peer sends others.
                Received::Message(_) => drop(session.channel().send(PROBE, None)),
                Received::Nothing => {}
                // A peer that passes a file with a probe breaks the protocol.
                Received::Gone | Received::Files => self.drop_connection(name),
            },
            // A peer that has mapped a segment sends nothing, so an event means that the peer has ended.
            Stage::Guest => self.drop_connection(name),
            Stage::Meeting => {}
        }
    }

    /// Reads a connection's hello, and passes a segment or starts a meeting.
    fn take_hello(&mut self, name: u64) {
        let Some(connection) = self.connections.get_mut(&name) else { return };
        let mut hello = [0; MAX_HELLO_BYTES];
        let received = connection.channel.receive(&mut hello);
        if received == Received::Nothing {
            return;
        }
        self.silent.retain(|(_, silent)| *silent != name);
        let stays = match received {
            Received::Message(len) => {
                connection.stage = Stage::Guest;
                let threshold = connection.threshold();
                threshold
                    .meet(&self.server, &hello[..len])
                    .is_some_and(|importer| pass(&self.server, &self.offers, &importer, &connection.channel))
            }
            Received::Files => {
                connection.stage = Stage::Meeting;
                self.epoll.remove(&*connection.channel);
                let process = connection.place.process();
                let means = Means {
                    server: self.server.clone(),
                    channel: connection.channel.clone(),
                    signal: self.signal.clone(),
                    drains: self.drains.clone(),
                    spin: self.spin,
                    bytes: self.bytes.share(process),
                    threads: self.threads.share(process),
                };
                let (at, challenge) = (connection.at, connection.challenge);
                Meeting { name, at, challenge, met: self.met.clone(), means }.start().is_ok()
            }
            Received::Nothing | Received::Gone => false,
        };
        if !stays {
            self.drop_connection(name);
        }
    }

    /// Takes over the sessions of finished meetings.
    fn take_met(&mut self) {
        for (name, session) in self.met.take() {
            let (Some(session), Some(connection)) = (session, self.connections.get_mut(&name)) else {
                self.drop_connection(name);
                continue;
            };
            let mut watch = Watch::new(HABIT);
            session.look(&mut watch);
            connection.stage = Stage::Calling(session, watch);
            if self.epoll.add(&*connection.channel, name).is_err() {
                self.drop_connection(name);
            }
        }
    }

    /// Drops the connections whose conversations have ended.
    fn end_forgotten(&mut self) {
        let ended = |(name, connection): (&u64, &Connection)| match &connection.stage {
            Stage::Calling(session, _) if session.has_ended() => Some(*name),
            _ => None,
        };
        let ended: Vec<u64> = self.connections.iter().filter_map(ended).collect();
        ended.into_iter().for_each(|name| self.drop_connection(name));
    }

    /// Drops a connection whose peer is gone or must leave.
    fn drop_connection(&mut self, name: u64) {
        let Some(connection) = self.connections.remove(&name) else { return };
        self.epoll.remove(&*connection.channel);
        if let Stage::Calling(session, _) = &connection.stage {
            session.close();
            session.give_up_calls();
        }
        connection.channel.close();
    }
}

impl Connection {
    fn threshold(&self) -> Threshold<'_> {
        Threshold { channel: &self.channel, challenge: self.challenge.as_ref(), at: self.at }
    }
}

/// Passes the segment's memory to an importer that wants to map it, if it may. Returns whether the memory was
/// passed.
fn pass(server: &Server, offers: &Offers, importer: &Importer, channel: &UnixChannel) -> bool {
    let Wants::Segment(generation) = importer.hello.wants else { return false };
    let (export, principal) =
        (importer.hello.export, importer.known.as_ref().map(|(principal, _)| principal));
    let may = |writes| server.may_map(export, principal, writes);
    offers.pass((export, generation), principal, may, &importer.answer, channel)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.place.give(1);
    }
}

/// Returns the addresses by which callers on this machine know a server. A server that is bound to all
/// addresses of its host has the loopback addresses too. The machine's other addresses are left out, because
/// a forwarder may listen at one of them, and must not be bypassed.
fn callable_at(bound: SocketAddr) -> Vec<SocketAddr> {
    let loopbacks: &[IpAddr] = match bound.ip() {
        ip if !ip.is_unspecified() => &[],
        IpAddr::V4(_) => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
        IpAddr::V6(_) => &[IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)],
    };
    let loopbacks = loopbacks.iter().map(|ip| SocketAddr::new(*ip, bound.port()));
    std::iter::once(bound).chain(loopbacks).collect()
}
