//! The serving end on this machine: meets callers, answers their probes, notices that they are gone, and
//! looks after their receivers as the sentinel does after the socket's.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farcall_shm::{EpollSet, Hello, Listener, MAX_HELLO_BYTES, Received, UnixChannel, Wants};

use super::budget::{Budget, Share};
use super::host_signal::HostSignal;
use super::meet::{Meeting, Met};
use super::offers::Offers;
use super::proof::answer;
use super::session::{Means, Session};
use super::watch::PROBE;
use crate::env::Time;
use crate::server::Server;
use crate::workers::Watch;

/// What a server needs to be called through memory. It ends when it is stopped.
pub(crate) struct Host(Arc<HostSignal>);

/// Connections at most; further callers call by UDP.
const MAX_CONNECTIONS: usize = 1024;
/// Connections that a process may have in any case while there are any left.
const LEAST_CONNECTIONS: usize = 4;
/// How many connections may stay silent, and for how long. One too many takes the place of the one that has
/// been silent longest.
const MAX_SILENT: usize = 64;
const SILENCE: Duration = Duration::from_secs(1);
/// Nobody is met while so many connections cannot be closed: their peers have left what blocks that.
const MAX_UNCLOSED: usize = 64;
/// Bytes that all callers together can make the server hold. The pool allows one result of the greatest
/// length beside another; each process has its least share besides.
const POOL_BYTES: usize = 2 * ((1 << 30) + (1 << 20));
const LEAST_BYTES: usize = 512 << 10;
/// Threads that each process's connections may have besides their receivers while there are any left.
const LEAST_THREADS: usize = 2;
/// What the host hears besides its callers.
const ALARM: u64 = 0;
const LISTENERS: Range<u64> = 1..4;
/// How long nobody is met when there are too many files.
const REST: Duration = Duration::from_millis(50);

impl Host {
    /// Meets the callers of a server.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn new(server: &Arc<Server>, offers: &Arc<Offers>, spin: Duration) -> std::io::Result<Host> {
        let listeners = callable_at(server.address()).into_iter().map(|at| Ok((at, Listener::bind(at)?)));
        let listeners = listeners.collect::<std::io::Result<Vec<(SocketAddr, Listener)>>>()?;
        let signal = Arc::new(HostSignal::new()?);
        let ear = EpollSet::new()?;
        ear.add(&signal.alarm, ALARM)?;
        for ((_, listener), name) in listeners.iter().zip(LISTENERS) {
            ear.add(listener, name)?;
        }
        // The other half of the descriptors is for what else the process does.
        let most = MAX_CONNECTIONS.min(farcall_shm::file_limit() / 2);
        let threads = server.threads().max();
        let body = Keeper {
            ear,
            next: LISTENERS.end,
            server: server.clone(),
            signal: signal.clone(),
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
        Ok(Host(signal))
    }

    pub(crate) fn stop(&self) {
        self.0.stop();
    }
}

/// The host's thread.
struct Keeper {
    server: Arc<Server>,
    signal: Arc<HostSignal>,
    /// What came of the meetings that are over.
    met: Arc<Met>,
    /// The listeners, each with the address by which its callers know the server.
    listeners: Vec<(SocketAddr, Listener)>,
    /// Until then nobody is met.
    resting: Option<Time>,
    ear: EpollSet,
    /// By what name the ear knows who arrives next.
    next: u64,
    spin: Duration,
    /// Segments that may be mapped.
    offers: Arc<Offers>,
    /// How many connections each process may have.
    places: Arc<Budget>,
    /// How many bytes of large arguments and results each process may have us hold.
    bytes: Arc<Budget>,
    /// How many of the server's threads each process's connections may use, besides one receiver for each
    /// connection.
    threads: Arc<Budget>,
    connections: HashMap<u64, Connection>,
    /// Those that have not said yet what they want, and when each has to go, in that order.
    silent: VecDeque<(Time, u64)>,
}

