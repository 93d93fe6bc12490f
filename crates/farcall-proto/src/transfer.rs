//! Messages that are longer than one datagram: records which bytes have arrived, and which are still to be
//! sent (docs/protocol.md, section 5.4).
//!
//! A message is a sequence of bytes. Its fragments are ranges of these bytes, so that the datagram size can
//! change while the message is being sent. The receiver ([`Incoming`]) reports in a SELECT frame which bytes
//! have arrived. The sender ([`Outgoing`]) sends the missing bytes. [`Outgoing`] also sends the directions of
//! exchanges (section 5.7), whose receiver reports in CREDIT frames.

mod flight;

use std::collections::VecDeque;
use std::time::Duration;

use farcall_base::room::{self, NoMemory};

use crate::Time;
use crate::wire::{END_LEN, Extent, Fragment, Select};
use flight::{Flight, Sent};

/// How many bytes of a message, or of a direction of an exchange, every receiver allows before its first
/// report.
pub(crate) const INITIAL_WINDOW: u32 = 12_000;

/// The maximum number of pieces beyond the first gap that a receiver keeps of a message. It drops bytes that
/// would need another piece.
const MAX_BEYOND: usize = 256;

/// The maximum number of fragments of one message that were sent and are not yet acknowledged. It bounds the
/// memory that they take besides their bytes, to 3 MiB.
const MAX_FLIGHT: usize = 1 << 16;

/// The maximum limit that a sender accepts from a receiver, so that no position in a message or a direction
/// overflows.
const MAX_PLACE: u64 = 1 << 62;

/// The maximum number of fragments of one message that are remembered after they counted as lost.
const MAX_PRESUMED: usize = 64;

/// A fragment counts as lost when a fragment has arrived that was sent at least this many transmissions
/// later. On a path that is known to reorder datagrams, it must have been sent long enough afterwards, too.
const REORDER: u64 = 3;

/// A message that is arriving.
///
/// The buffer holds the bytes that came in order, and grows with them. It also holds bytes that came ahead of
/// a gap, if it has room for them. Otherwise a [`Piece`] holds them until the gap is filled. So a message
/// takes at most twice as much memory as its bytes that have arrived, and in addition [`PIECE`] bytes for
/// each piece. If the message fits a reused buffer, fragments out of order need no further memory for their
/// bytes.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The message's length in bytes.
    total: u32,
    /// The bytes before `through`, and the bytes of pieces that are stored at their final place.
    buffer: Vec<u8>,
    /// Every byte before this one has arrived.
    pub through: u32,
    /// What arrived beyond `through`, sorted. Pieces do not overlap, but two pieces can touch.
    pieces: Vec<Piece>,
    /// The memory that the pieces take, in bytes.
    ahead: usize,
    /// The capacity, in bytes, that the buffer had before anything arrived.
    pub lent: usize,
    /// The sender may send the bytes before this one.
    limit: u32,
    /// The receiver accepts the bytes before this one even beyond `limit`, because the sender can still be
    /// following the limit of an earlier message.
    widest: u32,
    /// The largest number of a datagram with a fragment of this message, or a probe for it.
    largest: u64,
    /// Whether a fragment has arrived since the last SELECT.
    unacknowledged: bool,
    /// Whether the sender is to get a SELECT even if there is no gap.
    asked: bool,
}

/// A range of bytes that arrived ahead of a gap.
#[derive(Debug)]
struct Piece {
    start: u32,
    end: u32,
    /// The bytes. Empty if the message's buffer holds them at their final place.
    bytes: Vec<u8>,
}

impl Piece {
    fn is_in_place(&self) -> bool {
        self.bytes.is_empty()
    }

    fn memory(&self) -> usize {
        PIECE + self.bytes.capacity()
    }
}

/// The memory that a piece takes besides its bytes, in bytes: its element of the list, and as much again,
/// because up to half of the list's capacity can be unused.
const PIECE: usize = 2 * size_of::<Piece>();

/// What the receiver did with a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The fragment brought bytes that were missing.
    New,
    /// The fragment brought the last bytes that were missing.
    Complete,
    /// The receiver stored nothing: the fragment had arrived before, lies beyond what the sender may send, or
    /// found no room.
    Nothing,
    /// The fragment contradicts the length of the message.
    Contradiction,
    /// The process has no memory for the bytes. The message cannot be received.
    NoMemory,
}

