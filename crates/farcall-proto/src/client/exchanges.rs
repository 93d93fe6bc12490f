//! The exchanges of calls, at the client (docs/protocol.md, section 5.7).

use bytes::Bytes;

use super::closing::ClosingNotice;
use super::inside::Inside;
use super::receive::outcome;
use super::send::Written;
use super::slots::{Slot, Stage, Want};
use super::{CallId, Conversation, Event, Outcome};
use crate::exchange::{Exchanges, NEWS_SWEEP_THRESHOLD, News, Tail, Way, Wrote};
use crate::wire::{Credit, Data, Malformed, Position, Status, Writer};
use crate::{Failure, Kind, Ran, Rule, Time};

impl Conversation {
    /// Opens an exchange in a call, and returns its number. Returns `None` if the call has ended, was given
    /// up or has its result, or if this end has 64 exchanges open in it. The server learns of the exchange
    /// when this end sends in it.
    pub fn open_exchange(&mut self, id: CallId) -> Option<u32> {
        let mutant = self.config.mutant;
        let slot = self.slots.find(id)?;
        if matches!(slot.stage, Stage::Cancelling { .. }) {
            return None;
        }
        let inside = slot.inside.get_or_insert_with(|| Inside::new(mutant));
        if inside.has_result() { None } else { inside.exchanges.open(&self.path) }
    }

    /// Sends as many of the bytes in an exchange as there is room for, and returns how many. The number of
    /// bytes is a multiple of four. `tail` says what follows them. It applies only if all of them were sent.
    /// Otherwise [`News::Room`] tells when there is room again. Returns `None` if the call has ended or was
    /// given up, if the exchange is not open, or if its direction has ended, perhaps because the server takes
    /// no more.
    pub fn send_in(&mut self, id: CallId, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        self.send_long_in(id, exchange, (bytes, &Bytes::new()), tail)
    }

    /// Sends bytes, and `long` behind them, as [`Conversation::send_in`] does. `long` is copied only into
    /// datagrams if it is long.
    pub fn send_long_in(
        &mut self,
        id: CallId,
        exchange: u32,
        (bytes, long): (&[u8], &Bytes),
        tail: Tail,
    ) -> Option<usize> {
        let window = self.widest_window();
        let inside = self.slots.find(id)?.inside.as_deref_mut()?;
        let added = inside.exchanges.add(exchange, (bytes, long), tail, window)?;
        self.want(id.activity, Want::DATA);
        Some(added)
    }

