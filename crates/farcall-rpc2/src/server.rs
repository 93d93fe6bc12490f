//! A server of subsystems at one UDP port, for clients that speak RPC2 in its plain mode.
//!
//! A client binds without security; other binds are refused. A subsystem's NEW_CONNECTION procedure is called
//! before the client may call others. A server executes a request once: it answers one that comes again with
//! BUSY while it executes it, and with the kept reply afterwards.
//!
//! ```text
//! connections  the clients, their requests and kept replies: without sockets and threads
//! places       which connection makes way for another
//! subsystems   the interfaces, and how a request is executed
//! request      a request on its way between the two
//! ```

mod connections;
mod places;
mod request;
mod subsystems;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{Condition, Env, Received, Socket, SocketOptions, Wait, thread_event};
use farcall::stopper::Stopper;
use farcall::stub::Interface;
use farcall::{System, lock};

use crate::codec::Refusal;
use crate::packet::MAX_PACKET_BYTES;
use connections::{Action, Connections};
use request::Request;
use subsystems::Subsystems;

/// The size to request for the socket's buffers, in bytes.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// A running server. It serves its subsystems until it is dropped.
pub struct Server {
    serving: Arc<Serving>,
    stopper: Stopper,
}

/// What the threads of a server share.
struct Serving {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    subsystems: Subsystems,
    connections: Mutex<Connections>,
    state: Mutex<State>,
    /// Notified when there is a request, a thread ends, or the server stops.
    changed: Condition,
}

#[derive(Default)]
struct State {
    /// The requests that wait for a worker. There is at most one of each connection.
    requests: VecDeque<Request>,
    is_stopped: bool,
    is_receiving: bool,
    /// How many threads execute requests.
    executing: usize,
    calls: u64,
}

impl Server {
    /// Begins the configuration of a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Serves until the process ends or another thread calls [`Stopper::stop`].
    pub fn wait(self) {
        self.stopper.wait();
    }

    /// Serves until the process is asked to end, by SIGTERM or SIGINT, or until [`Stopper::stop`] is called.
    /// Then [drains](Server::drain) the server, at most 25 s, and returns. This is the line with which the
    /// `main` of a server ends. From its first call on the two signals do nothing else; a second one ends the
    /// process.
    ///
    /// # Errors
    /// When calls had not ended after 25 s, or the system lets no thread take the signals.
    #[cfg(feature = "signals")]
    pub fn until_signal(self) -> farcall::Result<()> {
        let stopper = self.stopper();
        farcall::signals::serve_until_signal(&stopper, |time| self.drain(time))
    }

    /// Receives no more calls, and waits until those that have begun are answered, but no longer than `time`.
    /// Returns whether they are.
    pub fn drain(self, time: Duration) -> bool {
        self.serving.drain(time)
    }

    /// Returns a handle with which another thread can end [`Server::wait`].
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.serving.socket.local_address()
    }

    /// Returns how many requests were executed.
    pub fn calls(&self) -> u64 {
        lock(&self.serving.state).calls
    }
}

