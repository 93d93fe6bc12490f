//! What the server keeps of an activity: the number of its last call, and the call's state, fragments and
//! result until the call is over.
//!
//! An activity is a numbered slot of a conversation; in it, the client makes one call after the other. An
//! access is a call that reads or writes exported memory. An exchange is a signal or a stream within a call.

use std::ops::Range;
use std::time::Duration;

use super::Insert;
use super::inside::Inside;
use crate::transfer::{Incoming, Outgoing};
use crate::wire::{Position, Status};
use crate::{Mutant, Rule, Time};

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

/// After this many tries in a row, and one more for each second for which the client may be silent, a call is
/// given up of whose exchanges nothing arrives.
const MOST_IN_VAIN: u8 = 6;

/// A call that is not over.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub phase: Phase,
    /// The arguments that are arriving, if they come in more than one fragment.
    pub incoming: Option<Box<Incoming>>,
    /// The state of sending the result, if it needs more than one fragment.
    pub outgoing: Option<Box<Outgoing>>,
    pub position: Position,
    /// The result, while the server holds it.
    pub payload: Vec<u8>,
    /// Bytes within the result that are sent from where they are, without a copy. Only a result in fragments
    /// has such bytes.
    pub insert: Option<Box<Insert>>,
    /// When the phase began, or when the last fragment came.
    pub since: Time,
    /// When the client last spoke of the call while the user has it, or when the server last asked whether
    /// the call is still wanted. A time before `since` says nothing.
    pub spoken: Time,
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
    /// The call's exchanges (signals and streams), if it has any.
    pub inside: Option<Box<Inside>>,
}

impl Work {
    /// Returns whether this is an access whose result is being sent in fragments.
    pub fn is_accessed(&self) -> bool {
        self.outgoing.is_some() && self.marks & ACCESS != 0
    }

    /// Returns how many halves of exchanges (what the server sends in one) must be received before the result
    /// is delivered.
    pub fn directions(&self) -> u32 {
        self.inside.as_ref().map_or(0, |inside| inside.directions())
    }

    /// Returns whether nothing of the call's exchanges arrives at its client, although the client `speaks`: a
    /// path that lets only short datagrams pass does not keep the call alive for ever. The client may be
    /// silent for `silence`. What is sent to it meanwhile does not count.
    pub fn sends_in_vain(&mut self, speaks: bool, silence: Duration, mutant: Mutant) -> bool {
        if !speaks {
            self.inside.iter_mut().for_each(|inside| inside.forgive());
            return false;
        }
        // After the first tries there is one for each second.
        let most = MOST_IN_VAIN.saturating_add(silence.as_secs().min(u8::MAX.into()) as u8);
        let in_vain = self.inside.as_ref().is_some_and(|inside| inside.vain() >= most);
        in_vain && !mutant.breaks(Rule::NarrowPathEnds)
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

/// The caller has given the call up while the user executes it.
pub(super) const GIVEN_UP: u8 = 1;
/// The call is an access to memory.
pub(super) const ACCESS: u8 = 2;
/// The call is being executed, and its result will be long.
pub(super) const PROMISED: u8 = 4;
/// A SELECT for the call's arguments, which says what has arrived, waits to be sent.
pub(super) const TO_SELECT: u8 = 8;

/// The result of a call with exchanges is to be sent after what the exchanges send.
pub(super) const TO_SEND: u8 = 32;

/// The call has exchanges, which end when the call ends.
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
