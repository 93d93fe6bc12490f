//! A server's UDP socket: a datagram is a call, and so is the reply.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farcall::fair::{FairQueue, Waits};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recvfrom, sendmsg_addr, sendto, sockopt};

use super::crew::{Crew, Post, Seat, WatchList};
use super::hosts::Key;
use super::outgoing::Outgoing;
use super::peer::{Peer, Transport};
use super::programs::{Programs, Verdict};

/// The longest datagram.
pub(super) const LONGEST: usize = 65_507;
/// As much as the system grants of this is asked for: clients send again only after a second or more.
const BUFFER: usize = 4 << 20;

/// The socket.
pub(super) struct Datagrams {
    socket: UdpSocket,
    local: SocketAddr,
    /// The socket is at all of the host's addresses, and the system says at which each datagram arrived.
    several: bool,
    spin: Duration,
    list: Arc<WatchList>,
    crew: Arc<Crew>,
    programs: Arc<Programs>,
    /// Calls that are put aside because their hosts have their share of the calls that execute; and how many
    /// there are.
    aside: Mutex<FairQueue<Aside>>,
    put_aside: AtomicUsize,
}

/// The most calls that are put aside, and the most bytes of them. Beyond that the newest call of the host
/// that has most is lost, as any datagram may be.
const MOST_ASIDE: usize = 1024;
const MOST_BYTES_ASIDE: usize = 4 << 20;

/// A call that was put aside.
struct Aside {
    message: Vec<u8>,
    asker: Asker,
}

impl Waits for Aside {
    type Payer = Key;
    type Caller = SocketAddr;
    type Key = ();

    fn key(&self) {}

    fn payer(&self) -> Key {
        Key::at(self.asker.from.ip())
    }

    fn caller(&self) -> SocketAddr {
        self.asker.from
    }

