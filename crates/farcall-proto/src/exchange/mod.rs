//! The exchanges of one call, at either end. They carry signals, streams and bulk transfers while the call is
//! executed (docs/protocol.md, section 5.7).
//!
//! | file | job |
//! |---|---|
//! | `inflow.rs` | a direction, at the end that receives it |
//! | `ready.rs` | the bytes of such a direction that wait for the user |
//! | `outflow.rs` | a direction, at the end that sends it |
//! | `kept.rs` | the bytes of such a direction that have not arrived |
//! | `idle.rs` | the small form of exchanges in which nothing passes |

mod idle;
mod inflow;
mod kept;
mod outflow;
mod ready;

use bytes::Bytes;

use crate::insert::Insert;
use crate::path::Path;
use crate::transfer::INITIAL_WINDOW;
use crate::wire::{Credit, Data, Extent, Malformed, Position, Writer};
use crate::{BASE_DATAGRAM, Mutant, Rule, Time};
pub use farcall_base::Tail;
pub(crate) use idle::Idle;
use inflow::Inflow;
use outflow::{Outflow, Written};

/// The maximum number of exchanges that this end has open in a call.
const MAX_OPEN: usize = 64;

/// The maximum number of exchanges that the other end may have open in a call. It is twice [`MAX_OPEN`],
/// because this end can learn later than the other end that an exchange is over.
const MAX_OPEN_OF_PEER: usize = 2 * MAX_OPEN;

/// The maximum number of answers about exchanges that are over, waiting to be sent. Further ones are dropped.
const MAX_ANSWERS: usize = 64;

/// How many bytes must arrive in small datagrams before larger ones are tried again. It is twice as much each
/// further time, because a trial of datagrams that do not pass takes several waits.
const SMALL_BYTES: u32 = 256 << 10;
/// How many times `SMALL_BYTES` doubles at most.
const MAX_SMALL_SHIFT: u8 = 12;

/// When this many news wait for the user, and each time that the number doubles, the news of exchanges that
/// are over are dropped. An open exchange has only a few news.
pub(crate) const NEWS_SWEEP_THRESHOLD: usize = 4096;

/// The room in a datagram for a STOP, in bytes.
const STOP_ROOM: usize = 20;

/// The room in a datagram for a CREDIT with a few ranges, in bytes.
const CREDIT_ROOM: usize = 72;

/// An event in an exchange, for the user of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The user can take something: bytes, or the end of the other end's direction.
    Came,
    /// There is room again for bytes to send. Or the other end has acknowledged bytes, if the user waits for
    /// that.
    Room,
    /// The other end takes no more, for this reason. This end's direction has ended.
    Stopped(u32),
}

/// The path to the other end, and the datagram that is being written or read.
pub(crate) struct Way<'p> {
    pub path: &'p mut Path,
    /// The number of the next datagram that is written.
    pub number: u64,
    /// The largest datagram, in bytes.
    pub datagram: usize,
    /// The maximum number of bytes under way.
    pub window: u32,
    /// How long to wait for an acknowledgement before the first repetition, in nanoseconds.
    pub patience: u64,
    /// The number of fragments that were sent again.
    pub again: u64,
    /// Whether long bytes may be inserted into the datagram when it is sent, instead of being copied into it.
    pub inserts: bool,
    /// The bytes that are to be inserted.
    pub insert: Option<Insert>,
}

/// How much of a call's exchanges was written into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// Everything that may be sent now.
    All,
    /// A part. The rest needs another datagram.
    Part,
    /// A part. The congestion window has no room for the rest.
    Waits,
}

