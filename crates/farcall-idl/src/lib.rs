//! The Interface model of farcall: stubs, fingerprints, compatibility, values.
//!
//! [`Interface`] describes at run time what can be called. Servers send it to tools, which so need no source.
//! [`check`] reports what a change of an interface breaks. With the feature `stubs`, [`stubs`] turns an
//! interface in source form into Rust. With `values`, [`values`] converts JSON into arguments and results
//! into JSON, from the description alone. With `x`, [`x`] reads `.x` files, and [`build`] makes Rust of them
//! in a build script.

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
