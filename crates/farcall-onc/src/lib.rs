//! ONC RPC (RFC 5531): clients and servers that use farcall's stubs and work with existing ONC RPC programs.
//!
//! **A server** implements a trait with ONC RPC numbers, and is called over UDP, TCP and Unix sockets:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use farcall_onc::Server;
//!
//! #[farcall::interface(program = 0x2000_0100, version = 1)]
//! pub trait Calculator {
//!     #[procedure(1)]
//!     fn twice(&self, number: u32) -> farcall::Result<u64>;
//! }
//!
//! struct Here;
//!
//! impl Calculator for Here {
//!     fn twice(&self, number: u32) -> farcall::Result<u64> {
//!         Ok(u64::from(number) * 2)
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = Server::builder().program::<dyn Calculator>(Arc::new(Here)).address("127.0.0.1:4000".parse()?);
//!     Ok(server.start()?.until_signal()?)
//! }
//! ```
//!
//! **A client** calls the server's procedures through a user-stub of the same trait. The server need not use
//! farcall:
//!
//! ```no_run
//! # #[farcall::interface(program = 0x2000_0100, version = 1)]
//! # pub trait Calculator {
//! #     #[procedure(1)]
//! #     fn twice(&self, number: u32) -> farcall::Result<u64>;
//! # }
//! fn main() -> farcall::Result<()> {
//!     let calculator = farcall_onc::import::<dyn Calculator>("tcp://127.0.0.1:4000")?;
//!     println!("{}", calculator.twice(21)?); // blocks
//!     let pending = calculator.start().twice(4); // does not block
//!     println!("{}", pending.wait()?);
//!     Ok(())
//! }
//! ```
//!
//! **An `.x` file** defines such traits, one for each version of each program, and their types:
//! [`include_x!("nfs3.x")`](include_x). `docs/onc.md` shows how to make a server, a client, and a client in C
//! from such a file, and lists what this crate promises.
//!
//! A package that only speaks ONC RPC needs no other crate of farcall, because this crate also exports
//! everything that the package's code names (`examples/calculator`). A package that depends on `farcall` as
//! well may use the names of either crate.
//!
//! | module | contents |
//! |---|---|
//! | [`routines`] | functions that make one call of a host, for users who need no stub |
//! | [`client`] | [`import`], and [`Client`] with its settings: addresses, deadlines, failures, threads |
//! | [`server`] | [`Server`] with its settings: programs, sockets, limits, callers |
//! | [`rpcbind`] | finding programs: a host's port mapper, a port mapper within this process, broadcast |
//! | [`standard`] | definitions of widely used protocols, and names of well-known programs |
//! | [`wire`] | encoding and decoding of messages, without I/O |

#![forbid(unsafe_code)]

// Code that macros generate refers to `::farcall`. In this crate that name means `farcall_core`.
extern crate farcall_core as farcall;

#[cfg(unix)]
pub mod client;
#[cfg(unix)]
#[doc(hidden)]
pub mod model;
mod portmap;
#[cfg(unix)]
pub mod routines;
pub mod rpcbind;
#[cfg(unix)]
pub mod server;
pub mod standard;
#[cfg(unix)]
pub mod wire;

/// The names that macro-generated code uses.
#[doc(hidden)]
pub use farcall_core as seam;
#[cfg(all(unix, feature = "signals"))]
pub use farcall_core::signals::take_signals;
pub use farcall_core::{
    Bytes, CallFailed, Calls, Cancelled, Context, Error, Exception, Group, Kind, Multi, Never, Pending, Ran,
    Result, ResultExt, context, multi, xdr,
};

#[cfg(unix)]
pub use client::auth::{AuthNone, AuthSys, Authenticator};
#[cfg(unix)]
pub use client::carrier::Address;
#[cfg(unix)]
pub use client::{Builder, Client, import};
#[cfg(unix)]
pub use server::Server;

/// Expands to the items of an `.x` file: constants, types, and a trait for each version of each program. The
/// path is relative to the package's directory. `docs/x-names.md` says how each name is translated.
///
/// ```
/// mod mount {
///     farcall_onc::include_x!("x/mount.x");
/// }
/// assert_eq!(mount::MNTPATHLEN, 1024);
/// ```
#[cfg(feature = "x")]
#[macro_export]
macro_rules! include_x {
    ($($arguments:tt)*) => {
        $crate::seam::include_x!(crate = $crate::seam, $($arguments)*);
    };
}
