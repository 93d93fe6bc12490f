//! Courier (XSIS 038112), Xerox's remote procedure call standard of 1981, for farcall's stubs.

#![forbid(unsafe_code)]

// Code that macros generate refers to `::farcall`. In this crate that name means `farcall_core`.
extern crate farcall_core as farcall;

#[cfg(unix)]
pub mod client;
pub mod codec;
#[cfg(unix)]
mod link;
pub mod wire;

#[cfg(unix)]
pub use client::{Builder, import};
#[cfg(unix)]
pub mod server;

#[cfg(unix)]
pub use server::Server;
