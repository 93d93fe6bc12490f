//! Sends results, their fragments, and short answers.
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other. An exchange is a signal or a stream within a call.

use std::collections::VecDeque;
use std::net::SocketAddr;
#[cfg(feature = "secure")]
use std::sync::Arc;
use std::time::Duration;

use super::hosts::{HostName, Kept, counted_result};
use super::memory::MAX_IDLE_BUFFER_BYTES;
use super::more::More;
#[cfg(feature = "secure")]
use super::proofs::Question;
use super::work::{EXCHANGES, GIVEN_UP, Last, PROMISED, Phase, TO_SELECT, TO_SEND, Work};
use super::{CallKey, Finish, Insert, Server, Spare, Transmit};
use crate::scheme::Scheme;
use crate::transfer::Next;
use crate::wire::{
    self, FRAME_HEAD, Fragment, Position, Progress, RESULT_HEAD, ResultHead, STATE_BYTES, Status, Target,
    Writer,
};
use crate::{BASE_DATAGRAM, Failure, Kind, Ran, Rule, Time};

/// The shortest run of borrowed bytes within a result (an insert) that is sent without a copy, in bytes.
const UNCOPIED_INSERT_BYTES: usize = 8 << 10;

/// The least buffer that a call gets for a short result, in bytes.
const LEAST_BUFFER_BYTES: usize = 64;

/// A result of at most this many bytes fits every datagram.
pub const SHORT: usize = 1 << 10;

/// The maximum number of short answers that wait to be sent. Further ones are dropped, and clients ask again.
const MAX_REPLIES: usize = 8192;

/// While half of `MAX_REPLIES` short answers wait, no host may have more than this many of them.
const REPLIES_OF_A_HOST: u32 = 256;

/// While three quarters of `MAX_REPLIES` wait, no network may have more than this many of them.
const REPLIES_OF_A_NETWORK: u32 = 1024;

/// The longest SELECT that a server sends, in bytes.
const MAX_SELECT_BYTES: usize = 36 + 8 * wire::MAX_RANGES;

/// A short answer that waits to be sent.
#[derive(Debug)]
pub(super) struct Reply {
    pub to: SocketAddr,
    pub target: Target,
    pub answer: Answer,
}

#[derive(Debug)]
pub(super) enum Answer {
    /// Frames that may share a datagram with other frames.
    Shared(Vec<u8>),
    /// A STATE, which says how far a call is. It may share a datagram.
    State { position: Position, progress: Progress },
    /// Frames that are sent in a datagram of their own.
    Alone(Vec<u8>),
    /// A SELECT, which says which of a call's arguments have arrived by the time that the answer is written.
    /// It may share a datagram.
    Select { conversation: u64, position: Position },
    /// Frames that are sent in a datagram of their own, which is sealed as the answer to one question. The
    /// answer to a question whose handshake was computed is kept.
    #[cfg(feature = "secure")]
    Sealed(Vec<u8>, Box<farcall_crypto::Answering>, Option<(Question, Time)>),
    /// A datagram that was sent before.
    #[cfg(feature = "secure")]
    Again(Arc<[u8]>),
    /// An answer to an MTU probe: a datagram of this many bytes.
    MtuEcho(usize),
}

impl Server {
    /// Ends a call with its outcome. If `out` is not empty and the outcome fits one datagram, writes it into
    /// `out` and returns it. Any other outcome is sent by [`Server::transmit`], where outcomes of one
    /// conversation share datagrams. Does nothing if the call is no longer the last of its activity. Takes
    /// the bytes of `payload`, and leaves an empty buffer for reuse in it.
    #[inline(always)]
    pub fn finish(
        &mut self,
        now: Time,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let (long, sent) = self.conclude(now, key, finish, payload, (0, out))?;
        if let Some(place) = long {
            self.begin_fragments(now, place, key.activity);
            self.queue(place, key.activity);
        }
        self.enforce_held(now, (key.conversation, key.activity));
        sent
    }

