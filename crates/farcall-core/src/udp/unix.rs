//! The UDP socket for Unix. Sending takes one system call, and so does receiving.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, SocketType, connect, connect_unspec, recv, recvfrom, send,
    sendmsg, sendmsg_addr, sendto, sockopt,
};

use farcall_base::canonical;

use super::answers::Answers;
use super::{Timeout, own_address, reach};
use crate::env::{Received, Socket, SocketOptions, Source, Wait, is_network_report};
use crate::hints::Hints;
use crate::sockets;
#[cfg(target_os = "linux")]
use crate::sys;

/// The greatest number of datagrams that the kernel takes in one batch.
const MAX_BATCH_DATAGRAMS: usize = 64;
/// The greatest length of a batch that the kernel takes, in bytes.
const MAX_BATCH_BYTES: usize = 65_000;

/// The coarsest resolution of a socket's time-out on any system, in nanoseconds.
const TICK: u64 = 1_000_000;

/// A UDP socket of the operating system.
pub(crate) struct Udp {
    socket: UdpSocket,
    local: SocketAddr,
    receive_buffer: usize,
    spin: Duration,
    timeout: Timeout,
    /// What the network has reported, for the next thread that receives.
    hints: Hints,
    /// Whether the network's reports come to this socket.
    hears_reports: bool,
    /// Whether the kernel adds control messages to datagrams: the size of a batch's datagrams, or the address
    /// at which they arrived.
    messages: bool,
    /// The source addresses of answers, for a server's socket that is bound to all addresses of its host.
    answers: Option<Answers>,
    /// Whether the network device has refused a batch.
    no_batches: AtomicBool,
    /// The peer to which the socket was once connected.
    partner: OnceLock<SocketAddr>,
    /// Whether the socket is still connected to `partner`. A thread that reads an old value sends or receives
    /// with an address that the kernel ignores, or gets an error and tries again.
    connected: AtomicBool,
}

impl Udp {
    pub(crate) fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Udp> {
        let socket = match options.divisible {
            true => UdpSocket::from(sockets::bound(address, SocketType::DGRAM)?),
            false => bind(address)?,
        };
        // Linux grants at most its limit. BSD refuses more than its limit, and then the default stays.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, options.buffer);
        let _ = sockopt::set_socket_send_buffer_size(&socket, options.buffer);
        match options.divisible {
            true if address.is_ipv4() => socket.set_broadcast(true)?,
            true => {}
            false => prepare(&socket, address, !options.answers)?,
        }
        // Over loopback farcall sends long datagrams, not batches.
        let batches = !options.divisible && !address.ip().is_loopback() && receives_batches(&socket);
        let answers =
            options.answers && address.ip().is_unspecified() && reports_destinations(&socket, address);
        Ok(Udp {
            messages: batches || answers,
            answers: answers.then(Answers::default),
            no_batches: AtomicBool::new(false),
            local: socket.local_addr()?,
            receive_buffer: sockopt::socket_recv_buffer_size(&socket)?,
            spin: options.spin,
            timeout: Timeout::default(),
            hints: Hints::default(),
            hears_reports: !options.answers && !options.divisible,
            partner: OnceLock::new(),
            connected: AtomicBool::new(false),
            socket,
        })
    }

