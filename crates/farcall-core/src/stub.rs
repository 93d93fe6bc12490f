//! What stubs are made of, and the seam below them: the [`Channel`] that carries calls.
//!
//! Users meet none of this except [`local`]. Code made by `#[farcall::interface]` relies on it, and so does whoever
//! carries calls: the UDP driver, the in-process channel, later shared memory. The layers, and who owns what:
//!
//! ```text
//! StoreClient         made    a Binding, and a method for each procedure
//! Binding             here    adds the settings of the import, turns bytes into Result<T, E>
//! dyn Channel         seam    finds a server, carries one call to it, repeats what may be repeated
//! ----------------------------- the other side
//! dyn Store: Interface made   from a procedure number and bytes to a method and bytes
//! ```
//!
//! Rules of the seam:
//! - A [`Channel`] hands every call exactly one [`Reply`], through the sink, before [`Channel::call`] returns. The
//!   bytes are borrowed from wherever they were received: the sink decodes them, then they may be reused.
//! - The closure that encodes the arguments is called as often as the channel needs, and never after `call` or
//!   `start` has returned, so arguments are borrowed, never copied.
//! - No part of the way here allocates: a simple call costs what its arguments and result allocate.
//! - Whoever calls [`Interface::dispatch`] catches its panics ([`catch`] does), and discards what stands in the reply
//!   unless it says [`Dispatched::Result`] or [`Dispatched::Exception`].

mod arguments;
mod binding;
mod channel;
mod dispatch;
mod ended;
mod interface;
mod local;
mod members;
mod pending;

#[doc(hidden)]
pub use arguments::{decode, decode_max, encode, encode_max};
pub use binding::Binding;
pub use channel::{Call, Channel, EncodeArguments, Origin, PendingCall, Procedure, Reply, Sink};
#[doc(hidden)]
pub use channel::{bad_arguments, decode_reply, no_reply};
pub use dispatch::{AsyncDispatched, Dispatched, catch};
#[doc(hidden)]
pub use dispatch::{Outcome, arguments, before_the_procedure, panicked, reply, returns, serve};
#[doc(hidden)]
pub use ended::Ended;
pub use interface::{AsyncServer, Client, Interface, Program};
pub use local::{local, local_async};
pub use members::{Member, Members};
pub use pending::Pending;
