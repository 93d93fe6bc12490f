//! WELCOME: the answer to a BIND.

use std::net::SocketAddr;

use super::fields::ADDRESS;
use super::kinds::WELCOME;
use super::{Handshake, Malformed, Reader, StaleReason, Ticket, Writer};

#[derive(Clone, Debug)]
pub(crate) struct Welcome<'a> {
    pub nonce: u64,
    pub conversation: u64,
    pub ticket: Ticket<'a>,
    pub versions: (u16, u16),
    /// Zero, or why the BIND is refused: the number of the kind of failure.
    pub refused: u16,
    /// The scheme of the conversation, one of those that were offered.
    pub scheme: u16,
    pub export: u64,
    /// How many procedures the export has.
    pub total: u32,
    /// The address that the server saw.
    pub seen: SocketAddr,
    /// Why the ticket that the BIND wanted to renew is no longer good, if it is not.
    pub ended: Option<Ended>,
    pub handshake: Handshake<'a>,
    /// The procedures' fingerprints as they are in the frame, if the frame was read. Writing does not use
    /// this field.
    pub procedures: &'a [u8],
}

/// Why a ticket is no longer good, and for how long, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub reason: StaleReason,
    pub age: u64,
}

/// The facts about a procedure by which a binding compares it. A WELCOME has one for each procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The procedure's number.
    pub number: u32,
    /// A hash of the procedure's wire types.
    pub types: u64,
    /// A hash of the procedure's name. Its last bit says instead whether the source fixes the procedure's
    /// number.
    pub name: u64,
}

/// Bytes of a [`Fingerprint`].
const FINGERPRINT: usize = 20;

impl<'a> Welcome<'a> {
    /// Returns the procedures in this answer.
    pub fn procedures(&self) -> impl Iterator<Item = Fingerprint> + '_ {
        self.procedures.chunks_exact(FINGERPRINT).map_while(|entry| {
            let mut r = Reader::new(entry);
            Some(Fingerprint { number: r.u32().ok()?, types: r.u64().ok()?, name: r.u64().ok()? })
        })
    }

    pub(super) fn read(mut r: Reader<'a>) -> Result<Welcome<'a>, Malformed> {
        let (nonce, conversation, ticket) = (r.u64()?, r.u64()?, Ticket::read(&mut r)?);
        let (versions, refused, scheme) = ((r.u16()?, r.u16()?), r.u16()?, r.u16()?);
        let (export, seen) = (r.u64()?, r.address()?);
        let ended = match (r.u32()?, r.u32()?, r.u64()?) {
            (0, ..) => None,
            (reason, _, age) => Some(Ended { reason: StaleReason::of(reason)?, age }),
        };
        let (handshake, total, procedures) = (Handshake::read(&mut r)?, r.u32()?, r.rest());
        if !procedures.len().is_multiple_of(FINGERPRINT) || conversation == 0 {
            return Err(Malformed);
        }
        #[rustfmt::skip]
        let welcome = Welcome {
            nonce, conversation, ticket, versions, refused, scheme, export, total, seen, ended, handshake, procedures,
        };
        Ok(welcome)
    }
}

impl Writer<'_> {
    /// Writes a WELCOME, with as much of its part of the handshake, and as many of `procedures`, as fit.
    /// Returns false if not even the other fields fit.
    pub fn welcome(&mut self, w: &Welcome<'_>, procedures: &[Fingerprint]) -> bool {
        let without = 16 + w.ticket.len() + 8 + 8 + ADDRESS + 16 + 4;
        let room = self.room();
        if room < without + Handshake::default().len() {
            return false;
        }
        let handshake = w.handshake.fitting(room - without);
        let fixed = without + handshake.len();
        let procedures = &procedures[..procedures.len().min((room - fixed) / FINGERPRINT)];
        let mut body = self.frame(WELCOME, 0, fixed + FINGERPRINT * procedures.len());
        w.ticket.write(body.u64(w.nonce).u64(w.conversation));
        body.u16(w.versions.0).u16(w.versions.1).u16(w.refused).u16(w.scheme).u64(w.export).address(w.seen);
        let (reason, age) = w.ended.map_or((0, 0), |ended| (ended.reason as u32, ended.age));
        handshake.write(body.u32(reason).u32(0).u64(age));
        body.u32(w.total);
        for Fingerprint { number, types, name } in procedures {
            body.u32(*number).u64(*types).u64(*name);
        }
        true
    }
}
