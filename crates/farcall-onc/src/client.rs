//! Calls servers that speak ONC RPC, through the same stubs as servers of farcall's own protocol.
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
//! **Addresses** are `tcp://HOST:PORT`, `udp://HOST:PORT` and `unix:PATH`. [`import`] and [`Builder::find`]
//! also take `HOST`, and ask its port mapper for the port. Prefer TCP: over UDP the client sends an
//! unanswered call again with the same identifier, and a server that does not remember the identifier
//! executes the call again.
//!
//! **Time.** An ONC RPC client cannot ask a server whether it is still executing a call. So a call whose
//! caller sets no time limit fails after 25 seconds ([`Builder::patience`]), unlike other calls of farcall.
//!
//! A connection may be dead if, at a call's deadline, nothing has arrived since the call was sent, or a reply
//! has arrived only in part. The next call then makes a new connection. Other calls under way stay on the old
//! one until they are answered or their own time is over. The system is told to probe a silent TCP connection
//! after 30 seconds and to end it after 60.
//!
//! **Failures** are [`CallFailed`], and say whether the call ran. A call did not run if the server refused
//! it: the server has no such program, version or procedure, cannot read the arguments, or does not accept
//! the credentials. A call that was never sent whole did not run either. A call may have run if no reply
//! came, if the connection broke after it was sent, or if it was sent more than once.
//!
//! Over UDP a call may have run even if the server's port was refused, because the refused datagram may be
//! the second copy of one that ran. A refused port brings the next try forward. Three refused tries in a row,
//! over at least half a second, end the calls.
//!
//! **Servers that move.** When the client needs a new connection, it resolves the host's name and asks the port
//! mapper again. Over UDP it does so for the next call after one that got no answer, or whose port was refused,
//! unless the address was given by numbers. If a name has several addresses, over UDP too, the first is taken
//! where a server answers.
//!
//! If a connection breaks, the client makes a blocking call once more on a new connection, provided that the
//! call did not run or that its procedure is `#[idempotent]`.
//!
//! **Threads.** A thread that waits for a reply receives for all threads that wait at the same connection.
//! Started calls may be held back. They are sent together when their thread waits, or by the service thread,
//! which serves all connections of the process. The service thread does not run for calls whose threads wait
//! for them at once.
//!
//! ```text
//! client     settings, connections          bound    a program as a stub's channel
//! link       one connection                 table    the calls of a link, and who waits for each
//! carrier    sockets, and the seam for TLS  auth     credentials, and the seam for RPCSEC_GSS
//! find       finds the server of a program  rpcbind  the client of a host's port mapper
//! resealer   calls whose copies differ      refusals UDP ports that refuse datagrams
//! incoming   sorts received messages        timers   when a waiting thread must act
//! moving     finds a server again that moved
//! ```

mod address;
pub mod auth;
mod bound;
pub mod carrier;
mod find;
mod incoming;
pub(crate) mod link;
pub(crate) mod model;
mod moving;
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
use farcall::{ArgumentBudget, CallFailed, Kind, Ran, ServerArguments, System};

use crate::wire::record::Limits;
use address::{addresses, names_host};
use auth::{AuthNone, Authenticator};
use bound::Bound;
pub use bound::OtherVersions;
pub(crate) use bound::{NO_VERSION, spelled};
use carrier::{Address, Dial, Plain};
pub use find::import;
use link::{Back, Link, LinkKind};
use moving::{Moving, Whereabouts};
use refusals::REFUSALS_TO_GIVE_UP;
use table::TransportError;

/// A client of one server, over one connection or one UDP socket. Clones share the connection.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
    settings: Settings,
}

/// The settings in which clients that share a connection may differ.
#[derive(Clone)]
struct Settings {
    auth: Arc<dyn Authenticator>,
    /// Whether `auth` makes a new seal for each copy of a call that is sent.
    numbered: bool,
    patience: Option<Duration>,
    /// When calls end at the latest.
    until: Option<Time>,
    /// The pause before the first copy of a call over UDP, if the user has set one.
    retransmit: Option<Duration>,
    lenient: bool,
    one_way: bool,
}

impl Client {
    /// Returns a client with the default settings, connected to an address.
    ///
    /// # Errors
    /// The errors of [`Builder::connect`].
    pub fn connect(address: &str) -> Result<Client, CallFailed> {
        Client::builder().connect(address)
    }

