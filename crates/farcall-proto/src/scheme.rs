//! How a datagram is sealed. `OPEN` is the only scheme so far: no secrecy and no proof of who sent
//! it, but a checksum strong enough that accident cannot change a call (docs/protocol.md, "Tag").
//!
//! The tag has its place, the header its scheme and the handshake its opaque, so that authenticated
//! schemes are added here and nowhere else.

use xxhash_rust::xxh3::xxh3_64;

/// The scheme without secrets.
pub(crate) const OPEN: u8 = 0;

/// Schemes that this side speaks, a bit each, as the handshake offers them.
pub(crate) const OFFERED: u32 = 1 << OPEN;

/// Bytes of the tag that ends a datagram.
pub(crate) const TAG: usize = 8;

/// Writes the tag into the last bytes of `datagram`.
#[inline(never)]
pub(crate) fn seal(datagram: &mut [u8]) {
    let Some((body, tag)) = datagram.split_last_chunk_mut::<TAG>() else {
        return;
    };
    *tag = xxh3_64(body).to_be_bytes();
}

/// The bytes between header and tag, if the tag is right.
#[inline]
pub(crate) fn open(datagram: &[u8], header: usize, check: bool) -> Option<&[u8]> {
    let (body, tag) = datagram.split_last_chunk::<TAG>()?;
    if check && *tag != xxh3_64(body).to_be_bytes() {
        return None;
    }
    body.get(header..)
}
