//! The Interface model of farcall: stubs, fingerprints, compatibility, values.
//!
//! [`Interface`] describes at run time what can be called; it crosses the wire, so that tools need no source.
//! [`check`] says what a change of it breaks. With the feature `stubs`, [`stubs`] turns an interface in
//! source form into Rust; with `values`, [`values`] turns JSON into arguments, and results into JSON, by the
//! description alone; with `x`, [`x`] reads `.x` files, and [`build`] makes Rust of them in a build script.

#![forbid(unsafe_code)]

mod binding;
mod check;
mod model;
mod spell;
#[cfg(feature = "stubs")]
pub mod stubs;
#[cfg(feature = "x")]
mod text;
#[cfg(feature = "values")]
pub mod values;
#[cfg(feature = "x")]
pub mod x;

pub use binding::{Refusal, refusals};
pub use check::{Change, check};
pub use model::{Argument, Builder, Fingerprint, Interface, Procedure};
pub use spell::{spell, spell_program};
#[cfg(feature = "x")]
pub use x::{Build, build, from_interface::to_x};
