//! Stands in for `handshake.rs` in a build without the feature `secure`: no client has keys.

use std::sync::Arc;

use super::Conversation;
use super::session::Request;
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
    pub fn prove_meeting(
        &self,
        _: u64,
        _: &Meeting,
        _: impl FnOnce(&Holder, &[u8]) -> Vec<u8>,
    ) -> Option<Proven> {
        None
    }

    /// Returns whether a WELCOME comes from the server of the conversation. In this build nobody can tell.
    pub(super) fn is_same_server(&self) -> bool {
        true
    }

    /// Notes that a question was answered. In this build a binding depends on no keys.
    pub(super) fn note_bound(&mut self, _: &Request, _: u64) -> bool {
        true
    }

    /// Returns whether calls are outstanding whose server is no longer accepted. In this build none is.
    #[inline(always)]
    pub(super) fn is_distrusted(&self) -> bool {
        false
    }
}
