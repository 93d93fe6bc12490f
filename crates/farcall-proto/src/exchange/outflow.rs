//! A direction of an exchange, at the end that sends it: keeps bytes until they are acknowledged, and decides
//! when to send them again.

use std::time::Duration;

use bytes::Bytes;

use super::kept::{Kept, Piece};
use super::{Tail, Way};
use crate::insert::Insert;
use crate::transfer::{IdleOutgoing, Next, Outgoing};
use crate::wire::{Credit, Data, END_LEN, Position, Writer};
use crate::{Mutant, Rule, Time};

/// The longest time between two tries, in nanoseconds.
const MAX_INTERVAL_NANOS: u64 = 1_000_000_000;

/// After this many tries in a row of which nothing arrived, datagrams may be too large for the path.
const BLACK_HOLE_TRIES: u8 = 3;

/// The least room for bytes, in a datagram, for which a longer DATA is split. With less room, the DATA waits
/// for the next datagram.
const MIN_SPLIT_BYTES: usize = 256;

/// The maximum number of bytes in a full datagram besides the bytes of its DATA.
const MAX_OVERHEAD_BYTES: usize = 128;

/// The least bytes that are inserted into a datagram when it is sent. Fewer are copied into it.
const MIN_INSERTED_BYTES: usize = 8 << 10;

/// How much of an exchange was written into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Everything that may be sent now.
    All,
    /// A part. The rest needs another datagram.
    Full,
    /// A part. The congestion window has no room for the rest.
    Waits,
}

/// The state of a direction at the end that sends it.
#[derive(Debug)]
pub(super) struct Outflow {
    /// The bytes that have not arrived, as far as is known.
    kept: Kept,
    sending: Outgoing,
    /// Whether the direction has ended, so that the user can add no more.
    ended: bool,
    /// Whether the receiver has said that it takes no more.
    cut: bool,
    /// Whether the user had more bytes than there was room for, and is to be told when there is room.
    pub wants_room: bool,
    /// Whether the user is to be told when the next CREDIT comes.
    pub tells_credit: bool,
    /// When to send bytes again, or to ask for credit.
    pub due: Option<Time>,
    /// The time from `due` to the next try, in nanoseconds.
    interval: u64,
    /// How many times in a row the timer has counted the bytes under way as lost. Bytes that arrive end the
    /// row.
    vain: u8,
    /// Whether to ask the receiver for credit by an empty DATA.
    asks: bool,
    mutant: Mutant,
}

impl Default for Outflow {
    fn default() -> Outflow {
        Outflow {
            kept: Kept::default(),
            sending: Outgoing::stream(0),
            ended: false,
            cut: false,
            wants_room: false,
            tells_credit: false,
            due: None,
            interval: 0,
            vain: 0,
            asks: false,
            mutant: Mutant::NONE,
        }
    }
}

impl Outflow {
    /// Makes a direction of which nothing was sent. It begins with this credit, but at least with the initial
    /// window.
    pub fn new(mutant: Mutant, credit: u32) -> Outflow {
        Outflow { mutant, sending: Outgoing::stream(credit), ..Outflow::default() }
    }

    /// Returns the small form of the direction, if no byte of it is under way or to be sent, and the user
    /// waits for no news.
    pub fn idle(&self) -> Option<IdleOutgoing> {
        let told = self.wants_room || self.tells_credit;
        let busy = self.ended || self.cut || told || self.due.is_some() || self.asks || self.vain > 0;
        if busy || !self.kept.is_empty() { None } else { self.sending.idle() }
    }

    /// Restores the direction from its small form.
    pub fn resume(idle: IdleOutgoing, mutant: Mutant) -> Outflow {
        let sending = Outgoing::resume(idle);
        Outflow { kept: Kept::from(sending.added()), sending, mutant, ..Outflow::default() }
    }

    /// Returns how many bytes the user may add. The receiver's limit bounds them, and `window` bounds the
    /// bytes that are kept.
    pub fn room(&self, window: u64) -> usize {
        if self.ended {
            return 0;
        }
        let granted = if self.mutant.breaks(Rule::CreditIgnored) { u64::MAX } else { self.sending.limit() };
        let limit = granted.min(self.kept.base() + window) & !3;
        limit.saturating_sub(self.sending.added()) as usize
    }

