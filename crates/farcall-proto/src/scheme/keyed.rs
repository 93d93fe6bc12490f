//! The scheme for tests: a keyed MAC over everything, with a longer tag. Nothing is encrypted.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::Direction;

/// Bytes of its tag.
pub(super) const TAG: usize = 16;

/// The key of a conversation; zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key([u8; 16]);

impl Key {
    /// No key.
    pub const NONE: Key = Key([0; 16]);

    /// The tag of a datagram of that number, for the receiver's `conversation`.
    pub(super) fn tag(&self, body: &[u8], direction: Direction, conversation: u64, number: u64) -> [u8; TAG] {
        let mut mac = SipHasher24::new_with_key(&self.0);
        mac.write(&[direction as u8]);
        mac.write(&conversation.to_be_bytes());
        mac.write(&number.to_be_bytes());
        mac.write(body);
        mac.finish128().as_bytes()
    }
}
