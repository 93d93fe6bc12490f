//! The outside, as the drivers see it: time, sockets, threads, events and entropy.
//!
//! Everything in this crate that waits, asks for the time, draws a random number or depends on the
//! machine does so through an [`Env`]. The real one is made of the operating system; `farcall-sim` has one in which a
//! seeded network stands for all of it. Three rules make the second possible:
//!
//! - nobody waits except in [`Socket::receive`], [`Event::wait`], `Stream::read`, `Poller::wait` and `Env::wait_any`;
//! - nobody holds a mutex while waiting there that another thread locks, and all else here ([`Event::set`],
//!   [`Socket::send`], `Stream::write`) never waits;
//! - threads are made by [`Env::spawn`] only.

mod condition;
#[cfg(unix)]
mod streams;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use condition::{Condition, thread_event};
pub use farcall_base::Time;
#[cfg(unix)]
pub use streams::{
    Accepted, Address, Alarm, ConnectOptions, Interest, Listener, PeerState, Poller, Source, Stream, Wanted,
};

/// Everything that a driver asks of the outside.
pub trait Env: Send + Sync + 'static {
    /// The time: monotonic, and counting while the machine sleeps (`CLOCK_BOOTTIME` on Linux).
    fn now(&self) -> Time;

    /// A datagram socket bound to `address`; port 0 asks for any.
    ///
    /// # Errors
    /// What the operating system says.
    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>>;

    /// Runs `run` in a thread of its own. Nobody waits for its end.
    ///
    /// # Errors
    /// When there can be no more threads.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// An event that is not set.
    fn event(&self) -> Arc<dyn Event>;

    /// Fills `out` with bytes that nobody can guess.
    fn entropy(&self, out: &mut [u8]);

    /// The number of this process among those of its machine.
    fn process_id(&self) -> u32 {
        std::process::id()
    }

    /// Whether what is sent to an address never leaves this machine, so that nothing can change it on the way.
    fn is_loopback(&self, address: SocketAddr) -> bool {
        address.ip().is_loopback()
    }

    /// The address of this machine from which it sends to `to` when a socket does not say. Nothing is sent.
    ///
    /// # Errors
    /// There is no way to that address.
    fn source_address(&self, to: IpAddr) -> io::Result<IpAddr> {
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        // To connect a socket of datagrams is to look the way up. Of what port does not matter (9 discards).
        socket.connect((to, 9))?;
        Ok(socket.local_addr()?.ip())
    }

    /// Resolves the name of a host to its addresses, in the order in which they are to be tried. It may block
    /// for as long as the system's resolver does, so it is called in a thread of its own, for which callers
    /// wait with a deadline.
    ///
    /// # Errors
    /// The name is unknown, or cannot be resolved at the moment.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    /// How many threads can run at the same time, at least 1.
    fn processors(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Whether processes of this machine really share its memory: not in a simulation.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Connects to a server. Of TCP the connection may still be under way when this returns: it is ready to be written
    /// to when it was made or has failed, which [`Stream::take_error`] says.
    ///
    /// # Errors
    /// What the operating system says; [`io::ErrorKind::TimedOut`] if the time is over.
    #[cfg(unix)]
    fn connect(&self, to: &Address, options: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
        let _ = (to, options);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes connections at an address of TCP or of a Unix socket; port 0 asks for any.
    ///
    /// # Errors
    /// What the operating system says.
    #[cfg(unix)]
    fn listen(&self, at: &Address) -> io::Result<Arc<dyn Listener>> {
        let _ = at;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A poller without sources.
    ///
    /// # Errors
    /// What the operating system says.
    #[cfg(unix)]
    fn poller(&self) -> io::Result<Arc<dyn Poller>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// An alarm that is not set.
    ///
    /// # Errors
    /// What the operating system says.
    #[cfg(unix)]
    fn alarm(&self) -> io::Result<Arc<dyn Alarm>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Waits until one of these sources is ready, or `timeout` has passed, and notes what each is ready for. A source
    /// that has met an error is ready for all that it is waited for.
    ///
    /// # Errors
    /// What the operating system says; [`io::ErrorKind::Interrupted`] for no reason.
    #[cfg(unix)]
    fn wait_any(&self, wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let _ = (wanted, timeout);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A variable of the process's environment.
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// How a socket is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketOptions {
    /// How long to look for a datagram again and again before blocking. Zero blocks at once.
    pub spin: Duration,
    /// The receive and send buffer to ask for, in bytes; the system may give less.
    pub buffer: usize,
    /// Whether the socket answers its peers, as a server's does. If such a socket is bound to all addresses
    /// of its host, it sends to each peer from the address to which that peer sent.
    pub answers: bool,
    /// Whether datagrams may be longer than the path lets pass in one piece: the network divides them, and puts them
    /// together. Such a socket receives one datagram at a time, hears of no ICMP errors, and of IPv6 is of IPv6 alone.
    pub divisible: bool,
}

/// A datagram socket. Any number of threads may use it at the same time.
pub trait Socket: Send + Sync + 'static {
    /// Sends one datagram. It may be lost, silently.
    ///
    /// # Errors
    /// What the operating system says: the datagram was not sent.
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()>;

    /// Sends a train: datagrams of `each` bytes, the last one perhaps shorter.
    ///
    /// # Errors
    /// As [`Socket::send`]; some of them may have been sent.
    fn send_train(&self, to: SocketAddr, train: &[u8], each: usize) -> io::Result<()> {
        train.chunks(each.max(1)).try_for_each(|datagram| self.send(to, datagram))
    }

    /// Sends one datagram that stands in several places.
    ///
    /// # Errors
    /// As [`Socket::send`].
    fn send_parts(&self, to: SocketAddr, parts: [&[u8]; 3]) -> io::Result<()> {
        self.send(to, &parts.concat())
    }

    /// Waits for a datagram, or a train of them.
    ///
    /// # Errors
    /// What the operating system says, when it is not one of [`Received`].
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received>;

    /// Waits for a datagram, or a train of them, without spinning, because other threads need the processor.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    fn receive_at_rest(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        self.receive(buffer, wait)
    }

    /// Looks for a datagram again and again, for about so long, and never sleeps: who sends wakes nobody then.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    fn receive_awake(&self, buffer: &mut [u8], _within: Duration) -> io::Result<Received> {
        self.receive(buffer, Wait::No)
    }

    /// From now on, until this is called with `None` or [`Socket::wake`] is, datagrams go to and come from
    /// this address alone. The system then knows the way, which saves it a look-up for each. A hint: it may
    /// do nothing, and does at most once in a socket's life.
    fn connect(&self, _to: Option<SocketAddr>) {}

    /// Makes one thread that is, or will next be, in [`Socket::receive`] return
    /// [`Received::Woken`].
    fn wake(&self);

    /// What readiness is asked of, where datagrams can be waited for beside other sources.
    #[cfg(unix)]
    fn source(&self) -> Option<Source<'_>> {
        None
    }

    /// Where it is bound.
    fn local_address(&self) -> SocketAddr;

    /// The receive buffer as granted, in bytes.
    fn receive_buffer(&self) -> usize;
}

