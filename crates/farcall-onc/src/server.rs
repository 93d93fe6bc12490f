//! An ONC RPC server: the programs that it serves, and the sockets at which clients call them.
//!
//! ```
//! # use std::sync::Arc;
//! #[farcall::interface(program = 0x2000_0001, version = 1)]
//! pub trait Echo {
//!     fn twice(&self, number: u32) -> farcall::Result<u32>;
//! }
//!
//! struct Twice;
//! impl Echo for Twice {
//!     fn twice(&self, number: u32) -> farcall::Result<u32> {
//!         Ok(number.wrapping_mul(2))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = farcall_onc::Server::builder()
//!     .program::<dyn Echo>(Arc::new(Twice))
//!     .address("127.0.0.1:0".parse()?) // UDP and TCP, at one port
//!     .start()?;
//! println!("{:?}", server.addresses());
//! # server.stopper().stop();
//! server.wait(); // until the process ends, or somebody stops it
//! # Ok(())
//! # }
//! ```

mod back;
mod caller;
mod datagrams;
mod dispatcher;
mod duplicates;
mod fate;
mod flavour;
mod hosts;
pub(crate) mod mapper;
pub(crate) mod model;
mod outgoing;
mod peer;
mod pool;
mod programs;
mod shorts;
mod streams;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farcall::System;
use farcall::env::{Address, Env, Listener, Socket};
use farcall::stub::Program;
use farcall::xdr;

pub use caller::{Caller, caller, say_nothing};
pub use dispatcher::Dispatcher;
pub use duplicates::Retention;
#[doc(inline)]
pub use farcall::stopper::Stopper;
pub use flavour::{Admission, Flavour, Seal};
pub use peer::Transport;
pub use programs::Offer;

use crate::client::rpcbind::{Registration, Rpcbind};
use crate::portmap::{PORT, SOCKET};
use crate::wire::auth::{AuthStat, Flavor};
use crate::wire::record;
use datagrams::Datagrams;
use duplicates::Duplicates;
use mapper::{Mapper, Offered};
use pool::Workers;
use programs::Programs;
use shorts::ShortCredentials;
use streams::{StreamLimits, Streams};

/// How long a server that ends waits for the host's port mapper to remove all of its registrations. A port
/// mapper on the same host answers within a millisecond.
const MAX_WITHDRAWAL_TIME: Duration = Duration::from_secs(1);
/// How long a drain waits for the port mapper at least, so that one with hardly any time removes the
/// registrations, too.
const MIN_WITHDRAWAL_TIME: Duration = Duration::from_millis(100);

/// A running server. It serves its programs until it is dropped.
pub struct Server {
    workers: Arc<Workers>,
    streams: Option<Arc<Streams>>,
    programs: Arc<Programs>,
    addresses: Vec<(Transport, SocketAddr)>,
    paths: Vec<PathBuf>,
    /// The port mapper in this process at which the server is registered.
    mapper: Option<Mapper>,
    /// The registrations with the host's rpcbind.
    registrations: Vec<Registration>,
    stopper: Stopper,
}

impl Server {
    /// Begins the configuration of a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Serves until the process ends or another thread calls [`Stopper::stop`]. After `stop` the server
    /// removes its registrations and ends.
    ///
    /// If a signal kills the process, registrations remain: [`Server::until_signal`] removes them.
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

    /// Removes the registrations, accepts no more connections, and reads no more calls from those that there
    /// are. Takes calls over UDP until the connections have ended. Waits until the calls that have begun are
    /// finished and their replies sent, but no longer than `time`. Returns whether they are. A client whose
    /// call came too late finds the end of its connection; over UDP it hears nothing.
    ///
    /// A silent port mapper takes up to half of `time`, but at least 100 ms and at most a second.
    pub fn drain(mut self, time: Duration) -> bool {
        let until = self.workers.env().now() + time;
        self.withdraw((time / 2).clamp(MIN_WITHDRAWAL_TIME, MAX_WITHDRAWAL_TIME));
        let sent = self.streams.as_ref().is_none_or(|streams| streams.drain(until));
        self.workers.finish(until) && sent
    }

    /// Returns a handle with which another thread can end [`Server::wait`].
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the addresses, each with its transport. Paths of Unix sockets are not among them.
    pub fn addresses(&self) -> &[(Transport, SocketAddr)] {
        &self.addresses
    }

