//! Handshakes at the server, which lead to a conversation's key (docs/protocol.md, "Handshake").
//!
//! The server keeps parts of a client's handshake only if the client has proven its address, and only for few
//! clients. Once it has all parts, it puts a hash of the handshakes into the ticket, and keeps nothing.

#[cfg(feature = "test-scheme")]
mod keyed;

use std::net::SocketAddr;

use super::Server;
use crate::scheme::{Direction, Key, Scheme, Seal};
use crate::wire::{Bind, Handshake, Ticket};
#[cfg(feature = "test-scheme")]
pub(super) use keyed::Handshakes;

/// What the answer to a bind says of handshakes: the server's, of which the part from `offset` on is sent,
/// and how many bytes of the client's have arrived.
#[derive(Debug, Default)]
pub(super) struct OwnPart {
    bytes: Vec<u8>,
    offset: u32,
    through: u32,
}

impl OwnPart {
    /// The handshake from `offset` on. As much of it is written as fits.
    pub fn on_wire(&self) -> Handshake<'_> {
        let total = self.bytes.len() as u32;
        let offset = self.offset.min(total);
        Handshake { total, offset, through: self.through, part: &self.bytes[offset as usize..] }
    }
}

/// What a server answers to the handshake in a bind.
pub(super) struct Agreed {
    pub conversation: u64,
    pub ticket: Ticket<'static>,
    pub part: OwnPart,
    /// The seal of the answer.
    pub seal: Seal,
}

impl Server {
    /// Answers the handshake in a bind that came from `from`, for which this ticket was made; `renewed` says
    /// whether the ticket renews another.
    pub(super) fn agree(
        &mut self,
        from: SocketAddr,
        bind: &Bind<'_>,
        scheme: Scheme,
        (conversation, ticket, renewed): (u64, Ticket<'static>, bool),
    ) -> Agreed {
        match scheme {
            Scheme::Open | Scheme::Local => {
                let seal = Seal::without_key(Scheme::Open, Direction::ToClient);
                let _ = (from, bind, renewed);
                Agreed { conversation, ticket, part: OwnPart::default(), seal }
            }
            #[cfg(feature = "test-scheme")]
            Scheme::Keyed => self.agree_keyed(from, bind, (conversation, ticket, renewed)),
        }
    }

    /// The key of a conversation in this scheme, by its ticket; `None` if the ticket's conversation is in
    /// another scheme.
    pub(super) fn key_by(&self, scheme: Scheme, conversation: u64, ticket: &Ticket<'_>) -> Option<Key> {
        match scheme {
            Scheme::Open | Scheme::Local => {
                let _ = conversation;
                ticket.rest.is_empty().then_some(Key::NONE)
            }
            #[cfg(feature = "test-scheme")]
            Scheme::Keyed => {
                let transcript = ticket.rest.as_ref().try_into().ok()?;
                Some(Key::of(&self.config.secret?, ticket.client, conversation, &transcript))
            }
        }
    }
}
