//! Meets clients outside UDP: checks that they have the secrets of a conversation, which is known from then
//! on as if a datagram of it had opened.

use farcall_crypto::End;

use super::Server;
use super::table::Entry;
use crate::scheme::Scheme;
use crate::secure::Level;
use crate::wire::Ticket;
use crate::{Holder, Met, Rule, Shown, Time};

impl Server {
    /// Meets a client that shows the ticket of a conversation and proves that it has the conversation's
    /// secrets.
    ///
    /// Returns `None` if the ticket is not good, the client is no longer accepted, or the proof is wrong, and
    /// then nothing has changed; also if there is no room for the conversation.
    pub fn meet(&mut self, now: Time, shown: &Shown<'_>) -> Option<Met> {
        let mutant = self.config.mutant;
        let Holder { client, issued, conversation, address } = shown.holder;
        let ticket = Ticket::from_bytes(shown.ticket)?;
        if (ticket.client, ticket.issued) != (client, issued) && !mutant.breaks(Rule::MeetingHolderUnchecked)
        {
            return None;
        }
        let stands = self.stands(now, conversation, &ticket, address);
        if stands.is_err() && !mutant.breaks(Rule::MeetingTicketUnchecked) {
            return None;
        }
        let trust = self.config.trust.clone()?;
        let (secrets, principal) = self.secrets_of(&*trust, conversation, &ticket)?;
        let transcript = shown.meeting.transcript(shown.body, mutant)?;
        let prover = if mutant.breaks(Rule::MeetingProofsAlike) { End::Server } else { End::Client };
        if !secrets.is_proven(prover, &transcript, shown.proof) && !mutant.breaks(Rule::MeetingProofUnchecked)
        {
            return None;
        }
        let answer = secrets.prove(End::Server, &transcript);
        let (level, met) = (secrets.level(), (secrets, principal.clone()));
        if self.table.find(conversation).is_none() {
            if !self.make_room(now, ticket.issued) {
                return None;
            }
            self.note_proven(&met.1);
            self.seals.secrets.insert((conversation, None), met, self.coarse(now), self.config.mutant);
            self.enter(now, Entry::new(conversation, client, issued, address), scheme_of(level));
        }
        let ended = self.seals.secrets.meet(conversation);
        Some(Met { principal, answer, ended })
    }
}

fn scheme_of(level: Level) -> Scheme {
    match level {
        Level::Authenticated => Scheme::Authenticated,
        Level::Secure => Scheme::Secure,
    }
}
