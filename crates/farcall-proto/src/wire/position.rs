//! The position, with which every frame about a call begins: it says which call.
//!
//! An activity is a numbered slot of a conversation; in it, the client makes one call after the other.

use super::datagram::{u32_at, u64_at};
use super::{Body, Malformed, Reader, Writer};

/// Names a call, or an exchange within it. An exchange is a signal or a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub activity: u32,
    /// Zero for the call itself. The exchanges of a call are numbered from one.
    pub exchange: u32,
    pub sequence: u64,
}

/// Bytes of a position.
pub(super) const POSITION: usize = 16;

impl Position {
    /// Returns the position of a call.
    #[inline(always)]
    pub fn of_call(activity: u32, sequence: u64) -> Position {
        Position { activity, exchange: 0, sequence }
    }

    /// Reads the position with which a body begins.
    #[inline(always)]
    pub(super) fn of<const N: usize>(body: &[u8; N]) -> Position {
        Position { activity: u32_at(body, 0), exchange: u32_at(body, 4), sequence: u64_at(body, 8) }
    }

    #[inline]
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Position, Malformed> {
        Ok(Position::of(r.first::<POSITION>()?))
    }

    #[inline(always)]
    pub(super) fn write<const N: usize>(self, body: &mut [u8; N]) {
        body[..4].copy_from_slice(&self.activity.to_be_bytes());
        body[4..8].copy_from_slice(&self.exchange.to_be_bytes());
        body[8..POSITION].copy_from_slice(&self.sequence.to_be_bytes());
    }
}

impl Writer<'_> {
    /// Begins a frame about a call, with `more` bytes after the position.
    pub(super) fn position(&mut self, kind: u8, flags: u8, position: Position, more: usize) -> Body<'_> {
        let (first, body) = self.frame_after::<POSITION>(kind, flags, POSITION + more, 0);
        position.write(first);
        body
    }
}
