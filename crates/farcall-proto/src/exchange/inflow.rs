//! A direction of an exchange at its receiver: what has arrived, what the user has taken, and how far the
//! sender may go.

use std::collections::BTreeMap;

use super::ready::Ready;
use crate::transfer::INITIAL_WINDOW;
use crate::wire::{Data, END_LEN, Extent};
use crate::{Mutant, Rule};

/// Pieces beyond the first gap that a receiver keeps; bytes that would need more are dropped.
const MAX_PIECES: usize = 256;

/// What a piece costs besides its bytes.
const PIECE: usize = 96;

/// The sender is told of more credit when it is this part of the window.
const WORTH_TELLING: u64 = 4;

/// What arrives of a direction. It holds no more than its credit, and at most twice as much memory.
#[derive(Debug)]
pub(super) struct Inflow {
    /// Bytes that arrived in order and that the user has not taken.
    ready: Ready,
    taken: u64,
    /// Bytes that arrived ahead of a gap, by where they begin. No byte is there twice.
    ahead: BTreeMap<u64, Vec<u8>>,
    /// Bytes of memory that these pieces hold.
    ahead_memory: usize,
    /// Where the direction ends, if that has arrived.
    end: Option<u64>,
    /// The sender may send bytes before this one, and was told so of bytes before that one.
    limit: u64,
    told: u64,
    largest: u64,
    asked: bool,
    /// Something has come since the last CREDIT.
    unacknowledged: bool,
    /// The user has been told that there is something to take.
    pub noticed: bool,
    /// The user takes no more, for this reason; and whether the sender is to be told so now.
    stopped: Option<u32>,
    pub tells_stop: bool,
    /// Nothing more is needed, whatever has arrived: the call has a result.
    closed: bool,
    /// It was counted among the directions that were received.
    pub counted: bool,
    /// Something came that cannot be of this direction. Its sender does not remember what it has sent, as
    /// after a restoration, or does not keep to the protocol.
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

/// What is kept of a direction of which nothing waits at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleInflow {
    taken: u64,
    limit: u64,
    told: u64,
    largest: u64,
}

impl Inflow {
    /// Nothing has arrived yet.
    pub fn new(mutant: Mutant) -> Inflow {
        Inflow { mutant, ..Inflow::default() }
    }

    /// Returns what to keep of the direction, if it goes on and nothing waits to be taken or to be said.
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

    /// Takes in what came in datagram `number`. No more than `most` bytes are to be held; what is beyond is
    /// dropped as if it were lost. Returns whether there is more for the user.
    pub fn receive(&mut self, number: u64, data: &Data<'_>, most: usize) -> bool {
        let before = (self.largest, self.unacknowledged, self.asked);
        self.largest = self.largest.max(number);
        self.unacknowledged = true;
        self.asked |= data.ask;
        let end = data.offset + data.bytes.len() as u64;
        let beyond = end > self.limit && !self.mutant.breaks(Rule::CreditExceeded);
        if self.has_all() || beyond {
            // The sender does not know what we have, or how far it may go.
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
            // An answer would have it sent again at once. The sender's timer is to do that.
            (self.largest, self.unacknowledged, self.asked) = before;
        }
        brought || data.end && self.is_complete()
    }

    /// The sender has ended a direction of which no more is taken.
    fn stop_at(&mut self, end: u64) -> bool {
        (self.taken, self.end) = (end, Some(end));
        (self.asked, self.tells_stop) = (true, false);
        true
    }

