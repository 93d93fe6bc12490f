//! Calling servers that speak ONC RPC, by the same stubs as any other.
//!
//! ```no_run
//! use std::time::Duration;
//! use farcall_onc::Client;
//!
//! #[farcall::interface(program = 0x2000_0001, version = 1)]
//! pub trait Calculator {
//!     fn twice(&self, number: u32) -> farcall::Result<u32>;
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("tcp://127.0.0.1:4000")?;
//! let calculator = client.bind::<dyn Calculator>();
//! assert_eq!(calculator.twice(21)?, 42);
//! let pending = calculator.start().twice(4);
//! let soon = calculator.within(Duration::from_secs(1)).twice(3)?;
//! assert_eq!((soon, pending.wait()?), (6, 8));
//! # Ok(())
//! # }
//! ```
//!
//! **Addresses** are `tcp://HOST:PORT`, `udp://HOST:PORT` and `unix:PATH`; [`import`] and [`Builder::find`]
//! also take `HOST`, and ask its port mapper. Prefer TCP: over UDP a call that is not answered in time is
//! sent again, by the same identifier, and a server that does not remember it executes it again.
//!
//! **Time.** A server cannot be asked whether it is still at it. So a call whose caller says nothing fails
//! after 25 seconds ([`Builder::patience`]), unlike other calls of farcall.
//!
//! If nothing comes over a connection between the sending of a call and the call's deadline, or only part of
//! a reply, the connection may be dead: the next call makes another. Other calls under way stay on the old
//! one until they are answered or their own time is over. The system is told to probe a silent TCP connection
//! after 30 seconds and to end it after 60.
//!
//! **Failures** are [`CallFailed`], and say whether the call ran. It did not if the server refused it (no
//! such program, version or procedure, arguments that it cannot read, credentials that it does not accept),
//! or if it was never sent whole. It may have run if no reply came, if the connection broke after it was
//! sent, or if it was sent more than once. Over UDP it may have run even if the server's port was refused,
//! because the refused datagram may be the second copy of one that ran. A refused port brings the next try
//! forward. Three refused tries in a row, over at least half a second, end the calls. Those that did not run
//! are made again once on a new connection, and so are others whose procedure is `#[idempotent]`.
//!
//! **Threads.** The thread that waits for a reply receives, for all that wait at the same connection. Started
//! calls gather, and leave together when their thread waits, or by the word of one thread that the process
//! has for all connections; calls that are only made and waited for need no thread.
//!
//! ```text
//! client     settings, connections          bound    a program as a stub's channel
//! link       one connection                 table    who waits for what, and who receives
//! carrier    sockets, and the seam for TLS  auth     credentials, and the seam for RPCSEC_GSS
//! find       who has a program, and where   rpcbind  a host's port mapper, as its clients use it
//! resealer   calls whose copies differ      refusals a port that takes no datagrams
//! incoming   what has come, and for whom    timers   when a thread that waits must act
//! ```

mod address;
pub mod auth;
mod bound;
pub mod carrier;
mod find;
mod incoming;
pub(crate) mod link;
pub(crate) mod model;
mod refusals;
mod resealer;
pub(crate) mod rpcbind;
mod table;
#[cfg(test)]
mod tests;
mod timers;
mod tools;

use std::io;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{Condition, ConnectOptions, Env, Time};
use farcall::stub::{Binding, Interface, Program};
use farcall::{CallFailed, Kind, Ran, System};

use crate::wire::record::Limits;
use address::addresses;
use auth::{AuthNone, Authenticator};
use bound::Bound;
pub use bound::OtherVersions;
pub(crate) use bound::{NO_VERSION, spelled};
use carrier::{Address, Dial, Plain};
pub use find::import;
use link::{Back, Link};
use table::TransportError;

/// A connection to one server, or a socket by which it is sent datagrams, and how it is called. Clones share
/// it.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
    settings: Settings,
}

/// What may differ among those that share a connection.
#[derive(Clone)]
struct Settings {
    auth: Arc<dyn Authenticator>,
    /// It numbers what it seals.
    numbered: bool,
    patience: Option<Duration>,
    retransmit: Duration,
    lenient: bool,
    one_way: bool,
}

