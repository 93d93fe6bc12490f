//! The exchanges of calls, at the server (docs/protocol.md, section 5.7).

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::hosts::Kept;
use super::inside::Inside;
use super::receive::{Visit, is_sound};
use super::work::{EXCHANGES, GIVEN_UP, Phase, TO_SEND};
use super::{CallKey, Server, Transmit, key};
use crate::exchange::{Exchanges, NEWS_SWEEP_THRESHOLD, News, Tail, Way, Wrote};
use crate::wire::{Credit, Data, Frame, Malformed, Position, Writer};
use crate::{BASE_DATAGRAM, Rule, Time};

/// The budget divided by this is a host's share, within which it is not restricted while memory is short.
const SHARE_DIVISOR: usize = 64;
/// A host's share is at least this many bytes, however small the budget is.
const SHARE_BYTES: usize = 64 << 10;
/// The budget divided by this is a host's least share. Within it, a host always has some room.
const LEAST_SHARE_DIVISOR: usize = 4096;
/// A host's least share is at least this many bytes, however small the budget is.
const LEAST_SHARE_BYTES: usize = 16 << 10;

/// The timers and the news of all exchanges of a server.
#[derive(Debug, Default)]
pub(super) struct AllInside {
    /// When to look at the exchanges of a call: the time, the conversation and the activity. An entry may be
    /// out of date.
    pub timers: BTreeSet<(Time, u64, u32)>,
    /// The news that wait for the user.
    news: VecDeque<(CallKey, u32, News)>,
}

impl Server {
    /// Opens an exchange in a call that the user executes, and returns its number. Returns `None` if the
    /// caller has given up the call, or if the server has 64 exchanges open in it. The client learns of the
    /// exchange when the server sends in it.
    pub fn open_exchange(&mut self, call: CallKey) -> Option<u32> {
        let place = self.executing(call)?;
        self.inside(place, call.activity, true, |exchanges, way| exchanges.open(way.path))?
    }

    /// Sends as many of the bytes in an exchange as there is room for, and returns how many. The number of
    /// bytes is a multiple of four. `tail` says what follows them. It applies only if all of them were sent.
    /// Otherwise [`News::Room`] tells when there is room again. Returns `None` if the caller has given up the
    /// call, if the exchange is not open, or if its direction has ended, perhaps because the client takes no
    /// more.
    pub fn send_in(&mut self, call: CallKey, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        self.send_long_in(call, exchange, (bytes, &Bytes::new()), tail)
    }

    /// Sends bytes, and `long` behind them, as [`Server::send_in`] does. `long` is not copied if it is long, and
    /// then dropped by the method that learns that it has arrived.
    pub fn send_long_in(
        &mut self,
        call: CallKey,
        exchange: u32,
        (bytes, long): (&[u8], &Bytes),
        tail: Tail,
    ) -> Option<usize> {
        let place = self.executing(call)?;
        // While memory is short, a direction to a host that holds much of it keeps to the initial window.
        let short = self.most_held(place) <= BASE_DATAGRAM;
        let window = if short { crate::transfer::INITIAL_WINDOW } else { self.window(place) };
        let added = self.inside(place, call.activity, false, |exchanges, _| {
            exchanges.add(exchange, (bytes, long), tail, window)
        });
        self.queue(place, call.activity);
        added?
    }

    /// Returns whether bytes that were sent in an exchange are unacknowledged. If so, [`News::Room`] follows
    /// when the client next says what has arrived.
    pub fn awaits_credit(&mut self, call: CallKey, exchange: u32) -> bool {
        let Some(place) = self.executing(call) else { return false };
        let work = self.existing_work(place, call.activity);
        work.and_then(|work| work.inside.as_deref_mut()).is_some_and(|inside| inside.awaits_credit(exchange))
    }

    /// Returns whether the user has bytes to send in an exchange that have not arrived: they are under way,
    /// or the client has no room for them.
    pub fn is_sending(&mut self, call: CallKey, exchange: u32) -> bool {
        let Some(place) = self.executing(call) else { return false };
        let work = self.existing_work(place, call.activity);
        work.and_then(|work| work.inside.as_deref()).is_some_and(|inside| inside.is_sending(exchange))
    }

