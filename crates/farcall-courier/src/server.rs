//! A Courier server: the programs that it serves, and the sockets at which clients call them.
//!
//! ```
//! # use std::sync::Arc;
//! #[farcall::interface(program = 754, version = 1)]
//! pub trait Echo {
//!     fn twice(&self, number: u16) -> farcall::Result<u16>;
//! }
//!
//! struct Twice;
//! impl Echo for Twice {
//!     fn twice(&self, number: u16) -> farcall::Result<u16> {
//!         Ok(number.wrapping_mul(2))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = farcall_courier::Server::builder()
//!     .program::<dyn Echo>(Arc::new(Twice))
//!     .tcp("127.0.0.1:0".parse()?)
//!     .start()?;
//! println!("{:?}", server.addresses());
//! # server.stopper().stop();
//! server.wait(); // until the process ends, or somebody stops it
//! # Ok(())
//! # }
//! ```
//!
//! **One thread serves one connection**, because a client makes one call at a time on it. The calls of a
//! connection, to whatever programs, are executed in the order in which they come.
//!
//! **What callers see.** A declared exception is reported as an error of Courier, with its number. A call of
//! an unknown program, version or procedure, or with arguments that are not the procedure's, is rejected. A
//! procedure that panics, that fails without a declared exception, or whose result Courier cannot say is
//! rejected for an unspecified reason; the client then knows that it may have run. After a message that is no
//! call, and when the ends have no version of Courier in common, the server ends the connection.
//!
//! ```text
//! programs    what a message is answered with     connection  one client
//! acceptor    the thread that accepts             hosts       how many connections each host has
//! listening   where the server listens
//! datagrams   a UDP socket of the other servers of this crate
//! ```

pub(crate) mod acceptor;
mod connection;
pub(crate) mod datagrams;
mod hosts;
pub(crate) mod listening;
pub(crate) mod programs;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farcall::System;
use farcall::env::{Address, Env, Stream};
use farcall::stub::Program;

use crate::codec::Limits;
use crate::silence::Silence;
use crate::wire::message::Versions;
use acceptor::{Acceptor, Place, Serves};
use connection::{Connection, ConnectionLimits};
use listening::{Bound, Listening};
use programs::{NotOffered, Offer, Programs};

#[doc(inline)]
pub use farcall::stopper::Stopper;

/// A running server. It serves its programs until it is dropped.
pub struct Server {
    acceptor: Arc<Acceptor>,
    programs: Arc<Programs>,
    bound: Bound,
    stopper: Stopper,
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

    /// Accepts no more connections and no more calls, and waits until the calls that have begun are finished
    /// and their results sent, but no longer than `time`. Returns whether they are. A client whose call came
    /// too late, or only in part, finds the end of its connection.
    pub fn drain(self, time: Duration) -> bool {
        self.acceptor.drain(time)
    }

    /// Returns a handle with which another thread can end [`Server::wait`].
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the TCP addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.bound.addresses
    }

    /// Returns the program and version numbers that the server serves.
    pub fn programs(&self) -> Vec<(u32, u16)> {
        self.programs.numbers().collect()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.acceptor.connections()
    }
}

