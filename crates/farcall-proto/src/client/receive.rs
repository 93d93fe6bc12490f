//! Acts on each frame from the server.
//!
//! An activity is a slot of the conversation with at most one outstanding call. An exchange is a signal or a
//! stream within a call.

use std::borrow::Cow;

use farcall_base::room::{self, NoMemory};

use super::closing::ClosingNotice;
use super::inside::Inside;
use super::send::MANY_CALLS;
use super::slots::{Stage, UNKNOWN, Want};
use super::timers::{BLACK_HOLE, MAX_STALLS};
use super::{Conversation, Doubtful, Event, Outcome};
use crate::scheme::Scheme;
use crate::secure::Opened;
use crate::transfer::{Incoming, Taken};
use crate::wire::{
    self, Fragment, Frame, Frames, Header, Malformed, Part, Position, Progress, ResultHead, Select, Status,
};
use crate::{BASE_DATAGRAM, Failure, Kind, Ran, Rule, Time, nanos};

/// A datagram that is being read.
struct Arrival<'s> {
    now: Time,
    header: Header,
    /// The datagram's length in bytes.
    len: usize,
    /// Whether the datagram names this conversation. A hint (CHALLENGE or STALE) need not name one.
    ours: bool,
    sink: &'s mut dyn FnMut(Event<'_>),
}

