//! A server's UDP socket: a datagram is a call, and so is the reply.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, recvfrom, sendmsg_addr, sendto, sockopt};

use super::caller::{Peer, Transport};
use super::crew::{Crew, Post, Seat, WatchList};
use super::outgoing::Outgoing;
use super::programs::{Programs, Verdict};

/// The longest datagram.
pub(super) const LONGEST: usize = 65_507;
/// As much as the system grants of this is asked for: clients send again only after a second or more.
const BUFFER: usize = 4 << 20;

/// The socket.
pub(super) struct Datagrams {
    socket: UdpSocket,
    local: SocketAddr,
    spin: Duration,
    list: Arc<WatchList>,
    crew: Arc<Crew>,
    programs: Arc<Programs>,
}

impl Datagrams {
    pub(super) fn new(
        socket: UdpSocket,
        spin: Duration,
        crew: &Arc<Crew>,
        programs: &Arc<Programs>,
    ) -> io::Result<Datagrams> {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
        let (crew, programs) = (crew.clone(), programs.clone());
        Ok(Datagrams { local: socket.local_addr()?, socket, spin, list: Arc::default(), crew, programs })
    }

    /// Waits for a datagram: its length, and whom it is from.
    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddrAny)> {
        if !self.spin.is_zero()
            && let Some(received) = self.receive_spinning(buffer)
        {
            return Some(received);
        }
        match recvfrom(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, len, Some(from))) => Some((len, from)),
            Ok(_) | Err(Errno::INTR) => None,
            Err(_) => {
                // The system lacks memory, or the device is down: it will say so again at once.
                std::thread::sleep(Duration::from_millis(10));
                None
            }
        }
    }

    #[inline(never)]
    fn receive_spinning(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddrAny)> {
        /// An empty look costs about 400 ns, the clock a tenth of that.
        const LOOKS: u32 = 16;
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for _ in 0..LOOKS {
                if let Ok((_, len, Some(from))) = recvfrom(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                    return Some((len, from));
                }
            }
        }
        None
    }

    /// How many are to wait: two while calls are rare, so that one of them may execute whatever comes, and the keeper sleep.
    /// Where calls come fast, to look after one costs less than to change between two.
    #[inline]
    fn enough(&self) -> usize {
        if self.spin.is_zero() && !self.crew.is_guarded() { 2 } else { 1 }
    }

    /// Serves one datagram.
    #[inline]
    fn serve(&self, seat: &Seat, message: &[u8], from: &SocketAddrAny, reply: &mut Outgoing) {
        let Ok(address) = SocketAddr::try_from(from.clone()) else { return };
        let peer = Peer { transport: Transport::Udp, address: Some(address), user: None, connection: None };
        let wanted = match self.programs.examine(message, &peer, reply) {
            Verdict::Unreadable | Verdict::Drop => false,
            Verdict::Answered => true,
            Verdict::Run(admitted) => {
                if admitted.is_slow() {
                    self.crew.relieve(&self.list);
                }
                let pace = admitted.pace();
                let run = || self.programs.run(admitted, &peer, None, reply);
                let (wanted, relieved) = self.list.execute(|| seat.run(run));
                if relieved {
                    pace.overdue();
                }
                wanted
            }
        };
        if wanted {
            self.send(from, reply);
        }
        reply.clear();
        self.programs.forget();
    }

    /// Sends a reply. What cannot be sent is lost, as datagrams are.
    #[inline]
    fn send(&self, to: &SocketAddrAny, reply: &Outgoing) {
        let parts = reply.parts();
        for _ in 0..4 {
            let sent = match parts {
                [all, [], []] => sendto(&self.socket, all, SendFlags::empty(), to),
                parts => {
                    let parts = parts.map(IoSlice::new);
                    sendmsg_addr(&self.socket, to, &parts, &mut SendAncillaryBuffer::default(), SendFlags::empty())
                }
            };
            // The error of an earlier datagram, to somebody else, perhaps.
            if !matches!(sent, Err(Errno::INTR | Errno::CONNREFUSED)) {
                return;
            }
        }
    }
}

/// Counts what comes to one of two who wait: whether that is worth a keeper.
#[derive(Default)]
struct Brisk {
    calls: u32,
    since: Option<Instant>,
}

impl Brisk {
    fn one_more(&mut self) -> bool {
        /// So many within that time are.
        const ENOUGH: (u32, Duration) = (16, Duration::from_micros(1600));
        self.calls += 1;
        if self.calls < ENOUGH.0 {
            return false;
        }
        let now = Instant::now();
        self.calls = 0;
        self.since.replace(now).is_some_and(|since| now.saturating_duration_since(since) < ENOUGH.1)
    }
}

impl Post for Datagrams {
    fn watch(&self, seat: &Arc<Seat>) {
        let mut buffer = vec![0; LONGEST + 1];
        let mut reply = Outgoing::datagram(LONGEST);
        let mut brisk = Brisk::default();
        while self.list.arrive(self.enough()) {
            let received = if self.crew.is_stopped() { None } else { self.receive(&mut buffer) };
            let deserted = self.list.leave();
            if self.crew.is_stopped() {
                return self.wake();
            }
            let Some((len, from)) = received else { continue };
            if deserted || (!self.crew.is_guarded() && brisk.one_more()) {
                self.crew.guard();
            }
            let message = buffer.get(..len).unwrap_or_default();
            self.serve(seat, message, &from, &mut reply);
        }
    }

    fn watch_list(&self) -> &Arc<WatchList> {
        &self.list
    }

    fn wake(&self) {
        let ip = match self.local.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        // An empty datagram. If the buffer is full it may be lost, but then there is something to receive.
        let _ = self.socket.send_to(&[], SocketAddr::new(ip, self.local.port()));
    }
}