    /// Moves at most `most` bytes that have come in an exchange to the end of `into`, which allows the client
    /// to send more. Returns whether these bytes are the last ones. Returns `None` if the caller has given up
    /// the call, or if the exchange is over.
    pub fn take_from(
        &mut self,
        call: CallKey,
        exchange: u32,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Option<bool> {
        let place = self.executing(call)?;
        let window = self.window(place);
        let ended = self.inside(place, call.activity, true, |exchanges, _| {
            // A user knows the exchanges of a call's arguments before anything arrives in them.
            if exchanges.note_awaited(exchange) {
                Some(false)
            } else {
                exchanges.take(exchange, into, most, window)
            }
        });
        self.queue(place, call.activity);
        ended?
    }

    /// Stops what the client sends in an exchange: takes no more of it, and tells the client the reason.
    pub fn stop_exchange(&mut self, call: CallKey, exchange: u32, reason: u32) {
        let Some(place) = self.executing(call) else { return };
        self.inside(place, call.activity, false, |exchanges, _| exchanges.stop(exchange, reason));
        self.queue(place, call.activity);
    }

    /// Returns whether there may be news of an exchange.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.all_inside.news.is_empty()
    }

    /// Returns the next news of an exchange of a call that the user executes: the call, the number of the
    /// exchange, and the news. Call this after [`Server::receive`], until it returns `None`.
    pub fn next_news(&mut self) -> Option<(CallKey, u32, News)> {
        while let Some((call, exchange, news)) = self.all_inside.news.pop_front() {
            if self.executing(call).is_some() {
                return Some((call, exchange, news));
            }
        }
        None
    }

    /// Returns the number of news that wait for the user.
    #[doc(hidden)]
    pub fn news(&self) -> usize {
        self.all_inside.news.len()
    }

    /// If many news wait, drops the news of exchanges that are over, because the user may never ask for them.
    fn bound_news(&mut self) {
        let len = self.all_inside.news.len();
        let unbounded = self.config.mutant.breaks(Rule::NewsUnbounded);
        if len < NEWS_SWEEP_THRESHOLD || !len.is_power_of_two() || unbounded {
            return;
        }
        let mut news = std::mem::take(&mut self.all_inside.news);
        news.retain(|(call, exchange, _)| {
            let work = self.executing(*call).and_then(|place| self.table.at(place).work(call.activity));
            let inside = work.and_then(|work| work.inside.as_ref());
            inside.is_some_and(|inside| inside.is_open(*exchange))
        });
        self.all_inside.news = news;
    }

    /// Returns the place of a call's conversation, if the user executes the call and the caller has not given
    /// it up.
    pub(super) fn executing(&self, call: CallKey) -> Option<usize> {
        let place = self.table.find(call.conversation)?;
        let work = self.table.at(place).work(call.activity)?;
        let executes = work.phase == Phase::Running && work.position.sequence == call.sequence;
        (executes && work.marks & GIVEN_UP == 0).then_some(place)
    }

