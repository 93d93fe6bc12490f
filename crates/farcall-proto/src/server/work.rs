//! What the server keeps of an activity: the number of its last call, and the call, its fragments and its
//! result until it is over.

use std::ops::Range;

use super::Insert;
use crate::Time;
use crate::transfer::{Incoming, Outgoing};
use crate::wire::{Position, Status};

/// The last call of an activity: its number, and whether it was refused rather than executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Last(u64);

impl Last {
    pub fn new(sequence: u64, refused: bool) -> Last {
        Last(sequence << 1 | u64::from(refused))
    }

    #[inline]
    pub fn sequence(self) -> u64 {
        self.0 >> 1
    }

    pub fn refused(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A call that is not over.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub phase: Phase,
    /// The fragments of arguments or of the result, when they are more than one.
    pub incoming: Option<Box<Incoming>>,
    pub outgoing: Option<Box<Outgoing>>,
    pub position: Position,
    /// The result, while it is held.
    pub payload: Vec<u8>,
    /// What belongs into it, if there is any: only of a result that is being sent in fragments.
    pub insert: Option<Box<Insert>>,
    /// When its phase began, or a fragment came.
    pub since: Time,
    /// What is to be known of it besides, until the next: a byte, which is cleared at one go.
    pub marks: u8,
    /// Whether it stands in the queue of those who have something to send.
    pub queued: bool,
    /// Whether it stands among those who wait for the congestion window.
    pub waiting: bool,
    /// Bytes that its result will have, if that is marked.
    pub promised: usize,
    /// A fragment of its arguments came since the budget of those was last enforced.
    pub progressed: bool,
}

impl Work {
    /// Whether it is an access's result that is being sent in fragments.
    pub fn is_accessed(&self) -> bool {
        self.outgoing.is_some() && self.marks & ACCESS != 0
    }

    /// Bytes of the result that is held.
    pub fn len(&self) -> usize {
        self.payload.len() + self.insert.as_ref().map_or(0, |insert| insert.bytes.len())
    }

    /// A range of the result: what stands before the insert, which part of that, what stands behind it.
    pub fn pieces(&self, range: Range<usize>) -> (&[u8], Range<usize>, &[u8]) {
        let Some(Insert { at, bytes }) = self.insert.as_deref() else {
            return (&self.payload[range], 0..0, &[]);
        };
        let within = |place: Range<usize>| {
            let clamp = |end: usize| end.clamp(place.start, place.end) - place.start;
            clamp(range.start)..clamp(range.end)
        };
        let behind = at + bytes.len();
        let (first, last) = self.payload.split_at(*at);
        (&first[within(0..*at)], within(*at..behind), &last[within(behind..self.len())])
    }
}

/// The user has it, and its caller has given it up.
pub(super) const GIVEN_UP: u8 = 1;
/// The call was an access.
pub(super) const ACCESS: u8 = 2;
/// It is being executed, and its result will be long.
pub(super) const PROMISED: u8 = 4;
/// What has arrived of its arguments is to be said in an answer that waits to be sent.
pub(super) const TO_SELECT: u8 = 8;

/// Nobody waits for its end, and it is to go on.
pub(super) const DETACHED: u8 = 16;

/// What is happening to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its fragments arrive.
    #[default]
    Receiving,
    /// The user has it.
    Running,
    /// It ended so; the result is held.
    Done(Status),
    /// It is over and nothing is held but this, for the activity's next call.
    Over,
}
