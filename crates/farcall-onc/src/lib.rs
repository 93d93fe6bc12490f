//! ONC RPC (RFC 5531): farcall's stubs, spoken to and served by the programs that exist.
//!
//! **A server** implements a trait with numbers, and is called over UDP, TCP and Unix sockets:
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
//!     server.start()?.wait();
//!     Ok(())
//! }
//! ```
//!
//! **A client** is the user-stub of the same trait, whoever made the server:
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
//!     let pending = calculator.start().twice(4); // does not
//!     println!("{}", pending.wait()?);
//!     Ok(())
//! }
//! ```
//!
//! **An `.x` file** gives the same kind of traits, one for each version of each program, and the types:
//! [`include_x!("nfs3.x")`](include_x). `docs/onc.md` leads from such a file to a server, a client, and a
//! client in C, and says what is promised.
//!
//! A package that only speaks ONC RPC needs no other crate of farcall: what its code names is here too
//! (`examples/calculator`). A package that depends on `farcall` as well may use the names of either.
//!
//! | module | |
//! |---|---|
//! | [`routines`] | ready to use: what one line asks of a host |
//! | [`client`] | [`import`], and [`Client`] with all that can be set: addresses, time, failures, threads |
//! | [`server`] | [`Server`]: programs, sockets, limits, who calls |
//! | [`rpcbind`] | how they find one another: the host's port mapper, one of our own, broadcast |
//! | [`standard`] | protocols that many speak, and what the numbers of programs mean |
//! | [`wire`] | messages, without I/O |

#![forbid(unsafe_code)]

// What macros make names `::farcall`. To this crate that is what every protocol needs, and no more.
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

/// What the code that macros make names.
#[doc(hidden)]
pub use farcall_core as seam;
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

/// Puts the types and traits of an `.x` file in its place: constants, types, and a trait for each version of
/// each program. The path is relative to the package. What becomes of each name is in `docs/x-names.md`.
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