    /// Adds as many bytes of `bytes`, and then of `long`, as there is room for, and returns how many. If all
    /// of them were added, and `tail` says so, ends the direction behind them. Returns `None` if the
    /// direction has ended, perhaps because the receiver takes no more.
    pub fn add(&mut self, bytes: &[u8], long: &Bytes, tail: Tail, window: u64) -> Option<usize> {
        let len = bytes.len() + long.len();
        debug_assert!(len.is_multiple_of(4), "the user adds a multiple of four bytes");
        if self.ended {
            return None;
        }
        let room = len.min(self.room(window)) & !3;
        // Fewer are added where this process has no memory to keep more.
        let mut added = self.kept.copy(&bytes[..room.min(bytes.len())]);
        if added == bytes.len() && room > added {
            added += self.kept.share(long.slice(..room - added));
        }
        self.sending.extend(added);
        self.wants_room = added < len;
        if !self.wants_room && tail != Tail::More {
            self.end(tail == Tail::Question);
        }
        Some(added)
    }

    /// Ends the direction. `answered` says whether the receiver sends an answer anyway, which shows that the
    /// direction has arrived.
    pub fn end(&mut self, answered: bool) {
        if !std::mem::replace(&mut self.ended, true) {
            self.sending.end(answered);
        }
    }

    /// Ends the direction because the receiver takes no more. Returns false, and does nothing, if the
    /// receiver has said so before or the direction is over.
    pub fn cut(&mut self, way: &mut Way<'_>) -> bool {
        if self.cut || self.is_over() {
            return false;
        }
        (self.cut, self.ended, self.wants_room, self.vain) = (true, true, false, 0);
        way.path.in_flight -= self.sending.in_flight;
        self.sending.cut();
        self.kept.release(self.sending.added());
        true
    }

    /// Ends the direction and counts all of it as arrived, because the receiver needs nothing more.
    pub fn finish(&mut self, way: &mut Way<'_>) {
        way.path.in_flight -= self.sending.in_flight;
        self.sending.finish();
        (self.ended, self.due, self.wants_room, self.vain) = (true, None, false, 0);
        self.kept.release(self.sending.added());
    }

    /// Acts on a CREDIT. Returns how many further bytes have arrived.
    pub fn hear(&mut self, now: Time, credit: &Credit<'_>, way: &mut Way<'_>) -> u32 {
        let (limit, added) = (self.sending.limit(), self.sending.added());
        let mut select = credit.select;
        if self.mutant.breaks(Rule::CreditBeyond) && select.extent.through > added + END_LEN {
            return 0;
        }
        // A receiver that has the end mark needs nothing more, and says so. If it does not say so, it has
        // other bytes there, which this end sent before it was restored from an earlier state.
        let beyond = select.extent.through > added && !credit.all;
        if beyond {
            select.extent.through = added;
        }
        way.path.mutant = self.mutant;
        way.path.borrowed = way.path.borrowed.max(credit.lent);
        let heard = way.path.heard(
            (now, Duration::from_nanos(way.patience)),
            &mut self.sending,
            &select,
            (way.datagram, way.window),
        );
        if self.mutant.breaks(Rule::CreditTakenBack) {
            self.sending.take_back(select.extent.limit);
        }
        // The receiver answers DATA that ask, also if it has no room for them. So datagrams arrive.
        self.vain = 0;
        let through = select.extent.through;
        if through <= self.sending.total() && through.is_multiple_of(4) {
            self.kept.release(through.min(added));
        }
        if credit.all {
            self.finish(way);
            return heard.arrived;
        }
        if beyond {
            self.sending.repeat_end();
        }
        if heard.arrived > 0 || heard.lost_since.is_some() || self.sending.limit() > limit {
            self.due = None;
            self.arm(now, way.patience);
        }
        heard.arrived
    }

    /// Starts the timer, if it is not running and a CREDIT is expected. Stops it if there is nothing to wait
    /// for.
    fn arm(&mut self, now: Time, patience: u64) {
        if self.sending.is_idle() && !self.wants_room {
            self.due = None;
        } else if self.due.is_none() && (self.sending.in_flight > 0 || self.needs_credit()) {
            self.due = Some(now.plus(patience));
            self.interval = 2 * patience;
        }
    }

