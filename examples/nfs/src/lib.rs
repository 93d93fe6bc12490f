//! A directory exported by NFS version 3 (RFC 1813), and a client of it: what farcall's ONC RPC is good for.
//!
//! ```text
//! protocol     nfs3.x and mount.x, compiled where they are used
//! serve        the procedures of NFS        mounts    from a path to the first handle
//! attributes   between the system's words and NFS's
//! client       lists, reads and writes files of any server
//! files        the exported directory       places    from a handle to its file      opened    files kept open
//! changes      which files are being changed
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
