//! A direction of an exchange, at the end that receives it: which bytes have arrived, which of them the user
//! has taken, and how far the sender may go.

use std::collections::BTreeMap;

use farcall_base::room;

use super::ready::Ready;
use crate::transfer::INITIAL_WINDOW;
use crate::wire::{Data, END_LEN, Extent};
use crate::{Mutant, Rule};

/// The maximum number of pieces beyond the first gap that a receiver keeps. It drops bytes that would need
/// another piece.
const MAX_PIECES: usize = 256;

/// The memory that a piece takes besides its bytes, in bytes.
const PIECE: usize = 96;

/// The sender is told of more credit when the increase is at least the window divided by this.
const CREDIT_STEP_DIVISOR: u64 = 4;

/// The state of a direction at the end that receives it. It holds no more bytes than the sender's credit, in
/// at most twice as much memory.
#[derive(Debug)]
pub(super) struct Inflow {
    /// Bytes that arrived in order and that the user has not taken.
    ready: Ready,
    /// The number of bytes that the user has taken.
    taken: u64,
    /// Pieces that arrived ahead of a gap, by the position of their first byte. They do not overlap.
    ahead: BTreeMap<u64, Vec<u8>>,
    /// The memory that the pieces in `ahead` take, in bytes.
    ahead_memory: usize,
    /// The position at which the direction ends, if its end mark has arrived.
    end: Option<u64>,
    /// The sender may send the bytes before this position.
    limit: u64,
    /// The `limit` of which the last CREDIT told the sender.
    told: u64,
    /// How many bytes the sender was lent, until the user has taken in so many that it may have them anyway.
    loan: u32,
    /// The largest number of a datagram with DATA of this direction.
    largest: u64,
    /// Whether the sender is to get a CREDIT even if there is no gap.
    asked: bool,
    /// Whether a DATA has come since the last CREDIT.
    unacknowledged: bool,
    /// Whether the user has been told that there is something to take.
    pub noticed: bool,
    /// The reason for which the user takes no more, if the user has stopped the direction.
    stopped: Option<u32>,
    /// Whether a STOP is to be sent now.
    pub tells_stop: bool,
    /// Whether nothing more is needed, whatever has arrived, because the call has a result.
    closed: bool,
    /// Whether the direction was counted as received.
    pub counted: bool,
    /// Whether a DATA contradicted the end of this direction. Then the sender was restored from an earlier
    /// state and does not remember what it has sent, or it breaks the protocol.
    pub contradicted: bool,
    mutant: Mutant,
}

impl Default for Inflow {
    fn default() -> Inflow {
        let limit = INITIAL_WINDOW.into();
        Inflow {
            ready: Ready::default(),
            taken: 0,
            ahead: BTreeMap::new(),
            ahead_memory: 0,
            end: None,
            limit,
            told: limit,
            loan: 0,
            largest: 0,
            asked: false,
            unacknowledged: false,
            noticed: false,
            stopped: None,
            tells_stop: false,
            closed: false,
            counted: false,
            contradicted: false,
            mutant: Mutant::NONE,
        }
    }
}

/// The small form of a direction, in which its receiver keeps it while no byte waits to be taken and no frame
/// is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleInflow {
    taken: u64,
    limit: u64,
    told: u64,
    largest: u64,
}

impl Inflow {
    /// Makes a direction of which nothing has arrived.
    pub fn new(mutant: Mutant) -> Inflow {
        Inflow { mutant, ..Inflow::default() }
    }

    /// Returns the small form of the direction, if it has not ended, no byte waits to be taken, and no frame
    /// is to be sent.
    pub fn idle(&self) -> Option<IdleInflow> {
        let Inflow { taken, limit, told, largest, .. } = *self;
        let says = self.asked || self.tells_stop || self.credit_due();
        let ends = self.end.is_some() || self.stopped.is_some() || self.closed || self.counted;
        let holds = self.noticed || self.contradicted || !self.ready.is_empty() || !self.ahead.is_empty();
        (!says && !ends && !holds).then_some(IdleInflow { taken, limit, told, largest })
    }

    /// Restores the direction from its small form.
    pub fn resume(idle: IdleInflow, mutant: Mutant) -> Inflow {
        let IdleInflow { taken, limit, told, largest } = idle;
        Inflow { taken, limit, told, largest, ..Inflow::new(mutant) }
    }

    /// Allows the sender of a direction of which nothing has come to send the first `lent` bytes, because
    /// this end has told it that a direction begins with as much credit.
    pub fn lend(&mut self, lent: u32) {
        let is_new = self.largest == 0 && self.taken == 0;
        if is_new && u64::from(lent) > self.limit && !self.mutant.breaks(Rule::LoanRefused) {
            (self.limit, self.loan) = (lent.into(), lent);
            self.told = self.limit;
        }
    }

