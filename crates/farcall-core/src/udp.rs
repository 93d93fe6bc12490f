//! The operating system's UDP sockets, as [`System`](crate::System) gives them to the rest of farcall.

#[cfg(all(unix, not(farcall_portable)))]
mod answers;
#[cfg(all(unix, not(farcall_portable)))]
mod unix;
#[cfg(all(unix, not(farcall_portable)))]
pub(crate) use unix::Udp;

#[cfg(any(not(unix), farcall_portable))]
mod portable;
#[cfg(any(not(unix), farcall_portable))]
pub(crate) use portable::Udp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::env::Wait;

/// Returns the address at which a socket that is bound to `local` can send to itself. The datagrams that wake
/// the socket go there.
fn own_address(local: SocketAddr) -> SocketAddr {
    let ip = match local.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, local.port())
}

/// Converts an address to the form that a socket of this family takes: an IPv6 socket reaches IPv4 by mapped
/// addresses (RFC 3493, section 3.7). [`farcall_base::canonical`] converts it back.
#[inline(always)]
fn reach(to: &SocketAddr, v6: bool) -> SocketAddr {
    match to {
        SocketAddr::V4(to) if v6 => SocketAddr::new(to.ip().to_ipv6_mapped().into(), to.port()),
        _ => *to,
    }
}

/// The receive time-out of a socket. It is changed only when it must be, because each change is a system
/// call.
#[derive(Default)]
struct Timeout {
    /// The time-out in nanoseconds; 0 for none.
    current: AtomicU64,
}

impl Timeout {
    /// Returns the time-out to set before a wait, or `None` if the present one will do.
    ///
    /// To wake early is harmless, because the caller checks the clock. So the present time-out will do if it
    /// is at least half of the wait, and at most an eighth longer.
    fn change(&self, wait: Wait) -> Option<Duration> {
        let current = self.current.load(Ordering::Relaxed);
        let Wait::Nanos(wanted) = wait else { return None };
        let wanted = wanted.max(1_000);
        if current >= wanted / 2 && current - wanted / 8 <= wanted {
            return None;
        }
        self.current.store(wanted, Ordering::Relaxed);
        Some(Duration::from_nanos(wanted))
    }

    /// Returns whether to remove the time-out, after it has ended a wait that should have no limit.
    fn ends_after(&self, wait: Wait) -> bool {
        wait == Wait::Forever && self.current.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Env, Received, Socket, SocketOptions};
    use crate::system::System;
    use std::sync::Arc;

    fn socket(address: &str) -> Arc<dyn Socket> {
        let options = SocketOptions { spin: Duration::ZERO, buffer: 1 << 20, ..SocketOptions::default() };
        System.bind(address.parse().unwrap(), &options).unwrap()
    }

    fn exchange(address: &str) {
        let (a, b) = (socket(address), socket(address));
        let mut buffer = [0; 64];
        assert_eq!(a.receive(&mut buffer, Wait::No).unwrap(), Received::TimedOut);
        assert_eq!(a.receive_awake(&mut buffer, Duration::ZERO).unwrap(), Received::TimedOut);
        b.send(a.local_address(), b"hello").unwrap();
        let hello = Received::Datagrams { from: b.local_address(), len: 5, each: 5 };
        assert_eq!(a.receive(&mut buffer, Wait::Nanos(60_000_000_000)).unwrap(), hello);
        assert_eq!(&buffer[..5], b"hello");
        b.send(a.local_address(), b"again").unwrap();
        assert_eq!(a.receive_awake(&mut buffer, Duration::MAX).unwrap(), hello);
        assert_eq!(&buffer[..5], b"again");
        b.send_train(a.local_address(), b"abcde", 2).unwrap();
        let sizes = [2, 2, 1].map(|len| Received::Datagrams { from: b.local_address(), len, each: len });
        for size in sizes {
            assert_eq!(a.receive(&mut buffer, Wait::Forever).unwrap(), size);
        }
        a.wake();
        assert_eq!(a.receive(&mut buffer, Wait::Forever).unwrap(), Received::Woken);
    }

    #[test]
    fn datagrams_cross_over_ipv4() {
        exchange("127.0.0.1:0");
    }