/// A connection, which has a place.
struct Connection {
    /// The server's address that the caller used.
    at: SocketAddr,
    wire: Arc<UnixChannel>,
    place: Share,
    stage: Stage,
}

enum Stage {
    /// It has not said yet what it wants.
    Silent,
    /// Its own thread finds out what it has passed.
    Meeting,
    /// It has mapped some memory, and says nothing more.
    Guest,
    /// It has a session. The watch is what the watchdog remembers while it looks after the receiver.
    Calling(Arc<Session>, Option<Watch>),
}

impl Keeper {
    fn live(mut self) {
        let mut said = Vec::new();
        while !self.signal.is_stopped() {
            let most = self.nap();
            self.ear.wait(most, &mut said);
            for name in said.drain(..) {
                match name {
                    ALARM => self.signal.alarm.clear(),
                    _ if LISTENERS.contains(&name) => self.accept(name),
                    _ => self.hear(name),
                }
            }
            self.take_met();
            self.end_silence();
            self.sessions().for_each(|(session, watch)| session.look(watch));
        }
        self.end();
    }

    /// What was not taken by now never runs; only then may the callers hear it.
    fn end(mut self) {
        self.take_met();
        self.sessions().for_each(|(session, _)| session.close());
        self.sessions().for_each(|(session, _)| session.wire().close());
    }

    fn sessions(&mut self) -> impl Iterator<Item = (&Arc<Session>, &mut Option<Watch>)> {
        self.connections.values_mut().filter_map(|connection| match &mut connection.stage {
            Stage::Calling(session, watch) => Some((&*session, watch)),
            Stage::Silent | Stage::Meeting | Stage::Guest => None,
        })
    }

    /// How long to sleep.
    fn nap(&mut self) -> Option<Duration> {
        let naps = self.sessions().filter_map(|(_, watch)| Some(watch.as_ref()?.nap())).min();
        let until = self.silent.front().map(|(until, _)| *until).into_iter().chain(self.resting).min();
        let left = until.map(|until| until.since(self.server.env().now()));
        naps.into_iter().chain(left).min()
    }

    fn accept(&mut self, listener: u64) {
        if farcall_shm::unclosed() >= MAX_UNCLOSED {
            return self.rest();
        }
        let Some((at, listener)) = self.listeners.get((listener - LISTENERS.start) as usize) else { return };
        let (wire, process) = match listener.accept() {
            Ok(Some(arrived)) => arrived,
            Ok(None) => return,
            // Too many files, perhaps: keep off for a while.
            Err(_) => return self.rest(),
        };
        let place = self.places.share(process);
        if !place.take(1) {
            return;
        }
        let name = self.next;
        self.next += 1;
        let connection = Connection { at: *at, wire: Arc::new(wire), place, stage: Stage::Silent };
        if self.ear.add(&*connection.wire, name).is_err() {
            return;
        }
        self.connections.insert(name, connection);
        if self.silent.len() >= MAX_SILENT {
            let longest = self.silent.pop_front();
            longest.into_iter().for_each(|(_, name)| self.part(name));
        }
        self.silent.push_back((self.server.env().now() + SILENCE, name));
    }

    /// Meets nobody for a while.
    fn rest(&mut self) {
        self.listeners.iter().for_each(|(_, listener)| self.ear.remove(listener));
        self.resting = Some(self.server.env().now() + REST);
    }

    /// Parts with those who have been silent for too long, and meets others again after a rest.
    fn end_silence(&mut self) {
        if self.silent.is_empty() && self.resting.is_none() {
            return;
        }
        let now = self.server.env().now();
        while let Some((_, name)) = self.silent.front().copied().filter(|(until, _)| *until <= now) {
            self.silent.pop_front();
            self.part(name);
        }
        if self.resting.is_some_and(|until| until <= now) {
            // (If there is no memory for that now, there is after another rest.)
            let heard = self.hear_listeners();
            self.resting = heard.err().map(|_| now + REST);
        }
    }

