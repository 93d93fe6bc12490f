//! How a datagram is sealed (docs/protocol.md, "Tag"): the security schemes, the length of each one's tag,
//! and the key of a conversation.
//!
//! Neither released scheme has secrets. The open scheme has a checksum, which detects accidental changes. The
//! local scheme, between two ends on one machine, has none. A scheme with secrets would be added here, and
//! its agreement on a key in the `handshake.rs` of both ends. Sealing and opening already get what it would
//! need: the conversation, the datagram's number, its direction and the key.

#[cfg(feature = "test-scheme")]
mod keyed;

use std::hash::Hasher;

#[cfg(feature = "test-scheme")]
pub(crate) use keyed::{HANDSHAKE, Key, handshake, transcript};
use siphasher::sip128::{Hash128, Hasher128, SipHasher24};
use xxhash_rust::xxh3::xxh3_64;

/// The security scheme of a datagram: its number on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Scheme {
    /// No secrets. The tag is a checksum.
    #[default]
    Open = 0,
    /// No secrets, for datagrams that never leave the machine. The tag is the datagram's length.
    Local = 1,
    /// A keyed MAC, for tests. It shows that the protocol has every place that a scheme with secrets needs.
    #[cfg(feature = "test-scheme")]
    Keyed = 3,
}

impl Scheme {
    /// Returns the scheme of that number, if this build has it.
    #[inline(always)]
    pub fn of(number: u8) -> Option<Scheme> {
        match number {
            0 => Some(Scheme::Open),
            1 => Some(Scheme::Local),
            #[cfg(feature = "test-scheme")]
            3 => Some(Scheme::Keyed),
            _ => None,
        }
    }

    /// Returns how many bytes the tag at the end of a datagram takes.
    #[inline(always)]
    pub const fn tag(self) -> usize {
        match self {
            Scheme::Open | Scheme::Local => 8,
            #[cfg(feature = "test-scheme")]
            Scheme::Keyed => keyed::TAG,
        }
    }

    /// Returns the scheme's bit in the set of schemes that a BIND offers.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns whether the scheme has secrets. A conversation in a scheme with secrets never changes to
    /// another, and ignores everything that is not sealed with its key.
    #[inline(always)]
    pub const fn has_secrets(self) -> bool {
        match self {
            Scheme::Open | Scheme::Local => false,
            #[cfg(feature = "test-scheme")]
            Scheme::Keyed => true,
        }
    }
}

/// The key of a conversation. It is empty, because no scheme in this build has secrets.
#[cfg(not(feature = "test-scheme"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key;

#[cfg(not(feature = "test-scheme"))]
impl Key {
    /// No key.
    pub const NONE: Key = Key;
}

/// Which end a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

/// How the datagrams of a conversation are sealed in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub scheme: Scheme,
    pub key: Key,
    pub direction: Direction,
}

impl Seal {
    /// Returns the seal of datagrams that belong to no conversation, or to one in a scheme without secrets.
    #[inline(always)]
    pub fn without_key(scheme: Scheme, direction: Direction) -> Seal {
        Seal { scheme, key: Key::NONE, direction }
    }

    /// Writes the tag into the last bytes of the datagram of this number, for the receiver's `conversation`.
    /// `inserted` is the number of the datagram's bytes that are in another buffer. Unless it is 0,
    /// [`Seal::closes_around`] must be true.
    #[inline(always)]
    pub fn close(&self, datagram: &mut [u8], (conversation, number): (u64, u64), inserted: usize) {
        debug_assert!(inserted == 0 || self.closes_around());
        let len = (datagram.len() + inserted) as u64;
        match self.scheme {
            Scheme::Open => {
                if let Some((body, tag)) = datagram.split_last_chunk_mut() {
                    *tag = checksum(body);
                }
            }
            Scheme::Local => {
                if let Some(tag) = datagram.last_chunk_mut() {
                    *tag = len.to_be_bytes();
                }
            }
            #[cfg(feature = "test-scheme")]
            Scheme::Keyed => {
                if let Some((body, tag)) = datagram.split_last_chunk_mut() {
                    *tag = self.key.tag(body, self.direction, conversation, number);
                }
            }
        }
        let _ = (conversation, number);
    }

    /// Returns whether the tag can be computed while some of the datagram's bytes are in another buffer.
    pub fn closes_around(&self) -> bool {
        self.scheme == Scheme::Local
    }

    /// Returns the bytes before the tag, if the tag is right or `check` is false.
    #[inline(always)]
    pub fn open<'d>(
        &self,
        datagram: &'d [u8],
        (conversation, number): (u64, u64),
        check: bool,
    ) -> Option<&'d [u8]> {
        let end = datagram.len().checked_sub(self.scheme.tag())?;
        let right = match self.scheme {
            Scheme::Open => datagram.split_last_chunk().is_some_and(|(body, tag)| *tag == checksum(body)),
            Scheme::Local => datagram.last_chunk() == Some(&(datagram.len() as u64).to_be_bytes()),
            #[cfg(feature = "test-scheme")]
            Scheme::Keyed => datagram
                .split_last_chunk()
                .is_some_and(|(body, tag)| *tag == self.key.tag(body, self.direction, conversation, number)),
        };
        let _ = (conversation, number);
        if check && !right { None } else { datagram.get(..end) }
    }
}

/// Hashes `parts`, one after the other, under a secret key.
pub(crate) fn keyed_hash(key: &[u8; 16], parts: &[&[u8]]) -> Hash128 {
    let mut hasher = SipHasher24::new_with_key(key);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish128()
}

#[inline(never)]
fn checksum(body: &[u8]) -> [u8; 8] {
    xxh3_64(body).to_be_bytes()
}
