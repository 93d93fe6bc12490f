//! The parts that the client and the server of the port mapper share: its number, its procedures and types,
//! and its addresses.

pub(crate) mod address;
pub mod protocol;

/// The program's number (RFC 1833 section 2.1).
pub const PROGRAM: u32 = 100_000;
/// The port mapper's port, over UDP and TCP.
pub const PORT: u16 = 111;
/// The Unix socket by which a host's own programs reach the port mapper.
pub const SOCKET: &str = "/run/rpcbind.sock";
