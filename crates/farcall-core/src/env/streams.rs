//! Streams of bytes, and how a thread waits for many sources at once.
//!
//! A [`Stream`] leads to one peer: a connection of TCP or of a Unix socket, or a UDP socket that speaks to one address,
//! of which each read and each write is one datagram. A read may wait; a write never does. Reads and writes may be
//! partial.
//!
//! A thread waits for several sources in [`Env::wait_any`](super::Env::wait_any). Several threads share a
//! [`Poller`]: each armed source is reported to one of them, once.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Wait;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At a port of UDP.
    Udp(SocketAddr),
    /// At a port of TCP.
    Tcp(SocketAddr),
    /// At a Unix stream socket.
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

/// How a stream is to be connected.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// How long connecting may take; `None` sets no limit. TCP does not use it: there the connection is still being made
    /// when [`Env::connect`](super::Env::connect) returns.
    pub within: Option<Duration>,
    /// Whether the local port is to be one that only privileged processes have.
    pub reserved_port: bool,
    /// How long a read looks for bytes again and again before it blocks. Zero blocks at once.
    pub spin: Duration,
}

/// A way to one peer. Any number of threads may use it at the same time.
pub trait Stream: Send + Sync + 'static {
    /// Takes what has come: bytes of a connection (none at its end), or one datagram.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing came in time, which may be a little longer or shorter than was asked;
    /// [`io::ErrorKind::Interrupted`] for no reason. Otherwise what the operating system says.
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize>;

    /// Sends what there is room for now, of the parts in their order, and returns how many bytes that is. A datagram is
    /// sent whole.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room, or the connection is still being made. Otherwise what the
    /// operating system says.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the connection in one direction or both. A thread that reads is woken. Errors are of no use: a connection
    /// that has ended needs no end.
    fn shutdown(&self, how: Shutdown);

    /// Returns, and clears, the error that the connection has met, such as the failure to connect.
    ///
    /// # Errors
    /// That error.
    fn take_error(&self) -> io::Result<()>;

    /// What is known of the peer, without reading.
    fn peer_state(&self) -> PeerState;

    /// What readiness is asked of.
    fn source(&self) -> Source<'_>;
}

/// What is known of a stream's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// It may send more.
    Open,
    /// It sends no more, and all that it sent was read.
    Ended,
    /// It broke the connection off, or it sends no more and has sent bytes that were not read yet.
    Gone,
}

/// Takes connections at an address.
pub trait Listener: Send + Sync + 'static {
    /// Takes a connection that has come. It never waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none. Otherwise what the operating system says.
    fn accept(&self) -> io::Result<Accepted>;

    /// Where it listens, if that is a port.
    fn local_address(&self) -> Option<SocketAddr>;

    /// Takes no more connections, and leaves the address to others.
    fn close(&self);

    /// What readiness is asked of.
    fn source(&self) -> Source<'_>;
}

/// A connection that was taken.
pub struct Accepted {
    /// The way to the peer.
    pub stream: Arc<dyn Stream>,
    /// Where the peer is; none of a Unix socket's.
    pub from: Option<SocketAddr>,
    /// The user at the other end of a Unix socket, by the system's word, where it has one.
    pub user: Option<u32>,
}

/// A flag that stays set until it is cleared, and that a thread can wait for beside other sources.
pub trait Alarm: Send + Sync + 'static {
    /// Sets the flag. Never waits.
    fn ring(&self);

    /// Clears the flag. Whoever waits looks for the reasons after that, never before.
    fn quiet(&self);

    /// What readiness is asked of: readable while the flag is set.
    fn source(&self) -> Source<'_>;
}

/// What can become ready.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A descriptor of the operating system.
    Descriptor(BorrowedFd<'a>),
    /// A source of a simulation, by its number.
    Simulated(u64),
}

/// What a source is waited for, or is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// There is something to read, or the peer has gone.
    pub read: bool,
    /// There is room to write, or the connection was made or has failed.
    pub write: bool,
}

impl Interest {
    /// To read alone.
    pub const READ: Interest = Interest { read: true, write: false };
    /// To write alone.
    pub const WRITE: Interest = Interest { read: false, write: true };
}

/// A source that [`Env::wait_any`](super::Env::wait_any) waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The source.
    pub source: Source<'a>,
    /// What it is waited for.
    pub interest: Interest,
    /// What it is ready for, when the wait has ended.
    pub ready: Interest,
}

impl<'a> Wanted<'a> {
    /// A source that is not ready yet.
    pub fn new(source: Source<'a>, interest: Interest) -> Wanted<'a> {
        Wanted { source, interest, ready: Interest::default() }
    }
}

/// Which of many sources are ready. Any number of threads may wait in it.
pub trait Poller: Send + Sync + 'static {
    /// Adds a source, which is not armed.
    ///
    /// # Errors
    /// What the operating system says.
    fn add(&self, source: Source<'_>, key: u64) -> io::Result<()>;

    /// Reports the source to one thread, once, when it is ready for one of these.
    ///
    /// # Errors
    /// If it was not added, or what the operating system says.
    fn arm(&self, source: Source<'_>, key: u64, interest: Interest) -> io::Result<()>;

    /// Removes a source.
    fn remove(&self, source: Source<'_>, key: u64);

    /// Waits for a source. Returns `None` once [`Poller::wake`] was called, and now and then without a reason.
    fn wait(&self) -> Option<(u64, Interest)>;

    /// Makes every thread that waits, now or later, return.
    fn wake(&self);
}
