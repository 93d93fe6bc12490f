//! Expedited calls: one packet for a call and one for its reply, without a connection.
//!
//! In XNS, an expedited call went in a packet of the packet exchange protocol (PEX). Here a UDP datagram
//! carries PEX' header, the versions of Courier, and the message: [`wire::exchange`](crate::wire::exchange).
//!
//! ```
//! use std::sync::Arc;
//! use farcall_courier::expedited;
//!
//! #[farcall::interface(program = 2, version = 3)]
//! pub trait Addresses {
//!     #[procedure(0)]
//!     #[idempotent]
//!     fn network(&self, host: u16) -> farcall::Result<u32>;
//! }
//!
//! struct Here;
//! impl Addresses for Here {
//!     fn network(&self, host: u16) -> farcall::Result<u32> {
//!         Ok(0x41a + u32::from(host))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = expedited::Server::builder()
//!     .program::<dyn Addresses>(Arc::new(Here))
//!     .udp("127.0.0.1:0".parse()?)
//!     .start()?;
//! let addresses = expedited::import::<dyn Addresses>(&format!("udp://{}", server.address()))?;
//! assert_eq!(addresses.network(0)?, 0x41a);
//! # Ok(())
//! # }
//! ```
//!
//! # The client
//!
//! Replies mean what they mean on a connection: [`client`](crate::client). An import makes one call at a
//! time; a deadline also counts while a call waits for its turn.
//!
//! - A call whose packet would be too long fails as [`TooLarge`](farcall::Kind::TooLarge) and
//!   [`Ran::No`](farcall::Ran::No), before anything is sent. So does one with bulk data, as
//!   [`Local`](farcall::Kind::Local).
//! - The packet of an `#[idempotent]` procedure is sent again after half a second, then after twice the time
//!   before, up to eight seconds. Other calls are sent once, because a server may forget that it has
//!   executed them.
//! - A call without a reply within ten seconds ([`Builder::patience`]) fails as
//!   [`Unreachable`](farcall::Kind::Unreachable) and [`Ran::Maybe`](farcall::Ran::Maybe).
//! - **A server that asks for a stream** answers with the Clearinghouse's error `CallError[useCourier]`. If
//!   the procedure declares that error, the caller gets it as such. Otherwise the call fails as `TooLarge`,
//!   and the failure says to call over a stream. It may have run: some servers
//!   answer so before they execute a call, and [`Server`] does when the result turns out to be too long.
//!
//! A packet with another identifier than that of the outstanding call is ignored: it is a late reply, or a
//! duplicate. Packets from other addresses than the server's do not arrive.
//!
//! # The server
//!
//! A server remembers its last replies by the address of the client and the identifier of the packet
//! ([`ServerBuilder::remembered`]). A packet that is sent again, or that the network duplicates, is answered
//! from there, and its call is not executed again while the reply is remembered.
//!
//! ```text
//! exchanger   calls in packets           serving   how a server answers a packet
//! memory      the last replies           server    the server and its settings
//! ```

mod exchanger;
mod memory;
mod server;
mod serving;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use farcall::env::Env;
use farcall::idl::Interface as Description;
use farcall::stub::{Binding, Program};
use farcall::{CallFailed, System};

use crate::client::bound::bind;
use crate::client::connection::Fault;
use crate::client::place::Place;
use crate::client::target::{self, Carrier as _};
pub use crate::dialect::report::Trouble;
use crate::link::Patience;
use crate::wire::exchange::UNSPECIFIED_CLIENT;
use exchanger::Exchanger;
pub use server::{Server, ServerBuilder};

/// The most bytes of a packet, by default: so much fits into an Ethernet packet with the headers of UDP and
/// IPv6. In XNS it was 546.
pub const PACKET_BYTES: usize = 1_452;
/// The least limit of a packet's bytes, so that a rejection always has room.
const MIN_PACKET_BYTES: usize = 64;
/// The most bytes of a UDP datagram over IPv4.
const MAX_PACKET_BYTES: usize = 65_507;

/// Returns a user-stub for the program at `udp://HOST:PORT`, with the default settings. Sends nothing.
///
/// # Errors
/// The errors of [`Builder::bind`].
pub fn import<T: ?Sized + Program>(address: &str) -> Result<T::Client, CallFailed> {
    Builder::default().import::<T>(address)
}

/// Settings of an import.
#[derive(Clone)]
pub struct Builder {
    env: Arc<dyn Env>,
    patience: Duration,
    packet_bytes: usize,
    client_type: u16,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            env: System::current(),
            patience: Duration::from_secs(10),
            packet_bytes: PACKET_BYTES,
            client_type: UNSPECIFIED_CLIENT,
        }
    }
}

impl Builder {
    /// Sets the time limit of calls whose caller sets none; ten seconds by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Sets the most bytes of a packet, of calls and replies; [`PACKET_BYTES`] by default. The least limit is
    /// 64, and the greatest 65,507.
    #[must_use]
    pub fn packets(mut self, max_bytes: usize) -> Builder {
        self.packet_bytes = max_bytes.clamp(MIN_PACKET_BYTES, MAX_PACKET_BYTES);
        self
    }

    /// Sets the client type in the packets: 0 by default, which says nothing. The Clearinghouse's is 2.
    #[must_use]
    pub fn client_type(mut self, client_type: u16) -> Builder {
        self.client_type = client_type;
        self
    }

    /// Returns a user-stub for the program at the server's port.
    ///
    /// # Errors
    /// The errors of [`Builder::bind`].
    pub fn import<T: ?Sized + Program>(&self, address: &str) -> Result<T::Client, CallFailed> {
        Ok(self.bind(T::interface(), T::PROGRAM, T::VERSION, address)?.into())
    }

    /// Returns a binding by which the program with these numbers is called. The description says what the
    /// program's interface is.
    ///
    /// # Errors
    /// Courier cannot say a type of the interface ([`Layout::new`](crate::codec::Layout::new)), there is no
    /// such address, or the system gives no socket.
    pub fn bind(
        &self,
        interface: &Description,
        program: u32,
        version: u32,
        address: &str,
    ) -> Result<Binding, CallFailed> {
        let program = target::Program::numbered(interface, program, version)?;
        // The first identifier is random, because a server remembers those of an earlier client at the same
        // port.
        let mut first = [0; 4];
        self.env.entropy(&mut first);
        let carrier = Exchanger {
            env: self.env.clone(),
            place: Place::new(address),
            patience: self.patience,
            packet_bytes: self.packet_bytes,
            client_type: self.client_type,
            next: AtomicU32::new(u32::from_be_bytes(first)),
        };
        let unhurried = Patience::until(None);
        let socket = carrier.open(unhurried).map_err(Fault::into_failure)?;
        Ok(bind(carrier, program, socket))
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