    /// When the timer is due: counts the bytes under way as lost, or asks for credit.
    pub fn look(&mut self, now: Time, way: &mut Way<'_>) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        if self.sending.is_idle() && !self.wants_room {
            self.due = None;
            return;
        }
        self.due = Some(now.plus(self.interval));
        // What was sent less than a round trip ago cannot be acknowledged yet.
        let round_trip = Duration::from_nanos(way.patience / 3);
        self.interval = (2 * self.interval).min(MAX_INTERVAL_NANOS);
        let repeats = !self.mutant.breaks(Rule::DataUnrepeated)
            && way.path.timed_out(now, &mut self.sending, round_trip, way.datagram);
        self.vain = self.vain.saturating_add(repeats.into());
        // What is sent again asks for credit, too. A short datagram that asks might arrive where it does not.
        self.asks = self.needs_credit() && !repeats && !self.mutant.breaks(Rule::CreditUnasked);
    }

    /// Does not count the tries so far that have brought nothing.
    pub fn forgive(&mut self) {
        self.vain = 0;
    }

    /// Returns whether nothing arrives, perhaps because datagrams are too large (RFC 8899 section 4.3, black
    /// holes).
    pub fn is_stuck(&self) -> bool {
        self.vain >= BLACK_HOLE_TRIES
    }

    /// Returns how many tries in a row have brought nothing to the receiver.
    pub fn vain(&self) -> u8 {
        self.vain
    }

    /// Returns whether only the receiver's limit holds up the user or the bytes to send.
    fn needs_credit(&self) -> bool {
        self.sending.is_blocked() || self.wants_room && self.sending.is_idle()
    }

    /// Writes the bytes that may be sent now, as many as fit. `has_all` says whether the other direction has
    /// arrived.
    pub fn write(
        &mut self,
        now: Time,
        position: Position,
        has_all: bool,
        writer: &mut Writer<'_>,
        way: &mut Way<'_>,
    ) -> Written {
        if self.asks {
            if writer.data_room().is_none() {
                return Written::Full;
            }
            self.asks = false;
            let offset = self.sending.sent_through();
            let data = Data { offset, bytes: &[], end: false, has_all, ask: true };
            writer.data(position, data, std::iter::empty(), None);
        }
        loop {
            let room = writer.data_room().map_or(0, |room| room & !3);
            let wanted = self.sending.wanted() as usize;
            if self.holds_back(wanted, way) {
                return Written::All;
            }
            if wanted > 0 && room < wanted.min(MIN_SPLIT_BYTES) {
                return Written::Full;
            }
            let sizes = (room, way.datagram);
            let next = way.path.send_next((now, way.number), &mut self.sending, sizes, way.window);
            let Next::Range { start, end, again, ask } = next else {
                self.arm(now, way.patience);
                return if next == Next::NoRoom { Written::Waits } else { Written::All };
            };
            way.again += u64::from(again);
            self.arm(now, way.patience);
            let data = Data { offset: start, bytes: &[], end: end > self.sending.added(), has_all, ask };
            self.write_data(position, data, end, writer, way);
        }
    }

    /// Writes a DATA whose bytes end before `end`. If some of them are long, and may be inserted into the
    /// datagram when it is sent, they are not copied.
    fn write_data(
        &self,
        position: Position,
        data: Data<'_>,
        end: u64,
        writer: &mut Writer<'_>,
        way: &mut Way<'_>,
    ) {
        let pieces = self.kept.pieces(data.offset, end);
        let mut longest = (None, Bytes::new());
        if way.inserts && way.insert.is_none() {
            for (index, piece) in pieces.clone().enumerate() {
                if let Piece::Shared(bytes, range) = piece
                    && range.len() >= MIN_INSERTED_BYTES.max(longest.1.len())
                {
                    longest = (Some(index), bytes.slice(range));
                }
            }
        }
        let (apart, bytes) = longest;
        let at = writer.data(position, data, pieces.map(|piece| piece.bytes()), apart);
        if apart.is_some() {
            way.insert = Some(Insert { at, bytes });
        }
    }

    /// Returns whether to hold back bytes that do not fill a datagram until the bytes under way are
    /// acknowledged (RFC 896).
    fn holds_back(&self, wanted: usize, way: &Way<'_>) -> bool {
        !self.ended
            && !self.sending.has_lost()
            && self.sending.in_flight > 0
            && wanted < way.datagram - MAX_OVERHEAD_BYTES
    }

    /// Returns whether the user has added bytes to the direction, or the direction has ended.
    pub fn is_begun(&self) -> bool {
        self.ended || self.sending.added() > 0
    }

    /// Returns whether the direction has ended and all of it has arrived.
    pub fn is_over(&self) -> bool {
        self.ended && self.sending.is_idle()
    }

    /// Returns whether the receiver has not acknowledged all bytes that the user has added.
    pub fn awaits_credit(&self) -> bool {
        !self.sending.is_idle()
    }

    /// Returns the number of bytes under way, as far as is known.
    pub fn in_flight(&self) -> u32 {
        self.sending.in_flight
    }

    /// Returns the memory that the direction holds, in bytes.
    pub fn memory(&self) -> usize {
        self.kept.memory()
    }
}
