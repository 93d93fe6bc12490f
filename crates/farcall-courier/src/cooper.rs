//! Cooper's dialect of Courier, over TCP and Unix sockets.
//!
//! Eric Cooper's implementation for 4.1c to 4.3BSD is the one that Larus measured in 1983. It has Courier's
//! language and words, but other messages than the standard. So a program speaks this dialect or the standard
//! ([`import`](crate::import)), not both at one port.
//!
//! ```
//! use std::sync::Arc;
//! use farcall_courier::cooper;
//!
//! #[farcall::interface]
//! pub trait PasswordLookup {
//!     #[procedure(1)]
//!     fn count(&self) -> farcall::Result<u16>;
//!     #[procedure(2)]
//!     fn forget(&self, user: &str) -> farcall::Result<()>;
//! }
//!
//! struct Table;
//! impl PasswordLookup for Table {
//!     fn count(&self) -> farcall::Result<u16> {
//!         Ok(3)
//!     }
//!     fn forget(&self, _user: &str) -> farcall::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = cooper::Server::builder()
//!     .program::<dyn PasswordLookup>(Arc::new(Table))
//!     .tcp("127.0.0.1:0".parse()?)
//!     .start()?;
//! let address = format!("tcp://{}", server.addresses()[0]);
//! let lookup = cooper::import::<dyn PasswordLookup>(&address)?;
//! assert_eq!(lookup.count()?, 3);
//! lookup.forget("daemon")?; // returns once the call is sent
//! # Ok(())
//! # }
//! ```
//!
//! # The messages
//!
//! ```text
//! activation  the program's name, a STRING; answered by a byte that is 0, or by a text that ends with NUL
//! call        procedure, number of words, the words of the arguments
//! reply       number of words, the words of the result
//! ```
//!
//! A BOOLEAN is the high byte of its word; the other byte has no meaning.
//!
//! # What cannot be told
//!
//! An interface is refused, when the stub or the server is made, if a procedure declares an error, has
//! several results (a tuple, or the struct `<Procedure>Results` of a `.cr` file), is one-way, or uses what
//! Courier does not have either. A program's number and version are not sent: the name alone finds it. So two
//! versions of a program need two names ([`Builder::program`], [`ServerBuilder::program_as`]).
//!
//! **A procedure without a result has no reply.** Its call returns `Ok(())` once the whole message is handed
//! to the system. Then nothing is known of the call: it may run now, later or never. If the message could not
//! be handed over whole, the call fails as [`Ran::No`]. The server executes the calls of a
//! stub in the order in which they were made, so the reply to a later call says that the earlier ones are
//! over, provided that the connection did not break in between.
//!
//! **An unknown procedure** has no message either. The original server printed a line and sent nothing, so
//! the caller waited for ever. This one ends the connection, as it does when it cannot read the arguments, or
//! when a procedure fails whose caller waits. The caller then fails as
//! [`Unreachable`](farcall::Kind::Unreachable), and [`Ran::Maybe`]. With a server that
//! does as the original did, the call fails at its deadline.
//!
//! # Binding
//!
//! Cooper's stubs are bound implicitly or explicitly. *Implicit*: `BindPasswordLookupToMachine(host)` once,
//! and all calls go there. That is one stub, which a program keeps. *Explicit* (`courier -x`): each call
//! names its machine, and the stubs keep a table of ten connections. That is one stub for each machine, from
//! one [`import`] each: a stub is a connection, and a clone of it the same connection.
//!
//! # Time, threads and failures
//!
//! They are those of [`client`](crate::client): one call at a time on a connection, which is abandoned with a
//! call whose reply has not come, because the reply would be taken for the next one's.
//!
//! ```text
//! activation    the program's name, and the answer       conversation  a connection of a client
//! command       a program of the operator's              connection    a connection of a server
//! ```

mod activation;
mod command;
mod connection;
mod conversation;
mod server;

