//! What the runtime knows of an interface and its stubs: the traits that `#[farcall::interface]` implements.

use std::sync::Arc;

use super::binding::Binding;
use super::channel::Procedure;
use super::dispatch::{AsyncDispatched, Dispatched};
use super::members::Members;
use crate::idl;
use crate::xdr::{Decoder, Encoder};

/// What the runtime knows of an interface; `#[farcall::interface]` implements it for `dyn Store`.
pub trait Interface: Send + Sync + 'static {
    /// The user-stub.
    type Client: Client;
    /// The type in an interface name: `Store` in `"Store/ebbets"`.
    const NAME: &'static str;
    /// The procedures, in the order of their declaration.
    const PROCEDURES: &'static [Procedure];

    /// The whole description, with names, documentation and wire types.
    fn interface() -> &'static idl::Interface;

    /// Decodes the arguments, all of them to the last byte, calls the procedure, and appends to `reply` what it gave.
    /// It panics if the procedure does.
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

/// An interface that ONC RPC (RFC 5531) calls by two numbers. What is made of an `.x` file has them; for a trait of one's own:
///
/// ```
/// // 0x20000000 to 0x3fffffff are for everybody (RFC 5531 section 14.1)
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

/// What the runtime knows of a user-stub; `#[farcall::interface]` implements it for `StoreClient`.
pub trait Client: From<Binding> + Clone + Send + Sync {
    /// The procedures as calls of every member of a group; `M` says whether its members are fixed.
    type Multi<M>;
    /// The procedures as calls that are encoded and not yet made.
    type Prepare: Default;

    /// What it is bound to.
    fn binding(&self) -> &Binding;

    /// The procedures as calls of these members.
    fn multi<M>(members: Members) -> Self::Multi<M>;
}

/// An interface served by `async fn`s; `#[farcall::interface(async)]` implements it for `StoreAsyncServer`.
pub trait AsyncServer: Send + Sync + 'static {
    /// The interface that callers see.
    type Interface: ?Sized + Interface;

    /// [`Interface::dispatch`] as a future, which owns the encoded arguments: the procedure's arguments borrow from it.
    fn dispatch(self: Arc<Self>, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched;
}
