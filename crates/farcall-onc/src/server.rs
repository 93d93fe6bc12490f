//! A server: programs, and the sockets at which they are called.
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
mod stopper;
mod streams;

use std::fmt;
use std::io;
use std::net::SocketAddr;
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
pub use flavour::{Admission, Flavour, Seal};
pub use peer::Transport;
pub use programs::Offer;
pub use stopper::Stopper;

use crate::client::rpcbind::{Registration, Rpcbind};
use crate::wire::auth::{AuthStat, Flavor};
use crate::wire::record;
use datagrams::Datagrams;
use duplicates::Duplicates;
use mapper::{Mapper, Offered};
use pool::Workers;
use programs::Programs;
use shorts::ShortCredentials;
use streams::{StreamLimits, Streams};

/// Programs that are being served, until it is dropped.
pub struct Server {
    workers: Arc<Workers>,
    streams: Option<Arc<Streams>>,
    programs: Arc<Programs>,
    addresses: Vec<(Transport, SocketAddr)>,
    paths: Vec<PathBuf>,
    /// Where it is registered: at a port mapper of ours, and at the host's.
    mapper: Option<Mapper>,
    registrations: Vec<Registration>,
    stopper: Stopper,
}

impl Server {
    /// A server to be.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Serves until the process ends, or [`Stopper::stop`] is called: then what it registered is taken back.
    /// (To be ended by a signal takes nothing back: whoever wants that has a thread that waits for the signal
    /// call the stopper.)
    pub fn wait(self) {
        self.stopper.wait();
    }

    /// What ends [`Server::wait`], from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Where it is called, by which way.
    pub fn addresses(&self) -> &[(Transport, SocketAddr)] {
        &self.addresses
    }

    /// Its first UDP address.
    pub fn udp(&self) -> Option<SocketAddr> {
        self.first(Transport::Udp)
    }

    /// Its first TCP address.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.first(Transport::Tcp)
    }

    /// The programs and versions that it serves.
    pub fn programs(&self) -> Vec<(u32, u32)> {
        self.programs.numbers().collect()
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.len())
    }

    /// How many bytes they hold: records that have not come whole, and replies that nobody has taken.
    pub fn memory(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.hosts.bytes())
    }

    /// Does something for each address of each program where it is registered.
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

/// Nobody waits at the sockets any more when this returns, and their addresses are free. Procedures that run
/// end by themselves; one that was called over UDP keeps its socket as long, for its reply.
impl Drop for Server {
    fn drop(&mut self) {
        self.registrations.clear();
        self.each_place(|mapper, program, version, stream, address| {
            mapper.unregister(program, version, stream, address);
        });
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

/// What a server is to be.
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
    /// Serves this interface under its numbers. Several may be served, and several versions of one.
    pub fn program<T: ?Sized + Program>(self, server: Arc<T>) -> Self {
        self.program_one_way(server, &[])
    }

    /// Serves this interface under its numbers. Procedures of the numbers listed give no reply when all is
    /// well: their callers do not wait for one (RFC 5531 section 8.4.1, "batching").
    pub fn program_one_way<T: ?Sized + Program>(self, server: Arc<T>, procedures: &[u32]) -> Self {
        self.offer(Offer::new(server, procedures))
    }

    /// Serves what is offered.
    pub fn offer(mut self, offer: Offer) -> Self {
        self.programs.add(offer);
        self
    }

    /// Is the host's port mapper, in its versions 2 to 4, and found there itself; called at
    /// [`rpcbind::PORT`](crate::rpcbind::PORT) by those who do not know better.
    pub fn mapper(self, mapper: &Mapper) -> Self {
        let offers = Offered::new(mapper).offers();
        offers.into_iter().fold(self, ServerBuilder::offer).register_at(mapper)
    }

    /// Is found by this port mapper of ours as long as it serves.
    pub fn register_at(mut self, mapper: &Mapper) -> Self {
        self.mapper = Some(mapper.clone());
        self
    }

    /// Is registered with this host's port mapper as long as it serves.
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

    /// Is called at this address over UDP. Port 0 is any.
    pub fn udp(self, address: SocketAddr) -> Self {
        self.at(Place::Udp(address))
    }

    /// Is called at this address over TCP. Port 0 is any.
    pub fn tcp(self, address: SocketAddr) -> Self {
        self.at(Place::Tcp(address))
    }

    /// Is called at this address over UDP and TCP, at the same port. Port 0 is any.
    pub fn address(self, address: SocketAddr) -> Self {
        self.at(Place::Both(address))
    }

    /// Is called over a Unix socket at this path, which must not exist yet, and does not when the server is
    /// dropped.
    pub fn unix(self, path: impl AsRef<Path>) -> Self {
        self.at(Place::Unix(path.as_ref().to_owned()))
    }

    fn at(mut self, place: Place) -> Self {
        self.places.push(place);
        self
    }

    /// How many procedures run at once, at most, besides those that wait in a call of ONC RPC themselves
    /// ([`waiting`](ServerBuilder::waiting)); 64 by default. Further calls wait in their sockets. One host
    /// alone may have at most four fifths of the running procedures, so that a share is left for other hosts;
    /// of fewer than five it may have all.
    ///
    /// With `workers(1)` a procedure begins while another one waits in a call of its own: guard what
    /// procedures share by a [`Mutex`](std::sync::Mutex).
    ///
    /// The server never has more threads than these, those that wait, one for each UDP socket, one for all
    /// connections together, and one that looks after the others.
    pub fn workers(mut self, most: usize) -> Self {
        self.workers = most;
        self
    }

    /// How many procedures may wait in a call of ONC RPC themselves, at most; 1,024 by default. A procedure
    /// beyond that cannot make such a call: it fails as overloaded, and did not run. So servers that call one
    /// another, or themselves, never all wait for one another.
    pub fn waiting(mut self, most: usize) -> Self {
        self.waiting = most;
        self
    }

    /// How long a thread looks for the next call before it sleeps; it does not by default. Worth a processor
    /// where every microsecond counts.
    pub fn spin(mut self, time: Duration) -> Self {
        self.limits.spin = time;
        self
    }

    /// How many connections there are at most; 4,096 by default, and never more than three quarters of the
    /// descriptors that the process may have.
    ///
    /// When there are too many, a new connection takes the place of another: of the host that has most, the
    /// one that has been silent longest is closed. If the new connection's own host has as many, one of its
    /// own is closed only after five seconds of silence; until then the new one waits. At most 64 wait;
    /// beyond that the host that has most of them loses one. A host is an IPv4 address, 64 bits of an IPv6
    /// address, or a user of this machine.
    pub fn connections(mut self, most: usize) -> Self {
        self.limits.connections = most.max(1);
        self
    }

    /// How many bytes all connections together may hold: records that have not come whole, and replies that
    /// nobody takes; 256 MiB by default, and at least four times the longest record.
    ///
    /// Beyond that, connections of the host that holds most are closed, the one that has been silent longest
    /// first. A connection that holds at most 16 KiB stays.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.limits.memory = bytes;
        self
    }