/// How long to wait for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: what has arrived already.
    No,
    /// About so many nanoseconds. It may be a little longer, and half as long when that saves a system call.
    Nanos(u64),
    /// For ever.
    Forever,
}

/// What [`Socket::receive`] returned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// One datagram or a train of them from one sender.
    Datagrams {
        /// The sender. An IPv4 address is given as such, not mapped, also by an IPv6 socket; [`Socket::send`]
        /// takes it in the same form.
        from: SocketAddr,
        /// Bytes of all of them together, at the beginning of the buffer.
        len: usize,
        /// Bytes of each of them but the last, which may be shorter.
        each: usize,
    },
    /// Nothing came.
    TimedOut,
    /// [`Socket::wake`], or a signal. It may happen without a reason.
    Woken,
    /// The network says that this address, to which we had sent, cannot be reached. A hint.
    Unreachable(SocketAddr),
    /// The network says that nobody listens at this address. It quotes a datagram that was sent there: that
    /// many bytes of it stand at the beginning of the buffer. An attacker who has seen the datagram can forge
    /// this.
    Refused(SocketAddr, usize),
}

/// A flag that one waits for. Waiting clears it.
pub trait Event: Send + Sync + 'static {
    /// Sets the flag and wakes one who waits. Never waits itself.
    fn set(&self);

    /// Waits until the flag is set, clears it and returns true; false when `timeout` passed first.
    fn wait(&self, timeout: Option<Duration>) -> bool;
}

/// Where `part` stands in `whole`, if it does: what a datagram brought is found again in the buffer
/// when the borrow has ended.
pub fn place(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// The places of a train's datagrams.
pub fn train(len: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = len.min(start + each.max(1));
        (start < len).then(|| std::mem::replace(&mut start, end)..end)
    })
}
