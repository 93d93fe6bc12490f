//! ONC RPC (RFC 5531): farcall's stubs, spoken to and served by the programs that exist.
//!
//! `wire` is messages without I/O; `client` and `server` have the sockets.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod server;
pub mod wire;

#[cfg(target_os = "linux")]
pub use server::Server;
