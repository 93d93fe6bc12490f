//! What each frame from a caller means to the server (docs/protocol.md, "Calls").

use std::borrow::Cow;
use std::net::SocketAddr;

use super::send::{Answer, Reply};
use super::table::Last;
use super::work::{More, Phase, Slot, Work};
use super::{CallKey, Incoming, Request, Server};
use crate::transfer::{self, Taken};
use crate::wire::{self, Ack, CallHead, Frame, Frames, Header, Malformed, Part, Position, Progress, Raw, Select};
use crate::{BASE_DATAGRAM, Failure, Kind, MAX_DATAGRAM, Ran, Rule, Time};

/// A datagram that is being read.
struct Visit<'s, S> {
    now: Time,
    from: &'s SocketAddr,
    len: usize,
    header: Header,
    /// The sender's conversation, once it is admitted.
    place: Option<usize>,
    /// An ACK was acted upon: one is enough, and may cost as much as there are activities.
    acknowledged: bool,
    sink: &'s mut S,
}

impl Server {
    /// Takes in a datagram.
    pub fn handle(&mut self, now: Time, from: SocketAddr, datagram: &[u8], sink: &mut impl FnMut(Request<'_>)) {
        let check = !self.config.mutant.breaks(Rule::ChecksumIgnored);
        let Ok((header, frames)) = wire::open(datagram, check) else {
            self.stats.dropped += 1;
            return;
        };
        self.stats.received += 1;
        let mut visit = Visit { now, from: &from, len: datagram.len(), header, place: None, acknowledged: false, sink };
        if let Some(place) = self.table.find(header.conversation)
            && self.table.at(place).is_at(&from)
        {
            self.table.at_mut(place).heard = self.coarse(now);
            visit.place = Some(place);
        }
        let mut frames = Frames::new(frames);
        while let Some(raw) = frames.next().transpose() {
            match raw.and_then(|raw| self.on_frame(&mut visit, raw)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Malformed) => {
                    self.stats.dropped += 1;
                    return;
                }
            }
        }
        self.enforce_slots(now);
    }

