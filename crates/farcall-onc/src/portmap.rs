//! What the port mapper's clients and our port mapper share: its number, its procedures and types, its
//! addresses.

pub(crate) mod address;
pub mod protocol;

/// The program's number (RFC 1833 section 2.1).
pub const PROGRAM: u32 = 100_000;
/// The port where it is found, over UDP and TCP.
pub const PORT: u16 = 111;
/// The Unix socket at which a host's own programs find it.
pub const SOCKET: &str = "/run/rpcbind.sock";
