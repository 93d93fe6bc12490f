//! The exchanges of one call, at either end: what passes inside the call while it is executed
//! (docs/protocol.md, section 5.7).
//!
//! | file | job |
//! |---|---|
//! | `inflow.rs` | a direction at its receiver |
//! | `ready.rs` | the bytes of such a direction that wait for the user |
//! | `outflow.rs` | a direction at its sender |
//! | `kept.rs` | the bytes of such a direction that have not arrived |
//! | `idle.rs` | what is kept while nothing passes |

mod idle;
mod inflow;
mod kept;
mod outflow;
mod ready;

use bytes::Bytes;

use crate::path::Path;
use crate::server::Insert;
use crate::transfer::INITIAL_WINDOW;
use crate::wire::{Credit, Data, Malformed, Position, Writer};
use crate::{BASE_DATAGRAM, Mutant, Rule, Time};
pub use farcall_base::Tail;
pub(crate) use idle::Idle;
use inflow::Inflow;
use outflow::{Outflow, Written};

/// Exchanges that one end may have open in a call. Its peer takes twice as many, because it learns later that
/// one is over.
const MAX_OPEN: usize = 64;
const MAX_TAKEN: usize = 2 * MAX_OPEN;

/// Answers about exchanges that are over, waiting to be sent; more are dropped.
const MAX_ANSWERS: usize = 64;

/// From this many on, news that nobody asks for are looked through, and those of exchanges that are over are
/// dropped. An exchange that is open has a few at most.
pub(crate) const MANY_NEWS: usize = 4096;

/// Room for a STOP, and for a CREDIT with a few ranges.
const STOP_ROOM: usize = 20;
const CREDIT_ROOM: usize = 72;

/// Something that the user of an exchange wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// There is something to take: bytes, or the end of the other end's direction.
    Came,
    /// There is room again for bytes to send.
    Room,
    /// The other end takes no more, for this reason. Our direction has ended.
    Stopped(u32),
}

/// How a call's exchanges come to the other end.
pub(crate) struct Way<'p> {
    pub path: &'p mut Path,
    /// The number of the datagram that is being written.
    pub number: u64,
    /// The largest datagram, in bytes.
    pub datagram: usize,
    /// How many bytes may be under way.
    pub window: u32,
    /// How long to wait for an answer, in nanoseconds.
    pub patience: u64,
    /// How often something was sent again.
    pub again: u64,
    /// Whether long bytes may be inserted into the datagram when it is sent, instead of being copied into it.
    pub inserts: bool,
    /// The bytes that are to be inserted.
    pub insert: Option<Insert>,
}

/// What was written of exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// All that may be sent now.
    All,
    /// There is more, for another datagram.
    Part,
    /// There is more, for which the congestion window has no room.
    Waits,
}

/// The exchanges of one call.
#[derive(Debug)]
pub(crate) struct Exchanges {
    /// Those that are not over, by number.
    open: Vec<Exchange>,
    /// The lowest number that this end may use: 1 at a client, 2 at a server.
    lowest: u32,
    /// How many this end and the other have opened.
    ours: u32,
    theirs: u32,
    /// The highest number of an exchange of the other end for which the user has waited; 0 if there is none.
    awaited: u32,
    /// How many directions this end has begun.
    pub directions: u32,
    /// How many directions of the other end have arrived, and were taken or stopped.
    pub received: u32,
    /// Anything has come from the other end.
    pub touched: bool,
    /// What came in a direction contradicts what came before.
    pub contradicted: bool,
    /// Exchanges that are over and that the other end sends in still, with how far it has.
    answers: Vec<(u32, u64)>,
    /// The exchange that sends next.
    turn: usize,
    /// Several tries of this end have brought nothing to the other: datagrams may be too large for the path.
    pub stuck: bool,
    /// The call has its result, so the other end opens no exchange any more.
    concluded: bool,
    /// Bytes of memory that the open ones hold.
    held: usize,
    /// The earliest time at which [`Exchanges::look`] is of use.
    due: Option<Time>,
    mutant: Mutant,
}

#[derive(Debug, Default)]
struct Exchange {
    number: u32,
    mutant: Mutant,
    inflow: Inflow,
    outflow: Outflow,
    /// The direction of this end is among those that were begun.
    begun: bool,
    /// When to send STOP again, and the time to the try after that, in nanoseconds.
    stop_due: Option<Time>,
    stop_interval: u64,
}