impl Incoming {
    /// Makes a message of `total` bytes of which nothing has arrived. Collects its bytes in `buffer`, which
    /// is empty. The sender may send at least the first `window` bytes at once. The receiver accepts at least
    /// the first `widest` bytes.
    pub fn new(total: u32, buffer: Vec<u8>, window: u32, widest: u32) -> Incoming {
        debug_assert!(buffer.is_empty());
        let lent = buffer.capacity();
        let limit = INITIAL_WINDOW.max(crate::MAX_DATAGRAM as u32).max(window);
        Incoming { total, buffer, lent, limit, widest, ..Incoming::default() }
    }

    /// Returns the ranges beyond the first gap that have arrived: sorted, with gaps between them.
    pub fn beyond(&self) -> impl Iterator<Item = (u32, u32)> + Clone + '_ {
        let mut pieces = self.pieces.iter().map(|piece| (piece.start, piece.end)).peekable();
        std::iter::from_fn(move || {
            let (start, mut end) = pieces.next()?;
            while let Some((_, next)) = pieces.next_if(|next| next.0 == end) {
                end = next;
            }
            Some((start, end))
        })
    }

    /// Returns what a SELECT says besides the ranges beyond the first gap.
    pub fn extent(&self) -> Extent {
        Extent { through: self.through.into(), limit: self.limit.into(), largest: self.largest }
    }

    /// Returns how many bytes of memory the message takes.
    pub fn memory(&self) -> usize {
        self.buffer.capacity() + self.ahead
    }

    /// Reserves memory for bytes that have not arrived. A deliberate fault, for the simulator.
    pub fn reserve(&mut self, bytes: u32) {
        self.buffer.reserve(bytes as usize);
    }

    /// Allows the sender to send `window` bytes beyond what has arrived. What was allowed before stays
    /// allowed.
    pub fn grant(&mut self, window: u32) {
        self.limit = self.limit.max(self.through.saturating_add(window));
    }

    /// Remembers the number of a datagram about this message, if it is the largest so far.
    pub fn note(&mut self, number: u64) {
        self.largest = self.largest.max(number);
    }

    /// Returns whether to send a SELECT: the sender needs one in any case, or a fragment has arrived since
    /// the last one and there is a gap.
    pub fn acknowledge_due(&self) -> bool {
        self.asked || (self.unacknowledged && !self.pieces.is_empty())
    }

    /// Notes that a SELECT was sent.
    pub fn acknowledged(&mut self) {
        (self.unacknowledged, self.asked) = (false, false);
    }

    /// Stores a fragment that came in datagram `number`.
    pub fn take(&mut self, number: u64, fragment: Fragment, bytes: &[u8]) -> Taken {
        let (start, len) = (fragment.offset, bytes.len() as u32);
        let Some(end) = start.checked_add(len) else {
            return Taken::Contradiction;
        };
        if fragment.total != self.total || end > self.total {
            return Taken::Contradiction;
        }
        self.note(number);
        self.unacknowledged = true;
        self.asked |= fragment.ask;
        if end > self.limit.max(self.widest) || end <= self.through {
            // The sender does not know what has arrived, or how much it may send. A SELECT tells it.
            self.asked = true;
            return Taken::Nothing;
        }
        match start <= self.through {
            true => {
                if self.append(&bytes[(self.through - start) as usize..]).is_err() {
                    return Taken::NoMemory;
                }
            }
            false if self.put_ahead(start, bytes) => {}
            false => return Taken::Nothing,
        }
        if self.through == self.total { Taken::Complete } else { Taken::New }
    }

    /// Appends the bytes that follow `through`, and then the pieces that they reach.
    fn append(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        self.extend(bytes)?;
        let mut reach = self.through;
        let mut joins = |piece: &&Piece| {
            let joins = piece.start <= reach;
            reach = if joins { reach.max(piece.end) } else { reach };
            joins
        };
        let reached = self.pieces.iter().take_while(&mut joins).count();
        if reached == 0 {
            return Ok(());
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in pieces.drain(..reached) {
            self.ahead -= piece.memory();
            if piece.is_in_place() {
                self.through = self.through.max(piece.end);
            } else if let Some(new) = piece.bytes.get((self.through - piece.start) as usize..) {
                self.extend(new)?;
            }
        }
        self.pieces = pieces;
        Ok(())
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        let end = self.through as usize + bytes.len();
        if end > self.buffer.capacity() {
            let wanted = (2 * end).min(self.total as usize);
            let more = wanted - self.buffer.len();
            room::reserve_exact(&mut self.buffer, more)?;
        }
        self.put(self.through as usize, bytes);
        self.through = end as u32;
        Ok(())
    }

    /// Puts bytes into the buffer at their final place. The buffer must have room for them.
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let (end, len) = (at + bytes.len(), self.buffer.len());
        if at > len {
            self.buffer.resize(at, 0);
        }
        let (over, new) = bytes.split_at(self.buffer.len().min(end) - at);
        self.buffer[at..at + over.len()].copy_from_slice(over);
        self.buffer.extend_from_slice(new);
    }

    /// Stores those bytes of a range beyond the first gap that had not arrived, as far as there is room.
    /// Returns whether it stored any.
    fn put_ahead(&mut self, start: u32, bytes: &[u8]) -> bool {
        let (mut at, end, mut brought) = (start, start + bytes.len() as u32, false);
        while at < end {
            let next = self.pieces.partition_point(|piece| piece.start <= at);
            if let Some(before) = next.checked_sub(1).and_then(|before| self.pieces.get(before))
                && before.end > at
            {
                at = before.end;
                continue;
            }
            let stop = self.pieces.get(next).map_or(end, |piece| piece.start.min(end));
            if !self.put_piece(next, at, &bytes[(at - start) as usize..(stop - start) as usize]) {
                break;
            }
            (at, brought) = (stop, true);
        }
        brought
    }

    /// Stores bytes that no piece has: at the end of the piece before index `next` if they touch it, and
    /// otherwise as a new piece at index `next`. Returns false, and stores nothing, if that would be one
    /// piece too many, or if this process has no memory for it: then the bytes count as lost, and come again.
    fn put_piece(&mut self, next: usize, start: u32, bytes: &[u8]) -> bool {
        let end = start + bytes.len() as u32;
        let in_place = end as usize <= self.buffer.capacity();
        let touches = |before: &Piece| before.end == start && before.is_in_place() == in_place;
        let touched = next.checked_sub(1).filter(|before| touches(&self.pieces[*before]));
        if touched.is_none() && self.pieces.len() == MAX_BEYOND {
            return false;
        }
        if in_place {
            self.put(start as usize, bytes);
        }
        let place = match touched {
            Some(before) => {
                let piece = &mut self.pieces[before];
                let memory = piece.memory();
                if !in_place && room::reserve(&mut piece.bytes, bytes.len()).is_err() {
                    return false;
                }
                self.ahead -= memory;
                piece.end = end;
                if !in_place {
                    piece.bytes.extend_from_slice(bytes);
                }
                self.ahead += piece.memory();
                before
            }
            None => {
                let piece = Piece { start, end, bytes: if in_place { Vec::new() } else { bytes.to_vec() } };
                self.ahead += piece.memory();
                self.pieces.insert(next, piece);
                next
            }
        };
        self.join(place);
        true
    }

    /// Joins a piece with each next piece that touches it and is no longer than it. A byte is copied only
    /// into a piece that is at least twice as long as its former one. So it is copied few times, in whatever
    /// order fragments arrive.
    fn join(&mut self, place: usize) {
        while let [this, next, ..] = &mut self.pieces[place..]
            && this.end == next.start
            && this.is_in_place() == next.is_in_place()
            && next.bytes.len() <= this.bytes.len()
        {
            let before = this.memory() + next.memory();
            if room::reserve(&mut this.bytes, next.bytes.len()).is_err() {
                // They stay apart until there is memory.
                return;
            }
            this.end = next.end;
            this.bytes.extend_from_slice(&next.bytes);
            self.ahead = self.ahead + this.memory() - before;
            self.pieces.remove(place + 1);
        }
    }

    /// Returns the whole message. The message must be complete.
    pub fn into_bytes(self) -> Vec<u8> {
        debug_assert_eq!(self.through, self.total);
        self.buffer
    }
}