    /// How long a connection may be silent; six minutes by default, a minute more than clients usually wait
    /// before they close it.
    pub fn idle(mut self, time: Duration) -> Self {
        self.limits.idle = time;
        self
    }

    /// How long a record may be, in bytes, in fragments and in time; 4 MiB, 16,384 and a minute by default.
    pub fn records(mut self, limits: record::Limits) -> Self {
        self.limits.records = limits;
        self
    }

    /// How large and how deep arguments may be.
    pub fn arguments(mut self, limits: xdr::Limits) -> Self {
        self.programs.limits = limits;
        self
    }

    /// Accepts arguments that RFC 4506 forbids but old clients send: padding that is not zero, any number but
    /// 0 as true, bytes after the arguments.
    pub fn lenient(mut self) -> Self {
        self.programs.lenient = true;
        self
    }

    /// Keeps replies, so that a call that is sent again is answered and not run again; `None`, and no room
    /// for any, keeps none. NULL and what is `#[idempotent]` is not kept.
    pub fn retention(mut self, retention: Option<Retention>) -> Self {
        self.retention = retention.filter(|kept| kept.bytes > 0);
        self
    }

    /// Asks before each call whether its caller is served; if not, it is told why. If this panics the call is
    /// refused.
    pub fn allow(mut self, allow: impl Fn(&Caller) -> Result<(), AuthStat> + Send + Sync + 'static) -> Self {
        self.programs.allow = Some(Box::new(allow));
        self
    }

    /// Gives an AUTH_SHORT for each AUTH_SYS (RFC 5531 appendix A): 16 bytes that stand for the credential,
    /// of which so many are known at most, in half a kilobyte each. None are given by default. A client whose
    /// AUTH_SHORT is not known any more, after so many others or since the server is a new one, is told so
    /// (AUTH_REJECTEDCRED) and sends its credential again.
    pub fn short_credentials(mut self, most: usize) -> Self {
        self.programs.shorts = Some(ShortCredentials::new(most));
        self
    }

    /// Understands one more flavour of authentication.
    pub fn flavour(mut self, flavor: Flavor, flavour: Arc<dyn Flavour>) -> Self {
        self.programs.flavours.push((flavor, flavour));
        self
    }

    /// Begins to serve.
    ///
    /// # Errors
    /// If an address is not to be had, or a program cannot be registered.
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
            stopper: Stopper::default(),
        };
        let (mut sockets, mut listeners) = (Vec::new(), Vec::new());
        for place in self.places {
            match place {
                Place::Udp(address) => {
                    sockets.push(Datagrams::bind(&*env, address, spin).map_err(at(address))?);
                }
                Place::Tcp(address) => {
                    listeners.push(env.listen(&Address::Tcp(address)).map_err(at(address))?);
                }
                Place::Both(address) => {
                    let (socket, listener) = bind_both(&*env, address, spin).map_err(at(address))?;
                    sockets.push(socket);
                    listeners.push(listener);
                }
                Place::Unix(path) => {
                    let listener = env.listen(&Address::Unix(path.clone())).map_err(at(path.display()))?;
                    listeners.push(listener);
                    server.paths.push(path);
                }
            }
        }
        for socket in sockets {
            server.addresses.push((Transport::Udp, socket.local_address()));
            let datagrams = Datagrams::new(env.clone(), socket, &server.workers, &server.programs);
            // To look after one thread that spins costs less than to have two spin.
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

/// Says which address is not to be had.
fn at(address: impl fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |why| io::Error::new(why.kind(), format!("{address}: {why}"))
}

/// A UDP and a TCP socket at the same port.
fn bind_both(
    env: &dyn Env,
    address: SocketAddr,
    spin: Duration,
) -> io::Result<(Arc<dyn Socket>, Arc<dyn Listener>)> {
    /// What is free for one may be taken for the other.
    const MAX_TRIES: usize = 32;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..MAX_TRIES {
        let listener = env.listen(&Address::Tcp(address))?;
        match Datagrams::bind(env, listener.local_address().unwrap_or(address), spin) {
            Ok(socket) => return Ok((socket, listener)),
            Err(error) if address.port() == 0 => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
