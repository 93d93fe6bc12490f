//! A server of one program at one UDP port.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall::System;
use farcall::env::{Env, Socket};
use farcall::stopper::Stopper;
use farcall::stub::Interface;

use super::serving::Serving;
use crate::dialect::offer::Offer;
use crate::dialect::program::Refusal;
use crate::dialect::report::{Reporter, Trouble};
use crate::server::datagrams::{Answers as _, Datagrams};

/// A running server of Larus' packets. It serves its program until it is dropped.
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

    /// Returns how many calls were executed.
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
    offer: Option<Result<Offer, Refusal>>,
    place: Option<SocketAddr>,
    workers: usize,
    reporter: Reporter,
}

impl Default for ServerBuilder {
    fn default() -> ServerBuilder {
        let (env, reporter) = (System::current(), Reporter::default());
        ServerBuilder { env, offer: None, place: None, workers: 1, reporter }
    }
}

impl ServerBuilder {
    /// Serves an interface. A port has one program, because packets do not name any; a later program replaces
    /// an earlier one. If the dialect cannot say the interface, [`ServerBuilder::start`] fails.
    pub fn program<T: ?Sized + Interface>(mut self, server: Arc<T>) -> Self {
        self.offer = Some(Offer::new(server));
        self
    }

    /// Serves this address. With port 0 the system chooses a free port.
    pub fn udp(mut self, address: SocketAddr) -> Self {
        self.place = Some(address);
        self
    }

    /// Sets how many threads execute calls; 1 by default, as in the original, so that calls are executed in
    /// the order in which their packets arrive. Further packets wait in the socket, which loses those for
    /// which it has no room.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count.clamp(1, 1024);
        self
    }

    /// Calls `tell` with each trouble that the dialect has no message for: a packet that is no call, an
    /// unknown procedure, a procedure that fails, a result that is too long for a packet. The function is
    /// called by threads that serve, and must not block. By default troubles are only
    /// [counted](Server::troubles).
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
    /// There is no program or no address, the dialect cannot say the interface ([`Refusal`]), or the system
    /// refuses the address or a thread.
    pub fn start(mut self) -> io::Result<Server> {
        let answers = self.offered()?;
        let place = self.place.ok_or_else(|| invalid("the server has no address: call `udp`"))?;
        let (stopper, reporter) = (Stopper::new(&self.env), self.reporter);
        let serving = Datagrams::start(self.env, place, answers, self.workers)?;
        let address = serving.address();
        Ok(Server { serving, address, reporter, stopper })
    }

    /// Answers these packets in this thread. For fuzz targets.
    ///
    /// # Errors
    /// There is no program, or the dialect cannot say the interface.
    #[doc(hidden)]
    pub fn answer(mut self, packets: &[&[u8]], from: SocketAddr, socket: &dyn Socket) -> io::Result<()> {
        self.offered()?.answer_all(packets, from, socket);
        Ok(())
    }

    fn offered(&mut self) -> io::Result<Serving> {
        let offer = self.offer.take().ok_or_else(|| invalid("the server has no program: call `program`"))?;
        let offer = offer.map_err(|why| io::Error::new(ErrorKind::InvalidInput, why))?;
        Ok(Serving { offer, reporter: self.reporter.clone() })
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("place", &self.place).finish_non_exhaustive()
    }
}
