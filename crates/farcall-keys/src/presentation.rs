//! Presentations: what an end shows in a handshake.
//!
//! The encoding, version 1: the version byte 1; the identity's public key (32 bytes); the number of grants
//! (1 byte, at most 2); and each grant with its length in front (2 bytes, big-endian).

use crate::codec::{Malformed, Reader};
use crate::grant::{Grant, MAX_GRANT_BYTES};
use crate::key::PublicKey;

/// The maximum length of a presentation in bytes. A question with the longest name, a ticket, and a first
/// message that holds such a presentation fits a datagram of 1,200 bytes.
pub const MAX_PRESENTATION_BYTES: usize = 500;

/// The most grants of a presentation.
pub const MAX_GRANTS_SHOWN: usize = 2;

const VERSION: u8 = 1;

/// Bytes of a presentation without grants.
const WITHOUT_GRANTS: usize = 1 + 32 + 1;

// Any one grant can be shown.
const _: () = assert!(WITHOUT_GRANTS + 2 + MAX_GRANT_BYTES <= MAX_PRESENTATION_BYTES);

/// An end's public key, and at most two grants that are for this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presentation {
    key: PublicKey,
    grants: Vec<Grant>,
}

impl Presentation {
    /// Makes a presentation of a key. Grants beyond the second, those for other keys, and a second grant for
    /// which there is no room, are left out.
    pub fn new(key: PublicKey, grants: impl IntoIterator<Item = Grant>) -> Presentation {
        let own = grants.into_iter().filter(|grant| grant.terms().key == key);
        let mut len = WITHOUT_GRANTS;
        let has_room = |grant: &Grant| {
            len += 2 + grant.encode().len();
            len <= MAX_PRESENTATION_BYTES
        };
        Presentation { key, grants: own.take(MAX_GRANTS_SHOWN).take_while(has_room).collect() }
    }

    /// Decodes a presentation. The signatures of its grants are not checked.
    ///
    /// # Errors
    /// The place of the first byte that is wrong, also if a grant is for another key.
    pub fn decode(bytes: &[u8]) -> Result<Presentation, Malformed> {
        let mut reader = Reader::new("a presentation", bytes);
        if bytes.len() > MAX_PRESENTATION_BYTES {
            let found = bytes.len();
            return Err(reader
                .wrong(format!("{found} bytes, and a presentation has at most {MAX_PRESENTATION_BYTES}")));
        }
        reader.version(VERSION)?;
        let key = reader.key()?;
        let count = usize::from(reader.u8()?);
        if count > MAX_GRANTS_SHOWN {
            return Err(reader.wrong(format!("{count} grants, and at most {MAX_GRANTS_SHOWN} can be shown")));
        }
        let mut grants = Vec::with_capacity(count);
        for _ in 0..count {
            let length = usize::from(reader.u16()?);
            let grant = Grant::decode(reader.take(length)?).map_err(|why| reader.wrong(why.to_string()))?;
            if grant.terms().key != key {
                return Err(reader.wrong("this grant is for another key than the one that shows it"));
            }
            grants.push(grant);
        }
        reader.end()?;
        Ok(Presentation { key, grants })
    }

    /// Encodes the presentation, in at most [`MAX_PRESENTATION_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.push(self.grants.len() as u8);
        for grant in &self.grants {
            let grant = grant.encode();
            bytes.extend_from_slice(&(grant.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&grant);
        }
        bytes
    }

    /// Returns the key that is shown.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns the grants that are shown. They may be forged, expired or revoked.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }
}
