//! The Interface model of farcall: stubs, fingerprints, compatibility, values.
//!
//! [`Interface`] describes at run time what can be called; it crosses the wire, so that tools need no source.
//! With the feature `stubs`, [`stubs`] turns an interface in source form
//! into Rust.

#![forbid(unsafe_code)]

mod model;
mod spell;
#[cfg(feature = "stubs")]
pub mod stubs;

pub use model::{Argument, Builder, Interface, Procedure};
pub use spell::spell;
