//! Proves at a meeting outside UDP that this client has the secrets of its conversation.

use farcall_crypto::End;

use super::Conversation;
use crate::{Holder, Meeting, Proven, Rule};

impl Conversation {
    /// Proves that this client has the secrets of its conversation, to a server that is met outside UDP
    /// because of an export. `body` makes what the client will say there after its proof, given the holder of
    /// the conversation's ticket, and the ticket as on the wire, which must be part of it. Returns `None`
    /// without a conversation that has secrets, if the server is no longer accepted for the export's name, or
    /// if the body has 64 KiB or more.
    pub fn prove_meeting(
        &self,
        export: u64,
        meeting: &Meeting,
        body: impl FnOnce(&Holder, &[u8]) -> Vec<u8>,
    ) -> Option<Proven> {
        let mutant = self.config.mutant;
        let (holder, ticket) = self.ticket()?;
        let kept = self.kept.as_ref()?;
        let (secrets, server) = (kept.secrets(), kept.server_of(export)?);
        if !self.config.trust.as_ref()?.stands(server) && !mutant.breaks(Rule::MeetingServerUnchecked) {
            return None;
        }
        let body = body(&holder, &ticket.to_bytes());
        let transcript = meeting.transcript(&body, mutant)?;
        let prover = if mutant.breaks(Rule::MeetingProofsAlike) { End::Server } else { End::Client };
        let (proof, answer) = (secrets.prove(prover, &transcript), secrets.prove(End::Server, &transcript));
        Some(Proven { proof, body, server: server.clone(), answer, mutant })
    }
}
