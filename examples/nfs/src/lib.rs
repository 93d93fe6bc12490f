//! A directory exported by NFS version 3 (RFC 1813), and a client of it: what farcall's ONC RPC is good for.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

pub mod files;
mod opened;
pub mod places;
