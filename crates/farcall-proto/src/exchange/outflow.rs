//! A direction of an exchange at its sender: bytes that are kept until they are acknowledged, and the time at
//! which they are sent again.

use std::time::Duration;

use bytes::Bytes;

use super::kept::{Kept, Piece};
use super::{Tail, Way};
use crate::server::Insert;
use crate::transfer::{IdleOutgoing, Next, Outgoing};
use crate::wire::{Credit, Data, Position, Writer};
use crate::{Mutant, Rule, Time};

/// The longest time between two tries, in nanoseconds.
const MOST_INTERVAL: u64 = 1_000_000_000;

/// After this many tries of which nothing arrived a datagram may be too large for the path.
const BLACK_HOLE: u8 = 3;

/// With less room than this for its bytes, a DATA waits for the next datagram if it could be longer.
const LEAST_ROOM: usize = 256;

/// What stands in a full datagram besides the bytes of a DATA, at most.
const HEADS: usize = 128;

/// Fewer bytes than this are copied into a datagram.
const LEAST_INSERTED: usize = 8 << 10;

/// How much of what is to be sent went into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    All,
    /// There is more, for another datagram.
    Full,
    /// There is more, for which the congestion window has no room.
    Waits,
}

/// What is to be sent of a direction.
#[derive(Debug)]
pub(super) struct Outflow {
    /// The bytes that have not arrived, as far as is known.
    kept: Kept,
    sending: Outgoing,
    /// The user has ended it.
    ended: bool,
    /// The receiver takes no more.
    cut: bool,
    /// The user had more than there was room for, and is to be told when there is room.
    pub wants_room: bool,
    /// The user is to be told when the receiver next says what has arrived.
    pub tells_credit: bool,
    /// When to send again, or to ask for credit, and the time to the try after that, in nanoseconds.
    pub due: Option<Time>,
    interval: u64,
    /// How often in a row what was under way was taken as lost because it was time to, and nothing arrived.
    vain: u8,
    /// The receiver is to be asked for credit by an empty DATA.
    asks: bool,
    mutant: Mutant,
}

