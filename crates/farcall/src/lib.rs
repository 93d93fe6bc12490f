//! Remote procedure calls: one interface, any number of servers, truthful about failures.
//!
//! ```no_run
#![doc = include_str!("../examples/store.rs")]
//! ```
//!
//! **An interface** is a trait with [`#[farcall::interface]`](interface). Its arguments and results are
//! types that cross: those of the standard library, and yours with [`#[derive(farcall::Xdr)]`](Xdr).
//!
//! **A server** implements the trait and is offered by [`export`], under a type (`"Store"`) or a type and
//! an instance (`"Store/ebbets"`), until the [`Export`] is dropped. Several threads execute its procedures
//! at once ([`Builder::workers`] says why even one worker is no exception). [`context()`] tells a procedure
//! who calls, how long the caller will wait, and whether it still does.
//!
//! **A client** is what [`import`] gives: the *user-stub*, here `StoreClient`, which implements the trait.
//! It is `Clone + Send + Sync`; clones share a binding, which is renewed when a server is gone.
//!
//! **A call** is made in one of three ways. `store.get(k)` blocks. `store.start().get(k)` returns at once, with
//! a [`Pending`] to `wait()` for, `.await`, or `cancel()`; many of them go into [`Calls`], which gives back whichever
//! ends first. `stores.multi().get(k)` calls every member of a [`Group`]
//! at once ([`multi`]): [`import_all`] gives the instances of a type, [`import_each`] those of given names. There is no
//! time-out while the server answers; `store.within(d)` sets a deadline, which calls made by the procedure inherit.
//!
//! **What goes wrong** is an [`Error`]: `Declared`, the exception that the interface names, or [`CallFailed`],
//! whose [`kind()`](CallFailed::kind) says why and whose [`ran()`](CallFailed::ran) says whether the procedure
//! ran: no (and it never will), maybe, or yes. What did not run is repeated where that may help; what may
//! have run only if the procedure is `#[idempotent]`.
//!
//! A [`Runtime`] of one's own has settings (address, workers, bounds, interceptors); the functions of this
//! module use a default one, whose settings the `FARCALL_*` variables override ([`Builder`] names them).
//! [`stub::local`] binds a stub to a server without a network, [`dynamic`] calls without an interface's
//! source, [`stats`] counts what happened, [`env`](mod@env) is the seam for simulators.

#![forbid(unsafe_code)]

// So that code made by our own macros can say `::farcall` here too.
extern crate self as farcall;

mod builtin;
mod client;
mod depart;
pub mod dynamic;
pub mod memory;
mod receive_buffers;
mod runtime;
// Some of it only shared memory uses.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]
mod server;
#[cfg_attr(not(target_os = "linux"), path = "shm/none.rs")]
mod shm;
pub mod stats;

#[cfg(feature = "x")]
pub use farcall_macros::include_x;
pub use farcall_names as names;

pub use farcall_core::{
    Bytes, CallFailed, Calls, Cancelled, Context, Error, Exception, Group, Kind, Multi, Never, Pending, Ran,
    Result, ResultExt, System, Trace, Xdr, context, env, idl, intercept, interface, multi, stub, xdr,
};
#[doc(hidden)]
pub use farcall_core::{fair, guard};
use farcall_core::{lock, notice, retry, self_wait, serving, sys, wait, workers};
#[cfg(feature = "tokio")]
pub use runtime::export_async;
pub use runtime::{
    Builder, Export, Runtime, Stopper, export, import, import_all, import_each, import_within,
};
pub use server::Task;
