//! Segments whose readers the kernel answers: an XDP program, and the BPF arrays that are the segments.
//!
//! ```text
//! program/read.c    the program; read.o is it compiled, by scripts/xdp
//! kernel            loads the program, attaches it, and tells it of segments and conversations
//! array             a BPF array that this process has mapped
//! none              replaces these on systems that have no such thing
//! ```
//!
//! This crate does not know segments or conversations beyond what the program needs. `docs/kernel-served.md`
//! says what the kernel answers, and why importers and the server in user space agree with it.
//!
//! ```no_run
//! use farcall_xdp::Kernel;
//!
//! # fn main() -> Result<(), farcall_xdp::Unavailable> {
//! let kernel = Kernel::load(&["eth0".to_owned()])?;
//! let memory = kernel.array(4096)?;
//! kernel.offer(7, &memory, 1)?; // Export 7 is readable from now on, as generation 1.
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod array;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod kernel;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod none;

use std::fmt;
use std::net::SocketAddr;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use array::SegmentArray;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use kernel::Kernel;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub use none::{Kernel, SegmentArray};

/// The most bytes of a segment that the kernel serves. The kernel allocates all of them at once.
pub const MAX_SEGMENT_BYTES: usize = 256 << 20;

/// The most bytes of a read that the kernel answers.
pub const MAX_READ_BYTES: usize = 192;

/// A conversation of a server in user space. Its client has proven that it is at this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The server's identifier of the conversation.
    pub server: u64,
    /// The client's identifier of the conversation.
    pub client: u64,
    /// The sequence of a read that the server has answered. The program answers later ones.
    pub sequence: u64,
    /// The client's address.
    pub address: SocketAddr,
    /// The port at which the server listens.
    pub server_port: u16,
}

/// How the program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The driver runs the program before the packet has a socket buffer.
    Native,
    /// The network stack runs the program, because the driver cannot.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

/// Why the kernel does not serve. The text has the kernel's words, the verifier's too.
#[derive(Debug)]
pub struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}