    /// Returns the first UDP address.
    pub fn udp(&self) -> Option<SocketAddr> {
        self.first(Transport::Udp)
    }

    /// Returns the first TCP address.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.first(Transport::Tcp)
    }

    /// Returns the program and version numbers that the server serves.
    pub fn programs(&self) -> Vec<(u32, u32)> {
        self.programs.numbers().collect()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.len())
    }

    /// Returns the number of bytes that the connections hold: partly received records, and replies that
    /// clients have not taken.
    pub fn memory(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.hosts.bytes())
    }

    /// Removes the registrations. Waits no longer than `time` for the host's port mapper, whose silence would
    /// otherwise keep the server from ending.
    fn withdraw(&mut self, time: Duration) {
        let until = self.workers.env().now() + time;
        self.registrations.drain(..).for_each(|registration| registration.end(until));
        self.each_place(|mapper, program, version, stream, address| {
            mapper.unregister(program, version, stream, address);
        });
    }

    /// Calls `act` with the mapper for each address of each program version. The `bool` says whether the
    /// address is a TCP address. Does nothing without a mapper.
    fn each_place(&self, act: impl Fn(&Mapper, u32, u32, bool, SocketAddr)) {
        let Some(mapper) = &self.mapper else { return };
        for (program, version) in self.programs.numbers() {
            for (transport, address) in &self.addresses {
                act(mapper, program, version, *transport == Transport::Tcp, *address);
            }
        }
    }

    fn first(&self, wanted: Transport) -> Option<SocketAddr> {
        self.addresses.iter().find(|(transport, _)| *transport == wanted).map(|(_, address)| *address)
    }
}

