//! The security schemes of datagrams, and the tags of those without secrets (docs/protocol.md, "Tag").
//!
//! The open scheme has a checksum, which detects accidental changes. The local scheme, between two ends on one
//! machine, has none. The authenticated and the secure scheme have secrets: their tags are made by the
//! conversation's cipher (`secure.rs`).

use std::hash::Hasher;

#[cfg(feature = "secure")]
use farcall_crypto::Level;
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
    /// Both ends are known to each other, and no datagram can be forged. Everybody can read them.
    Authenticated = 2,
    /// Besides that, only the two ends can read the frames.
    Secure = 3,
}

impl Scheme {
    /// Returns the scheme of that number.
    #[inline(always)]
    pub fn of(number: u8) -> Option<Scheme> {
        match number {
            0 => Some(Scheme::Open),
            1 => Some(Scheme::Local),
            2 => Some(Scheme::Authenticated),
            3 => Some(Scheme::Secure),
            _ => None,
        }
    }

    /// Returns how many bytes the tag at the end of a datagram takes.
    #[inline(always)]
    pub const fn tag(self) -> usize {
        8 << (self as usize >> 1)
    }

    /// Returns the scheme's bit in the set of schemes that a BIND offers.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns whether the scheme has secrets. A conversation in a scheme with secrets never changes to
    /// another, and ignores everything that is not sealed with its key.
    #[inline(always)]
    pub const fn has_secrets(self) -> bool {
        self as u8 >= Scheme::Authenticated as u8
    }

    /// Returns how much the seals of a scheme with secrets protect, and `None` for a scheme without.
    #[cfg(feature = "secure")]
    pub const fn level(self) -> Option<Level> {
        match self {
            Scheme::Open | Scheme::Local => None,
            Scheme::Authenticated => Some(Level::Authenticated),
            Scheme::Secure => Some(Level::Secure),
        }
    }

    /// Writes the tag of a scheme without secrets into the last bytes of a datagram. `inserted` is the number
    /// of the datagram's bytes that are in another buffer. Unless it is 0, [`Scheme::closes_around`] must be
    /// true.
    #[inline(always)]
    pub fn close(self, datagram: &mut [u8], inserted: usize) {
        debug_assert!(inserted == 0 || self.closes_around());
        if self == Scheme::Local {
            let len = (datagram.len() + inserted) as u64;
            if let Some(tag) = datagram.last_chunk_mut() {
                *tag = len.to_be_bytes();
            }
        } else if self == Scheme::Open
            && let Some((body, tag)) = datagram.split_last_chunk_mut()
        {
            *tag = checksum(body);
        }
    }

    /// Returns whether the tag can be computed while some of the datagram's bytes are in another buffer.
    pub fn closes_around(self) -> bool {
        self == Scheme::Local
    }

    /// Returns whether a datagram's tag is right. In a scheme with secrets the cipher has found that out
    /// before: `opened` says so.
    #[inline(always)]
    pub fn checks(self, datagram: &[u8], opened: bool) -> bool {
        if self == Scheme::Local {
            return datagram.last_chunk() == Some(&(datagram.len() as u64).to_be_bytes());
        }
        if self.has_secrets() {
            return opened;
        }
        datagram.split_last_chunk().is_some_and(|(body, tag)| *tag == checksum(body))
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