/// The exchanges of one call.
#[derive(Debug)]
pub(crate) struct Exchanges {
    /// The exchanges that are not over, in the order of their numbers.
    open: Vec<Exchange>,
    /// The lowest number of an exchange that this end opens: 1 at a client, 2 at a server.
    lowest: u32,
    /// The number of exchanges that this end has opened.
    ours: u32,
    /// The number of exchanges that the other end has opened.
    theirs: u32,
    /// The highest number of an exchange of the other end for which the user has waited; 0 if there is none.
    awaited: u32,
    /// The number of directions that this end has begun.
    pub directions: u32,
    /// The number of directions of the other end that have arrived and that the user has taken or stopped.
    pub received: u32,
    /// Whether a DATA or a STOP has come from the other end.
    pub touched: bool,
    /// Whether a DATA contradicted what was known of its direction.
    pub contradicted: bool,
    /// The exchanges in which the other end sends although they are not open here. Each is with the position
    /// up to which the other end has sent, if it is over, and with nothing if there was no room to open it.
    answers: Vec<(u32, Option<u64>)>,
    /// The index in `open` of the exchange that sends next.
    turn: usize,
    /// Whether several tries in a row have brought nothing to the other end. Datagrams may be too large for
    /// the path. It ends when enough has arrived, because the cause may have been mere losses.
    pub stuck: bool,
    /// How many times `stuck` was set.
    times_stuck: u8,
    /// Whether a try may have brought nothing to the other end since something arrived.
    in_vain: bool,
    /// While `stuck` is set: how many bytes must still arrive until it ends.
    until_larger: u32,
    /// Whether the call has its result. Then the other end opens no more exchanges.
    concluded: bool,
    /// The memory that the open exchanges hold, in bytes.
    held: usize,
    /// How many bytes the other end was lent in all directions that it sends.
    on_loan: usize,
    /// The earliest time at which [`Exchanges::look`] has something to do.
    due: Option<Time>,
    mutant: Mutant,
}

/// One exchange that is not over.
#[derive(Debug, Default)]
struct Exchange {
    number: u32,
    mutant: Mutant,
    inflow: Inflow,
    outflow: Outflow,
    /// Whether this end's direction is counted in [`Exchanges::directions`].
    begun: bool,
    /// When to send STOP again.
    stop_due: Option<Time>,
    /// The time from the last STOP to `stop_due`, in nanoseconds.
    stop_interval: u64,
}

impl Exchanges {
    /// Makes the exchanges of a call, none of them open, at the end whose lowest number is `lowest`.
    pub fn new(lowest: u32, mutant: Mutant) -> Exchanges {
        Exchanges {
            open: Vec::new(),
            lowest,
            ours: 0,
            theirs: 0,
            awaited: 0,
            directions: 0,
            received: 0,
            touched: false,
            contradicted: false,
            answers: Vec::new(),
            turn: 0,
            stuck: false,
            times_stuck: 0,
            in_vain: false,
            until_larger: 0,
            concluded: false,
            held: 0,
            on_loan: 0,
            due: None,
            mutant,
        }
    }

    /// Opens an exchange on this path, and returns its number. Returns `None` if this end has [`MAX_OPEN`]
    /// exchanges open.
    pub fn open(&mut self, path: &Path) -> Option<u32> {
        if self.open.iter().filter(|exchange| self.is_ours(exchange.number)).count() >= MAX_OPEN {
            return None;
        }
        let number = self.lowest.checked_add(self.ours.checked_mul(2)?)?;
        self.ours += 1;
        self.insert(number, path);
        Some(number)
    }

    /// Adds as many bytes of `bytes`, and then of `long`, to this end's direction as there is room for, and
    /// returns how many. `tail` says what follows the bytes. It applies only if all of them were added.
    /// Returns `None` if the exchange is not open, or if the direction has ended, perhaps because the other
    /// end takes no more.
    pub fn add(
        &mut self,
        number: u32,
        (bytes, long): (&[u8], &Bytes),
        tail: Tail,
        window: u32,
    ) -> Option<usize> {
        let (added, begins) = self.act(number, |exchange| {
            let added = exchange.outflow.add(bytes, long, tail, window.into())?;
            let begins = exchange.outflow.is_begun() && !std::mem::replace(&mut exchange.begun, true);
            Some((added, begins))
        })??;
        self.directions += u32::from(begins);
        Some(added)
    }

    /// Moves at most `most` bytes of the other end's direction to the end of `into`. Returns whether the
    /// direction has ended and the user has taken all of it. Returns `None` if the exchange is not open.
    pub fn take(&mut self, number: u32, into: &mut Vec<u8>, most: usize, window: u32) -> Option<bool> {
        self.act(number, |Exchange { inflow, .. }| {
            inflow.take(into, most);
            let window = u64::from(window).min(4 * inflow.taken()).max(INITIAL_WINDOW.into());
            inflow.grant(window);
            inflow.is_over()
        })
    }