    /// Returns the default settings, from which a client is made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the user-stub of a program at this server.
    pub fn bind<T: ?Sized + Program>(&self) -> T::Client {
        self.channel(T::NAME, T::PROGRAM, T::VERSION).into()
    }

    /// Returns the user-stub of a program at this server, which has the interface `T` under these program and
    /// version numbers.
    pub fn bind_as<T: ?Sized + Interface>(&self, program: u32, version: u32) -> T::Client {
        self.channel(T::NAME, program, version).into()
    }

    /// Returns the binding of a program that is called without its interface.
    pub fn program(&self, program: u32, version: u32) -> Binding {
        self.channel("", program, version)
    }

    /// Returns a client on the same connection that calls with other credentials.
    #[must_use]
    pub fn with_auth(&self, auth: impl Authenticator) -> Client {
        let numbered = auth.is_numbered();
        Client {
            settings: Settings { auth: Arc::new(auth), numbered, ..self.settings.clone() },
            ..self.clone()
        }
    }

    /// Returns a client on the same connection for calls without a reply (RFC 5531 section 8.4.1 calls this
    /// batching). A call returns once its message is sent or queued, and the caller does not learn whether it
    /// ran. The called procedures have no result.
    #[must_use]
    pub fn one_way(&self) -> Client {
        Client { settings: Settings { one_way: true, ..self.settings.clone() }, ..self.clone() }
    }

    /// Returns the server's address as text, such as `tcp://127.0.0.1:4000`.
    pub fn address(&self) -> &str {
        &self.connection.address
    }

    /// Returns the server's address, or `None` if the client was made by [`Builder::dial`].
    pub fn server(&self) -> Option<&Address> {
        self.connection.dial.server()
    }

    /// Returns a client on the same connection whose calls wait until `until` at most, even if more time is
    /// left for the call that this thread serves.
    fn patient_until(&self, until: Time) -> Client {
        Client { settings: Settings { until: Some(until), ..self.settings.clone() }, ..self.clone() }
    }

    /// Returns whether calls are under way on the present connection.
    pub(crate) fn awaits_replies(&self) -> bool {
        let link = self.connection.lock().link.clone();
        // A thread that leads waits for its own call, which need not be in the table.
        !link.is_unled() || !link.lock().is_empty()
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
    arguments: Arc<ArgumentBudget>,
    /// The number of refused tries after which a server that is called by datagrams is considered gone.
    refused_tries: u32,
}

impl Default for Builder {
    fn default() -> Builder {
        let settings = Settings {
            auth: Arc::new(AuthNone),
            numbered: false,
            patience: Some(Duration::from_secs(25)),
            retransmit: None,
            until: None,
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
            arguments: ArgumentBudget::of_process(),
            refused_tries: REFUSALS_TO_GIVE_UP,
        }
    }
}

impl Builder {
    /// Sets the credentials of calls; AUTH_NONE by default.
    #[must_use]
    pub fn auth(mut self, auth: impl Authenticator) -> Builder {
        self.settings.numbered = auth.is_numbered();
        self.settings.auth = Arc::new(auth);
        self
    }

    /// Sets the time limit of calls whose caller sets none; 25 seconds by default, no limit if `None`.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Builder {
        self.settings.patience = patience;
        self
    }

    /// Sets how many bytes of arguments the unfinished calls of all clients of this builder keep. Started
    /// calls over UDP keep theirs until they have ended, and over a stream until the system has taken them.
    /// The calls to one server may keep as much as is left. Further calls to it fail as
    /// [`Overloaded`](Kind::Overloaded), [`Ran::No`]. The only call to a server may keep any arguments, and
    /// arguments of at most 2 KiB are not counted. By default all clients of ONC RPC, Courier and RPC2 in a
    /// process keep 512 MiB together.
    #[must_use]
    pub fn argument_bytes(mut self, bytes: usize) -> Builder {
        self.arguments = Arc::new(ArgumentBudget::new(bytes));
        self
    }

    /// Sets how long a call over UDP waits for its reply before it is sent again; an hour at most. Each pause
    /// is twice the last, up to 16 seconds. By default the first is one second for procedures that are
    /// `#[idempotent]` and for the null procedure, and five seconds for all others, as in Sun's library: a
    /// server that does not remember its calls executes each copy.
    #[must_use]
    pub fn retransmit(mut self, first: Duration) -> Builder {
        self.settings.retransmit = Some(first.clamp(Duration::from_millis(1), Duration::from_secs(3600)));
        self
    }

