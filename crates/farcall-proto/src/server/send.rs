//! What the server sends: results, their fragments, short answers.

use std::net::SocketAddr;
use std::time::Duration;

use super::hosts::{HostName, Kept};
use super::work::{ACCESS, GIVEN_UP, Last, PROMISED, Phase, TO_SELECT, Work};
use super::{CallKey, Finish, Insert, Parted, Server, Transmit};
use crate::scheme::{Direction, Scheme, Seal};
use crate::transfer::{Next, Outgoing};
use crate::wire::{
    self, Ended, Fragment, Handshake, Number, Part, Position, Progress, RESULT_HEAD, ResultHead, Stale,
    Status, Target, Ticket, VERSION, Welcome, Writer,
};
use crate::{BASE_DATAGRAM, Failure, Kind, Ran, Rule, Time};

/// Fewer bytes are copied into a datagram, whatever they stand in.
const WORTH: usize = 8 << 10;

/// Many results of so many bytes are much, if they wait to be sent.
const MUCH: usize = 16 << 10;

/// A result of so many bytes fits every datagram.
pub const SHORT: usize = 1 << 10;

/// Short answers that may wait to be sent; further ones are dropped, and asked for again.
const MAX_REPLIES: usize = 8192;

/// Each host may have this many short answers waiting in any case, and no more while `MAX_REPLIES / 2` wait.
const REPLIES_OF_A_HOST: u32 = 256;

/// The longest SELECT that a server sends.
const SELECT_MOST: usize = 36 + 8 * wire::MAX_RANGES;

/// A short answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub to: SocketAddr,
    pub target: Target,
    /// The most bytes that the datagram may have.
    pub limit: usize,
    pub answer: Answer,
}

/// What the answer to a bind says of handshakes: the server's, of which the part from `offset` on is sent,
/// and how many bytes of the client's have arrived.
#[derive(Debug, Default)]
pub(super) struct OwnPart {
    pub bytes: Vec<u8>,
    pub offset: u32,
    pub through: u32,
}

/// The answer to a bind.
#[derive(Debug)]
pub(super) struct Granting {
    pub nonce: u64,
    pub conversation: u64,
    pub ticket: Ticket<'static>,
    pub refused: u16,
    pub scheme: Scheme,
    pub export: u64,
    pub ended: Option<Ended>,
    pub part: OwnPart,
    /// The first of the export's procedures that the answer lists.
    pub from: u32,
}

#[derive(Debug)]
pub(super) enum Answer {
    Welcome(Box<Granting>),
    Challenge {
        conversation: u64,
        number: u64,
    },
    Stale(Stale),
    State(Position, Progress),
    /// What has arrived of a call's arguments, as it is when the answer is written.
    Select {
        conversation: u64,
        position: Position,
    },
    Failure(Position, Failure),
    MtuEcho,
}

/// The conversation that a call has come from, as long as nothing else happens to the server.
#[derive(Debug)]
pub struct Origin(pub(super) usize);

/// A datagram for one call's outcome that lacks only that. It leaves before the server is told of the outcome,
/// so that the caller does not wait for what must be noted.
#[derive(Debug)]
pub struct Envelope {
    target: Target,
    number: Number,
    datagram: u32,
}

impl Envelope {
    /// Writes the datagram of an outcome that is a result or an exception and fits, and gives its length. It goes to
    /// whoever called, and [`Server::sent`] is told. Any other outcome is for [`Server::finish`].
    #[inline(always)]
    pub fn write(self, key: CallKey, finish: &Finish, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        let status = match finish {
            Finish::Result => Status::Result,
            Finish::Exception => Status::Exception,
            Finish::Failed(_) => return None,
        };
        let mut writer = Writer::new(out, self.datagram as usize, self.target);
        let position = Position::of_call(key.activity, key.sequence);
        let written = payload.len().is_multiple_of(4)
            && writer.result_if_fits(&ResultHead { position, status }, payload);
        written.then(|| writer.finish(self.number))
    }
}

impl Server {
    /// For the outcome of a call that has just come.
    #[inline(always)]
    pub fn envelope(&mut self, origin: &Origin) -> Envelope {
        let entry = self.table.at(origin.0);
        let (target, number) = (entry.target(), self.numbers.take());
        Envelope {
            target,
            number,
            datagram: entry.more.as_ref().map_or(BASE_DATAGRAM as u32, |more| more.datagram),
        }
    }