impl Conversation {
    /// Handles a datagram whose [`crate::route`] is this conversation, or the address of this conversation's
    /// server. The datagram is in a scheme without secrets.
    #[inline]
    pub fn receive(&mut self, now: Time, datagram: &[u8], sink: &mut (impl FnMut(Event<'_>) + ?Sized)) {
        self.receive_opened(now, (datagram, None), sink);
    }

    /// Handles a datagram as [`Conversation::receive`] does. If it is sealed, opens it in place first.
    pub fn receive_any(
        &mut self,
        now: Time,
        datagram: &mut [u8],
        sink: &mut (impl FnMut(Event<'_>) + ?Sized),
    ) {
        #[cfg(feature = "secure")]
        if crate::secure::is_sealed(datagram) {
            let Some(cipher) = self.cipher() else { return self.reject() };
            let Some(opened) = crate::secure::open(&cipher, datagram) else { return self.reject() };
            return self.receive_opened(now, (datagram, Some(opened)), sink);
        }
        self.receive_opened(now, (datagram, None), sink);
    }

    /// Handles a datagram as [`Conversation::receive`] does. A sealed datagram must have been opened.
    #[inline]
    pub fn receive_opened(
        &mut self,
        now: Time,
        (datagram, opened): (&[u8], Option<Opened>),
        sink: &mut (impl FnMut(Event<'_>) + ?Sized),
    ) {
        #[cfg(feature = "secure")]
        if self.config.trust.is_some() && opened.is_none() {
            return self.handle_unopened(now, datagram, &mut |event| sink(event));
        }
        #[cfg(feature = "secure")]
        if self.is_distrusted() {
            // What the server says now counts only for calls that it may still answer.
            self.end_distrusted(&mut |event| sink(event));
        }
        let check = !self.config.mutant.breaks(Rule::ChecksumIgnored);
        let read = wire::open(datagram, opened, check);
        let Ok((header, frames)) = read else {
            return self.reject();
        };
        let ours = header.conversation == self.id;
        if !ours && header.conversation != 0 || !self.takes(header.scheme) {
            return self.reject();
        }
        if let Some(opened) = opened
            && !self.is_first(header, opened)
        {
            return self.reject();
        }
        self.stats.received += 1;
        match ResultHead::only(frames) {
            Some((head, body)) if ours && head.status == Status::Result => {
                self.session.heard(now);
                self.on_result(now, head.position, Outcome::Result(body.into()), sink);
            }
            _ => {
                let (len, sink) = (datagram.len(), &mut |event: Event<'_>| sink(event));
                self.receive_frames(&mut Arrival { now, header, len, ours, sink }, frames);
            }
        }
        // Results that fill more than half a datagram cannot share it, but could share a larger one.
        if datagram.len() * 2 > self.mtu.datagram && self.slots.outstanding > MANY_CALLS as usize {
            self.mtu.want(now);
        }
    }

    /// Returns whether datagrams in that scheme may belong to this conversation.
    #[inline(always)]
    fn takes(&self, scheme: Scheme) -> bool {
        if self.scheme.has_secrets() {
            return scheme == self.scheme;
        }
        scheme == self.scheme || scheme == Scheme::Open
    }

    /// Returns whether an opened datagram comes for the first time, as far as this is known.
    #[inline(always)]
    pub(super) fn is_first(&mut self, header: Header, opened: Opened) -> bool {
        #[cfg(feature = "secure")]
        {
            // The secrets may have been forgotten since the datagram was opened.
            let mutant = self.config.mutant;
            self.kept.as_mut().is_some_and(|kept| kept.take(header.number, opened, mutant))
        }
        #[cfg(not(feature = "secure"))]
        {
            let _ = (header, opened.phase);
            true
        }
    }

    #[cold]
    pub(super) fn reject(&mut self) {
        self.stats.dropped += 1;
    }

    /// Acts on a datagram that is not just one whole result.
    #[inline(never)]
    fn receive_frames(&mut self, arrival: &mut Arrival<'_>, frames: &[u8]) {
        let mut frames = Frames::new(frames);
        let mut heard = false;
        while let Some(raw) = frames.next().transpose() {
            let Ok(raw) = raw else { return self.reject() };
            // Most frames are whole results. A result is not read into a `Frame`, because a `Frame` is as
            // large as its largest variant and would be copied.
            if arrival.ours
                && let Some(result) = raw.result()
            {
                let Ok((head, part)) = result else { return self.reject() };
                if !std::mem::replace(&mut heard, true) {
                    self.session.heard(arrival.now);
                }
                match part.fragment {
                    None => {
                        let outcome = outcome(head.status, part.bytes.into());
                        self.on_result(arrival.now, head.position, outcome, arrival.sink);
                    }
                    Some(fragment) => self.on_result_fragment(arrival, &head, 0, fragment, part.bytes),
                }
                continue;
            }
            match raw.read() {
                Ok(Some(frame)) => self.on_frame(arrival, frame),
                Ok(None) => {}
                Err(Malformed) => return self.reject(),
            }
        }
    }

    /// Acts on a result, or a fragment of one, that is delivered only after what the server sends in
    /// exchanges.
    #[cold]
    fn on_last_result(
        &mut self,
        arrival: &mut Arrival<'_>,
        head: &ResultHead,
        directions: u32,
        part: &Part<'_>,
    ) {
        if let Some(fragment) = part.fragment {
            return self.on_result_fragment(arrival, head, directions, fragment, part.bytes);
        }
        let Some(activity) = self.current(arrival.now, head.position) else {
            return self.on_second_answer(arrival.now, head.position);
        };
        self.on_first_answer(arrival.now, activity, true);
        let result = (head.status, part.bytes.to_vec());
        self.hold_result(arrival.now, activity, result, directions, arrival.sink);
    }

    /// Acts on a frame that is not a whole result.
    fn on_frame(&mut self, arrival: &mut Arrival<'_>, frame: Frame<'_>) {
        let (now, ours) = (arrival.now, arrival.ours);
        // WELCOME, CHALLENGE and STALE do not show that the server of this conversation is alive: a new
        // server at its address can have sent them.
        if ours && !matches!(frame, Frame::Welcome(_) | Frame::Challenge(_) | Frame::Stale(_)) {
            self.session.heard(now);
        }
        match frame {
            Frame::State(position, progress) if ours => self.on_state(arrival, position, progress),
            Frame::Select(position, select) if ours => self.on_select(now, position, &select),
            Frame::Result(head, directions, part) if ours => {
                self.on_last_result(arrival, &head, directions, &part)
            }
            Frame::Data(position, data) if ours => {
                self.on_data(now, arrival.header.number, position, &data, arrival.sink)
            }
            Frame::Credit(position, credit) if ours => self.on_credit(now, position, &credit),
            Frame::Stop(position, reason) if ours => self.on_stop(now, position, reason),
            Frame::MtuEcho(size) if ours => self.mtu.passed(arrival.len.min(size as usize)),
            Frame::Welcome(welcome) if ours => self.on_welcome(now, &welcome, arrival.sink),
            Frame::Drain(drain) if ours => self.on_drain(now, &drain, arrival.sink),
            Frame::Wanted(position) if ours => self.on_wanted(position),
            Frame::Challenge(conversation) => self.on_challenge(conversation),
            Frame::Stale(stale) => self.on_stale(now, &stale, arrival.sink),
            _ => self.stats.dropped += 1,
        }
    }

    /// Returns the activity of an unfinished call that the frame names.
    #[inline]
    pub(super) fn current(&mut self, now: Time, position: Position) -> Option<u32> {
        let slot = self.slots.get(position.activity)?;
        let same = slot.sequence == position.sequence || self.config.mutant.breaks(Rule::ResultSequence);
        if !same || slot.stage == Stage::Free || slot.timing.first_sent.is_none() || position.exchange != 0 {
            self.stats.duplicates += 1;
            return None;
        }
        let counts = slot.counted.is_some();
        self.slots.at_mut(position.activity).timing.mentioned = true;
        if counts {
            self.landed(now, position.activity);
        }
        if let Some(granted) = &mut self.session.granted {
            granted.known = true;
        }
        Some(position.activity)
    }

    /// Acts on a whole result, and ends its call.
    #[inline]
    fn on_result(
        &mut self,
        now: Time,
        position: Position,
        outcome: Outcome<'_>,
        sink: &mut (impl FnMut(Event<'_>) + ?Sized),
    ) {
        if self.path.in_flight > 0 {
            self.note_length(&outcome);
        }
        let Some(activity) = self.current(now, position) else {
            return self.on_second_answer(now, position);
        };
        let slot = self.slots.at(activity);
        let first_sent = slot.timing.first_sent.unwrap_or_default();
        let cancelling = matches!(slot.stage, Stage::Cancelling { .. });
        // If the call was sent more than once, it is unknown when the procedure began, unless the server has
        // said that it runs.
        let dated = slot.timing.timed || (slot.stage == Stage::Running && first_sent != UNKNOWN);
        if dated && slot.argument_bytes as usize <= BASE_DATAGRAM {
            self.usual.took(slot.call.callee(), now.nanos_since(first_sent));
        }
        if slot.timing.timed {
            self.path.round_trip.sample_call(now.nanos_since(first_sent));
        } else if slot.timing.unanswered > 0 && slot.stage == Stage::Sending {
            self.config.path.note_lost();
            self.was_resent(now, activity, first_sent);
            self.doubt(now, position, first_sent);
        }
        self.note_company(now, activity);
        let outcome = match outcome {
            Outcome::Failed(why) => Outcome::Failed(self.explain(now, activity, why, cancelling)),
            outcome => outcome,
        };
        self.end(activity, outcome, sink);
    }

    /// Notes how long a result is that comes while bytes are under way.
    #[inline(never)]
    fn note_length(&mut self, outcome: &Outcome<'_>) {
        if let Outcome::Result(body) | Outcome::Exception(body) = outcome {
            self.transfers.short_result = body.len() as u32;
        }
    }

    /// Notes a frame about a call, other than a STATE or a result in one datagram. The first of them ends the
    /// round trip of a call that was sent once. If the call was sent again, a second answer `tells` whether
    /// that was too early.
    pub(super) fn on_first_answer(&mut self, now: Time, activity: u32, tells: bool) {
        let slot = self.slots.at_mut(activity);
        if slot.stage != Stage::Sending {
            return;
        }
        let position = Position::of_call(activity, slot.sequence);
        let first_sent = slot.timing.first_sent.unwrap_or_default();
        if std::mem::take(&mut slot.timing.timed) {
            self.path.round_trip.sample_call(now.nanos_since(first_sent));
        } else if slot.timing.unanswered > 0 && tells {
            self.doubt(now, position, first_sent);
        }
    }

    /// Notes that the first answer to a call has come only after the call was sent again.
    #[cold]
    fn doubt(&mut self, now: Time, position: Position, first_sent: Time) {
        if self.timers.doubtful.as_ref().is_none_or(|call| call.until < now) {
            // If it is not known when the call was sent, it counts as sent long ago.
            let until = now.plus(now.nanos_since(first_sent).min(self.timers.most_interval));
            self.timers.doubtful = Some(Box::new(Doubtful { position, first_sent, until }));
        }
    }

    /// Acts on a second answer to a call, which only a second datagram of the call can have caused. So none
    /// was lost: the client was too impatient.
    #[cold]
    fn on_second_answer(&mut self, now: Time, position: Position) {
        if let Some(call) = self.timers.doubtful.take_if(|call| call.position == position) {
            self.path.round_trip.late(call.first_sent, now);
        }
    }

    /// Acts on a fragment of a result that has come before. If the client has asked about the call since it
    /// was sent, the server has sent the fragment again because of that. So the first one was not lost: the
    /// client was too impatient.
    #[cold]
    fn on_second_fragment(&mut self, now: Time, activity: u32) {
        let timing = &self.slots.at(activity).timing;
        if timing.first_sent.is_some_and(|sent| timing.reminded >= sent)
            && !self.config.mutant.breaks(Rule::SecondFragmentUnlearnt)
        {
            self.path.round_trip.late(timing.reminded, now);
        }
    }

    /// Measures a round trip by a fragment of a result, if only a bound is known and the client has pulled
    /// the result. Before the pull, the client waited for at least the bound. So what was under way has come
    /// or is lost, and the server sends this fragment because of the pull.
    #[inline]
    fn measure_pull(&mut self, now: Time, activity: u32) {
        if self.path.round_trip.is_bound() {
            self.measure_first_pull(now, activity);
        }
    }

    #[cold]
    fn measure_first_pull(&mut self, now: Time, activity: u32) {
        let slot = self.slots.at(activity);
        let pulled = slot.receiving.is_some() && slot.timing.unanswered > 0;
        let bound = self.path.round_trip.expected().map_or(u64::MAX, nanos);
        if pulled && bound <= self.timers.most_interval && !self.config.mutant.breaks(Rule::PullUnmeasured) {
            self.path.round_trip.sample(now.nanos_since(slot.timing.reminded));
        }
    }

    /// Converts a failure that the server has sent to the failure that the caller is told.
    #[cold]
    fn explain(&self, now: Time, activity: u32, why: Failure, cancelling: bool) -> Failure {
        let why = match (why.kind, why.ran) {
            // The server says only that the call never runs. The client knows why: the caller gave it up.
            (Kind::Other, Ran::No) if cancelling => Failure::new(Kind::Cancelled, Ran::No),
            // An older server reports what its procedure waited for until the deadline.
            _ if !cancelling && self.is_late(now, activity) => why.at_deadline(),
            _ => why,
        };
        self.never_no(activity, why)
    }

    /// Returns whether the deadline of a call has passed.
    fn is_late(&self, now: Time, activity: u32) -> bool {
        self.slots.at(activity).call.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Notes that a short call (one datagram each way) was made while a long message was being sent. The
    /// window becomes smaller then, so that the message does not hold up the next short call.
    #[inline]
    fn note_company(&mut self, now: Time, activity: u32) {
        if self.path.fragments
            && self.slots.outstanding > 1
            && self.slots.at(activity).argument_bytes as usize <= BASE_DATAGRAM
        {
            self.transfers.short_call_at = now;
        }
    }

    fn on_result_fragment(
        &mut self,
        Arrival { now, header, sink, .. }: &mut Arrival<'_>,
        head: &ResultHead,
        directions: u32,
        fragment: Fragment,
        bytes: &[u8],
    ) {
        let now = *now;
        let Some(activity) = self.current(now, head.position) else {
            return self.on_second_answer(now, head.position);
        };
        if fragment.total > self.config.max_result {
            let detail =
                format!("the result has {} bytes; the limit is {}", fragment.total, self.config.max_result);
            let failure = Failure::new(Kind::TooLarge, Ran::Yes).with_detail(detail);
            return self.end(activity, Outcome::Failed(failure), sink);
        }
        self.mtu.want(now);
        let (window, widest) = (self.window(now), self.widest_window());
        self.path.fragments = true;
        self.measure_pull(now, activity);
        self.on_first_answer(now, activity, false);
        // The client answers fragments by SELECTs, which can cause further answers, too.
        self.timers.forget_doubt(Position::of_call(activity, head.position.sequence));
        let slot = self.slots.at_mut(activity);
        match slot.stage {
            // No caller waits for the call any more. The cancel tells the server so.
            Stage::Cancelling { .. } => return,
            _ => slot.stage = Stage::Running,
        }
        if directions > 0 {
            let inside = slot.inside.get_or_insert_with(|| Inside::new(self.config.mutant));
            inside.expect(directions);
            if inside.has_result() {
                self.transfers.notices.push(ClosingNotice::Complete(head.position, fragment.total.into()));
                return self.answered(now, activity);
            }
        }
        let (status, incoming) = &mut **slot.receiving.get_or_insert_with(|| {
            // A result that is no longer than the last one gets its whole buffer at once.
            let len = fragment.total as usize;
            let buffer = self.config.spares.take(now, len);
            let buffer = buffer.unwrap_or_else(|| {
                let mut buffer = Vec::new();
                // If there is no memory for it, the first fragment that has none says so.
                let _ = room::reserve_exact(&mut buffer, len.min(self.transfers.usual_result as usize));
                buffer
            });
            Box::new((head.status, Incoming::new(fragment.total, buffer, window, widest)))
        });
        let came_before = fragment.offset as usize + bytes.len() <= incoming.through as usize;
        let taken = match *status == head.status {
            true => incoming.take(header.number, fragment, bytes),
            false => Taken::Contradiction,
        };
        let due = incoming.acknowledge_due();
        match taken {
            Taken::Contradiction => self.stats.dropped += 1,
            Taken::NoMemory => {
                let why = NoMemory { bytes: fragment.total as usize };
                let failure =
                    Failure::new(Kind::TooLarge, Ran::Yes).with_detail(format!("the result: {why}"));
                self.end(activity, Outcome::Failed(failure), sink);
            }
            Taken::Complete => self.finish_result(now, activity, sink),
            Taken::New | Taken::Nothing => {
                if taken == Taken::Nothing && came_before {
                    self.on_second_fragment(now, activity);
                }
                self.answered(now, activity);
                if due {
                    self.want(activity, Want::SELECT);
                }
            }
        }
    }

    /// Ends a call of whose result the last fragment has arrived. Tells the server at once, because the
    /// server holds the long result until then.
    fn finish_result(&mut self, now: Time, activity: u32, sink: &mut dyn FnMut(Event<'_>)) {
        let slot = self.slots.at_mut(activity);
        let Some((status, incoming)) = slot.receiving.take().map(|receiving| *receiving) else {
            return;
        };
        let position = Position::of_call(activity, slot.sequence);
        let directions = slot.inside.as_ref().map_or(0, |inside| inside.directions());
        self.transfers.notices.push(ClosingNotice::Complete(position, incoming.through.into()));
        self.transfers.usual_result = incoming.through;
        if directions > 0 {
            let result = (status, incoming.into_bytes());
            return self.hold_result(now, activity, result, directions, sink);
        }
        self.end(activity, outcome(status, Cow::Owned(incoming.into_bytes())), sink);
    }

    fn on_state(&mut self, arrival: &mut Arrival<'_>, position: Position, progress: Progress) {
        let (now, sink) = (arrival.now, &mut *arrival.sink);
        let Some(activity) = self.current(now, position) else {
            return self.on_second_answer(now, position);
        };
        if progress == Progress::Running {
            self.on_second_answer(now, position);
        }
        let (touched, complete) = (self.is_touched(activity), self.is_complete(activity));
        let slot = self.slots.at_mut(activity);
        let cancelling = matches!(slot.stage, Stage::Cancelling { .. });
        match progress {
            Progress::Running if cancelling => {
                let says_no = self.config.mutant.breaks(Rule::CancelSaysNo);
                let ran = if says_no { Ran::No } else { Ran::Maybe };
                self.end(activity, Outcome::Failed(Failure::new(Kind::Cancelled, ran)), sink);
            }
            Progress::Running => {
                slot.stage = Stage::Running;
                if let Some(sending) = slot.sending.take() {
                    self.path.in_flight -= sending.in_flight;
                    self.wake_next();
                }
                self.resume_inside(activity);
                if !self.sends_in_vain(activity) {
                    self.answered(now, activity);
                }
            }
            Progress::Gone if complete => {}
            Progress::Gone => {
                let kind = if cancelling { Kind::Cancelled } else { Kind::ResultLost };
                let ran = if self.config.mutant.breaks(Rule::GoneSaysNo) { Ran::No } else { Ran::Yes };
                self.end(activity, Outcome::Failed(Failure::new(kind, ran)), sink);
            }
            Progress::Unknown if cancelling => self.want(activity, Want::CANCEL),
            // This answer is out of date: the server has the call by now. If not, as when the server was
            // restored, the call is not repeated, and ends like one of which the server says nothing.
            Progress::Unknown if touched => {}
            Progress::Unknown => {
                slot.stage = Stage::Sending;
                if let Some(sending) = &mut slot.sending {
                    self.path.in_flight -= sending.in_flight;
                    sending.restart();
                    self.wake_next();
                }
                if self.count_stall(activity, 0) {
                    self.answered(now, activity);
                }
                self.want(activity, Want::CALL);
            }
        }
    }

    fn on_select(&mut self, now: Time, position: Position, select: &Select<'_>) {
        let Some(activity) = self.current(now, position) else {
            return;
        };
        let patience = self.path.round_trip.expected().unwrap_or(self.config.max_retransmit);
        let (datagram, window) = (self.mtu.datagram, self.window(now));
        let slot = self.slots.at_mut(activity);
        let Some(sending) = &mut slot.sending else {
            return;
        };
        let heard = self.path.heard((now, patience), sending, select, (datagram, window));
        if heard.complete {
            slot.sending = None;
            slot.stage = match slot.stage {
                Stage::Sending => Stage::Running,
                stage => stage,
            };
            self.resume_inside(activity);
        } else {
            self.want(activity, Want::CALL);
        }
        let tells_of_sent = heard.arrived > 0 || heard.lost_since.is_some();
        if !tells_of_sent || self.count_stall(activity, heard.arrived) {
            self.answered(now, activity);
        }
        self.wake_next();
    }

    /// Tries smaller datagrams if the server answers several times but nothing of what was sent arrives. The
    /// path may have become narrower. Returns whether the answer begins the call's patience anew: a path that
    /// lets only the short datagrams of probes pass does not keep the call alive for ever.
    fn count_stall(&mut self, activity: u32, arrived: u32) -> bool {
        let stalled = &mut self.slots.at_mut(activity).timing.stalled;
        *stalled = if arrived > 0 { 0 } else { stalled.saturating_add(1) };
        let stalled = *stalled;
        if stalled > 0 && stalled.is_multiple_of(BLACK_HOLE) {
            self.mtu.fall_back();
        }
        stalled < MAX_STALLS || self.config.mutant.breaks(Rule::NarrowPathEnds)
    }

    /// Queues the activity that has waited longest for room in the congestion window.
    pub(super) fn wake_next(&mut self) {
        while let Some(activity) = self.path.waiting.pop_front() {
            let slot = self.slots.at_mut(activity);
            slot.waiting = false;
            if slot.sending.is_some() || slot.wants.has(Want::HELD) {
                return self.want(activity, Want::CALL);
            }
            if slot.inside.is_some() {
                return self.want(activity, Want::DATA);
            }
        }
    }
}

pub(super) fn outcome(status: Status, bytes: Cow<'_, [u8]>) -> Outcome<'_> {
    match status {
        Status::Result => Outcome::Result(bytes),
        Status::Exception => Outcome::Exception(bytes),
        Status::Failed { ran, kind } => Outcome::Failed(wire::read_failure(ran, kind, &bytes)),
    }
}
