//! The datagram: one header, frames, one tag (docs/protocol.md, "Datagrams").
//!
//! The contract of this module: any bytes give values or [`Malformed`]; nothing panics, nothing is
//! allocated, and the work is linear in the datagram. Writers are given room by their callers, who
//! ask [`Writer::room`] first; a frame that does not fit is not written and says so.

mod binding;
mod frame;
pub mod kinds;
mod number;
mod usual;

pub(crate) use binding::{Bind, Ended, Handshake, Stale, StaleReason, Ticket, Welcome};
pub use binding::{Fingerprint, MAX_NAME};
pub(crate) use frame::{
    Ack, CALL_HEAD, CallHead, Extent, Fragment, Frame, Frames, MAX_RANGES, Meta, Part, Position, Progress,
    RESULT_HEAD, Raw, ResultHead, Select, Status,
};
pub(crate) use number::{Number, Numbers};
pub(crate) use usual::{LoneCall, body_room, only_call, only_result, result_around, result_of};

use crate::scheme::{Direction, Key, Scheme, Seal};

/// The wire version that this crate speaks.
pub const VERSION: u8 = 1;

/// Bytes of the header.
pub(crate) const HEADER: usize = 20;

/// Bytes of a frame's head: type, flags, length.
pub(crate) const FRAME_HEAD: usize = 4;

/// Bytes of a datagram with one whole call in it, besides arguments and metadata.
#[inline(always)]
pub(crate) const fn call_overhead(scheme: Scheme) -> usize {
    HEADER + FRAME_HEAD + CALL_HEAD + scheme.tag()
}

/// A datagram or frame that breaks the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The head of a datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The receiver's identifier of the conversation; zero when the sender knows none.
    pub conversation: u64,
    /// Never used twice by a sender in a conversation.
    pub number: u64,
    pub scheme: Scheme,
}

impl Header {
    /// Reads the head of a datagram, and checks nothing but that it is well formed.
    #[inline(always)]
    pub fn of(head: &[u8; HEADER]) -> Result<Header, Malformed> {
        match Scheme::of(head[1]) {
            Some(scheme) if head[0] == VERSION => {
                Ok(Header { conversation: u64_at(head, 4), number: u64_at(head, 12), scheme })
            }
            _ => Err(Malformed),
        }
    }
}

/// The conversation that a datagram is for, and how the datagram is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The receiver's identifier of the conversation; zero when we know none.
    pub conversation: u64,
    pub seal: Seal,
}

impl Target {
    #[inline(always)]
    fn write_head(&self, head: &mut [u8; HEADER], number: u64) {
        head[..4].copy_from_slice(&[VERSION, self.seal.scheme as u8, 0, 0]);
        head[4..12].copy_from_slice(&self.conversation.to_be_bytes());
        head[12..].copy_from_slice(&number.to_be_bytes());
    }

    /// Writes the head and the tag of a datagram, around its frames. This consumes the right to its number.
    #[inline(always)]
    pub fn seal(&self, datagram: &mut [u8], number: Number) {
        let number = number.value();
        if let Some(head) = datagram.first_chunk_mut() {
            self.write_head(head, number);
        }
        self.seal.close(datagram, (self.conversation, number));
    }
}

/// Checks a datagram's head and tag, and returns the bytes of its frames. In a scheme with secrets `key` is
/// asked for the key of the conversation that the datagram names.
#[inline(always)]
pub(crate) fn open(
    datagram: &[u8],
    direction: Direction,
    key: impl FnOnce(u64) -> Option<Key>,
    check: bool,
) -> Result<(Header, &[u8]), Malformed> {
    let header = Header::of(datagram.first_chunk().ok_or(Malformed)?)?;
    let key =
        if header.scheme.has_secrets() { key(header.conversation).ok_or(Malformed)? } else { Key::NONE };
    let seal = Seal { scheme: header.scheme, key, direction };
    let frames = seal.open(datagram, (header.conversation, header.number), HEADER, check).ok_or(Malformed)?;
    Ok((header, frames))
}

/// The frames of a datagram in that scheme, without a check of the tag.
#[inline(always)]
pub(crate) fn frames_of(datagram: &[u8], scheme: Scheme) -> Option<&[u8]> {
    datagram.get(HEADER..datagram.len().checked_sub(scheme.tag())?)
}

/// The word at a place that is within the array.
#[inline(always)]
fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

#[inline(always)]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// Writes one datagram into a buffer of the caller's.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
    target: Target,
}