/// A message that is being sent, or a direction of an exchange. A direction is the bytes that this end sends
/// in a signal or a stream. More bytes can be added to a direction until it ends.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The number of bytes to send, including the end mark of a direction.
    total: u64,
    /// Whether this is a direction of an exchange.
    stream: bool,
    /// The length in bytes of a direction's end mark, or 0 while the direction has not ended. The end mark
    /// may be sent beyond `limit`.
    end: u64,
    /// Whether the last fragment asks the receiver for a report.
    asks_last: bool,
    /// The position of the first byte that was never sent.
    next: u64,
    /// The receiver allows the bytes before this position.
    limit: u64,
    /// Whether the limit is one that was lent, and no report has come.
    borrows: bool,
    /// The fragments that were sent and are neither acknowledged nor counted as lost, in sending order.
    flight: Flight,
    /// The number of bytes in `flight`.
    pub in_flight: u32,
    /// The number of bytes sent since a fragment last asked the receiver for a report.
    unasked: u32,
    /// The ranges that count as lost and are to be sent again, in order.
    lost: VecDeque<(u64, u64)>,
    /// The latest fragments that counted as lost: the number of the datagram, and when it was sent. A report
    /// that one of them has arrived after all tells how long the round trip is now.
    presumed: VecDeque<(u64, Time)>,
    /// The number of transmissions so far. They are counted because datagram numbers have gaps.
    order: u64,
    /// The `order` of the latest transmission that is known to have arrived.
    latest: u64,
    /// The number of the datagram of the latest transmission.
    last_number: u64,
    /// When the latest transmission that is known to have arrived was sent.
    latest_at: Time,
    /// By how many nanoseconds a fragment must be overtaken to count as lost.
    pub reordering: u64,
    /// `largest` and `through` of the newest report.
    newest: (u64, u64),
}

