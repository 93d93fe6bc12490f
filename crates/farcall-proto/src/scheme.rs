//! How a datagram is sealed: no secrecy and no proof of who sent it so far. In the open scheme a checksum
//! is strong enough that accident cannot change a call; in the local one, between two ends on one machine,
//! there is nothing that could (docs/protocol.md, "Tag").
//!
//! The tag has its place, the header its scheme and the handshake its opaque, so that authenticated
//! schemes are added here and nowhere else.

use xxhash_rust::xxh3::xxh3_64;

/// The scheme without secrets.
pub(crate) const OPEN: u8 = 0;

/// The scheme of datagrams that never leave the machine.
pub(crate) const LOCAL: u8 = 1;

/// Schemes that this side speaks, a bit each, as the handshake offers them.
pub(crate) const OFFERED: u32 = 1 << OPEN | 1 << LOCAL;

/// Bytes of the tag that ends a datagram.
pub(crate) const TAG: usize = 8;

/// Writes the tag into the last bytes of `datagram`.
#[inline(always)]
pub(crate) fn seal(datagram: &mut [u8], local: bool) {
    let len = datagram.len() as u64;
    let Some((body, tag)) = datagram.split_last_chunk_mut::<TAG>() else {
        return;
    };
    *tag = if local { len.to_be_bytes() } else { hash(body) };
}

/// The same in the local scheme, of a datagram that has `inserted` bytes more, which stand elsewhere.
pub(crate) fn seal_around(datagram: &mut [u8], inserted: usize) {
    let len = (datagram.len() + inserted) as u64;
    if let Some(tag) = datagram.last_chunk_mut::<TAG>() {
        *tag = len.to_be_bytes();
    }
}

/// The bytes between header and tag, if the tag is right.
#[inline(always)]
pub(crate) fn open(datagram: &[u8], header: usize, local: bool, check: bool) -> Option<&[u8]> {
    let (body, tag) = datagram.split_last_chunk::<TAG>()?;
    let right = if local { (datagram.len() as u64).to_be_bytes() } else { hash(body) };
    if check && *tag != right {
        return None;
    }
    body.get(header..)
}

#[inline(never)]
fn hash(body: &[u8]) -> [u8; TAG] {
    xxh3_64(body).to_be_bytes()
}
