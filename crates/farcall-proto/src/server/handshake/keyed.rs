//! The server's handshake in the scheme for tests.

use std::collections::VecDeque;

use super::*;
use crate::scheme::{HANDSHAKE, handshake, transcript};
use crate::wire::{self, Header};
use crate::{Mutant, Time};

/// The maximum number of unfinished handshakes that are kept. A further one replaces the oldest.
const MAX_UNFINISHED: usize = 64;

/// The field `rest` of a ticket that only proves the client's address. Such a ticket has no transcript (hash
/// of both handshakes), so no key can be derived from it.
const NO_KEY: [u8; 4] = [0; 4];

/// The parts of unfinished client handshakes. The number is the conversation in the ticket that proved the
/// client's address.
#[derive(Debug, Default)]
pub(in crate::server) struct Handshakes(VecDeque<(u64, Vec<u8>)>);

impl Handshakes {
    /// Stores a part of a handshake. Returns how many bytes of the handshake have arrived, and the whole
    /// handshake once it is complete.
    fn take(&mut self, conversation: u64, part: &wire::Handshake<'_>) -> (u32, Option<Vec<u8>>) {
        if part.total as usize != HANDSHAKE {
            return (0, None);
        }
        let at = self.0.iter().position(|(id, _)| *id == conversation).unwrap_or_else(|| {
            if self.0.len() == MAX_UNFINISHED {
                self.0.pop_front();
            }
            self.0.push_back((conversation, Vec::new()));
            self.0.len() - 1
        });
        let bytes = &mut self.0[at].1;
        if part.offset as usize == bytes.len() {
            bytes.extend_from_slice(part.part);
        }
        (bytes.len() as u32, (bytes.len() == HANDSHAKE).then(|| bytes.clone()))
    }
}

impl Server {
    pub(super) fn agree_keyed(
        &mut self,
        from: SocketAddr,
        bind: &Bind<'_>,
        (conversation, mut ticket, renewed): (u64, Ticket<'static>, bool),
    ) -> Agreed {
        let unsealed = Seal::without_key(Scheme::Open, Direction::ToClient);
        if renewed {
            return self.agreed(bind, conversation, ticket, OwnPart::default());
        }
        let mine = |conversation| handshake(&self.admission.issuer.key_for(b"handshake"), conversation);
        let proof = bind.proof.as_ref().filter(|(conversation, proof)| {
            proof.client == bind.client
                && self.admission.issuer.verify(proof, *conversation, from, Mutant::NONE).is_ok()
        });
        let Some((conversation_of_proof, proof)) = proof else {
            // The client has not proven its address yet, so nothing is kept.
            ticket = self.admission.issuer.dated_as(&ticket, conversation, from, NO_KEY.to_vec());
            return Agreed { conversation, ticket, part: OwnPart::default(), seal: unsealed };
        };
        let conversation = *conversation_of_proof;
        let bytes = mine(conversation);
        let (through, rest) = match proof.rest.len() {
            16 => (HANDSHAKE as u32, Some(proof.rest.to_vec())),
            _ => {
                let (through, all) = self.handshakes.take(conversation, &bind.handshake);
                (through, all.map(|theirs| transcript(bind.schemes, &theirs, &bytes).to_vec()))
            }
        };
        let Some(rest) = rest else {
            let part = OwnPart { through, ..OwnPart::default() };
            let ticket = self.admission.issuer.dated_as(proof, conversation, from, NO_KEY.to_vec());
            return Agreed { conversation, ticket, part, seal: unsealed };
        };
        let ticket = self.admission.issuer.dated_as(proof, conversation, from, rest);
        let part = OwnPart { bytes, offset: bind.handshake.through, through };
        self.agreed(bind, conversation, ticket, part)
    }

    /// Makes an answer that is sealed with the key of its ticket's conversation.
    fn agreed(&self, bind: &Bind<'_>, conversation: u64, ticket: Ticket<'static>, part: OwnPart) -> Agreed {
        let seal = match self.key_by(Scheme::Keyed, conversation, &ticket) {
            Some(key) => {
                Seal { scheme: Scheme::Keyed, key: key.answering(bind.body), direction: Direction::ToClient }
            }
            None => Seal::without_key(Scheme::Open, Direction::ToClient),
        };
        Agreed { conversation, ticket, part, seal }
    }

    /// Handles a datagram of a conversation whose key is not known. If the key can be derived from the
    /// datagram's ticket, opens the datagram with the key, or drops it if that fails. Without a good ticket,
    /// sends a hint.
    #[cold]
    pub(in crate::server) fn open_unknown<'d>(
        &mut self,
        now: Time,
        from: &SocketAddr,
        datagram: &'d [u8],
    ) -> Option<(Header, &'d [u8])> {
        let Ok((header, frames)) = wire::peek(datagram) else { return self.reject() };
        let Header { conversation, number, scheme } = header;
        if !scheme.has_secrets() || conversation == 0 || self.table.find(conversation).is_some() {
            return self.reject();
        }
        self.expect_answers(datagram.len());
        let Some(wire::Frame::Ticket(ticket)) = wire::Frames::first(frames) else {
            self.challenge(*from, header);
            return None;
        };
        if let Err(ended) = self.stands(now, conversation, &ticket, *from) {
            return self.refuse_ticket(*from, header, ticket.client, ended.reason);
        }
        let Some(key) = self.key_by(scheme, conversation, &ticket) else { return self.reject() };
        let seal = Seal { scheme, key, direction: Direction::ToServer };
        if seal.open(datagram, (conversation, number), true).is_none() {
            return self.reject();
        }
        self.stats.received += 1;
        Some((header, frames))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_keeps_the_latest_unfinished_handshakes_and_continues_each() {
        let mut handshakes = Handshakes::default();
        let mut take = |conversation, offset: u32, part: &[u8]| {
            let part = wire::Handshake { total: HANDSHAKE as u32, offset, through: 0, part };
            handshakes.take(conversation, &part).0
        };
        for conversation in 1..=MAX_UNFINISHED as u64 {
            assert_eq!(take(conversation, 0, &[7; 500]), 500);
        }
        assert_eq!(take(1, 400, &[7; 500]), 500, "a part that does not begin at 500 is ignored");
        assert_eq!(take(1, 500, &[7; 100]), 600);
        assert_eq!(take(MAX_UNFINISHED as u64 + 1, 0, &[7; 300]), 300);
        assert_eq!((take(2, 500, &[7; 100]), take(1, 600, &[])), (600, 0), "the oldest is forgotten");
    }
}