/// When the drop returns, no thread waits at the sockets any more, and their addresses are free. Procedures
/// that still run end by themselves. A procedure called over UDP keeps its socket open until it has replied.
/// The drop removes the registrations, and waits at most a second for a silent port mapper.
impl Drop for Server {
    fn drop(&mut self) {
        self.withdraw(MAX_WITHDRAWAL_TIME);
        self.workers.stop();
        if let Some(streams) = &self.streams {
            streams.close();
        }
        self.paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Server");
        all.field("programs", &self.programs()).field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The configuration of a server.
#[must_use]
pub struct ServerBuilder {
    programs: Programs,
    retention: Option<Retention>,
    places: Vec<Place>,
    workers: usize,
    waiting: usize,
    limits: StreamLimits,
    mapper: Option<Mapper>,
    rpcbind: Option<Rpcbind>,
}

enum Place {
    Udp(SocketAddr),
    Tcp(SocketAddr),
    Both(SocketAddr),
    Unix(PathBuf),
}

impl Default for ServerBuilder {
    fn default() -> ServerBuilder {
        ServerBuilder {
            programs: Programs::default(),
            retention: Some(Retention::default()),
            places: Vec::new(),
            workers: 64,
            waiting: 1024,
            limits: StreamLimits {
                connections: 4096,
                memory: 256 << 20,
                idle: Duration::from_secs(360),
                records: record::Limits { record: 4 << 20, ..record::Limits::default() },
                spin: Duration::ZERO,
                lingering: 4,
            },
            mapper: None,
            rpcbind: None,
        }
    }
}

impl ServerBuilder {
    /// Serves an interface under its program and version number. A server can serve several interfaces, and
    /// several versions of one.
    pub fn program<T: ?Sized + Program>(self, server: Arc<T>) -> Self {
        self.program_one_way(server, &[])
    }

    /// Serves an interface as [`program`](ServerBuilder::program) does. The procedures with the numbers in
    /// `procedures` send no reply if they succeed, because their callers do not wait for one (RFC 5531
    /// section 8.4.1, "batching").
    pub fn program_one_way<T: ?Sized + Program>(self, server: Arc<T>, procedures: &[u32]) -> Self {
        self.offer(Offer::new(server, procedures))
    }

    /// Serves an [`Offer`]: an interface with options of its own.
    pub fn offer(mut self, offer: Offer) -> Self {
        self.programs.add(offer);
        self
    }

    /// Makes this server the host's port mapper, as [`mapper`](ServerBuilder::mapper) does, at all places
    /// where programs look for one: [`rpcbind::PORT`](crate::rpcbind::PORT) of IPv4 and IPv6, by UDP and TCP,
    /// and [`rpcbind::SOCKET`](crate::rpcbind::SOCKET), the Unix socket by which programs in C register. Only
    /// privileged processes may serve there.
    pub fn host_mapper(self, mapper: &Mapper) -> Self {
        let everywhere = [SocketAddr::from(([0; 4], PORT)), SocketAddr::from(([0_u16; 8], PORT))];
        everywhere.into_iter().fold(self.mapper(mapper), ServerBuilder::address).unix(SOCKET)
    }

    /// Makes this server a port mapper (rpcbind versions 2 to 4), and registers the server there. Clients
    /// expect a port mapper at [`rpcbind::PORT`](crate::rpcbind::PORT), and programs in C register by a Unix
    /// socket: [`host_mapper`](ServerBuilder::host_mapper) serves all of these places.
    pub fn mapper(self, mapper: &Mapper) -> Self {
        let offers = Offered::new(mapper).offers();
        offers.into_iter().fold(self, ServerBuilder::offer).register_at(mapper)
    }

    /// Registers the server with this in-process port mapper while the server runs.
    pub fn register_at(mut self, mapper: &Mapper) -> Self {
        self.mapper = Some(mapper.clone());
        self
    }

    /// Registers the server with this host's port mapper (rpcbind) while the server runs.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use farcall_onc::{Server, rpcbind::Rpcbind};
    ///
    /// let server = Server::builder().address("0.0.0.0:0".parse()?).register(&Rpcbind::local()?).start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register(mut self, rpcbind: &Rpcbind) -> Self {
        self.rpcbind = Some(rpcbind.clone());
        self
    }

    /// Serves UDP at this address. With port 0 the system chooses a free port.
    pub fn udp(self, address: SocketAddr) -> Self {
        self.at(Place::Udp(address))
    }

    /// Serves TCP at this address. With port 0 the system chooses a free port.
    pub fn tcp(self, address: SocketAddr) -> Self {
        self.at(Place::Tcp(address))
    }

    /// Serves UDP and TCP at this address, at the same port. With port 0 the system chooses a free port. All
    /// addresses of IPv6 (`[::]`) are those of IPv4 too.
    pub fn address(self, address: SocketAddr) -> Self {
        self.at(Place::Both(address))
    }

    /// Serves a Unix socket at this path. The path must not exist; it is removed when the server is dropped.
    pub fn unix(self, path: impl AsRef<Path>) -> Self {
        self.at(Place::Unix(path.as_ref().to_owned()))
    }

    fn at(mut self, place: Place) -> Self {
        self.places.push(place);
        self
    }

    /// Sets how many procedures can run at once; 64 by default. Procedures that wait in a remote call of
    /// their own do not count ([`waiting`](ServerBuilder::waiting) bounds those). Further calls wait in their
    /// sockets. One host can have at most four fifths of the running procedures, so that a share is left for
    /// other hosts; if there are fewer than five workers, one host can use all.
    ///
    /// Even with `workers(1)` two procedures can overlap: one begins while another waits in a remote call of
    /// its own. So guard what procedures share with a [`Mutex`](std::sync::Mutex).
    ///
    /// The server never has more threads than these workers, the waiting procedures, one thread for each UDP
    /// socket, one for all connections together, and a watchdog.
    pub fn workers(mut self, most: usize) -> Self {
        self.workers = most;
        self
    }

    /// Sets how many procedures can wait in a remote call of their own; 1,024 by default. If a further
    /// procedure makes an ONC RPC call, that call fails as overloaded and does not run. This prevents
    /// deadlock among servers that call each other or themselves.
    pub fn waiting(mut self, most: usize) -> Self {
        self.waiting = most;
        self
    }

    /// Sets how long a thread polls for the next call before it sleeps; zero by default. Polling occupies one
    /// processor; use it only if microseconds matter.
    pub fn spin(mut self, time: Duration) -> Self {
        self.limits.spin = time;
        self
    }

    /// Sets how many connections there can be; 4,096 by default, and never more than about three quarters of
    /// the descriptors that the process can have.
    ///
    /// At the limit, the server closes a connection for each new one. It chooses the network with most
    /// connections, in it the host with most, and of that host the connection that has been silent longest,
    /// or else the one that has waited longest for its client. For another network it closes no connection
    /// that has a call under way, for another host of the same network it may. If the new connection's own
    /// network and host would have as many as any other, the server closes only a connection that has been
    /// silent for five seconds. If there is none, the new connection waits until another ends. At most 64
    /// connections wait. When there are more, the server closes the newest of those of the host that has most
    /// of them, in the network that has most.
    ///
    /// A host is an IPv4 address, the first 64 bits of an IPv6 address, or a user of this machine. A network
    /// is an IPv4 /16, an IPv6 /48, this machine's loopback addresses, or its users.
    pub fn connections(mut self, most: usize) -> Self {
        self.limits.connections = most.max(1);
        self
    }

    /// Sets how many bytes all connections together can hold: partly received records, and replies that
    /// clients have not taken. It is 256 MiB by default, and at least four times the longest record.
    ///
    /// Beyond that, the server closes connections of the host that holds most bytes, first the connection
    /// that has been silent longest. A connection that holds at most 16 KiB stays.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.limits.memory = bytes;
        self
    }