/// When the drop returns, no thread waits for packets any more. Procedures that still run end by themselves,
/// and requests that wait are not executed.
impl Drop for Server {
    fn drop(&mut self) {
        self.serving.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// The configuration of a [`Server`].
#[must_use]
pub struct ServerBuilder {
    env: Arc<dyn Env>,
    subsystems: Subsystems,
    /// The first refusal of an interface.
    refused: Option<Refusal>,
    place: Option<SocketAddr>,
    workers: usize,
    max_connections: usize,
}

impl Default for ServerBuilder {
    fn default() -> ServerBuilder {
        ServerBuilder {
            env: System::current(),
            subsystems: Subsystems::default(),
            refused: None,
            place: None,
            workers: 4,
            max_connections: 4096,
        }
    }
}

impl ServerBuilder {
    /// Serves an interface as the subsystem of that number. If RPC2 cannot say the interface,
    /// [`ServerBuilder::start`] fails.
    pub fn subsystem<T: ?Sized + Interface>(mut self, number: u32, server: Arc<T>) -> Self {
        if let Err(why) = self.subsystems.add(number, server) {
            self.refused = self.refused.or(Some(why));
        }
        self
    }

    /// Serves this address. With port 0 the system chooses a free port.
    pub fn udp(mut self, address: SocketAddr) -> Self {
        self.place = Some(address);
        self
    }

    /// Sets how many threads execute requests; 4 by default. One more thread receives.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count.clamp(1, 1024);
        self
    }

    /// Sets how many connections are kept from which requests have come; 4,096 by default, with which their
    /// replies take at most 18 MB. Beyond that the first request of another connection ends one of the host
    /// that has the most: the one that was idle for the longest time. Its client is told at its next call.
    /// Binds that no request has followed have a quarter as many places of their own, and end only one
    /// another.
    pub fn connections(mut self, count: usize) -> Self {
        self.max_connections = count.max(1);
        self
    }

    /// Replaces the environment, for simulations.
    #[doc(hidden)]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// RPC2 cannot say a type of an interface ([`Layout::new`](crate::codec::Layout::new)), the server has no
    /// address, or the system refuses the address or a thread.
    pub fn start(self) -> io::Result<Server> {
        let invalid = |why: String| io::Error::new(ErrorKind::InvalidInput, why);
        if let Some(why) = self.refused {
            return Err(invalid(why.to_string()));
        }
        let place = self.place.ok_or_else(|| invalid("the server has no address: call `udp`".into()))?;
        let options = SocketOptions {
            buffer: SOCKET_BUFFER_BYTES,
            answers: true,
            divisible: true,
            ..SocketOptions::default()
        };
        let socket = self
            .env
            .bind(place, &options)
            .map_err(|why| io::Error::new(why.kind(), format!("udp://{place}: {why}")))?;
        let serving = Arc::new(Serving {
            env: self.env.clone(),
            socket,
            connections: Mutex::new(Connections::new(self.env.clone(), self.max_connections)),
            subsystems: self.subsystems,
            state: Mutex::default(),
            changed: Condition::default(),
        });
        let server = Server { serving: serving.clone(), stopper: Stopper::new(&self.env) };
        for _ in 0..self.workers {
            let worker = serving.clone();
            self.env.spawn("rpc2-worker", Box::new(move || worker.work()))?;
        }
        lock(&serving.state).is_receiving = true;
        let receiver = serving.clone();
        if let Err(why) = self.env.spawn("rpc2-receiver", Box::new(move || receiver.receive())) {
            lock(&serving.state).is_receiving = false;
            return Err(why);
        }
        Ok(server)
    }

    /// Answers these packets in this thread, and returns the packets that are sent. For fuzz targets.
    #[doc(hidden)]
    pub fn answer(self, packets: &[&[u8]], from: SocketAddr) -> Vec<Vec<u8>> {
        let mut connections = Connections::new(self.env, self.max_connections);
        let mut sent = Vec::new();
        for packet in packets {
            match connections.receive(packet, from, &self.subsystems) {
                Action::Nothing => {}
                Action::Send(packet) => sent.push(packet.to_vec()),
                Action::Run(request) => {
                    let (code, body) = self.subsystems.execute(&request);
                    sent.extend(connections.end(&request, code, &body).map(|packet| packet.to_vec()));
                }
            }
        }
        sent
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Serving {
    fn receive(&self) {
        let mut packet = vec![0; MAX_PACKET_BYTES + 1];
        while !lock(&self.state).is_stopped {
            let (from, count) = match self.socket.receive(&mut packet, Wait::Forever) {
                Ok(Received::Datagrams { from, len, .. }) => (from, len),
                Ok(_) => continue,
                Err(_) => {
                    // The system lacks memory, or the device is down. The next try would fail at once too.
                    thread_event(&self.env).wait(Some(Duration::from_millis(10)));
                    continue;
                }
            };
            let packet = packet.get(..count).unwrap_or_default();
            let action = lock(&self.connections).receive(packet, from, &self.subsystems);
            match action {
                Action::Nothing => {}
                // A packet that cannot be sent is lost, as any can be.
                Action::Send(packet) => drop(self.socket.send(from, &packet)),
                Action::Run(request) => {
                    lock(&self.state).requests.push_back(request);
                    self.changed.notify_one();
                }
            }
        }
        lock(&self.state).is_receiving = false;
        self.changed.notify_all();
    }

    /// Executes requests until the server stops.
    fn work(&self) {
        let mut state = lock(&self.state);
        // Requests that wait when the server stops are not executed.
        while !state.is_stopped {
            if let Some(request) = state.requests.pop_front() {
                state.calls += u64::from(!request.is_bind());
                state.executing += 1;
                drop(state);
                let (code, body) = self.subsystems.execute(&request);
                let reply = lock(&self.connections).end(&request, code, &body);
                if let Some(reply) = reply {
                    let _ = self.socket.send(request.from, &reply);
                }
                state = lock(&self.state);
                state.executing -= 1;
                if state.is_stopped {
                    self.changed.notify_all();
                }
                continue;
            }
            state = self.changed.wait(&self.env, &self.state, state, None).0;
        }
    }

    /// Stops receiving, and waits until the requests that are executed are answered, but no longer than
    /// `time`. Returns whether they are.
    fn drain(&self, time: Duration) -> bool {
        let until = self.env.now() + time;
        self.stop();
        let mut state = lock(&self.state);
        while state.executing > 0 && self.env.now() < until {
            let rest = until.since(self.env.now());
            state = self.changed.wait(&self.env, &self.state, state, Some(rest)).0;
        }
        state.executing == 0
    }

    /// Stops receiving. When this returns, no thread waits for packets.
    fn stop(&self) {
        let mut state = lock(&self.state);
        state.is_stopped = true;
        self.changed.notify_all();
        while state.is_receiving && !std::thread::panicking() {
            self.socket.wake();
            state = self.changed.wait(&self.env, &self.state, state, Some(Duration::from_millis(10))).0;
        }
    }
}
