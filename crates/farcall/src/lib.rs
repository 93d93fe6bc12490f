//! Remote procedure calls: one interface, any number of servers, truthful about failures.

#![deny(unsafe_code)]

// So that code made by our own macros can say `::farcall` here too.
extern crate self as farcall;

mod builtin;
mod client;
mod context;
pub mod dynamic;
pub mod env;
mod error;
pub mod intercept;
mod local;
mod pending;
mod runtime;
mod server;
pub mod stats;
pub mod stub;
mod sys;
mod system;
mod udp;

pub use bytes::Bytes;
pub use context::{Context, Trace, context};
pub use error::{CallFailed, Error, Exception, Kind, Never, Ran, Result, ResultExt};
pub use farcall_idl as idl;
pub use farcall_macros::{Xdr, interface};
pub use farcall_names as names;
pub use farcall_xdr as xdr;
pub use pending::Pending;
#[cfg(feature = "tokio")]
pub use runtime::export_async;
pub use runtime::{Builder, Export, Group, Runtime, Stopper, export, import, import_all};
pub use server::Task;
pub use system::System;
