//! The seam to the operating system: time, sockets, threads, events and entropy, behind the trait [`Env`].
//!
//! Everything in farcall that waits, reads the clock, draws a random number or depends on the machine does so
//! through an [`Env`]. [`System`](crate::System) implements it by the operating system. `farcall-sim`
//! implements it by a simulated network, in which a seed decides everything. Three rules make the simulation
//! possible:
//!
//! - A thread waits only in [`Socket::receive`], [`Event::wait`], `Stream::read`, `Poller::wait` and
//!   `Env::wait_any`.
//! - A thread that waits there holds no mutex that another thread locks. All other methods here, such as
//!   [`Event::set`], [`Socket::send`] and `Stream::write`, never wait.
//! - Only [`Env::spawn`] starts threads.

mod condition;
mod reports;
#[cfg(unix)]
mod streams;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use condition::{Condition, thread_event};
pub use farcall_base::{Obstacle, Time};
pub use reports::{
    MAX_REPORTS_IN_A_ROW, is_network_report, is_of_one_connection, obstacle, quoted, quoting, rest,
};
#[cfg(unix)]
pub use streams::{
    Accepted, Address, Alarm, ConnectOptions, Interest, Listener, PeerState, Poller, Source, Stream, Wanted,
};

/// All services of the operating system that farcall uses.
pub trait Env: Send + Sync + 'static {
    /// Returns the time of a monotonic clock that counts the time that the machine sleeps (`CLOCK_BOOTTIME`
    /// on Linux).
    fn now(&self) -> Time;

    /// Returns a datagram socket bound to `address`. Port 0 stands for any free port.
    ///
    /// # Errors
    /// The operating system's error.
    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>>;

    /// Runs `run` in a new thread, which cannot be joined.
    ///
    /// # Errors
    /// The system can start no more threads.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Runs `run` in a new thread as [`spawn`](Env::spawn) does. Where threads compete for a processor, this
    /// one gets less of it than the others.
    ///
    /// # Errors
    /// The system can start no more threads.
    fn spawn_background(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.spawn(name, run)
    }

    /// Returns the rule that is broken on purpose here, if any.
    #[cfg(feature = "mutants")]
    #[doc(hidden)]
    fn mutant(&self) -> crate::broken::Mutant {
        crate::broken::Mutant::NONE
    }

    /// Returns an event that is not set.
    fn event(&self) -> Arc<dyn Event>;

    /// Returns the number by which [`Env::sleeps`] finds the calling thread, or `None` if nobody can tell
    /// what the thread does.
    fn thread_number(&self) -> Option<u32> {
        None
    }

    /// Returns whether the thread with this number sleeps: it waits for time, another thread or a device, and
    /// takes no processor. Returns false if that is not known.
    fn sleeps(&self, _thread: u32) -> bool {
        false
    }

    /// Fills `out` with unpredictable bytes.
    fn entropy(&self, out: &mut [u8]);

    /// Returns the seconds since the beginning of 1970, by the machine's clock. Only the expiry of keys
    /// depends on it.
    fn unix_seconds(&self) -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }

    /// Tells the user something that concerns no call in particular: on standard error, in a line that begins
    /// with `farcall: `. Does not fail if standard error is closed.
    fn say(&self, line: &str) {
        crate::messages::say(line);
    }

    /// Returns the identifier of this process, which no other running process of the machine has.
    fn process_id(&self) -> u32 {
        std::process::id()
    }

    /// Returns whether datagrams to this address never leave the machine, so that no network can corrupt
    /// them.
    fn is_loopback(&self, address: SocketAddr) -> bool {
        address.ip().is_loopback()
    }

    /// Returns the address from which this machine sends to `to` if the socket is bound to none. Sends
    /// nothing.
    ///
    /// # Errors
    /// There is no route to that address.
    fn source_address(&self, to: IpAddr) -> io::Result<IpAddr> {
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        // Connecting a UDP socket only looks up the route. The port does not matter; 9 is the discard
        // service.
        socket.connect((to, 9))?;
        Ok(socket.local_addr()?.ip())
    }

    /// Resolves a host name to its addresses, best first. May block for as long as the system's resolver
    /// does, so farcall calls it in a thread of its own and waits for that thread with a deadline.
    ///
    /// # Errors
    /// The name is unknown, or cannot be resolved at the moment.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    /// Returns whether services (SRV records) may be looked up in DNS. A simulation has no DNS, and must not
    /// ask the real one.
    fn has_dns(&self) -> bool {
        true
    }

    /// Returns how many threads can run at the same time, at least 1.
    fn processors(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Returns whether processes of this machine can share memory. They cannot in a simulation.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Connects to a server. A TCP connection may still be in progress when this returns. It becomes writable
    /// when it is established or has failed; [`Stream::take_error`] tells which.
    ///
    /// # Errors
    /// The operating system's error, or [`io::ErrorKind::TimedOut`] if [`ConnectOptions::within`] has passed.
    #[cfg(unix)]
    fn connect(&self, to: &Address, options: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
        let _ = (to, options);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Listens for connections at a TCP address or a Unix socket. Port 0 stands for any free port.
    ///
    /// # Errors
    /// The operating system's error.
    #[cfg(unix)]
    fn listen(&self, at: &Address) -> io::Result<Arc<dyn Listener>> {
        let _ = at;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns a poller without sources.
    ///
    /// # Errors
    /// The operating system's error.
    #[cfg(unix)]
    fn poller(&self) -> io::Result<Arc<dyn Poller>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns an alarm that is not set.
    ///
    /// # Errors
    /// The operating system's error.
    #[cfg(unix)]
    fn alarm(&self) -> io::Result<Arc<dyn Alarm>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns an alarm that is not set, and whose descriptor can raise SIGIO. It may take more descriptors
    /// than other alarms, and more time.
    ///
    /// # Errors
    /// The operating system's error.
    #[cfg(unix)]
    fn signalling_alarm(&self) -> io::Result<Arc<dyn Alarm>> {
        self.alarm()
    }

    /// Waits until one of these sources is ready, or `timeout` has passed, and sets [`Wanted::ready`] of
    /// each. A source with an error is ready for all of its [`Wanted::interest`].
    ///
    /// # Errors
    /// The operating system's error. [`io::ErrorKind::Interrupted`] may occur at any time: try again.
    #[cfg(unix)]
    fn wait_any(&self, wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let _ = (wanted, timeout);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns a variable of the process's environment.
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    /// Returns the names of the variables of the process's environment.
    fn variable_names(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
    }
}

/// The options of a datagram socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketOptions {
    /// How long a receiving thread polls for a datagram before it blocks. Zero blocks at once.
    pub spin: Duration,
    /// The size of the receive buffer and of the send buffer to request, in bytes. The system may grant less.
    pub buffer: usize,
    /// Whether the socket answers its peers, as a server's does. If such a socket is bound to all addresses
    /// of its host, it sends to each peer from the address to which that peer sent. The network's reports
    /// about its peers are not received.
    pub answers: bool,
    /// Whether the network may fragment datagrams that are longer than the path's MTU. Such a socket receives
    /// one datagram at a time and no ICMP errors. If it is bound to an IPv6 address, it does not speak IPv4.
    pub divisible: bool,
}

/// A datagram socket. Any number of threads may use it at the same time.
pub trait Socket: Send + Sync + 'static {
    /// Sends one datagram. The network may lose it without an error.
    ///
    /// # Errors
    /// The operating system's error. The datagram was not sent.
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()>;

    /// Sends a batch: several datagrams that stand in `train`, of `each` bytes; the last one may be shorter.
    ///
    /// # Errors
    /// The operating system's error. Some of the datagrams may have been sent.
    fn send_train(&self, to: SocketAddr, train: &[u8], each: usize) -> io::Result<()> {
        train.chunks(each.max(1)).try_for_each(|datagram| self.send(to, datagram))
    }

    /// Sends one datagram that is the concatenation of these parts.
    ///
    /// # Errors
    /// The operating system's error. The datagram was not sent.
    fn send_parts(&self, to: SocketAddr, parts: [&[u8]; 3]) -> io::Result<()> {
        self.send(to, &parts.concat())
    }

    /// Waits for a datagram or a batch. Polls for [`SocketOptions::spin`] first.
    ///
    /// # Errors
    /// The operating system's error, unless [`Received`] has a variant for it.
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received>;

    /// Waits for a datagram or a batch without polling first, because other threads need the processor.
    ///
    /// # Errors
    /// The operating system's error, unless [`Received`] has a variant for it.
    fn receive_at_rest(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        self.receive(buffer, wait)
    }

    /// Polls for a datagram or a batch for about `within`. The thread never sleeps, so the sender need not
    /// wake it.
    ///
    /// # Errors
    /// The operating system's error, unless [`Received`] has a variant for it.
    fn receive_awake(&self, buffer: &mut [u8], _within: Duration) -> io::Result<Received> {
        self.receive(buffer, Wait::No)
    }

    /// Connects the socket to one peer, or disconnects it if `to` is `None`. A connected socket exchanges
    /// datagrams with that peer alone, which saves the kernel a route lookup per send. [`Socket::wake`]
    /// disconnects it too. This is a hint: an implementation may ignore it, and connects a socket at most
    /// once in its life.
    fn connect(&self, _to: Option<SocketAddr>) {}

    /// Makes one thread return [`Received::Woken`] from [`Socket::receive`]: a thread that is there now, or
    /// else the next one.
    fn wake(&self);

    /// Returns the source by which a thread can wait for this socket together with others, if it has one.
    #[cfg(unix)]
    fn source(&self) -> Option<Source<'_>> {
        None
    }

    /// Returns the address to which the socket is bound.
    fn local_address(&self) -> SocketAddr;

    /// Returns the size of the receive buffer that the system granted, in bytes.
    fn receive_buffer(&self) -> usize;
}