    /// Returns whether bytes of this end's direction are unacknowledged. If so, [`News::Room`] follows when
    /// the other end next says what has arrived.
    pub fn awaits_credit(&mut self, number: u32) -> bool {
        let awaits = self.act(number, |Exchange { outflow, .. }| {
            outflow.tells_credit = outflow.awaits_credit();
            outflow.tells_credit
        });
        awaits.unwrap_or(false)
    }

    /// Returns whether the user has bytes for this end's direction that have not arrived, perhaps because
    /// there is no room for them.
    pub fn is_sending(&self, number: u32) -> bool {
        let place = self.open.binary_search_by_key(&number, |exchange| exchange.number);
        let outflow = place.ok().map(|place| &self.open[place].outflow);
        outflow.is_some_and(|outflow| outflow.wants_room || outflow.awaits_credit())
    }

    /// Notes that the user waits for an exchange that the other end has not opened yet. Returns false, and
    /// notes nothing, for any other exchange.
    pub fn note_awaited(&mut self, number: u32) -> bool {
        let unheard = !self.is_ours(number) && !self.was_opened(number);
        if unheard {
            self.awaited = self.awaited.max(number);
        }
        unheard
    }

    /// Stops the other end's direction: takes no more of it, and tells the other end the reason.
    pub fn stop(&mut self, number: u32, reason: u32) {
        self.act(number, |exchange| exchange.inflow.stop(reason));
    }

    /// Acts on a DATA that came in datagram `number`. A direction holds no more than `most` bytes. If `most`
    /// is not larger than [`BASE_DATAGRAM`], the DATA opens no exchange.
    pub fn on_data(
        &mut self,
        number: u64,
        position: Position,
        data: &Data<'_>,
        most: usize,
        way: &mut Way<'_>,
    ) -> Result<Option<News>, Malformed> {
        self.touched = true;
        self.open_theirs(position.exchange, most > BASE_DATAGRAM, way.path)?;
        let news = self.act(position.exchange, |Exchange { inflow, outflow, .. }| {
            if data.has_all {
                outflow.finish(way);
            }
            inflow.lend(way.path.may_lend());
            let brought = inflow.receive(number, data, most);
            (brought && !std::mem::replace(&mut inflow.noticed, true), inflow.contradicted)
        });
        self.contradicted |= news.is_some_and(|(_, contradicted)| contradicted);
        if news.is_none() && (self.was_opened(position.exchange) || self.concluded) {
            self.answer(position.exchange, Some(data.offset + data.bytes.len() as u64));
        } else if news.is_none() && data.ask {
            // There is no room for the exchange. The sender is to know that its datagrams arrive.
            self.answer(position.exchange, None);
        }
        Ok(news.is_some_and(|(news, _)| news).then_some(News::Came))
    }

    /// Acts on a CREDIT.
    pub fn on_credit(
        &mut self,
        now: Time,
        position: Position,
        credit: &Credit<'_>,
        way: &mut Way<'_>,
    ) -> Option<News> {
        let mut arrived = 0;
        let news = self.act(position.exchange, |Exchange { outflow, .. }| {
            arrived = outflow.hear(now, credit, way);
            let told = std::mem::take(&mut outflow.tells_credit);
            outflow.room(way.window.into()) > 0 && std::mem::take(&mut outflow.wants_room) || told
        })?;
        self.until_larger = self.until_larger.saturating_sub(arrived);
        self.stuck &= self.until_larger > 0;
        news.then_some(News::Room)
    }

    /// Acts on a STOP. If `most` is not larger than [`BASE_DATAGRAM`], the STOP opens no exchange.
    pub fn on_stop(
        &mut self,
        position: Position,
        reason: u32,
        most: usize,
        way: &mut Way<'_>,
    ) -> Result<Option<News>, Malformed> {
        self.touched = true;
        self.open_theirs(position.exchange, most > BASE_DATAGRAM, way.path)?;
        if self.mutant.breaks(Rule::StopIgnored) {
            return Ok(None);
        }
        let begins = self.act(position.exchange, |Exchange { outflow, begun, .. }| {
            outflow.cut(way).then(|| !std::mem::replace(begun, true))
        });
        let Some(begins) = begins.flatten() else { return Ok(None) };
        self.directions += u32::from(begins);
        Ok(Some(News::Stopped(reason)))
    }

