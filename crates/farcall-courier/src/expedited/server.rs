//! A server of programs at one UDP port.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall::System;
use farcall::env::{Env, Socket};
use farcall::stopper::Stopper;
use farcall::stub::Program;

use super::memory::Memory;
use super::serving::Serving;
use super::{MAX_PACKET_BYTES, MIN_PACKET_BYTES, PACKET_BYTES};
use crate::codec::Limits;
use crate::dialect::report::{Reporter, Trouble};
use crate::server::datagrams::{Answers as _, Datagrams};
use crate::server::programs::{NotOffered, Offer, Programs};
use crate::wire::exchange::HEADER_BYTES;

/// The bytes of a return before the words of the results.
const RETURN_BYTES: usize = 4;

/// A running server of expedited calls. It serves its programs until it is dropped.
pub struct Server {
    serving: Arc<Datagrams<Serving>>,
    address: SocketAddr,
    reporter: Reporter,
    stopper: Stopper,
}

impl Server {
    /// Begins the configuration of a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Serves until the process ends or another thread calls [`Stopper::stop`].
    pub fn wait(self) {
        self.stopper.wait();
    }

    /// Serves until the process is asked to end, by SIGTERM or SIGINT, or until [`Stopper::stop`] is called.
    /// Then [drains](Server::drain) the server, at most 25 s, and returns. This is the line with which the
    /// `main` of a server ends. From its first call on the two signals do nothing else; a second one ends the
    /// process.
    ///
    /// # Errors
    /// When calls had not ended after 25 s, or the system lets no thread take the signals.
    #[cfg(feature = "signals")]
    pub fn until_signal(self) -> farcall::Result<()> {
        let stopper = self.stopper();
        farcall::signals::serve_until_signal(&stopper, |time| self.drain(time))
    }

    /// Receives no more calls, and waits until those that have begun are answered, but no longer than `time`.
    /// Returns whether they are.
    pub fn drain(self, time: Duration) -> bool {
        self.serving.drain(time)
    }

    /// Returns a handle with which another thread can end [`Server::wait`].
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many calls were executed. Calls that were rejected do not count.
    pub fn calls(&self) -> u64 {
        self.reporter.calls()
    }

    /// Returns how many troubles there were: [`ServerBuilder::on_trouble`].
    pub fn troubles(&self) -> u64 {
        self.reporter.troubles()
    }
}

/// When the drop returns, no thread waits for packets any more. Procedures that still run end by themselves,
/// and their replies are sent.
impl Drop for Server {
    fn drop(&mut self) {
        self.serving.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The configuration of a [`Server`].
#[must_use]
pub struct ServerBuilder {
    env: Arc<dyn Env>,
    programs: Programs,
    /// Why the first interface that cannot be served is not.
    refused: Option<NotOffered>,
    place: Option<SocketAddr>,
    workers: usize,
    packet_bytes: usize,
    remembered: (usize, Duration),
    reporter: Reporter,
}

impl Default for ServerBuilder {
    fn default() -> ServerBuilder {
        ServerBuilder {
            env: System::current(),
            programs: Programs::default(),
            refused: None,
            place: None,
            workers: 1,
            packet_bytes: PACKET_BYTES,
            remembered: (4096, Duration::from_secs(120)),
            reporter: Reporter::default(),
        }
    }
}

impl ServerBuilder {
    /// Serves an interface under its program and version number. A server can serve several interfaces, and
    /// several versions of one. If Courier cannot say the interface, [`ServerBuilder::start`] fails.
    pub fn program<T: ?Sized + Program>(mut self, server: Arc<T>) -> Self {
        match Offer::new(server) {
            Ok(offer) => self.programs.add(offer),
            Err(why) => self.refused = self.refused.or(Some(why)),
        }
        self
    }

    /// Serves this address. With port 0 the system chooses a free port.
    pub fn udp(mut self, address: SocketAddr) -> Self {
        self.place = Some(address);
        self
    }

    /// Sets how many threads execute calls; 1 by default. Further packets wait in the socket, which loses
    /// those for which it has no room.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count.clamp(1, 1024);
        self
    }

    /// Sets the most bytes of a packet, of calls and replies; [`PACKET_BYTES`] by default. The least limit is
    /// 64, and the greatest 65,507.
    pub fn packets(mut self, max_bytes: usize) -> Self {
        self.packet_bytes = max_bytes.clamp(MIN_PACKET_BYTES, MAX_PACKET_BYTES);
        self
    }

    /// Sets how many replies are remembered, and for how long; 4,096 and two minutes by default, as long as a
    /// datagram can live. They take as much memory as their packets, at most 6 MB with the default limit of
    /// packets. When there are more, the oldest are forgotten, and a repetition of such a call is executed.
    pub fn remembered(mut self, replies: usize, time: Duration) -> Self {
        self.remembered = (replies, time);
        self
    }

    /// Calls `tell` with each packet that is no call, or comes from a client that speaks other versions of
    /// Courier. The function is called by threads that serve, and must not block. By default these packets
    /// are only [counted](Server::troubles).
    pub fn on_trouble(mut self, tell: impl Fn(&Trouble) + Send + Sync + 'static) -> Self {
        self.reporter = Reporter::telling(tell);
        self
    }

    /// Replaces the environment, for simulations.
    #[doc(hidden)]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// Courier cannot say a type of an interface ([`Layout::new`](crate::codec::Layout::new)), the server has
    /// no address, or the system refuses the address or a thread.
    pub fn start(self) -> io::Result<Server> {
        let no_place = || io::Error::new(ErrorKind::InvalidInput, "the server has no address: call `udp`");
        let (place, env, reporter) = (self.place, self.env.clone(), self.reporter.clone());
        let (workers, stopper) = (self.workers, Stopper::new(&env));
        let answers = self.serving()?;
        let serving = Datagrams::start(env, place.ok_or_else(no_place)?, answers, workers)?;
        let address = serving.address();
        Ok(Server { serving, address, reporter, stopper })
    }

    /// Answers these packets in this thread. For fuzz targets.
    ///
    /// # Errors
    /// Courier cannot say a type of an interface.
    #[doc(hidden)]
    pub fn answer(self, packets: &[&[u8]], from: SocketAddr, socket: &dyn Socket) -> io::Result<()> {
        self.serving()?.answer_all(packets, from, socket);
        Ok(())
    }

    fn serving(self) -> io::Result<Serving> {
        if let Some(why) = self.refused {
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let ServerBuilder { env, mut programs, reporter, packet_bytes, .. } = self;
        programs.in_packets = true;
        programs.words = Limits { bytes: packet_bytes - HEADER_BYTES - RETURN_BYTES, ..Limits::default() };
        // Words become at most twice as many bytes of XDR.
        programs.xdr = Limits { bytes: 2 * packet_bytes, ..Limits::default() };
        let memory = Memory::new(self.remembered.0, self.remembered.1);
        Ok(Serving { env, programs, memory, reporter, packet_bytes })
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("place", &self.place).finish_non_exhaustive()
    }
}