    /// Accepts results that RFC 4506 forbids but older servers send: padding that is not zero, and bytes
    /// after the end.
    #[must_use]
    pub fn lenient(mut self) -> Builder {
        self.settings.lenient = true;
        self
    }

    /// Calls from a port below 1024, which some servers require and only privileged processes may use.
    #[must_use]
    pub fn reserved_port(mut self) -> Builder {
        self.socket.reserved_port = true;
        self
    }

    /// Sets whether the next call replaces a connection that has ended; it does by default. Turn this off
    /// where the server keeps state with the connection.
    #[must_use]
    pub fn reconnect(mut self, reconnect: bool) -> Builder {
        self.reconnect = reconnect;
        self
    }

    /// Sets how long a thread polls for a reply before it sleeps; it does not poll by default.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Builder {
        self.socket.spin = time;
        self
    }

    /// Sets how long making a connection may take, 10 seconds by default: resolving the host's name, asking
    /// its port mapper, and trying its addresses, each of which gets a share of the time. If a procedure
    /// makes the connection, the deadline of its own call holds too.
    #[must_use]
    pub fn connect_within(mut self, time: Duration) -> Builder {
        self.connecting = time;
        self
    }

    /// Sets the port at which a host's port mapper is asked for programs; 111 by default.
    #[must_use]
    pub fn mapper_port(mut self, port: u16) -> Builder {
        self.mapper_port = Some(port);
        self
    }

    /// Sets limits on the records that the server sends. A record is a message on a stream.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Sets the receiver of the calls that the server makes on the same connection.
    pub(crate) fn back(self, back: Arc<dyn Back>) -> Builder {
        Builder { back: Some(back), ..self }
    }

    /// Connects to the server at `tcp://HOST:PORT`, `udp://HOST:PORT` or `unix:PATH`, and returns its client.
    ///
    /// # Errors
    /// If there is no such address, or no server accepts connections there.
    pub fn connect(&self, address: &str) -> Result<Client, CallFailed> {
        let until = self.connected_by();
        let mut found = addresses(&self.env, address, until)?;
        if !names_host(address) && found.len() == 1 {
            return self.connect_to(found.remove(0));
        }
        let (first, carrier) = self.reach(found, until)?;
        let stream = !matches!(first, Address::Udp(_));
        let whereabouts = Whereabouts::Named { address: address.to_owned(), stream };
        self.settle(Moving::new(self, whereabouts, first), carrier, until)
    }

    /// Returns when a connection must have been made that is begun now.
    fn connected_by(&self) -> Time {
        let left = farcall::context().remaining();
        self.env.now() + left.map_or(self.connecting, |left| left.min(self.connecting))
    }

    /// Returns the settings for the next of so many attempts, which share the time until `until`.
    fn lasting(&self, until: Time, attempts: usize) -> Builder {
        let left = until.since(self.env.now());
        let connecting = left / u32::try_from(attempts).unwrap_or(u32::MAX).max(1);
        Builder { connecting, ..self.clone() }
    }

    /// Connects to a server at an address that was parsed already.
    ///
    /// # Errors
    /// If no server accepts connections there.
    pub fn connect_to(&self, address: Address) -> Result<Client, CallFailed> {
        self.dial(Plain { env: self.env.clone(), address, options: self.socket })
    }

    /// Connects to a server by the caller's own transport, such as TLS.
    ///
    /// # Errors
    /// The error of the dial.
    pub fn dial(&self, dial: impl Dial) -> Result<Client, CallFailed> {
        let address: Arc<str> = dial.address().into();
        let refused = |why: io::Error| {
            CallFailed::new(Kind::Unreachable, Ran::No).because(format!("{address}: {why}")).caused_by(why)
        };
        let until = self.connected_by();
        let left = until.since(self.env.now());
        if left.is_zero() {
            return Err(refused(io::ErrorKind::TimedOut.into()));
        }
        let carrier = dial.dial(Some(left)).map_err(refused)?;
        self.settle(dial, carrier, until)
    }

    /// Waits until a carrier's connection is made, and returns the client that calls through it.
    fn settle(
        &self,
        dial: impl Dial,
        carrier: Box<dyn carrier::Carrier>,
        until: Time,
    ) -> Result<Client, CallFailed> {
        let (address, datagrams): (Arc<str>, _) = (dial.address().into(), dial.is_datagrams());
        if !datagrams {
            let left = until.since(self.env.now());
            carrier::settle(&*self.env, &*carrier, left).map_err(|why| {
                let text = format!("{address}: {why}");
                CallFailed::new(Kind::Unreachable, Ran::No).because(text).caused_by(why)
            })?;
        }
        let arguments = ServerArguments::new(self.arguments.clone());
        let may_move = dial.may_move();
        let link = self.link(carrier, datagrams, may_move, &arguments);
        let mut xid = [0; 4];
        self.env.entropy(&mut xid);
        let connection = Connection {
            builder: self.clone(),
            dial: Box::new(dial),
            datagrams,
            may_move,
            arguments,
            address,
            link: Mutex::new(Current { link, stale: self.env.now() + IDLE, dialling: false }),
            dialled: Condition::default(),
            next: AtomicU32::new(u32::from_ne_bytes(xid)),
        };
        Ok(Client { connection: Arc::new(connection), settings: self.settings.clone() })
    }

    fn link(
        &self,
        carrier: Box<dyn carrier::Carrier>,
        datagrams: bool,
        may_move: bool,
        arguments: &Arc<ServerArguments>,
    ) -> Arc<Link> {
        let kind =
            LinkKind { datagrams, is_replaceable: may_move || !datagrams, refused_tries: self.refused_tries };
        Link::new(self.env.clone(), carrier, kind, self.limits, self.back.clone(), arguments.clone())
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

/// A server, and the current link to it.
struct Connection {
    /// The settings with which the client was made.
    builder: Builder,
    dial: Box<dyn Dial>,
    datagrams: bool,
    /// Whether a new link may lead to another address.
    may_move: bool,
    /// The arguments that calls to the server keep, on whatever link.
    arguments: Arc<ServerArguments>,
    address: Arc<str>,
    link: Mutex<Current>,
    /// Notified when a thread has made a new link, or has failed to.
    dialled: Condition,
    /// The identifier of the next call. The first is random, because a server that remembers the calls of
    /// another process at the same port could take this client's calls for them.
    next: AtomicU32,
}

impl Connection {
    #[inline]
    fn xid(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether a call that failed can be made again on a new link.
    fn may_renew(&self) -> bool {
        self.builder.reconnect && (self.may_move || !self.datagrams)
    }

    /// Returns the current link, or a new one if it is not usable. Fails if none is made by `until`.
    #[inline]
    fn link(&self, now: Time, until: Option<Time>) -> Result<Arc<Link>, TransportError> {
        let mut current = self.lock();
        if now > current.stale {
            current.stale = now + IDLE;
            let link = current.link.clone();
            drop(current);
            // No lock is held, because this may wake a task that calls at once.
            link.check();
            current = self.lock();
        }
        current.stale = now + IDLE;
        if current.link.is_usable(!self.builder.reconnect) {
            return Ok(current.link.clone());
        }
        self.renew(current, until)
    }

    /// Makes the new link, with no lock held. If another thread is making it, waits for that thread, until
    /// `until` at the latest.
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
        // The old link ends first, because some servers accept one connection at a time.
        former.replace();
        let carrier = self.dial.dial(left()).map_err(|why| match why.kind() {
            io::ErrorKind::TimedOut => late(),
            _ => unreachable_by(&why.to_string()),
        })?;
        let link = self.builder.link(carrier, self.datagrams, self.may_move, &self.arguments);
        self.lock().link = link.clone();
        drop(dialling);
        Ok(link)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The idle time after which a connection is checked before use, because the server may have ended it. A
/// program that makes one call after the other does not pay for the check, which is a system call.
const IDLE: Duration = Duration::from_millis(1);

/// The current link, and the time after which it is checked before use.
struct Current {
    link: Arc<Link>,
    stale: Time,
    /// Whether a thread is making the next link.
    dialling: bool,
}

/// Held by the thread that makes a link. When this guard is dropped, other threads may try, even if this
/// thread failed.
struct Dialling<'a>(&'a Connection);

impl Drop for Dialling<'_> {
    fn drop(&mut self) {
        self.0.lock().dialling = false;
        self.0.dialled.notify_all();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The link is closed explicitly, because the service thread may still hold it.
        self.lock().link.close();
    }
}

#[cold]
fn unreachable_by(why: &str) -> TransportError {
    TransportError::new(Kind::Unreachable, Ran::No, why)
}