    /// Ends a call that the user still executes. [`Server::transmit`] sends its outcome, and the outcome that
    /// the user gives to [`Server::finish`] later is discarded. Returns false, and does nothing, if the user
    /// does not execute the call or the call was given up.
    #[cold]
    pub fn finish_early(&mut self, now: Time, key: CallKey, finish: Finish) -> bool {
        if self.executing(key).is_none() {
            return false;
        }
        // The user's own `finish` will count the call's end once more.
        self.unfinished += 1;
        self.finish(now, key, finish, &mut Vec::new(), &mut []);
        true
    }

    /// Ends a call with an outcome that has `insert` in it and is longer than a datagram.
    /// [`Server::transmit`] sends the outcome.
    #[cold]
    pub fn finish_around(
        &mut self,
        now: Time,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
        insert: Insert,
    ) {
        debug_assert!(insert.at <= payload.len() && insert.bytes.len() > self.config.max_datagram);
        let concluded = self.conclude(now, key, finish, payload, (insert.bytes.len(), &mut []));
        let Some((Some(place), _)) = concluded else { return self.sending.loose.push(insert.bytes) };
        if let Some(work) = self.existing_work(place, key.activity) {
            work.insert = Some(Box::new(insert));
        }
        self.begin_fragments(now, place, key.activity);
        self.queue(place, key.activity);
        self.enforce_held(now, (key.conversation, key.activity));
    }

    /// Holds a call's outcome, which has `inserted` bytes besides the payload. Writes it into `out`, or
    /// queues it if `out` is empty. Returns the conversation's place instead if the outcome is too long for
    /// one datagram, and `None` if the user does not have the call or the call is not the last of its
    /// activity.
    #[inline(always)]
    pub(super) fn conclude(
        &mut self,
        now: Time,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
        (inserted, out): (usize, &mut [u8]),
    ) -> Option<(Option<usize>, Option<Transmit>)> {
        self.unfinished = self.unfinished.saturating_sub(1);
        self.end_spent(now);
        if let Some(place) = self.table.find(key.conversation)
            && let entry = self.table.at_mut(place)
            && let (to, target) = (entry.address(), entry.target())
            && let Some(more) = entry.more.as_deref_mut()
            && let datagram = more.datagram as usize
            && let Some(work) = more.activities.work_mut(key.activity)
            && work.phase == Phase::Running
            && work.position.sequence == key.sequence
        {
            let len = payload.len() + inserted;
            let fits = len.is_multiple_of(4) && u32::try_from(len).is_ok();
            // The result of a call that was given up is dropped: perhaps the procedure returned early because
            // it was told that the call is cancelled.
            let unwanted = if self.config.mutant.breaks(Rule::LateResult) { 0 } else { GIVEN_UP };
            let wanted = work.marks & (unwanted | EXCHANGES) == 0;
            let status = match finish {
                Finish::Result if fits && wanted => Status::Result,
                Finish::Exception if fits && wanted => Status::Exception,
                finish => return self.conclude_rarely(now, place, key, finish, payload, (inserted, out)),
            };
            work.hold(now, status, payload, &mut self.spare);
            // The activity gave its long buffer back when this call began. The user gets one for the next
            // result.
            if len > MAX_IDLE_BUFFER_BYTES
                && payload.capacity() <= MAX_IDLE_BUFFER_BYTES
                && let Some(spare) = self.spare.buffers.pop()
            {
                *payload = spare;
            }
            let promised = work.marks & PROMISED != 0;
            let (mut long, mut written) = (Some(place), None);
            if out.is_empty() {
                if len <= datagram {
                    long = None;
                    // The activity can still be in the queue for the result of an earlier call.
                    if !std::mem::replace(&mut work.queued, true) {
                        self.sending.queue.push_back((key.conversation, key.activity));
                    }
                }
            } else {
                let mut writer = Writer::new(out, datagram, target);
                let head = ResultHead { position: Position::of_call(key.activity, key.sequence), status };
                if writer.result(&head, &work.payload) {
                    write_next(&mut self.sending.queue, key.conversation, more, &mut writer);
                    #[cfg(feature = "secure")]
                    let writer = writer.hiding_length(self.config.padding);
                    let (number, cipher) = self.seals.take(target, self.config.mutant);
                    written = Some((writer.finish(number).len(), cipher));
                    long = None;
                }
            }
            more.running -= 1;
            more.recount(&mut self.hosts, Kept::Results, 0, counted_result(len));
            if promised {
                self.end_promise(place, key.activity);
            }
            let Some((len, cipher)) = written else { return Some((long, None)) };
            self.count_written(len);
            return Some((long, Some(Transmit { to, len, insert: None, cipher })));
        }
        self.recycle(std::mem::take(payload));
        None
    }

