//! A step of a handshake: what the handshake fields of BIND and WELCOME hold in schemes with secrets
//! (docs/protocol.md, section 11.2).

use super::fields::{Body, opaque_len};
use super::{Handshake, Malformed, Reader, Ticket};

/// One step. The number is a suite or a set of suites (AEAD algorithms).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// The client begins, with the set of suites that it offers. The server shows who it is, with the suite
    /// that it chose.
    Hello(u8, &'a [u8]),
    /// A message of the handshake.
    Message(u8, &'a [u8]),
    /// Random bytes of an end that resumes an earlier conversation. The server also shows who it is.
    Resume(u8, &'a [u8; 32], &'a [u8]),
    /// The server asks the client to ask again after so many milliseconds.
    Wait(u16),
    /// The server shows who it is, in a conversation that has its secrets already.
    Known(&'a [u8]),
}

const HELLO: u8 = 1;
const MESSAGE: u8 = 2;
const RESUME: u8 = 3;
const WAIT: u8 = 4;
const KNOWN: u8 = 5;

impl<'a> Step<'a> {
    /// Reads the step in a handshake field. Returns `None` if there is none.
    pub fn read(handshake: &Handshake<'a>) -> Result<Option<Step<'a>>, Malformed> {
        let Handshake { total, offset, part, .. } = *handshake;
        if total == 0 {
            return Ok(None);
        }
        // So far, every step fits one datagram.
        if offset != 0 || part.len() != total as usize {
            return Err(Malformed);
        }
        let mut r = Reader::new(part);
        let ([kind, suite], number) = (r.array()?, r.u16()?);
        Ok(Some(match kind {
            HELLO => Step::Hello(suite, r.rest()),
            MESSAGE => Step::Message(suite, r.rest()),
            RESUME => Step::Resume(suite, r.first()?, r.rest()),
            WAIT => Step::Wait(number),
            KNOWN => Step::Known(r.rest()),
            _ => return Err(Malformed),
        }))
    }

    /// Returns the bytes of the step.
    pub fn to_bytes(self) -> Vec<u8> {
        let (kind, suite, number, random, rest) = match self {
            Step::Hello(suite, rest) => (HELLO, suite, 0, &[][..], rest),
            Step::Message(suite, rest) => (MESSAGE, suite, 0, &[][..], rest),
            Step::Resume(suite, random, rest) => (RESUME, suite, 0, &random[..], rest),
            Step::Wait(millis) => (WAIT, 0, millis, &[][..], &[][..]),
            Step::Known(rest) => (KNOWN, 0, 0, &[][..], rest),
        };
        [&[kind, suite][..], &u16::to_be_bytes(number), random, rest].concat()
    }
}

/// Returns the handshake field with these bytes.
pub(crate) fn whole(bytes: &[u8]) -> Handshake<'_> {
    Handshake { total: bytes.len() as u32, offset: 0, through: 0, part: bytes }
}

/// What both ends know before the first message of a handshake. The handshake fails if they differ in any of
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prologue<'a> {
    pub client: u64,
    /// The ticket that proves the client's address, with its conversation.
    pub proof: (u64, &'a Ticket<'a>),
    pub versions: (u16, u16),
    pub schemes: u32,
    pub name: &'a [u8],
    /// The bytes of the server's [`Step::Hello`].
    pub hello: &'a [u8],
}

impl Prologue<'_> {
    /// Returns the bytes that the handshake's hash depends on.
    pub fn to_bytes(self) -> Vec<u8> {
        const LABEL: &[u8] = b"farcall handshake 1\0";
        let Prologue { client, proof: (conversation, ticket), versions, schemes, name, hello } = self;
        let len = 16 + ticket.len() + 8 + opaque_len(name.len()) + opaque_len(hello.len());
        let mut bytes = vec![0; LABEL.len() + len];
        let mut body = Body::new(&mut bytes);
        body.bytes(LABEL).u64(client).u64(conversation);
        ticket.write(&mut body);
        body.u16(versions.0).u16(versions.1).u32(schemes).opaque(name).opaque(hello);
        bytes
    }
}

/// Returns what the keys of a resumed conversation depend on besides secrets and random bytes.
pub(crate) fn resumption(client: u64, before: u64, conversation: u64, name: &[u8]) -> Vec<u8> {
    let words = [client, before, conversation].map(u64::to_be_bytes);
    [b"farcall resumption 1\0", words.as_flattened(), name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_was_written_and_anything_else_is_malformed() {
        let random = [7; 32];
        for step in [
            Step::Hello(6, b"who"),
            Step::Message(2, b"message"),
            Step::Resume(2, &random, b"who"),
            Step::Wait(500),
            Step::Known(b""),
        ] {
            let bytes = step.to_bytes();
            assert_eq!(Step::read(&whole(&bytes)), Ok(Some(step)));
            assert_eq!(Step::read(&Handshake { total: 900, ..whole(&bytes) }), Err(Malformed));
        }
        assert_eq!(Step::read(&Handshake::default()), Ok(None));
        for bad in [&[1][..], &[9, 0, 0, 0], &[3, 0, 0, 0, 1]] {
            assert_eq!(Step::read(&whole(bad)), Err(Malformed));
        }
    }
}
