//! The part of [`Env`](super::Env) that ONC RPC and Courier use: streams to one peer, listeners, and waits
//! for several sources.
//!
//! A [`Stream`] leads to one peer. It is a TCP connection, a connection of a Unix socket, or a connected UDP
//! socket. Each read or write of a UDP socket is one datagram. A read may wait; a write never does. Reads and
//! writes may be partial.
//!
//! One thread waits for several sources in [`Env::wait_any`](super::Env::wait_any). Several threads share a
//! [`Poller`]: it reports each armed source to one of them, once.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Wait;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A UDP port.
    Udp(SocketAddr),
    /// A TCP port.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Udp(address) => write!(f, "udp://{address}"),
            Address::Tcp(address) => write!(f, "tcp://{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The options of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// How long connecting may take; `None` sets no limit. TCP ignores it, because its connection may still
    /// be in progress when [`Env::connect`](super::Env::connect) returns.
    pub within: Option<Duration>,
    /// Whether to use a local port that only privileged processes may use.
    pub reserved_port: bool,
    /// How long a read polls for bytes before it blocks. Zero blocks at once.
    pub spin: Duration,
}

/// A connection to one peer. Any number of threads may use it at the same time.
pub trait Stream: Send + Sync + 'static {
    /// Reads bytes of a connection, or one datagram, and returns their number. Returns 0 at the end of a
    /// connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing arrived in time. The wait may be a little longer or shorter
    /// than `wait`. [`io::ErrorKind::Interrupted`] may occur at any time; the caller tries again. Otherwise
    /// the operating system's error.
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize>;

    /// Sends as many bytes of the concatenated parts as the system has room for now, and returns their
    /// number. A datagram is sent whole or not at all.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room, or the connection is still in progress. Otherwise
    /// the operating system's error.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the connection in one direction or both, and wakes a thread that reads. Errors are ignored,
    /// because they mean that the connection has ended already.
    fn shutdown(&self, how: Shutdown);

    /// Returns and clears the connection's pending error, such as the failure to connect.
    ///
    /// # Errors
    /// The pending error.
    fn take_error(&self) -> io::Result<()>;

    /// Returns the state of the peer, as far as it is known without reading.
    fn peer_state(&self) -> PeerState;

    /// Acknowledges at once what a TCP connection has received, where the system can. A peer that writes a
    /// message in small pieces may send the next piece only then (Nagle's algorithm, RFC 896), and the system
    /// would wait for up to 40 ms before it acknowledges. This holds for what has arrived until now.
    fn acknowledge(&self) {}

    /// Returns the source by which a thread can wait for this stream together with others.
    fn source(&self) -> Source<'_>;
}

/// The state of a stream's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The peer may send more.
    Open,
    /// The peer sends no more, and all of its bytes were read.
    Ended,
    /// The peer reset the connection, or it sends no more and some of its bytes were not read yet.
    Gone,
}

/// Accepts connections at an address.
pub trait Listener: Send + Sync + 'static {
    /// Accepts a connection that has arrived. Never waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if none has arrived. Otherwise the operating system's error.
    fn accept(&self) -> io::Result<Accepted>;

    /// Returns the address at which the listener listens; `None` for a Unix socket.
    fn local_address(&self) -> Option<SocketAddr>;

    /// Stops accepting connections, and frees the address for other processes.
    fn close(&self);

    /// Returns the source by which a thread can wait for connections together with others.
    fn source(&self) -> Source<'_>;
}

/// An accepted connection.
pub struct Accepted {
    /// The connection.
    pub stream: Arc<dyn Stream>,
    /// The peer's address; `None` for a Unix socket.
    pub from: Option<SocketAddr>,
    /// The user identifier of the peer of a Unix socket, where the system reports it.
    pub user: Option<u32>,
}

/// A flag that stays set until it is cleared. A thread can wait for it together with other sources.
pub trait Alarm: Send + Sync + 'static {
    /// Sets the flag. Never waits.
    fn ring(&self);

    /// Clears the flag. A thread that the flag woke clears it first, and only then looks for the reason.
    fn quiet(&self);

    /// Sets the flag, as [`Alarm::ring`] does. The caller makes sure, by a lock, that the flag is not set,
    /// and that no other thread sets or clears it meanwhile. That is faster.
    fn raise(&self) {
        self.ring();
    }

    /// Clears the flag, as [`Alarm::quiet`] does. The caller makes sure, by a lock, that the flag was set by
    /// [`Alarm::raise`], and that no other thread sets or clears it meanwhile. That is faster.
    fn lower(&self) {
        self.quiet();
    }

    /// Returns the source by which a thread can wait for the flag. It is readable while the flag is set.
    fn source(&self) -> Source<'_>;
}

/// A source of readiness: a socket, a listener or an alarm.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A descriptor of the operating system.
    Descriptor(BorrowedFd<'a>),
    /// The number of a source in a simulation.
    Simulated(u64),
}

/// Kinds of readiness: the kinds that a thread waits for, or the kinds that a source has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Reading would not block: bytes have arrived, or the peer has gone.
    pub read: bool,
    /// Writing would not block: there is room, or connecting has succeeded or failed.
    pub write: bool,
}

impl Interest {
    /// Readable, not writable.
    pub const READ: Interest = Interest { read: true, write: false };
    /// Writable, not readable.
    pub const WRITE: Interest = Interest { read: false, write: true };
}

/// A source that [`Env::wait_any`](super::Env::wait_any) waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The source.
    pub source: Source<'a>,
    /// The kinds of readiness that the thread waits for.
    pub interest: Interest,
    /// The kinds of readiness that the source has when the wait has ended.
    pub ready: Interest,
}

impl<'a> Wanted<'a> {
    /// Returns a source to wait for. It is not ready yet.
    pub fn new(source: Source<'a>, interest: Interest) -> Wanted<'a> {
        Wanted { source, interest, ready: Interest::default() }
    }
}

/// Reports which of many sources are ready. Any number of threads may wait in it.
pub trait Poller: Send + Sync + 'static {
    /// Adds a source under a key. It is not armed yet.
    ///
    /// # Errors
    /// The operating system's error.
    fn add(&self, source: Source<'_>, key: u64) -> io::Result<()>;

    /// Arms a source: when it has one of these kinds of readiness, the poller reports it to one thread and
    /// disarms it.
    ///
    /// # Errors
    /// The source was not added, or the operating system's error.
    fn arm(&self, source: Source<'_>, key: u64, interest: Interest) -> io::Result<()>;

    /// Removes a source.
    fn remove(&self, source: Source<'_>, key: u64);

    /// Waits for an armed source to become ready, and returns its key and its readiness. Returns `None` once
    /// [`Poller::wake`] was called, and sometimes for no reason.
    fn wait(&self) -> Option<(u64, Interest)>;

    /// Makes all present and future calls of [`Poller::wait`] return.
    fn wake(&self);
}
