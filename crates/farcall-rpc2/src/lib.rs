//! RPC2 (Carnegie Mellon University) for farcall: interfaces in its language, the form in which its stubs
//! pack values, and clients and servers that speak its packets in their plain mode.
//!
//! ```
//! use std::sync::Arc;
//! use farcall_rpc2::Server;
//!
//! mod clock {
//!     farcall_rpc2::include_rpc2!("../farcall/tests/rpc2/clock.rpc2");
//! }
//! use clock::{AskError, AskResults, Clock};
//!
//! struct Here;
//! impl Clock for Here {
//!     fn ask(&self) -> farcall::Result<AskResults, AskError> {
//!         Ok(AskResults { seconds: 5, microseconds: 0 })
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let builder = Server::builder().subsystem::<dyn Clock>(71, Arc::new(Here));
//! let server = builder.udp("127.0.0.1:0".parse()?).start()?;
//! let clock = farcall_rpc2::import::<dyn Clock>(&format!("rpc2://{}/71", server.address()))?;
//! assert_eq!(clock.ask()?.seconds, 5);
//! # Ok(())
//! # }
//! ```
//!
//! `docs/rpc2.md` says what is spoken, and with whom it was tried.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | [`import`], and [`Builder`] with its settings |
//! | [`server`] | [`Server`] with its settings: subsystems, address, limits |
//! | [`packet`] | packets, without I/O |
//! | [`codec`] | XDR bytes to packed ones, and back |

#![forbid(unsafe_code)]

// Code that macros generate refers to `::farcall`. In this crate that name means `farcall_core`.
extern crate farcall_core as farcall;

pub mod client;
pub mod codec;
pub mod packet;
pub mod server;

/// The names that macro-generated code uses.
#[doc(hidden)]
pub use farcall_core as seam;
#[cfg(all(unix, feature = "signals"))]
pub use farcall_core::signals::take_signals;
pub use farcall_core::{
    CallFailed, Calls, Cancelled, Context, Error, Exception, Group, Kind, Multi, Never, Pending, Ran, Result,
    ResultExt, context, multi, xdr,
};

pub use client::{Builder, import};
pub use server::Server;

/// Expands to the items of a `.rpc2` file: constants, types, and the subsystem's trait. The path is relative
/// to the package's directory. `docs/rpc2.md` says how each name is translated.
///
/// ```
/// mod clock {
///     farcall_rpc2::include_rpc2!("../farcall/tests/rpc2/clock.rpc2");
/// }
/// assert_eq!(clock::AskResults::default().seconds, 0);
/// ```
#[cfg(feature = "rpc2")]
#[macro_export]
macro_rules! include_rpc2 {
    ($($arguments:tt)*) => {
        $crate::seam::include_rpc2!(crate = $crate::seam, $($arguments)*);
    };
}
