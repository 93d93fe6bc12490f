//! Courier (XSIS 038112): clients and servers that use farcall's stubs and speak the remote procedure call
//! standard that Xerox published in 1981.
//!
//! **A server** implements a trait with a program number and a version, and is called over TCP and Unix
//! sockets:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use farcall_courier::Server;
//!
//! #[derive(farcall::Xdr, Debug)]
//! pub enum LookupError {
//!     #[xdr(tag = 0)]
//!     NoSuchUser,
//!     #[xdr(tag = 1)]
//!     OtherError { errorstring: String },
//! }
//!
//! #[farcall::interface(program = 754, version = 1)]
//! pub trait PasswordLookup {
//!     #[procedure(0)]
//!     fn lookup_uid(&self, uid: u16) -> farcall::Result<String, LookupError>;
//! }
//!
//! struct Here;
//!
//! impl PasswordLookup for Here {
//!     fn lookup_uid(&self, uid: u16) -> farcall::Result<String, LookupError> {
//!         if uid == 0 { Ok("root".into()) } else { Err(LookupError::NoSuchUser.into()) }
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = Server::builder().program::<dyn PasswordLookup>(Arc::new(Here)).tcp("127.0.0.1:5000".parse()?);
//!     Ok(server.start()?.until_signal()?)
//! }
//! ```
//!
//! **A client** calls the server's procedures through a user-stub of the same trait. The server need not use
//! farcall:
//!
//! ```no_run
//! # #[farcall::interface(program = 754, version = 1)]
//! # pub trait PasswordLookup {
//! #     #[procedure(0)]
//! #     fn lookup_uid(&self, uid: u16) -> farcall::Result<String>;
//! # }
//! fn main() -> farcall::Result<()> {
//!     let lookup = farcall_courier::import::<dyn PasswordLookup>("tcp://127.0.0.1:5000")?;
//!     println!("{}", lookup.lookup_uid(0)?); // blocks
//!     let pending = lookup.start().lookup_uid(4); // does not block
//!     println!("{}", pending.wait()?);
//!     Ok(())
//! }
//! ```
//!
//! Stubs encode values as XDR, whatever carries their calls. This crate transcodes them to Courier's 16-bit
//! words, and back, by the description that each interface has at run time. Courier cannot say all that a
//! trait can: [`codec::Layout::new`] lists what is refused, when a stub or a server is made.
//!
//! `docs/courier-wire.md` says what is on the wire, what of that is historic, and how calls end.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | [`import`], and [`Builder`] with its settings |
//! | [`server`] | [`Server`] with its settings: programs, sockets, limits |
//! | [`bulk`] | bulk data between a call and its reply |
//! | [`expedited`] | calls in one packet each way, without a connection |
//! | [`codec`] | XDR bytes to words, and back |
//! | [`wire`] | messages and packets, without I/O |
//! | [`cooper`] | another wire: Cooper's dialect, which 4.1c to 4.3BSD had |
//! | [`packets`] | a third one: that dialect in UDP datagrams, as Larus measured it |

#![forbid(unsafe_code)]

// Code that macros generate refers to `::farcall`. In this crate that name means `farcall_core`.
extern crate farcall_core as farcall;

#[cfg(unix)]
pub mod bulk;
#[cfg(unix)]
pub mod client;
pub mod codec;
#[cfg(unix)]
pub mod cooper;
#[cfg(unix)]
mod dialect;
#[cfg(unix)]
pub mod expedited;
#[cfg(unix)]
mod link;
#[cfg(unix)]
pub mod packets;
#[cfg(unix)]
pub mod server;
#[cfg(unix)]
mod silence;
pub mod wire;

/// The names that macro-generated code uses.
#[doc(hidden)]
pub use farcall_core as seam;
#[cfg(all(unix, feature = "signals"))]
pub use farcall_core::signals::take_signals;
pub use farcall_core::{
    CallFailed, Calls, Cancelled, Context, Error, Exception, Group, Kind, Multi, Never, Pending, Ran, Result,
    ResultExt, context, multi, xdr,
};

#[cfg(unix)]
pub use client::{Builder, import};
#[cfg(unix)]
pub use server::Server;

/// Expands to the items of a `.cr` file: constants, types, and the program's trait. The path is relative to
/// the package's directory. `docs/courier.md` says how each name is translated.
///
/// ```
/// mod telephones {
///     farcall_courier::include_cr!("tests/c/Telephones1.cr");
/// }
/// assert_eq!(telephones::Kind::Fax as i32, 7);
/// ```
#[cfg(feature = "cr")]
#[macro_export]
macro_rules! include_cr {
    ($($arguments:tt)*) => {
        $crate::seam::include_cr!(crate = $crate::seam, $($arguments)*);
    };
}