    /// Moves at most `most` bytes that have come in an exchange to the end of `into`, which allows the server
    /// to send more. Returns whether these bytes are the last ones. Taking the last bytes can end the call.
    /// Returns `None` if the call has ended or was given up, or if the exchange is over.
    pub fn take_from(
        &mut self,
        id: CallId,
        exchange: u32,
        into: &mut Vec<u8>,
        most: usize,
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Option<bool> {
        let window = self.widest_window();
        let inside = self.slots.find(id)?.inside.as_deref_mut()?;
        let before = inside.exchanges.on_loan();
        let ended = inside.exchanges.take(exchange, into, most, window)?;
        self.path.count_loan(before, inside.exchanges.on_loan());
        self.want(id.activity, Want::DATA);
        self.deliver(id.activity, sink);
        Some(ended)
    }

    /// Stops what the server sends in an exchange: takes no more of it, and tells the server the reason.
    pub fn stop_exchange(&mut self, id: CallId, exchange: u32, reason: u32, sink: &mut dyn FnMut(Event<'_>)) {
        let Some(inside) = self.slots.find(id).and_then(|slot| slot.inside.as_deref_mut()) else { return };
        let before = inside.exchanges.on_loan();
        inside.exchanges.stop(exchange, reason);
        self.path.count_loan(before, inside.exchanges.on_loan());
        self.want(id.activity, Want::DATA);
        self.deliver(id.activity, sink);
    }

    /// Returns the memory that the exchanges of all calls hold, in bytes.
    #[doc(hidden)]
    pub fn held_inside(&self) -> usize {
        let all = std::iter::successors(self.slots.first(), |activity| self.slots.after(*activity));
        let inside = all.filter_map(|activity| self.slots.at(activity).inside.as_deref());
        inside.map(|inside| inside.exchanges.held()).sum()
    }

    /// Returns whether there may be news of an exchange.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Returns the next news of an exchange: the call, the call's token, the number of the exchange, and the
    /// news. Call this after [`Conversation::receive`], until it returns `None`.
    pub fn next_news(&mut self) -> Option<(CallId, u64, u32, News)> {
        while let Some((id, exchange, news)) = self.news.pop_front() {
            // A call that was given up keeps only whether anything of its exchanges came.
            let goes_on =
                |slot: &&mut Slot| slot.inside.is_some() && !matches!(slot.stage, Stage::Cancelling { .. });
            if let Some(slot) = self.slots.find(id).filter(goes_on) {
                return Some((id, slot.call.token, exchange, news));
            }
        }
        None
    }

    /// If many news wait, drops the news of exchanges that are over, because the user may never ask for them.
    fn bound_news(&mut self) {
        let len = self.news.len();
        let unbounded = self.config.mutant.breaks(Rule::NewsUnbounded);
        if len < NEWS_SWEEP_THRESHOLD || !len.is_power_of_two() || unbounded {
            return;
        }
        let slots = &mut self.slots;
        self.news.retain(|(id, exchange, _)| {
            let inside = slots.find(*id).and_then(|slot| slot.inside.as_deref());
            inside.is_some_and(|inside| inside.exchanges.is_open(*exchange))
        });
    }

    /// Calls `act` with the exchanges of a call, if it has any, and the path to the server.
    fn inside<R>(
        &mut self,
        now: Time,
        activity: u32,
        act: impl FnOnce(&mut Exchanges, &mut Way<'_>) -> R,
    ) -> Option<R> {
        let (window, patience, number) = (self.window(now), self.patience(), self.numbers.next());
        let inside = self.slots.at_mut(activity).inside.as_deref_mut()?;
        let (path, datagram, before) = (&mut self.path, self.mtu.datagram, inside.exchanges.on_loan());
        let mut way =
            Way { path, number, datagram, window, patience, again: 0, inserts: false, insert: None };
        let done = act(&mut inside.exchanges, &mut way);
        self.stats.retransmitted += way.again;
        self.path.count_loan(before, inside.exchanges.on_loan());
        Some(done)
    }

    /// Notes that the server executes a call, because a frame of one of its exchanges came. `ended` says
    /// whether the frame ends a direction. Returns the call's activity, or `None` if the call is over or was
    /// cancelled.
    fn talking(&mut self, now: Time, position: Position, ended: bool) -> Option<u32> {
        let activity = self.current(now, Position { exchange: 0, ..position })?;
        self.on_first_answer(now, activity, true);
        let slot = self.slots.at_mut(activity);
        match slot.stage {
            Stage::Cancelling { .. } => return None,
            _ => slot.stage = Stage::Running,
        }
        if let Some(sending) = slot.sending.take() {
            self.path.in_flight -= sending.in_flight;
            self.wake_next();
        }
        self.heard_inside(now, activity, ended);
        Some(activity)
    }

    /// Acts on a DATA that came in datagram `number`.
    #[cold]
    pub(super) fn on_data(
        &mut self,
        now: Time,
        number: u64,
        position: Position,
        data: &Data<'_>,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        // A stream that fills its datagrams is a reason to try larger ones, as a long result is.
        if data.bytes.len() >= self.mtu.datagram / 2 {
            self.mtu.want(now);
        }
        let Some(activity) = self.talking(now, position, data.end) else {
            return self.answer_over(position, data);
        };
        let mutant = self.config.mutant;
        self.slots.at_mut(activity).inside.get_or_insert_with(|| Inside::new(mutant));
        let result = self.inside(now, activity, |exchanges, way| {
            exchanges.on_data(number, position, data, usize::MAX, way)
        });
        if self.slots.at(activity).inside.as_deref().is_some_and(|inside| inside.exchanges.contradicted) {
            // The server was restored (docs/protocol.md 7.5): the direction can never end.
            return self.abandon(now, activity, Kind::ResultLost, sink);
        }
        self.note_news(activity, position, result);
        self.deliver(activity, sink);
    }

    /// Acts on a CREDIT.
    #[cold]
    pub(super) fn on_credit(&mut self, now: Time, position: Position, credit: &Credit<'_>) {
        let Some(activity) = self.talking(now, position, false) else { return };
        let in_vain = self.sends_in_vain(activity);
        let news =
            self.inside(now, activity, |exchanges, way| exchanges.on_credit(now, position, credit, way));
        if in_vain {
            // What this end sends arrives after all.
            self.heard_inside(now, activity, false);
        }
        self.note_news(activity, position, news.map(Ok));
        self.wake_next();
    }

    /// Acts on a STOP.
    #[cold]
    pub(super) fn on_stop(&mut self, now: Time, position: Position, reason: u32) {
        let Some(activity) = self.talking(now, position, false) else { return };
        let mutant = self.config.mutant;
        self.slots.at_mut(activity).inside.get_or_insert_with(|| Inside::new(mutant));
        let result =
            self.inside(now, activity, |exchanges, way| exchanges.on_stop(position, reason, usize::MAX, way));
        self.note_news(activity, position, result);
        self.wake_next();
    }

    /// Queues the news for the user, if there are any. Queues the activity to send, because there may be
    /// something to answer.
    fn note_news(
        &mut self,
        activity: u32,
        position: Position,
        result: Option<Result<Option<News>, Malformed>>,
    ) {
        match result {
            None | Some(Ok(None)) => {}
            Some(Err(Malformed)) => self.reject(),
            Some(Ok(Some(news))) => {
                let id = CallId { activity, sequence: position.sequence };
                self.news.push_back((id, position.exchange, news));
                self.bound_news();
            }
        }
        self.want(activity, Want::DATA);
    }

    /// Tells the server that nothing more is needed of a direction, because its call has ended here.
    fn answer_over(&mut self, position: Position, data: &Data<'_>) {
        let about =
            |notice: &ClosingNotice| matches!(notice, ClosingNotice::Complete(of, _) if *of == position);
        if position.sequence < self.slots.next_sequence && !self.transfers.notices.iter().any(about) {
            self.answer_by(ClosingNotice::Complete(position, data.offset + data.bytes.len() as u64));
        }
    }

    /// Keeps a result until the user has taken all of the `directions` directions that come before it.
    #[cold]
    pub(super) fn hold_result(
        &mut self,
        now: Time,
        activity: u32,
        (status, bytes): (Status, Vec<u8>),
        directions: u32,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let slot = self.slots.at_mut(activity);
        if matches!(slot.stage, Stage::Cancelling { .. }) {
            let outcome = self.last_outcome(activity, status, bytes);
            return self.end(activity, outcome, sink);
        }
        slot.stage = Stage::Running;
        let mutant = self.config.mutant;
        let inside = slot.inside.get_or_insert_with(|| Inside::new(mutant));
        if inside.has_result() {
            return self.answered(now, activity);
        }
        (inside.result, inside.directions) = (Some((status, bytes)), directions);
        self.inside(now, activity, |exchanges, way| exchanges.finish_own(way));
        self.answered(now, activity);
        self.wake_next();
        self.deliver(activity, sink);
    }

    /// Ends a call whose result has come, if the user has taken all directions that come before the result.
    fn deliver(&mut self, activity: u32, sink: &mut dyn FnMut(Event<'_>)) {
        let slot = self.slots.at_mut(activity);
        let Some(inside) = slot.inside.as_deref_mut() else { return };
        let early = self.config.mutant.breaks(Rule::ResultEarly);
        if inside.exchanges.received < inside.directions && !early {
            return;
        }
        let Some((status, bytes)) = inside.result.take() else { return };
        let call = Position::of_call(activity, slot.sequence);
        if !self.config.mutant.breaks(Rule::EndUnacknowledged) {
            let owed = inside.exchanges.owed(call);
            let owed = owed.map(|(position, through)| ClosingNotice::Complete(position, through));
            self.transfers.notices.extend(owed);
        }
        let outcome = self.last_outcome(activity, status, bytes);
        self.end(activity, outcome, sink);
    }

    /// Returns the failure of a call. Replaces `Ran::No` by `Ran::Maybe` if frames of the call's exchanges
    /// came: the server began to execute such a call, whatever the failure says.
    pub(super) fn never_no(&self, activity: u32, why: Failure) -> Failure {
        let says_no = self.config.mutant.breaks(Rule::TouchedSaysNo);
        if why.ran == Ran::No && self.is_touched(activity) && !says_no {
            return Failure { ran: Ran::Maybe, ..why };
        }
        why
    }

    /// Returns the outcome of a call with exchanges.
    fn last_outcome(&self, activity: u32, status: Status, bytes: Vec<u8>) -> Outcome<'static> {
        match outcome(status, bytes.into()) {
            Outcome::Failed(why) => Outcome::Failed(self.never_no(activity, why)),
            outcome => outcome,
        }
    }

    /// Returns whether nothing more is needed of the server for this call.
    pub(super) fn is_complete(&self, activity: u32) -> bool {
        self.slots.at(activity).inside.as_deref().is_some_and(Inside::is_complete)
    }

    /// Returns whether anything of an exchange of the call came from the server.
    pub(super) fn is_touched(&self, activity: u32) -> bool {
        self.slots.at(activity).inside.as_deref().is_some_and(|inside| inside.exchanges.touched)
    }

    /// Lets the exchanges of a call begin to send, because the server has all of the call.
    pub(super) fn resume_inside(&mut self, activity: u32) {
        if self.slots.at(activity).inside.is_some() {
            self.want(activity, Want::DATA);
        }
    }

    /// Ends the exchanges of a call that is given up. Remembers only whether anything of them came.
    #[cold]
    pub(super) fn give_up_inside(&mut self, activity: u32) {
        let touched = self.is_touched(activity);
        self.end_inside(activity);
        if touched {
            let mut left = Inside::new(self.config.mutant);
            left.exchanges.touched = true;
            self.slots.at_mut(activity).inside = Some(left);
        }
    }

    /// Ends the exchanges of a call that ends.
    #[cold]
    pub(super) fn end_inside(&mut self, activity: u32) {
        let Some(inside) = self.slots.at_mut(activity).inside.take() else { return };
        if !self.config.mutant.breaks(Rule::InFlightKept) {
            self.path.in_flight -= inside.exchanges.in_flight();
        }
        self.path.count_loan(inside.exchanges.on_loan(), 0);
        self.wake_next();
    }

    /// Has bytes of a call's exchanges sent again that were not acknowledged in time.
    #[cold]
    pub(super) fn look_inside(&mut self, now: Time, activity: u32) {
        let due = self.inside(now, activity, |exchanges, way| {
            let due = exchanges.due().is_some_and(|due| due <= now);
            if due {
                exchanges.look(now, way);
            }
            (due, std::mem::take(&mut exchanges.stuck), exchanges.due())
        });
        let Some((acts, stuck, next)) = due else { return };
        if stuck {
            self.mtu.fall_back();
        }
        if acts {
            self.want(activity, Want::DATA);
        }
        self.timers.check = next.map_or(self.timers.check, |next| self.timers.check.min(next));
    }

    /// Writes what a call's exchanges have to send, but nothing before all of the call's arguments were sent.
    #[cold]
    pub(super) fn write_inside(&mut self, now: Time, activity: u32, writer: &mut Writer<'_>) -> Written {
        let slot = self.slots.at_mut(activity);
        slot.wants.take(Want::DATA);
        if slot.timing.first_sent.is_none() || slot.sending.is_some() {
            return Written::All;
        }
        let call = Position::of_call(activity, slot.sequence);
        let wrote = self.inside(now, activity, |exchanges, way| {
            (exchanges.write(now, call, writer, way), exchanges.due())
        });
        let Some((wrote, due)) = wrote else { return Written::All };
        due.into_iter().for_each(|due| self.timers.look_by(due));
        let slot = self.slots.at_mut(activity);
        match wrote {
            Wrote::All => {
                if std::mem::take(&mut slot.waiting) {
                    self.path.waiting.retain(|other| *other != activity);
                }
                self.wake_next();
                Written::All
            }
            Wrote::Waits => {
                self.path.wait(activity, &mut slot.waiting);
                Written::All
            }
            Wrote::Part => {
                slot.wants.add(Want::DATA);
                self.mtu.want(now);
                Written::Part
            }
        }
    }
}
