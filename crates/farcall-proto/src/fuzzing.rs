//! What fuzz targets need to get past the seal: a decoder behind a checksum is never reached by chance.

use crate::scheme;
use crate::wire::{HEADER, Header, Writer};

/// A datagram of the open scheme with these frames, correctly sealed. `conversation` is the receiver's identifier.
pub fn seal(conversation: u64, number: u64, frames: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; HEADER + frames.len() + scheme::TAG];
    Writer::new(&mut datagram, usize::MAX, Header { conversation, number, local: false });
    datagram[HEADER..HEADER + frames.len()].copy_from_slice(frames);
    scheme::seal(&mut datagram, false);
    datagram
}

/// The bytes between header and tag of a datagram, whatever they are.
pub fn frames(datagram: &[u8]) -> &[u8] {
    let end = datagram.len().saturating_sub(scheme::TAG);
    datagram.get(HEADER..end).unwrap_or(&[])
}
