//! Remote procedure calls: one interface, any number of servers, truthful about failures.

#![forbid(unsafe_code)]

// So that code made by our own macros can say `::farcall` here too.
extern crate self as farcall;

mod error;
mod local;
mod pending;
pub mod stub;

pub use bytes::Bytes;
pub use error::{CallFailed, Error, Exception, Kind, Never, Ran, Result, ResultExt};
pub use farcall_idl as idl;
pub use farcall_macros::{Xdr, interface};
pub use farcall_xdr as xdr;
pub use pending::Pending;
