//! Calls servers that speak RPC2, through the same stubs as servers of farcall's own protocol.
//!
//! ```no_run
//! mod clock {
//!     farcall_rpc2::include_rpc2!("../farcall/tests/rpc2/clock.rpc2");
//! }
//! use clock::Clock;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = farcall_rpc2::import::<dyn Clock>("rpc2://127.0.0.1:5000/71")?;
//! println!("{}", clock.ask()?.seconds);
//! # Ok(())
//! # }
//! ```
//!
//! **Addresses** are `rpc2://HOST:PORT/SUBSYSTEM`, with the subsystem's number.
//!
//! **Connections.** The first call binds, without security (`RPC2_OPENKIMONO`). A connection carries one call
//! at a time, so the calls of an import wait for each other. A connection on which a call has failed is given
//! up, and the next call binds again.
//!
//! **Lost packets.** A request is sent again after four round trips, then after twice the time before, up to
//! two seconds. A server that is executing the call says BUSY. If nothing is heard for 30 seconds
//! ([`Builder::patience`]), the call fails as [`Unreachable`](farcall::Kind::Unreachable), and may have run.
//! A server executes a request once, and keeps its last reply. After a NAK the call fails as
//! [`Unreachable`](farcall::Kind::Unreachable) too, and may have run.
//!
//! **Threads.** A call that blocks is made by its caller's thread. Started calls, also those of a group, are
//! made by a thread of the import, which ends ten seconds after the last one.

mod bound;
mod connection;
mod started;
mod target;

use std::sync::Arc;
use std::time::Duration;

use farcall::env::Env;
use farcall::idl::Interface as Description;
use farcall::resolve::resolve;
use farcall::stub::{Binding, Interface};
use farcall::{ArgumentBudget, CallFailed, Kind, Ran, System};

use crate::codec::Layout;
use bound::Bound;
use target::Target;

/// Returns a user-stub for the subsystem at `rpc2://HOST:PORT/SUBSYSTEM`, with the default settings. Sends
/// nothing.
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
    patience: Duration,
    resolving: Duration,
    identity: Vec<u8>,
    arguments: Arc<ArgumentBudget>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            env: System::current(),
            patience: Duration::from_secs(30),
            resolving: Duration::from_secs(10),
            identity: Vec::new(),
            arguments: ArgumentBudget::of_process(),
        }
    }
}

impl Builder {
    /// Sets how long a server may be silent; 30 seconds by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Sets how many bytes of arguments the started calls of all imports of this builder keep until they have
    /// ended. The calls of one import may keep as much as is left. Further started calls fail as
    /// [`Overloaded`](Kind::Overloaded), [`Ran::No`]. The only started call of an import may keep any
    /// arguments, and arguments of at most 2 KiB are not counted. By default all clients of ONC RPC, Courier
    /// and RPC2 in a process keep 512 MiB together.
    #[must_use]
    pub fn argument_bytes(mut self, bytes: usize) -> Builder {
        self.arguments = Arc::new(ArgumentBudget::new(bytes));
        self
    }

    /// Sets how long the name of the server's host may take to resolve; 10 seconds by default.
    #[must_use]
    pub fn resolve_within(mut self, time: Duration) -> Builder {
        self.resolving = time;
        self
    }

    /// Sets who the client says that it is (ClientIdent), at most 1,024 bytes; nothing by default. A server
    /// cannot check it.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<Vec<u8>>) -> Builder {
        self.identity = identity.into();
        self.identity.truncate(1024);
        self
    }

    /// Returns a user-stub for the subsystem at `rpc2://HOST:PORT/SUBSYSTEM`.
    ///
    /// # Errors
    /// The errors of [`Builder::bind`].
    pub fn import<T: ?Sized + Interface>(&self, address: &str) -> Result<T::Client, CallFailed> {
        Ok(self.bind(T::interface(), address)?.into())
    }

    /// Returns a binding by which the subsystem at `rpc2://HOST:PORT/SUBSYSTEM` is called. The description
    /// says what its interface is.
    ///
    /// # Errors
    /// RPC2 cannot say a type of the interface ([`Layout::new`]), or there is no such address.
    pub fn bind(&self, interface: &Description, address: &str) -> Result<Binding, CallFailed> {
        let refused =
            |why: &str| CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("{address}: {why}"));
        let form = "an address is rpc2://HOST:PORT/SUBSYSTEM";
        let place = address.strip_prefix("rpc2://").and_then(|place| place.rsplit_once('/'));
        let (place, subsystem) = place.ok_or_else(|| refused(form))?;
        let subsystem = subsystem.parse().map_err(|_| refused(form))?;
        let (host, port) = place.rsplit_once(':').ok_or_else(|| refused(form))?;
        let port = port.parse().map_err(|_| refused(form))?;
        let until = self.env.now() + self.resolving;
        let found = resolve(&self.env, host, port, until).map_err(|why| {
            let detail = format!("{address}: {}", why.detail());
            why.because(detail)
        })?;
        let to = *found.first().ok_or_else(|| refused("the host has no address"))?;
        let layout =
            Layout::new(interface).map_err(|why| CallFailed::new(Kind::Local, Ran::No).caused_by(why))?;
        let target = Target::new(self.clone(), interface.name.clone(), layout, to, subsystem);
        Ok(Binding::new(Arc::new(Bound::new(target))))
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