use std::sync::Arc;
use std::time::Duration;

use farcall::env::{ConnectOptions, Env};
use farcall::idl::Interface as Description;
use farcall::stub::{Binding, Interface};
use farcall::{CallFailed, Kind, Ran, System};

use crate::client::address::connected_by;
use crate::client::bound::bind;
use crate::client::connection::Fault;
use crate::client::place::Place;
use crate::client::target::Carrier as _;
use crate::dialect::program::Program;
pub use crate::dialect::{program::Refusal, report::Trouble};
use crate::link::Patience;
use conversation::Dialler;
pub use server::{Server, ServerBuilder};

/// The port at which hosts listened for activations, `courier/tcp`.
pub const PORT: u16 = 530;

/// Connects to the server at `tcp://HOST:PORT` or `unix:PATH`, activates the program with the interface's
/// name, and returns a user-stub for it, with the default settings.
///
/// # Errors
/// The errors of [`Builder::bind`].
pub fn import<T: ?Sized + Interface>(address: &str) -> Result<T::Client, CallFailed> {
    Builder::default().import::<T>(address)
}

/// Settings of an import.
#[derive(Clone)]
pub struct Builder {
    env: Arc<dyn Env>,
    program: Option<String>,
    patience: Option<Duration>,
    connecting: Duration,
    socket: ConnectOptions,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            env: System::current(),
            program: None,
            patience: Some(Duration::from_secs(25)),
            connecting: Duration::from_secs(10),
            socket: ConnectOptions::default(),
        }
    }
}

impl Builder {
    /// Sets the name by which the program is activated; by default the name of the interface.
    #[must_use]
    pub fn program(mut self, name: impl Into<String>) -> Builder {
        self.program = Some(name.into());
        self
    }

    /// Sets the time limit of calls whose caller sets none; 25 seconds by default, no limit if `None`.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Builder {
        self.patience = patience;
        self
    }

    /// Sets how long making a connection and activating the program may take; 10 seconds by default.
    #[must_use]
    pub fn connect_within(mut self, time: Duration) -> Builder {
        self.connecting = time;
        self
    }

    /// Sets how long a thread polls for a reply before it sleeps; it does not poll by default.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Builder {
        self.socket.spin = time;
        self
    }

    /// Connects to a server, activates the program, and returns a user-stub for it.
    ///
    /// # Errors
    /// The errors of [`Builder::bind`].
    pub fn import<T: ?Sized + Interface>(&self, address: &str) -> Result<T::Client, CallFailed> {
        Ok(self.bind(T::interface(), address)?.into())
    }

    /// Connects to a server, activates the program, and returns a binding by which it is called. The
    /// description says what the program's interface is.
    ///
    /// # Errors
    /// The dialect cannot say the interface ([`Refusal`] is the failure's source), there is no such address,
    /// no server accepts connections there, or it does not activate the program; then the failure has the
    /// server's text.
    pub fn bind(&self, interface: &Description, address: &str) -> Result<Binding, CallFailed> {
        let refused = |kind, why: String| CallFailed::new(kind, Ran::No).because(why);
        let (program, replies) = Program::new(interface)
            .map_err(|why| CallFailed::new(Kind::Local, Ran::No).caused_by(why))?
            .into_target();
        let name = self.program.clone().unwrap_or_else(|| interface.name.clone());
        activation::check(&name).map_err(|why| refused(Kind::Local, why))?;
        let until = connected_by(&*self.env, self.connecting);
        let (env, place) = (self.env.clone(), Place::new(address));
        let (connecting, options, patience) = (self.connecting, self.socket, self.patience);
        let dialler = Dialler { env, place, name, connecting, options, patience, replies };
        let first = dialler.open(Patience::until(until)).map_err(Fault::into_failure)?;
        Ok(bind(dialler, program, first))
    }

    /// Replaces the environment, for simulations.
    #[doc(hidden)]
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Builder {
        self.env = env;
        self
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}