    /// Writes the frames that may be sent now, as many as fit.
    pub fn write(&mut self, now: Time, call: Position, writer: &mut Writer<'_>, way: &mut Way<'_>) -> Wrote {
        while let Some(&(exchange, through)) = self.answers.last() {
            if !writer.fits(CREDIT_ROOM) {
                return Wrote::Part;
            }
            self.answers.pop();
            let position = Position { exchange, ..call };
            match through {
                Some(through) => writer.credit_all(position, through),
                None => {
                    let extent = Extent { through: 0, limit: INITIAL_WINDOW.into(), largest: 0 };
                    writer.credit(position, (false, false), extent, std::iter::empty());
                }
            }
        }
        let mut wrote = Wrote::All;
        for _ in 0..self.open.len() {
            self.turn = if self.turn < self.open.len() { self.turn } else { 0 };
            match self.open[self.turn].write(now, call, writer, way) {
                Written::All => {}
                Written::Waits => wrote = Wrote::Waits,
                // The exchange goes on in the next datagram. It asks its receiver for a CREDIT before it has
                // to wait for one.
                Written::Full => {
                    self.due = self.first_due();
                    return Wrote::Part;
                }
            }
            self.turn += 1;
        }
        // When the congestion window has room again, the next exchange is the first to use it.
        self.turn += usize::from(wrote == Wrote::Waits);
        self.settle();
        wrote
    }

    /// Returns how many tries in a row have brought nothing to the other end, in the direction that has most.
    pub fn vain(&self) -> u8 {
        // Mostly no try was in vain, and no direction needs to be looked at.
        let tries = self.open.iter().filter(|_| self.in_vain).map(|exchange| exchange.outflow.vain());
        tries.max().unwrap_or(0)
    }

    /// Does not count the tries so far that have brought nothing, because the other end was silent.
    pub fn forgive(&mut self) {
        self.open.iter_mut().for_each(|exchange| exchange.outflow.forgive());
        self.in_vain = false;
    }

    /// Counts bytes as lost that were not acknowledged in time, and has each STOP repeated that was not
    /// answered in time. [`Exchanges::write`] then writes them again.
    pub fn look(&mut self, now: Time, way: &mut Way<'_>) {
        for exchange in &mut self.open {
            exchange.outflow.look(now, way);
            if exchange.outflow.is_stuck() && !self.stuck {
                self.stuck = true;
                self.until_larger = SMALL_BYTES << self.times_stuck.min(MAX_SMALL_SHIFT);
                self.times_stuck = self.times_stuck.saturating_add(1);
            }
            if exchange.stop_due.is_some_and(|due| due <= now) {
                exchange.stop_due = None;
                let repeats = !exchange.mutant.breaks(Rule::StopOnce);
                exchange.inflow.tells_stop = repeats && exchange.inflow.stopping().is_some();
            }
        }
        self.in_vain = self.open.iter().any(|exchange| exchange.outflow.vain() > 0);
        self.settle();
    }

    /// Returns the earliest time at which [`Exchanges::look`] has something to do.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Called at a server when the call has its result. Ends the directions that the server sends, and takes
    /// no more of those that the client sends.
    pub fn conclude(&mut self, way: &mut Way<'_>) {
        self.concluded = true;
        let lowest = self.lowest;
        for exchange in &mut self.open {
            exchange.inflow.close();
            exchange.stop_due = None;
            let unended = exchange.mutant.breaks(Rule::DirectionsUnended);
            if exchange.begun || exchange.number % 2 == lowest % 2 {
                if !unended {
                    exchange.outflow.end(false);
                }
                self.directions += u32::from(!std::mem::replace(&mut exchange.begun, true));
            } else {
                exchange.outflow.finish(way);
            }
        }
        self.settle();
    }

    /// Called at a client when the call has its result. Ends the directions that the client sends, because
    /// the server needs no more of them.
    pub fn finish_own(&mut self, way: &mut Way<'_>) {
        self.open.iter_mut().for_each(|exchange| exchange.outflow.finish(way));
        self.settle();
    }