impl Default for Outflow {
    fn default() -> Outflow {
        Outflow {
            kept: Kept::default(),
            sending: Outgoing::stream(),
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
    /// Nothing is sent yet.
    pub fn new(mutant: Mutant) -> Outflow {
        Outflow { mutant, ..Outflow::default() }
    }

    /// Returns what to keep of the direction, if nothing of it is under way, to be sent or to be told.
    pub fn idle(&self) -> Option<IdleOutgoing> {
        let told = self.wants_room || self.tells_credit;
        let busy = self.ended || self.cut || told || self.due.is_some() || self.asks || self.vain > 0;
        if busy || !self.kept.is_empty() { None } else { self.sending.idle() }
    }

    /// Restores the direction from its small form.
    pub fn resume(idle: IdleOutgoing, mutant: Mutant) -> Outflow {
        let sending = Outgoing::resume(idle);
        Outflow { kept: Kept::from(sending.added()), sending, ..Outflow::new(mutant) }
    }

    /// How many bytes the user may add: no more than the receiver and our own window let us keep.
    pub fn room(&self, window: u64) -> usize {
        if self.ended {
            return 0;
        }
        let granted = if self.mutant.breaks(Rule::CreditIgnored) { u64::MAX } else { self.sending.limit() };
        let limit = granted.min(self.kept.base() + window) & !3;
        limit.saturating_sub(self.sending.added()) as usize
    }

    /// Adds `bytes` and then `long`, as many of them as there is room for. Ends the direction behind them if
    /// `tail` says so and all were added. Returns how many were; `None` if the direction has ended, perhaps
    /// because the receiver takes no more.
    pub fn add(&mut self, bytes: &[u8], long: &Bytes, tail: Tail, window: u64) -> Option<usize> {
        let len = bytes.len() + long.len();
        debug_assert!(len.is_multiple_of(4), "a direction has fours of bytes");
        if self.ended {
            return None;
        }
        let added = len.min(self.room(window)) & !3;
        let copied = added.min(bytes.len());
        self.kept.copy(&bytes[..copied]);
        if added > copied {
            self.kept.share(long.slice(..added - copied));
        }
        self.sending.extend(added);
        self.wants_room = added < len;
        if !self.wants_room && tail != Tail::More {
            self.end(tail == Tail::Question);
        }
        Some(added)
    }

    /// Ends the direction; `answered` if the receiver's word will show that it came.
    pub fn end(&mut self, answered: bool) {
        if !std::mem::replace(&mut self.ended, true) {
            self.sending.end(answered);
        }
    }

    /// The receiver takes no more. Returns whether that is new.
    pub fn cut(&mut self, way: &mut Way<'_>) -> bool {
        if self.cut || self.is_over() {
            return false;
        }
        (self.cut, self.ended, self.wants_room) = (true, true, false);
        way.path.in_flight -= self.sending.in_flight;
        self.sending.cut();
        self.kept.release(self.sending.added());
        true
    }

    /// The receiver needs nothing more.
    pub fn finish(&mut self, way: &mut Way<'_>) {
        way.path.in_flight -= self.sending.in_flight;
        self.sending.finish();
        (self.ended, self.due, self.wants_room) = (true, None, false);
        self.kept.release(self.sending.added());
    }

    /// The receiver has said what it has.
    pub fn hear(&mut self, now: Time, credit: &Credit<'_>, way: &mut Way<'_>) {
        let (limit, through) = (self.sending.limit(), credit.select.extent.through);
        let heard = way.path.heard(
            (now, Duration::from_nanos(way.patience)),
            &mut self.sending,
            &credit.select,
            (way.datagram, way.window),
        );
        if self.mutant.breaks(Rule::CreditTakenBack) {
            self.sending.take_back(credit.select.extent.limit);
        }
        self.vain = if heard.arrived > 0 { 0 } else { self.vain };
        if through <= self.sending.total() && through.is_multiple_of(4) {
            self.kept.release(through.min(self.sending.added()));
        }
        if credit.all {
            return self.finish(way);
        }
        if heard.arrived > 0 || heard.lost_since.is_some() || self.sending.limit() > limit {
            self.due = None;
            self.arm(now, way.patience);
        }
    }

    /// Begins to wait for the receiver's word, if any is expected.
    fn arm(&mut self, now: Time, patience: u64) {
        if self.sending.is_idle() && !self.wants_room {
            self.due = None;
        } else if self.due.is_none() && (self.sending.in_flight > 0 || self.needs_credit()) {
            self.due = Some(now.plus(patience));
            self.interval = 2 * patience;
        }
    }

    /// Takes what is under way as lost, or asks for credit, because it is time to.
    pub fn look(&mut self, now: Time, way: &mut Way<'_>) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        if self.sending.is_idle() && !self.wants_room {
            self.due = None;
            return;
        }
        self.due = Some(now.plus(self.interval));
        self.interval = (2 * self.interval).min(MOST_INTERVAL);
        if !self.mutant.breaks(Rule::DataUnrepeated)
            && let Some(since) = way.path.overdue(now, &mut self.sending, Duration::ZERO)
        {
            way.path.congestion.lost(now, since, way.datagram);
            self.vain = self.vain.saturating_add(1);
        }
        self.asks = self.needs_credit() && !self.mutant.breaks(Rule::CreditUnasked);
    }

    /// Whether nothing arrives: perhaps because datagrams are too large (RFC 8899 section 4.3, black holes).
    pub fn is_stuck(&self) -> bool {
        self.vain >= BLACK_HOLE
    }

    /// Whether only the receiver's limit keeps the user or this direction from going on.
    fn needs_credit(&self) -> bool {
        self.sending.is_blocked() || self.wants_room && self.sending.is_idle()
    }

    /// Writes what may be sent now, as much as fits.
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
            if wanted > 0 && room < wanted.min(LEAST_ROOM) {
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
                    && range.len() >= LEAST_INSERTED.max(longest.1.len())
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

    /// Whether few bytes wait for more to share a datagram with, until those under way are acknowledged (RFC
    /// 896).
    fn holds_back(&self, wanted: usize, way: &Way<'_>) -> bool {
        !self.ended && !self.sending.has_lost() && self.sending.in_flight > 0 && wanted < way.datagram - HEADS
    }

    /// Whether the user has added anything to it, or has ended it.
    pub fn is_begun(&self) -> bool {
        self.ended || self.sending.added() > 0
    }

    /// Whether it has ended, and all has arrived.
    pub fn is_over(&self) -> bool {
        self.ended && self.sending.is_idle()
    }

    /// Whether something was sent or is to be sent that the receiver has not acknowledged.
    pub fn awaits_credit(&self) -> bool {
        !self.sending.is_idle()
    }

    /// Bytes under way, as far as is known.
    pub fn in_flight(&self) -> u32 {
        self.sending.in_flight
    }

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> usize {
        self.kept.memory()
    }
}