    /// Calls `act` with the exchanges of an activity's call and the path to the client. If the call has no
    /// exchanges, makes them if `makes`, and otherwise does nothing.
    fn inside<R>(
        &mut self,
        place: usize,
        activity: u32,
        makes: bool,
        act: impl FnOnce(&mut Exchanges, &mut Way<'_>) -> R,
    ) -> Option<R> {
        let (window, target) = (self.window(place), self.table.at(place).target());
        let number = self.seals.next(target);
        let entry = self.table.at_mut(place);
        let (conversation, more) = (entry.id, entry.more.as_deref_mut()?);
        let (datagram, patience) = (more.datagram as usize, more.data_patience());
        let work = more.activities.work_mut(activity)?;
        if work.inside.is_none() && makes {
            work.inside = Some(Inside::new(self.config.mutant));
            work.marks |= EXCHANGES;
        }
        let inside = work.inside.as_deref_mut()?;
        let mut way = Way {
            path: &mut more.path,
            number,
            datagram,
            window,
            patience,
            again: 0,
            inserts: false,
            insert: None,
        };
        let active = inside.activate(self.config.mutant);
        let done = act(&mut active.exchanges, &mut way);
        self.stats.retransmitted += way.again;
        let due = active.exchanges.due();
        let former = std::mem::replace(&mut active.timer, due);
        let (counted, memory) = inside.rest();
        more.recount(&mut self.hosts, Kept::Exchanges, counted, memory);
        self.move_timer(former, due, (conversation, activity));
        Some(done)
    }

    /// Replaces the time at which to look at a call's exchanges.
    fn move_timer(&mut self, former: Option<Time>, due: Option<Time>, (conversation, activity): (u64, u32)) {
        if former == due {
            return;
        }
        let timers = &mut self.all_inside.timers;
        if let Some(former) = former {
            timers.remove(&(former, conversation, activity));
        }
        timers.extend(due.map(|due| (due, conversation, activity)));
        self.set_timer();
    }

    /// Returns how many bytes a direction that a client sends may hold. While memory is short, that is one
    /// small datagram for the host that pays, for each host that holds more than its share, and for each
    /// network that does. Beyond twice the budget, it is 0 for each host that holds more than its least
    /// share, and beyond three times the budget for each network that holds more than its share.
    fn most_held(&mut self, place: usize) -> usize {
        let (budget, total) = (self.config.held_budget, self.hosts.total(Kept::Exchanges));
        let is_short = total > budget && !self.config.mutant.breaks(Rule::ExchangesUnbounded);
        let Some(more) = self.table.at(place).more.as_ref().filter(|_| is_short) else {
            return usize::MAX;
        };
        let kept = self.hosts.kept(more.host, Kept::Exchanges);
        let is_network_over = self.hosts.kept_in_network(more.host, Kept::Exchanges) > budget + budget / 2;
        if total > 2 * budget && kept > (budget / LEAST_SHARE_DIVISOR).max(LEAST_SHARE_BYTES)
            || total > 3 * budget && is_network_over
        {
            return 0;
        }
        let heavy = kept > (budget / SHARE_DIVISOR).max(SHARE_BYTES)
            || is_network_over
            || self.hosts.heaviest(Kept::Exchanges, None) == Some(more.host);
        if heavy { BASE_DATAGRAM } else { usize::MAX }
    }

    /// Acts on a frame of an exchange.
    #[cold]
    pub(super) fn on_exchange(
        &mut self,
        visit: &mut Visit<'_>,
        place: usize,
        position: Position,
        frame: &Frame<'_>,
    ) {
        let call = Position { exchange: 0, ..position };
        let any = self.config.mutant.breaks(Rule::DataOfOtherCall);
        if !is_sound(call) || !self.is_last(place, call) && !any {
            return;
        }
        let Some(work) = self.existing_work(place, call.activity) else {
            return self.on_late_data(visit, place, call, frame);
        };
        let executes = work.phase == Phase::Running && work.marks & GIVEN_UP == 0;
        if work.phase == Phase::Receiving {
            return;
        }
        if work.inside.is_none() && !executes {
            return self.on_late_data(visit, place, call, frame);
        }
        (work.since, work.spoken) = (visit.now, visit.now);
        let result = match frame {
            Frame::Data(_, data) => self.take_data(visit, place, position, data),
            Frame::Credit(_, credit) => self.take_credit(visit.now, place, position, credit),
            Frame::Stop(_, reason) => self.take_stop(place, position, *reason),
            _ => return,
        };
        match result {
            Ok(None) => {}
            Err(Malformed) => self.stats.dropped += 1,
            Ok(Some(news)) => {
                let call = key(visit.header.conversation, position);
                self.all_inside.news.push_back((call, position.exchange, news));
                self.bound_news();
            }
        }
        self.forget_if_over(place, position.activity);
        self.queue(place, position.activity);
        self.wake_next(place);
    }

    /// Acts on a frame of a call that is over or was given up. A client that still sends in the call is told
    /// how the call ended, as if it had sent a PROBE.
    fn on_late_data(&mut self, visit: &mut Visit<'_>, place: usize, call: Position, frame: &Frame<'_>) {
        if matches!(frame, Frame::Data(..) | Frame::Stop(..)) {
            self.on_probe(visit, place, call);
        }
    }

    fn take_data(
        &mut self,
        visit: &Visit<'_>,
        place: usize,
        position: Position,
        data: &Data<'_>,
    ) -> Result<Option<News>, Malformed> {
        let (number, most) = (visit.header.number, self.most_held(place));
        let act = |exchanges: &mut Exchanges, way: &mut Way<'_>| {
            exchanges.on_data(number, position, data, most, way)
        };
        self.inside(place, position.activity, true, act).unwrap_or(Ok(None))
    }

    fn take_credit(
        &mut self,
        now: Time,
        place: usize,
        position: Position,
        credit: &Credit<'_>,
    ) -> Result<Option<News>, Malformed> {
        let act =
            |exchanges: &mut Exchanges, way: &mut Way<'_>| exchanges.on_credit(now, position, credit, way);
        Ok(self.inside(place, position.activity, false, act).flatten())
    }

    fn take_stop(
        &mut self,
        place: usize,
        position: Position,
        reason: u32,
    ) -> Result<Option<News>, Malformed> {
        let most = self.most_held(place);
        let act =
            |exchanges: &mut Exchanges, way: &mut Way<'_>| exchanges.on_stop(position, reason, most, way);
        self.inside(place, position.activity, true, act).unwrap_or(Ok(None))
    }

    /// Drops the exchanges of a call that is over and whose result is not held, if all of them have ended.
    fn forget_if_over(&mut self, place: usize, activity: u32) {
        let over = self.existing_work(place, activity).is_some_and(|work| {
            work.phase == Phase::Over && work.inside.as_ref().is_some_and(|inside| inside.is_empty())
        });
        if over {
            self.end_inside(place, activity);
        }
    }