    /// Returns the directions of the other end that have arrived and were taken, if the other end is still to
    /// be told so. Each is with the position of its end.
    pub fn owed(&self, call: Position) -> impl Iterator<Item = (Position, u64)> + '_ {
        let owes = |exchange: &&Exchange| exchange.inflow.is_over() && exchange.inflow.credit_due();
        let owing = self.open.iter().filter(owes);
        owing.map(move |e| (Position { exchange: e.number, ..call }, e.inflow.extent().through))
    }

    /// Returns whether nothing more is to be sent or expected.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.answers.is_empty()
    }

    /// Returns whether anything is still to come from the other end, or is still to be acknowledged by it.
    pub fn needs_other_end(&self) -> bool {
        self.awaits_opening()
            || self.open.iter().any(|exchange| !exchange.inflow.has_all() || !exchange.outflow.is_over())
    }

    /// Returns whether the user waits for an exchange that the other end has not opened yet.
    fn awaits_opening(&self) -> bool {
        !self.was_opened(self.awaited)
    }

    /// Returns the number of directions of the other end that have arrived, whether or not the user has taken
    /// them.
    pub fn arrived(&self) -> u32 {
        let waits = |exchange: &&Exchange| exchange.inflow.has_all() && !exchange.inflow.counted;
        self.received + self.open.iter().filter(waits).count() as u32
    }

    /// Returns the number of bytes under way.
    pub fn in_flight(&self) -> u32 {
        self.open.iter().map(|exchange| exchange.outflow.in_flight()).sum()
    }

    /// Returns the memory that the exchanges hold, in bytes, including the unused capacity of the list.
    pub fn held(&self) -> usize {
        self.open.capacity() * size_of::<Exchange>() + self.held
    }

    /// Returns how many bytes the other end was lent and may not have sent otherwise.
    pub fn on_loan(&self) -> usize {
        self.on_loan
    }

    fn is_ours(&self, number: u32) -> bool {
        number % 2 == self.lowest % 2
    }

    /// Returns whether an exchange of this number was ever opened.
    fn was_opened(&self, number: u32) -> bool {
        let opened = if self.is_ours(number) { self.ours } else { self.theirs };
        number.div_ceil(2) <= opened
    }

    /// Returns whether an exchange was opened and is not over.
    pub fn is_open(&self, number: u32) -> bool {
        self.open.binary_search_by_key(&number, |exchange| exchange.number).is_ok()
    }

    /// Calls `act` with an exchange, if it is open, and removes the exchange if it is over afterwards. A
    /// datagram can have thousands of frames. So this searches the other exchanges for the earliest timer
    /// only if this exchange had the earliest one and it has changed.
    fn act<R>(&mut self, number: u32, act: impl FnOnce(&mut Exchange) -> R) -> Option<R> {
        let place = self.open.binary_search_by_key(&number, |exchange| exchange.number).ok()?;
        let exchange = &mut self.open[place];
        let (memory, due, loan) = (exchange.memory(), exchange.due(), exchange.inflow.loan());
        let done = act(exchange);
        self.received += u32::from(exchange.counts());
        let (mut memory_then, mut due_then) = (exchange.memory(), exchange.due());
        let mut loan_then = exchange.inflow.loan();
        if exchange.is_over() {
            (memory_then, due_then, loan_then) = (0, None, 0);
            self.open.remove(place);
            self.let_go();
        }
        self.held = self.held + memory_then - memory;
        self.on_loan = self.on_loan + loan_then as usize - loan as usize;
        if due != due_then {
            let was_first = due.is_some() && due == self.due;
            self.due = if was_first { self.first_due() } else { self.due.into_iter().chain(due_then).min() };
        }
        Some(done)
    }

    /// Opens the exchange of this number, and the other end's exchanges before it, if they are new. Opens
    /// none if `opens` is false, if the call has its result, or if too many would be open.
    ///
    /// # Errors
    /// When only this end may open an exchange of this number, and has not.
    fn open_theirs(&mut self, number: u32, opens: bool, path: &Path) -> Result<(), Malformed> {
        if self.was_opened(number) {
            let again = self.mutant.breaks(Rule::ExchangeReopened) && !self.is_ours(number);
            if again && !self.concluded && !self.is_open(number) {
                self.insert(number, path);
            }
            return Ok(());
        }
        if self.is_ours(number) {
            if self.mutant.breaks(Rule::NumbersUnchecked) {
                if !self.is_open(number) {
                    self.insert(number, path);
                }
                return Ok(());
            }
            return Err(Malformed);
        }
        let more = (number.div_ceil(2) - self.theirs) as usize;
        if !opens || self.concluded || more > MAX_OPEN_OF_PEER {
            return Ok(());
        }
        let open = self.open.iter().filter(|exchange| !self.is_ours(exchange.number)).count();
        if open + more <= MAX_OPEN_OF_PEER {
            let first = 3 - self.lowest + 2 * self.theirs;
            (first..=number).step_by(2).for_each(|number| self.insert(number, path));
            self.theirs = number.div_ceil(2);
        }
        Ok(())
    }

    fn insert(&mut self, number: u32, path: &Path) {
        let place = self.open.partition_point(|exchange| exchange.number < number);
        let mutant = self.mutant;
        let credit = if mutant.breaks(Rule::LoanExceeded) { 8 * INITIAL_WINDOW } else { path.borrowed };
        let (inflow, outflow) = (Inflow::new(mutant), Outflow::new(mutant, credit));
        // Most calls have one exchange.
        if self.open.is_empty() {
            self.open.reserve_exact(1);
        }
        self.open.insert(place, Exchange { number, mutant, inflow, outflow, ..Exchange::default() });
    }

    /// Queues an answer to a DATA in an exchange that is not open here: that nothing more is needed behind
    /// `through`, or that nothing has come.
    fn answer(&mut self, exchange: u32, through: Option<u64>) {
        if self.answers.len() < MAX_ANSWERS && self.answers.iter().all(|(other, _)| *other != exchange) {
            self.answers.push((exchange, through));
        }
    }

    /// Counts the directions that have arrived and were taken, removes the exchanges that are over, and
    /// brings `held` and `due` up to date.
    fn settle(&mut self) {
        let Exchanges { open, received, .. } = self;
        open.iter_mut().for_each(|exchange| *received += u32::from(exchange.counts()));
        open.retain(|exchange| !exchange.is_over());
        self.let_go();
        self.held = self.open.iter().map(Exchange::memory).sum();
        self.on_loan = self.open.iter().map(|exchange| exchange.inflow.loan() as usize).sum();
        self.due = self.first_due();
    }

    fn first_due(&self) -> Option<Time> {
        #[cfg(test)]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + self.open.len());
        self.open.iter().filter_map(Exchange::due).min()
    }

    /// Frees the memory of the list when no exchange is open.
    fn let_go(&mut self) {
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }
}