    /// A call's outcome has left in its [`Envelope`], in `len` bytes, and is held like any other. The payload is
    /// taken, and an empty buffer left in its place, which was used before.
    #[inline(always)]
    pub fn sent(&mut self, now: Time, key: CallKey, finish: Finish, payload: &mut Vec<u8>, len: usize) {
        self.stats.sent += 1;
        self.stats.bytes_sent += len as u64;
        if self.conclude(now, key, finish, payload, 0).is_some() {
            self.enforce_held(now, (key.conversation, key.activity));
        }
    }

    /// Gives back a call's outcome. When it fits one datagram that is written into `out` and
    /// returned; else [`Server::transmit`] has the fragments. Ignored if the call is no longer the
    /// last of its activity. The payload is taken, and an empty buffer left in its place, which was used before.
    #[inline(always)]
    pub fn finish(
        &mut self,
        now: Time,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let place = self.conclude(now, key, finish, payload, 0)?;
        let sent = self.write_whole(place, key.activity, out);
        if sent.is_none() {
            self.begin_fragments(now, place, key.activity);
            self.queue(place, key.activity);
        }
        self.enforce_held(now, (key.conversation, key.activity));
        sent
    }

    /// As [`Server::finish`], but leaves the sending to [`Server::transmit`], where outcomes of one
    /// conversation share datagrams.
    pub fn finish_later(&mut self, now: Time, key: CallKey, finish: Finish, payload: &mut Vec<u8>) {
        let len = payload.len();
        if let Some(place) = self.conclude(now, key, finish, payload, 0) {
            if len > MUCH {
                self.begin_if_long(now, place, key.activity);
            }
            self.queue(place, key.activity);
            self.enforce_held(now, (key.conversation, key.activity));
        }
    }

    /// What fits no datagram is being sent from now on, and not only held.
    #[cold]
    fn begin_if_long(&mut self, now: Time, place: usize, activity: u32) {
        let datagram =
            self.table.at(place).more.as_ref().map_or(BASE_DATAGRAM, |more| more.datagram as usize);
        if self.existing_work(place, activity).is_some_and(|work| work.len() > datagram) {
            self.begin_fragments(now, place, activity);
        }
    }

    /// As [`Server::finish`] for an access's outcome, or as [`Server::finish_later`] if `out` is empty. What fits no
    /// datagram counts from now on as being sent, see [`Server::has_room`].
    pub fn finish_access(
        &mut self,
        now: Time,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let place = self.conclude(now, key, finish, payload, 0)?;
        let datagram =
            self.table.at(place).more.as_ref().map_or(BASE_DATAGRAM, |more| more.datagram as usize);
        let work = self.existing_work(place, key.activity)?;
        let len = work.len();
        work.marks |= ACCESS;
        let sent = if out.is_empty() { None } else { self.write_whole(place, key.activity, out) };
        if sent.is_none() {
            if len > datagram {
                self.begin_fragments(now, place, key.activity);
            }
            self.queue(place, key.activity);
        }
        self.enforce_held(now, (key.conversation, key.activity));
        sent
    }