/// How long to wait for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Do not wait: receive only a datagram that has arrived already.
    No,
    /// Wait for about this many nanoseconds. The wait may be a little longer. It may be half as long if that
    /// saves a system call.
    Nanos(u64),
    /// Wait without a limit.
    Forever,
}

/// Why [`Socket::receive`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// One datagram, or a batch of datagrams from one sender, has arrived.
    Datagrams {
        /// The sender. An IPv6 socket too gives an IPv4 address as such, not mapped. [`Socket::send`] takes
        /// it in this form.
        from: SocketAddr,
        /// The length of all datagrams together, in bytes. They stand at the beginning of the buffer.
        len: usize,
        /// The length of each datagram in bytes. The last one may be shorter.
        each: usize,
    },
    /// No datagram arrived in time.
    TimedOut,
    /// [`Socket::wake`] was called, or a signal arrived. May also be returned for no reason.
    Woken,
    /// The network reports that this address, to which the socket had sent, cannot be reached, and
    /// why, if it says so. This is only a hint, and anybody can forge it.
    Unreachable(SocketAddr, Option<Obstacle>),
    /// The network reports that no socket is bound to this address. The report quotes a datagram that was
    /// sent there: the second field is the length of the quotation in bytes, and the buffer begins with it.
    /// An attacker who has seen the datagram can forge the report.
    Refused(SocketAddr, usize),
}

