//! Streams, listeners, pollers and alarms of the operating system, as [`crate::env`] has them.

mod alarm;
mod poller;

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketType, bind, connect,
    listen, recv, send, sendmsg, shutdown, sockopt,
};

use crate::env::{
    Accepted, Address, ConnectOptions, Interest, Listener, PeerState, Source, Stream, Wait, Wanted,
};
pub(crate) use alarm::Bell;
pub(crate) use poller::Ready;
use poller::{descriptor, flags};

/// A connected socket.
struct Socket {
    socket: OwnedFd,
    /// How long to look for what comes before sleeping.
    spin: Duration,
    /// The socket's receive time-out in nanoseconds; 0 for ever.
    timeout: AtomicU64,
}

/// The system counts a socket's time-out in steps of at least so many nanoseconds.
const TICK: u64 = 1_000_000;
/// The receive buffer of a UDP socket that is asked for, in bytes.
const DATAGRAM_BUFFER: usize = 1 << 20;
/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A connection that is gone is an error and no signal. (Where a call cannot say so, Rust's programs ignore the signal.)
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::DONTWAIT;

/// Connects a socket to a server.
pub(crate) fn connect_to(to: &Address, options: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
    let socket = match to {
        Address::Udp(to) => {
            let socket = open(*to, SocketType::DGRAM, options)?;
            // As much as the system grants.
            let _ = sockopt::set_socket_recv_buffer_size(&socket, DATAGRAM_BUFFER);
            connect(&socket, to)?;
            socket
        }
        Address::Tcp(to) => {
            let socket = open(*to, SocketType::STREAM, options)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            keep_alive(&socket);
            begin(&socket, || connect(&socket, to))?;
            socket
        }
        Address::Unix(path) => {
            let socket = fresh(AddressFamily::UNIX, SocketType::STREAM)?;
            // It takes until the server's queue has room: so long as a send may take, and there is nothing to poll.
            let most = options.within.map(|time| time.max(Duration::from_nanos(TICK)));
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, most)?;
            let to = SocketAddrUnix::new(path)?;
            match retry_on_intr(|| connect(&socket, &to)) {
                Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
                connected => connected?,
            }
            socket
        }
    };
    Ok(Arc::new(Socket::new(socket, options.spin)))
}

/// Listens at an address.
pub(crate) fn listen_at(at: &Address) -> io::Result<Arc<dyn Listener>> {
    let socket: OwnedFd = match at {
        Address::Udp(_) => return Err(ErrorKind::Unsupported.into()),
        Address::Tcp(address) => {
            let socket = bound(*address, SocketType::STREAM)?;
            listen(&socket, BACKLOG)?;
            TcpListener::from(socket).into()
        }
        Address::Unix(path) => UnixListener::bind(path)?.into(),
    };
    ioctl_fionbio(&socket, true)?;
    let address = rustix::net::getsockname(&socket)?;
    Ok(Arc::new(Listening { socket, address: SocketAddr::try_from(address).ok() }))
}

/// Waits until one of these is ready, or `timeout` has passed.
pub(crate) fn wait_any(wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let mut places: Vec<PollFd<'_>> = wanted
        .iter()
        .map(|one| PollFd::from_borrowed_fd(descriptor(&one.source), flags(one.interest)))
        .collect();
    poll(&mut places, timeout.map(timespec).as_ref())?;
    let events: Vec<PollFlags> = places.iter().map(PollFd::revents).collect();
    for (one, events) in wanted.iter_mut().zip(events) {
        // An error is read, or met when something is sent.
        let trouble = events.intersects(PollFlags::HUP | PollFlags::ERR);
        one.ready = Interest {
            read: one.interest.read && (trouble || events.contains(PollFlags::IN)),
            write: one.interest.write && (trouble || events.contains(PollFlags::OUT)),
        };
    }
    Ok(())
}

