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
#[inline]
pub(crate) fn seal(datagram: &mut [u8]) {
    let Some((body, tag)) = datagram.split_last_chunk_mut::<TAG>() else {
        return;
    };
    *tag = checksum(body).to_be_bytes();
}

/// The bytes between header and tag, if the tag is right.
#[inline]
pub(crate) fn open(datagram: &[u8], header: usize, check: bool) -> Option<&[u8]> {
    let (body, tag) = datagram.split_last_chunk::<TAG>()?;
    if check && *tag != checksum(body).to_be_bytes() {
        return None;
    }
    body.get(header..)
}

/// XXH3. A function for what is short and one for what is not, since the second saves registers that
/// the first does not need.
#[inline(never)]
fn checksum(body: &[u8]) -> u64 {
    if body.len() <= 128 { xxh3_64(body) } else { long_checksum(body) }
}

#[inline(never)]
fn long_checksum(body: &[u8]) -> u64 {
    xxh3_64(body)
}
