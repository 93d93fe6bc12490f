//! Finds and registers the programs of a host, by the port mapper's protocol (RFC 1833), versions 2 to 4.
//! There is also a port mapper for hosts that have none.
//!
//! A host's usual port mapper is the program `rpcbind`. On hosts without it, such as containers, a [`Mapper`]
//! does its work:
//!
//! ```
//! use farcall_onc::Server;
//! use farcall_onc::rpcbind::Mapper;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if false {
//! let mapper = Mapper::default();
//! let server = Server::builder().host_mapper(&mapper).start()?;
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! Programs in C look for a mapper at port 111 of IPv4 and of IPv6, and register by the Unix socket
//! [`SOCKET`]; `host_mapper` serves all three.

#[cfg(unix)]
mod broadcast;

#[cfg(unix)]
pub use crate::client::rpcbind::{Registration, Rpcbind};
pub use crate::portmap::address::{from_universal, netid, to_universal};
pub use crate::portmap::{PORT, PROGRAM, SOCKET, protocol};
#[cfg(unix)]
pub use crate::server::mapper::Mapper;
#[cfg(unix)]
pub use broadcast::{Broadcast, Heard};
