//! The usual datagrams: just one whole call, or just one whole result. They are recognised by few comparisons; what else
//! there is, and what is malformed, [`Frames`](super::Frames) reads.

use super::frame::{CALL, MAX_BODY, RESULT, RETURNED};
use super::{
    CALL_HEAD, CallHead, FRAME_HEAD, HEADER, Meta, Position, RESULT_HEAD, ResultHead, TAG, VERSION, u32_at, u64_at,
};
use crate::scheme;

/// The usual datagram: its only frame is a whole call without metadata. What else there is, and what
/// is malformed, [`Frames`] reads.
#[inline]
pub(crate) fn only_call(frames: &[u8]) -> Option<(CallHead, &[u8])> {
    let (first, args) = only::<CALL_HEAD>(frames, CALL)?;
    Some((CallHead::of(first, Meta::default()), args))
}

/// The procedure of a datagram's call, if it is just one, or nonsense.
#[inline(always)]
pub(crate) fn procedure(datagram: &[u8]) -> Option<u32> {
    const PROCEDURE: usize = HEADER + FRAME_HEAD + CALL_HEAD - 4;
    Some(u32_at(datagram.first_chunk::<{ PROCEDURE + 4 }>()?, PROCEDURE))
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
    const HEAD: usize = HEADER + FRAME_HEAD + RESULT_HEAD;
    let head = datagram.first_chunk::<HEAD>()?;
    let len = datagram.len().checked_sub(HEAD + TAG)?;
    let scheme = if local { scheme::LOCAL } else { scheme::OPEN };
    let begins = u32::from_be_bytes([VERSION, scheme, 0, 0]);
    let frame = u32::from(RESULT) << 24 | (RESULT_HEAD + len) as u32;
    let returned = u32::from_be_bytes([RETURNED, 0, 0, 0]);
    let usual = len.is_multiple_of(4)
        && len <= MAX_BODY - RESULT_HEAD
        && u32_at(head, 0) == begins
        && u64_at(head, 4) == conversation
        && u32_at(head, HEADER) == frame
        && u32_at(head, HEADER + FRAME_HEAD) == position.activity
        && u32_at(head, HEADER + FRAME_HEAD + 4) == position.exchange
        && u64_at(head, HEADER + FRAME_HEAD + 8) == position.sequence
        && u32_at(head, HEAD - 4) == returned;
    if usual { scheme::open(datagram, HEAD, local, true) } else { None }
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
