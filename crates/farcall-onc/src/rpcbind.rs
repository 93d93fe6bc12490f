//! Where programs are found on a host: the port mapper's protocol (RFC 1833), versions 2 to 4, and a mapper of our own for
//! hosts that have none.
//!
//! The host's own is `rpcbind`. Where there is none (in containers, on systems without one), a [`Mapper`] does its work:
//!
//! ```
//! use farcall_onc::Server;
//! use farcall_onc::rpcbind::Mapper;
//!
//! let mapper = Mapper::default();
//! # let address = "127.0.0.1:0"; /*
//! let address = "0.0.0.0:111";
//! # */
//! let server = Server::builder().mapper(&mapper).address(address.parse()?).start()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
#[cfg(unix)]
mod broadcast;
#[cfg(unix)]
mod mapper;
#[cfg(unix)]
mod offered;
pub mod protocol;
#[cfg(unix)]
pub(crate) mod query;

pub use address::{from_universal, netid, to_universal};
#[cfg(unix)]
pub use broadcast::{Broadcast, Heard};
#[cfg(unix)]
pub use mapper::Mapper;
#[cfg(unix)]
pub(crate) use offered::Offered;
#[cfg(unix)]
pub use query::{Registration, Rpcbind};

/// The program's number (RFC 1833 section 2.1).
pub const PROGRAM: u32 = 100_000;
/// The port where it is found, over UDP and TCP.
pub const PORT: u16 = 111;
/// The Unix socket at which a host's own programs find it.
pub const SOCKET: &str = "/run/rpcbind.sock";