/// Returns the rule that is broken on purpose in the environment `env`, if any.
#[doc(hidden)]
#[inline(always)]
pub fn mutant(env: impl FnOnce() -> Arc<dyn Env>) -> crate::broken::Mutant {
    #[cfg(feature = "mutants")]
    return env().mutant();
    #[cfg(not(feature = "mutants"))]
    {
        let _ = env;
        crate::broken::Mutant::NONE
    }
}

/// Returns whether a rule is broken on purpose in the environment `env`.
#[doc(hidden)]
#[inline(always)]
pub fn breaks(rule: crate::broken::Rule, env: impl FnOnce() -> Arc<dyn Env>) -> bool {
    mutant(env).breaks(rule)
}

/// A flag that a thread can wait for. The end of a wait clears it.
pub trait Event: Send + Sync + 'static {
    /// Sets the flag, and wakes one thread that waits for it. Never blocks.
    fn set(&self);

    /// Waits until the flag is set, clears it, and returns true. Returns false if `timeout` passes first.
    fn wait(&self, timeout: Option<Duration>) -> bool;
}

/// Returns the range of `whole` that `part` borrows, or `None` if `part` lies elsewhere. So a caller can find
/// a part of a datagram again when the borrow has ended.
pub fn place(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// Returns the range of each datagram in a batch of `len` bytes, whose datagrams have `each` bytes but for
/// the last.
pub fn train(len: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = len.min(start + each.max(1));
        (start < len).then(|| std::mem::replace(&mut start, end)..end)
    })
}
