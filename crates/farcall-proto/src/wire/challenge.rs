//! CHALLENGE: a hint that the server does not know the conversation, so that the ticket is to be shown.

use super::kinds::CHALLENGE;
use super::{Malformed, Reader, Writer};

/// Reads the conversation. The frame's other field, the number of the datagram that it answers, is only for
/// people who read captures.
pub(super) fn read(mut r: Reader<'_>) -> Result<u64, Malformed> {
    r.u64()
}

impl Writer<'_> {
    pub fn challenge(&mut self, conversation: u64, number: u64) {
        self.frame(CHALLENGE, 0, 16).u64(conversation).u64(number);
    }
}
