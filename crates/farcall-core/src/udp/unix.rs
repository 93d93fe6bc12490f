//! A UDP socket on Unix: one system call to send, one to receive.

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
use crate::env::{Received, Socket, SocketOptions, Source, Wait};
use crate::sockets;
#[cfg(target_os = "linux")]
use crate::sys;

/// Datagrams, and bytes, that the kernel takes in one train, at most.
const MOST_DATAGRAMS: usize = 64;
const LONGEST_TRAIN: usize = 65_000;

/// The kernel counts a socket's time-out in steps of at least so many nanoseconds.
const TICK: u64 = 1_000_000;

pub(crate) struct Udp {
    socket: UdpSocket,
    local: SocketAddr,
    receive_buffer: usize,
    spin: Duration,
    timeout: Timeout,
    /// Datagrams come with control messages: they may come in trains, or it is to be known at which address.
    messages: bool,
    /// From which address it answers, if it is at all of the host's.
    answers: Option<Answers>,
    /// The device was found unable to send them.
    no_trains: AtomicBool,
    /// Whom it was ever connected to, and whether it still is.
    partner: OnceLock<SocketAddr>,
    connected: AtomicBool,
}

impl Udp {
    pub(crate) fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Udp> {
        let socket = match options.divisible {
            true => UdpSocket::from(sockets::bound(address, SocketType::DGRAM)?),
            false => bind(address)?,
        };
        // As much as the system grants: it caps the wish instead of refusing it (Linux), or
        // refuses it (BSD), and then the default stays.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, options.buffer);
        let _ = sockopt::set_socket_send_buffer_size(&socket, options.buffer);
        match options.divisible {
            true if address.is_ipv4() => socket.set_broadcast(true)?,
            true => {}
            false => prepare(&socket, address)?,
        }
        // On this machine datagrams are long, and none are put together.
        let trains = !options.divisible && !address.ip().is_loopback() && receives_trains(&socket);
        let answers =
            options.answers && address.ip().is_unspecified() && reports_destinations(&socket, address);
        Ok(Udp {
            messages: trains || answers,
            answers: answers.then(Answers::default),
            no_trains: AtomicBool::new(false),
            local: socket.local_addr()?,
            receive_buffer: sockopt::socket_recv_buffer_size(&socket)?,
            spin: options.spin,
            timeout: Timeout::default(),
            partner: OnceLock::new(),
            connected: AtomicBool::new(false),
            socket,
        })
    }

