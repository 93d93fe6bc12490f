//! The frames of binding, and how they are read and written (docs/protocol.md, "Binding").

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::kinds::{BIND, CHALLENGE, STALE, TICKET, WELCOME};
use super::{Body, Malformed, Reader, Writer, opaque_len};

const RENEW: u8 = 0x01;
const PROOF: u8 = 0x02;

/// The longest name in a bind: a type, a slash, an instance.
pub const MAX_NAME: usize = 255;
/// The longest handshake, and the longest rest of a ticket.
const MAX_HANDSHAKE: u32 = 64 << 10;
const MAX_TICKET_REST: usize = 256;

const TICKET_FIXED: usize = 40;
const ADDRESS: usize = 20;
const HANDSHAKE_FIXED: usize = 12;

/// The server's proof that it spoke to a client at an address, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket<'a> {
    /// The client's identifier of the conversation.
    pub client: u64,
    pub incarnation: u64,
    /// The server's time of issue, in its own units; grows with every ticket of an incarnation.
    pub issued: u64,
    pub mac: [u8; 16],
    /// Bytes that the server wants back, from which it gets the conversation's key; empty in a scheme without
    /// secrets.
    pub rest: Cow<'a, [u8]>,
}

impl Ticket<'_> {
    /// Its bytes on the wire.
    pub fn len(&self) -> usize {
        TICKET_FIXED + opaque_len(self.rest.len())
    }

    pub fn into_owned(self) -> Ticket<'static> {
        Ticket { rest: Cow::Owned(self.rest.into_owned()), ..self }
    }
}

/// A part of the sender's handshake, in which the two ends agree on a key. All fields are zero, and the part
/// is empty, in a scheme without secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handshake<'a> {
    /// The length of the whole handshake in bytes.
    pub total: u32,
    /// Where the part begins.
    pub offset: u32,
    /// How many bytes of the receiver's handshake, counted from its first, have arrived at the sender.
    pub through: u32,
    pub part: &'a [u8],
}

impl Handshake<'_> {
    fn len(&self) -> usize {
        HANDSHAKE_FIXED + opaque_len(self.part.len())
    }
}

/// A request for a ticket and, by name, for an export.
#[derive(Clone, Debug)]
pub(crate) struct Bind<'a> {
    pub client: u64,
    /// Echoed, so that the answer is known to be to this request.
    pub nonce: u64,
    pub versions: (u16, u16),
    /// The schemes that the client offers, a bit for each.
    pub schemes: u32,
    /// How many procedures the answer is to skip.
    pub from: u32,
    /// The ticket that the client asks about: its conversation, the ticket, the address that it was given to.
    /// The server renews it, or says that it is not good.
    pub renew: Option<(u64, Ticket<'a>, SocketAddr)>,
    /// The ticket by which the sender proves that it is at its address, with the ticket's conversation.
    pub proof: Option<(u64, Ticket<'a>)>,
    pub name: &'a [u8],
    pub handshake: Handshake<'a>,
    /// The frame's whole body, when it is read; not used in writing.
    #[cfg(feature = "test-scheme")]
    pub body: &'a [u8],
}

/// The answer to a bind.
#[derive(Clone, Debug)]
pub(crate) struct Welcome<'a> {
    pub nonce: u64,
    pub conversation: u64,
    pub ticket: Ticket<'a>,
    pub versions: (u16, u16),
    /// Zero, or the number of the kind of failure.
    pub refused: u16,
    /// The scheme of the conversation, one of those that were offered.
    pub scheme: u16,
    pub export: u64,
    /// How many procedures the export has.
    pub total: u32,
    /// The address that the server saw.
    pub seen: SocketAddr,
    /// What ended the conversation whose ticket the bind wanted to renew.
    pub ended: Option<Ended>,
    pub handshake: Handshake<'a>,
    /// The procedures' fingerprints as in the frame, when it is read; not used in writing.
    pub procedures: &'a [u8],
}

/// Why a ticket is not good any more, and how long this has been so, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub reason: StaleReason,
    pub age: u64,
}

/// What a binding compares of a procedure. WELCOME has one for each procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The procedure's number.
    pub number: u32,
    /// A hash of its wire types.
    pub types: u64,
    /// A hash of its name; the last bit says whether the number is pinned.
    pub name: u64,
}

/// Bytes of a [`Fingerprint`] in WELCOME.
const FINGERPRINT: usize = 20;

