//! The operating system's streams and listeners, as [`System`](crate::System) gives them to ONC RPC.

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
    is_network_report, quoting,
};
use crate::hints::Hints;
#[cfg(target_os = "linux")]
use crate::sys;
pub(crate) use alarm::SystemAlarm;
pub(crate) use poller::SystemPoller;
use poller::{descriptor, flags};

/// A connected socket.
struct Socket {
    socket: OwnedFd,
    /// How long a read polls for bytes before it blocks.
    spin: Duration,
    /// The socket's receive time-out in nanoseconds; 0 for none.
    timeout: AtomicU64,
    /// What the network has reported, if this is a socket of datagrams.
    hints: Option<Hints>,
}

/// The coarsest resolution of a socket's time-out on any system, in nanoseconds.
const TICK: u64 = 1_000_000;
/// The receive buffer that is requested for a UDP socket, in bytes.
const DATAGRAM_BUFFER_BYTES: usize = 1 << 20;
/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The flags of a send: do not block, and report a closed connection as an error, not by SIGPIPE. Apple's
/// systems have no such flag, but Rust programs ignore the signal.
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::DONTWAIT;

/// Connects a socket to a server.
pub(crate) fn connect_to(to: &Address, options: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
    let socket = match to {
        Address::Udp(to) => {
            let socket = open(*to, SocketType::DGRAM, options)?;
            // The system may grant less.
            let _ = sockopt::set_socket_recv_buffer_size(&socket, DATAGRAM_BUFFER_BYTES);
            quote_reports(&socket, to.is_ipv6());
            connect(&socket, to)?;
            return Ok(Arc::new(Socket {
                hints: Some(Hints::default()),
                ..Socket::new(socket, options.spin)
            }));
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
            // Connecting blocks until the server's queue has room. poll(2) cannot wait for that, but the
            // time-out of sends bounds it.
            let timeout = options.within.map(|time| time.max(Duration::from_nanos(TICK)));
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, timeout)?;
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

/// Makes the system quote the datagram that each report of the network is about. Without the quotation a
/// report cannot be told from a forged one.
#[cfg(target_os = "linux")]
fn quote_reports(socket: &OwnedFd, v6: bool) {
    // Where the system refuses this, reports quote nothing.
    let _ = sys::report_icmp_errors(socket, v6);
}

#[cfg(not(target_os = "linux"))]
fn quote_reports(_: &OwnedFd, _: bool) {}

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

/// Waits until one of the sources is ready, or `timeout` has passed.
pub(crate) fn wait_any(wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let mut places = wanted
        .iter()
        .map(|one| Ok(PollFd::from_borrowed_fd(descriptor(&one.source)?, flags(one.interest))))
        .collect::<io::Result<Vec<PollFd<'_>>>>()?;
    poll(&mut places, timeout.map(timespec).as_ref())?;
    let events: Vec<PollFlags> = places.iter().map(PollFd::revents).collect();
    for (one, events) in wanted.iter_mut().zip(events) {
        // The next read or write returns the error, so it would not block.
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
        Socket { socket, spin, timeout: AtomicU64::new(0), hints: None }
    }

    #[inline(always)]
    fn once(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        if let Some(hints) = &self.hints
            && hints.is_waiting()
        {
            return Err(self.report(hints));
        }
        match recv(&self.socket, buffer, flags) {
            Ok((_, len)) => Ok(len),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Returns why nothing was received. A report of the network quotes the datagram that raised it.
    #[cold]
    fn failed(&self, error: Errno) -> io::Error {
        match &self.hints {
            Some(hints) if is_network_report(&error.into()) => {
                hints.drain(&self.socket);
                // The system does not quote datagrams, or another thread has taken the report.
                if hints.is_waiting() { self.report(hints) } else { error.into() }
            }
            _ => error.into(),
        }
    }

    #[cold]
    fn report(&self, hints: &Hints) -> io::Error {
        match hints.take(&self.socket) {
            Some(hint) => quoting(io::Error::from_raw_os_error(hint.code), hint.quoted().to_vec()),
            None => ErrorKind::Interrupted.into(),
        }
    }

    #[inline]
    fn write_once(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match parts {
            [one] => send(&self.socket, one, SEND),
            parts => sendmsg(&self.socket, parts, &mut SendAncillaryBuffer::default(), SEND),
        }
    }

    /// Sends a datagram after a first attempt failed. The error of that attempt may concern an earlier
    /// datagram.
    #[cold]
    fn write_again(&self, parts: &[IoSlice<'_>], mut error: Errno) -> io::Result<usize> {
        /// Further reports may come while the sender tries again.
        const TRIES: usize = 4;
        for _ in 0..TRIES {
            match &self.hints {
                _ if error == Errno::INTR => {}
                Some(hints) if is_network_report(&error.into()) => hints.drain(&self.socket),
                _ => return Err(error.into()),
            }
            match self.write_once(parts) {
                Ok(sent) => return Ok(sent),
                Err(why) => error = why,
            }
        }
        Err(error.into())
    }

    /// Polls for bytes until the spin time is over.
    #[inline(never)]
    fn spin(&self, buffer: &mut [u8]) -> io::Result<usize> {
        /// How many polls share one reading of the clock, which costs a tenth of a poll.
        const POLLS_PER_CLOCK_READING: u32 = 16;
        let start = Instant::now();
        loop {
            for _ in 0..POLLS_PER_CLOCK_READING {
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

    /// Waits by poll(2) for a time that is too short for a socket's time-out.
    #[cold]
    fn read_soon(&self, buffer: &mut [u8], nanos: u64) -> io::Result<usize> {
        let time = Timespec { tv_sec: 0, tv_nsec: nanos as _ };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time))? {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => self.once(buffer, RecvFlags::DONTWAIT),
        }
    }

    /// Makes the socket's time-out `wanted` nanoseconds or somewhat less; 0 stands for no time-out. If the
    /// present time-out is at least half of `wanted`, keeps it, so that most reads need no system call for
    /// this.
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
            Wait::Nanos(nanos) if nanos < 2 * TICK => return self.read_soon(buffer, nanos),
            Wait::Nanos(nanos) => self.set_timeout(nanos)?,
            Wait::No | Wait::Forever => self.set_timeout(0)?,
        }
        self.once(buffer, RecvFlags::empty())
    }

    #[inline]
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.write_once(parts) {
            Ok(sent) => Ok(sent),
            Err(error) => self.write_again(parts, error),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        // This fails if the socket is not connected, but then no thread reads from it.
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
        // Detects a reset without reading. Linux reports the error to one reader only, even if that reader
        // peeks. The next reader would find an orderly end.
        if place[0].revents().intersects(RESET) {
            return PeerState::Gone;
        }
        match recv(&self.socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => PeerState::Ended,
            // On systems whose flags do not distinguish an end from data, the peer is assumed to be there.
            Ok(_) if GONE == PollFlags::IN => PeerState::Open,
            Err(Errno::AGAIN | Errno::INTR) => PeerState::Open,
            Ok(_) | Err(_) => PeerState::Gone,
        }
    }

    fn acknowledge(&self) {
        // A socket that is not TCP's has no such option, and needs none.
        #[cfg(target_os = "linux")]
        let _ = sockopt::set_tcp_quickack(&self.socket, true);
    }

    #[inline]
    fn source(&self) -> Source<'_> {
        Source::Descriptor(self.socket.as_fd())
    }
}

/// The flag that shows that the peer has closed or reset the connection. On systems other than Linux this
/// flag also shows data.
#[cfg(target_os = "linux")]
const GONE: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const GONE: PollFlags = PollFlags::IN;
/// Flags that show that the peer has broken the connection off. Linux reports a hang-up of a TCP socket after
/// a reset, or when both sides have closed; the latter does not happen before this side has closed. Other
/// systems report it when the peer has closed.
#[cfg(target_os = "linux")]
const RESET: PollFlags = PollFlags::ERR.union(PollFlags::HUP);
#[cfg(not(target_os = "linux"))]
const RESET: PollFlags = PollFlags::ERR;
/// The time-out of a poll(2) that does not wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A listening socket.
struct Listening {
    socket: OwnedFd,
    /// `None` for a Unix socket.
    address: Option<SocketAddr>,
}

impl Listener for Listening {
    fn accept(&self) -> io::Result<Accepted> {
        let (socket, from) = accept(&self.socket)?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        let mut user = None;
        match from {
            // Nagle's algorithm would hold a reply back until the peer acknowledges the one before.
            Some(_) => sockopt::set_tcp_nodelay(&socket, true)?,
            None => user = user_of(&socket),
        }
        // Some systems let the connection inherit non-blocking mode from the listener.
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

/// Accepts a connection that child processes do not inherit.
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

/// How long a TCP connection may be silent before the system probes the peer.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// The time between two probes.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// How long the peer may acknowledge neither data nor probes before the connection ends.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// Makes the system detect that the peer's machine is gone. Where the system cannot, the callers' deadlines
/// end the calls.
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

/// Begins to connect, without waiting for the peer.
fn begin(socket: &OwnedFd, connect: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
    ioctl_fionbio(socket, true)?;
    match connect() {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(ioctl_fionbio(socket, false)?),
        Err(error) => Err(error.into()),
    }
}

/// Returns a socket that child processes do not inherit.
#[cfg(not(target_vendor = "apple"))]
fn fresh(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, kind, rustix::net::SocketFlags::CLOEXEC, None)?)
}

/// Returns a socket that child processes do not inherit. On this system, that takes two system calls.
#[cfg(target_vendor = "apple")]
fn fresh(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(family, kind, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Returns a socket bound to an address. An IPv6 socket does not speak IPv4, so that another socket can serve
/// IPv4 at the same port.
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

/// Returns a socket of the address's family, bound to a reserved port if the options ask for one.
fn open(to: SocketAddr, kind: SocketType, options: &ConnectOptions) -> io::Result<OwnedFd> {
    let socket = fresh(family(&to), kind)?;
    if options.reserved_port {
        bind_reserved(&socket, to)?;
    }
    Ok(socket)
}

/// The ports that only privileged processes may use. The first range holds few well-known services.
const RESERVED: [std::ops::RangeInclusive<u16>; 2] = [600..=1023, 512..=599];

/// Binds to a reserved port. Some servers accept calls only from such a port, because they trust the
/// administrator of the calling machine.
fn bind_reserved(socket: &OwnedFd, to: SocketAddr) -> io::Result<()> {
    // Starts at a port that the clock chooses, because the ports of ended connections are not free at once.
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

/// Converts a duration to the system's form. A duration that is too long becomes the longest that fits.
fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}