    fn hear_listeners(&self) -> std::io::Result<()> {
        for ((_, listener), name) in self.listeners.iter().zip(LISTENERS) {
            // (One may be heard since the last rest, when there was no memory for the other.)
            self.ear.remove(listener);
            self.ear.add(listener, name)?;
        }
        Ok(())
    }

    /// Takes in what a connection says.
    fn hear(&mut self, name: u64) {
        let Some(connection) = self.connections.get_mut(&name) else { return };
        match &connection.stage {
            Stage::Silent => self.greet(name),
            Stage::Calling(session, _) => match session.wire().receive(&mut [0; 8]) {
                // A probe that cannot be answered now is one of many.
                Received::Message(_) => drop(session.wire().send(PROBE, None)),
                Received::Nothing => {}
                // No file is passed with a probe.
                Received::Gone | Received::Files => self.part(name),
            },
            // One who has mapped memory says nothing more: it is gone.
            Stage::Guest => self.part(name),
            Stage::Meeting => {}
        }
    }

    /// One who has said what it wants gets its memory.
    fn greet(&mut self, name: u64) {
        let Some(connection) = self.connections.get_mut(&name) else { return };
        let mut hello = [0; MAX_HELLO_BYTES];
        let heard = connection.wire.receive(&mut hello);
        if heard == Received::Nothing {
            return;
        }
        self.silent.retain(|(_, silent)| *silent != name);
        let stays = match heard {
            Received::Message(len) => match Hello::from_bytes(&hello[..len]) {
                Some(hello @ Hello { wants: Wants::Segment(generation), .. }) => {
                    connection.stage = Stage::Guest;
                    let answer = answer(&self.server, &hello, connection.at);
                    self.offers.pass(hello.export, generation, &answer, &connection.wire)
                }
                _ => false,
            },
            Received::Files => {
                connection.stage = Stage::Meeting;
                self.ear.remove(&*connection.wire);
                let process = connection.place.process();
                let means = Means {
                    server: self.server.clone(),
                    wire: connection.wire.clone(),
                    signal: self.signal.clone(),
                    spin: self.spin,
                    bytes: self.bytes.share(process),
                    threads: self.threads.share(process),
                };
                Meeting { name, at: connection.at, met: self.met.clone(), means }.start().is_ok()
            }
            Received::Nothing | Received::Gone => false,
        };
        if !stays {
            self.part(name);
        }
    }

    /// Hears those whose meetings are over.
    fn take_met(&mut self) {
        for (name, session) in self.met.take() {
            let (Some(session), Some(connection)) = (session, self.connections.get_mut(&name)) else {
                self.part(name);
                continue;
            };
            let mut watch = None;
            session.look(&mut watch);
            connection.stage = Stage::Calling(session, watch);
            if self.ear.add(&*connection.wire, name).is_err() {
                self.part(name);
            }
        }
    }

    /// Lets go of one who is gone, or has to go.
    fn part(&mut self, name: u64) {
        let Some(connection) = self.connections.remove(&name) else { return };
        self.ear.remove(&*connection.wire);
        if let Stage::Calling(session, _) = &connection.stage {
            session.close();
            session.forsake();
        }
        connection.wire.close();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.place.give(1);
    }
}

/// Returns the addresses by which callers on this machine know a server. A server that is bound to all
/// addresses of its host has the loopback addresses too. It does not have the host's other addresses here: a
/// forwarder may listen at one of them, and must not be bypassed.
fn callable_at(bound: SocketAddr) -> Vec<SocketAddr> {
    let loopbacks: &[IpAddr] = match bound.ip() {
        ip if !ip.is_unspecified() => &[],
        IpAddr::V4(_) => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
        IpAddr::V6(_) => &[IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)],
    };
    let loopbacks = loopbacks.iter().map(|ip| SocketAddr::new(*ip, bound.port()));
    std::iter::once(bound).chain(loopbacks).collect()
}