    /// As [`Server::finish_later`] for an outcome that has `insert` in it.
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
        let Some(place) = self.conclude(now, key, finish, payload, insert.bytes.len()) else {
            return self.loose.push(insert.bytes);
        };
        match self.existing_work(place, key.activity) {
            Some(work) if matches!(work.phase, Phase::Done(Status::Result | Status::Exception)) => {
                work.insert = Some(Box::new(insert));
                self.begin_fragments(now, place, key.activity);
            }
            _ => self.loose.push(insert.bytes),
        }
        self.queue(place, key.activity);
        self.enforce_held(now, (key.conversation, key.activity));
    }

    /// Holds a call's outcome; the conversation's place, if the outcome is to be sent. Nothing if the
    /// user does not have the call, or it is not the last of its activity.
    #[inline(always)]
    fn conclude(
        &mut self,
        now: Time,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
        inserted: usize,
    ) -> Option<usize> {
        self.unfinished = self.unfinished.saturating_sub(1);
        let place = self.table.find(key.conversation);
        let mut more = place.and_then(|place| self.table.at_mut(place).more.as_deref_mut());
        let work = more.as_mut().and_then(|more| more.find_mut(key.activity));
        let Some(work) = work.filter(|w| w.phase == Phase::Running && w.position.sequence == key.sequence)
        else {
            self.recycle(std::mem::take(payload));
            return None;
        };
        let len = payload.len() + inserted;
        let fits = len.is_multiple_of(4) && u32::try_from(len).is_ok();
        // What a procedure returned after its caller had given it up is dropped: it may have returned it
        // because it was told so.
        let wanted = work.marks & GIVEN_UP == 0 || self.config.mutant.breaks(Rule::LateResult);
        let status = match finish {
            Finish::Result if fits && wanted => Status::Result,
            Finish::Exception if fits && wanted => Status::Exception,
            finish => return self.conclude_failed(now, place?, key, finish, payload),
        };
        work.hold(now, status, payload);
        let promised = work.marks & PROMISED != 0;
        if let Some(more) = more {
            more.running -= 1;
            more.charge(&mut self.hosts, Kept::Results, len);
        }
        if promised {
            self.end_promise(place?, key.activity);
        }
        place
    }

    /// Ends a call that failed, was refused, or has a result that cannot be sent.
    #[cold]
    fn conclude_failed(
        &mut self,
        now: Time,
        place: usize,
        key: CallKey,
        finish: Finish,
        payload: &mut Vec<u8>,
    ) -> Option<usize> {
        let given_up = self.existing_work(place, key.activity).is_some_and(|work| work.marks & GIVEN_UP != 0);
        let failure = match finish {
            Finish::Failed(failure) if given_up && failure.ran != Ran::No => {
                Failure::new(Kind::Cancelled, failure.ran)
            }
            Finish::Failed(failure) => *failure,
            Finish::Result | Finish::Exception if given_up => Failure::new(Kind::Cancelled, Ran::Yes),
            Finish::Result | Finish::Exception => {
                let detail = format!("a result of {} bytes, which is not XDR or too long", payload.len());
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
        more.find_mut(key.activity)?.hold(now, status, payload);
        more.running -= 1;
        more.charge(&mut self.hosts, Kept::Results, len);
        self.end_promise(place, key.activity);
        Some(place)
    }

    /// Writes a result that fits one datagram, and with it those that are next and go the same way.
    #[inline(always)]
    fn write_whole(&mut self, place: usize, activity: u32, out: &mut [u8]) -> Option<Transmit> {
        let entry = self.table.at_mut(place);
        let target = entry.target();
        let more = entry.more.as_mut()?;
        let mut writer = Writer::new(out, more.datagram as usize, target);
        if !more.find_mut(activity)?.write(&mut writer) {
            return None;
        }
        while let Some(&(conversation, activity)) = self.sending.front()
            && conversation == entry.id
            && let Some(work) = more.find_mut(activity)
            && work.outgoing.is_none()
            && work.write(&mut writer)
        {
            work.queued = false;
            self.sending.pop_front();
        }
        let to = entry.address();
        Some(self.count_sent(to, writer))
    }

    #[inline]
    fn count_sent(&mut self, to: SocketAddr, writer: Writer<'_>) -> Transmit {
        let len = writer.finish(self.numbers.take());
        self.count_written(len);
        Transmit { to, len }
    }

    /// Counts a datagram of `len` bytes that was written.
    #[inline]
    pub(super) fn count_written(&mut self, len: usize) {
        self.stats.sent += 1;
        self.stats.bytes_sent += len as u64;
    }

    /// Writes the next datagram that is ready into `out` (at least as long as
    /// [`crate::ServerConfig::max_datagram`]).
    #[inline]
    pub fn transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        if self.is_quiet() {
            return None;
        }
        self.transmit_next(now, out, false).map(|Parted { to, len, .. }| Transmit { to, len })
    }

    /// Writes the next datagram that is ready. Much of it may not be written but stand elsewhere, in the part
    /// list of a result.
    #[inline]
    pub fn transmit_parted(&mut self, now: Time, out: &mut [u8]) -> Option<Parted> {
        if self.is_quiet() { None } else { self.transmit_next(now, out, true) }
    }

    /// Whether there is nothing for [`Server::transmit`].
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.replies.is_empty() && self.sending.is_empty()
    }

    fn transmit_next(&mut self, now: Time, out: &mut [u8], parted: bool) -> Option<Parted> {
        while let Some(reply) = self.next_reply() {
            if let Some(sent) = self.write_replies(&reply, out) {
                return Some(sent.into());
            }
        }
        // Conversations take turns: each sends one datagram and goes to the end of the queue.
        while let Some((conversation, activity)) = self.sending.pop_front() {
            let Some(place) = self.table.find(conversation) else {
                continue;
            };
            let Some(work) = self.existing_work(place, activity) else {
                continue;
            };
            work.queued = false;
            if work.outgoing.is_none() {
                if let Some(sent) = self.write_whole(place, activity, out) {
                    self.wake_next(place);
                    return Some(sent.into());
                }
                self.begin_fragments(now, place, activity);
                self.enforce_held(now, (conversation, activity));
            }
            if let Some(sent) = self.write_fragment(now, place, activity, out, parted) {
                self.wake_next(place);
                self.queue(place, activity);
                return Some(sent);
            }
        }
        None
    }

    /// There may be room in a conversation's congestion window: the result that waits for it longest
    /// may try.
    pub(super) fn wake_next(&mut self, place: usize) {
        while let Some(more) = &mut self.table.at_mut(place).more
            && let Some(activity) = more.waiting.pop_front()
        {
            if let Some(work) = more.find_mut(activity)
                && std::mem::take(&mut work.waiting)
                && matches!(work.phase, Phase::Done(_))
            {
                return self.queue(place, activity);
            }
        }
    }

    /// Writes the next fragment of a result; `None` if it must wait for the receiver's word.
    fn write_fragment(
        &mut self,
        now: Time,
        place: usize,
        activity: u32,
        out: &mut [u8],
        parted: bool,
    ) -> Option<Parted> {
        let (number, window) = (self.numbers.next(), self.window(place));
        let entry = self.table.at(place);
        let (to, target) = (entry.address(), entry.target());
        let more = self.table.at_mut(place).more.as_mut()?;
        let datagram = more.datagram as usize;
        let room = more.congestion.room(datagram, more.in_flight, more.waiting.len(), window);
        let work = more.find_mut(activity)?;
        let total = work.len() as u32;
        let (Phase::Done(status), Some(outgoing)) = (work.phase, &mut work.outgoing) else {
            self.wake_next(place);
            return None;
        };
        let mut writer = Writer::new(out, datagram, target);
        let max = writer.fragment_room() & !3;
        let (start, end, again, ask) = match outgoing.next(max as u32, room) {
            Next::Range { start, end, again, ask } => (start, end, again, ask),
            Next::NoRoom => {
                if !std::mem::replace(&mut work.waiting, true) {
                    more.waiting.push_back(activity);
                }
                return None;
            }
            Next::Nothing => {
                self.wake_next(place);
                return None;
            }
        };
        let before = outgoing.in_flight();
        outgoing.sent(now, number, start, end, ask);
        let flying = outgoing.in_flight() - before;
        let (before, range, behind) = work.pieces(start as usize..end as usize);
        let bytes = work.insert.as_deref().map(|insert| &insert.bytes);
        let within = bytes.map_or(&[][..], |bytes| &bytes[range.clone()]);
        // (A checksum is best made of what stands in one place.)
        let apart = parted && target.seal.closes_around() && within.len() >= WORTH;
        let (head, fragment) =
            (ResultHead { position: work.position, status }, Fragment { total, offset: start, ask });
        let at = writer.result_fragment(&head, fragment, [before, within, behind], apart);
        let insert = bytes.filter(|_| apart).map(|bytes| Insert { at, bytes: bytes.slice(range) });
        more.in_flight += flying;
        self.stats.retransmitted += u64::from(again);
        Some(self.count_parted(to, writer, insert))
    }

    fn count_parted(&mut self, to: SocketAddr, writer: Writer<'_>, insert: Option<Insert>) -> Parted {
        let inserted = insert.as_ref().map_or(0, |insert| insert.bytes.len());
        let len = writer.finish_around(inserted, self.numbers.take());
        self.stats.sent += 1;
        self.stats.bytes_sent += (len + inserted) as u64;
        Parted { to, len, insert }
    }

    /// A result does not fit one datagram, or no longer does.
    fn begin_fragments(&mut self, now: Time, place: usize, activity: u32) {
        if let Some(more) = &mut self.table.at_mut(place).more
            && let granted = more.granted
            && let Some(work) = more.find_mut(activity)
            && matches!(work.phase, Phase::Done(_))
        {
            let total = work.len();
            work.outgoing = Some(Box::new(Outgoing::new(total as u32, granted)));
            let accessed = if work.is_accessed() { total } else { 0 };
            more.begin_to_send(now, total);
            more.charge(&mut self.hosts, Kept::Accessed, accessed);
            more.credit(&mut self.hosts, Kept::Results, total);
            more.charge(&mut self.hosts, Kept::Sending, total);
        }
        self.enforce_sending(now, (self.table.at(place).id, activity));
    }

    /// Puts a result into the queue of those that have something to send.
    pub(super) fn queue(&mut self, place: usize, activity: u32) {
        let id = self.table.at(place).id;
        let Some(work) = self.existing_work(place, activity) else {
            return;
        };
        if !std::mem::replace(&mut work.queued, true) {
            self.sending.push_back((id, activity));
        }
    }

    /// The caller asks for a result that was sent. When it asked it had had nothing, but fragments
    /// may have arrived since.
    pub(super) fn send_again(&mut self, now: Time, place: usize, activity: u32) {
        self.stats.retransmitted += 1;
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let (patience, datagram) = (more.patience(), more.datagram as usize);
        let Some(work) = more.find_mut(activity) else {
            return;
        };
        work.since = now;
        if work.outgoing.is_none() {
            // Many probes in one datagram are not to make as many long datagrams: who lacks more asks again.
            let Some(left) = self.again.checked_sub(RESULT_HEAD + work.payload.len()) else { return };
            self.again = left;
        }
        if let Some(outgoing) = &mut work.outgoing {
            let before = outgoing.in_flight();
            let lost = outgoing.overdue(now, patience);
            let after = outgoing.in_flight();
            more.in_flight -= before - after;
            if let Some(since) = lost {
                more.congestion.lost(now, since, datagram);
            }
        }
        self.presume_lost(now, place);
        self.queue(place, activity);
    }

    /// A caller waits in vain, perhaps because the conversation's window is taken by fragments of
    /// calls that have ended at the caller, whose last word was lost: they are not under way for ever.
    pub(super) fn presume_lost(&mut self, now: Time, place: usize) {
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let patience = more.patience();
        // To look through them shall take little of the time, however many there are.
        let rests = Duration::from_micros(more.works.into());
        if more.waiting.is_empty() || now.since(more.presumed) <= patience.max(rests) {
            return;
        }
        more.presumed = now;
        let mut lost = 0;
        for work in more.works_mut() {
            if let Some(outgoing) = &mut work.outgoing {
                let before = outgoing.in_flight();
                outgoing.overdue(now, patience);
                lost += before - outgoing.in_flight();
            }
        }
        more.in_flight -= lost;
    }

    /// Queues a short answer, and returns whether there was room. A datagram is answered by at most three
    /// times its bytes, and where many answers wait each host has a share. Answers beyond that are dropped;
    /// clients ask again.
    pub(super) fn reply(&mut self, reply: Reply) -> bool {
        let host = HostName::at(&reply.to);
        let crowded = self.replies.len() >= MAX_REPLIES / 2 && self.replying.of(host) >= REPLIES_OF_A_HOST;
        if crowded || self.replies.len() >= MAX_REPLIES {
            return false;
        }
        // (Of these there is one for a call whose arguments are arriving.)
        if !matches!(reply.answer, Answer::Select { .. }) {
            if self.answers == 0 {
                return false;
            }
            self.answers = self.answers.saturating_sub(reply.answer.len());
        }
        self.replying.add(host);
        self.replies.push_back(reply);
        true
    }

    /// The next short answer that waits.
    fn next_reply(&mut self) -> Option<Reply> {
        let reply = self.replies.pop_front()?;
        self.replying.remove(HostName::at(&reply.to));
        Some(reply)
    }

    fn reply_to(&mut self, place: usize, answer: Answer) -> bool {
        let entry = self.table.at(place);
        let (to, target) = (entry.address(), entry.target());
        self.reply(Reply { to, target, limit: BASE_DATAGRAM, answer })
    }

    pub(super) fn reply_state(&mut self, place: usize, position: Position, progress: Progress) {
        self.reply_to(place, Answer::State(position, progress));
    }

    pub(super) fn reply_failure(&mut self, place: usize, position: Position, failure: Failure) {
        self.reply_to(place, Answer::Failure(position, failure));
    }

    /// Queues a SELECT for a call's arguments. It says what has arrived when it is sent, and is queued only
    /// once, however often it is asked for.
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

    /// Writes a short answer, and with it those that are next and go the same way.
    fn write_replies(&mut self, first: &Reply, out: &mut [u8]) -> Option<Transmit> {
        let mut target = first.target;
        if self.config.mutant.breaks(Rule::AnswersOpen) {
            target.seal = Seal::without_key(Scheme::Open, Direction::ToClient);
        }
        let mut writer = Writer::new(out, first.limit, target);
        let mut wrote = self.write_reply(first, &mut writer);
        while first.answer.is_shared()
            && let Some(next) = self.replies.front()
            && (next.to, next.target) == (first.to, first.target)
            && next.answer.is_shared()
            && writer.fits(next.answer.len())
            && let Some(next) = self.next_reply()
        {
            wrote |= self.write_reply(&next, &mut writer);
        }
        wrote.then(|| self.count_sent(first.to, writer))
    }

    /// Writes a short answer, if it is still to be given.
    fn write_reply(&mut self, reply: &Reply, writer: &mut Writer<'_>) -> bool {
        match &reply.answer {
            Answer::Welcome(granting) => return self.write_welcome(granting, reply.to, writer),
            Answer::Challenge { conversation, number } => writer.challenge(*conversation, *number),
            Answer::Stale(stale) => writer.stale(stale),
            Answer::State(position, progress) => writer.state(*position, *progress),
            Answer::Select { conversation, position } => {
                return self.write_select(*conversation, *position, writer).is_some();
            }
            Answer::Failure(position, failure) => {
                let mut body = Vec::new();
                let status = wire::write_failure(failure, &mut body);
                writer.result(&ResultHead { position: *position, status }, Part::whole(&body));
            }
            Answer::MtuEcho => writer.mtu(true, reply.limit),
        }
        true
    }

    fn write_welcome(&self, granting: &Granting, seen: SocketAddr, writer: &mut Writer<'_>) -> bool {
        let procedures = self.exports.get(granting.export).map_or(&[][..], |e| &e.procedures);
        let welcome = Welcome {
            nonce: granting.nonce,
            conversation: granting.conversation,
            ticket: granting.ticket.clone(),
            versions: (u16::from(VERSION), u16::from(VERSION)),
            refused: granting.refused,
            scheme: granting.scheme as u16,
            export: granting.export,
            total: procedures.len() as u32,
            seen,
            ended: granting.ended,
            handshake: granting.part.as_on_wire(),
            procedures: &[],
        };
        writer.welcome(&welcome, procedures.get(granting.from as usize..).unwrap_or_default())
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

impl OwnPart {
    /// The handshake from `offset` on. As much of it is written as fits.
    fn as_on_wire(&self) -> Handshake<'_> {
        let total = self.bytes.len() as u32;
        let offset = self.offset.min(total);
        Handshake { total, offset, through: self.through, part: &self.bytes[offset as usize..] }
    }
}

