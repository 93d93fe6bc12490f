//! A server that serves several programs by name, and hands connections over to commands.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use farcall::System;
use farcall::env::{Address, Env, Stream};
use farcall::stopper::Stopper;
use farcall::stub::Interface;

use super::activation;
use super::command::Command;
use super::connection::{Limits, Program, Programs, Serving};
use crate::dialect::offer::Offer;
use crate::dialect::program::Refusal;
use crate::dialect::report::{Reporter, Trouble};
use crate::server::acceptor::{Acceptor, Place, Serves as _};
use crate::server::listening::{Bound, Listening};
use crate::silence::Silence;

/// A running server of Cooper's dialect. It serves its programs until it is dropped.
pub struct Server {
    acceptor: Arc<Acceptor>,
    bound: Bound,
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

    /// Accepts no more connections and no more calls, and waits until the calls that have begun are finished
    /// and their results sent, but no longer than `time`. Returns whether they are. A client whose call came
    /// too late, or only in part, finds the end of its connection.
    pub fn drain(self, time: Duration) -> bool {
        self.acceptor.drain(time)
    }

    /// Returns a handle with which another thread can end [`Server::wait`].
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the TCP addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.bound.addresses
    }

    /// Returns the number of open connections. Those that were handed over to a command do not count.
    pub fn connections(&self) -> usize {
        self.acceptor.connections()
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

/// When the drop returns, the addresses are free and all connections of the server have ended. Commands run
/// on. Procedures that still run end by themselves; their callers learn that the calls may have run.
impl Drop for Server {
    fn drop(&mut self) {
        self.acceptor.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// The configuration of a [`Server`].
#[must_use]
pub struct ServerBuilder {
    env: Arc<dyn Env>,
    programs: HashMap<Vec<u8>, Program>,
    /// Why the first program that cannot be served is not.
    refused: Option<io::Error>,
    places: Vec<Address>,
    connections: usize,
    max_commands: usize,
    commands: Arc<AtomicUsize>,
    limits: Limits,
    reporter: Reporter,
}

impl Default for ServerBuilder {
    fn default() -> ServerBuilder {
        ServerBuilder {
            env: System::current(),
            programs: HashMap::new(),
            refused: None,
            places: Vec::new(),
            connections: 256,
            max_commands: 64,
            commands: Arc::default(),
            limits: Limits { idle: Duration::from_secs(360), message_time: Duration::from_secs(60) },
            reporter: Reporter::default(),
        }
    }
}

impl ServerBuilder {
    /// Serves an interface as the program with the interface's name. A server can serve several programs. If
    /// the dialect cannot say the interface, [`ServerBuilder::start`] fails.
    pub fn program<T: ?Sized + Interface>(self, server: Arc<T>) -> Self {
        self.program_as(T::NAME, server)
    }

    /// Serves an interface as the program with this name, of 1 to 255 bytes.
    pub fn program_as<T: ?Sized + Interface>(self, name: &str, server: Arc<T>) -> Self {
        let offer: Result<Offer, Refusal> = Offer::new(server);
        match offer {
            Ok(offer) => self.add(name, Program::Here(Arc::new(offer))),
            Err(why) => self.refuse(io::Error::new(ErrorKind::InvalidInput, why)),
        }
    }

    /// Has a command of this machine serve the program with this name, as `courierd` executed
    /// `/usr/lib/courier/NAME`. Each client that activates the program gets a process of its own, with the
    /// connection as its standard input and output. That process answers the activation (a byte that is 0)
    /// and the calls. The path must be absolute. Nothing that a client sends reaches the command line.
    ///
    /// No command is run unless it is configured here.
    ///
    /// ```no_run
    /// # fn main() -> std::io::Result<()> {
    /// let server = farcall_courier::cooper::Server::builder()
    ///     .command("Printing", "/usr/lib/courier/printing", ["--queue", "lp"])
    ///     .tcp("0.0.0.0:530".parse().expect("it is an address"))
    ///     .start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn command(
        self,
        name: &str,
        path: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Self {
        let path = path.as_ref();
        if !path.is_absolute() {
            let why = format!("the command of {name} must be an absolute path, not {}", path.display());
            return self.refuse(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let command = Command::new(path, arguments, self.max_commands, &self.commands);
        self.add(name, Program::Command(Arc::new(command)))
    }

    /// Sets how many processes of commands can run at the same time; 64 by default. Holds for commands that
    /// are configured afterwards. Beyond that, clients are told to try again.
    pub fn commands(mut self, most: usize) -> Self {
        self.max_commands = most;
        self
    }

    /// Serves TCP at this address. With port 0 the system chooses a free port.
    pub fn tcp(mut self, address: SocketAddr) -> Self {
        self.places.push(Address::Tcp(address));
        self
    }

    /// Serves a Unix socket at this path. The path must not exist; it is removed when the server is dropped.
    pub fn unix(mut self, path: impl AsRef<Path>) -> Self {
        self.places.push(Address::Unix(path.as_ref().to_owned()));
        self
    }

    /// Sets how many connections there can be, each with a thread of its own; 256 by default. They are shared
    /// as those of the [standard's server](crate::server::ServerBuilder::connections). A client for which
    /// there is no room is told to try again.
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Sets after how long a time without a call the server ends a connection; six minutes by default.
    pub fn idle(mut self, time: Duration) -> Self {
        self.limits.idle = time;
        self
    }

    /// Sets how long a message may take from its first byte to its last; a minute by default. It holds for
    /// the activation, for calls, and for replies that a client does not take.
    pub fn message_time(mut self, time: Duration) -> Self {
        self.limits.message_time = time;
        self
    }

    /// Calls `tell` with each trouble that the dialect has no message for: an unknown procedure, arguments
    /// that cannot be read, a procedure that fails, a result that is too long. The function is called by
    /// threads that serve, and must not block. By default troubles are only [counted](Server::troubles).
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
    /// The dialect cannot say an interface ([`Refusal`]), two programs have one name, the path of a command
    /// is not absolute, the server has no address, or the system refuses an address or a thread.
    pub fn start(self) -> io::Result<Server> {
        if let Some(why) = self.refused {
            return Err(why);
        }
        if self.places.is_empty() {
            let why = "the server has no address: call `tcp` or `unix`";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let Listening { listeners, bound } = Listening::at(&*self.env, &self.places)?;
        let (stopper, reporter) = (Stopper::new(&self.env), self.reporter.clone());
        let (env, connections) = (self.env.clone(), self.connections);
        let acceptor = Acceptor::start(env, listeners, Box::new(self.serving()), connections)?;
        Ok(Server { acceptor, bound, reporter, stopper })
    }

    /// Serves one connection in this thread, until it ends. For fuzz targets.
    #[doc(hidden)]
    pub fn serve_connection(self, stream: &Arc<dyn Stream>) {
        let serve = self.serving().begin(stream, None, Arc::new(Silence::default()));
        serve(Place::alone());
    }

    fn serving(self) -> Serving {
        let programs = Arc::new(Programs { programs: self.programs, reporter: self.reporter });
        Serving { env: self.env, programs, limits: self.limits }
    }

    fn add(mut self, name: &str, program: Program) -> Self {
        if let Err(why) = activation::check(name) {
            return self.refuse(io::Error::new(ErrorKind::InvalidInput, why));
        }
        if self.programs.insert(name.as_bytes().to_vec(), program).is_some() {
            let why = format!("two programs have the name {name}");
            return self.refuse(io::Error::new(ErrorKind::InvalidInput, why));
        }
        self
    }

    fn refuse(mut self, why: io::Error) -> Self {
        self.refused.get_or_insert(why);
        self
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("places", &self.places).finish_non_exhaustive()
    }
}