impl Client {
    /// A client with the default settings, connected to an address.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    pub fn connect(address: &str) -> Result<Client, CallFailed> {
        Client::builder().connect(address)
    }

    /// Settings of a client that is to be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The user-stub of a program at this server.
    pub fn bind<T: ?Sized + Program>(&self) -> T::Client {
        self.channel(T::NAME, T::PROGRAM, T::VERSION).into()
    }

    /// The user-stub of a program at this server that has the interface under other numbers.
    pub fn bind_as<T: ?Sized + Interface>(&self, program: u32, version: u32) -> T::Client {
        self.channel(T::NAME, program, version).into()
    }

    /// A program that is called without its interface.
    pub fn program(&self, program: u32, version: u32) -> Binding {
        self.channel("", program, version)
    }

    /// The same connection, called with other credentials.
    #[must_use]
    pub fn with_auth(&self, auth: impl Authenticator) -> Client {
        let numbered = auth.is_numbered();
        Client {
            settings: Settings { auth: Arc::new(auth), numbered, ..self.settings.clone() },
            ..self.clone()
        }
    }

    /// The same connection, for calls that have no reply: they return once they are sent, and nobody knows
    /// whether they ran. Their procedures have no result (RFC 5531 section 8.4.1 calls it batching).
    #[must_use]
    pub fn one_way(&self) -> Client {
        Client { settings: Settings { one_way: true, ..self.settings.clone() }, ..self.clone() }
    }

    /// What it is connected to, as `tcp://127.0.0.1:4000`.
    pub fn address(&self) -> &str {
        &self.connection.address
    }

    /// Where that is, unless it was [dialled](Builder::dial) otherwise.
    pub fn server(&self) -> Option<&Address> {
        self.connection.dial.server()
    }

    fn channel(&self, name: &'static str, program: u32, version: u32) -> Binding {
        Binding::new(Arc::new(Bound::new(self.clone(), name, program, version)))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.connection.address).finish_non_exhaustive()
    }
}

/// Settings of a [`Client`].
#[derive(Clone)]
pub struct Builder {
    env: Arc<dyn Env>,
    settings: Settings,
    socket: ConnectOptions,
    reconnect: bool,
    connecting: Duration,
    mapper_port: Option<u16>,
    limits: Limits,
    back: Option<Arc<dyn Back>>,
}

impl Default for Builder {
    fn default() -> Builder {
        let settings = Settings {
            auth: Arc::new(AuthNone),
            numbered: false,
            patience: Some(Duration::from_secs(25)),
            retransmit: Duration::from_secs(1),
            lenient: false,
            one_way: false,
        };
        Builder {
            env: System::current(),
            settings,
            socket: ConnectOptions::default(),
            reconnect: true,
            connecting: Duration::from_secs(10),
            mapper_port: None,
            limits: Limits::default(),
            back: None,
        }
    }
}

impl Builder {
    /// How the client says who calls; AUTH_NONE by default.
    #[must_use]
    pub fn auth(mut self, auth: impl Authenticator) -> Builder {
        self.settings.numbered = auth.is_numbered();
        self.settings.auth = Arc::new(auth);
        self
    }

