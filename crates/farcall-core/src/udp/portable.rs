//! The UDP socket for systems that are not Unix. It uses only the standard library.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use farcall_base::canonical;

use super::{Timeout, own_address, reach};
use crate::env::{Received, Socket, SocketOptions, Wait, is_network_report};

pub(crate) struct Udp {
    /// The socket, in blocking mode.
    socket: UdpSocket,
    local: SocketAddr,
    spin: Duration,
    timeout: Timeout,
}

/// The shortest receive time-out that every system supports, in nanoseconds. `Wait::No` uses it, because the
/// standard library does not allow a time-out of zero.
const MIN_TIMEOUT: u64 = 1_000_000;

impl Udp {
    pub(crate) fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Udp> {
        let socket = UdpSocket::bind(address)?;
        let local = socket.local_addr()?;
        Ok(Udp { socket, local, spin: options.spin, timeout: Timeout::default() })
    }

    fn receive_once(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match self.socket.recv_from(buffer) {
            Ok((0, _)) => Ok(Received::Woken),
            Ok((len, from)) => Ok(Received::Datagrams { from: canonical(from), len, each: len }),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(Received::TimedOut),
                ErrorKind::Interrupted => Ok(Received::Woken),
                // The system does not tell which destination the report is about.
                _ if is_network_report(&error) => Ok(Received::Woken),
                _ => Err(error),
            },
        }
    }
}

impl Socket for Udp {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let to = reach(&to, self.local.is_ipv6());
        match self.socket.send_to(datagram, to) {
            // The report may concern an earlier datagram.
            Err(why) if is_network_report(&why) => self.socket.send_to(datagram, to).map(drop),
            sent => sent.map(drop),
        }
    }

    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        let start = Instant::now();
        let end = if wait == Wait::No { Duration::ZERO } else { self.spin };
        let asked = if wait == Wait::No { Wait::Nanos(MIN_TIMEOUT) } else { wait };
        loop {
            if start.elapsed() >= end {
                if let Some(timeout) = self.timeout.change(asked) {
                    self.socket.set_read_timeout(Some(timeout))?;
                }
            }
            let received = self.receive_once(buffer)?;
            if received != Received::TimedOut || start.elapsed() >= end {
                if received == Received::TimedOut && self.timeout.ends_after(asked) {
                    self.socket.set_read_timeout(None)?;
                }
                return Ok(received);
            }
        }
    }

    fn wake(&self) {
        let _ = self.socket.send_to(&[], own_address(self.local));
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Returns a common default, because the standard library does not tell the size.
    fn receive_buffer(&self) -> usize {
        64 << 10
    }
}
