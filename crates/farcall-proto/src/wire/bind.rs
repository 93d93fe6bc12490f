//! BIND: a request for a ticket and, by name, for an export.

use std::net::SocketAddr;

use super::fields::{ADDRESS, opaque_len};
use super::kinds::BIND;
use super::{Handshake, Malformed, Reader, Ticket, Writer};

/// The longest name in a BIND, in bytes: a type, a slash, an instance.
pub const MAX_NAME: usize = 255;

/// The flag of a BIND that asks whether a ticket is still good.
const RENEW: u8 = 0x01;
/// The flag of a BIND that shows a ticket as proof of the client's address.
const PROOF: u8 = 0x02;

#[derive(Clone, Debug)]
pub(crate) struct Bind<'a> {
    pub client: u64,
    /// A number that the answer repeats, so that it is known to answer this request.
    pub nonce: u64,
    pub versions: (u16, u16),
    /// The schemes that the client offers, a bit for each.
    pub schemes: u32,
    /// How many of the export's procedures the answer is to skip.
    pub from: u32,
    /// The ticket that the client asks about: its conversation, the ticket, the address that it was given to.
    /// The server renews it, or says that it is not good.
    pub renew: Option<(u64, Ticket<'a>, SocketAddr)>,
    /// The ticket by which the sender proves that it is at its address, with the ticket's conversation.
    pub proof: Option<(u64, Ticket<'a>)>,
    pub name: &'a [u8],
    pub handshake: Handshake<'a>,
    /// The frame's whole body, if the frame was read. Writing does not use this field.
    #[cfg(feature = "secure")]
    pub body: &'a [u8],
}

/// A BIND that outlives its datagram.
#[cfg(feature = "secure")]
#[derive(PartialEq, Eq)]
pub(crate) struct OwnedBind {
    flags: u8,
    body: Box<[u8]>,
}

#[cfg(feature = "secure")]
impl OwnedBind {
    /// Reads the BIND again.
    pub fn read(&self) -> Option<Bind<'_>> {
        Bind::read(self.flags, Reader::new(&self.body)).ok()
    }
}

impl<'a> Bind<'a> {
    /// Returns a copy of a BIND that was read.
    #[cfg(feature = "secure")]
    pub fn to_owned(&self) -> OwnedBind {
        OwnedBind { flags: self.flags(), body: self.body.into() }
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        flag(self.renew.is_some(), RENEW) | flag(self.proof.is_some(), PROOF)
    }

    pub(super) fn read(flags: u8, mut r: Reader<'a>) -> Result<Bind<'a>, Malformed> {
        let asks = |flag: u8| flags & flag != 0;
        let bind = Bind {
            #[cfg(feature = "secure")]
            body: r.rest(),
            client: r.u64()?,
            nonce: r.u64()?,
            versions: (r.u16()?, r.u16()?),
            schemes: r.u32()?,
            from: r.u32()?,
            renew: if asks(RENEW) { Some((r.u64()?, Ticket::read(&mut r)?, r.address()?)) } else { None },
            proof: if asks(PROOF) { Some((r.u64()?, Ticket::read(&mut r)?)) } else { None },
            name: r.opaque(MAX_NAME)?,
            handshake: Handshake::read(&mut r)?,
        };
        if bind.client == 0 { Err(Malformed) } else { Ok(bind) }
    }
}

impl Writer<'_> {
    /// Writes a BIND, with as much of its part of the handshake as fits.
    pub fn bind(&mut self, b: &Bind<'_>) {
        let renew = b.renew.as_ref().map_or(0, |(_, ticket, _)| 8 + ticket.len() + ADDRESS);
        let proof = b.proof.as_ref().map_or(0, |(_, ticket)| 8 + ticket.len());
        let fixed = 28 + renew + proof + opaque_len(b.name.len());
        let handshake = b.handshake.fitting(self.room().saturating_sub(fixed));
        let mut body = self.frame(BIND, b.flags(), fixed + handshake.len());
        body.u64(b.client).u64(b.nonce).u16(b.versions.0).u16(b.versions.1).u32(b.schemes).u32(b.from);
        if let Some((conversation, ticket, address)) = &b.renew {
            ticket.write(body.u64(*conversation));
            body.address(*address);
        }
        if let Some((conversation, ticket)) = &b.proof {
            ticket.write(body.u64(*conversation));
        }
        handshake.write(body.opaque(b.name));
    }
}