/// The small form of a direction, in which it is kept while no byte is under way or to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleOutgoing {
    total: u64,
    limit: u64,
    newest: (u64, u64),
}

/// How much the congestion window allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The whole congestion window in bytes. No fragment is longer.
    pub window: u32,
    /// The part of the window that is free, in bytes.
    pub left: u32,
    /// The maximum number of bytes from one fragment that asks for a report to the next.
    pub quantum: u32,
    /// Whether other messages wait for room in the window.
    pub shared: bool,
}

/// What a sender may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send this range. `again` says whether it was sent before. `ask` says whether to ask the receiver for a
    /// report.
    Range { start: u64, end: u64, again: bool, ask: bool },
    /// There is more to send than the congestion window has room for.
    NoRoom,
    /// Send nothing: nothing is left to send, or a report must come first.
    Nothing,
}

/// What a report told the sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    /// The number of bytes that are known to have arrived since this report.
    pub arrived: u32,
    /// When the earliest of the fragments was sent that count as lost since this report.
    pub lost_since: Option<Time>,
    /// The number of bytes that count as lost since this report, and were never counted as lost before.
    pub lost: u32,
    /// The number of bytes that counted as lost and have arrived without being repeated: they were only late.
    pub spurious: u32,
    /// When the fragment was sent that the receiver answered by this report, if it answered at once.
    pub answered: Option<Time>,
    /// Whether that fragment counted as lost, because the round trip has become longer than was known.
    pub late: bool,
    /// When the newest fragment was sent that the receiver has, if it says so because it waited in vain.
    pub pulled: Option<Time>,
    /// Whether everything has arrived.
    pub complete: bool,
    /// How many bytes beyond `through` the receiver allows. `None` for a direction, and for a complete
    /// message.
    pub granted: Option<u32>,
}

impl Outgoing {
    /// Makes a message of `total` bytes of which nothing was sent. Before the first report, `granted` bytes
    /// may be sent, as many as the receiver allowed for an earlier message, but at least [`INITIAL_WINDOW`].
    pub fn new(total: u32, granted: u32) -> Outgoing {
        let limit = INITIAL_WINDOW.max(granted & !3).into();
        Outgoing { total: total.into(), limit, ..Outgoing::default() }
    }

    /// Makes an empty direction of an exchange. It begins with this credit, but at least with
    /// [`INITIAL_WINDOW`].
    pub fn stream(credit: u32) -> Outgoing {
        let borrows = credit > INITIAL_WINDOW;
        Outgoing { stream: true, asks_last: true, borrows, ..Outgoing::new(0, credit) }
    }