    fn bytes(&self) -> usize {
        self.message.len()
    }
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
        let (crew, programs, local) = (crew.clone(), programs.clone(), socket.local_addr()?);
        let several = local.ip().is_unspecified() && reports_destinations(&socket, &local);
        let aside = Mutex::new(FairQueue::new(MOST_ASIDE, MOST_BYTES_ASIDE));
        let (list, put_aside) = (Arc::default(), AtomicUsize::new(0));
        Ok(Datagrams { local, several, socket, spin, list, crew, programs, aside, put_aside })
    }

    /// Waits for a datagram: its length, and who asks.
    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> Option<(usize, Asker)> {
        if !self.spin.is_zero()
            && let Some(received) = self.receive_spinning(buffer)
        {
            return Some(received);
        }
        match self.receive_once(buffer, true) {
            Ok(received) => received,
            Err(Errno::INTR) => None,
            Err(_) => {
                // The system lacks memory, or the device is down: it will say so again at once.
                std::thread::sleep(Duration::from_millis(10));
                None
            }
        }
    }

    #[inline]
    fn receive_once(&self, buffer: &mut [u8], wait: bool) -> Result<Option<(usize, Asker)>, Errno> {
        if self.several {
            return receive_message(&self.socket, buffer, wait);
        }
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let (_, len, from) = recvfrom(&self.socket, buffer, flags)?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        Ok(from.map(|from| (len, Asker { from, at: None })))
    }

    #[inline(never)]
    fn receive_spinning(&self, buffer: &mut [u8]) -> Option<(usize, Asker)> {
        /// An empty look costs about 400 ns, the clock a tenth of that.
        const LOOKS: u32 = 16;
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for _ in 0..LOOKS {
                if let Ok(Some(received)) = self.receive_once(buffer, false) {
                    return Some(received);
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

    /// Puts a call aside if its host has its share of the calls that execute. Returns false if the call is to
    /// be served now.
    #[cold]
    fn put_aside(&self, message: &[u8], asker: &Asker) -> bool {
        if self.crew.may_execute(Key::at(asker.from.ip()).number()) {
            return false;
        }
        let mut aside = self.lock();
        // A call that lost its place is sent again by its client.
        drop(aside.push(Aside { message: message.to_vec(), asker: *asker }, false));
        // If another call has ended meanwhile, this thread serves the call before it waits.
        self.put_aside.store(aside.len(), Ordering::SeqCst);
        true
    }

    /// Serves calls that were put aside, as many as their hosts' shares allow.
    #[cold]
    fn serve_aside(&self, seat: &Seat, reply: &mut Outgoing) {
        let next = || {
            let mut aside = self.lock();
            let next = aside.pop_if(|aside| self.crew.may_execute(aside.payer().number()));
            self.put_aside.store(aside.len(), Ordering::SeqCst);
            next
        };
        while !self.crew.is_stopped()
            && let Some(Aside { message, asker }) = next()
        {
            self.crew.guard();
            self.serve(seat, &message, &asker, reply);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue<Aside>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one datagram.
    #[inline]
    fn serve(&self, seat: &Seat, message: &[u8], asker: &Asker, reply: &mut Outgoing) {
        let peer = Peer::at(Transport::Udp, Some(asker.from));
        let wanted = match self.programs.examine(message, &peer, reply) {
            Verdict::Unreadable | Verdict::Drop => false,
            Verdict::Answered => true,
            Verdict::Run(admitted) => {
                if admitted.is_slow() {
                    self.crew.relieve(&self.list);
                }
                let pace = admitted.pace();
                let run = || self.programs.run(admitted, &peer, None, reply);
                let host = Key::at(asker.from.ip()).number();
                let (wanted, relieved) = self.list.execute(|| seat.run_for(host, run));
                if relieved {
                    pace.overdue();
                }
                wanted
            }
        };
        if wanted {
            self.send(asker, reply);
        }
        reply.clear();
        self.programs.forget();
    }

    /// Sends a reply. What cannot be sent is lost, as datagrams are.
    #[inline]
    fn send(&self, to: &Asker, reply: &Outgoing) {
        let parts = reply.parts();
        for _ in 0..4 {
            let sent = match parts {
                parts if to.at.is_some() => send_from(&self.socket, to, &parts.map(IoSlice::new)),
                [all, [], []] => sendto(&self.socket, all, SendFlags::empty(), &to.from),
                parts => {
                    let parts = parts.map(IoSlice::new);
                    let control = &mut SendAncillaryBuffer::default();
                    sendmsg_addr(&self.socket, &to.from, &parts, control, SendFlags::empty())
                }
            };
            // The error of an earlier datagram, to somebody else, perhaps.
            if !matches!(sent, Err(Errno::INTR | Errno::CONNREFUSED)) {
                return;
            }
        }
    }
}

/// Who sent a datagram.
#[derive(Clone, Copy)]
struct Asker {
    from: SocketAddr,
    /// The address of this host that the peer asked, if it is known and has to be the answer's source. A peer
    /// accepts no answer from another address, and firewalls drop it.
    at: Option<IpAddr>,
}

/// Whether each datagram comes from now on with the address at which it arrived.
#[cfg(target_os = "linux")]
fn reports_destinations(socket: &UdpSocket, local: &SocketAddr) -> bool {
    farcall::sys::report_destinations(socket, local.is_ipv6()).is_ok()
}

#[cfg(target_os = "linux")]
fn receive_message(
    socket: &UdpSocket,
    buffer: &mut [u8],
    wait: bool,
) -> Result<Option<(usize, Asker)>, Errno> {
    let incoming = farcall::sys::receive(socket, buffer, wait).map_err(errno)?;
    let at = incoming.at.filter(|at| !at.is_multicast());
    Ok(incoming.from.map(|from| (incoming.len, Asker { from, at })))
}

/// Answers from the address that was asked, or, if the host has that no longer, from the one that the system
/// chooses.
#[cfg(target_os = "linux")]
fn send_from(socket: &UdpSocket, to: &Asker, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let send = |source| {
        let outgoing = farcall::sys::Outgoing { to: Some(&to.from), source, parts, each: None };
        farcall::sys::send(socket, &outgoing).map_err(errno)
    };
    match send(to.at) {
        Err(Errno::INVAL | Errno::ADDRNOTAVAIL) => send(None),
        sent => sent,
    }
}

#[cfg(target_os = "linux")]
fn errno(why: io::Error) -> Errno {
    Errno::from_io_error(&why).unwrap_or(Errno::IO)
}

/// Only Linux is asked.
#[cfg(not(target_os = "linux"))]
fn reports_destinations(_: &UdpSocket, _: &SocketAddr) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn receive_message(_: &UdpSocket, _: &mut [u8], _: bool) -> Result<Option<(usize, Asker)>, Errno> {
    Err(Errno::INVAL)
}

#[cfg(not(target_os = "linux"))]
fn send_from(_: &UdpSocket, _: &Asker, _: &[IoSlice<'_>]) -> Result<usize, Errno> {
    Err(Errno::INVAL)
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
        loop {
            if self.put_aside.load(Ordering::SeqCst) > 0 {
                self.serve_aside(seat, &mut reply);
            }
            if !self.list.arrive(self.enough()) {
                return;
            }
            let received = if self.crew.is_stopped() { None } else { self.receive(&mut buffer) };
            let deserted = self.list.leave();
            if self.crew.is_stopped() {
                return self.wake();
            }
            let Some((len, asker)) = received else { continue };
            if deserted || (!self.crew.is_guarded() && brisk.one_more()) {
                self.crew.guard();
            }
            let message = buffer.get(..len).unwrap_or_default();
            if self.crew.is_busy() && !message.is_empty() && self.put_aside(message, &asker) {
                continue;
            }
            self.serve(seat, message, &asker, &mut reply);
        }
    }

    fn watch_list(&self) -> &Arc<WatchList> {
        &self.list
    }

    fn look_aside(&self) {
        if self.put_aside.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
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
