//! Carries messages to a server and back: by sockets, or by a layer of the program's own, such as TLS.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use farcall::env::Address;
use farcall::env::{self, ConnectOptions, Env, Interest, Source, Stream, Time, Wanted};

/// How long to wait for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: only data that has already arrived is received.
    No,
    /// This long at most.
    For(Duration),
    /// Without a limit.
    Forever,
}

impl Wait {
    /// Ends the wait at `then` at the latest. [`Wait::No`] stays as it is, and no other wait becomes
    /// `Wait::No`.
    pub(super) fn until(self, then: Time, now: Time) -> Wait {
        let left = then.since(now);
        match self {
            Wait::No => Wait::No,
            Wait::For(time) => Wait::For(time.min(left)),
            Wait::Forever => Wait::For(left),
        }
    }
}

/// Carries a stream of bytes, or datagrams, to one server and back. Any number of threads may use it at the
/// same time, but only one at a time receives.
///
/// A layer between the stream and the messages on it, such as TLS (RFC 9289), implements this trait.
pub trait Carrier: Send + Sync + 'static {
    /// Receives bytes of the stream, or one datagram. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if nothing arrived in this time; [`ErrorKind::Interrupted`] if the wait
    /// ended early. After any other error a stream is of no more use.
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize>;

    /// Sends as much as the system accepts at once, and returns the number of bytes. It never waits.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if the system accepts nothing now. After any other error a stream is of no
    /// more use. An implementation must not return an error if it has sent some of `bytes`, because the
    /// client then treats calls that end within `bytes` as not made.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Returns the descriptor that is readable when data has arrived, and writable when data can be sent.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the source whose readiness threads wait for.
    #[doc(hidden)]
    fn source(&self) -> Source<'_> {
        Source::Descriptor(self.descriptor())
    }

    /// Returns the error with which the handshake failed.
    #[doc(hidden)]
    fn take_error(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::socket_error(self.descriptor())??)
    }

    /// Returns whether data has arrived that the descriptor does not show as readable.
    fn holds(&self) -> bool {
        false
    }

    /// Ends the carrier. The receiving thread then finds the end of the stream.
    fn shutdown(&self);
}

/// Makes carriers to one server. The client calls it whenever it needs a new carrier.
pub trait Dial: Send + Sync + 'static {
    /// Makes a carrier within this time; `None` sets no limit. The carrier's handshake may still be under way
    /// when this returns; until it has ended, sends fail with [`ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::TimedOut`] if the time is over.
    fn dial(&self, within: Option<Duration>) -> io::Result<Box<dyn Carrier>>;

    /// Returns whether messages are datagrams. Otherwise they are records on a stream of bytes.
    fn is_datagrams(&self) -> bool;

    /// Returns the server's address as text, such as `tcp://127.0.0.1:2049`.
    fn address(&self) -> String;

    /// Returns the server's address, if an [`Address`] can express it. One that moves was there first.
    fn server(&self) -> Option<&Address> {
        None
    }

    /// Returns whether a new carrier may lead to another address than the last. Then the client also makes a
    /// new one for datagrams, when the last has led nowhere.
    fn may_move(&self) -> bool {
        false
    }
}

/// Connects a plain socket to an address.
#[derive(Clone)]
pub(crate) struct Plain {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) address: Address,
    pub(crate) options: ConnectOptions,
}

impl Dial for Plain {
    fn dial(&self, within: Option<Duration>) -> io::Result<Box<dyn Carrier>> {
        let stream = self.env.connect(&self.address, &ConnectOptions { within, ..self.options })?;
        Ok(Box::new(Socket(stream)))
    }

    fn is_datagrams(&self) -> bool {
        matches!(self.address, Address::Udp(_))
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    fn server(&self) -> Option<&Address> {
        Some(&self.address)
    }
}

/// A connected socket.
struct Socket(Arc<dyn Stream>);

impl Carrier for Socket {
    #[inline]
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let wait = match wait {
            Wait::No => env::Wait::No,
            Wait::For(time) => u64::try_from(time.as_nanos()).map_or(env::Wait::Forever, env::Wait::Nanos),
            Wait::Forever => env::Wait::Forever,
        };
        self.0.read(buffer, wait)
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)])
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0.source() {
            Source::Descriptor(descriptor) => descriptor,
            Source::Simulated(_) => unreachable!("whoever waits asks for the source"),
        }
    }

    fn source(&self) -> Source<'_> {
        self.0.source()
    }

    fn take_error(&self) -> io::Result<()> {
        self.0.take_error()
    }

    fn shutdown(&self) {
        self.0.shutdown(Shutdown::Both);
    }
}

/// Waits until the carrier is readable, or writable if `write`, or `other` is readable, or `time` has passed.
/// Returns the carrier's readiness.
pub(crate) fn wait(
    env: &dyn Env,
    carrier: &dyn Carrier,
    write: bool,
    other: Option<Source<'_>>,
    time: Option<Duration>,
) -> io::Result<Interest> {
    if carrier.holds() {
        return Ok(Interest::READ);
    }
    let own = Wanted::new(carrier.source(), Interest { read: true, write });
    let mut wanted = [own, Wanted::new(other.unwrap_or(own.source), Interest::READ)];
    let count = if other.is_some() { 2 } else { 1 };
    env.wait_any(&mut wanted[..count], time)?;
    Ok(wanted[0].ready)
}

/// Waits until a carrier's handshake has ended, for `most` at most.
pub(crate) fn settle(env: &dyn Env, carrier: &dyn Carrier, most: Duration) -> io::Result<()> {
    let mut wanted = [Wanted::new(carrier.source(), Interest::WRITE)];
    env.wait_any(&mut wanted, Some(most))?;
    match wanted[0].ready.write {
        true => carrier.take_error(),
        false => Err(ErrorKind::TimedOut.into()),
    }
}
