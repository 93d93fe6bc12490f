//! What carries messages to a server: a socket, or later something between it and us.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketType, bind, connect, recv, send,
    shutdown, sockopt,
};

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
    pub(super) fn until(self, then: Instant, now: Instant) -> Wait {
        let left = then.saturating_duration_since(now);
        match self {
            Wait::No => Wait::No,
            Wait::For(time) => Wait::For(time.min(left)),
            Wait::Forever => Wait::For(left),
        }
    }
}

/// Carries bytes to one server and back: a stream of them, or datagrams. Any number of threads may use it at the same
/// time, but one at a time receives.
///
/// It is the seam for what stands between a stream and the messages on it, as TLS does (RFC 9289).
pub trait Carrier: Send + Sync + 'static {
    /// Takes what has come: bytes of the stream (none at its end), or one datagram.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if nothing came for so long, [`ErrorKind::Interrupted`] for no reason; else the carrier
    /// is of no more use.
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize>;

    /// Sends what it can take at once. It never waits.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if that is nothing; else the carrier is of no more use. Whatever the error, nothing of
    /// `bytes` has left: calls that end in it are taken for not made.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// What is readable when something has come, and writable when something can be sent.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether something has come that the descriptor knows nothing of.
    fn holds(&self) -> bool {
        false
    }

    /// Ends it: whoever receives hears that the stream has ended.
    fn shutdown(&self);
}

/// Makes carriers to one server, again and again.
pub trait Dial: Send + Sync + 'static {
    /// A new one, within that time; none says that there is no hurry. Its handshake may still be under way: what is sent
    /// then is refused with [`ErrorKind::WouldBlock`].
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

/// Dials an address by a socket.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    pub(crate) address: Address,
    /// From a port that only privileged processes have.
    pub(crate) reserved: bool,
    pub(crate) spin: Duration,
}

impl Dial for Plain {
    fn dial(&self, within: Option<Duration>) -> io::Result<Box<dyn Carrier>> {
        Ok(Box::new(Socket::connect(self, within)?))
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
pub(crate) struct Socket {
    socket: OwnedFd,
    /// How long to look for what comes before sleeping.
    spin: Duration,
    /// The socket's receive time-out in nanoseconds; 0 for ever.
    timeout: AtomicU64,
}

/// The system counts a socket's time-out in steps of at least so long.
const TICK: Duration = Duration::from_millis(1);
/// Room for bursts of datagrams.
const BUFFER: usize = 1 << 20;

impl Socket {
    fn connect(plain: &Plain, within: Option<Duration>) -> io::Result<Socket> {
        let connected = match &plain.address {
            Address::Udp(to) => {
                let socket = open(plain, *to, SocketType::DGRAM)?;
                // As much as the system grants.
                let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
                connect(&socket, to)?;
                socket
            }
            Address::Tcp(to) => {
                let socket = open(plain, *to, SocketType::STREAM)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                keep_alive(&socket);
                begin(&socket, || connect(&socket, to))?;
                socket
            }
            Address::Unix(path) => {
                let socket = fresh(AddressFamily::UNIX, SocketType::STREAM)?;
                // It takes until the server's queue has room: so long as a send may take, and there is nothing to poll.
                let most = within.map(|time| time.max(TICK));
                sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, most)?;
                let to = SocketAddrUnix::new(path)?;
                match retry_on_intr(|| connect(&socket, &to)) {
                    Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
                    connected => connected?,
                }
                socket
            }
        };
        Ok(Socket { socket: connected, spin: plain.spin, timeout: AtomicU64::new(0) })
    }

    #[inline(always)]
    fn once(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        match recv(&self.socket, buffer, flags) {
            Ok((_, len)) => Ok(len),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks until the spin time is over.
    #[inline(never)]
    fn spin(&self, buffer: &mut [u8]) -> io::Result<usize> {
        /// A look costs much more than the clock, but not so much that the clock were free.
        const LOOKS: u32 = 16;
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                match self.once(buffer, RecvFlags::DONTWAIT) {
                    Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                    received => return received,
                }
            }
            if start.elapsed() >= self.spin {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    #[cold]
    fn soon(&self, buffer: &mut [u8], time: Duration) -> io::Result<usize> {
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time))? {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => self.once(buffer, RecvFlags::DONTWAIT),
        }
    }

    /// Sees to it that the socket's time-out is no longer than wanted and not much shorter: then it need not be set for
    /// each call.
    #[inline]
    fn set_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let wanted = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0));
        let now = self.timeout.load(Ordering::Relaxed);
        if now == wanted || (now != 0 && now <= wanted && now >= wanted / 2) {
            return Ok(());
        }
        self.change_timeout(wanted / 4 * 3)
    }

    #[cold]
    fn change_timeout(&self, nanos: u64) -> io::Result<()> {
        let time = (nanos != 0).then(|| Duration::from_nanos(nanos));
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, time)?;
        self.timeout.store(nanos, Ordering::Relaxed);
        Ok(())
    }
}