    /// Sets after how long a silence the server closes a connection; six minutes by default. Clients usually
    /// close an idle connection themselves after five minutes.
    pub fn idle(mut self, time: Duration) -> Self {
        self.limits.idle = time;
        self
    }

    /// Limits each received record; by default to 4 MiB, 16,384 fragments, and a minute from its first byte
    /// to its last.
    pub fn records(mut self, limits: record::Limits) -> Self {
        self.limits.records = limits;
        self
    }

    /// Limits the size and the depth of decoded arguments.
    pub fn arguments(mut self, limits: xdr::Limits) -> Self {
        self.programs.limits = limits;
        self
    }

    /// Accepts arguments that RFC 4506 forbids but old clients send: padding that is not zero, numbers other
    /// than 0 and 1 as booleans, and bytes after the arguments.
    pub fn lenient(mut self) -> Self {
        self.programs.lenient = true;
        self
    }

    /// Sets which replies the server keeps. A call that a client sends again gets the kept reply, and its
    /// procedure does not run again. `None`, or a retention of 0 bytes, keeps no replies. Replies of
    /// procedure 0 and of procedures marked `#[idempotent]` are never kept.
    pub fn retention(mut self, retention: Option<Retention>) -> Self {
        self.retention = retention.filter(|kept| kept.bytes > 0);
        self
    }

    /// Calls `allow` before each call. If `allow` returns an error, the call is refused with that error,
    /// which the client receives. If `allow` panics, the call is refused with [`AuthStat::FAILED`].
    pub fn allow(mut self, allow: impl Fn(&Caller) -> Result<(), AuthStat> + Send + Sync + 'static) -> Self {
        self.programs.allow = Some(Box::new(allow));
        self
    }

    /// Answers each AUTH_SYS credential with an AUTH_SHORT (RFC 5531 appendix A): 16 bytes that the client
    /// can send instead of the credential in later calls. By default the server gives none. It remembers at
    /// most `most` of them, at about half a kilobyte each. When the server no longer knows an AUTH_SHORT,
    /// because it has given `most` newer ones or was restarted, it rejects the call with AUTH_REJECTEDCRED,
    /// and the client sends the credential again.
    pub fn short_credentials(mut self, most: usize) -> Self {
        self.programs.shorts = Some(ShortCredentials::new(most));
        self
    }