    /// Keeps those of the bytes that are missing and for which there is room; whether it has all of them
    /// then.
    fn put(&mut self, start: u64, bytes: &[u8], most: usize) -> bool {
        let room = most.saturating_sub(self.ready.len() + self.ahead_memory);
        if start > self.through() && !self.mutant.breaks(Rule::DataUnordered) {
            return bytes.len() <= room && self.put_ahead(start, bytes);
        }
        let again = self.mutant.breaks(Rule::DataTwice);
        let known = if again { 0 } else { self.through().saturating_sub(start) };
        let new = bytes.get(known as usize..).unwrap_or_default();
        let fits = new.len().min(room & !3);
        self.ready.extend(&new[..fits]);
        while let Some(first) =
            self.ahead.first_entry().filter(|first| *first.key() <= reached(self.taken, &self.ready))
        {
            let (start, piece) = first.remove_entry();
            self.ahead_memory -= PIECE + piece.capacity();
            let known = (self.through() - start) as usize;
            self.ready.extend(piece.get(known..).unwrap_or_default());
        }
        fits == new.len()
    }

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
            piece.extend_from_slice(new);
            self.ahead_memory += piece.capacity() - memory + if touches.is_none() { PIECE } else { 0 };
            at = stop;
        }
        true
    }

    /// Moves at most `most` bytes that have arrived in order to the end of `into`.
    pub fn take(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let len = self.ready.take(into, most);
        self.taken += len as u64;
        if self.ready.is_empty() {
            self.ready = Ready::default();
            self.noticed = false;
        }
        len
    }

    /// Takes no more.
    pub fn stop(&mut self, reason: u32) {
        if self.stopped.is_some() || self.closed {
            return;
        }
        self.stopped = Some(reason);
        self.forget();
        match self.end {
            // The sender may have heard that its end has arrived, so the end is not to be forgotten.
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

    /// Nothing more is needed: the call has a result.
    pub fn close(&mut self) {
        self.forget();
        (self.closed, self.tells_stop) = (true, false);
    }

    /// The reason for which no more is taken, while the sender has not ended the direction.
    pub fn stopping(&self) -> Option<u32> {
        self.stopped.filter(|_| !self.has_all())
    }

    /// Whether the user takes no more.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The first byte that has not arrived.
    fn through(&self) -> u64 {
        reached(self.taken, &self.ready)
    }

    /// Where what has arrived ends.
    fn reach(&self) -> u64 {
        let last = self.ahead.last_key_value();
        last.map_or(self.through(), |(start, piece)| start + piece.len() as u64)
    }

    fn is_complete(&self) -> bool {
        self.end == Some(self.through())
    }

    /// Whether nothing more is needed of the sender.
    pub fn has_all(&self) -> bool {
        self.is_complete() || self.closed
    }

    /// Whether all has arrived and the user has taken it.
    pub fn is_over(&self) -> bool {
        self.has_all() && self.ready.is_empty()
    }

    /// Lets the sender go `window` beyond what was taken; never takes back.
    pub fn grant(&mut self, window: u64) {
        if self.stopped.is_none() {
            self.limit = self.limit.max(self.taken + window);
        }
    }

    /// Bytes that the user has taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether the sender is to hear what has arrived and how far it may go.
    pub fn credit_due(&self) -> bool {
        let more = self.limit - self.told;
        let tells = more >= (self.limit - self.taken).div_ceil(WORTH_TELLING) && more > 0;
        self.asked || self.unacknowledged && !self.ahead.is_empty() || tells && !self.has_all()
    }

    /// A CREDIT was sent.
    pub fn acknowledged(&mut self) {
        (self.asked, self.unacknowledged, self.told) = (false, false, self.limit);
    }

    /// What a CREDIT says besides the ranges.
    pub fn extent(&self) -> Extent {
        let told = self.is_complete() && !self.mutant.breaks(Rule::EndUnacknowledged);
        let end = if told { END_LEN } else { 0 };
        Extent { through: self.through() + end, limit: self.limit, largest: self.largest }
    }

    /// The ranges beyond the first gap that have arrived.
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

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> usize {
        self.ready.memory() + self.ahead_memory
    }
}

/// Where the bytes in order end.
fn reached(taken: u64, ready: &Ready) -> u64 {
    taken + ready.len() as u64
}