    /// Ends a call that failed, was refused, has exchanges, or has a result that cannot be sent.
    #[cold]
    fn conclude_rarely(
        &mut self,
        now: Time,
        place: usize,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
        (inserted, out): (usize, &mut [u8]),
    ) -> Option<(Option<usize>, Option<Transmit>)> {
        if self.conclude_inside(place, key.activity) {
            // (The call was counted as finished already.)
            self.unfinished += 1;
            return self.conclude(now, key, finish, payload, (inserted, &mut []));
        }
        let given_up = self.existing_work(place, key.activity).is_some_and(|work| work.marks & GIVEN_UP != 0);
        let failure = match finish {
            Finish::Failed(failure) if given_up && failure.ran != Ran::No => {
                Failure::new(Kind::Cancelled, failure.ran)
            }
            Finish::Failed(failure) => *failure,
            Finish::Result | Finish::Exception if given_up => Failure::new(Kind::Cancelled, Ran::Yes),
            Finish::Result | Finish::Exception => {
                let detail = format!("a result of {} bytes is too long or is not XDR", payload.len());
                Failure::new(Kind::BadResult, Ran::Yes).with_detail(detail)
            }
        };
        if failure.ran == Ran::No {
            self.stats.refused[usize::from(failure.kind.code()) % 24] += 1;
            let unrecorded = self.config.mutant.breaks(Rule::RefusalUnrecorded);
            let consumed = key.sequence - u64::from(unrecorded);
            self.set_last(place, key.activity, Last::new(consumed, true));
        }
        let status = wire::write_failure(&failure, payload);
        let len = payload.len();
        let more = self.table.at_mut(place).more.as_mut()?;
        more.activities.work_mut(key.activity)?.hold(now, status, payload, &mut self.spare);
        more.running -= 1;
        more.recount(&mut self.hosts, Kept::Results, 0, counted_result(len));
        self.end_promise(place, key.activity);
        let sent = if out.is_empty() { None } else { self.write_whole(place, key.activity, out) };
        if sent.is_none() {
            self.queue(place, key.activity);
        }
        Some((None, sent))
    }

    /// Writes a result that fits one datagram, and the next queued results of the same conversation.
    #[inline]
    fn write_whole(&mut self, place: usize, activity: u32, out: &mut [u8]) -> Option<Transmit> {
        let entry = self.table.at_mut(place);
        let (to, target) = (entry.address(), entry.target());
        let more = entry.more.as_mut()?;
        let mut writer = Writer::new(out, more.datagram as usize, target);
        if !more.activities.work_mut(activity)?.write(&mut writer) {
            return None;
        }
        write_next(&mut self.sending.queue, entry.id, more, &mut writer);
        Some(self.count_sent(to, writer, None))
    }

    #[inline]
    pub(super) fn count_sent(
        &mut self,
        to: SocketAddr,
        writer: Writer<'_>,
        insert: Option<Insert>,
    ) -> Transmit {
        let inserted = insert.as_ref().map_or(0, |insert| insert.bytes.len());
        #[cfg(feature = "secure")]
        let writer = writer.hiding_length(self.config.padding);
        let (number, cipher) = self.seals.take(writer.target(), self.config.mutant);
        let len = writer.finish_around(inserted, number).len();
        self.count_written(len + inserted);
        Transmit { to, len, insert: insert.map(Box::new), cipher }
    }

    /// Ends the conversations by whose keys no more may be sealed, before anything else is written.
    #[inline(always)]
    pub(super) fn end_spent(&mut self, now: Time) {
        #[cfg(feature = "secure")]
        if self.seals.secrets.has_spent() {
            self.forget_spent(now);
        }
        let _ = now;
    }

    /// Counts a datagram of `len` bytes that was written.
    #[inline]
    pub(super) fn count_written(&mut self, len: usize) {
        self.stats.sent += 1;
        self.stats.bytes_sent += len as u64;
    }