impl Answer {
    /// Whether others may stand beside it in a datagram.
    fn is_shared(&self) -> bool {
        matches!(self, Answer::State(..) | Answer::Select { .. } | Answer::Failure(..))
    }

    /// About how many bytes its frame has; no fewer, if it may stand beside others.
    fn len(&self) -> usize {
        match self {
            Answer::State(..) => 24,
            Answer::Select { .. } => SELECT_MOST,
            Answer::Failure(_, failure) => {
                28 + wire::opaque_len(failure.detail.len().min(Failure::MAX_DETAIL))
            }
            Answer::Welcome(_) | Answer::Challenge { .. } | Answer::Stale(_) | Answer::MtuEcho => {
                BASE_DATAGRAM
            }
        }
    }
}

impl From<Transmit> for Parted {
    fn from(Transmit { to, len }: Transmit) -> Parted {
        Parted { to, len, insert: None }
    }
}

impl Work {
    /// It ended so; holds the result, and gives the room of the one before for it.
    #[inline]
    fn hold(&mut self, now: Time, status: Status, payload: &mut Vec<u8>) {
        debug_assert!(self.payload.is_empty());
        self.phase = Phase::Done(status);
        std::mem::swap(&mut self.payload, payload);
        self.since = now;
    }

    /// Writes the result whole, if it is there and there is room.
    #[inline(always)]
    fn write(&self, writer: &mut Writer<'_>) -> bool {
        let Phase::Done(status) = self.phase else {
            return false;
        };
        writer.result_if_fits(&ResultHead { position: self.position, status }, &self.payload)
    }
}
