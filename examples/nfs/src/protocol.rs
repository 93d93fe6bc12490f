//! The Rust of the two protocols, generated from their `.x` files.

/// NFS version 3 (RFC 1813).
pub mod nfs {
    farcall::include_x!("../../crates/farcall-onc/x/nfs3.x");
}

/// MOUNT, versions 1 and 3 (RFC 1813 appendix I).
pub mod mount {
    farcall::include_x!("../../crates/farcall-onc/x/mount.x");
}