    /// Returns how many bytes the sender was lent and could not have otherwise.
    pub fn loan(&self) -> u32 {
        if self.stopped.is_some() || self.closed { 0 } else { self.loan }
    }

    /// Returns how many bytes a direction like this may begin with, or `None` if it has had no more than the
    /// initial window, or takes no more.
    pub fn lends(&self) -> Option<u32> {
        let left = u32::try_from(self.limit - self.through()).ok()?;
        (left > INITIAL_WINDOW && self.stopped.is_none() && !self.closed).then_some(left)
    }

    /// Stores the bytes of a DATA that came in datagram `number`. Holds no more than `most` bytes, and drops
    /// bytes beyond that as if they were lost. Returns whether there is more for the user to take.
    pub fn receive(&mut self, number: u64, data: &Data<'_>, most: usize) -> bool {
        let before = (self.largest, self.unacknowledged, self.asked);
        self.largest = self.largest.max(number);
        self.unacknowledged = true;
        self.asked |= data.ask;
        let end = data.offset + data.bytes.len() as u64;
        let beyond = end > self.limit && !self.mutant.breaks(Rule::CreditExceeded);
        if self.has_all() || beyond {
            // The sender does not know what has arrived, or how far it may go. A CREDIT tells it.
            self.asked = true;
            return false;
        }
        let contradicts = match self.end {
            Some(known) => end > known || data.end && end != known,
            None => data.end && end < self.reach(),
        };
        if contradicts {
            self.contradicted = true;
            return false;
        }
        if self.stopped.is_some() {
            self.tells_stop |= !data.end && !self.mutant.breaks(Rule::StopOnce);
            return data.end && self.stop_at(end);
        }
        let through = self.through();
        let whole = self.put(data.offset, data.bytes, most);
        if data.end && whole {
            self.end = Some(end);
        }
        let brought = self.through() > through;
        if self.mutant.breaks(Rule::CreditOnArrival) {
            self.limit = self.limit.max(self.through() + u64::from(INITIAL_WINDOW));
        }
        if !whole && !brought {
            // A CREDIT that names this datagram would make the sender repeat the dropped bytes at once. The
            // sender is to repeat them when its timer is due. If it asks, the CREDIT names the datagram
            // before, and shows only that datagrams arrive.
            (self.largest, self.unacknowledged, self.asked) = before;
            self.asked |= data.ask;
        }
        brought || data.end && self.is_complete()
    }

    /// Notes that the sender has ended a direction that the user had stopped.
    fn stop_at(&mut self, end: u64) -> bool {
        (self.taken, self.end) = (end, Some(end));
        (self.asked, self.tells_stop) = (true, false);
        true
    }

    /// Stores those of the bytes that are missing, as far as there is room. Returns whether none of them is
    /// missing any more.
    fn put(&mut self, start: u64, bytes: &[u8], most: usize) -> bool {
        let room = most.saturating_sub(self.ready.len() + self.ahead_memory);
        if start > self.through() && !self.mutant.breaks(Rule::DataUnordered) {
            return bytes.len() <= room && self.put_ahead(start, bytes);
        }
        let again = self.mutant.breaks(Rule::DataTwice);
        let known = if again { 0 } else { self.through().saturating_sub(start) };
        let new = bytes.get(known as usize..).unwrap_or_default();
        // What this process has no memory for counts as lost, and comes again.
        let fits = self.ready.extend(&new[..new.len().min(room & !3)]);
        while let Some(first) =
            self.ahead.first_entry().filter(|first| *first.key() <= reached(self.taken, &self.ready))
        {
            let (start, piece) = first.remove_entry();
            self.ahead_memory -= PIECE + piece.capacity();
            let known = (self.through() - start) as usize;
            // The sender may know that these bytes have arrived, so they must not count as lost.
            self.ready.append(piece, known);
        }
        fits == new.len()
    }

    /// Stores those bytes of a range beyond the first gap that are missing. Returns false if that needs too
    /// many pieces.
    fn put_ahead(&mut self, start: u64, bytes: &[u8]) -> bool {
        let (mut at, end) = (start, start + bytes.len() as u64);
        while at < end {
            let before = self.ahead.range(..=at).next_back();
            let before = before.map(|(start, piece)| (*start, *start + piece.len() as u64));
            if let Some((_, covered)) = before.filter(|(_, covered)| *covered > at) {
                at = covered;
                continue;
            }
            let stop = self.ahead.range(at..).next().map_or(end, |(next, _)| end.min(*next));
            let new = &bytes[(at - start) as usize..(stop - start) as usize];
            let touches = before.filter(|(_, covered)| *covered == at);
            if touches.is_none() && self.ahead.len() == MAX_PIECES {
                return false;
            }
            let piece = self.ahead.entry(touches.map_or(at, |(start, _)| start)).or_default();
            let memory = piece.capacity();
            if room::reserve(piece, new.len()).is_err() {
                if touches.is_none() {
                    self.ahead.remove(&at);
                }
                return false;
            }
            piece.extend_from_slice(new);
            self.ahead_memory += piece.capacity() - memory + if touches.is_none() { PIECE } else { 0 };
            at = stop;
        }
        true
    }