impl Exchanges {
    /// No exchange yet, at the end whose lowest number is `lowest`.
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
            concluded: false,
            held: 0,
            due: None,
            mutant,
        }
    }

    /// Opens an exchange, and returns its number; `None` if as many as may be are open.
    pub fn open(&mut self) -> Option<u32> {
        if self.open.iter().filter(|exchange| self.is_ours(exchange.number)).count() >= MAX_OPEN {
            return None;
        }
        let number = self.lowest.checked_add(self.ours.checked_mul(2)?)?;
        self.ours += 1;
        self.insert(number);
        Some(number)
    }

    /// Adds `bytes` and then `long` to this end's direction, as many as there is room for, and returns how
    /// many. What comes behind them is said by `tail`, if all were added. `None` if the exchange is not open,
    /// or the direction has ended, perhaps because the other end takes no more.
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

    /// Moves at most `most` bytes of the other end's direction to the end of `into`. Returns whether all has
    /// been taken, and the direction has ended. `None` if the exchange is not open.
    pub fn take(&mut self, number: u32, into: &mut Vec<u8>, most: usize, window: u32) -> Option<bool> {
        self.act(number, |Exchange { inflow, .. }| {
            inflow.take(into, most);
            let window = u64::from(window).min(4 * inflow.taken()).max(INITIAL_WINDOW.into());
            inflow.grant(window);
            inflow.is_over()
        })
    }

    /// Whether bytes of this end's direction have not been acknowledged. If so, [`News::Room`] tells when the
    /// other end next says what has arrived.
    pub fn awaits_credit(&mut self, number: u32) -> bool {
        let awaits = self.act(number, |Exchange { outflow, .. }| {
            outflow.tells_credit = outflow.awaits_credit();
            outflow.tells_credit
        });
        awaits.unwrap_or(false)
    }

    /// Notes that the user waits for an exchange of the other end, if nothing of that exchange has arrived
    /// yet. Returns whether that is so.
    pub fn note_awaited(&mut self, number: u32) -> bool {
        let unheard = !self.is_ours(number) && !self.was_opened(number);
        if unheard {
            self.awaited = self.awaited.max(number);
        }
        unheard
    }

    /// Takes no more of the other end's direction.
    pub fn stop(&mut self, number: u32, reason: u32) {
        self.act(number, |exchange| exchange.inflow.stop(reason));
    }

    /// A DATA came in datagram `number`. A direction is to hold no more than `most` bytes; if that is little,
    /// no exchange is opened.
    pub fn on_data(
        &mut self,
        number: u64,
        position: Position,
        data: &Data<'_>,
        most: usize,
        way: &mut Way<'_>,
    ) -> Result<Option<News>, Malformed> {
        self.touched = true;
        self.open_theirs(position.exchange, most > BASE_DATAGRAM)?;
        let news = self.act(position.exchange, |Exchange { inflow, outflow, .. }| {
            if data.has_all {
                outflow.finish(way);
            }
            let brought = inflow.receive(number, data, most);
            (brought && !std::mem::replace(&mut inflow.noticed, true), inflow.contradicted)
        });
        self.contradicted |= news.is_some_and(|(_, contradicted)| contradicted);
        if news.is_none() && (self.was_opened(position.exchange) || self.concluded) {
            self.answer(position.exchange, data);
        }
        Ok(news.is_some_and(|(news, _)| news).then_some(News::Came))
    }

    /// A CREDIT came.
    pub fn on_credit(
        &mut self,
        now: Time,
        position: Position,
        credit: &Credit<'_>,
        way: &mut Way<'_>,
    ) -> Option<News> {
        let news = self.act(position.exchange, |Exchange { outflow, .. }| {
            outflow.hear(now, credit, way);
            let told = std::mem::take(&mut outflow.tells_credit);
            outflow.room(way.window.into()) > 0 && std::mem::take(&mut outflow.wants_room) || told
        })?;
        news.then_some(News::Room)
    }

    /// A STOP came.
    pub fn on_stop(
        &mut self,
        position: Position,
        reason: u32,
        most: usize,
        way: &mut Way<'_>,
    ) -> Result<Option<News>, Malformed> {
        self.touched = true;
        self.open_theirs(position.exchange, most > BASE_DATAGRAM)?;
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

    /// Writes what may be sent now, as much as fits.
    pub fn write(&mut self, now: Time, call: Position, writer: &mut Writer<'_>, way: &mut Way<'_>) -> Wrote {
        while let Some(&(exchange, through)) = self.answers.last() {
            if !writer.fits(CREDIT_ROOM) {
                return Wrote::Part;
            }
            self.answers.pop();
            writer.credit_all(Position { exchange, ..call }, through);
        }
        let mut wrote = Wrote::All;
        for _ in 0..self.open.len() {
            self.turn = if self.turn < self.open.len() { self.turn } else { 0 };
            match self.open[self.turn].write(now, call, writer, way) {
                Written::All => {}
                Written::Waits => wrote = Wrote::Waits,
                // It goes on in the next datagram, and asks its receiver for an answer before it has to wait.
                Written::Full => {
                    self.due = self.first_due();
                    return Wrote::Part;
                }
            }
            self.turn += 1;
        }
        // When the congestion window has room again, the next one has it first.
        self.turn += usize::from(wrote == Wrote::Waits);
        self.settle();
        wrote
    }

    /// Takes as lost what was not acknowledged in time. [`Exchanges::write`] then writes it again.
    pub fn look(&mut self, now: Time, way: &mut Way<'_>) {
        for exchange in &mut self.open {
            exchange.outflow.look(now, way);
            self.stuck |= exchange.outflow.is_stuck();
            if exchange.stop_due.is_some_and(|due| due <= now) {
                exchange.stop_due = None;
                let repeats = !exchange.mutant.breaks(Rule::StopOnce);
                exchange.inflow.tells_stop = repeats && exchange.inflow.stopping().is_some();
            }
        }
        self.settle();
    }

    /// The earliest time at which [`Exchanges::look`] is of use.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// At a server: the call has its result. What this end sends has ended, and no more is taken.
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

    /// At a client: the call has its result. What this end sends has ended, and the server needs no more.
    pub fn finish_own(&mut self, way: &mut Way<'_>) {
        self.open.iter_mut().for_each(|exchange| exchange.outflow.finish(way));
        self.settle();
    }

    /// The directions of the other end that have come and of which it has not heard so, with how far they go.
    pub fn owed(&self, call: Position) -> impl Iterator<Item = (Position, u64)> + '_ {
        let owes = |exchange: &&Exchange| exchange.inflow.is_over() && exchange.inflow.credit_due();
        let owing = self.open.iter().filter(owes);
        owing.map(move |e| (Position { exchange: e.number, ..call }, e.inflow.extent().through))
    }

    /// Whether nothing is to be sent or expected any more.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.answers.is_empty()
    }

    /// Whether anything is still to come from the other end, or to be acknowledged by it.
    pub fn needs_other_end(&self) -> bool {
        self.awaits_opening()
            || self.open.iter().any(|exchange| !exchange.inflow.has_all() || !exchange.outflow.is_over())
    }

    /// Whether the user waits for an exchange that the other end has not opened yet.
    fn awaits_opening(&self) -> bool {
        !self.was_opened(self.awaited)
    }

    /// How many directions of the other end have arrived, whether they were taken or not.
    pub fn arrived(&self) -> u32 {
        let waits = |exchange: &&Exchange| exchange.inflow.has_all() && !exchange.inflow.counted;
        self.received + self.open.iter().filter(waits).count() as u32
    }

    /// Bytes under way.
    pub fn in_flight(&self) -> u32 {
        self.open.iter().map(|exchange| exchange.outflow.in_flight()).sum()
    }

    /// Bytes of memory that the exchanges hold, those that are not in use yet included.
    pub fn held(&self) -> usize {
        self.open.capacity() * size_of::<Exchange>() + self.held
    }

    fn is_ours(&self, number: u32) -> bool {
        number % 2 == self.lowest % 2
    }

    /// Whether an exchange of this number was ever opened.
    fn was_opened(&self, number: u32) -> bool {
        let opened = if self.is_ours(number) { self.ours } else { self.theirs };
        number.div_ceil(2) <= opened
    }

    /// Whether an exchange is not over.
    pub fn is_open(&self, number: u32) -> bool {
        self.open.binary_search_by_key(&number, |exchange| exchange.number).is_ok()
    }

    /// Acts on an exchange, if it is open, and forgets it if it is over then. A datagram can have thousands
    /// of frames, so this looks at the other exchanges only when the one that was due first no longer is.
    fn act<R>(&mut self, number: u32, act: impl FnOnce(&mut Exchange) -> R) -> Option<R> {
        let place = self.open.binary_search_by_key(&number, |exchange| exchange.number).ok()?;
        let exchange = &mut self.open[place];
        let (memory, due) = (exchange.memory(), exchange.due());
        let done = act(exchange);
        self.received += u32::from(exchange.counts());
        let (mut memory_then, mut due_then) = (exchange.memory(), exchange.due());
        if exchange.is_over() {
            (memory_then, due_then) = (0, None);
            self.open.remove(place);
            self.let_go();
        }
        self.held = self.held + memory_then - memory;
        if due != due_then {
            let was_first = due.is_some() && due == self.due;
            self.due = if was_first { self.first_due() } else { self.due.into_iter().chain(due_then).min() };
        }
        Some(done)
    }

    /// Opens an exchange of this number, and those before it, if the other end may just have done so.
    fn open_theirs(&mut self, number: u32, opens: bool) -> Result<(), Malformed> {
        if self.was_opened(number) {
            let again = self.mutant.breaks(Rule::ExchangeReopened) && !self.is_ours(number);
            if again && !self.concluded && !self.is_open(number) {
                self.insert(number);
            }
            return Ok(());
        }
        if self.is_ours(number) {
            if self.mutant.breaks(Rule::NumbersUnchecked) {
                if !self.is_open(number) {
                    self.insert(number);
                }
                return Ok(());
            }
            return Err(Malformed);
        }
        let more = (number.div_ceil(2) - self.theirs) as usize;
        if !opens || self.concluded || more > MAX_TAKEN {
            return Ok(());
        }
        let open = self.open.iter().filter(|exchange| !self.is_ours(exchange.number)).count();
        if open + more <= MAX_TAKEN {
            let first = 3 - self.lowest + 2 * self.theirs;
            (first..=number).step_by(2).for_each(|number| self.insert(number));
            self.theirs = number.div_ceil(2);
        }
        Ok(())
    }

    fn insert(&mut self, number: u32) {
        let place = self.open.partition_point(|exchange| exchange.number < number);
        let mutant = self.mutant;
        let (inflow, outflow) = (Inflow::new(mutant), Outflow::new(mutant));
        // Most calls have one exchange.
        if self.open.is_empty() {
            self.open.reserve_exact(1);
        }
        self.open.insert(place, Exchange { number, mutant, inflow, outflow, ..Exchange::default() });
    }

    /// The other end sends in an exchange that is over here: it is to hear that nothing more is needed.
    fn answer(&mut self, exchange: u32, data: &Data<'_>) {
        let through = data.offset + data.bytes.len() as u64;
        if self.answers.len() < MAX_ANSWERS && self.answers.iter().all(|(other, _)| *other != exchange) {
            self.answers.push((exchange, through));
        }
    }

    /// Counts directions that have come, and forgets exchanges that are over.
    fn settle(&mut self) {
        let Exchanges { open, received, .. } = self;
        open.iter_mut().for_each(|exchange| *received += u32::from(exchange.counts()));
        open.retain(|exchange| !exchange.is_over());
        self.let_go();
        self.held = self.open.iter().map(Exchange::memory).sum();
        self.due = self.first_due();
    }

    fn first_due(&self) -> Option<Time> {
        #[cfg(test)]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + self.open.len());
        self.open.iter().filter_map(Exchange::due).min()
    }

    /// Gives memory back when no exchange is open.
    fn let_go(&mut self) {
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }
}

impl Exchange {
    /// Whether the other end's direction has now been received.
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
        // A DATA that follows says that all has come.
        let credits = self.inflow.credit_due();
        let has_all = self.inflow.has_all() && !self.mutant.breaks(Rule::EndUnacknowledged);
        if credits {
            if !writer.fits(CREDIT_ROOM) {
                return Written::Full;
            }
            writer.credit(position, has_all, self.inflow.extent(), self.inflow.beyond());
            self.inflow.acknowledged();
        }
        self.outflow.write(now, position, has_all, writer, way)
    }
}

#[cfg(test)]
mod tests;
