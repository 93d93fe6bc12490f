//! Packets of expedited calls: the header of XNS' packet exchange protocol (PEX), the versions of Courier, and
//! a message.
//!
//! ```text
//! exchange identifier (two words), client type (one word), lowest and highest version, the message
//! ```
//!
//! A reply repeats the identifier and the client type of its call.

use super::message::Versions;

/// The bytes before the message.
pub const HEADER_BYTES: usize = 10;
/// The client type that says nothing. XNS gave numbers to the time service (1), the Clearinghouse (2) and
/// others, and none to Courier.
pub const UNSPECIFIED_CLIENT: u16 = 0;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The identifier of the exchange, by which a client tells the reply to one call from that to another.
    pub exchange: u32,
    /// Who uses the packet exchange.
    pub client_type: u16,
    /// The versions of Courier that the sender speaks.
    pub versions: Versions,
    /// A call, or a reply. It is empty if a server speaks no version that its client speaks.
    pub message: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a packet. Returns `None` if it ends within its header.
    pub fn parse(packet: &'a [u8]) -> Option<Packet<'a>> {
        let (exchange, rest) = packet.split_first_chunk()?;
        let (client_type, rest) = rest.split_first_chunk()?;
        let (versions, message) = rest.split_first_chunk()?;
        Some(Packet {
            exchange: u32::from_be_bytes(*exchange),
            client_type: u16::from_be_bytes(*client_type),
            versions: Versions::from_bytes(*versions),
            message,
        })
    }

    /// Appends the packet.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.exchange.to_be_bytes());
        out.extend(self.client_type.to_be_bytes());
        out.extend(self.versions.to_bytes());
        out.extend(self.message);
    }

    /// Returns the identifier of a packet, even if the rest of its header is missing.
    pub fn exchange_of(packet: &[u8]) -> Option<u32> {
        packet.first_chunk().map(|exchange| u32::from_be_bytes(*exchange))
    }
}