    /// Returns whether [`Server::transmit`] has nothing to send.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.answers.queue.is_empty() && self.sending.queue.is_empty() && self.draining.is_told()
    }

    /// Writes the next datagram that is ready into `out` (at least as long as
    /// [`crate::ServerConfig::max_datagram`]).
    pub fn transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        self.end_spent(now);
        while let Some(reply) = self.next_reply() {
            if let Some(sent) = self.write_replies(&reply, out) {
                return Some(sent);
            }
        }
        // Conversations take turns: each sends one datagram and goes to the end of the queue.
        while let Some((conversation, activity)) = self.sending.queue.pop_front() {
            let Some(place) = self.table.find(conversation) else {
                continue;
            };
            let Some(work) = self.existing_work(place, activity) else {
                continue;
            };
            work.queued = false;
            let (inside, whole) = (work.inside.is_some(), work.outgoing.is_none());
            if inside && let Some(sent) = self.write_inside(now, place, activity, out) {
                self.wake_next(place);
                return Some(sent);
            }
            if inside
                && let Some(work) = self.existing_work(place, activity)
                && work.outgoing.is_none()
            {
                if !work.waiting {
                    self.wake_next(place);
                }
                continue;
            }
            if !inside && whole {
                if let Some(sent) = self.write_whole(place, activity, out) {
                    self.wake_next(place);
                    return Some(sent);
                }
                self.begin_fragments(now, place, activity);
                self.enforce_held(now, (conversation, activity));
            }
            if let Some(sent) = self.write_fragment(now, place, activity, out) {
                self.wake_next(place);
                self.queue(place, activity);
                return Some(sent);
            }
        }
        if self.draining.is_told() { None } else { self.write_drain(out) }
    }

    /// Queues the result that has waited longest for room in the conversation's congestion window.
    pub(super) fn wake_next(&mut self, place: usize) {
        while let Some(more) = &mut self.table.at_mut(place).more
            && let Some(activity) = more.path.waiting.pop_front()
        {
            if let Some(work) = more.activities.work_mut(activity)
                && std::mem::take(&mut work.waiting)
                && (matches!(work.phase, Phase::Done(_)) || work.inside.is_some())
            {
                return self.queue(place, activity);
            }
        }
    }

    /// Writes the next fragment of a result. Returns `None` if the fragment must wait for an acknowledgement.
    fn write_fragment(&mut self, now: Time, place: usize, activity: u32, out: &mut [u8]) -> Option<Transmit> {
        let window = self.window(place);
        let entry = self.table.at(place);
        let (to, target) = (entry.address(), entry.target());
        let number = self.seals.next(target);
        let more = self.table.at_mut(place).more.as_mut()?;
        let datagram = more.datagram as usize;
        let work = more.activities.work_mut(activity)?;
        let (total, directions) = (work.len() as u32, work.directions());
        let (Phase::Done(status), Some(outgoing)) = (work.phase, &mut work.outgoing) else {
            self.wake_next(place);
            return None;
        };
        let mut writer = Writer::new(out, datagram, target);
        let max = writer.fragment_room(directions) & !3;
        let next = more.path.send_next((now, number), outgoing, (max, datagram), window);
        let Next::Range { start, end, again, ask } = next else {
            match next {
                Next::NoRoom => more.path.wait(activity, &mut work.waiting),
                // This call's exchanges found no room in the congestion window, so there is none for other
                // calls.
                _ if work.waiting => {}
                _ => self.wake_next(place),
            }
            return None;
        };
        let (before, range, behind) = work.pieces(start as usize..end as usize);
        let bytes = work.insert.as_deref().map(|insert| &insert.bytes);
        let within = bytes.map_or(&[][..], |bytes| &bytes[range.clone()]);
        // In a scheme with a checksum the bytes are copied, because a checksum is computed fastest over one
        // piece.
        let apart = target.scheme.closes_around() && within.len() >= UNCOPIED_INSERT_BYTES;
        let (head, fragment) =
            (ResultHead { position: work.position, status }, Fragment { total, offset: start as u32, ask });
        let at = writer.result_fragment((&head, directions), fragment, [before, within, behind], apart);
        let insert = bytes.filter(|_| apart).map(|bytes| Insert { at, bytes: bytes.slice(range) });
        self.stats.retransmitted += u64::from(again);
        Some(self.count_sent(to, writer, insert))
    }

    /// Sends a result in fragments from now on, because it does not fit one datagram.
    pub(super) fn begin_fragments(&mut self, now: Time, place: usize, activity: u32) {
        self.bound_round_trip(now, place);
        if let Some(more) = &mut self.table.at_mut(place).more
            && let Some(work) = more.activities.work_mut(activity)
            && matches!(work.phase, Phase::Done(_))
        {
            let total = work.len();
            work.outgoing = Some(more.path.begin(total));
            let accessed = if work.is_accessed() { total } else { 0 };
            more.begin_to_send(now, total);
            more.recount(&mut self.hosts, Kept::Accessed, 0, accessed);
            more.recount(&mut self.hosts, Kept::Results, counted_result(total), 0);
            more.recount(&mut self.hosts, Kept::Sending, 0, total);
        }
    }

    /// Queues an activity that has something to send.
    pub(super) fn queue(&mut self, place: usize, activity: u32) {
        let id = self.table.at(place).id;
        let Some(work) = self.existing_work(place, activity) else {
            return;
        };
        if !std::mem::replace(&mut work.queued, true) {
            self.sending.queue.push_back((id, activity));
        }
    }

    /// Sends a held outcome again, because the caller has asked for it.
    pub(super) fn send_again(&mut self, now: Time, place: usize, activity: u32) {
        self.stats.retransmitted += 1;
        self.send_held(now, place, activity);
    }

    /// Queues a held outcome to be sent, for the first time or again.
    pub(super) fn send_held(&mut self, now: Time, place: usize, activity: u32) {
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let (patience, datagram) = (more.patience(), more.datagram as usize);
        let Some(work) = more.activities.work_mut(activity) else {
            return;
        };
        work.since = now;
        if work.outgoing.is_none() {
            // Many probes in one datagram must not cause as many long answers. A caller that still misses a
            // result asks again.
            let Some(left) = self.answers.resend_bytes.checked_sub(RESULT_HEAD + work.payload.len()) else {
                return;
            };
            self.answers.resend_bytes = left;
            work.marks |= if work.inside.is_some() { TO_SEND } else { 0 };
        }
        if let Some(outgoing) = &mut work.outgoing {
            more.path.timed_out(now, outgoing, patience, datagram);
        }
        self.presume_lost(now, place);
        self.queue(place, activity);
    }

    /// Counts fragments as lost that were not acknowledged in time. Otherwise they would fill the
    /// conversation's window for ever if their calls have ended at the caller and its last acknowledgement
    /// was lost. Called when a caller waits in vain.
    pub(super) fn presume_lost(&mut self, now: Time, place: usize) {
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let patience = more.patience();
        // The pause grows with the number of calls, so that the search takes only a small part of the time.
        let rests = Duration::from_micros(more.works.into());
        if more.path.waiting.is_empty() || now.since(more.presumed) <= patience.max(rests) {
            return;
        }
        more.presumed = now;
        for outgoing in more.activities.works_mut().filter_map(|work| work.outgoing.as_mut()) {
            more.path.overdue(now, outgoing, patience);
        }
    }

    /// Queues a short answer, and returns whether there was room. The answers to a datagram have at most
    /// three times its bytes, and while many answers wait, each host and each network has only a share of the
    /// queue. Answers beyond these bounds are dropped; clients ask again.
    pub(super) fn reply(&mut self, reply: Reply) -> bool {
        let host = HostName::at(&reply.to);
        let waiting = self.answers.queue.len();
        if waiting >= MAX_REPLIES / 2 {
            let count = self.answers.counts.of(host);
            let is_scarce = waiting >= MAX_REPLIES - MAX_REPLIES / 4;
            let has_share =
                count.host >= REPLIES_OF_A_HOST || is_scarce && count.network >= REPLIES_OF_A_NETWORK;
            if has_share || waiting >= MAX_REPLIES {
                return false;
            }
        }
        // A SELECT is exempt from this bound: at most one is queued for each call whose arguments are
        // arriving.
        if !matches!(reply.answer, Answer::Select { .. }) {
            if self.answers.answer_bytes == 0 {
                return false;
            }
            self.answers.answer_bytes = self.answers.answer_bytes.saturating_sub(reply.answer.len());
        }
        self.answers.counts.add(host, 1);
        self.answers.queue.push_back(reply);
        true
    }

    /// Takes the next short answer.
    fn next_reply(&mut self) -> Option<Reply> {
        let reply = self.answers.queue.pop_front()?;
        self.answers.counts.remove(HostName::at(&reply.to));
        Some(reply)
    }

    pub(super) fn reply_to(&mut self, place: usize, answer: Answer) -> bool {
        let entry = self.table.at(place);
        let (to, target) = (entry.address(), entry.target());
        self.reply(Reply { to, target, answer })
    }

    pub(super) fn reply_state(&mut self, place: usize, position: Position, progress: Progress) {
        self.reply_to(place, Answer::State { position, progress });
    }

    pub(super) fn reply_failure(&mut self, place: usize, position: Position, failure: Failure) {
        let mut body = Vec::new();
        let status = wire::write_failure(&failure, &mut body);
        let answer = frames(|writer| {
            let fits = writer.result(&ResultHead { position, status }, &body);
            debug_assert!(fits, "a failure is short");
        });
        self.reply_to(place, Answer::Shared(answer));
    }

    /// Queues a SELECT, which says which of a call's arguments have arrived, as of when it is sent. It is
    /// queued only once, however often it is asked for.
    pub(super) fn reply_select(&mut self, place: usize, position: Position) {
        let conversation = self.table.at(place).id;
        let waits =
            self.existing_work(place, position.activity).is_none_or(|work| work.marks & TO_SELECT != 0);
        if (!waits || self.config.mutant.breaks(Rule::AnswersUnbounded))
            && self.reply_to(place, Answer::Select { conversation, position })
            && let Some(work) = self.existing_work(place, position.activity)
        {
            work.marks |= TO_SELECT;
        }
    }

    /// Writes a short answer, and the next ones that go to the same client.
    pub(super) fn write_replies(&mut self, first: &Reply, out: &mut [u8]) -> Option<Transmit> {
        let mut target = first.target;
        if self.config.mutant.breaks(Rule::AnswersOpen) {
            target = Target::without_secrets(target.conversation, Scheme::Open);
        }
        #[cfg(feature = "secure")]
        if let Answer::Again(datagram) = &first.answer {
            out.get_mut(..datagram.len())?.copy_from_slice(datagram);
            self.count_written(datagram.len());
            return Some(Transmit { to: first.to, len: datagram.len(), insert: None, cipher: None });
        }
        let limit = if let Answer::MtuEcho(size) = first.answer { size } else { BASE_DATAGRAM };
        let mut writer = Writer::new(out, limit, target);
        let mut wrote = self.write_answer(&first.answer, &mut writer);
        while first.answer.is_shared()
            && let Some(next) = self.answers.queue.front()
            && (next.to, next.target) == (first.to, first.target)
            && next.answer.is_shared()
            && next.answer.len() <= writer.room() + 2 * FRAME_HEAD
            && let Some(next) = self.next_reply()
        {
            wrote |= self.write_answer(&next.answer, &mut writer);
        }
        #[cfg(feature = "secure")]
        if let Answer::Sealed(_, answering, computed) = &first.answer {
            let datagram = writer.finish(self.seals.numbers.take());
            crate::secure::seal_answer(answering, datagram);
            let len = datagram.len();
            if let Some((question, at)) = computed {
                self.handshakes.answers.keep(*at, first.to, *question, datagram);
            }
            self.count_written(len);
            return Some(Transmit { to: first.to, len, insert: None, cipher: None });
        }
        let sealable = self.seals.may_seal(target);
        (wrote && sealable).then(|| self.count_sent(first.to, writer, None))
    }

    /// Writes a short answer, if it is still wanted.
    fn write_answer(&mut self, answer: &Answer, writer: &mut Writer<'_>) -> bool {
        match answer {
            Answer::Shared(frames) | Answer::Alone(frames) => writer.frames(frames),
            #[cfg(feature = "secure")]
            Answer::Sealed(frames, ..) => writer.frames(frames),
            #[cfg(feature = "secure")]
            Answer::Again(_) => {}
            Answer::State { position, progress } => writer.state(*position, *progress),
            Answer::MtuEcho(size) => writer.mtu(true, *size),
            Answer::Select { conversation, position } => {
                return self.write_select(*conversation, *position, writer).is_some();
            }
        }
        true
    }

    fn write_select(&mut self, conversation: u64, position: Position, writer: &mut Writer<'_>) -> Option<()> {
        let place = self.table.find(conversation)?;
        let work = self.existing_work(place, position.activity)?;
        if work.position.sequence != position.sequence {
            return None;
        }
        work.marks &= !TO_SELECT;
        let incoming = work.incoming.as_mut()?;
        writer.select(position, false, incoming.extent(), incoming.beyond());
        incoming.acknowledged();
        Some(())
    }
}