    /// Returns the peer to which the socket is connected, if it is.
    #[inline(always)]
    fn partner(&self) -> Option<&SocketAddr> {
        if self.connected.load(Ordering::Relaxed) { self.partner.get() } else { None }
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, timeout)?)
    }

    #[inline(always)]
    fn send_once(&self, to: &SocketAddr, datagram: &[u8]) -> Result<usize, Errno> {
        if self.partner().is_some() {
            return send(&self.socket, datagram, SendFlags::empty());
        }
        if self.answers.is_some() {
            return self.send_message(to, &[IoSlice::new(datagram)], None);
        }
        // The address is copied only if it must be converted to IPv6.
        match to {
            SocketAddr::V4(_) if self.local.is_ipv6() => {
                sendto(&self.socket, datagram, SendFlags::empty(), &reach(to, true))
            }
            to => sendto(&self.socket, datagram, SendFlags::empty(), to),
        }
    }

    /// Sends a datagram, or a batch of datagrams of `each` bytes. A server's socket sends from the address at
    /// which the peer asked.
    #[cfg(target_os = "linux")]
    #[inline(never)]
    fn send_message(
        &self,
        to: &SocketAddr,
        parts: &[IoSlice<'_>],
        each: Option<u16>,
    ) -> Result<usize, Errno> {
        let v6 = self.local.is_ipv6();
        let name = reach(to, v6);
        let name = if self.partner().is_some() { None } else { Some(&name) };
        let source = self.answers.as_ref().and_then(|answers| answers.source(to));
        let source = source.map(|source| reach(&SocketAddr::new(source, 0), v6).ip());
        let send = |source| {
            let sent = sys::send(&self.socket, &sys::Outgoing { to: name, source, parts, each });
            sent.map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO))
        };
        match send(source) {
            // The host no longer has the address at which the peer asked.
            Err(Errno::INVAL | Errno::ADDRNOTAVAIL) if source.is_some() => send(None),
            sent => sent,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn send_message(&self, _: &SocketAddr, _: &[IoSlice<'_>], _: Option<u16>) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// Sends a datagram after a first attempt failed. The error of that attempt may concern an earlier
    /// datagram.
    #[cold]
    fn send_again(&self, error: Errno, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.persist(error, || self.send_once(&to, datagram))
    }

    #[inline(always)]
    fn receive_once(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        if self.hints.is_waiting() {
            return Ok(self.hint(buffer));
        }
        if self.messages {
            return self.receive_message(buffer, wait);
        }
        let flags = if wait == Wait::No { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        if let Some(partner) = self.partner() {
            // While another thread disconnects the socket, a datagram of another peer may arrive and get the
            // wrong sender here. The protocol identifies conversations by number, so at worst the datagram is
            // lost.
            return match recv(&self.socket, &mut *buffer, flags) {
                Ok((_, len)) if len > 0 => Ok(Received::Datagrams { from: *partner, len, each: len }),
                nothing => self.nothing(nothing.map(drop), buffer, wait),
            };
        }
        match recvfrom(&self.socket, &mut *buffer, flags) {
            Ok((len, _, Some(from))) if len > 0 => {
                Ok(Received::Datagrams { from: canonical(from.try_into()?), len, each: len })
            }
            nothing => self.nothing(nothing.map(drop), buffer, wait),
        }
    }

    /// Decides why no datagram was received. An empty datagram only wakes the receiving thread; the protocol
    /// sends no empty datagrams.
    #[cold]
    fn nothing(&self, received: Result<(), Errno>, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        match received {
            Ok(()) | Err(Errno::INTR) => Ok(Received::Woken),
            Err(Errno::AGAIN) => {
                if self.timeout.ends_after(wait) {
                    self.set_timeout(None)?;
                }
                // The kernel has told somebody of each report. But where a report met the end of another
                // thread's look at the queue, it may have been forgotten.
                if wait != Wait::No && self.hears_reports {
                    self.hints.drain(&self.socket);
                }
                Ok(Received::TimedOut)
            }
            Err(error) if is_network_report(&error.into()) => {
                self.hints.drain(&self.socket);
                Ok(self.hint(buffer))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the oldest report of the network.
    #[cold]
    fn hint(&self, buffer: &mut [u8]) -> Received {
        let Some(hint) = self.hints.take(&self.socket) else { return Received::Woken };
        if hint.code != Errno::CONNREFUSED.raw_os_error() {
            return Received::Unreachable(hint.about, hint.obstacle());
        }
        let len = hint.quoted().len().min(buffer.len());
        buffer[..len].copy_from_slice(&hint.quoted()[..len]);
        Received::Refused(hint.about, len)
    }

    /// Sends again after an error that may concern an earlier datagram: if the network has reported
    /// something, the kernel returns that report instead of sending. It tells nobody else of it, so the
    /// sender takes all reports out of the error queue.
    #[cold]
    fn persist(&self, mut error: Errno, send: impl Fn() -> Result<usize, Errno>) -> io::Result<()> {
        /// Further reports may come while the sender tries again.
        const TRIES: usize = 4;
        for _ in 0..TRIES {
            match error {
                // DESTADDRREQ: another thread has just disconnected the socket.
                Errno::INTR | Errno::DESTADDRREQ => {}
                error if is_network_report(&error.into()) => self.hints.drain(&self.socket),
                error => return Err(error.into()),
            }
            match send() {
                Ok(_) => return Ok(()),
                Err(why) => error = why,
            }
        }
        Err(error.into())
    }

    /// Sends a batch that is no longer than the kernel takes.
    fn send_batch(&self, to: SocketAddr, batch: &[u8], each: usize) -> Result<usize, Errno> {
        let each = u16::try_from(each).map_err(|_| Errno::INVAL)?;
        self.send_message(&to, &[IoSlice::new(batch)], Some(each)).inspect_err(|error| {
            match *error {
                // A network device that computes no checksums cannot divide a batch.
                Errno::IO | Errno::INVAL => self.no_batches.store(true, Ordering::Relaxed),
                error if is_network_report(&error.into()) => self.hints.drain(&self.socket),
                _ => {}
            }
        })
    }

    #[cfg(target_os = "linux")]
    #[inline(never)]
    fn receive_message(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        match sys::receive(&self.socket, buffer, wait != Wait::No) {
            Ok(sys::Incoming { len: 0, .. } | sys::Incoming { from: None, .. }) => Ok(Received::Woken),
            Ok(sys::Incoming { from: Some(from), at, len, each, .. }) => {
                let from = canonical(from);
                if let (Some(answers), Some(at)) = (&self.answers, at) {
                    answers.note(from, at.to_canonical());
                }
                Ok(Received::Datagrams { from, len, each })
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(error) => self.nothing(Err(error), buffer, wait),
                None => Err(error),
            },
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn receive_message(&self, _: &mut [u8], _: Wait) -> io::Result<Received> {
        unreachable!("there are control messages on Linux alone")
    }

    /// Polls for a datagram until the time is over.
    #[inline(never)]
    fn receive_spinning(&self, buffer: &mut [u8], within: Duration) -> io::Result<Received> {
        /// How many polls share one reading of the clock. A poll that finds nothing takes about 400 ns, a
        /// reading of the clock a tenth of that.
        const POLLS_PER_CLOCK_READING: u32 = 16;
        let start = Instant::now();
        loop {
            for _ in 0..POLLS_PER_CLOCK_READING {
                match self.receive_once(buffer, Wait::No)? {
                    Received::TimedOut => {}
                    received => return Ok(received),
                }
            }
            if start.elapsed() >= within {
                return Ok(Received::TimedOut);
            }
        }
    }

    /// Sets the socket's time-out, and waits.
    #[cold]
    fn receive_within(&self, timeout: Duration, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        self.set_timeout(Some(timeout))?;
        self.receive_once(buffer, wait)
    }

    /// Waits by poll(2) for a time that is too short for a socket's time-out.
    #[cold]
    fn receive_soon(&self, buffer: &mut [u8], nanos: u64) -> io::Result<Received> {
        let time = Timespec { tv_sec: 0, tv_nsec: nanos as _ };
        let mut place = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut place, Some(&time)) {
            Ok(0) => Ok(Received::TimedOut),
            Ok(_) => {
                // Reports in the error queue would end every further wait at once.
                if place[0].revents().contains(PollFlags::ERR) {
                    self.hints.drain(&self.socket);
                }
                self.receive_once(buffer, Wait::No)
            }
            Err(Errno::INTR) => Ok(Received::Woken),
            Err(error) => Err(error.into()),
        }
    }
}

impl Socket for Udp {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        match self.send_once(&to, datagram) {
            Ok(_) => Ok(()),
            Err(error) => self.send_again(error, to, datagram),
        }
    }

    fn send_parts(&self, to: SocketAddr, parts: [&[u8]; 3]) -> io::Result<()> {
        let (parts, flags) = (parts.map(IoSlice::new), SendFlags::empty());
        let name = reach(&to, self.local.is_ipv6());
        let send = || match self.partner() {
            Some(_) => sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags),
            None if self.answers.is_some() => self.send_message(&to, &parts, None),
            None => sendmsg_addr(&self.socket, &name, &parts, &mut SendAncillaryBuffer::default(), flags),
        };
        match send() {
            Ok(_) => Ok(()),
            Err(error) => self.persist(error, send),
        }
    }

    fn send_train(&self, to: SocketAddr, train: &[u8], each: usize) -> io::Result<()> {
        if train.len() <= each {
            return self.send(to, train);
        }
        // A batch that is longer than the kernel takes is cut at the end of a datagram.
        let max_bytes = (MAX_BATCH_BYTES / each.max(1)).clamp(1, MAX_BATCH_DATAGRAMS) * each.max(1);
        for batch in train.chunks(max_bytes) {
            if self.no_batches.load(Ordering::Relaxed) || self.send_batch(to, batch, each).is_err() {
                batch.chunks(each.max(1)).try_for_each(|datagram| self.send(to, datagram))?;
            }
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        if !self.spin.is_zero() && wait != Wait::No {
            let received = self.receive_spinning(buffer, self.spin);
            if !matches!(received, Ok(Received::TimedOut)) {
                return received;
            }
        }
        self.receive_at_rest(buffer, wait)
    }

    #[inline(always)]
    fn receive_at_rest(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        if let Wait::Nanos(nanos) = wait
            && nanos < TICK
        {
            return self.receive_soon(buffer, nanos);
        }
        match self.timeout.change(wait) {
            None => self.receive_once(buffer, wait),
            Some(timeout) => self.receive_within(timeout, buffer, wait),
        }
    }

    fn receive_awake(&self, buffer: &mut [u8], within: Duration) -> io::Result<Received> {
        self.receive_spinning(buffer, within)
    }

    fn connect(&self, to: Option<SocketAddr>) {
        let Some(to) = to else {
            // SeqCst, like the store below. Both are next to a system call and happen once in a socket's
            // life.
            if self.connected.swap(false, Ordering::SeqCst) {
                let _ = connect_unspec(&self.socket);
            }
            return;
        };
        // On other systems than Linux, disconnecting a socket may also take away its local address.
        if cfg!(target_os = "linux") && self.partner.set(to).is_ok() && connect(&self.socket, &to).is_ok() {
            self.connected.store(true, Ordering::SeqCst);
        }
    }

    fn wake(&self) {
        // A connected socket would not receive its own datagram.
        self.connect(None);
        // The protocol sends no empty datagrams. If the receive buffer is full, this one is lost, but then
        // the receiving thread has other datagrams to receive.
        let _ = self.send(own_address(self.local), &[]);
    }

    fn source(&self) -> Option<Source<'_>> {
        Some(Source::Descriptor(self.socket.as_fd()))
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }
}

/// Binds a socket. Port 0 is replaced by the number of a free port, because the system takes back a port that
/// it chose itself when the socket is disconnected.
fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    /// The number of free ports to try. Several are tried because another socket may get a port first.
    const TRIES: usize = 16;
    if address.port() != 0 {
        return UdpSocket::bind(address);
    }
    let mut bound = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..TRIES {
        let chosen = UdpSocket::bind(address)?.local_addr()?;
        bound = UdpSocket::bind(chosen);
        if bound.is_ok() {
            break;
        }
    }
    bound
}

/// Sets Don't Fragment on each datagram, because the protocol itself finds the path's MTU. Also enables ICMP
/// errors on an unconnected socket, if it `asks`. A socket that only answers has no use for them, and they
/// would take the room of its receive buffer.
#[cfg(target_os = "linux")]
fn prepare(socket: &UdpSocket, address: SocketAddr, asks: bool) -> io::Result<()> {
    use sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
    if address.is_ipv4() {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?;
        // An IPv6 socket may send IPv4 datagrams as well.
        let _ = sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE);
    }
    // Where the system refuses this, only hints are lost.
    if asks && address.is_ipv6() {
        let _ = sys::report_icmp_errors(socket, true);
    }
    if asks {
        let _ = sys::report_icmp_errors(socket, false);
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn prepare(_: &UdpSocket, _: SocketAddr, _: bool) -> io::Result<()> {
    Ok(())
}

/// Makes one system call receive a batch. Returns whether the system can.
#[cfg(target_os = "linux")]
fn receives_batches(socket: &UdpSocket) -> bool {
    sys::receive_batches(socket).is_ok()
}

/// Makes the system report at which address each datagram arrived. Returns whether it can.
#[cfg(target_os = "linux")]
fn reports_destinations(socket: &UdpSocket, address: SocketAddr) -> bool {
    sys::report_destinations(socket, address.is_ipv6()).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn receives_batches(_: &UdpSocket) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn reports_destinations(_: &UdpSocket, _: SocketAddr) -> bool {
    false
}