/// When the drop returns, the addresses are free and all connections have ended. Procedures that still run
/// end by themselves; their callers learn that the calls may have run.
impl Drop for Server {
    fn drop(&mut self) {
        self.acceptor.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Server");
        all.field("programs", &self.programs()).field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// The configuration of a server.
#[must_use]
pub struct ServerBuilder {
    env: Arc<dyn Env>,
    programs: Programs,
    /// Why the first interface that cannot be served is not.
    refused: Option<NotOffered>,
    places: Vec<Address>,
    connections: usize,
    limits: ConnectionLimits,
}

impl Default for ServerBuilder {
    fn default() -> ServerBuilder {
        ServerBuilder {
            env: System::current(),
            programs: Programs::default(),
            refused: None,
            places: Vec::new(),
            connections: 256,
            limits: ConnectionLimits {
                idle: Duration::from_secs(90),
                message_time: Duration::from_secs(60),
                message_bytes: 1 << 20,
                versions: Versions::ALL,
            },
        }
    }
}

impl ServerBuilder {
    /// Serves an interface under its program and version number. A server can serve several interfaces, and
    /// several versions of one. If Courier cannot say the interface, [`ServerBuilder::start`] fails.
    pub fn program<T: ?Sized + Program>(mut self, server: Arc<T>) -> Self {
        match Offer::new(server) {
            Ok(offer) => self.programs.add(offer),
            Err(why) => self.refused = self.refused.or(Some(why)),
        }
        self
    }

    /// Serves TCP at this address. With port 0 the system chooses a free port.
    pub fn tcp(mut self, address: SocketAddr) -> Self {
        self.places.push(Address::Tcp(address));
        self
    }

    /// Serves a Unix socket at this path. The path must not exist; it is removed when the server is dropped.
    pub fn unix(mut self, path: impl AsRef<Path>) -> Self {
        self.places.push(Address::Unix(path.as_ref().to_owned()));
        self
    }

    /// Sets how many connections there can be, each with a thread of its own; 256 by default. One host can
    /// have four fifths of them, and the hosts of one network all but a sixteenth. A host is an IPv4 address,
    /// the first 64 bits of an IPv6 address, or a user of this machine. A network is an IPv4 /16, an IPv6
    /// /48, this machine's loopback addresses, or its users.
    ///
    /// At the limit, the server ends a connection for each new one of a network or a host with fewer: of the
    /// network with most, and in it of the host with most, the one that has been silent longest, or else one
    /// that has waited longest for its client. Of a host with as many, or of the newcomer's own host or
    /// network that has its share, only a connection ends that has been so for five seconds; if there is
    /// none, the new connection ends.
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Sets after how long a time without a call the server ends a connection; 90 seconds by default, as
    /// 4.4BSD's server has it.
    pub fn idle(mut self, time: Duration) -> Self {
        self.limits.idle = time;
        self
    }

    /// Sets how long a message may take from its first byte to its last; a minute by default. It holds for
    /// calls that are received, and for replies that a client does not take.
    pub fn message_time(mut self, time: Duration) -> Self {
        self.limits.message_time = time;
        self
    }

    /// Sets the most bytes of a call's message, and of a result; 1 MiB by default. While it executes a call,
    /// a connection takes at most eight times as much memory, besides what the procedure itself takes.
    pub fn messages(mut self, max_bytes: usize) -> Self {
        self.limits.message_bytes = max_bytes;
        self
    }

    /// Sets the versions of Courier that clients can speak: 2 and 3 by default.
    pub fn versions(mut self, versions: Versions) -> Self {
        self.limits.versions = versions;
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
    /// Courier cannot say a type of an interface ([`Layout::new`](crate::codec::Layout::new)), the server has
    /// no address, or the system refuses an address or a thread.
    pub fn start(mut self) -> io::Result<Server> {
        let invalid =
            |why: Box<dyn std::error::Error + Send + Sync>| io::Error::new(io::ErrorKind::InvalidInput, why);
        if let Some(why) = self.refused {
            return Err(invalid(why.into()));
        }
        if self.places.is_empty() {
            return Err(invalid("the server has no address: call `tcp` or `unix`".into()));
        }
        let bytes = self.limits.message_bytes;
        self.programs.words = Limits { bytes, ..Limits::default() };
        // Words become at most twice as many bytes of XDR.
        self.programs.xdr = Limits { bytes: bytes.saturating_mul(2), ..Limits::default() };
        let Listening { listeners, bound } = Listening::at(&*self.env, &self.places)?;
        let stopper = Stopper::new(&self.env);
        let programs = Arc::new(self.programs);
        let serving = Serving { env: self.env.clone(), programs: programs.clone(), limits: self.limits };
        let acceptor = Acceptor::start(self.env, listeners, Box::new(serving), self.connections)?;
        Ok(Server { acceptor, programs, bound, stopper })
    }
}

/// What the threads of connections need.
struct Serving {
    env: Arc<dyn Env>,
    programs: Arc<Programs>,
    limits: ConnectionLimits,
}

impl Serves for Serving {
    fn begin(
        &self,
        stream: &Arc<dyn Stream>,
        from: Option<SocketAddr>,
        silence: Arc<Silence>,
    ) -> Box<dyn FnOnce(Place) + Send> {
        let (stream, programs, limits) = (stream.clone(), self.programs.clone(), self.limits);
        let connection = Connection::new(&self.env, stream, from, programs, limits, silence);
        Box::new(move |_place| connection.serve())
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("places", &self.places).finish_non_exhaustive()
    }
}
