//! RESULT: how a call ended, or a fragment of its result.

use super::kinds::RESULT;
use super::part::{self, FRAGMENT_FIELDS};
use super::position::POSITION;
use super::{Body, Fragment, Malformed, Part, Position, Reader, Writer, fields, only};
use crate::{Failure, Kind, Ran};

/// The flag of a result that says how many directions of exchanges the server has sent. A direction is what
/// one end sends in an exchange (a signal or a stream).
pub(super) const DIRECTIONS: u8 = 0x08;

const RETURNED: u8 = 0;
const RAISED: u8 = 1;
const FAILED: u8 = 2;

/// Bytes of a result before its body.
pub(crate) const RESULT_HEAD: usize = POSITION + 4;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Result,
    Exception,
    /// The call failed. The fields are the wire's numbers for whether the call ran, and for the kind of
    /// failure.
    Failed {
        ran: u8,
        kind: u16,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultHead {
    pub position: Position,
    pub status: Status,
}

impl ResultHead {
    /// Reads the frames of a datagram that holds one whole result and nothing else. Returns `None` for any
    /// other datagram.
    #[inline(always)]
    pub fn only(frames: &[u8]) -> Option<(ResultHead, &[u8])> {
        let (first, bytes) = only::<RESULT_HEAD>(frames, RESULT)?;
        Some((ResultHead::of(first).ok()?, bytes))
    }

    /// Reads a result of a call without exchanges.
    #[inline(always)]
    pub(super) fn read<'a>(flags: u8, mut r: Reader<'a>) -> Result<(ResultHead, Part<'a>), Malformed> {
        let head = ResultHead::of(r.first()?)?;
        Ok((head, Part::read(flags, r)?))
    }

    /// Reads any result, and the number of directions that must be received before it is delivered.
    pub(super) fn read_any<'a>(
        flags: u8,
        mut r: Reader<'a>,
    ) -> Result<(ResultHead, u32, Part<'a>), Malformed> {
        let head = ResultHead::of(r.first()?)?;
        let directions = if flags & DIRECTIONS != 0 { r.u32()? } else { 0 };
        Ok((head, directions, Part::read(flags, r)?))
    }

    #[inline(always)]
    fn of(first: &[u8; RESULT_HEAD]) -> Result<ResultHead, Malformed> {
        let [.., status, ran, high, low] = *first;
        let status = match status {
            RETURNED => Status::Result,
            RAISED => Status::Exception,
            FAILED => Status::Failed { ran, kind: u16::from_be_bytes([high, low]) },
            _ => return Err(Malformed),
        };
        Ok(ResultHead { position: Position::of(first), status })
    }
}

/// Encodes the failure's text into `payload`, and returns the status to send with it.
#[cold]
pub(crate) fn write_failure(failure: &Failure, payload: &mut Vec<u8>) -> Status {
    let detail = failure.sent_detail();
    payload.clear();
    payload.resize(fields::opaque_len(detail.len()), 0);
    Body::new(payload).opaque(detail.as_bytes());
    Status::Failed { ran: failure.ran.code(), kind: failure.kind.code() }
}

/// Reads the failure from a failed call's result.
#[cold]
pub(crate) fn read_failure(ran: u8, kind: u16, body: &[u8]) -> Failure {
    let detail = Reader::new(body).opaque(Failure::MAX_DETAIL).unwrap_or_default();
    Failure::new(Kind::from_code(kind), Ran::from_code(ran)).with_detail(String::from_utf8_lossy(detail))
}

impl Writer<'_> {
    /// Returns how many bytes of a result fit this datagram as a fragment.
    pub fn fragment_room(&self, directions: u32) -> usize {
        self.room().saturating_sub(RESULT_HEAD + directions_len(directions) + FRAGMENT_FIELDS)
    }

    /// Writes a whole result or exception, if it fits.
    #[inline(always)]
    pub fn result(&mut self, head: &ResultHead, bytes: &[u8]) -> bool {
        let fits = self.fits(RESULT_HEAD + bytes.len());
        if fits {
            self.result_body(head, 0, bytes.len(), 0).bytes(bytes);
        }
        fits
    }

    /// Writes a whole result or exception, if it fits. The client delivers it only after this many
    /// directions.
    #[cold]
    pub fn result_after(&mut self, head: &ResultHead, directions: u32, bytes: &[u8]) -> bool {
        let fits = self.fits(RESULT_HEAD + directions_len(directions) + bytes.len());
        if fits {
            self.body_after(head, directions, 0, bytes.len(), 0).bytes(bytes);
        }
        fits
    }

    /// Writes a whole result, whose body `fill` writes directly into the datagram. `fill` is given all the
    /// room, and returns the length of what it wrote, a multiple of four. Returns `None` and writes no frame
    /// if `fill` returns `None` or there is no room.
    #[inline(always)]
    pub fn result_by(
        &mut self,
        head: &ResultHead,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<()> {
        let len = fill(self.unwritten(RESULT_HEAD)?)?;
        self.result_body(head, 0, len, 0);
        Some(())
    }

    /// Writes a fragment that consists of bytes before an insert, bytes of the insert, and bytes after it. If
    /// `apart`, the insert's bytes are left out; they belong at the returned offset in the datagram.
    pub fn result_fragment(
        &mut self,
        (head, directions): (&ResultHead, u32),
        fragment: Fragment,
        [before, within, behind]: [&[u8]; 3],
        apart: bool,
    ) -> usize {
        let (flags, fields) = part::layout(Some(fragment));
        let len = before.len() + within.len() + behind.len();
        let inserted = if apart { within.len() } else { 0 };
        let mut body = self.body_after(head, directions, flags, fields + len, inserted);
        part::write_fields(&mut body, Some(fragment));
        body.bytes(before).bytes(if apart { &[] } else { within }).bytes(behind);
        self.len() - behind.len()
    }

    /// Begins a RESULT and writes its head. Its body has `len` more bytes, of which `inserted` are sent from
    /// another buffer.
    #[inline(always)]
    fn result_body(&mut self, head: &ResultHead, flags: u8, len: usize, inserted: usize) -> Body<'_> {
        let (status, ran, kind) = match head.status {
            Status::Result => (RETURNED, 0, 0),
            Status::Exception => (RAISED, 0, 0),
            Status::Failed { ran, kind } => (FAILED, ran, kind),
        };
        let [high, low] = u16::to_be_bytes(kind);
        let (first, body) = self.frame_after::<RESULT_HEAD>(RESULT, flags, RESULT_HEAD + len, inserted);
        head.position.write(first);
        first[POSITION..].copy_from_slice(&[status, ran, high, low]);
        body
    }

    /// Begins a RESULT that is delivered after this many directions; see [`Writer::result_body`].
    fn body_after(
        &mut self,
        head: &ResultHead,
        directions: u32,
        flags: u8,
        len: usize,
        inserted: usize,
    ) -> Body<'_> {
        if directions == 0 {
            return self.result_body(head, flags, len, inserted);
        }
        let mut body = self.result_body(head, flags | DIRECTIONS, 4 + len, inserted);
        body.u32(directions);
        body
    }
}

/// Returns how many bytes the number of directions takes in a result.
#[inline(always)]
fn directions_len(directions: u32) -> usize {
    if directions > 0 { 4 } else { 0 }
}
