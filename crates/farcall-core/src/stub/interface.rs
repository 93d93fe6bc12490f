//! The traits that `#[farcall::interface]` implements. By them the runtime describes an interface, calls its
//! server and makes its user-stubs.

use std::sync::Arc;

use super::binding::Binding;
use super::channel::Procedure;
use super::dispatch::{AsyncDispatched, Dispatched};
use super::members::Members;
use super::signal_id::Signal;
use crate::idl;
use crate::xdr::{Decoder, Encoder};

/// An interface and its server-stub. For the trait `Store`, `#[farcall::interface]` implements it for `dyn
/// Store`.
pub trait Interface: Send + Sync + 'static {
    /// The interface's user-stub.
    type Client: Client;
    /// The type in an interface name: `Store` in `"Store/ebbets"`.
    const NAME: &'static str;
    /// The procedures, in the order of their declaration.
    const PROCEDURES: &'static [Procedure];

    /// Returns the signals that a procedure may raise in a call.
    fn signals() -> &'static [Signal] {
        &[]
    }

    /// Returns the whole description, with names, documentation and wire types.
    fn interface() -> &'static idl::Interface;

    /// Decodes the arguments, calls the procedure, and appends the encoded outcome to `reply`. Bytes that
    /// follow the arguments are an error. Panics if the procedure panics.
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

/// An interface that ONC RPC (RFC 5531) identifies by a program number and a version number. Interfaces made
/// of `.x` files implement it. A trait can state the numbers:
///
/// ```
/// // Anybody may use the numbers 0x20000000 to 0x3fffffff (RFC 5531 section 14.1).
/// #[farcall::interface(program = 0x2000_0001, version = 1)]
/// pub trait Echo {
///     fn twice(&self, number: u32) -> farcall::Result<u32>;
/// }
/// ```
pub trait Program: Interface {
    /// The program's number.
    const PROGRAM: u32;
    /// The version's number.
    const VERSION: u32;
}

/// A user-stub. For the trait `Store`, `#[farcall::interface]` implements it for `StoreClient`.
pub trait Client: From<Binding> + Clone + Send + Sync {
    /// The stub whose methods call every member of a group. `M` says whether the members are fixed.
    type Multi<M>;
    /// The stub whose methods encode a call without making it.
    type Prepare: Default;

    /// Returns the binding that carries the stub's calls.
    fn binding(&self) -> &Binding;

    /// Returns the stub whose methods call each of these members.
    fn multi<M>(members: Members) -> Self::Multi<M>;
}

/// An interface served by `async fn`s; `#[farcall::interface(async)]` implements it for `StoreAsyncServer`.
pub trait AsyncServer: Send + Sync + 'static {
    /// The interface that callers see.
    type Interface: ?Sized + Interface;

    /// Executes a call as [`Interface::dispatch`] does, in a future. The future owns the encoded arguments,
    /// and the procedure's arguments borrow from them.
    fn dispatch(self: Arc<Self>, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched;
}
