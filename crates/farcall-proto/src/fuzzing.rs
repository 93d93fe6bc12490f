//! Functions with which fuzz targets and the simulation's hostile peer make datagrams by hand. Random bytes
//! would fail the checksum and never reach the decoders.

use crate::scheme::Scheme;
pub use crate::wire::kinds;
use crate::wire::{self, HEADER, Numbers, Target};

/// Makes a datagram of the open scheme with these frames, correctly sealed. `conversation` is the receiver's
/// identifier.
pub fn seal(conversation: u64, number: u64, frames: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; HEADER + frames.len() + Scheme::Open.tag()];
    datagram[HEADER..HEADER + frames.len()].copy_from_slice(frames);
    let target = Target::without_secrets(conversation, Scheme::Open);
    target.close(&mut datagram, 0, Numbers::from(number).take());
    datagram
}

/// Returns the bytes between a datagram's header and its tag, unchecked.
pub fn frames(datagram: &[u8]) -> &[u8] {
    wire::frames_of(datagram, Scheme::Open).unwrap_or_default()
}
