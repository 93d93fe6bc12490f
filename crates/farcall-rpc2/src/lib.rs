//! RPC2 (Carnegie Mellon University) for farcall: interfaces in its language, and the form in which its stubs
//! pack values.
//!
//! | module | contents |
//! |---|---|
//! | [`codec`] | XDR bytes to packed ones, and back |

#![forbid(unsafe_code)]

// Code that macros generate refers to `::farcall`. In this crate that name means `farcall_core`.
extern crate farcall_core as farcall;

pub mod codec;

/// The names that macro-generated code uses.
#[doc(hidden)]
pub use farcall_core as seam;
pub use farcall_core::{
    CallFailed, Calls, Cancelled, Context, Error, Exception, Group, Kind, Multi, Never, Pending, Ran, Result,
    ResultExt, context, multi, xdr,
};

/// Expands to the items of a `.rpc2` file: constants, types, and the subsystem's trait. The path is relative to
/// the package's directory. `docs/rpc2.md` says how each name is translated.
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