impl Socket {
    fn new(socket: OwnedFd, spin: Duration) -> Socket {
        Socket { socket, spin, timeout: AtomicU64::new(0) }
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

    /// Waits for less than a socket's time-out can say.
    #[cold]
    fn soon(&self, buffer: &mut [u8], nanos: u64) -> io::Result<usize> {
        let time = Timespec { tv_sec: 0, tv_nsec: nanos as _ };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time))? {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => self.once(buffer, RecvFlags::DONTWAIT),
        }
    }

    /// Makes the socket's time-out no longer than wanted and not much shorter, so that it need not be set for each read.
    #[inline]
    fn set_timeout(&self, wanted: u64) -> io::Result<()> {
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

impl Stream for Socket {
    #[inline]
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
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
            Wait::Nanos(nanos) if nanos < 2 * TICK => return self.soon(buffer, nanos),
            Wait::Nanos(nanos) => self.set_timeout(nanos)?,
            Wait::No | Wait::Forever => self.set_timeout(0)?,
        }
        self.once(buffer, RecvFlags::empty())
    }

    #[inline]
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let sent = match parts {
                [one] => send(&self.socket, one, SEND),
                parts => sendmsg(&self.socket, parts, &mut SendAncillaryBuffer::default(), SEND),
            };
            match sent {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn shutdown(&self, how: Shutdown) {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        // One that is not connected has nobody to wake.
        let _ = shutdown(&self.socket, how);
    }

    fn take_error(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.socket)??)
    }

    fn peer_state(&self) -> PeerState {
        let mut place = [PollFd::new(&self.socket, GONE)];
        if !matches!(poll(&mut place, Some(&NOW)), Ok(1)) {
            return PeerState::Open;
        }
        // A reset is looked for without reading. Linux tells the error to one reader only, even if that one
        // peeks; the next reader would find an orderly end.
        if place[0].revents().intersects(RESET) {
            return PeerState::Gone;
        }
        match recv(&self.socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => PeerState::Ended,
            // Systems whose flags do not distinguish an end from data: the peer is taken to be there.
            Ok(_) if GONE == PollFlags::IN => PeerState::Open,
            Err(Errno::AGAIN | Errno::INTR) => PeerState::Open,
            Ok(_) | Err(_) => PeerState::Gone,
        }
    }

    #[inline]
    fn source(&self) -> Source<'_> {
        Source::Descriptor(self.socket.as_fd())
    }
}

/// The peer has closed, or broken off; where the system does not tell that from what has come, either.
#[cfg(target_os = "linux")]
const GONE: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const GONE: PollFlags = PollFlags::IN;
/// Flags that show that the peer has broken the connection off. Linux reports a hang-up of a TCP socket after a reset, or
/// when both sides have closed, and this side closes last. Other systems report it when the peer has closed.
#[cfg(target_os = "linux")]
const RESET: PollFlags = PollFlags::ERR.union(PollFlags::HUP);
#[cfg(not(target_os = "linux"))]
const RESET: PollFlags = PollFlags::ERR;
/// To look and not to wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A socket that listens.
struct Listening {
    socket: OwnedFd,
    /// None of a Unix socket.
    address: Option<SocketAddr>,
}

impl Listener for Listening {
    fn accept(&self) -> io::Result<Accepted> {
        let (socket, from) = accept(&self.socket)?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        let mut user = None;
        match from {
            // A reply must not wait for another (Nagle).
            Some(_) => sockopt::set_tcp_nodelay(&socket, true)?,
            None => user = user_of(&socket),
        }
        // Where that is inherited from the listener.
        #[cfg(not(target_os = "linux"))]
        ioctl_fionbio(&socket, false)?;
        Ok(Accepted { stream: Arc::new(Socket::new(socket, Duration::ZERO)), from, user })
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn close(&self) {
        let _ = shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn source(&self) -> Source<'_> {
        Source::Descriptor(self.socket.as_fd())
    }
}

type From = Option<rustix::net::SocketAddrAny>;

/// A connection that programs which this one starts do not inherit.
#[cfg(not(target_vendor = "apple"))]
fn accept(listener: &OwnedFd) -> io::Result<(OwnedFd, From)> {
    Ok(rustix::net::acceptfrom_with(listener, rustix::net::SocketFlags::CLOEXEC)?)
}

#[cfg(target_vendor = "apple")]
fn accept(listener: &OwnedFd) -> io::Result<(OwnedFd, From)> {
    let (socket, from) = rustix::net::acceptfrom(listener)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok((socket, from))
}

#[cfg(target_os = "linux")]
fn user_of(socket: &OwnedFd) -> Option<u32> {
    sockopt::socket_peercred(socket).ok().map(|peer| peer.uid.as_raw())
}

#[cfg(not(target_os = "linux"))]
fn user_of(_: &OwnedFd) -> Option<u32> {
    None
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
fn fresh(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, kind, rustix::net::SocketFlags::CLOEXEC, None)?)
}

/// A socket that child processes do not inherit. On this system that takes two calls.
#[cfg(target_vendor = "apple")]
fn fresh(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(family, kind, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// A socket at an address. One of IPv6 is of IPv6 alone, so that both families can be had at one port.
pub(crate) fn bound(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = fresh(family(&address), kind)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if kind == SocketType::STREAM {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}

/// A socket of the address's family, bound if it must have a reserved port.
fn open(to: SocketAddr, kind: SocketType, options: &ConnectOptions) -> io::Result<OwnedFd> {
    let socket = fresh(family(&to), kind)?;
    if options.reserved_port {
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
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    for range in RESERVED {
        let count = range.len();
        for step in 0..count {
            let port = range.start() + ((first + step) % count) as u16;
            match bind(socket, &SocketAddr::new(any, port)) {
                Err(Errno::ADDRINUSE) => {}
                bound => return Ok(bound?),
            }
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// A duration as the system takes it.
fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}
