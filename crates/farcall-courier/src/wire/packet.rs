//! Packets of the Sequenced Packet Protocol (SPP) over a stream of bytes.
//!
//! Courier was carried by SPP, which no system of today has. Over a stream of bytes, each packet is preceded
//! by its length. That framing is not historic. It is what the reference programs of this crate's tests use:
//!
//! ```text
//! length                     2 bytes  of the header and the data: 12 to 546
//! connection control         1 byte   0x80 system, 0x40 acknowledgement wanted, 0x20 attention, 0x10 end of message
//! datastream type            1 byte   0 messages, 1 bulk data, 254 and 255 the end of the connection
//! source, destination        2 bytes each, connection identifiers
//! sequence, acknowledge, allocation numbers, 2 bytes each
//! data                       at most 534 bytes
//! ```
//!
//! The stream keeps packets in order and repeats lost ones. So a receiver looks only at the control byte and
//! the datastream type. A sender counts its packets, and fills in the numbers as SPP would.

use std::fmt;
use std::mem;
use std::ops::Range;

use farcall::room::{self, NoMemory};
use farcall::work;

use super::message::Versions;

/// The length of an SPP header in bytes.
pub const HEADER_BYTES: usize = 12;
/// The most bytes of data in a packet.
pub const MAX_DATA_BYTES: usize = 534;

/// Marks a packet of SPP itself, which has no data for the user.
const SYSTEM: u8 = 0x80;
/// Marks a packet with one byte of data that overtakes the other data.
const ATTENTION: u8 = 0x20;
/// Marks the last packet of a message.
const END_OF_MESSAGE: u8 = 0x10;

/// What the data of a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datastream {
    /// Courier's messages.
    Messages,
    /// Bulk data between a call and its reply.
    Bulk,
    /// The sender will send no more.
    End,
    /// The sender has seen [`Datastream::End`].
    EndReply,
}

impl Datastream {
    fn number(self) -> u8 {
        match self {
            Datastream::Messages => 0,
            Datastream::Bulk => 1,
            Datastream::End => 254,
            Datastream::EndReply => 255,
        }
    }

    fn of(number: u8) -> Option<Datastream> {
        [Datastream::Messages, Datastream::Bulk, Datastream::End, Datastream::EndReply]
            .into_iter()
            .find(|known| known.number() == number)
    }
}

/// Writes packets.
#[derive(Clone, Debug, Default)]
pub struct PacketWriter {
    /// The number of the next packet.
    next: u16,
}

impl PacketWriter {
    /// Returns how many bytes the packets of so many bytes of data have.
    pub fn packet_bytes(data: usize) -> usize {
        data.saturating_add(packets_of(data).saturating_mul(2 + HEADER_BYTES))
    }

    /// Appends the packets of some data. `ends` says that a message ends with the data.
    pub fn write(&mut self, datastream: Datastream, data: &[u8], ends: bool, out: &mut Vec<u8>) {
        let packets = packets_of(data.len());
        out.reserve(PacketWriter::packet_bytes(data.len()));
        for index in 0..packets {
            let start = index * MAX_DATA_BYTES;
            let part = &data[start..data.len().min(start + MAX_DATA_BYTES)];
            let control = if ends && index + 1 == packets { END_OF_MESSAGE } else { 0 };
            self.packet(control, datastream, part, out);
        }
    }

    /// Appends a packet that gets the peer's attention. The byte says why.
    pub fn attention(&mut self, datastream: Datastream, byte: u8, out: &mut Vec<u8>) {
        self.packet(ATTENTION, datastream, &[byte], out);
    }

    fn packet(&mut self, control: u8, datastream: Datastream, data: &[u8], out: &mut Vec<u8>) {
        let length = (HEADER_BYTES + data.len()) as u16;
        out.extend(length.to_be_bytes());
        out.extend([control, datastream.number()]);
        out.extend([0; 4]);
        out.extend(self.next.to_be_bytes());
        out.extend([0; 4]);
        out.extend(data);
        self.next = self.next.wrapping_add(1);
    }
}

fn packets_of(data: usize) -> usize {
    data.div_ceil(MAX_DATA_BYTES).max(1)
}

/// What a [`PacketReader`] has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// The versions of Courier that the peer speaks. They come once, before everything else.
    Versions(Versions),
    /// A whole message.
    Message(&'a [u8]),
    /// Some bulk data. `true` says that it ends here.
    Bulk(&'a [u8], bool),
    /// The peer wants attention, for the reason that this byte says.
    Attention(u8),
    /// The peer ends the connection.
    End,
}

/// Why the bytes of a connection are not packets with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPacket {
    /// The length of a packet is less than that of its header, or more than that of the largest packet.
    Length(usize),
    /// No datastream has this number.
    Datastream(u8),
    /// A message has more bytes than the limit.
    TooLong(usize),
    /// This process has no memory for so many more bytes of a message.
    NoMemory(usize),
    /// Bulk data came before the versions of Courier.
    NoVersions,
}

/// Takes the packets of a connection apart, and puts messages together.
#[derive(Debug)]
pub struct PacketReader {
    /// Received bytes. Those before `start` are used up, and those after `end` are not received yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The parts of a message that have been received.
    message: Vec<u8>,
    /// Whether the message is whole, but was not given out yet.
    is_whole: bool,
    /// What the last [`PacketReader::advance`] has found.
    found: Found,
    has_versions: bool,
    max_message_bytes: usize,
}