    #[test]
    fn datagrams_cross_over_ipv6() {
        if std::net::UdpSocket::bind("[::1]:0").is_err() {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "skipped: no IPv6 here");
            return;
        }
        exchange("[::1]:0");
    }

    #[test]
    #[cfg(all(target_os = "linux", not(farcall_portable)))]
    fn a_connected_socket_hears_one_alone_until_it_is_woken() {
        let [a, b, c] = [(); 3].map(|()| socket("127.0.0.1:0"));
        let from = |socket: &Arc<dyn Socket>, len| Received::Datagrams {
            from: socket.local_address(),
            len,
            each: len,
        };
        let mut buffer = [0; 64];
        a.connect(Some(b.local_address()));
        a.send(b.local_address(), b"hello").unwrap();
        assert_eq!(b.receive(&mut buffer, Wait::Forever).unwrap(), from(&a, 5));
        c.send(a.local_address(), b"me too").unwrap(); // refused: an ICMP error, perhaps, which only hints
        b.send(a.local_address(), b"you").unwrap();
        assert_eq!(a.receive(&mut buffer, Wait::Forever).unwrap(), from(&b, 3));
        a.wake();
        assert_eq!(a.receive(&mut buffer, Wait::Forever).unwrap(), Received::Woken);
        c.send(a.local_address(), b"me too").unwrap();
        assert_eq!(a.receive(&mut buffer, Wait::Forever).unwrap(), from(&c, 6));
        a.send(c.local_address(), b"same port").unwrap();
        let mut received = c.receive(&mut buffer, Wait::Forever).unwrap();
        if let Received::Refused(..) = received {
            received = c.receive(&mut buffer, Wait::Forever).unwrap();
        }
        assert_eq!(received, from(&a, 9));
    }

    #[test]
    fn a_train_arrives_whole_and_can_be_taken_apart() {
        for (wildcard, loopback) in [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "[::1]")] {
            let options = SocketOptions { spin: Duration::ZERO, buffer: 1 << 20, ..SocketOptions::default() };
            let Ok(a) = System.bind(wildcard.parse().unwrap(), &options) else { continue };
            if std::net::UdpSocket::bind(format!("{loopback}:0")).is_err() {
                continue;
            }
            let b = socket(wildcard);
            let to = format!("{loopback}:{}", b.local_address().port()).parse().unwrap();
            // Each batch is longer than the kernel takes at once: the first in bytes, the second in
            // datagrams.
            for (each, len) in [(1_200, 100_001), (100, 7_950)] {
                let sent: Vec<u8> = (0..len).map(|n| n as u8).collect();
                a.send_train(to, &sent, each).unwrap();
                let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
                while got.len() < len {
                    let received = b.receive(&mut buffer, Wait::Forever).unwrap();
                    let Received::Datagrams { from, len, each: size } = received else { continue };
                    assert_eq!(from.port(), a.local_address().port());
                    for place in crate::env::train(len, size) {
                        assert!(place.len() == each || got.len() + place.len() == sent.len());
                        got.extend_from_slice(&buffer[place]);
                    }
                }
                assert!(got == sent);
            }
        }
    }

    #[test]
    fn a_wildcard_socket_wakes_itself() {
        let a = socket("0.0.0.0:0");
        a.wake();
        assert_eq!(a.receive(&mut [0; 8], Wait::Forever).unwrap(), Received::Woken);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(farcall_portable)))]
    fn a_closed_port_is_a_hint_that_names_the_address() {
        // The socket is at an address that no other test uses, because another test's socket could get the
        // port when it is free.
        let gone = socket("127.0.7.5:0").local_address();
        let (a, b) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
        a.send(gone, b"anybody?").unwrap();
        let mut quoted = [0; 16];
        assert_eq!(a.receive(&mut quoted, Wait::Forever).unwrap(), Received::Refused(gone, 8));
        assert_eq!(&quoted[..8], b"anybody?");
        a.send(gone, b"anybody?").unwrap();
        a.send(b.local_address(), b"you?").unwrap(); // the error that waits does not stop this
        let asked = Received::Datagrams { from: a.local_address(), len: 4, each: 4 };
        assert_eq!(b.receive(&mut [0; 8], Wait::Forever).unwrap(), asked);
    }

    #[test]
    fn the_time_out_changes_only_when_it_must() {
        let (t, ms) = (Timeout::default(), Duration::from_millis);
        let wait = |millis: u64| Wait::Nanos(millis * 1_000_000);
        assert_eq!(t.change(wait(20)), Some(ms(20)));
        assert_eq!(t.change(wait(20)), None);
        assert_eq!(t.change(wait(19)), None);
        assert_eq!(t.change(wait(39)), None);
        assert_eq!(t.change(Wait::Forever), None);
        assert_eq!(t.change(wait(100)), Some(ms(100)));
        assert_eq!(t.change(wait(20)), Some(ms(20)));
        assert!(!t.ends_after(wait(20)));
        assert!(t.ends_after(Wait::Forever));
        assert!(!t.ends_after(Wait::Forever));
    }
}