impl Carrier for Socket {
    #[inline]
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        if wait == Wait::No {
            return self.once(buffer, RecvFlags::DONTWAIT);
        }
        if !self.spin.is_zero() {
            match self.spin(buffer) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
        match wait {
            Wait::For(time) if time < 2 * TICK => return self.soon(buffer, time),
            Wait::For(time) => self.set_timeout(Some(time))?,
            _ => self.set_timeout(None)?,
        }
        self.once(buffer, RecvFlags::empty())
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.socket, bytes, SEND)?)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn shutdown(&self) {
        // One that is not connected has nobody to wake.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// A connection is probed after so long without a word, and then so often.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// It ends if the other machine has taken nothing of what was sent, or answered no probe, for so long.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// Has the system find out that the other machine is gone. Where it cannot, the callers' deadlines do.
fn keep_alive(socket: &OwnedFd) {
    let _ = sockopt::set_socket_keepalive(socket, true);
    #[cfg(target_os = "linux")]
    {
        let _ = sockopt::set_tcp_keepidle(socket, PROBE_AFTER);
        let _ = sockopt::set_tcp_keepintvl(socket, PROBE_EVERY);
        let probes = (DEAD_AFTER - PROBE_AFTER).as_secs() / PROBE_EVERY.as_secs();
        let _ = sockopt::set_tcp_keepcnt(socket, probes as u32);
        let _ = sockopt::set_tcp_user_timeout(socket, DEAD_AFTER.as_millis() as u32);
    }
}

/// Begins to connect, without waiting for the other side.
fn begin(socket: &OwnedFd, connect: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
    ioctl_fionbio(socket, true)?;
    match connect() {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(ioctl_fionbio(socket, false)?),
        Err(error) => Err(error.into()),
    }
}

/// A socket that programs which this one starts do not inherit.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn fresh(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, kind, rustix::net::SocketFlags::CLOEXEC, None)?)
}

/// Makes a socket that child processes do not inherit. On this system that takes two calls.
#[cfg(target_vendor = "apple")]
pub(crate) fn fresh(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(family, kind, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// A connection that is gone is an error and no signal. (Where a call cannot say so, Rust's programs ignore the signal.)
#[cfg(not(target_vendor = "apple"))]
pub(crate) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(target_vendor = "apple")]
pub(crate) const SEND: SendFlags = SendFlags::DONTWAIT;

/// A socket of the address's family, bound if it must have a reserved port.
fn open(plain: &Plain, to: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = fresh(family, kind)?;
    if plain.reserved {
        bind_reserved(&socket, to)?;
    }
    Ok(socket)
}

/// Ports that only privileged processes have, those first that no well-known service wants.
const RESERVED: [std::ops::RangeInclusive<u16>; 2] = [600..=1023, 512..=599];

/// Binds to a port from which servers that trust a machine's administrator take calls.
fn bind_reserved(socket: &OwnedFd, to: SocketAddr) -> io::Result<()> {
    // Not each client from the same port: those of connections that have ended are not free at once.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = now.subsec_micros() as usize;
    for range in RESERVED {
        let count = range.len();
        for step in 0..count {
            let port = range.start() + ((first + step) % count) as u16;
            let from: SocketAddr = match to {
                SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, port).into(),
                SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, port).into(),
            };
            match bind(socket, &from) {
                Err(Errno::ADDRINUSE) => {}
                bound => return Ok(bound?),
            }
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// What is ready of a carrier.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// Waits until the carrier can be received from, or sent to if `write`, or `other` is readable, or `time` has passed.
pub(crate) fn wait(
    carrier: &dyn Carrier,
    write: bool,
    other: Option<BorrowedFd<'_>>,
    time: Option<Duration>,
) -> io::Result<Ready> {
    if carrier.holds() {
        return Ok(Ready { read: true, write: false });
    }
    let flags = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let fd = carrier.descriptor();
    let mut fds =
        [PollFd::from_borrowed_fd(fd, flags), PollFd::from_borrowed_fd(other.unwrap_or(fd), PollFlags::IN)];
    let count = if other.is_some() { 2 } else { 1 };
    poll(&mut fds[..count], time.map(timespec).as_ref())?;
    let ready = fds[0].revents();
    // An error is read, or met when something is sent.
    let trouble = ready.intersects(PollFlags::HUP | PollFlags::ERR);
    Ok(Ready {
        read: ready.contains(PollFlags::IN) || trouble,
        write: ready.contains(PollFlags::OUT) || (write && trouble),
    })
}

/// As the system takes it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}

/// Waits until a handshake that is under way has ended.
pub(crate) fn settle(carrier: &dyn Carrier, most: Duration) -> io::Result<()> {
    let fd = carrier.descriptor();
    if poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&timespec(most)))? == 0 {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(sockopt::socket_error(fd)??)
}
