//! What an importer says first when it meets an exporter: what it wants, and the question that the exporter
//! must answer.

use std::net::{IpAddr, SocketAddr};

/// What an importer says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The export that it was told of over UDP.
    pub export: u64,
    /// What it wants of that.
    pub wants: Wants,
    /// Chosen at random for this meeting.
    pub nonce: [u8; 16],
    /// The ticket that it was given over UDP, but for the MAC: the exporter proves itself by that.
    pub ticket: TicketHolder,
}

/// What an importer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// To call. A file for large arguments comes with it.
    Calls,
    /// To map the segment, of that generation.
    Segment(u64),
}

/// Whom a ticket was given to (docs/protocol.md, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketHolder {
    /// The client's identifier of the conversation.
    pub client: u64,
    /// The ticket's date.
    pub issued: u64,
    /// The server's identifier of the conversation.
    pub conversation: u64,
    /// The client's address, as the server saw it; an address of IPv4 is never a mapped one.
    pub address: SocketAddr,
}

/// Bytes of the longest hello, and some more: a longer message is none.
pub const MAX_HELLO: usize = 128;
/// Bytes of the exporter's answer.
pub const PROOF: usize = 16;

impl Hello {
    /// The message.
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

    /// What a message says, if it is a hello.
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

    /// The question that it asks an exporter whose callers meet it at `name`: there and nowhere else, so that
    /// no exporter can be made to answer for somebody at another name.
    pub fn question(nonce: &[u8; 16], name: SocketAddr) -> Vec<u8> {
        [&nonce[..], b"farcall shared memory ", name.to_string().as_bytes()].concat()
    }
}
