//! What carries messages to a server: a socket, or later something between it and us.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use farcall::env::Address;
use farcall::env::{self, ConnectOptions, Env, Interest, Source, Stream, Time, Wanted};

/// How long to wait for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: what has come already.
    No,
    /// So long, or less.
    For(Duration),
    /// For ever.
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

/// Carries bytes to one server and back: a stream of them, or datagrams. Any number of threads may use it at
/// the same time, but one at a time receives.
///
/// It is the seam for what stands between a stream and the messages on it, as TLS does (RFC 9289).
pub trait Carrier: Send + Sync + 'static {
    /// Takes what has come: bytes of the stream (none at its end), or one datagram.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if nothing came for so long, [`ErrorKind::Interrupted`] for no reason; else
    /// the carrier is of no more use.
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize>;

    /// Sends what it can take at once. It never waits.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if that is nothing; else the carrier is of no more use. Whatever the error,
    /// nothing of `bytes` has left: calls that end in it are taken for not made.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// What is readable when something has come, and writable when something can be sent.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// What readiness is asked of.
    #[doc(hidden)]
    fn source(&self) -> Source<'_> {
        Source::Descriptor(self.descriptor())
    }

    /// Returns the error that the handshake met.
    #[doc(hidden)]
    fn take_error(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::socket_error(self.descriptor())??)
    }

    /// Whether something has come that the descriptor knows nothing of.
    fn holds(&self) -> bool {
        false
    }

    /// Ends it: whoever receives hears that the stream has ended.
    fn shutdown(&self);
}

/// Makes carriers to one server, again and again.
pub trait Dial: Send + Sync + 'static {
    /// A new one, within that time; none says that there is no hurry. Its handshake may still be under way:
    /// what is sent then is refused with [`ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// What the system says; [`ErrorKind::TimedOut`] if the time is over.
    fn dial(&self, within: Option<Duration>) -> io::Result<Box<dyn Carrier>>;

    /// Whether messages are datagrams. Else they are records on a stream of bytes.
    fn is_datagrams(&self) -> bool;

    /// What people call the server: `tcp://127.0.0.1:2049`.
    fn address(&self) -> String;

    /// Where it is, if that can be said so.
    fn server(&self) -> Option<&Address> {
        None
    }
}

/// Dials an address by a socket.
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

/// Waits until the carrier can be received from, or sent to if `write`, or `other` is readable, or `time` has
/// passed.
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

/// Waits until a handshake that is under way has ended.
pub(crate) fn settle(env: &dyn Env, carrier: &dyn Carrier, most: Duration) -> io::Result<()> {
    let mut wanted = [Wanted::new(carrier.source(), Interest::WRITE)];
    env.wait_any(&mut wanted, Some(most))?;
    match wanted[0].ready.write {
        true => carrier.take_error(),
        false => Err(ErrorKind::TimedOut.into()),
    }
}