    /// Adds a flavour of authentication that the server understands.
    pub fn flavour(mut self, flavor: Flavor, flavour: Arc<dyn Flavour>) -> Self {
        self.programs.flavours.push((flavor, flavour));
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// If an address cannot be bound, or a program cannot be registered.
    pub fn start(mut self) -> io::Result<Server> {
        self.limits.lingering = (self.workers / 4).min(4);
        self.programs.duplicates = self.retention.map(Duplicates::new);
        let (env, spin) = (System::current(), self.limits.spin);
        let programs = Arc::new(self.programs);
        let workers = Workers::new(env.clone(), self.workers, self.waiting, streams::LINGER_TIME.max(spin));
        workers.start_watchdog()?;
        let mut server = Server {
            workers,
            streams: None,
            programs,
            addresses: Vec::new(),
            paths: Vec::new(),
            mapper: None,
            registrations: Vec::new(),
            stopper: Stopper::new(&env),
        };
        let (mut sockets, mut listeners) = (Vec::new(), Vec::new());
        let own: Vec<SocketAddr> = self.places.iter().filter_map(Place::address).collect();
        for place in self.places {
            let Some(address) = place.address() else {
                let Place::Unix(path) = place else { continue };
                let listener = env.listen(&Address::Unix(path.clone())).map_err(at(path.display()))?;
                listeners.push(listener);
                server.paths.push(path);
                continue;
            };
            let mut bound = bind_both_families(&*env, &place, address, &own, spin).map_err(at(address))?;
            sockets.append(&mut bound.sockets);
            listeners.append(&mut bound.listeners);
        }
        for socket in sockets {
            server.addresses.push((Transport::Udp, socket.local_address()));
            let datagrams = Datagrams::new(env.clone(), socket, &server.workers, &server.programs);
            // If threads spin, only one receives, guarded by the watchdog. That costs less than two threads
            // that spin.
            let pool = server.workers.pool();
            let pool = if spin.is_zero() { pool.in_pairs() } else { pool };
            server.workers.receive_at(Arc::new(datagrams), pool)?;
        }
        for listener in &listeners {
            if let Some(address) = listener.local_address() {
                server.addresses.push((Transport::Tcp, address));
            }
        }
        if !listeners.is_empty() {
            let streams = Streams::new(env, listeners, self.limits, &server.workers, &server.programs)?;
            server.streams = Some(streams.clone());
            server.workers.receive_at(streams, server.workers.pool().always_in_pairs())?;
        }
        if let Some(rpcbind) = self.rpcbind {
            let is_stream = |transport: &Transport| *transport == Transport::Tcp;
            let all: Vec<_> =
                server.addresses.iter().map(|(transport, at)| (is_stream(transport), *at)).collect();
            for (program, version) in server.programs() {
                let registration = rpcbind.register(program, version, &all).map_err(io::Error::other)?;
                server.registrations.push(registration);
            }
        }
        if let Some(mapper) = self.mapper {
            server.mapper = Some(mapper);
            server.each_place(|mapper, program, version, stream, address| {
                mapper.register(program, version, stream, address);
            });
        }
        Ok(server)
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("ServerBuilder");
        all.field("programs", &self.programs.numbers().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Adds the address to the error of binding it.
fn at(address: impl fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |why| io::Error::new(why.kind(), format!("{address}: {why}"))
}

impl Place {
    /// Returns the address; `None` for a Unix socket.
    fn address(&self) -> Option<SocketAddr> {
        match self {
            Place::Udp(address) | Place::Tcp(address) | Place::Both(address) => Some(*address),
            Place::Unix(_) => None,
        }
    }
}

/// The sockets of one place, all of one port.
#[derive(Default)]
struct Bound {
    sockets: Vec<Arc<dyn Socket>>,
    listeners: Vec<Arc<dyn Listener>>,
}

impl Bound {
    /// Binds the sockets of a place at an address. Returns their address.
    fn bind(
        &mut self,
        env: &dyn Env,
        place: &Place,
        mut address: SocketAddr,
        spin: Duration,
    ) -> io::Result<SocketAddr> {
        if !matches!(place, Place::Udp(_)) {
            let listener = env.listen(&Address::Tcp(address))?;
            address = listener.local_address().unwrap_or(address);
            self.listeners.push(listener);
        }
        if !matches!(place, Place::Tcp(_)) {
            let socket = Datagrams::bind(env, address, spin)?;
            address = socket.local_address();
            self.sockets.push(socket);
        }
        Ok(address)
    }
}

/// Binds the sockets of a place. At `[::]` IPv4 is served as well, at the same port by sockets of its own,
/// unless `own` has a place for it.
fn bind_both_families(
    env: &dyn Env,
    place: &Place,
    address: SocketAddr,
    own: &[SocketAddr],
    spin: Duration,
) -> io::Result<Bound> {
    /// How often to try with port 0: a port that is free for one socket may be taken for another.
    const MAX_TRIES: usize = 32;
    let is_everywhere = address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..MAX_TRIES {
        let mut bound = Bound::default();
        let done = bound.bind(env, place, address, spin).and_then(|at| {
            let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, at.port()));
            match is_everywhere && !own.contains(&ipv4) {
                true => bound.bind(env, place, ipv4, spin).map(drop),
                false => Ok(()),
            }
        });
        match done {
            Ok(()) => return Ok(bound),
            Err(error) if address.port() == 0 => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
