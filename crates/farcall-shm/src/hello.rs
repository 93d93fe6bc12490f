//! The first message that an importer sends to an exporter: what it wants, and a question. By its answer the
//! exporter proves its identity. An importer with keys proves its own identity too, by the answer to a
//! challenge, which the exporter sends before.
//!
//! An importer is a process that calls or maps what another process, the exporter, offers.

use std::net::{IpAddr, SocketAddr};

/// The first message of an importer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The export. The importer learnt its identifier over UDP.
    pub export: u64,
    /// What the importer wants of the export.
    pub wants: Wants,
    /// A number chosen at random for this connection.
    pub nonce: [u8; 16],
    /// The ticket that the importer was given over UDP, without its MAC (message authentication code). By the
    /// MAC the exporter proves its identity.
    pub ticket: TicketHolder,
}

/// What an importer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// To call. The message comes with a file for large arguments.
    Calls,
    /// To map this generation of the export's memory segment.
    Segment(u64),
}

/// The holder of a ticket (docs/protocol.md, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketHolder {
    /// The client's identifier of the conversation.
    pub client: u64,
    /// The date at which the ticket was issued.
    pub issued: u64,
    /// The server's identifier of the conversation.
    pub conversation: u64,
    /// The client's address, as the server saw it. An IPv4 address is not mapped to an IPv6 address here.
    pub address: SocketAddr,
}

/// The first message of an importer that has keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedHello<'m> {
    /// The importer's proof that it has the conversation's secrets.
    pub proof: &'m [u8; KEYED_PROOF_BYTES],
    /// The whole ticket, as it is in datagrams.
    pub ticket: &'m [u8],
    /// What the importer wants.
    pub hello: Hello,
    /// The message without the proof. The proof depends on it.
    pub body: &'m [u8],
}

/// A buffer of this many bytes is longer than every hello.
pub const MAX_HELLO_BYTES: usize = 512;
/// The bytes of the exporter's answer without keys.
pub const PROOF_BYTES: usize = 16;
/// The bytes of the proofs of importer and exporter with keys.
pub const KEYED_PROOF_BYTES: usize = 32;
/// The bytes of the challenge, chosen at random for each connection.
pub const CHALLENGE_BYTES: usize = 32;

impl Hello {
    /// Encodes the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let TicketHolder { client, issued, conversation, address } = self.ticket;
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut bytes = self.nonce.to_vec();
        for word in [self.export, client, issued, conversation] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&ip.octets());
        bytes.extend_from_slice(&address.port().to_be_bytes());
        match self.wants {
            Wants::Calls => bytes.push(b'C'),
            Wants::Segment(generation) => {
                bytes.push(b'M');
                bytes.extend_from_slice(&generation.to_be_bytes());
            }
        }
        bytes
    }

    /// Decodes a message. Returns `None` if it is not a hello.
    pub fn from_bytes(bytes: &[u8]) -> Option<Hello> {
        let (nonce, bytes) = bytes.split_first_chunk()?;
        let (words, bytes) = bytes.split_first_chunk::<32>()?;
        let (ip, bytes) = bytes.split_first_chunk::<16>()?;
        let (port, wants) = bytes.split_first_chunk()?;
        let [export, client, issued, conversation] =
            std::array::from_fn(|at| words.as_chunks().0.get(at).map_or(0, |word| u64::from_be_bytes(*word)));
        let address = SocketAddr::new(IpAddr::from(*ip).to_canonical(), u16::from_be_bytes(*port));
        let wants = match wants {
            [b'C'] => Wants::Calls,
            [b'M', generation @ ..] => Wants::Segment(u64::from_be_bytes(generation.try_into().ok()?)),
            _ => return None,
        };
        Some(Hello {
            export,
            wants,
            nonce: *nonce,
            ticket: TicketHolder { client, issued, conversation, address },
        })
    }

    /// Returns the question to the exporter that accepts callers at `name`. The name is part of the question,
    /// so that a process at another name cannot pass the question on to the exporter and use its answer.
    pub fn question(nonce: &[u8; 16], name: SocketAddr) -> Vec<u8> {
        [&nonce[..], b"farcall shared memory ", name.to_string().as_bytes()].concat()
    }
}

impl<'m> KeyedHello<'m> {
    /// Returns the message without its proof.
    pub fn body_of(ticket: &[u8], hello: &Hello) -> Vec<u8> {
        [&(ticket.len() as u16).to_be_bytes(), ticket, &hello.to_bytes()].concat()
    }

    /// Decodes a message. Returns `None` if it is not the hello of an importer with keys.
    pub fn from_bytes(message: &'m [u8]) -> Option<KeyedHello<'m>> {
        let (proof, body) = message.split_first_chunk()?;
        let (len, rest) = body.split_first_chunk()?;
        let (ticket, hello) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
        Some(KeyedHello { proof, ticket, hello: Hello::from_bytes(hello)?, body })
    }
}