    /// How long a call waits whose caller says nothing of it; 25 seconds by default, for ever if `None`.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Builder {
        self.settings.patience = patience;
        self
    }

    /// How long a call waits over UDP before it is sent again; a second by default, an hour at most. Each
    /// pause is twice the last, up to 16 seconds.
    #[must_use]
    pub fn retransmit(mut self, first: Duration) -> Builder {
        self.settings.retransmit = first.clamp(Duration::from_millis(1), Duration::from_secs(3600));
        self
    }

    /// Takes results that RFC 4506 forbids but older servers send: padding that is not zero, bytes after the
    /// end.
    #[must_use]
    pub fn lenient(mut self) -> Builder {
        self.settings.lenient = true;
        self
    }

    /// Calls from a port below 1024, which some servers ask for and only privileged processes have.
    #[must_use]
    pub fn reserved_port(mut self) -> Builder {
        self.socket.reserved_port = true;
        self
    }

    /// Whether a connection that has ended is made again by the next call; it is by default. Not where the
    /// server keeps state with the connection.
    #[must_use]
    pub fn reconnect(mut self, reconnect: bool) -> Builder {
        self.reconnect = reconnect;
        self
    }

    /// How long to look for a reply again and again before sleeping; not at all by default.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Builder {
        self.socket.spin = time;
        self
    }

    /// How long a connection may take to be made; 10 seconds by default.
    #[must_use]
    pub fn connect_within(mut self, time: Duration) -> Builder {
        self.connecting = time;
        self
    }

    /// Where a host's port mapper is asked for programs; 111 by default.
    #[must_use]
    pub fn mapper_port(mut self, port: u16) -> Builder {
        self.mapper_port = Some(port);
        self
    }

    /// What the server may send.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Has this take what the server calls on the same connection.
    pub(crate) fn back(self, back: Arc<dyn Back>) -> Builder {
        Builder { back: Some(back), ..self }
    }

    /// A client of the server at `tcp://HOST:PORT`, `udp://HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// If there is no such address, or nobody takes connections there.
    pub fn connect(&self, address: &str) -> Result<Client, CallFailed> {
        let addresses = addresses(address)
            .map_err(|why| CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("{address}: {why}")))?;
        let mut failed = None;
        for address in addresses {
            match self.connect_to(address) {
                Ok(client) => return Ok(client),
                Err(why) => failed = Some(why),
            }
        }
        Err(failed.unwrap_or_else(|| CallFailed::new(Kind::NoSuchName, Ran::No).because(address.to_string())))
    }

    /// Connects to a server at an address that was parsed already.
    ///
    /// # Errors
    /// If nobody takes connections there.
    pub fn connect_to(&self, address: Address) -> Result<Client, CallFailed> {
        self.dial(Plain { env: self.env.clone(), address, options: self.socket })
    }

    /// Connects to a server by a way of one's own: through TLS, say.
    ///
    /// # Errors
    /// What the dial says.
    pub fn dial(&self, dial: impl Dial) -> Result<Client, CallFailed> {
        let address: Arc<str> = dial.address().into();
        let refused = |why: io::Error| {
            CallFailed::new(Kind::Unreachable, Ran::No).because(format!("{address}: {why}")).caused_by(why)
        };
        let carrier = dial.dial(Some(self.connecting)).map_err(refused)?;
        let datagrams = dial.is_datagrams();
        if !datagrams {
            carrier::settle(&*self.env, &*carrier, self.connecting).map_err(refused)?;
        }
        let link = Link::new(self.env.clone(), carrier, datagrams, self.limits, self.back.clone());
        let mut xid = [0; 4];
        self.env.entropy(&mut xid);
        let connection = Connection {
            builder: self.clone(),
            dial: Box::new(dial),
            datagrams,
            address: address.clone(),
            link: Mutex::new(Current { link, stale: self.env.now() + IDLE, dialling: false }),
            dialled: Condition::default(),
            next: AtomicU32::new(u32::from_ne_bytes(xid)),
        };
        Ok(Client { connection: Arc::new(connection), settings: self.settings.clone() })
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

/// A server, and the link to it.
struct Connection {
    /// What made it.
    builder: Builder,
    dial: Box<dyn Dial>,
    datagrams: bool,
    address: Arc<str>,
    link: Mutex<Current>,
    /// One thread has ended making a new link.
    dialled: Condition,
    /// The identifier of the next call. They begin by chance, so that a server that remembers the calls of
    /// another process at the same port does not take ours for those.
    next: AtomicU32,
}

impl Connection {
    #[inline]
    fn xid(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a call that failed may find another link.
    fn may_renew(&self) -> bool {
        self.builder.reconnect && !self.datagrams
    }

    /// The link, a new one if the last is broken and one can be made until then.
    #[inline]
    fn link(&self, now: Time, until: Option<Time>) -> Result<Arc<Link>, TransportError> {
        let mut current = self.lock();
        if now > current.stale {
            current.stale = now + IDLE;
            let link = current.link.clone();
            drop(current);
            // With nothing locked: it may wake somebody who calls at once.
            link.check();
            current = self.lock();
        }
        current.stale = now + IDLE;
        if current.link.is_usable(!self.builder.reconnect) {
            return Ok(current.link.clone());
        }
        self.renew(current, until)
    }

    /// One thread makes the new link, with nothing locked; the others wait for it, no longer than they have
    /// time.
    #[cold]
    fn renew<'a>(
        &'a self,
        mut current: MutexGuard<'a, Current>,
        until: Option<Time>,
    ) -> Result<Arc<Link>, TransportError> {
        if !self.builder.reconnect {
            let broken = current.link.lock().broken.clone();
            return Err(broken.unwrap_or_else(|| unreachable_by("the connection has ended")));
        }
        let left = || until.map(|until| until.since(self.builder.env.now()));
        let late = || TransportError::new(Kind::Deadline, Ran::No, "connection");
        while mem::replace(&mut current.dialling, true) {
            let left = left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(late());
            }
            current = self.dialled.wait(&self.builder.env, &self.link, current, left).0;
            if current.link.is_usable(!self.builder.reconnect) {
                return Ok(current.link.clone());
            }
        }
        let former = current.link.clone();
        drop(current);
        let dialling = Dialling(self);
        // First: there are servers that take one connection at a time.
        former.replace();
        let carrier = self.dial.dial(left()).map_err(|why| match why.kind() {
            io::ErrorKind::TimedOut => late(),
            _ => unreachable_by(&why.to_string()),
        })?;
        let link = Link::new(
            self.builder.env.clone(),
            carrier,
            self.datagrams,
            self.builder.limits,
            self.builder.back.clone(),
        );
        self.lock().link = link.clone();
        drop(dialling);
        Ok(link)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on which no call was made for so long may have been ended by the server meanwhile.
const IDLE: Duration = Duration::from_secs(1);

/// The last link, and when it must be looked at before it is used.
struct Current {
    link: Arc<Link>,
    stale: Time,
    /// A thread makes the next one.
    dialling: bool,
}

/// One that makes a link; whether it did or not, others may then try.
struct Dialling<'a>(&'a Connection);

impl Drop for Dialling<'_> {
    fn drop(&mut self) {
        self.0.lock().dialling = false;
        self.0.dialled.notify_all();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The service thread may hold the link.
        self.lock().link.close();
    }
}

#[cold]
fn unreachable_by(why: &str) -> TransportError {
    TransportError::new(Kind::Unreachable, Ran::No, why)
}