impl<'a> Writer<'a> {
    /// Begins a datagram of at most `limit` bytes; the buffer bounds it too.
    #[inline(always)]
    pub fn new(out: &'a mut [u8], limit: usize, target: Target) -> Writer<'a> {
        let limit = limit.min(out.len());
        let out = &mut out[..limit];
        debug_assert!(limit >= HEADER + target.seal.scheme.tag());
        Writer { out, len: HEADER, target }
    }

    /// Bytes that were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes of the frames that were written.
    #[cfg(feature = "test-scheme")]
    pub fn frames(&self) -> &[u8] {
        &self.out[HEADER..self.len]
    }

    /// How many bytes the tag takes.
    #[inline(always)]
    fn tag(&self) -> usize {
        self.target.seal.scheme.tag()
    }

    /// Bytes that the body of one more frame may have.
    #[inline]
    pub fn room(&self) -> usize {
        (self.out.len() - self.tag()).saturating_sub(self.len + FRAME_HEAD) & !3
    }

    /// Whether there is room for a frame whose body has `len` bytes.
    #[inline]
    pub fn fits(&self, len: usize) -> bool {
        self.len + FRAME_HEAD + len + self.tag() <= self.out.len()
    }

    /// Begins a frame whose body has `len` bytes, which must be within [`Writer::room`].
    #[inline]
    pub fn frame(&mut self, kind: u8, flags: u8, len: usize) -> Body<'_> {
        self.frame_after::<0>(kind, flags, len).1
    }

    /// Begins a frame whose body has `len` bytes. Returns the body's first `N` bytes apart, to be written
    /// without further checks.
    #[inline(always)]
    fn frame_after<const N: usize>(&mut self, kind: u8, flags: u8, len: usize) -> (&mut [u8; N], Body<'_>) {
        self.frame_around::<N>(kind, flags, len, 0)
    }

    /// Begins a frame whose body has `len` bytes, of which `inserted` stand elsewhere and are not written.
    #[inline(always)]
    fn frame_around<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        len: usize,
        inserted: usize,
    ) -> (&mut [u8; N], Body<'_>) {
        debug_assert!(len <= self.room() && len.is_multiple_of(4));
        let (head, rest) =
            self.out[self.len..].split_first_chunk_mut::<FRAME_HEAD>().expect("room for a frame");
        let [high, low] = (len as u16).to_be_bytes();
        *head = [kind, flags, high, low];
        let written = len - inserted;
        self.len += FRAME_HEAD + written;
        let (first, rest) = rest[..written].split_first_chunk_mut::<N>().expect("what is always there");
        (first, Body { rest })
    }

    /// Seals the datagram, which consumes the right to its number, and gives its length.
    #[inline(always)]
    pub fn finish(self, number: Number) -> usize {
        let end = self.len + self.tag();
        self.target.seal(&mut self.out[..end], number);
        end
    }

    /// Seals the datagram, as [`Writer::finish`], of which `inserted` bytes stand elsewhere. Only for schemes
    /// that [allow it](Seal::closes_around).
    pub fn finish_around(self, inserted: usize, number: Number) -> usize {
        if inserted == 0 {
            return self.finish(number);
        }
        let end = self.len + self.tag();
        let datagram = &mut self.out[..end];
        if let Some(head) = datagram.first_chunk_mut() {
            self.target.write_head(head, number.value());
        }
        self.target.seal.close_around(datagram, inserted);
        end
    }
}

/// The unwritten part of a frame's body.
pub(crate) struct Body<'a> {
    rest: &'a mut [u8],
}

impl Body<'_> {
    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_be_bytes())
    }

    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_be_bytes())
    }

    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_be_bytes())
    }

    #[inline]
    pub fn bytes(&mut self, v: &[u8]) -> &mut Self {
        let (head, rest) = std::mem::take(&mut self.rest).split_at_mut(v.len());
        head.copy_from_slice(v);
        self.rest = rest;
        self
    }

    /// `v` as an XDR opaque: its length, its bytes, zeros to a multiple of four.
    pub fn opaque(&mut self, v: &[u8]) -> &mut Self {
        self.u32(v.len() as u32).bytes(v);
        self.bytes(&[0; 3][..padding(v.len())])
    }
}

/// Zeros that bring `len` to a multiple of four.
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Bytes of an XDR opaque of `len` bytes.
pub(crate) fn opaque_len(len: usize) -> usize {
    4 + len + padding(len)
}

/// Reads values from the bytes of a frame.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.first().copied()
    }

    /// The next `N` bytes, where they are.
    #[inline]
    pub fn first<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// An XDR opaque of at most `max` bytes.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(Malformed);
        }
        let bytes = self.bytes(len)?;
        self.bytes(padding(len))?;
        Ok(bytes)
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
pub(crate) use frame::read_select_for_tests;
#[cfg(test)]
mod tests;
