//! A UDP socket on Unix: one system call to send, one to receive.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, connect, connect_unspec, recv, recvfrom, send, sendmsg, sendmsg_addr,
    sendto, sockopt,
};

use super::{Timeout, own_address};
use crate::env::{Received, Socket, SocketOptions, Wait};
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
    /// Datagrams may come in trains.
    trains: bool,
    /// The device was found unable to send them.
    no_trains: AtomicBool,
    /// Whom it was ever connected to, and whether it still is.
    partner: OnceLock<SocketAddr>,
    connected: AtomicBool,
}

impl Udp {
    pub(crate) fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Udp> {
        let socket = bind(address)?;
        // As much as the system grants: it caps the wish instead of refusing it (Linux), or
        // refuses it (BSD), and then the default stays.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, options.buffer);
        let _ = sockopt::set_socket_send_buffer_size(&socket, options.buffer);
        prepare(&socket, address)?;
        // On this machine datagrams are long, and none are put together.
        let trains = !address.ip().is_loopback() && sys::receive_trains(&socket).is_ok();
        Ok(Udp {
            trains,
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
        match self.partner() {
            Some(_) => send(&self.socket, datagram, SendFlags::empty()),
            None => sendto(&self.socket, datagram, SendFlags::empty(), to),
        }
    }

    /// What the first try reported may be of another datagram.
    #[cold]
    fn send_again(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        persist(|| self.send_once(&to, datagram))
    }

    #[inline(always)]
    fn receive_once(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        if self.trains {
            return self.receive_train(buffer, wait);
        }
        let flags = if wait == Wait::No { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        if let Some(partner) = self.partner() {
            // Another's datagram that comes because the socket is being disconnected bears the wrong
            // name here. Conversations go by their identifiers; it is lost at worst.
            return match recv(&self.socket, buffer, flags) {
                Ok((_, len)) if len > 0 => Ok(Received::Datagrams { from: *partner, len, each: len }),
                nothing => self.nothing(nothing.map(drop), wait),
            };
        }
        match recvfrom(&self.socket, buffer, flags) {
            Ok((len, _, Some(from))) if len > 0 => Ok(Received::Datagrams { from: from.try_into()?, len, each: len }),
            nothing => self.nothing(nothing.map(drop), wait),
        }
    }

    /// What it means that no datagram came. An empty one is no datagram of the protocol.
    #[cold]
    fn nothing(&self, received: Result<(), Errno>, wait: Wait) -> io::Result<Received> {
        match received {
            Ok(()) | Err(Errno::INTR) => Ok(Received::Woken),
            Err(Errno::AGAIN) => {
                if self.timeout.ends_after(wait) {
                    self.set_timeout(None)?;
                }
                Ok(Received::TimedOut)
            }
            Err(error) => self.hint(error),
        }
    }

    /// Sends a train that the kernel takes whole.
    #[cfg(target_os = "linux")]
    fn send_part(&self, to: SocketAddr, part: &[u8], each: usize) -> io::Result<()> {
        let to = if self.partner().is_some() { None } else { Some(&to) };
        let each = u16::try_from(each).map_err(|_| Errno::INVAL)?;
        sys::send_train(&self.socket, to, part, each).inspect_err(|error| {
            // A device that computes no checksums cannot.
            if let Some(Errno::IO | Errno::INVAL) = Errno::from_io_error(error) {
                self.no_trains.store(true, Ordering::Relaxed);
            }
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn send_part(&self, _: SocketAddr, _: &[u8], _: usize) -> io::Result<()> {
        Err(Errno::INVAL.into())
    }

    #[cfg(target_os = "linux")]
    #[inline(never)]
    fn receive_train(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        match sys::receive_train(&self.socket, buffer, wait != Wait::No) {
            Ok((_, 0, _) | (None, ..)) => Ok(Received::Woken),
            Ok((Some(from), len, each)) => Ok(Received::Datagrams { from, len, each }),
            Err(error) => match Errno::from_io_error(&error) {
                Some(error) => self.nothing(Err(error), wait),
                None => Err(error),
            },
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn receive_train(&self, _: &mut [u8], _: Wait) -> io::Result<Received> {
        unreachable!("there are trains on Linux alone")
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
    fn hint(&self, error: Errno) -> io::Result<Received> {
        match error {
            Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::MSGSIZE
            | Errno::ACCESS => Ok(self.unreachable().map_or(Received::Woken, Received::Unreachable)),
            error => Err(error.into()),
        }
    }

    /// Whom the oldest ICMP error in the socket's error queue spoke of: with `MSG_ERRQUEUE` the
    /// name is the original destination (ip(7), IP_RECVERR).
    #[cfg(target_os = "linux")]
    fn unreachable(&self) -> Option<SocketAddr> {
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        let (_, _, to) = recvfrom(&self.socket, &mut [0u8; 0][..], flags).ok()?;
        to?.try_into().ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn unreachable(&self) -> Option<SocketAddr> {
        None
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
        persist(|| match self.partner() {
            Some(_) => sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags),
            None => sendmsg_addr(&self.socket, &to, &parts, &mut SendAncillaryBuffer::default(), flags),
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
    match address {
        SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?,
    }
    // Only hints are lost where this is refused.
    let _ = crate::sys::report_icmp_errors(socket, address.is_ipv6());
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn prepare(_: &UdpSocket, _: SocketAddr) -> io::Result<()> {
    Ok(())
}
