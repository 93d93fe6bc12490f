//! ONC RPC (RFC 5531): farcall's stubs, spoken to and served by the programs that exist.
//!
//! `wire` is messages without I/O; `client` and `server` have the sockets, `rpcbind` is how they find one another.

#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod client;
#[cfg(unix)]
pub mod routines;
pub mod rpcbind;
#[cfg(unix)]
pub mod server;
pub mod standard;
pub mod wire;

#[cfg(unix)]
pub use client::auth::{AuthNone, AuthSys, Authenticator};
#[cfg(unix)]
pub use client::carrier::Address;
#[cfg(unix)]
pub use client::{Builder, Client, import};
#[cfg(unix)]
pub use server::Server;
