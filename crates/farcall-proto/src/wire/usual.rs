//! The usual datagrams: just one whole call, or just one whole result. They are recognised by few comparisons; what else
//! there is, and what is malformed, [`Frames`](super::Frames) reads.

use super::frame::{MAX_BODY, RETURNED};
use super::kinds::{CALL, RESULT};
use super::{
    CALL_HEAD, CallHead, FRAME_HEAD, HEADER, Meta, Number, Position, RESULT_HEAD, ResultHead, Target,
    VERSION, u32_at, u64_at,
};
use crate::scheme::{Direction, Key, Scheme, Seal};

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
    scheme: Scheme,
    pub args: &'d [u8],
}

impl<'d> LoneCall<'d> {
    #[inline(always)]
    pub fn glance(datagram: &'d [u8]) -> Option<LoneCall<'d>> {
        let (head, rest) = datagram.split_first_chunk()?;
        let scheme = Scheme::of(head[1])?;
        let args = rest.get(..rest.len().checked_sub(scheme.tag())?)?;
        Some(LoneCall { datagram, head, scheme, args })
    }

    /// Whether the datagram holds one whole call without metadata, and nothing else. `key` is as for
    /// [`open`](super::open).
    #[inline(always)]
    pub fn is_one(&self, key: impl FnOnce(u64) -> Option<Key>) -> bool {
        let len = CALL_HEAD + self.args.len();
        self.head[0] == VERSION
            && len <= MAX_BODY
            && len.is_multiple_of(4)
            && u32_at(self.head, HEADER) == (u32::from(CALL) << 24 | len as u32)
            && self.opens(key)
    }

    #[inline(always)]
    fn opens(&self, key: impl FnOnce(u64) -> Option<Key>) -> bool {
        let key = if self.scheme.has_secrets() { key(self.conversation()) } else { Some(Key::NONE) };
        let Some(key) = key else { return false };
        let seal = Seal { scheme: self.scheme, key, direction: Direction::ToServer };
        seal.open(self.datagram, (self.conversation(), u64_at(self.head, 12)), HEADER, true).is_some()
    }

    #[inline(always)]
    pub fn scheme(&self) -> Scheme {
        self.scheme
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

/// The part of `out` for the body of a result, in a datagram of that scheme that holds nothing else.
#[inline(always)]
pub(crate) fn body_room(out: &mut [u8], scheme: Scheme) -> Option<&mut [u8]> {
    let end = out.len().checked_sub(scheme.tag())?;
    out.get_mut(BEFORE_BODY..end)
}

/// Writes the datagram that is just a result, whose body of `len` bytes stands in its [room](body_room) already; its length.
#[inline(always)]
pub(crate) fn result_around(
    out: &mut [u8],
    target: &Target,
    number: Number,
    position: Position,
    len: usize,
) -> Option<usize> {
    let end = BEFORE_BODY + len + target.seal.scheme.tag();
    let datagram = out.get_mut(..end)?;
    let head = datagram.first_chunk_mut::<BEFORE_BODY>()?;
    let (_, rest) = head.split_first_chunk_mut::<HEADER>()?;
    let (frame, rest) = rest.split_first_chunk_mut::<FRAME_HEAD>()?;
    let result = rest.first_chunk_mut::<RESULT_HEAD>()?;
    *frame = (u32::from(RESULT) << 24 | (RESULT_HEAD + len) as u32).to_be_bytes();
    position.write(result);
    result[RESULT_HEAD - 4..].copy_from_slice(&[RETURNED, 0, 0, 0]);
    target.seal(datagram, number);
    Some(end)
}

/// Reads the frames of a datagram that holds one whole result, and nothing else.
#[inline(always)]
pub(crate) fn only_result(frames: &[u8]) -> Option<(ResultHead, &[u8])> {
    let (first, bytes) = only::<RESULT_HEAD>(frames, RESULT)?;
    Some((ResultHead::of(first).ok()?, bytes))
}

/// The body of the result in a datagram that holds one whole result and nothing else, in a known conversation
/// with a known seal.
#[inline(always)]
pub(crate) fn result_of<'d>(
    datagram: &'d [u8],
    conversation: u64,
    seal: &Seal,
    position: Position,
) -> Option<&'d [u8]> {
    let head = datagram.first_chunk::<BEFORE_BODY>()?;
    let len = datagram.len().checked_sub(BEFORE_BODY + seal.scheme.tag())?;
    let begins = u32::from_be_bytes([VERSION, seal.scheme as u8, 0, 0]);
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
    if usual { seal.open(datagram, (conversation, u64_at(head, 12)), BEFORE_BODY, true) } else { None }
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