/// The size of the buffer into which bytes are received.
const BUFFER_BYTES: usize = 8 << 10;
/// The memory of a received message that is kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

/// What was found, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Versions(Versions),
    /// The message.
    Message,
    /// Bulk data at this place of the buffer, and whether it ends here.
    Bulk(Range<usize>, bool),
    Attention(u8),
    End,
}

/// A packet whose place in the buffer is known.
struct Packet {
    control: u8,
    datastream: Datastream,
    data: Range<usize>,
}

impl PacketReader {
    /// Returns a reader for messages of at most so many bytes.
    pub fn new(max_message_bytes: usize) -> PacketReader {
        PacketReader {
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            message: Vec::new(),
            is_whole: false,
            found: Found::Nothing,
            has_versions: false,
            max_message_bytes,
        }
    }

    /// Returns the space into which bytes are to be received. It is never empty once
    /// [`PacketReader::advance`] has returned false.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < 2 + HEADER_BYTES + MAX_DATA_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Notes that `count` bytes were received into [`PacketReader::space`].
    pub fn filled(&mut self, count: usize) {
        self.end = self.buffer.len().min(self.end + count);
    }

    /// Returns whether a packet or a message has been received in part.
    pub fn is_partial(&self) -> bool {
        self.start < self.end || (self.found != Found::Message && !self.message.is_empty())
    }

    /// Goes on to the next thing that was received. Returns false if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are not packets, or a message is too long. The connection is of no more use.
    pub fn advance(&mut self) -> Result<bool, BadPacket> {
        if mem::replace(&mut self.found, Found::Nothing) == Found::Message {
            self.message.clear();
            self.message.shrink_to(KEPT_BYTES);
        }
        if mem::take(&mut self.is_whole) {
            self.found = Found::Message;
        }
        while self.found == Found::Nothing
            && let Some(packet) = self.packet()?
        {
            self.found = self.take(packet)?;
        }
        Ok(self.found != Found::Nothing)
    }

    /// Returns what the last [`PacketReader::advance`] has found.
    pub fn received(&self) -> Option<Received<'_>> {
        Some(match &self.found {
            Found::Nothing => return None,
            Found::Versions(versions) => Received::Versions(*versions),
            Found::Message => Received::Message(&self.message),
            Found::Bulk(data, ends) => Received::Bulk(&self.buffer[data.clone()], *ends),
            Found::Attention(byte) => Received::Attention(*byte),
            Found::End => Received::End,
        })
    }

    /// Returns what a packet brings.
    fn take(&mut self, Packet { control, datastream, data }: Packet) -> Result<Found, BadPacket> {
        if control & SYSTEM != 0 {
            return Ok(Found::Nothing);
        }
        if control & ATTENTION != 0 {
            return Ok(Found::Attention(self.buffer[data].first().copied().unwrap_or(0)));
        }
        let ends = control & END_OF_MESSAGE != 0;
        match datastream {
            Datastream::End | Datastream::EndReply => return Ok(Found::End),
            Datastream::Bulk if !self.has_versions => return Err(BadPacket::NoVersions),
            Datastream::Bulk => return Ok(Found::Bulk(data, ends)),
            Datastream::Messages => {}
        }
        if self.message.len() + data.len() > self.max_message_bytes {
            return Err(BadPacket::TooLong(self.max_message_bytes));
        }
        let reserved = room::reserve(&mut self.message, data.len());
        reserved.map_err(|why| BadPacket::NoMemory(why.bytes))?;
        self.message.extend_from_slice(&self.buffer[data]);
        let is_whole = ends && self.message.len() > if self.has_versions { 0 } else { Versions::BYTES };
        if !self.has_versions
            && let Some(versions) = self.message.first_chunk()
        {
            let versions = Versions::from_bytes(*versions);
            self.has_versions = true;
            self.is_whole = is_whole;
            self.message.drain(..Versions::BYTES);
            return Ok(Found::Versions(versions));
        }
        Ok(if is_whole { Found::Message } else { Found::Nothing })
    }

    /// Takes the next packet, if all of its bytes have been received.
    fn packet(&mut self) -> Result<Option<Packet>, BadPacket> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        if !(HEADER_BYTES..=HEADER_BYTES + MAX_DATA_BYTES).contains(&length) {
            return Err(BadPacket::Length(length));
        }
        let Some(&[control, datastream]) = rest.get(..length).and_then(|packet| packet.first_chunk()) else {
            return Ok(None);
        };
        let data = self.start + 2 + HEADER_BYTES..self.start + 2 + length;
        let datastream = Datastream::of(datastream).ok_or(BadPacket::Datastream(datastream))?;
        self.start = data.end;
        work::steps(1 + data.len() / 16);
        Ok(Some(Packet { control, datastream, data }))
    }
}

impl fmt::Display for BadPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPacket::Length(length) => {
                let most = HEADER_BYTES + MAX_DATA_BYTES;
                write!(f, "a packet of {length} bytes: it has {HEADER_BYTES} to {most}")
            }
            BadPacket::Datastream(number) => write!(f, "no datastream has the number {number}"),
            BadPacket::TooLong(most) => write!(f, "a message of more than {most} bytes"),
            BadPacket::NoMemory(bytes) => write!(f, "{}", NoMemory { bytes: *bytes }),
            BadPacket::NoVersions => f.write_str("bulk data before the versions of Courier"),
        }
    }
}

impl std::error::Error for BadPacket {}
