//! An example of farcall's ONC RPC: an NFS version 3 server (RFC 1813) for a directory, and a client.
//!
//! ```text
//! protocol     the protocols, generated from nfs3.x and mount.x
//! serve        the procedures of NFS             mounts    the procedures of MOUNT: from a path to the first handle
//! attributes   conversions between the system's types and NFS's
//! client       lists, reads and writes files of any server
//! files        the operations on the exported directory
//! places       finds the file of a handle        opened    keeps files open
//! changes      notes which files are being changed
//! ```

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod attributes;
mod changes;
pub mod client;
pub mod files;
mod mounts;
mod opened;
pub mod places;
#[allow(missing_docs)]
pub mod protocol;
mod serve;

pub use mounts::Mounts;
pub use serve::Export;