    /// Moves at most `most` bytes that have arrived in order to the end of `into`. Returns how many.
    pub fn take(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let len = self.ready.take(into, most);
        self.taken += len as u64;
        if self.ready.is_empty() {
            self.ready = Ready::default();
            self.noticed = false;
        }
        len
    }

    /// Stops the direction: the user takes no more of it, for this reason.
    pub fn stop(&mut self, reason: u32) {
        if self.stopped.is_some() || self.closed {
            return;
        }
        self.stopped = Some(reason);
        self.forget();
        match self.end {
            // The sender may know that its end mark has arrived, so the end is kept.
            Some(end) => (self.taken, self.asked) = (end, true),
            None => self.tells_stop = true,
        }
    }

    /// Drops what the user has not taken.
    fn forget(&mut self) {
        self.taken = self.through();
        self.ready = Ready::default();
        self.ahead.clear();
        self.ahead_memory = 0;
    }

    /// Closes the direction. Nothing more of it is needed, because the call has a result.
    pub fn close(&mut self) {
        self.forget();
        (self.closed, self.tells_stop) = (true, false);
    }

    /// Returns the reason for which the user takes no more, until the sender has ended the direction.
    pub fn stopping(&self) -> Option<u32> {
        self.stopped.filter(|_| !self.has_all())
    }

    /// Returns whether the user has stopped the direction.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns the position of the first byte that has not arrived.
    fn through(&self) -> u64 {
        reached(self.taken, &self.ready)
    }

    /// Returns the position after the last byte that has arrived.
    fn reach(&self) -> u64 {
        let last = self.ahead.last_key_value();
        last.map_or(self.through(), |(start, piece)| start + piece.len() as u64)
    }

    fn is_complete(&self) -> bool {
        self.end == Some(self.through())
    }

    /// Returns whether nothing more is needed of the sender.
    pub fn has_all(&self) -> bool {
        self.is_complete() || self.closed
    }

    /// Returns whether all has arrived and the user has taken it.
    pub fn is_over(&self) -> bool {
        self.has_all() && self.ready.is_empty()
    }

    /// Allows the sender to send `window` bytes beyond those that the user has taken. What was allowed before
    /// stays allowed.
    pub fn grant(&mut self, window: u64) {
        if self.stopped.is_none() {
            self.limit = self.limit.max(self.taken + window);
            if self.taken + window >= self.loan.into() {
                self.loan = 0;
            }
        }
    }

    /// Returns the number of bytes that the user has taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns whether to send a CREDIT.
    pub fn credit_due(&self) -> bool {
        let more = self.limit - self.told;
        let tells = more >= (self.limit - self.taken).div_ceil(CREDIT_STEP_DIVISOR) && more > 0;
        self.asked || self.unacknowledged && !self.ahead.is_empty() || tells && !self.has_all()
    }

    /// Notes that a CREDIT was sent.
    pub fn acknowledged(&mut self) {
        (self.asked, self.unacknowledged, self.told) = (false, false, self.limit);
    }

    /// Returns what a CREDIT says besides the ranges.
    pub fn extent(&self) -> Extent {
        let told = self.is_complete() && !self.mutant.breaks(Rule::EndUnacknowledged);
        let end = if told { END_LEN } else { 0 };
        Extent { through: self.through() + end, limit: self.limit, largest: self.largest }
    }

    /// Returns the ranges beyond the first gap that have arrived.
    pub fn beyond(&self) -> impl Iterator<Item = (u64, u64)> + Clone + '_ {
        let pieces = self.ahead.iter().map(|(start, piece)| (*start, *start + piece.len() as u64));
        let end = self.end.filter(|_| !self.is_complete()).map(|end| (end, end + END_LEN));
        let mut pieces = pieces.chain(end).peekable();
        std::iter::from_fn(move || {
            let (start, mut end) = pieces.next()?;
            while let Some((_, next)) = pieces.next_if(|next| next.0 == end) {
                end = next;
            }
            Some((start, end))
        })
    }

    /// Returns the memory that the direction holds, in bytes.
    pub fn memory(&self) -> usize {
        self.ready.memory() + self.ahead_memory
    }
}

/// Returns the position after the bytes that have arrived in order.
fn reached(taken: u64, ready: &Ready) -> u64 {
    taken + ready.len() as u64
}