impl Answer {
    /// Returns whether other frames may share its datagram.
    fn is_shared(&self) -> bool {
        matches!(self, Answer::Shared(_) | Answer::State { .. } | Answer::Select { .. })
    }

    /// Returns the most bytes that the answer can take: its frames, and its share of the datagram around
    /// them.
    fn len(&self) -> usize {
        match self {
            Answer::Shared(frames) | Answer::Alone(frames) => frames.len() + FRAME_HEAD,
            #[cfg(feature = "secure")]
            Answer::Sealed(frames, ..) => frames.len() + FRAME_HEAD,
            #[cfg(feature = "secure")]
            Answer::Again(datagram) => datagram.len(),
            Answer::State { .. } => STATE_BYTES + FRAME_HEAD,
            Answer::Select { .. } => MAX_SELECT_BYTES,
            Answer::MtuEcho(size) => *size,
        }
    }
}

/// Writes the first results in the queue that belong to the conversation `id`, as long as each fits whole.
#[inline(always)]
fn write_next(sending: &mut VecDeque<(u64, u32)>, id: u64, more: &mut More, writer: &mut Writer<'_>) {
    while let Some(&(conversation, activity)) = sending.front()
        && conversation == id
        && let Some(work) = more.activities.work_mut(activity)
        && work.outgoing.is_none()
        && work.write(writer)
    {
        work.queued = false;
        sending.pop_front();
    }
}

