//! The datagram: one header, frames, one tag (docs/protocol.md, "Datagrams").
//!
//! The contract of this module: any bytes give values or [`Malformed`]; nothing panics, nothing is
//! allocated, and the work is linear in the datagram. Writers are given room by their callers, who
//! ask [`Writer::room`] first; a frame that does not fit is not written and says so.

mod frame;
mod usual;

pub(crate) use frame::{
    Ack, BIND, Bind, CALL_HEAD, CallHead, Fragment, Frame, Frames, MAX_RANGES, Meta, Part, Position, Progress,
    RESULT_HEAD, ResultHead, Select, Stale, StaleReason, Status, Ticket, Welcome,
};
pub use frame::{Fingerprint, MAX_NAME};
pub(crate) use usual::{LoneCall, body_room, only_call, only_result, result_around, result_of};

use crate::scheme;
pub(crate) use crate::scheme::TAG;

/// The wire version that this crate speaks.
pub const VERSION: u8 = 1;

/// Bytes of the header.
pub(crate) const HEADER: usize = 20;

/// Bytes of a frame's head: type, flags, length.
pub(crate) const FRAME_HEAD: usize = 4;

/// Bytes of a datagram with one whole call in it, besides arguments and metadata.
pub(crate) const CALL_OVERHEAD: usize = HEADER + FRAME_HEAD + CALL_HEAD + scheme::TAG;

/// A datagram or frame that breaks the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The head of every datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The receiver's identifier of the conversation; zero when the sender knows none.
    pub conversation: u64,
    /// Never used twice by a sender in a conversation.
    pub number: u64,
    /// It is of the local scheme: between two ends on one machine.
    pub local: bool,
}

impl Header {
    #[inline(always)]
    fn write(self, head: &mut [u8; HEADER]) {
        let scheme = if self.local { scheme::LOCAL } else { scheme::OPEN };
        head[..4].copy_from_slice(&[VERSION, scheme, 0, 0]);
        head[4..12].copy_from_slice(&self.conversation.to_be_bytes());
        head[12..].copy_from_slice(&self.number.to_be_bytes());
    }
}

/// Checks a datagram's head and tag and gives the bytes of its frames.
#[inline(always)]
pub(crate) fn open(datagram: &[u8], check: bool) -> Result<(Header, &[u8]), Malformed> {
    let head = datagram.first_chunk::<HEADER>().ok_or(Malformed)?;
    let local = head[1] == scheme::LOCAL;
    if head[0] != VERSION || !local && head[1] != scheme::OPEN {
        return Err(Malformed);
    }
    let header = Header { conversation: u64_at(head, 4), number: u64_at(head, 12), local };
    let sealed = scheme::open(datagram, HEADER, local, check).ok_or(Malformed)?;
    Ok((header, sealed))
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
    local: bool,
}

impl<'a> Writer<'a> {
    /// Begins a datagram of at most `limit` bytes; the buffer bounds it too.
    #[inline(always)]
    pub fn new(out: &'a mut [u8], limit: usize, header: Header) -> Writer<'a> {
        let limit = limit.min(out.len());
        let out = &mut out[..limit];
        debug_assert!(limit >= HEADER + scheme::TAG);
        header.write(out.first_chunk_mut().expect("room for a datagram's head"));
        Writer { out, len: HEADER, local: header.local }
    }

    /// Bytes that were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the body of one more frame may have.
    #[inline]
    pub fn room(&self) -> usize {
        (self.out.len() - scheme::TAG - self.len).saturating_sub(FRAME_HEAD) & !3
    }

    /// Whether there is room for a frame whose body has `len` bytes.
    #[inline]
    pub fn fits(&self, len: usize) -> bool {
        self.len + FRAME_HEAD + len + scheme::TAG <= self.out.len()
    }

    /// Begins a frame whose body has `len` bytes, which must be within [`Writer::room`].
    #[inline]
    pub fn frame(&mut self, kind: u8, flags: u8, len: usize) -> Body<'_> {
        self.frame_after::<0>(kind, flags, len).1
    }

    /// The same, whose first `N` bytes are given apart, to be written without further checks.
    #[inline(always)]
    fn frame_after<const N: usize>(&mut self, kind: u8, flags: u8, len: usize) -> (&mut [u8; N], Body<'_>) {
        self.frame_around::<N>(kind, flags, len, 0)
    }

    /// The same, of which `inserted` bytes are not written.
    #[inline(always)]
    fn frame_around<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        len: usize,
        inserted: usize,
    ) -> (&mut [u8; N], Body<'_>) {
        debug_assert!(len <= self.room() && len.is_multiple_of(4));
        let (head, rest) = self.out[self.len..].split_first_chunk_mut::<FRAME_HEAD>().expect("room for a frame");
        let [high, low] = (len as u16).to_be_bytes();
        *head = [kind, flags, high, low];
        let written = len - inserted;
        self.len += FRAME_HEAD + written;
        let (first, rest) = rest[..written].split_first_chunk_mut::<N>().expect("what is always there");
        (first, Body { rest })
    }

    /// Seals the datagram and gives its length.
    #[inline(always)]
    pub fn finish(self) -> usize {
        let end = self.len + scheme::TAG;
        scheme::seal(&mut self.out[..end], self.local);
        end
    }

    /// The same where `inserted` bytes were not written, which is only of use in the local scheme.
    pub fn finish_around(self, inserted: usize) -> usize {
        debug_assert!(self.local || inserted == 0);
        let end = self.len + scheme::TAG;
        match inserted {
            0 => scheme::seal(&mut self.out[..end], self.local),
            _ => scheme::seal_around(&mut self.out[..end], inserted),
        }
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
