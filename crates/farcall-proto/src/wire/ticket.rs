//! TICKET: shows a ticket, which a server issued to a client at an address, with a date. BIND and WELCOME
//! hold tickets too.
//!
//! A client that shows a ticket proves that the server has admitted its conversation, so that the server need
//! not remember it.

use std::borrow::Cow;

use subtle::ConstantTimeEq as _;

use super::kinds::TICKET;
use super::{Body, Malformed, Reader, Writer};
use crate::wire::fields::opaque_len;

/// The longest field `rest` of a ticket, in bytes.
const MAX_REST: usize = 256;

/// What `rest` is in a ticket that only challenges a client to prove that it is a process of the server's
/// user (docs/protocol.md, section 4.5). Such a ticket admits no conversation.
pub(crate) const CHALLENGED: &[u8] = b"user";

/// The bytes of the fields before `rest`.
const FIXED: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket<'a> {
    /// The client's identifier of the conversation.
    pub client: u64,
    pub incarnation: u64,
    /// The ticket's date, in the server's own units. It grows with every ticket of an incarnation (one run of
    /// the server).
    pub issued: u64,
    pub mac: Mac,
    /// Bytes from which the server derives the conversation's key when the client shows the ticket. In a
    /// scheme without secrets they are empty, except in the ticket of a challenge ([`CHALLENGED`]).
    pub rest: Cow<'a, [u8]>,
}

/// The message authentication code of a ticket. A comparison takes the same time wherever two codes differ, so
/// a server's answers do not tell a forger how much of a guess is right.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Mac(pub [u8; 16]);

impl PartialEq for Mac {
    fn eq(&self, other: &Mac) -> bool {
        let halves = |mac: &Mac| {
            let mac = u128::from_ne_bytes(mac.0);
            (mac as u64, (mac >> 64) as u64)
        };
        let ((low, high), (other_low, other_high)) = (halves(self), halves(other));
        (low.ct_eq(&other_low) & high.ct_eq(&other_high)).into()
    }
}

impl<'a> Ticket<'a> {
    /// Returns how many bytes the ticket takes on the wire.
    pub fn len(&self) -> usize {
        FIXED + opaque_len(self.rest.len())
    }

    pub fn into_owned(self) -> Ticket<'static> {
        Ticket { rest: Cow::Owned(self.rest.into_owned()), ..self }
    }

    /// Returns the ticket as it is on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.write(&mut Body::new(&mut bytes));
        bytes
    }

    /// Reads a ticket, and nothing else.
    #[cfg(feature = "secure")]
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Ticket<'a>> {
        Ticket::read(&mut Reader::new(bytes)).ok().filter(|ticket| ticket.len() == bytes.len())
    }

    pub(super) fn read(r: &mut Reader<'a>) -> Result<Ticket<'a>, Malformed> {
        let (client, incarnation, issued, mac) = (r.u64()?, r.u64()?, r.u64()?, Mac(r.array()?));
        Ok(Ticket { client, incarnation, issued, mac, rest: r.opaque(MAX_REST)?.into() })
    }

    pub(super) fn write(&self, body: &mut Body<'_>) {
        body.u64(self.client).u64(self.incarnation).u64(self.issued).bytes(&self.mac.0).opaque(&self.rest);
    }
}

impl Writer<'_> {
    pub fn ticket(&mut self, t: &Ticket<'_>) {
        t.write(&mut self.frame(TICKET, 0, t.len()));
    }
}
