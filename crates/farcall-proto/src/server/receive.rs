//! Acts on each frame that a client sends (docs/protocol.md, "Calls").
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other.

use std::borrow::Cow;
use std::net::SocketAddr;

use super::hosts::{Kept, counted_result};
use super::memory::MAX_IDLE_BUFFER_BYTES;
use super::send::{Answer, Reply};
use super::work::{GIVEN_UP, Last, Phase, Work};
use super::{Incoming, Request, Server, key};
use crate::config::{PATIENCE, silence_of};
use crate::same_user::MAX_USER_SECRETS;
use crate::scheme::Scheme;
use crate::secure::Opened;
use crate::wire::{
    self, Ack, CallHead, Frame, Frames, Header, Malformed, Part, Position, Progress, Select, UserProof,
};
use crate::{ACCESSES, BASE_DATAGRAM, Failure, Kind, READINGS, Ran, Rule, Time};

/// The short answers to a datagram have at most this many times its bytes.
const ANSWER_FACTOR: usize = 3;
/// The maximum number of bytes of results that are sent again because of one datagram.
const MAX_RESENT_BYTES: usize = 1 << 20;

/// A datagram that is being read.
pub(super) struct Visit<'s> {
    pub(super) now: Time,
    pub(super) from: &'s SocketAddr,
    len: usize,
    pub(super) header: Header,
    /// The place of the sender's conversation in the table, once the conversation is admitted.
    place: Option<usize>,
    /// Whether an ACK of this datagram was acted on. Further ones are ignored, because an ACK can cost a look
    /// at many activities.
    acknowledged: bool,
    /// Whether the call that the datagram brings was executed before.
    again: bool,
    /// The proofs in this datagram that its sender is a process of the server's user.
    proofs: Vec<UserProof>,
    sink: &'s mut dyn FnMut(Request<'_>),
}