    /// Ends the exchanges of a call, if it has any, because the call was given up or its caller has the
    /// result.
    #[cold]
    pub(super) fn end_inside(&mut self, place: usize, activity: u32) {
        let entry = self.table.at_mut(place);
        let (conversation, Some(more)) = (entry.id, entry.more.as_deref_mut()) else { return };
        let Some(inside) = more.activities.work_mut(activity).and_then(|work| work.inside.take()) else {
            return;
        };
        more.path.in_flight -= inside.in_flight();
        more.recount(&mut self.hosts, Kept::Exchanges, inside.counted(), 0);
        self.move_timer(inside.timer(), None, (conversation, activity));
        self.wake_next(place);
    }

    /// Releases a result that has arrived at the caller before all directions that come before it. Keeps the
    /// exchanges.
    pub(super) fn release_result(&mut self, place: usize, activity: u32) {
        let inside = self.existing_work(place, activity).and_then(|work| work.inside.take());
        self.release(place, activity);
        if let Some(work) = self.existing_work(place, activity) {
            work.inside = inside;
        }
        self.forget_if_over(place, activity);
    }

    /// Ends the directions that the server sends in a call, because the call has its outcome, which is sent
    /// after them. Returns false, and does nothing, if the call has no exchanges or this was done before.
    pub(super) fn conclude_inside(&mut self, place: usize, activity: u32) -> bool {
        let Some(work) = self.existing_work(place, activity).filter(|work| work.marks & EXCHANGES != 0)
        else {
            return false;
        };
        work.marks &= !EXCHANGES;
        work.marks |= if work.inside.is_some() { TO_SEND } else { 0 };
        self.inside(place, activity, false, |exchanges, way| exchanges.conclude(way));
        true
    }

    /// Writes what the exchanges of a call have to send, and the call's result if it is due and fits.
    #[cold]
    pub(super) fn write_inside(
        &mut self,
        now: Time,
        place: usize,
        activity: u32,
        out: &mut [u8],
    ) -> Option<Transmit> {
        self.bound_round_trip(now, place);
        let entry = self.table.at(place);
        let (id, to, target) = (entry.id, entry.address(), entry.target());
        let work = entry.work(activity)?;
        // The client says which datagram size passes, but does not know which of the server's datagrams are
        // lost.
        let stuck = work.inside.as_ref().is_some_and(|inside| inside.is_stuck());
        let datagram = if stuck { BASE_DATAGRAM } else { entry.datagram() };
        let mut writer = Writer::new(out, datagram, target);
        let begins = writer.len();
        let call = work.position;
        let (wrote, insert) = self.inside(place, activity, false, |exchanges, way| {
            way.inserts = target.scheme.closes_around();
            (exchanges.write(now, call, &mut writer, way), way.insert.take())
        })?;
        let more = self.table.at_mut(place).more.as_deref_mut()?;
        let work = more.activities.work_mut(activity)?;
        if wrote == Wrote::Waits {
            more.path.wait(activity, &mut work.waiting);
        }
        let due = work.marks & TO_SEND != 0 && work.outgoing.is_none();
        let sent = due && work.write_last(&mut writer);
        work.marks &= if sent || work.outgoing.is_some() { !TO_SEND } else { !0 };
        if writer.len() == begins {
            if due {
                self.begin_fragments(now, place, activity);
                self.enforce_held(now, (id, activity));
            }
            return None;
        }
        if wrote == Wrote::Part || due && !sent || work.outgoing.is_some() {
            self.queue(place, activity);
        }
        self.forget_if_over(place, activity);
        Some(self.count_sent(to, writer, insert))
    }

    /// Has bytes sent again that were not acknowledged in time.
    #[cold]
    pub(super) fn look_inside(&mut self, now: Time) {
        while let Some(&(due, conversation, activity)) = self.all_inside.timers.first()
            && due <= now
        {
            self.all_inside.timers.pop_first();
            self.set_timer();
            let Some(place) = self.table.find(conversation) else { continue };
            // The entry was removed. So the timer must be set again, even if it is to have the same time.
            if let Some(inside) = self.existing_work(place, activity).and_then(|work| work.inside.as_mut()) {
                inside.forget_timer(due);
            }
            self.inside(place, activity, false, |exchanges, way| exchanges.look(now, way));
            self.queue(place, activity);
        }
    }

    /// Returns whether a call has exchanges that are not over.
    pub(super) fn has_inside(&mut self, place: usize, activity: u32) -> bool {
        self.existing_work(place, activity).is_some_and(|work| work.inside.is_some())
    }
}