    /// Returns the small form of a direction that has not ended, if no byte of it is under way or to be sent.
    pub fn idle(&self) -> Option<IdleOutgoing> {
        let Outgoing { total, limit, newest, .. } = *self;
        let idle = self.stream && self.is_idle() && self.end == 0 && self.asks_last && self.in_flight == 0;
        idle.then_some(IdleOutgoing { total, limit, newest })
    }

    /// Restores the direction from its small form. Counts transmissions from the beginning again, because
    /// none is under way.
    pub fn resume(idle: IdleOutgoing) -> Outgoing {
        let IdleOutgoing { total, limit, newest } = idle;
        Outgoing { total, next: total, limit, newest, ..Outgoing::stream(0) }
    }

    /// Adds bytes to a direction.
    pub fn extend(&mut self, bytes: usize) {
        debug_assert!(self.stream && self.end == 0);
        self.total += bytes as u64;
    }

    /// Ends a direction. `answers` says whether the receiver sends an answer anyway, which shows that the
    /// direction has arrived. Then the last fragment asks for no report.
    pub fn end(&mut self, answers: bool) {
        debug_assert!(self.stream && self.end == 0);
        (self.end, self.asks_last) = (END_LEN, !answers);
        self.total += END_LEN;
    }

    /// Ends a direction because the receiver takes no more of it. Only the end mark is still to be sent.
    pub fn cut(&mut self) {
        if self.end == 0 || self.next < self.total {
            self.total = self.next + END_LEN;
        }
        (self.end, self.asks_last) = (END_LEN, true);
        self.next = self.total - END_LEN;
        self.forget_flight();
    }

    /// Sends the end mark of a direction again, if it counted as arrived: the receiver had other bytes there.
    pub fn repeat_end(&mut self) {
        if self.is_idle() {
            self.next = self.added();
        }
    }

    /// Marks everything as sent and arrived, because the receiver needs nothing more of the direction.
    pub fn finish(&mut self) {
        self.next = self.total;
        self.forget_flight();
    }

    fn forget_flight(&mut self) {
        self.flight.clear();
        self.lost.clear();
        self.presumed = VecDeque::new();
        self.in_flight = 0;
    }

    /// Returns the length of the direction in bytes, without its end mark.
    pub fn added(&self) -> u64 {
        self.total - self.end
    }

    /// Returns whether everything was sent and has arrived.
    pub fn is_idle(&self) -> bool {
        self.next == self.total && self.flight.is_empty() && self.lost.is_empty()
    }

    /// Returns whether only the receiver's limit holds up the next byte: there are bytes to send, the
    /// receiver allows none of them yet, and no byte is unacknowledged.
    pub fn is_blocked(&self) -> bool {
        self.flight.is_empty() && self.lost.is_empty() && self.next < self.total && self.reach() <= self.next
    }

    /// Returns whether lost fragments wait to be sent again.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns the length in bytes of the range that is sent next if there is room for all of it.
    pub fn wanted(&self) -> u64 {
        let (start, end) = self.lost.front().copied().unwrap_or((self.next, self.reach().max(self.next)));
        end - start
    }

    /// Returns the number of bytes to send, including the end mark of a direction.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the position of the first byte that was never sent.
    pub fn sent_through(&self) -> u64 {
        self.next
    }

