//! The usual datagrams: just one whole call, or just one whole result. They are recognised by few comparisons; what else
//! there is, and what is malformed, [`Frames`](super::Frames) reads.

use super::frame::{CALL, MAX_BODY, RESULT, RETURNED};
use super::{
    CALL_HEAD, CallHead, FRAME_HEAD, HEADER, Header, Meta, Position, RESULT_HEAD, ResultHead, TAG, VERSION, u32_at,
    u64_at,
};
use crate::scheme;

/// The usual datagram: its only frame is a whole call without metadata. What else there is, and what
/// is malformed, [`Frames`] reads.
#[inline]
pub(crate) fn only_call(frames: &[u8]) -> Option<(CallHead, &[u8])> {
    let (first, args) = only::<CALL_HEAD>(frames, CALL)?;
    Some((CallHead::of(first, Meta::default()), args))
}

/// What stands before the arguments of a datagram that is just a call, and before the body of one that is just a result.
const BEFORE_ARGS: usize = HEADER + FRAME_HEAD + CALL_HEAD;
const BEFORE_BODY: usize = HEADER + FRAME_HEAD + RESULT_HEAD;

/// Where the position of either stands.
const POSITION_AT: usize = HEADER + FRAME_HEAD;

/// A datagram that is long enough to be just a call: what it says is read where it is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoneCall<'d> {
    datagram: &'d [u8],
    head: &'d [u8; BEFORE_ARGS],
    pub args: &'d [u8],
}

impl<'d> LoneCall<'d> {
    #[inline(always)]
    pub fn glance(datagram: &'d [u8]) -> Option<LoneCall<'d>> {
        let (head, rest) = datagram.split_first_chunk()?;
        let (args, _) = rest.split_last_chunk::<TAG>()?;
        Some(LoneCall { datagram, head, args })
    }

    /// Whether it is one, without metadata, and nothing else.
    #[inline(always)]
    pub fn is_one(&self) -> bool {
        let (local, len) = (self.is_local(), CALL_HEAD + self.args.len());
        self.head[0] == VERSION
            && (local || self.head[1] == scheme::OPEN)
            && len <= MAX_BODY
            && len.is_multiple_of(4)
            && u32_at(self.head, HEADER) == (u32::from(CALL) << 24 | len as u32)
            && scheme::open(self.datagram, HEADER, local, true).is_some()
    }

    #[inline(always)]
    pub fn is_local(&self) -> bool {
        self.head[1] == scheme::LOCAL
    }

    #[inline(always)]
    pub fn conversation(&self) -> u64 {
        u64_at(self.head, 4)
    }

    #[inline(always)]
    pub fn position(&self) -> Position {
        let activity = u32_at(self.head, POSITION_AT);
        let (exchange, sequence) = (u32_at(self.head, POSITION_AT + 4), u64_at(self.head, POSITION_AT + 8));
        Position { activity, exchange, sequence }
    }

    #[inline(always)]
    pub fn export(&self) -> u64 {
        u64_at(self.head, BEFORE_ARGS - 12)
    }

    #[inline(always)]
    pub fn procedure(&self) -> u32 {
        u32_at(self.head, BEFORE_ARGS - 4)
    }
}

/// Room for the body of the result that a datagram in `out` will be.
#[inline(always)]
pub(crate) fn body_room(out: &mut [u8]) -> Option<&mut [u8]> {
    out.get_mut(BEFORE_BODY..)?.split_last_chunk_mut::<TAG>().map(|(room, _)| room)
}

/// Writes the datagram that is just a result, whose body of `len` bytes stands in its [room](body_room) already; its length.
#[inline(always)]
pub(crate) fn result_around(out: &mut [u8], header: Header, position: Position, len: usize) -> Option<usize> {
    let end = BEFORE_BODY + len + TAG;
    let datagram = out.get_mut(..end)?;
    let head = datagram.first_chunk_mut::<BEFORE_BODY>()?;
    let (begins, rest) = head.split_first_chunk_mut()?;
    let (frame, rest) = rest.split_first_chunk_mut::<FRAME_HEAD>()?;
    let result = rest.first_chunk_mut::<RESULT_HEAD>()?;
    header.write(begins);
    *frame = (u32::from(RESULT) << 24 | (RESULT_HEAD + len) as u32).to_be_bytes();
    position.write(result);
    result[RESULT_HEAD - 4..].copy_from_slice(&[RETURNED, 0, 0, 0]);
    scheme::seal(datagram, header.local);
    Some(end)
}

/// The same of a whole result.
#[inline(always)]
pub(crate) fn only_result(frames: &[u8]) -> Option<(ResultHead, &[u8])> {
    let (first, bytes) = only::<RESULT_HEAD>(frames, RESULT)?;
    Some((ResultHead::of(first).ok()?, bytes))
}

/// The body of a datagram that is just the whole result of one call, in a known conversation and scheme.
#[inline(always)]
pub(crate) fn result_of(datagram: &[u8], conversation: u64, local: bool, position: Position) -> Option<&[u8]> {
    let head = datagram.first_chunk::<BEFORE_BODY>()?;
    let len = datagram.len().checked_sub(BEFORE_BODY + TAG)?;
    let scheme = if local { scheme::LOCAL } else { scheme::OPEN };
    let begins = u32::from_be_bytes([VERSION, scheme, 0, 0]);
    let frame = u32::from(RESULT) << 24 | (RESULT_HEAD + len) as u32;
    let returned = u32::from_be_bytes([RETURNED, 0, 0, 0]);
    let usual = len.is_multiple_of(4)
        && len <= MAX_BODY - RESULT_HEAD
        && u32_at(head, 0) == begins
        && u64_at(head, 4) == conversation
        && u32_at(head, HEADER) == frame
        && u32_at(head, POSITION_AT) == position.activity
        && u32_at(head, POSITION_AT + 4) == position.exchange
        && u64_at(head, POSITION_AT + 8) == position.sequence
        && u32_at(head, BEFORE_BODY - 4) == returned;
    if usual { scheme::open(datagram, BEFORE_BODY, local, true) } else { None }
}

#[inline(always)]
fn only<const N: usize>(frames: &[u8], kind: u8) -> Option<(&[u8; N], &[u8])> {
    let (head, body) = frames.split_first_chunk::<FRAME_HEAD>()?;
    if !(N..=MAX_BODY).contains(&body.len()) || !body.len().is_multiple_of(4) {
        return None;
    }
    let usual = u32::from(kind) << 24 | body.len() as u32;
    if u32::from_be_bytes(*head) == usual { body.split_first_chunk::<N>() } else { None }
}
