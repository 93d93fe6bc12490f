//! Stands in for `handshake.rs` in a build without the feature `secure`: no client has keys.

use std::sync::Arc;

use super::Conversation;
use crate::secure::{Cipher, Opened};
use crate::{Holder, Meeting, Proven};

impl Conversation {
    /// Returns the cipher by which the server's sealed datagrams open. In this build there is none.
    pub fn cipher(&self) -> Option<Arc<Cipher>> {
        None
    }

    /// Opens a sealed datagram of this conversation in place. In this build no datagram opens.
    pub fn open(&self, _: &mut [u8]) -> Option<Opened> {
        None
    }

    /// Proves at a meeting that this client has secrets. In this build it has none.
    pub fn prove_meeting(&self, _: &Meeting, _: impl FnOnce(&Holder, &[u8]) -> Vec<u8>) -> Option<Proven> {
        None
    }
}
