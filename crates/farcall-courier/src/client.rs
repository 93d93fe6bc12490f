//! Calls servers that speak Courier, through the same stubs as servers of farcall's own protocol.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! #[farcall::interface(program = 754, version = 1)]
//! pub trait PasswordLookup {
//!     #[procedure(2)]
//!     fn count(&self) -> farcall::Result<u16>;
//! }
//!
//! # fn main() -> farcall::Result<()> {
//! let lookup = farcall_courier::import::<dyn PasswordLookup>("tcp://127.0.0.1:5000")?;
//! println!("{}", lookup.count()?); // blocks
//! let pending = lookup.start().count(); // does not block
//! let soon = lookup.within(Duration::from_secs(1)).count()?;
//! println!("{soon} {}", pending.wait()?);
//! # Ok(())
//! # }
//! ```
//!
//! **Addresses** are `tcp://HOST:PORT` and `unix:PATH`.
//!
//! **One call at a time.** Courier's servers take one call at a time from a connection, and an import has one
//! connection. So its calls queue, from whatever threads, in the order in which they were made. Import an
//! interface twice to make two calls at the same time.
//!
//! **Time.** A call's deadline also counts while the call waits for its turn. A client cannot ask a server
//! whether it is still executing a call. So a call whose caller sets no time limit fails after 25 seconds
//! ([`Builder::patience`]). The connection is abandoned with a call that was cancelled or whose deadline has
//! passed, because its reply would be taken for the next one's. The next call makes a new connection.
//!
//! **Failures** are [`CallFailed`], and say whether the call ran. It did not if the
//! server rejected it: no such program, version or procedure, or arguments that it cannot read. It did not
//! either if its message was not sent whole. It may have run if the server rejected it for an unspecified
//! reason, if no reply came, or if the connection broke after the message was sent. A declared error is no
//! failure, but the call's declared exception.
//!
//! If a connection breaks, the client makes the call once more on a new connection, provided that the call
//! did not run or that its procedure is `#[idempotent]`.
//!
//! **Threads.** A call that blocks is made by its caller's thread. Started calls are made by a thread of the
//! import, which ends ten seconds after the last one. At most 1,024 of them wait. That thread also runs their
//! wakers. A waker must not block in a call of the same import, which would wait for its own thread.
//!
//! ```text
//! bound       a target as a stub's channel       started   a started call
//! target      how calls are made, and what replies mean, whatever carries the messages
//! line        turns at the one connection        outcome   how calls end
//! connection  versions, one call and its reply   settings  settings
//! buffers     buffers of a thread                address   the text that names a server
//! streams     a server that is called on connections
//! ```

pub(crate) mod address;
pub(crate) mod bound;
pub(crate) mod buffers;
pub(crate) mod connection;
pub(crate) mod line;
mod outcome;
pub(crate) mod place;
mod settings;
mod started;
mod streams;
pub(crate) mod target;

use std::sync::Arc;
use std::time::Duration;

use farcall::env::Env;
use farcall::idl::Interface as Description;
use farcall::stub::{self, Binding};
use farcall::{ArgumentBudget, CallFailed};

use crate::link::Patience;
use crate::wire::message::Versions;
use address::connected_by;
use bound::bind;
use connection::Fault;
use place::Place;
use settings::Settings;
use streams::Server;
use target::{Carrier as _, Program};

pub use target::{OtherVersions, UndeclaredError};

/// Connects to the server at `tcp://HOST:PORT` or `unix:PATH`, and returns a user-stub for the program there,
/// with the default settings.
///
/// ```no_run
/// # #[farcall::interface(program = 754, version = 1)]
/// # pub trait PasswordLookup { fn count(&self) -> farcall::Result<u16>; }
/// # fn main() -> farcall::Result<()> {
/// let lookup = farcall_courier::import::<dyn PasswordLookup>("tcp://127.0.0.1:5000")?;
/// println!("{}", lookup.count()?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The errors of [`Builder::import`].
pub fn import<T: ?Sized + stub::Program>(address: &str) -> Result<T::Client, CallFailed> {
    Builder::default().import::<T>(address)
}

/// Settings of an import.
#[derive(Clone, Default)]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    /// Sets the time limit of calls whose caller sets none; 25 seconds by default, no limit if `None`.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Builder {
        self.settings.patience = patience;
        self
    }

    /// Sets how long making a connection may take, 10 seconds by default: resolving the host's name, and
    /// trying its addresses, each of which gets a share of the time. If a procedure makes the connection, the
    /// deadline of its own call holds too.
    #[must_use]
    pub fn connect_within(mut self, time: Duration) -> Builder {
        self.settings.connecting = time;
        self
    }

    /// Offers version 2 of Courier to the server, too. Then the first call on a connection waits until the
    /// server has told its versions, because its form depends on them. By default the client offers version 3
    /// alone, and sends the first call at once.
    #[must_use]
    pub fn version_2(mut self) -> Builder {
        self.settings.versions = Versions::ALL;
        self
    }

    /// Sets the most bytes of a message, sent or received; 16 MiB by default.
    #[must_use]
    pub fn messages(mut self, max_bytes: usize) -> Builder {
        self.settings.max_message_bytes = max_bytes;
        self
    }

    /// Sets how many bytes of arguments the started calls of all imports of this builder keep until they have
    /// ended. The calls of one import may keep as much as is left. Further started calls fail as
    /// [`Overloaded`](farcall::Kind::Overloaded), [`No`](farcall::Ran::No). The only started call of an
    /// import may keep any arguments, and arguments of at most 2 KiB are not counted. By default all clients
    /// of ONC RPC, Courier and RPC2 in a process keep 512 MiB together.
    #[must_use]
    pub fn argument_bytes(mut self, bytes: usize) -> Builder {
        self.settings.arguments = Arc::new(ArgumentBudget::new(bytes));
        self
    }

    /// Sets how long a thread polls for a reply before it sleeps; it does not poll by default.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Builder {
        self.settings.socket.spin = time;
        self
    }

    /// Connects to a server, and returns a user-stub for the program there.
    ///
    /// # Errors
    /// The errors of [`Builder::bind`].
    pub fn import<T: ?Sized + stub::Program>(&self, address: &str) -> Result<T::Client, CallFailed> {
        Ok(self.bind(T::interface(), T::PROGRAM, T::VERSION, address)?.into())
    }

    /// Connects to a server, and returns a binding by which the program with these numbers is called. The
    /// description says what the program's interface is.
    ///
    /// # Errors
    /// Courier cannot say a type of the interface ([`Layout::new`](crate::codec::Layout::new)), there is no
    /// such address, or no server accepts connections there.
    pub fn bind(
        &self,
        interface: &Description,
        program: u32,
        version: u32,
        address: &str,
    ) -> Result<Binding, CallFailed> {
        let program = Program::numbered(interface, program, version)?;
        let until = connected_by(&*self.settings.env, self.settings.connecting);
        let server = Server { settings: self.settings.clone(), place: Place::new(address) };
        let connection = server.open(Patience::until(until)).map_err(Fault::into_failure)?;
        Ok(bind(server, program, connection))
    }

    /// Replaces the environment, for simulations.
    #[doc(hidden)]
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Builder {
        self.settings.env = env;
        self
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}