impl Welcome<'_> {
    /// The procedures in this answer.
    pub fn procedures(&self) -> impl Iterator<Item = Fingerprint> + '_ {
        self.procedures.chunks_exact(FINGERPRINT).map_while(|entry| {
            let mut r = Reader::new(entry);
            Some(Fingerprint { number: r.u32().ok()?, types: r.u64().ok()?, name: r.u64().ok()? })
        })
    }

    /// Bytes of the frame's body without procedures.
    fn fixed_len(&self) -> usize {
        16 + self.ticket.len() + 8 + 8 + ADDRESS + 16 + self.handshake.len() + 4
    }
}

/// Why a ticket was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaleReason {
    /// The ticket is of another incarnation; the age is that of this incarnation.
    Incarnation = 1,
    /// The ticket's conversation was forgotten; the age is how long ago a conversation was last forgotten.
    Horizon = 2,
    /// The ticket was given to another address, or is forged.
    Address = 3,
    /// The server cannot take on another conversation; nothing under this ticket ran.
    Full = 4,
}

/// A hint: a ticket was not accepted, so the client may want to ask why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub conversation: u64,
    /// The number of the datagram that is refused.
    pub number: u64,
    pub reason: StaleReason,
}

fn read_reason(reason: u32) -> Result<StaleReason, Malformed> {
    match reason {
        1 => Ok(StaleReason::Incarnation),
        2 => Ok(StaleReason::Horizon),
        3 => Ok(StaleReason::Address),
        4 => Ok(StaleReason::Full),
        _ => Err(Malformed),
    }
}

pub(super) fn read_ticket<'a>(r: &mut Reader<'a>) -> Result<Ticket<'a>, Malformed> {
    let (client, incarnation, issued, mac) = (r.u64()?, r.u64()?, r.u64()?, r.array()?);
    Ok(Ticket { client, incarnation, issued, mac, rest: r.opaque(MAX_TICKET_REST)?.into() })
}

fn read_address(r: &mut Reader<'_>) -> Result<SocketAddr, Malformed> {
    let ip = Ipv6Addr::from(r.array::<16>()?).to_canonical();
    let port = r.u16()?;
    let _ = r.u16()?;
    Ok(SocketAddr::new(ip, port))
}

fn read_handshake<'a>(r: &mut Reader<'a>) -> Result<Handshake<'a>, Malformed> {
    let (total, offset, through) = (r.u32()?, r.u32()?, r.u32()?);
    let part = r.opaque(u16::MAX.into())?;
    let end = u64::from(offset) + part.len() as u64;
    if total > MAX_HANDSHAKE || through > MAX_HANDSHAKE || end > u64::from(total) {
        return Err(Malformed);
    }
    Ok(Handshake { total, offset, through, part })
}

pub(super) fn read_bind<'a>(flags: u8, mut r: Reader<'a>) -> Result<Bind<'a>, Malformed> {
    #[cfg(feature = "test-scheme")]
    let body = r.rest();
    let client = r.u64()?;
    let nonce = r.u64()?;
    let versions = (r.u16()?, r.u16()?);
    let schemes = r.u32()?;
    let from = r.u32()?;
    let renew = match flags & RENEW {
        0 => None,
        _ => Some((r.u64()?, read_ticket(&mut r)?, read_address(&mut r)?)),
    };
    let proof = match flags & PROOF {
        0 => None,
        _ => Some((r.u64()?, read_ticket(&mut r)?)),
    };
    let name = r.opaque(MAX_NAME)?;
    let handshake = read_handshake(&mut r)?;
    if client == 0 {
        return Err(Malformed);
    }
    #[rustfmt::skip]
    let bind = Bind {
        client, nonce, versions, schemes, from, renew, proof, name, handshake, #[cfg(feature = "test-scheme")] body,
    };
    Ok(bind)
}

pub(super) fn read_welcome<'a>(mut r: Reader<'a>) -> Result<Welcome<'a>, Malformed> {
    let nonce = r.u64()?;
    let conversation = r.u64()?;
    let ticket = read_ticket(&mut r)?;
    let versions = (r.u16()?, r.u16()?);
    let refused = r.u16()?;
    let scheme = r.u16()?;
    let export = r.u64()?;
    let seen = read_address(&mut r)?;
    let (reason, _, age) = (r.u32()?, r.u32()?, r.u64()?);
    let ended = match reason {
        0 => None,
        reason => Some(Ended { reason: read_reason(reason)?, age }),
    };
    let handshake = read_handshake(&mut r)?;
    let total = r.u32()?;
    let procedures = r.rest();
    if !procedures.len().is_multiple_of(FINGERPRINT) || conversation == 0 {
        return Err(Malformed);
    }
    #[rustfmt::skip]
    let welcome = Welcome {
        nonce, conversation, ticket, versions, refused, scheme, export, total, seen, ended, handshake, procedures,
    };
    Ok(welcome)
}