    /// The only one to whom datagrams go, and from whom they come, if there is one.
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
        // The address is copied only if its form changes.
        match to {
            SocketAddr::V4(_) if self.local.is_ipv6() => {
                sendto(&self.socket, datagram, SendFlags::empty(), &reach(to, true))
            }
            to => sendto(&self.socket, datagram, SendFlags::empty(), to),
        }
    }

    /// Sends a datagram, or several of `each` bytes, from the address that was asked if that is to be.
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
            // The host has that address no longer.
            Err(Errno::INVAL | Errno::ADDRNOTAVAIL) if source.is_some() => send(None),
            sent => sent,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn send_message(&self, _: &SocketAddr, _: &[IoSlice<'_>], _: Option<u16>) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// What the first try reported may be of another datagram.
    #[cold]
    fn send_again(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        persist(|| self.send_once(&to, datagram))
    }

    #[inline(always)]
    fn receive_once(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        if self.messages {
            return self.receive_message(buffer, wait);
        }
        let flags = if wait == Wait::No { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        if let Some(partner) = self.partner() {
            // Another's datagram that comes because the socket is being disconnected bears the wrong
            // name here. Conversations go by their identifiers; it is lost at worst.
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

    /// What it means that no datagram came. An empty one is no datagram of the protocol.
    #[cold]
    fn nothing(&self, received: Result<(), Errno>, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        match received {
            Ok(()) | Err(Errno::INTR) => Ok(Received::Woken),
            Err(Errno::AGAIN) => {
                if self.timeout.ends_after(wait) {
                    self.set_timeout(None)?;
                }
                Ok(Received::TimedOut)
            }
            Err(error) => self.hint(error, buffer),
        }
    }

    /// Sends a train that the kernel takes whole.
    fn send_part(&self, to: SocketAddr, part: &[u8], each: usize) -> Result<usize, Errno> {
        let each = u16::try_from(each).map_err(|_| Errno::INVAL)?;
        self.send_message(&to, &[IoSlice::new(part)], Some(each)).inspect_err(|error| {
            // A device that computes no checksums cannot.
            if let Errno::IO | Errno::INVAL = *error {
                self.no_trains.store(true, Ordering::Relaxed);
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

    /// Looks for a datagram until the time is over.
    #[inline(never)]
    fn receive_spinning(&self, buffer: &mut [u8], within: Duration) -> io::Result<Received> {
        /// An empty look costs about 400 ns, the clock a tenth of that. (A pause between looks would only make them
        /// rarer: each is a system call.)
        const LOOKS: u32 = 16;
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
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

    /// Waits with another time-out than the last.
    #[cold]
    fn receive_within(&self, timeout: Duration, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        self.set_timeout(Some(timeout))?;
        self.receive_once(buffer, wait)
    }

    /// Waits for less than a socket's time-out can say.
    #[cold]
    fn receive_soon(&self, buffer: &mut [u8], nanos: u64) -> io::Result<Received> {
        let time = Timespec { tv_sec: 0, tv_nsec: nanos as _ };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time)) {
            Ok(0) => Ok(Received::TimedOut),
            Ok(_) => self.receive_once(buffer, Wait::No),
            Err(Errno::INTR) => Ok(Received::Woken),
            Err(error) => Err(error.into()),
        }
    }

    /// Turns an error that speaks of another host into a hint.
    fn hint(&self, error: Errno, buffer: &mut [u8]) -> io::Result<Received> {
        match error {
            Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::MSGSIZE
            | Errno::ACCESS => Ok(self.unreachable(buffer)),
            error => Err(error.into()),
        }
    }

    /// Whom the oldest ICMP error in the socket's error queue spoke of. The name is the original destination.
    #[cfg(target_os = "linux")]
    fn unreachable(&self, buffer: &mut [u8]) -> Received {
        match sys::receive_error(&self.socket, buffer) {
            Ok(sys::Incoming { from: Some(to), len, refused: true, .. }) => {
                Received::Refused(canonical(to), len)
            }
            Ok(sys::Incoming { from: Some(to), .. }) => Received::Unreachable(canonical(to)),
            _ => Received::Woken,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn unreachable(&self, _: &mut [u8]) -> Received {
        Received::Woken
    }
}

impl Socket for Udp {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        match self.send_once(&to, datagram) {
            Ok(_) => Ok(()),
            Err(_) => self.send_again(to, datagram),
        }
    }

    fn send_parts(&self, to: SocketAddr, parts: [&[u8]; 3]) -> io::Result<()> {
        let (parts, flags) = (parts.map(IoSlice::new), SendFlags::empty());
        let name = reach(&to, self.local.is_ipv6());
        persist(|| match self.partner() {
            Some(_) => sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags),
            None if self.answers.is_some() => self.send_message(&to, &parts, None),
            None => sendmsg_addr(&self.socket, &name, &parts, &mut SendAncillaryBuffer::default(), flags),
        })
    }

    fn send_train(&self, to: SocketAddr, train: &[u8], each: usize) -> io::Result<()> {
        if train.len() <= each {
            return self.send(to, train);
        }
        // Longer trains than the kernel takes are cut where a datagram ends.
        let most = (LONGEST_TRAIN / each.max(1)).clamp(1, MOST_DATAGRAMS) * each.max(1);
        for part in train.chunks(most) {
            if self.no_trains.load(Ordering::Relaxed) || self.send_part(to, part, each).is_err() {
                part.chunks(each.max(1)).try_for_each(|datagram| self.send(to, datagram))?;
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
            if self.connected.swap(false, Ordering::SeqCst) {
                let _ = connect_unspec(&self.socket);
            }
            return;
        };
        // Elsewhere than on Linux a socket that is disconnected may have lost its address.
        if cfg!(target_os = "linux") && self.partner.set(to).is_ok() && connect(&self.socket, &to).is_ok() {
            self.connected.store(true, Ordering::SeqCst);
        }
    }

    fn wake(&self) {
        // Connected it would not hear itself.
        self.connect(None);
        // An empty datagram: no datagram of the protocol is. If the buffer is full it may be lost,
        // but then there is something to receive.
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

/// Sends. What that reports may be an ICMP error that an earlier datagram to another host raised; it says nothing of
/// this one, which was not sent. Reporting clears it.
fn persist(send: impl Fn() -> Result<usize, Errno>) -> io::Result<()> {
    for _ in 0..4 {
        match send() {
            Ok(_) => return Ok(()),
            // The last: it was disconnected just now.
            Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::INTR | Errno::DESTADDRREQ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::HOSTUNREACH.into())
}

/// A socket at an address. It asks for its port by number, for the system takes a port that it chose itself
/// away again when a socket is disconnected.
fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    /// Somebody else may be given the port meanwhile.
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

/// Don't Fragment on each datagram, whatever the kernel believes of the path (the protocol probes
/// for itself), and ICMP errors on a socket that is not connected.
#[cfg(target_os = "linux")]
fn prepare(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    use sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
    if address.is_ipv4() {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?;
        // It may speak IPv4 as well.
        let _ = sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE);
        let _ = sys::report_icmp_errors(socket, true);
    }
    // Only hints are lost where this is refused.
    let _ = sys::report_icmp_errors(socket, false);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn prepare(_: &UdpSocket, _: SocketAddr) -> io::Result<()> {
    Ok(())
}

/// Whether datagrams that came together are given in one system call from now on.
#[cfg(target_os = "linux")]
fn receives_trains(socket: &UdpSocket) -> bool {
    sys::receive_trains(socket).is_ok()
}

/// Whether each datagram comes from now on with the address at which it arrived.
#[cfg(target_os = "linux")]
fn reports_destinations(socket: &UdpSocket, address: SocketAddr) -> bool {
    sys::report_destinations(socket, address.is_ipv6()).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn receives_trains(_: &UdpSocket) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn reports_destinations(_: &UdpSocket, _: SocketAddr) -> bool {
    false
}