impl Exchange {
    /// Returns whether to count the other end's direction as received. Returns true once at most.
    fn counts(&mut self) -> bool {
        let uncounted = self.mutant.breaks(Rule::StopUncounted) && self.inflow.is_stopped();
        self.inflow.is_over() && !uncounted && !std::mem::replace(&mut self.inflow.counted, true)
    }

    fn memory(&self) -> usize {
        self.inflow.memory() + self.outflow.memory()
    }

    fn due(&self) -> Option<Time> {
        self.outflow.due.into_iter().chain(self.stop_due).min()
    }

    fn is_over(&self) -> bool {
        self.inflow.is_over() && !self.inflow.credit_due() && self.outflow.is_over()
    }

    fn write(&mut self, now: Time, call: Position, writer: &mut Writer<'_>, way: &mut Way<'_>) -> Written {
        let position = Position { exchange: self.number, ..call };
        if let Some(reason) = self.inflow.stopping().filter(|_| self.inflow.tells_stop) {
            if !writer.fits(STOP_ROOM) {
                return Written::Full;
            }
            writer.stop(position, reason);
            self.inflow.tells_stop = false;
            self.stop_interval = (2 * self.stop_interval).clamp(way.patience, 1_000_000_000);
            self.stop_due = Some(now.plus(self.stop_interval));
        }
        // A DATA that is written next also says whether everything has come.
        let credits = self.inflow.credit_due();
        let has_all = self.inflow.has_all() && !self.mutant.breaks(Rule::EndUnacknowledged);
        if credits {
            if !writer.fits(CREDIT_ROOM) {
                return Written::Full;
            }
            let lent = self.inflow.lends().filter(|_| !has_all);
            way.path.lent = way.path.lent.max(lent.unwrap_or(0));
            let says = (has_all, lent.is_some());
            writer.credit(position, says, self.inflow.extent(), self.inflow.beyond());
            self.inflow.acknowledged();
        }
        self.outflow.write(now, position, has_all, writer, way)
    }
}

#[cfg(test)]
mod tests;