    /// Returns the position up to which the receiver allows sending.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    fn reach(&self) -> u64 {
        if self.limit + self.end >= self.total { self.total } else { self.limit }
    }

    /// Returns the next range to send, of at most `max` bytes (a multiple of four).
    ///
    /// The last fragment before the receiver's limit asks for a report, unless it ends the message. Some
    /// earlier fragments ask too, so that a report comes while there is still more to send.
    pub fn next(&self, max: u32, room: Room) -> Next {
        let (start, last, again) = match self.lost.front() {
            Some(&(start, end)) => (start, end, true),
            None => (self.next, self.reach().max(self.next), false),
        };
        let max = u64::from(max.min(room.window & !3));
        let end = last.min(start.saturating_add(max));
        // If less than a full fragment is left before the receiver's limit, it is not sent while a report is
        // expected, because the report can raise the limit (RFC 9293 section 3.8.6.2.1).
        let crumb = |rest: u64| last < self.total && !again && rest < max;
        match end - start {
            0 => Next::Nothing,
            len if crumb(len) && !self.flight.is_empty() => Next::Nothing,
            _ if self.flight.len() >= MAX_FLIGHT => Next::Nothing,
            len if len > room.left.into() => Next::NoRoom,
            len => {
                let stops = match self.total - end {
                    0 => room.shared || self.asks_last,
                    rest => crumb(last - end) || u64::from(room.left) - len < rest.min(max),
                };
                let ask = again
                    || stops
                    || u64::from(self.unasked) + len > room.quantum.into()
                    || self.flight.len() + 1 == MAX_FLIGHT;
                Next::Range { start, end, again, ask }
            }
        }
    }

    /// Notes that the range chosen by [`Outgoing::next`] was sent in datagram `number`.
    pub fn sent(&mut self, now: Time, number: u64, start: u64, end: u64, ask: bool) {
        self.unasked = if ask { 0 } else { self.unasked + (end - start) as u32 };
        let again = !self.lost.is_empty();
        match self.lost.front_mut() {
            Some(range) if end < range.1 => range.0 = end,
            Some(_) => drop(self.lost.pop_front()),
            None => self.next = end,
        }
        self.order += 1;
        self.last_number = number;
        self.in_flight += (end - start) as u32;
        self.flight.push(Sent { order: self.order, number, start, end, at: now, again });
    }

    /// Acts on a report of the receiver. If the receiver sent it because it has waited in vain, fragments
    /// that were sent more than `round_trip` ago count as lost.
    pub fn heard(&mut self, now: Time, select: &Select<'_>, round_trip: Duration) -> Heard {
        let mut heard = Heard::default();
        // Fragments begin at multiples of four, because the length of a frame is a multiple of four.
        if select.extent.through > self.total || !select.extent.through.is_multiple_of(4) {
            return heard;
        }
        // The receiver can have bytes that this end sent before it began again ([`Outgoing::restart`]).
        self.next = self.next.max(select.extent.through);
        if std::mem::take(&mut self.borrows) && select.extent.limit < self.limit {
            // The receiver has lent too much already, or was restored from an earlier state and does not
            // remember how much credit directions begin with.
            if select.extent.limit < self.next {
                self.go_back(&select.extent);
                return heard;
            }
            self.limit = select.extent.limit & !3;
        }
        self.limit = self.limit.max(select.extent.limit.min(MAX_PLACE) & !3);
        let (mut latest, in_flight) = ((self.latest, self.latest_at), &mut self.in_flight);
        let kept = self.flight.acknowledge(select.extent.through, select.ranges(), |sent| {
            heard.arrived += sent.len();
            *in_flight -= sent.len();
            if sent.number <= select.extent.largest {
                latest = latest.max((sent.order, sent.at));
            } else if sent.again {
                // The repetition has not arrived, so the bytes came in the datagram that counted as lost.
                heard.spurious += sent.len();
            }
            if sent.number == select.extent.largest {
                match select.pull {
                    true => heard.pulled = Some(sent.at),
                    false => heard.answered = Some(sent.at),
                }
            }
        });
        heard.arrived += kept;
        *in_flight -= kept;
        (self.latest, self.latest_at) = latest;
        if !select.pull && !self.presumed.is_empty() {
            self.hear_presumed(select.extent.largest, &mut heard);
        }
        heard.spurious += self.find(select);
        let probed = select.extent.largest > self.last_number;
        let overtaken = self.flight.newest().is_some_and(|newest| newest < select.extent.largest);
        let reordering = if probed { 0 } else { self.reordering };
        (heard.lost_since, heard.lost) = self.lose(|sent| {
            let late = select.pull && now.since(sent.at) > round_trip;
            let overtaken = overtaken || sent.order + REORDER <= latest.0;
            late || overtaken && latest.1.nanos_since(sent.at) >= reordering
        });
        heard.complete = select.extent.through == self.total && (!self.stream || self.end > 0);
        if self.has_forgotten(&select.extent) {
            self.go_back(&select.extent);
        }
        self.newest = self.newest.max((select.extent.largest, select.extent.through));
        let ahead = select.extent.limit.saturating_sub(select.extent.through);
        heard.granted = (!heard.complete && !self.stream).then_some(ahead as u32);
        heard
    }

    /// Learns from a report that answers a fragment which counted as lost. The number of its datagram shows
    /// that it is that one, and not the fragment that repeated its bytes.
    #[cold]
    fn hear_presumed(&mut self, largest: u64, heard: &mut Heard) {
        let Some(place) = self.presumed.iter().position(|(number, _)| *number == largest) else { return };
        (heard.answered, heard.late) = (Some(self.presumed[place].1), true);
        self.presumed.drain(..=place);
    }

    /// Returns whether the receiver has forgotten bytes that it had acknowledged, because it was restored
    /// from an earlier state. There are two signs: a later report acknowledges fewer bytes, or the receiver
    /// lacks bytes although everything sent was acknowledged. A delayed SELECT can look like the second sign.
    /// Then bytes are sent twice, without harm.
    fn has_forgotten(&self, extent: &Extent) -> bool {
        let (largest, through) = self.newest;
        let all_had_arrived = self.flight.is_empty() && self.lost.is_empty();
        let forgotten = extent.through < through && extent.largest > largest
            || all_had_arrived && extent.through < self.next;
        forgotten && !self.stream
    }

    /// Lowers the limit to this one. A deliberate fault, for the simulator: a limit is never taken back.
    pub fn take_back(&mut self, limit: u64) {
        self.limit = limit & !3;
    }

    /// Continues from the first byte that the receiver lacks, within the limit that it gives now.
    #[cold]
    fn go_back(&mut self, extent: &Extent) {
        (self.next, self.limit) = (extent.through, extent.limit & !3);
        self.forget_flight();
        self.newest = (0, 0);
    }

    /// Counts fragments that were sent more than `round_trip` ago as lost, because the receiver, or a timer
    /// of this end, has waited in vain. Returns when the earliest lost fragment was sent, and how many bytes
    /// are lost that were never counted as lost before.
    pub fn overdue(&mut self, now: Time, round_trip: Duration) -> (Option<Time>, u32) {
        self.lose(|sent| now.since(sent.at) > round_trip)
    }

    /// Counts fragments as lost. A fragment that was sent before a lost one must be lost, too.
    fn lose(&mut self, is_lost: impl Fn(&Sent) -> bool) -> (Option<Time>, u32) {
        let (mut since, mut bytes): (Option<Time>, u32) = (None, 0);
        let (lost, in_flight, presumed) = (&mut self.lost, &mut self.in_flight, &mut self.presumed);
        self.flight.lose(is_lost, |sent| {
            *in_flight -= sent.len();
            bytes += if sent.again { 0 } else { sent.len() };
            let place = match lost.back() {
                Some(last) if last.0 > sent.start => lost.partition_point(|range| range.0 < sent.start),
                _ => lost.len(),
            };
            lost.insert(place, (sent.start, sent.end));
            if presumed.len() == MAX_PRESUMED {
                presumed.pop_front();
            }
            presumed.push_back((sent.number, sent.at));
            since = Some(since.map_or(sent.at, |t| t.min(sent.at)));
        });
        (since, bytes)
    }

    /// Takes ranges that have arrived out of those that are to be sent again. Returns how many bytes they
    /// are.
    fn find(&mut self, select: &Select<'_>) -> u32 {
        let (lost, through, mut found) = (&mut self.lost, select.extent.through, 0);
        while let Some((start, end)) = lost.front_mut().filter(|(start, _)| *start < through) {
            found += through.min(*end) - *start;
            if *end > through {
                *start = through;
            } else {
                lost.pop_front();
            }
        }
        if lost.is_empty() {
            return found as u32;
        }
        for (from, to) in select.ranges() {
            let begin = lost.partition_point(|(start, _)| *start < from);
            let end = lost.partition_point(|(_, end)| *end <= to);
            if begin < end {
                found += lost.drain(begin..end).map(|(start, end)| end - start).sum::<u64>();
            }
        }
        found as u32
    }

    /// Begins again from the first byte, because the receiver has nothing of the message.
    pub fn restart(&mut self) {
        *self = Outgoing::new(self.total as u32, 0);
    }
}

#[cfg(test)]
mod tests;
