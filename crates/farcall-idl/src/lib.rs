//! Descriptions of interfaces, and what follows from them: stubs, fingerprints, compatibility checks, and
//! conversion of values.
//!
//! [`Interface`] describes at run time what can be called. Servers send it to tools, so tools do not need the
//! source. [`check`] reports which programs a change of an interface breaks. The feature `stubs` adds
//! [`stubs`], which generates Rust stubs from an interface in source form. The feature `values` adds
//! [`values`], which converts JSON to arguments and results to JSON by the description alone. The feature `x`
//! adds [`x`], which reads `.x` files, [`language`], which generates Rust from what was read, and [`build`],
//! which does both in a build script. The feature `cr` adds [`cr`], which reads `.cr` files, and the feature
//! `rpc2` adds [`rpc2`], which reads `.rpc2` files.

#![forbid(unsafe_code)]

mod binding;
#[cfg(feature = "x")]
mod build;
mod check;
#[cfg(feature = "cr")]
pub mod cr;
#[cfg(feature = "x")]
pub mod language;
mod model;
mod nearest;
#[cfg(feature = "rpc2")]
pub mod rpc2;
mod spell;
#[cfg(feature = "stubs")]
pub mod stubs;
mod terminal;
#[cfg(feature = "x")]
mod text;
#[cfg(feature = "values")]
pub mod values;
#[cfg(feature = "x")]
pub mod x;

pub use binding::{Refusal, refusals};
pub use check::{Change, check};
pub use model::{Argument, Builder, Fingerprint, Interface, Procedure};
pub use nearest::nearest;
pub use spell::{spell, spell_program};
pub use terminal::{is_order, printable};
#[cfg(feature = "x")]
pub use {
    build::{Build, build},
    x::from_interface::to_x,
};
