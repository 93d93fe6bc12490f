//! Larus' packets (PCourier): Cooper's dialect, with one UDP datagram for a call and one for its reply.
//!
//! James Larus made this variant in 1983 to measure what Courier would cost without a stream. It is fast, and
//! not reliable. Farcall's own packet exchange is the reliable packet protocol that his paper wished for;
//! the same interface is called through it by `farcall::export` and `farcall::import` of the crate
//! `farcall`, without change.
//!
//! ```
//! use std::sync::Arc;
//! use farcall_courier::packets;
//!
//! #[farcall::interface]
//! pub trait Adder {
//!     #[procedure(1)]
//!     fn sum(&self, numbers: Vec<u32>) -> farcall::Result<u32>;
//! }
//!
//! struct Sums;
//! impl Adder for Sums {
//!     fn sum(&self, numbers: Vec<u32>) -> farcall::Result<u32> {
//!         Ok(numbers.iter().fold(0, |sum, number| sum.wrapping_add(*number)))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server =
//!     packets::Server::builder().program::<dyn Adder>(Arc::new(Sums)).udp("127.0.0.1:0".parse()?).start()?;
//! let adder = packets::import::<dyn Adder>(&format!("udp://{}", server.address()))?;
//! assert_eq!(adder.sum(vec![1, 2, 3])?, 6);
//! # Ok(())
//! # }
//! ```
//!
//! # The packets
//!
//! The messages are those of [`cooper`](crate::cooper), which also says what they cannot tell. There is no
//! activation: the port is the program. A datagram has at most 1,500 bytes, the most that an Ethernet packet
//! carried; the network may fragment it.
//!
//! - A call with more bytes fails as [`TooLarge`](farcall::Kind::TooLarge) and
//!   [`Ran::No`], before anything is sent. Its arguments have at most 1,496 bytes of words.
//! - A result with more bytes is not sent. The server reports it ([`ServerBuilder::on_trouble`]), and the
//!   client's call fails when its time is over, because the dialect has no message for it.
//! - Nothing is sent again. A call whose reply does not come within ten seconds fails as
//!   [`Unreachable`](farcall::Kind::Unreachable) and [`Ran::Maybe`]: its packet may have
//!   been lost, or that of its reply.
//! - A call without a result is over once it is sent. Nothing is known of it, and calls may overtake each
//!   other.
//!
//! **A bug of the original.** PCourier "times out after 10 seconds, declares the packet lost, and returns an
//! empty result". So a caller could not tell a lost packet from an empty result, and his table 2 counts such
//! calls as made. Here they fail.
//!
//! **A reply that comes late.** Packets have no identifiers, so a reply that comes after its call has failed
//! would be taken for the reply to the next call. Therefore a failed call takes its socket with it. The next
//! call goes on with a new socket, at another port, and the old port stays taken for two minutes, so that
//! the system cannot give it to another socket meanwhile. (An import keeps 64 such ports at most, and gives
//! up the oldest.) Packets from other addresses than the server's are ignored.
//!
//! **A reply that comes twice**, because the network has duplicated it, is discarded before the next call is
//! sent. If the second copy comes still later, it would be taken for the next call's reply. Where the network
//! duplicates packets, use [`Builder::socket_per_call`]. A call that the network duplicates runs twice;
//! nothing in the packets can prevent that.
//!
//! ```text
//! socket   a socket of a client      serving   how a server answers a packet
//! ```

mod server;
mod serving;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use farcall::env::{ConnectOptions, Env};
use farcall::idl::Interface as Description;
use farcall::stub::{Binding, Interface};
use farcall::{CallFailed, Kind, Ran, System};

use crate::client::bound::bind;
use crate::client::connection::Fault;
use crate::client::place::Place;
use crate::client::target::Carrier as _;
use crate::dialect::program::Program;
pub use crate::dialect::{program::Refusal, report::Trouble};
use crate::link::Patience;
pub use server::{Server, ServerBuilder};
use socket::Dialler;

/// The most bytes of a packet: a call or a reply.
pub const MAX_PACKET_BYTES: usize = 1_500;

/// Returns a user-stub for the program at the server's port, `udp://HOST:PORT`, with the default settings.
/// Sends nothing.
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
    is_renewed: bool,
    socket: ConnectOptions,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            env: System::current(),
            patience: Duration::from_secs(10),
            is_renewed: false,
            socket: ConnectOptions::default(),
        }
    }
}

impl Builder {
    /// Sets the time limit of calls whose caller sets none; ten seconds by default, as in the paper. It also
    /// counts while a call waits for its turn: an import makes one call at a time.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Uses a new socket for each call that has a reply, so that not even a duplicate of a reply can be taken
    /// for the next one's. It costs some system calls for each call.
    #[must_use]
    pub fn socket_per_call(mut self) -> Builder {
        self.is_renewed = true;
        self
    }

    /// Sets how long a thread polls for a reply before it sleeps; it does not poll by default.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Builder {
        self.socket.spin = time;
        self
    }

    /// Returns a user-stub for the program at the server's port.
    ///
    /// # Errors
    /// The errors of [`Builder::bind`].
    pub fn import<T: ?Sized + Interface>(&self, address: &str) -> Result<T::Client, CallFailed> {
        Ok(self.bind(T::interface(), address)?.into())
    }

    /// Returns a binding by which the program at the server's port is called. The description says what the
    /// program's interface is.
    ///
    /// # Errors
    /// The dialect cannot say the interface ([`Refusal`] is the failure's source), there is no such address,
    /// or the system gives no socket.
    pub fn bind(&self, interface: &Description, address: &str) -> Result<Binding, CallFailed> {
        let (program, replies) = Program::new(interface)
            .map_err(|why| CallFailed::new(Kind::Local, Ran::No).caused_by(why))?
            .into_target();
        let dialler = Dialler {
            env: self.env.clone(),
            place: Place::new(address),
            is_renewed: self.is_renewed,
            options: self.socket,
            patience: self.patience,
            replies,
            kept: Arc::default(),
        };
        let unhurried = Patience::until(None);
        let socket = dialler.open(unhurried).map_err(Fault::into_failure)?;
        Ok(bind(dialler, program, socket))
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
