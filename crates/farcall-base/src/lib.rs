//! The types that every part of farcall uses to describe a call: why it failed, whether it ran, when, and its
//! trace.
//!
//! This crate has no dependencies. The packet exchange protocol shares these types with crates that do not
//! depend on it.

#![forbid(unsafe_code)]

mod address;
mod arguments;
mod call_key;
mod exchange;
mod failure;
mod locked;
#[doc(hidden)]
pub mod mutant;
mod obstacle;
mod principal;
pub mod room;
mod shared_path;
mod time;
mod trace;
pub mod work;

pub use address::canonical;
pub use arguments::{
    ArgumentBudget, Counted, KeptArguments, MAX_UNCOUNTED_ARGUMENT_BYTES, ServerArguments, SharedArguments,
};
pub use call_key::CallKey;
pub use exchange::Tail;
pub use failure::{Failure, Kind, Ran};
pub use locked::lock;
pub use obstacle::Obstacle;
pub use principal::{Evidence, Principal};
pub use shared_path::SharedPath;
pub use time::{Time, nanos};
pub use trace::Trace;