pub(super) fn read_stale(mut r: Reader<'_>) -> Result<Stale, Malformed> {
    Ok(Stale { conversation: r.u64()?, number: r.u64()?, reason: read_reason(r.u32()?)? })
}

impl Writer<'_> {
    pub fn ticket(&mut self, t: &Ticket<'_>) {
        write_ticket(&mut self.frame(TICKET, 0, t.len()), t);
    }

    pub fn challenge(&mut self, conversation: u64, number: u64) {
        self.frame(CHALLENGE, 0, 16).u64(conversation).u64(number);
    }

    pub fn stale(&mut self, s: &Stale) {
        self.frame(STALE, 0, 24).u64(s.conversation).u64(s.number).u32(s.reason as u32).u32(0);
    }

    /// Writes a BIND, with as much of its part of the handshake as fits.
    pub fn bind(&mut self, b: &Bind<'_>) {
        let renew = b.renew.as_ref().map_or(0, |(_, ticket, _)| 8 + ticket.len() + ADDRESS);
        let proof = b.proof.as_ref().map_or(0, |(_, ticket)| 8 + ticket.len());
        let flags = if renew > 0 { RENEW } else { 0 } | if proof > 0 { PROOF } else { 0 };
        let fixed = 28 + renew + proof + opaque_len(b.name.len());
        let handshake = fitting(&b.handshake, self.room().saturating_sub(fixed));
        let mut body = self.frame(BIND, flags, fixed + handshake.len());
        body.u64(b.client).u64(b.nonce).u16(b.versions.0).u16(b.versions.1).u32(b.schemes).u32(b.from);
        if let Some((conversation, ticket, address)) = &b.renew {
            body.u64(*conversation);
            write_ticket(&mut body, ticket);
            write_address(&mut body, *address);
        }
        if let Some((conversation, ticket)) = &b.proof {
            body.u64(*conversation);
            write_ticket(&mut body, ticket);
        }
        body.opaque(b.name);
        write_handshake(&mut body, &handshake);
    }

    /// Writes a WELCOME, with as much of its part of the handshake, and as many of `procedures`, as fit.
    /// Returns false if not even the other fields fit.
    pub fn welcome(&mut self, w: &Welcome<'_>, procedures: &[Fingerprint]) -> bool {
        let without = w.fixed_len() - w.handshake.len();
        if self.room() < without + HANDSHAKE_FIXED + opaque_len(0) {
            return false;
        }
        let handshake = fitting(&w.handshake, self.room() - without);
        let fixed = without + handshake.len();
        let fits = (self.room() - fixed) / FINGERPRINT;
        let procedures = &procedures[..procedures.len().min(fits)];
        let mut body = self.frame(WELCOME, 0, fixed + FINGERPRINT * procedures.len());
        body.u64(w.nonce).u64(w.conversation);
        write_ticket(&mut body, &w.ticket);
        body.u16(w.versions.0).u16(w.versions.1).u16(w.refused).u16(w.scheme).u64(w.export);
        write_address(&mut body, w.seen);
        let (reason, age) = w.ended.map_or((0, 0), |ended| (ended.reason as u32, ended.age));
        body.u32(reason).u32(0).u64(age);
        write_handshake(&mut body, &handshake);
        body.u32(w.total);
        for Fingerprint { number, types, name } in procedures {
            body.u32(*number).u64(*types).u64(*name);
        }
        true
    }
}

/// Shortens the part of a handshake so that the handshake fits `room` bytes.
fn fitting<'a>(handshake: &Handshake<'a>, room: usize) -> Handshake<'a> {
    let fits = room.saturating_sub(HANDSHAKE_FIXED + opaque_len(0)) & !3;
    Handshake { part: &handshake.part[..handshake.part.len().min(fits)], ..*handshake }
}

fn write_handshake(body: &mut Body<'_>, h: &Handshake<'_>) {
    body.u32(h.total).u32(h.offset).u32(h.through).opaque(h.part);
}

fn write_ticket(body: &mut Body<'_>, t: &Ticket<'_>) {
    body.u64(t.client).u64(t.incarnation).u64(t.issued).bytes(&t.mac).opaque(&t.rest);
}

fn write_address(body: &mut Body<'_>, address: SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    body.bytes(&ip.octets()).u16(address.port()).u16(0);
}
