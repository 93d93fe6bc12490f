//! Proves at a meeting outside UDP that this client has the secrets of its conversation.

use farcall_crypto::End;

use super::Conversation;
use crate::{Holder, Proven};

impl Conversation {
    /// Proves that this client has the secrets of its conversation, to a server that is met outside UDP.
    /// `transcript` makes the transcript of the meeting, given the holder of the conversation's ticket, and
    /// the ticket as on the wire. Returns `None` without a conversation that has secrets, or if the server is
    /// no longer accepted.
    pub fn prove_meeting(&self, transcript: impl FnOnce(&Holder, &[u8]) -> Vec<u8>) -> Option<Proven> {
        let (holder, ticket) = self.ticket()?;
        let (secrets, server) = self.kept.as_ref()?.known();
        if !self.config.trust.as_ref()?.stands(server) {
            return None;
        }
        let transcript = transcript(&holder, &ticket.to_bytes());
        Some(Proven {
            proof: secrets.prove(End::Client, &transcript),
            answer: secrets.prove(End::Server, &transcript),
            server: server.clone(),
        })
    }
}
