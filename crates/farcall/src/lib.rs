//! Remote procedure calls: one interface, any number of servers, truthful about failures.
//!
//! ```no_run
#![doc = include_str!("../examples/store.rs")]
//! ```
//!
//! **An interface** is a trait with [`#[farcall::interface]`](interface). Its arguments and results are
//! types that cross: those of the standard library, and yours with [`#[derive(farcall::Xdr)]`](Xdr).
//!
//! **A server** implements the trait. [`export`] offers it under a type (`"Store"`), or a type and an
//! instance (`"Store/ebbets"`), until the [`Export`] is dropped. Several threads execute its procedures at
//! the same time, even with one worker ([`Builder::workers`] says why). [`context()`] tells a procedure who
//! calls, how long the caller will wait, and whether it still waits.
//!
//! **A client** calls [`import`], which returns the *user-stub*, here `StoreClient`. It implements the trait,
//! and is `Clone + Send + Sync`. Clones share a binding, which is renewed when a server is gone.
//!
//! **A call** is made in one of three ways.
//!
//! - `store.get(k)` blocks.
//! - `store.start().get(k)` returns at once with a [`Pending`], to `wait()` for, `.await`, or `cancel()`.
//!   [`Calls`] collects several of them and returns each as it ends.
//! - `stores.multi().get(k)` calls every member of a [`Group`] at once ([`multi`]). [`import_all`] makes a
//!   group of the instances of a type, [`import_each`] one of given names.
//!
//! There is no time-out while the server answers. `store.within(d)` sets a deadline, which calls made by the
//! procedure inherit.
//!
//! **A call that goes wrong** returns an [`Error`]: `Declared`, the exception that the interface names, or
//! [`CallFailed`]. Its [`kind()`](CallFailed::kind) says why the call failed, and its
//! [`ran()`](CallFailed::ran) whether the procedure ran: no (and it never will), maybe, or yes. Farcall
//! repeats a call that did not run, if that may help. It repeats a call that may have run only if the
//! procedure is `#[idempotent]`.
//!
//! A program can make a [`Runtime`] with its own settings (address, workers, bounds, interceptors). The
//! functions of this module use a default runtime. The `FARCALL_*` environment variables fill in the settings
//! that the program leaves unset ([`Builder`] names them). [`stub::local`] binds a stub to a server without a
//! network, [`dynamic`] calls without an interface's source, [`stats`] has the counters, and [`env`](mod@env)
//! is the seam for simulators.

#![forbid(unsafe_code)]

// Code that farcall's macros generate refers to `::farcall`. With this line it works in this crate too.
extern crate self as farcall;

mod balancers;
mod builtin;
mod client;
mod conversations;
mod depart;
pub mod dynamic;
#[cfg_attr(not(feature = "xdp"), path = "kernel/none.rs")]
mod kernel;
#[cfg_attr(not(feature = "secure"), path = "keys/none.rs")]
mod keys;
pub mod memory;
mod messages;
mod origins;
mod receive_buffers;
mod runtime;
// Some items of the module are used only by shared memory.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]
mod server;
#[cfg_attr(not(target_os = "linux"), path = "shm/none.rs")]
mod shm;
pub mod stats;

#[cfg(feature = "cr")]
pub use farcall_macros::include_cr;
#[cfg(feature = "rpc2")]
pub use farcall_macros::include_rpc2;
#[cfg(feature = "x")]
pub use farcall_macros::include_x;
pub use farcall_names as names;

#[cfg(feature = "mutants")]
#[doc(hidden)]
pub use farcall_core::broken as driver_mutants;
pub use farcall_core::requests::{Request, Requests};
#[cfg(all(unix, feature = "signals"))]
pub use farcall_core::signals::take_signals;
pub use farcall_core::stub::Restart;
pub use farcall_core::{
    Answer, Bulk, Bytes, CallFailed, Calls, Cancelled, Context, Copied, Error, Exception, Group, Kind, Leave,
    Multi, Never, Pending, Principal, Ran, Result, ResultExt, Stream, System, Trace, Until, Unwinds, Unwound,
    Xdr, balance, context, env, exchange, idl, intercept, interface, multi, stub, xdr,
};
#[doc(hidden)]
pub use farcall_core::{fair, guard};
use farcall_core::{host, lock, notice, question, requests, retry, self_wait, serving, sys, wait, workers};
#[cfg(feature = "secure")]
pub use farcall_keys as key_files;
#[cfg(feature = "secure")]
pub use farcall_proto::secure::{Level, Padding, Suite};
#[cfg(feature = "secure")]
pub use keys::Keys;
#[cfg(all(feature = "secure", feature = "mutants"))]
#[doc(hidden)]
pub use keys::mutant as key_mutants;
pub use origins::{MisspeltVariable, Origins, misspelt_variables};
#[cfg(feature = "secure")]
pub use runtime::Answerer;
#[cfg(feature = "tokio")]
pub use runtime::export_async;
pub use runtime::{
    Builder, Export, Runtime, Stopper, export, import, import_all, import_each, import_within,
};
pub use server::Task;
