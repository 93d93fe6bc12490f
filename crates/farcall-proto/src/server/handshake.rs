//! Handshakes at the server, which lead to a conversation's key (docs/protocol.md, "Handshake").
//!
//! The server keeps parts of a client's handshake only if the client has proven its address, and only for a
//! few clients. Once it has all parts, it puts a hash of both handshakes into the ticket, and keeps nothing.

#[cfg(feature = "test-scheme")]
mod keyed;

use std::net::SocketAddr;

use super::Server;
use crate::scheme::{Direction, Key, Scheme, Seal};
use crate::wire::{Bind, Handshake, Ticket};
#[cfg(feature = "test-scheme")]
pub(super) use keyed::Handshakes;

/// The handshake field of an answer to a BIND: the server's handshake, of which the part from `offset` on is
/// sent, and how many bytes of the client's handshake have arrived (`through`).
#[derive(Debug, Default)]
pub(super) struct OwnPart {
    bytes: Vec<u8>,
    offset: u32,
    through: u32,
}

impl OwnPart {
    /// Returns the handshake from `offset` on. The writer shortens it to what fits.
    pub fn on_wire(&self) -> Handshake<'_> {
        let total = self.bytes.len() as u32;
        let offset = self.offset.min(total);
        Handshake { total, offset, through: self.through, part: &self.bytes[offset as usize..] }
    }
}

/// A server's answer to the handshake in a BIND.
pub(super) struct Agreed {
    pub conversation: u64,
    pub ticket: Ticket<'static>,
    pub part: OwnPart,
    /// The seal of the answer.
    pub seal: Seal,
}

impl Server {
    /// Answers the handshake in a BIND that came from `from`. `ticket` was made for the answer, and `renewed`
    /// says whether it renews another.
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

    /// Returns the key of a conversation in this scheme, derived from its ticket. Returns `None` if the
    /// ticket's conversation is in another scheme.
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
