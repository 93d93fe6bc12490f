//! What the server keeps of an activity: the number of its last call, and the call, its fragments and its
//! result until it is over.

use std::ops::Range;

use super::Insert;
use super::inside::Inside;
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
    /// The fragments of the arguments or of the result, if there is more than one.
    pub incoming: Option<Box<Incoming>>,
    pub outgoing: Option<Box<Outgoing>>,
    pub position: Position,
    /// The result, while the server holds it.
    pub payload: Vec<u8>,
    /// Bytes that belong into the result and are sent from where they are. Only a result in fragments has
    /// them.
    pub insert: Option<Box<Insert>>,
    /// When the phase began, or when the last fragment came.
    pub since: Time,
    /// A set of the flags below.
    pub marks: u8,
    /// Whether the call is in the queue of calls that have something to send.
    pub queued: bool,
    /// Whether the call waits for room in the congestion window.
    pub waiting: bool,
    /// The expected length of the result in bytes, if `PROMISED` is set.
    pub promised: usize,
    /// Whether a fragment of the arguments came since their budget was last enforced.
    pub progressed: bool,
    /// What passes inside the call.
    pub inside: Option<Box<Inside>>,
}

impl Work {
    /// Returns whether this is an access whose result is being sent in fragments.
    pub fn is_accessed(&self) -> bool {
        self.outgoing.is_some() && self.marks & ACCESS != 0
    }

    /// Returns the number of directions of exchanges that come before the result.
    pub fn directions(&self) -> u32 {
        self.inside.as_ref().map_or(0, |inside| inside.directions())
    }

    /// Returns the length of the held result in bytes.
    pub fn len(&self) -> usize {
        self.payload.len() + self.insert.as_ref().map_or(0, |insert| insert.bytes.len())
    }

    /// Splits a range of the result into the bytes before the insert, the range of the insert's bytes, and
    /// the bytes after it.
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

/// The user has the call, and the caller has given it up.
pub(super) const GIVEN_UP: u8 = 1;
/// The call was an access.
pub(super) const ACCESS: u8 = 2;
/// The call is being executed, and its result will be long.
pub(super) const PROMISED: u8 = 4;
/// An answer that waits to be sent will say which of the call's arguments have arrived.
pub(super) const TO_SELECT: u8 = 8;

/// The result of a call with exchanges is to be sent behind what they send.
pub(super) const TO_SEND: u8 = 32;

/// The call has exchanges, which end when it has its result.
pub(super) const EXCHANGES: u8 = 64;

/// No caller waits for the call's end, but the call goes on.
pub(super) const DETACHED: u8 = 16;

/// What is happening to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The fragments of the arguments arrive.
    #[default]
    Receiving,
    /// The user has the call.
    Running,
    /// The call ended with this status, and the server holds the result.
    Done(Status),
    /// The call is over. Only this record is kept, for the activity's next call.
    Over,
}