impl Server {
    /// Handles a datagram in a scheme without secrets, and gives the requests in it to `sink`. If it begins a
    /// handshake, [`Server::next_handshake`] then returns that.
    #[inline]
    pub fn receive(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut dyn FnMut(Request<'_>),
    ) {
        if let Some(incoming) = self.receive_call(now, || now, &from, (datagram, None), sink) {
            sink(Request::Call(incoming));
        }
    }

    /// Handles a datagram as [`Server::receive_sealed`] does. If it begins a handshake, computes that at
    /// once.
    pub fn receive_any(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
        sink: &mut dyn FnMut(Request<'_>),
    ) {
        self.receive_sealed(now, from, datagram, sink);
        #[cfg(feature = "secure")]
        self.compute_handshakes(now);
    }

    /// Handles a datagram as [`Server::receive`] does. If it is sealed, opens it in place first.
    pub fn receive_sealed(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
        sink: &mut dyn FnMut(Request<'_>),
    ) {
        let mut opened = None;
        #[cfg(feature = "secure")]
        if crate::secure::is_sealed(datagram) {
            let Some(cipher) = self.cipher(now, &from, datagram) else { return };
            opened = crate::secure::open(&cipher, datagram);
            if opened.is_none() {
                return self.note_unopened(now, datagram);
            }
        }
        if let Some(incoming) = self.receive_call(now, || now, &from, (&*datagram, opened.take()), sink) {
            sink(Request::Call(incoming));
        }
    }

    /// Returns whether [`Server::is_first`] would return true. Notes nothing.
    pub(super) fn would_be_first(&self, header: Header) -> bool {
        #[cfg(feature = "secure")]
        return self.config.mutant.breaks(Rule::ReplayIgnored)
            || self.seals.secrets.is_new(header.conversation, header.number);
        #[cfg(not(feature = "secure"))]
        {
            let _ = header;
            true
        }
    }

    /// Returns whether an opened datagram comes for the first time, as far as this is known, and notes that
    /// it has come.
    #[inline(always)]
    pub(super) fn is_first(&mut self, now: Time, header: Header, opened: Opened) -> bool {
        #[cfg(feature = "secure")]
        return {
            let (now, mutant) = (self.coarse(now), self.config.mutant);
            self.seals.secrets.take(now, header.conversation, (header.number, opened), mutant)
        };
        #[cfg(not(feature = "secure"))]
        {
            let _ = (now, header, opened.phase);
            true
        }
    }

    /// Handles a datagram as [`Server::receive`] does, but has a fast path: if the datagram holds just one
    /// whole call, of an activity whose last call is over, returns that call with its arguments still in the
    /// datagram. `sink` gets nothing then.
    ///
    /// A sealed datagram must have been opened.
    ///
    /// `now` may be some milliseconds old. The clock is read if the fast path is not taken.
    #[inline(always)]
    pub fn receive_call<'d>(
        &mut self,
        now: Time,
        clock: impl FnOnce() -> Time,
        from: &SocketAddr,
        (datagram, opened): (&'d [u8], Option<Opened>),
        sink: &mut dyn FnMut(Request<'_>),
    ) -> Option<Incoming<'d>> {
        let check = !self.config.mutant.breaks(Rule::ChecksumIgnored);
        let Ok((header, frames)) = wire::open(datagram, opened, check) else { return self.reject() };
        if header.scheme == Scheme::Local && !from.ip().is_loopback() {
            return self.reject();
        }
        if let Some(opened) = opened
            && !self.is_first(now, header, opened)
        {
            return self.reject();
        }
        self.stats.received += 1;
        let anywhere = self.config.mutant.breaks(Rule::AddressUnchecked);
        let place = self.table.find(header.conversation);
        let place = place.filter(|place| anywhere || self.table.at(*place).is_at(from));
        let place = place.filter(|place| {
            self.config.mutant.breaks(Rule::SchemeUnchecked) || self.table.at(*place).agrees(header.scheme)
        });
        if let Some(place) = place {
            let coarse = self.coarse(now);
            let entry = self.table.at_mut(place);
            entry.hear(coarse, header.scheme);
            if let Some((head, args)) = CallHead::only(frames)
                && is_sound(head.position)
                && head.position.sequence > entry.last(head.position.activity).sequence()
                && self.accepts(&head, args.len())
                && self.take_over(now, place, &head)
            {
                return Some(self.incoming(now, header, &head, Cow::Borrowed(args)));
            }
        }
        self.receive_frames(clock(), from, datagram.len(), (header, place), frames, sink);
        None
    }

    /// Handles the frames of a datagram of `len` bytes.
    #[inline(never)]
    fn receive_frames(
        &mut self,
        now: Time,
        from: &SocketAddr,
        len: usize,
        (header, place): (Header, Option<usize>),
        frames: &[u8],
        sink: &mut dyn FnMut(Request<'_>),
    ) {
        self.expect_answers(len);
        let (acknowledged, again, proofs) = (false, false, Vec::new());
        let mut visit = Visit { now, from, len, header, place, acknowledged, again, proofs, sink };
        if self.receive_each(&mut visit, Frames::new(frames)).is_err() {
            self.stats.dropped += 1;
        }
        self.answers.inquiries.end(from);
        self.enforce_slots(now);
    }

    /// Sets the bounds for answers to the next datagram, which has `len` bytes.
    #[inline(always)]
    pub(super) fn expect_answers(&mut self, len: usize) {
        (self.answers.answer_bytes, self.answers.resend_bytes) = (ANSWER_FACTOR * len, MAX_RESENT_BYTES);
    }

    #[cold]
    pub(super) fn reject<T>(&mut self) -> Option<T> {
        self.stats.dropped += 1;
        None
    }

    /// Reads the frames one after another and acts on each, until one after which the rest of the datagram is
    /// to be ignored.
    #[inline(always)]
    fn receive_each(&mut self, visit: &mut Visit<'_>, mut frames: Frames<'_>) -> Result<(), Malformed> {
        let mut goes_on = true;
        while goes_on && let Some(raw) = frames.next()? {
            // Most frames are calls. A call is not read into a `Frame`, because a `Frame` is as large as its
            // largest variant and would be copied.
            goes_on = if let Some(call) = raw.call() {
                let (head, part) = call?;
                let Some(place) = self.place_of(visit) else { break };
                self.on_call(visit, place, &head, part);
                !self.answers.inquiries.are_spent()
            } else {
                raw.read()?.is_none_or(|frame| self.on_frame(visit, frame))
            };
        }
        Ok(())
    }

    /// Returns the place of the datagram's conversation. If the conversation is not known, challenges its
    /// client to show a ticket.
    #[inline]
    fn place_of(&mut self, visit: &Visit<'_>) -> Option<usize> {
        if visit.place.is_none() && visit.header.conversation != 0 {
            self.challenge(*visit.from, visit.header);
        }
        visit.place
    }

    /// Acts on a frame that is not a CALL. Returns whether to go on to the next frame.
    fn on_frame(&mut self, visit: &mut Visit<'_>, frame: Frame<'_>) -> bool {
        match frame {
            Frame::Bind(bind) => {
                // Only one answer to a datagram: several together could have more than three times its bytes.
                if visit.header.conversation == 0 {
                    let asker = (*visit.from, visit.len);
                    let asked = (&bind, &*visit.proofs);
                    if let Some(reply) = self.answer_bind(visit.now, asker, asked, None) {
                        self.reply(reply);
                    }
                }
                return false;
            }
            Frame::UserProof(proof) => {
                if self.users.is_some() && visit.proofs.len() < MAX_USER_SECRETS {
                    visit.proofs.push(proof);
                }
                return true;
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
        let Some(place) = self.place_of(visit) else { return false };
        match frame {
            Frame::Ack(ack) if !std::mem::replace(&mut visit.acknowledged, true) => self.on_ack(place, ack),
            Frame::Select(position, select) => self.on_select(visit, place, position, &select),
            Frame::Cancel(position) => self.on_cancel(visit, place, position),
            Frame::Probe { position, detached } => {
                if detached && self.is_last(place, position) {
                    self.note_detached(place, position.activity);
                }
                self.on_probe(visit, place, position);
            }
            Frame::Post(export, bytes) => {
                if !self.draining.all && self.is_exported(export) {
                    let Header { conversation, scheme, .. } = visit.header;
                    (visit.sink)(Request::Post(export, bytes, self.principal(conversation, scheme)));
                }
            }
            Frame::MtuProbe(size) => {
                self.on_mtu_probe(visit, place, size);
                return false;
            }
            Frame::Data(position, _) | Frame::Credit(position, _) | Frame::Stop(position, _) => {
                self.on_exchange(visit, place, position, &frame);
            }
            _ => self.stats.dropped += 1,
        }
        // Once the host has sent so many inquiries that one is ignored, the rest of the datagram is not read.
        !self.answers.inquiries.are_spent()
    }

    fn on_call(&mut self, visit: &mut Visit<'_>, place: usize, head: &CallHead, part: Part<'_>) {
        let position = head.position;
        if !self.is_sound(position) {
            return;
        }
        if position.activity >= self.config.max_activities {
            // Repeating the call is of no use: the bound stays the same as long as the server runs.
            let failure = Failure::new(Kind::Overloaded, Ran::No).with_detail("too many activities");
            return self.reply_failure(place, position, failure);
        }
        let last = self.table.at(place).last(position.activity);
        if last == Last::default() && self.refuses_activity(place, position) {
            let failure = Failure::new(Kind::Overloaded, Ran::No).with_detail("too many activities of all");
            return self.reply_failure(place, position, failure);
        }
        if position.sequence > last.sequence() {
            return self.on_new_call(visit, place, head, part);
        }
        self.stats.duplicates += 1;
        if self.config.mutant.breaks(Rule::DuplicateTable) && part.fragment.is_none() {
            return self.on_new_call(visit, place, head, part);
        }
        let mixed = self.config.mutant.breaks(Rule::FragmentsMixed) && part.fragment.is_some();
        if position.sequence == last.sequence() || mixed {
            self.again(visit, place, head, part);
        }
    }

    /// Returns whether `position` is that of its activity's last call.
    pub(super) fn is_last(&self, place: usize, position: Position) -> bool {
        position.exchange == 0 && self.table.at(place).last(position.activity).sequence() == position.sequence
    }

    fn is_sound(&mut self, position: Position) -> bool {
        let sound = is_sound(position);
        self.stats.dropped += u64::from(!sound);
        sound
    }

    /// Handles the first frame of a call that the server has not seen before.
    fn on_new_call(&mut self, visit: &mut Visit<'_>, place: usize, head: &CallHead, part: Part<'_>) {
        if !self.accepts(head, part.total()) {
            let before = self.table.at(place).last(head.position.activity);
            self.supersede(visit, place, head.position.activity);
            let why = self.objection(head, part.total());
            self.note_refused(visit.now, head);
            self.refuse(visit.now, place, head.position, why);
            if self.config.mutant.breaks(Rule::RefusalUnrecorded) {
                self.set_last(place, head.position.activity, before);
            }
            return;
        }
        self.begin(visit, place, head);
        self.note_meta(visit.now, place, head);
        match part.fragment {
            Some(_) => self.receive_arguments(visit, place, head, part),
            None => self.run(visit, head, Cow::Borrowed(part.bytes)),
        }
    }

    /// Accepts a call that is newer than every other of its activity. From now on the call's number is used
    /// up.
    fn begin(&mut self, visit: &mut Visit<'_>, place: usize, head: &CallHead) {
        if self.take_over(visit.now, place, head) {
            return;
        }
        let position = head.position;
        self.set_last(place, position.activity, Last::new(position.sequence, false));
        self.supersede(visit, place, position.activity);
        let mutant = self.config.mutant;
        let work = self.work(visit.now, place, position.activity);
        let ran = work.phase == Phase::Running;
        work.begin(visit.now, head, mutant);
        if let Some(more) = self.table.at_mut(place).more.as_mut().filter(|_| !ran) {
            more.running += 1;
        }
    }

    /// Begins a call in the record that the activity's last call has left, if that record can be reused. The
    /// bound on activities need not be checked: the last call was accepted within it.
    #[inline(always)]
    fn take_over(&mut self, now: Time, place: usize, head: &CallHead) -> bool {
        let (position, mutant) = (head.position, self.config.mutant);
        let entry = self.table.at_mut(place);
        let Some(more) = entry.more.as_deref_mut() else { return false };
        let (last, work) = match position.activity {
            0 => (&mut entry.last, &mut more.activities.first),
            n => match more.activities.get_mut(n) {
                Some(slot) => (&mut slot.last, &mut slot.work),
                None => return false,
            },
        };
        let Some(work) = work.as_deref_mut().filter(|work| work.may_be_taken_over()) else { return false };
        *last = Last::new(position.sequence, false);
        work.begin(now, head, mutant);
        let held = work.payload.len();
        work.payload.clear();
        // The buffer stays for the next result if it is so small that it need not be counted.
        if work.payload.capacity() > MAX_IDLE_BUFFER_BYTES {
            self.spare.recycle(std::mem::take(&mut work.payload));
        }
        more.running += 1;
        more.recount(&mut self.hosts, Kept::Results, counted_result(held), 0);
        true
    }

    /// Gives the call to the user.
    pub(super) fn run(&mut self, visit: &mut Visit<'_>, head: &CallHead, args: Cow<'_, [u8]>) {
        let again = std::mem::take(&mut visit.again);
        let incoming = Incoming { again, ..self.incoming(visit.now, visit.header, head, args) };
        (visit.sink)(Request::Call(incoming));
    }

    #[inline(always)]
    fn incoming<'d>(
        &mut self,
        now: Time,
        header: Header,
        head: &CallHead,
        args: Cow<'d, [u8]>,
    ) -> Incoming<'d> {
        self.stats.calls += 1;
        self.unfinished += 1;
        let principal = self.principal(header.conversation, header.scheme);
        Incoming {
            key: key(header.conversation, head.position),
            export: head.export,
            procedure: head.procedure,
            deadline: head.meta.deadline.map(|left| now + std::time::Duration::from_nanos(left)),
            trace: head.meta.trace,
            principal,
            again: false,
            args,
        }
    }

    /// Returns whether a call with `total` bytes of arguments is accepted. The checks are those that need no
    /// look at the arguments.
    #[inline]
    pub(super) fn accepts(&self, head: &CallHead, total: usize) -> bool {
        !self.draining.all && self.is_exported(head.export) && total <= self.config.max_arguments as usize
    }

    /// Returns why a call is not accepted.
    pub(super) fn objection(&self, head: &CallHead, total: usize) -> Failure {
        if self.draining.all || !self.is_exported(head.export) {
            return Failure::new(self.why_not_exported(head.export), Ran::No);
        }
        let detail = format!("the arguments have {total} bytes; the limit is {}", self.config.max_arguments);
        Failure::new(Kind::TooLarge, Ran::No).with_detail(detail)
    }

    #[inline(always)]
    pub(super) fn is_exported(&self, export: u64) -> bool {
        self.exports.contains(export) || self.config.mutant.breaks(Rule::ExportUnchecked)
    }

    /// Ends an activity's last call, because a newer call takes the activity. The caller of the older call
    /// has had its result or has given it up.
    #[inline(never)]
    fn supersede(&mut self, visit: &mut Visit<'_>, place: usize, activity: u32) {
        self.end_inside(place, activity);
        match self.existing_work(place, activity) {
            Some(work) if work.phase == Phase::Running => {
                let position = work.position;
                self.end_promise(place, activity);
                (visit.sink)(Request::Cancel(key(visit.header.conversation, position)));
            }
            _ => self.release(place, activity),
        }
    }

    /// Handles a repetition of the activity's last call.
    fn again(&mut self, visit: &mut Visit<'_>, place: usize, head: &CallHead, part: Part<'_>) {
        let position = head.position;
        if head.meta.detached && self.is_last(place, position) {
            self.note_detached(place, position.activity);
        }
        let phase = self.phase(place, position.activity);
        if matches!(phase, Phase::Done(_) | Phase::Over) {
            self.note_asked(visit.now);
        }
        match phase {
            Phase::Receiving => self.receive_arguments(visit, place, head, part),
            _ if !self.answers.inquiries.take(visit.now, visit.from) => {}
            Phase::Running => self.reply_at_work(visit.now, place, position),
            Phase::Done(_) => self.send_again(visit.now, place, position.activity),
            Phase::Over if self.may_run_again(place, head) => self.run_again(visit, place, head, part),
            Phase::Over if self.config.mutant.breaks(Rule::ExpiredRunsAgain) => {
                self.on_new_call(visit, place, head, part);
            }
            Phase::Over => self.reply_over(place, position),
        }
    }

    /// Returns whether a repeated call of which no result is held may be executed again, because the
    /// procedure changes nothing.
    fn may_run_again(&self, place: usize, head: &CallHead) -> bool {
        let mutant = self.config.mutant;
        let least = if mutant.breaks(Rule::AccessRunsAgain) { ACCESSES } else { READINGS };
        let refused = self.table.at(place).last(head.position.activity).refused();
        head.procedure >= least && (!refused || mutant.breaks(Rule::RefusedReadingRuns))
    }

    /// Executes a repeated call again if it is still accepted. A refusal now must not say that the call did
    /// not run.
    fn run_again(&mut self, visit: &mut Visit<'_>, place: usize, head: &CallHead, part: Part<'_>) {
        if self.config.mutant.breaks(Rule::ReadingRefusedLater) {
            return self.on_new_call(visit, place, head, part);
        }
        if !self.accepts(head, part.total()) {
            let why = self.objection(head, part.total());
            return self.reply_failure(place, head.position, Failure { ran: Ran::Yes, ..why });
        }
        match part.fragment {
            None => {
                visit.again = true;
                self.on_new_call(visit, place, head, part);
            }
            Some(_) => self.reply_over(place, head.position),
        }
    }

    fn on_ack(&mut self, place: usize, ack: Ack) {
        let largest = self.config.max_datagram as u32;
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        more.datagram = ack.datagram.clamp(BASE_DATAGRAM as u32, largest.max(BASE_DATAGRAM as u32));
        if more.works > 0 {
            self.release_below(place, ack.low);
        }
    }

    /// Handles a client's report of which parts of a result have arrived.
    fn on_select(&mut self, visit: &mut Visit<'_>, place: usize, position: Position, select: &Select<'_>) {
        let now = visit.now;
        if !self.is_last(place, position) {
            return;
        }
        if self.existing_work(place, position.activity).is_none_or(|w| w.outgoing.is_none()) {
            // The server is not sending this result. A client that asks for more of it must be told why.
            if select.pull {
                self.on_probe(visit, place, position);
            }
            return;
        }
        let window = self.window(place);
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let (datagram, patience) = (more.datagram as usize, more.patience());
        let Some(work) = more.activities.work_mut(position.activity) else {
            return;
        };
        work.since = now;
        let Some(outgoing) = &mut work.outgoing else {
            return;
        };
        more.path.mutant = self.config.mutant;
        let heard = more.path.heard((now, patience), outgoing, select, (datagram, window));
        more.spoke = now;
        if heard.complete {
            return self.release_result(place, position.activity);
        }
        if select.pull {
            self.presume_lost(now, place);
        }
        self.queue(place, position.activity);
        self.wake_next(place);
    }

    /// Handles a CANCEL: the caller has given a call up. If the call has not arrived yet, it never runs,
    /// because its number is now used up.
    fn on_cancel(&mut self, visit: &mut Visit<'_>, place: usize, position: Position) {
        if !self.is_inquiry(visit, position) {
            return;
        }
        let last = self.table.at(place).last(position.activity);
        if position.sequence < last.sequence() {
            return;
        }
        let cancelled = Failure::new(Kind::Cancelled, Ran::No);
        if position.sequence > last.sequence() {
            if self.config.mutant.breaks(Rule::CancelOvertaking) {
                return self.reply_failure(place, position, cancelled);
            }
            if last == Last::default() && self.refuses_activity(place, position) {
                return self.reply_failure(place, position, cancelled);
            }
            self.supersede(visit, place, position.activity);
            self.set_last(place, position.activity, Last::new(position.sequence, true));
            // It suffices to remember that the call of this number was refused.
            return match self.phase(place, position.activity) {
                Phase::Over => self.reply_failure(place, position, cancelled),
                _ => self.refuse(visit.now, place, position, cancelled),
            };
        }
        match self.phase(place, position.activity) {
            Phase::Receiving => self.refuse(visit.now, place, position, cancelled),
            Phase::Running => {
                // The server's user is told only once, because to find the call it may have to look through
                // many.
                if let Some(work) = self.existing_work(place, position.activity)
                    && work.marks & GIVEN_UP == 0
                {
                    work.marks |= GIVEN_UP;
                    if !self.config.mutant.breaks(Rule::ExchangesKept) {
                        self.end_inside(place, position.activity);
                    }
                    (visit.sink)(Request::Cancel(key(visit.header.conversation, position)));
                }
                self.reply_running(place, position);
            }
            Phase::Done(_) => {
                // A caller that has given the call up is not sent a long result.
                self.end_inside(place, position.activity);
                if self.existing_work(place, position.activity).is_some_and(|w| w.outgoing.is_some()) {
                    self.release(place, position.activity);
                    return self.reply_over(place, position);
                }
                self.send_again(visit.now, place, position.activity);
            }
            Phase::Over if last.refused() => self.reply_failure(place, position, cancelled),
            Phase::Over => {
                self.end_inside(place, position.activity);
                self.reply_over(place, position);
            }
        }
    }

    pub(super) fn on_probe(&mut self, visit: &mut Visit<'_>, place: usize, position: Position) {
        if !self.is_inquiry(visit, position) {
            return;
        }
        let last = self.table.at(place).last(position.activity).sequence();
        if position.sequence > last {
            self.note_asked(visit.now);
            return self.reply_state(place, position, Progress::Unknown);
        }
        if position.sequence < last {
            return;
        }
        let phase = self.phase(place, position.activity);
        if matches!(phase, Phase::Done(_) | Phase::Over) {
            self.note_asked(visit.now);
        }
        match phase {
            Phase::Receiving => {
                if let Some(work) = self.existing_work(place, position.activity)
                    && let Some(incoming) = &mut work.incoming
                {
                    work.since = visit.now;
                    incoming.note(visit.header.number);
                }
                self.reply_select(place, position);
            }
            Phase::Running => self.reply_at_work(visit.now, place, position),
            Phase::Done(_) => self.send_again(visit.now, place, position.activity),
            Phase::Over => self.reply_over(place, position),
        }
    }

    /// Returns whether to act on a frame about the call at this position: there must be such a call, and the
    /// client's host must not have sent too many such frames.
    fn is_inquiry(&mut self, visit: &Visit<'_>, position: Position) -> bool {
        self.is_sound(position)
            && position.activity < self.config.max_activities
            && self.answers.inquiries.take(visit.now, visit.from)
    }

    fn on_mtu_probe(&mut self, visit: &Visit<'_>, place: usize, size: u32) {
        let size = size as usize;
        // Every path passes smaller datagrams, and the echo must not be longer than what came.
        if (BASE_DATAGRAM..=visit.len.min(self.config.max_datagram)).contains(&size) {
            let target = self.table.at(place).target();
            self.reply(Reply { to: *visit.from, target, answer: Answer::MtuEcho(size) });
        }
    }

    /// Answers a frame about a call that is over and whose result is no longer held.
    fn reply_over(&mut self, place: usize, position: Position) {
        if self.has_inside(place, position.activity) {
            return self.reply_state(place, position, Progress::Running);
        }
        if self.table.at(place).last(position.activity).refused() {
            return self.reply_failure(
                place,
                position,
                Failure::new(Kind::Other, Ran::No).with_detail("it was refused"),
            );
        }
        self.reply_state(place, position, Progress::Gone);
    }

    /// Sets an activity's last call. Makes a slot for the activity if it has none.
    #[inline]
    pub(super) fn set_last(&mut self, place: usize, activity: u32, last: Last) {
        let entry = self.table.at_mut(place);
        if activity == 0 {
            entry.last = last;
            return;
        }
        match entry.more.as_mut().and_then(|more| more.activities.used_mut(activity)) {
            Some(former) => *former = last,
            None => self.set_first(place, activity, last),
        }
    }

    /// Sets an activity's last call, makes a slot for the activity if it has none, and counts the slot's
    /// memory.
    #[inline(never)]
    fn set_first(&mut self, place: usize, activity: u32, last: Last) {
        let Server { table, hosts, config, .. } = self;
        let entry = table.at_mut(place);
        let id = entry.id;
        let more = entry.more_or_new(hosts);
        let before = more.activities.cost();
        more.activities.set_first(activity, last, config.mutant);
        // (The cost can also fall: activities that were kept in the map move to the row when it grows.)
        more.recount(hosts, Kept::Activities, before, more.activities.cost());
        if before == 0 {
            let host = more.host;
            hosts.at_mut(host).wide.push_back(id);
            self.tidy_wide(host);
        }
    }

    /// Returns what is happening to an activity's last call. A call of which nothing is kept is over.
    fn phase(&self, place: usize, activity: u32) -> Phase {
        self.table.at(place).work(activity).map_or(Phase::Over, |work| work.phase)
    }

    /// Returns what is kept of an activity's last call, if anything is.
    #[inline(always)]
    pub(super) fn existing_work(&mut self, place: usize, activity: u32) -> Option<&mut Work> {
        self.table.at_mut(place).more.as_mut()?.activities.work_mut(activity)
    }

    /// Returns the activity's work, and makes it if there is none.
    #[inline(never)]
    pub(super) fn work(&mut self, now: Time, place: usize, activity: u32) -> &mut Work {
        if self.existing_work(place, activity).is_none() {
            self.make_work(now, place, activity);
        }
        self.existing_work(place, activity).expect("work that was made")
    }

    fn make_work(&mut self, now: Time, place: usize, activity: u32) {
        if self.sweep.due.is_none() {
            self.set_sweep(Some(now + self.config.hold.min(silence_of(PATIENCE))));
        }
        let Server { table, hosts, .. } = self;
        let entry = table.at_mut(place);
        let call = (entry.id, activity);
        let more = entry.more_or_new(hosts);
        more.works += 1;
        if let Some(home) = more.activities.home(activity) {
            *home = Some(Box::default());
        }
        more.recount(hosts, Kept::Calls, 0, 1);
        let host = more.host;
        hosts.list(host, call);
        self.tidy_calls(host);
        self.shed_kept(now, Kept::Calls, self.config.max_kept_calls, call);
    }

    /// Refuses a call for good. Its number is used up, and the refusal is held like a result.
    pub(super) fn refuse(&mut self, now: Time, place: usize, position: Position, failure: Failure) {
        self.stats.refused[usize::from(failure.kind.code()) % 24] += 1;
        self.end_assembly(place, position.activity);
        self.set_last(place, position.activity, Last::new(position.sequence, true));
        let mut payload = self.buffer(now, 0);
        let status = wire::write_failure(&failure, &mut payload);
        let len = payload.len();
        self.work(now, place, position.activity);
        let Server { table, spare, .. } = self;
        if let Some(more) = &mut table.at_mut(place).more
            && let Some(work) = more.activities.work_mut(position.activity)
        {
            let ran = work.phase == Phase::Running;
            work.position = position;
            work.hold(now, status, &mut payload, spare);
            more.running -= u32::from(ran);
            more.recount(&mut self.hosts, Kept::Results, 0, counted_result(len));
        }
        self.recycle(payload);
        self.enforce_held(now, (self.table.at(place).id, position.activity));
        self.send_held(now, place, position.activity);
    }
}

/// Returns whether a call can have this position.
#[inline]
pub(super) fn is_sound(position: Position) -> bool {
    position.exchange == 0 && position.sequence > 0 && position.sequence < 1 << 63
}