    /// Whether to go on to the next frame.
    #[inline]
    fn on_frame(&mut self, visit: &mut Visit<'_, impl FnMut(Request<'_>)>, raw: Raw<'_>) -> Result<bool, Malformed> {
        if let (Some(place), true) = (visit.place, raw.is_call()) {
            let (head, part) = raw.call()?;
            self.on_call(visit, place, &head, part);
            return Ok(true);
        }
        match raw.read()? {
            Some(frame) => Ok(self.on_other_frame(visit, frame)),
            None => Ok(true),
        }
    }

    fn on_other_frame(&mut self, visit: &mut Visit<'_, impl FnMut(Request<'_>)>, frame: Frame<'_>) -> bool {
        match frame {
            Frame::Bind(bind) => {
                // One answer for one datagram: many would be more than threefold together.
                if visit.header.conversation == 0 {
                    self.on_bind(visit.now, *visit.from, visit.len, &bind);
                }
                return false;
            }
            Frame::Ticket(ticket) => {
                if visit.place.is_none() && visit.header.conversation != 0 {
                    visit.place = self.admit(visit.now, *visit.from, visit.header, &ticket);
                    return visit.place.is_some();
                }
                return true;
            }
            _ => {}
        }
        let Some(place) = visit.place else {
            if visit.header.conversation != 0 {
                self.challenge(*visit.from, visit.header);
            }
            return false;
        };
        match frame {
            Frame::Ack(ack) if !std::mem::replace(&mut visit.acknowledged, true) => self.on_ack(place, ack),
            Frame::Select(position, select) => self.on_select(visit, place, position, &select),
            Frame::Cancel(position) => self.on_cancel(visit, place, position),
            Frame::Probe(position) => self.on_probe(visit, place, position),
            Frame::MtuProbe(size) => {
                self.on_mtu_probe(visit, place, size);
                return false;
            }
            _ => self.stats.dropped += 1,
        }
        true
    }

    #[inline]
    fn on_call(
        &mut self,
        visit: &mut Visit<'_, impl FnMut(Request<'_>)>,
        place: usize,
        head: &CallHead,
        part: Part<'_>,
    ) {
        let position = head.position;
        if !self.is_sound(position) {
            return;
        }
        if position.activity >= self.config.max_activities {
            // Permanent: the bound is a setting of this incarnation.
            let failure = Failure::new(Kind::Overloaded, Ran::No).with_detail("too many activities");
            return self.reply_failure(place, position, failure);
        }
        let last = self.last(place, position.activity);
        if position.sequence > last.sequence() {
            return self.begin(visit, place, head, part, last);
        }
        self.stats.duplicates += 1;
        if self.config.mutant.breaks(Rule::DuplicateTable) && part.fragment.is_none() {
            return self.begin(visit, place, head, part, last);
        }
        let mixed = self.config.mutant.breaks(Rule::FragmentsMixed) && part.fragment.is_some();
        if position.sequence == last.sequence() || mixed {
            self.again(visit, place, head, part);
        }
    }

    fn is_sound(&mut self, position: Position) -> bool {
        let sound = position.exchange == 0 && position.sequence > 0 && position.sequence < 1 << 63;
        self.stats.dropped += u64::from(!sound);
        sound
    }

    /// A call that is newer than every other of its activity: it is this moment that consumes its
    /// number.
    #[inline]
    fn begin(
        &mut self,
        visit: &mut Visit<'_, impl FnMut(Request<'_>)>,
        place: usize,
        head: &CallHead,
        part: Part<'_>,
        before: Last,
    ) {
        let position = head.position;
        self.supersede(visit, place, position.activity, before);
        self.set_last(place, position.activity, Last::new(position.sequence, false));
        let now = visit.now;
        if let Some(failure) = self.objection(head, part) {
            self.refuse(now, place, position, failure);
            if self.config.mutant.breaks(Rule::RefusalUnrecorded) {
                self.set_last(place, position.activity, before);
            }
            return;
        }
        let work = self.work(now, place, position.activity);
        work.position = position;
        work.since = now;
        if part.fragment.is_some() {
            return self.receive(visit, place, head, part);
        }
        work.phase = Phase::Running;
        self.run(visit, head, Cow::Borrowed(part.bytes));
    }

    /// Gives the call to the user.
    #[inline]
    fn run(&mut self, visit: &mut Visit<'_, impl FnMut(Request<'_>)>, head: &CallHead, args: Cow<'_, [u8]>) {
        self.stats.calls += 1;
        self.unfinished += 1;
        let deadline = head.meta.deadline.map(|left| visit.now + std::time::Duration::from_nanos(left));
        (visit.sink)(Request::Call(Incoming {
            key: key(visit.header.conversation, head.position),
            from: *visit.from,
            export: head.export,
            procedure: head.procedure,
            deadline,
            trace: head.meta.trace,
            args,
        }));
    }

    /// Why a call is refused before anyone looks at it.
    #[inline]
    fn objection(&self, head: &CallHead, part: Part<'_>) -> Option<Failure> {
        if self.draining {
            return Some(Failure::new(Kind::Draining, Ran::No));
        }
        if !self.is_exported(head.export) {
            return Some(Failure::new(Kind::NotExported, Ran::No));
        }
        let limit = self.config.max_arguments;
        let total = part.fragment.map_or(part.bytes.len() as u32, |f| f.total);
        if total > limit {
            let detail = format!("arguments of {total} bytes, the limit is {limit}");
            return Some(Failure::new(Kind::TooLarge, Ran::No).with_detail(detail));
        }
        None
    }

    fn is_exported(&self, export: u64) -> bool {
        self.exports.iter().any(|e| e.id == export) || self.config.mutant.breaks(Rule::ExportUnchecked)
    }

    /// A newer call takes an activity over: whatever the older one was, its caller has had its
    /// result or given it up.
    #[inline]
    fn supersede(&mut self, visit: &mut Visit<'_, impl FnMut(Request<'_>)>, place: usize, activity: u32, last: Last) {
        let Some(phase) = self.existing_work(place, activity).map(|w| w.phase) else {
            return;
        };
        match phase {
            Phase::Running => {
                let position = Position { activity, exchange: 0, sequence: last.sequence() };
                (visit.sink)(Request::Cancel(key(visit.header.conversation, position)));
            }
            Phase::Receiving | Phase::Done(_) => self.release(place, activity),
            Phase::Over => {}
        }
    }

    /// The activity's last call came again.
    #[cold]
    fn again(&mut self, visit: &mut Visit<'_, impl FnMut(Request<'_>)>, place: usize, head: &CallHead, part: Part<'_>) {
        let position = head.position;
        match self.existing_work(place, position.activity).map(|w| w.phase) {
            Some(Phase::Receiving) => self.receive(visit, place, head, part),
            Some(Phase::Running) => self.reply_state(place, position, Progress::Running),
            Some(Phase::Done(_)) => self.send_again(visit.now, place, position.activity),
            _ if self.config.mutant.breaks(Rule::ExpiredRunsAgain) => {
                let last = self.last(place, position.activity);
                self.begin(visit, place, head, part, last);
            }
            Some(Phase::Over) | None => self.reply_over(place, position),
        }
    }

    /// Takes in a fragment of the arguments.
    fn receive(
        &mut self,
        visit: &mut Visit<'_, impl FnMut(Request<'_>)>,
        place: usize,
        head: &CallHead,
        part: Part<'_>,
    ) {
        let activity = head.position.activity;
        let window = (self.config.window / (self.receiving.max(1) as u32)).max(MAX_DATAGRAM as u32);
        let total = part.fragment.map_or(part.bytes.len() as u32, |f| f.total);
        let fragment = part.fragment.unwrap_or(wire::Fragment { total, offset: 0 });
        let work = self.work(visit.now, place, activity);
        let begins = work.incoming.is_none();
        let incoming = work.incoming.get_or_insert_with(|| Box::new(transfer::Incoming::new(total)));
        let before = incoming.memory();
        let taken = incoming.take(visit.header.number, fragment, part.bytes);
        incoming.grant(window);
        let grown = incoming.memory() - before;
        let due = incoming.acknowledge_due();
        work.phase = Phase::Receiving;
        work.since = visit.now;
        work.progressed |= !begins;
        self.receiving += usize::from(begins);
        self.reassembling += grown + if begins { super::memory::ASSEMBLY } else { 0 };
        match taken {
            // It was there when the first fragment came; this one may be of another mind, or late.
            Taken::Complete if !self.is_exported(head.export) => {
                self.refuse(visit.now, place, head.position, Failure::new(Kind::NotExported, Ran::No));
            }
            Taken::Complete => {
                let args = self.assembled(place, activity);
                // While its fragments came the export may have been withdrawn.
                if let Some(failure) = self.objection(head, part) {
                    return self.refuse(visit.now, place, head.position, failure);
                }
                self.run(visit, head, Cow::Owned(args));
            }
            Taken::Contradiction => self.stats.dropped += 1,
            Taken::New | Taken::Nothing if due => self.reply_select(place, head.position),
            Taken::New | Taken::Nothing => {}
        }
        self.enforce_reassembly(visit.now);
    }

    fn on_ack(&mut self, place: usize, ack: Ack) {
        let largest = self.config.max_datagram as u32;
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        more.datagram = ack.datagram.clamp(BASE_DATAGRAM as u32, largest.max(BASE_DATAGRAM as u32));
        // Looked through no more often than its length has been earned by calls that ended.
        let activities = 1 + more.rest.len() as u64;
        if more.works > 0 && ack.low >= more.released.saturating_add(activities) {
            more.released = ack.low;
            self.release_below(place, ack.low);
        }
    }

    /// What has arrived of a result.
    fn on_select(
        &mut self,
        visit: &mut Visit<'_, impl FnMut(Request<'_>)>,
        place: usize,
        position: Position,
        select: &Select<'_>,
    ) {
        let now = visit.now;
        if position.exchange != 0 || self.last(place, position.activity).sequence() != position.sequence {
            return;
        }
        if self.existing_work(place, position.activity).is_none_or(|w| w.outgoing.is_none()) {
            // Nothing is being sent that it could speak of; but who waits in vain is to be told why.
            if select.pull {
                self.on_probe(visit, place, position);
            }
            return;
        }
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let (datagram, patience) = (more.datagram as usize, more.patience());
        let Some(work) = more.find_mut(position.activity) else {
            return;
        };
        work.since = now;
        let Some(outgoing) = &mut work.outgoing else {
            return;
        };
        let before = outgoing.in_flight();
        let heard = outgoing.heard(now, select, patience);
        let after = outgoing.in_flight();
        more.in_flight -= before - after;
        if let Some(sent) = heard.answered {
            more.round_trip.sample(now.nanos_since(sent));
        }
        more.congestion.arrived(heard.arrived, datagram);
        if let Some(since) = heard.lost_since {
            more.congestion.lost(now, since, datagram);
        }
        if heard.complete {
            return self.release(place, position.activity);
        }
        if select.pull {
            self.presume_lost(now, place);
        }
        self.queue(place, position.activity);
        self.wake_next(place);
    }

    /// The caller has given a call up. If it has not come yet, it never runs: the cancel consumes
    /// its number.
    fn on_cancel(&mut self, visit: &mut Visit<'_, impl FnMut(Request<'_>)>, place: usize, position: Position) {
        if !self.is_sound(position) || position.activity >= self.config.max_activities {
            return;
        }
        let last = self.last(place, position.activity);
        if position.sequence < last.sequence() {
            return;
        }
        let cancelled = Failure::new(Kind::Cancelled, Ran::No);
        if position.sequence > last.sequence() {
            if self.config.mutant.breaks(Rule::CancelOvertaking) {
                return self.reply_failure(place, position, cancelled);
            }
            self.supersede(visit, place, position.activity, last);
            self.set_last(place, position.activity, Last::new(position.sequence, true));
            return self.refuse(visit.now, place, position, cancelled);
        }
        match self.existing_work(place, position.activity).map(|w| w.phase) {
            Some(Phase::Receiving) => self.refuse(visit.now, place, position, cancelled),
            Some(Phase::Running) => {
                (visit.sink)(Request::Cancel(key(visit.header.conversation, position)));
                self.reply_state(place, position, Progress::Running);
            }
            Some(Phase::Done(_)) => {
                // A caller that has given up is not sent a long result.
                if self.existing_work(place, position.activity).is_some_and(|w| w.outgoing.is_some()) {
                    self.release(place, position.activity);
                    return self.reply_over(place, position);
                }
                self.send_again(visit.now, place, position.activity);
            }
            Some(Phase::Over) | None => self.reply_over(place, position),
        }
    }

    fn on_probe(&mut self, visit: &mut Visit<'_, impl FnMut(Request<'_>)>, place: usize, position: Position) {
        if !self.is_sound(position) || position.activity >= self.config.max_activities {
            return;
        }
        let last = self.last(place, position.activity).sequence();
        if position.sequence > last {
            return self.reply_state(place, position, Progress::Unknown);
        }
        if position.sequence < last {
            return;
        }
        let number = visit.header.number;
        let Some(work) = self.existing_work(place, position.activity) else {
            return self.reply_over(place, position);
        };
        match work.phase {
            Phase::Receiving => {
                work.since = visit.now;
                if let Some(incoming) = &mut work.incoming {
                    incoming.note(number);
                }
                self.reply_select(place, position);
            }
            Phase::Running => self.reply_state(place, position, Progress::Running),
            Phase::Done(_) => self.send_again(visit.now, place, position.activity),
            Phase::Over => self.reply_over(place, position),
        }
    }

    fn on_mtu_probe(&mut self, visit: &Visit<'_, impl FnMut(Request<'_>)>, place: usize, size: u32) {
        let size = size as usize;
        // Smaller ones pass anyway, and an echo must have room for itself.
        if (BASE_DATAGRAM..=visit.len.min(self.config.max_datagram)).contains(&size) {
            let client = self.table.at(place).client;
            self.reply(Reply { to: *visit.from, client, limit: size, answer: Answer::MtuEcho });
        }
    }

    /// The call is over and its result no longer held.
    fn reply_over(&mut self, place: usize, position: Position) {
        if self.last(place, position.activity).refused() {
            return self.reply_failure(
                place,
                position,
                Failure::new(Kind::Other, Ran::No).with_detail("it was refused"),
            );
        }
        self.reply_state(place, position, Progress::Gone);
    }

    #[inline]
    fn last(&self, place: usize, activity: u32) -> Last {
        let entry = self.table.at(place);
        if activity == 0 {
            return entry.last;
        }
        let slot = entry.more.as_ref().and_then(|m| m.rest.get(activity as usize - 1));
        slot.map_or(Last::default(), |s| s.last)
    }

    /// Remembers what an activity did last. Grows the conversation to that activity.
    #[inline]
    pub(super) fn set_last(&mut self, place: usize, activity: u32, last: Last) {
        match activity {
            0 => self.table.at_mut(place).last = last,
            _ => self.set_slot(place, activity, last),
        }
    }

    fn set_slot(&mut self, place: usize, activity: u32, last: Last) {
        let entry = self.table.at_mut(place);
        let more = entry.more.get_or_insert_with(|| Box::new(More::new()));
        let index = activity as usize - 1;
        if more.rest.len() <= index {
            self.slots += index + 1 - more.rest.len();
            more.rest.resize_with(index + 1, Slot::default);
        }
        more.rest[index].last = last;
    }

    #[inline]
    pub(super) fn existing_work(&mut self, place: usize, activity: u32) -> Option<&mut Work> {
        self.table.at_mut(place).more.as_mut()?.find_mut(activity)
    }

    /// The activity's work, which is made if there is none.
    #[inline]
    fn work(&mut self, now: Time, place: usize, activity: u32) -> &mut Work {
        let entry = self.table.at_mut(place);
        let id = entry.id;
        let more = entry.more.get_or_insert_with(|| Box::new(More::new()));
        let (home, works) = more.home(activity);
        if home.is_none() {
            *works += 1;
            self.works.push_back((id, activity));
            if self.sweep.is_none() {
                self.sweep = Some(now + self.config.hold);
            }
        }
        home.get_or_insert_with(|| self.spare_works.pop().unwrap_or_else(Work::boxed))
    }

    /// Refuses a call for good: its number is consumed and the refusal is held like a result.
    pub(super) fn refuse(&mut self, now: Time, place: usize, position: Position, failure: Failure) {
        self.stats.refused[usize::from(failure.kind.code()) % 24] += 1;
        self.let_go_of_assembly(place, position.activity);
        self.set_last(place, position.activity, Last::new(position.sequence, true));
        let mut payload = self.buffer();
        let status = super::send::failure_body(&failure, &mut payload);
        self.held += payload.len();
        let work = self.work(now, place, position.activity);
        work.phase = Phase::Done(status);
        work.position = position;
        work.payload = payload;
        work.since = now;
        self.send_again(now, place, position.activity);
    }
}

/// The name of a call, for the user.
pub(super) fn key(conversation: u64, position: Position) -> CallKey {
    CallKey { conversation, activity: position.activity, sequence: position.sequence }
}
