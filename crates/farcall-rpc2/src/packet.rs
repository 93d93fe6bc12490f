//! Packets of RPC2 2.38 in its plain mode, without I/O: a header of fifteen numbers of 32 bits, and a body.
//!
//! The mode has no security: what its handshake calls a key can be read by anyone. RPC2 speaks it if
//! `RPC2SEC_ONLY=0` stands in its environment.

/// The version of the packets.
const VERSION: u32 = 8;
/// The bytes before the body.
pub const HEADER_BYTES: usize = 60;
/// The most bytes of a packet that RPC2 sends: it makes them in buffers of 4,500 bytes, in which the header
/// and its own notes take 264.
pub const MAX_PACKET_BYTES: usize = 4_500 - 264 + HEADER_BYTES;
/// The most bytes of a body.
pub const MAX_BODY_BYTES: usize = MAX_PACKET_BYTES - HEADER_BYTES;

/// The opcode of a bind without security.
pub const INIT1_OPEN: i32 = -2;
/// The opcodes of binds with security, which this crate refuses.
pub const INIT1_SECURE: std::ops::RangeInclusive<i32> = -5..=-3;
/// The opcode of a reply.
pub const REPLY: i32 = -8;
/// The opcode of the answer to a bind.
pub const INIT2: i32 = -10;
/// The opcode of a server that is executing the call.
pub const BUSY: i32 = -14;
/// The opcode of a server that does not know the connection.
pub const NAK: i32 = -2016;

/// The return code for an opcode that the server does not have.
pub const INVALID_OPCODE: i32 = -3;
/// The return code for arguments that the server cannot read.
pub const BAD_DATA: i32 = -4;
/// The return code for any other failure.
pub const FAIL: i32 = -2001;
/// The return code for a bind at a level of security that the server does not have.
pub const NOT_AUTHENTICATED: i32 = -2009;

/// The handle of the sender of a [`NAK`], which has no connection.
pub const NO_CONNECTION: u32 = u32::MAX;

/// The security level of a bind without security.
const OPEN_KIMONO: u32 = 98;
/// The bytes of the body of a bind, without the client's identity.
const INIT1_BYTES: usize = 232;
/// Where in such a body the version of RPC2 stands.
const VERSION_AT: usize = 136;
const VERSION_TEXT: &[u8] = b"Version 15.0: JH, 10 Dec 1998, 12:00";
/// The bytes of the body of the answer to a bind.
pub const INIT2_BYTES: usize = 20;

/// The header of a packet, without what is the same in all packets or has no meaning here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The handle of the receiver's end of the connection; 0 in a bind.
    pub remote: u32,
    /// The handle of the sender's end of the connection.
    pub local: u32,
    /// The flags. Only one has a meaning here: 1 is a packet that is sent again.
    pub flags: u32,
    /// The number of a request, which is even, or that of its reply, which is one more.
    pub sequence: u32,
    /// The procedure, or one of the numbers below 0 in this module.
    pub opcode: i32,
    /// The subsystem, which a bind chooses.
    pub subsystem: u32,
    /// What the procedure returned, in a reply.
    pub return_code: i32,
    /// Lamport's clock.
    pub lamport: u32,
    /// A number that tells the binds of a client apart.
    pub uniquefier: u32,
    /// When the request was sent, by its sender's clock, in microseconds; a reply echoes it.
    pub timestamp: u32,
}

/// The flag of a packet that is sent again.
pub const RETRY: u32 = 1;

impl Header {
    /// Appends a packet.
    pub fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        let length = body.len() as u32;
        let words = [
            VERSION,
            self.remote,
            self.local,
            self.flags,
            length,
            self.sequence,
            self.opcode.cast_unsigned(),
            0,
            0,
            self.subsystem,
            self.return_code.cast_unsigned(),
            self.lamport,
            self.uniquefier,
            self.timestamp,
            0,
        ];
        words.iter().for_each(|word| out.extend(word.to_be_bytes()));
        out.extend_from_slice(body);
    }

    /// Returns the header and the body of a packet. Returns `None` for anything else.
    pub fn parse(packet: &[u8]) -> Option<(Header, &[u8])> {
        let (head, rest) = packet.split_at_checked(HEADER_BYTES)?;
        let word = |index: usize| word_at(head, 4 * index);
        let body = rest.get(..word(4) as usize)?;
        let header = Header {
            remote: word(1),
            local: word(2),
            flags: word(3),
            sequence: word(5),
            opcode: word(6).cast_signed(),
            subsystem: word(9),
            return_code: word(10).cast_signed(),
            lamport: word(11),
            uniquefier: word(12),
            timestamp: word(13),
        };
        (word(0) == VERSION).then_some((header, body))
    }
}

/// Returns the body of a bind without security, by a client that says who it is.
pub fn bind_body(identity: &[u8]) -> Vec<u8> {
    let mut body = vec![0; INIT1_BYTES];
    body[4..8].copy_from_slice(&OPEN_KIMONO.to_be_bytes());
    body[16..20].copy_from_slice(&(identity.len() as u32).to_be_bytes());
    body[VERSION_AT..VERSION_AT + VERSION_TEXT.len()].copy_from_slice(VERSION_TEXT);
    body.extend_from_slice(identity);
    body
}

/// Returns the packed arguments of a NEW_CONNECTION procedure in the body of a bind. Returns `None` if the
/// body is too short.
pub fn bind_arguments(body: &[u8]) -> Option<Vec<u8>> {
    let (head, identity) = body.split_at_checked(INIT1_BYTES)?;
    let identity = identity.get(..word_at(head, 16) as usize)?;
    let mut arguments = [&head[..20], identity].concat();
    arguments.resize(arguments.len().next_multiple_of(4), 0);
    Some(arguments)
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}