/// Returns the frames that `write` writes. They fit every datagram.
pub(super) fn frames(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    wire::frames_by(BASE_DATAGRAM, Scheme::default(), write)
}

impl Work {
    /// Ends the call with a status, and holds its result. Leaves an empty buffer in `payload`: the former
    /// result's, or its own if that is much longer than the result.
    #[inline]
    pub(super) fn hold(&mut self, now: Time, status: Status, payload: &mut Vec<u8>, spare: &mut Spare) {
        debug_assert!(self.payload.is_empty());
        self.phase = Phase::Done(status);
        self.since = now;
        if payload.capacity() > MAX_IDLE_BUFFER_BYTES && payload.capacity() / 2 > payload.len() {
            return self.hold_copy(payload, spare);
        }
        std::mem::swap(&mut self.payload, payload);
    }

    /// Holds a copy of a result, because only the bytes of a result are counted, and not its buffer's.
    #[cold]
    fn hold_copy(&mut self, payload: &mut Vec<u8>, spare: &mut Spare) {
        if self.payload.capacity() == 0
            && let Some(short) = spare.short.pop()
        {
            self.payload = short;
        }
        self.payload.reserve_exact(payload.len().max(LEAST_BUFFER_BYTES));
        self.payload.extend_from_slice(payload);
        payload.clear();
    }

    /// Writes the whole result, if the call has one without exchanges and the result fits.
    #[inline(always)]
    fn write(&self, writer: &mut Writer<'_>) -> bool {
        let Phase::Done(status) = self.phase else {
            return false;
        };
        let alone = self.inside.is_none();
        alone && writer.result(&ResultHead { position: self.position, status }, &self.payload)
    }

    /// Writes the whole result of a call with exchanges, if there is one and it fits.
    pub(super) fn write_last(&self, writer: &mut Writer<'_>) -> bool {
        let Phase::Done(status) = self.phase else {
            return false;
        };
        let head = ResultHead { position: self.position, status };
        writer.result_after(&head, self.directions(), &self.payload)
    }
}
