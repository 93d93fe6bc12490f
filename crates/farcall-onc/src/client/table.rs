//! The calls of one link by their identifiers, who waits for each, and what is to be sent. No sockets here.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use farcall::env::{Event, Time};
use farcall::wait::ReadyToken;
use farcall::{Kind, Ran, guard};

use super::resealer::Resealer;

/// The most calls under way, and the most bytes that wait to be sent.
const MAX_CALLS: usize = 1 << 16;
const MAX_UNSENT_BYTES: usize = 64 << 20;

/// A reply as it came, header and all.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) kept: Kept,
    /// Its call was sent more than once.
    pub(crate) repeated: bool,
}

/// How a reply is kept.
#[derive(Debug)]
pub(crate) enum Kept {
    /// In a buffer that is used again.
    Short(Vec<u8>),
    /// Results may share it.
    Long(Bytes),
}

/// Why a call has no reply: the failure that the transport met.
#[derive(Clone, Debug)]
pub(crate) struct TransportError {
    pub(crate) kind: Kind,
    pub(crate) ran: Ran,
    pub(crate) why: Arc<str>,
    /// Its identifier is that of a call that was made 2^32 calls before and is still under way: nothing was
    /// sent.
    pub(crate) id_in_use: bool,
}

impl TransportError {
    pub(crate) fn new(kind: Kind, ran: Ran, why: impl Into<Arc<str>>) -> TransportError {
        TransportError { kind, ran, why: why.into(), id_in_use: false }
    }

    #[cold]
    pub(crate) fn overloaded(why: &str) -> TransportError {
        TransportError::new(Kind::Overloaded, Ran::No, why)
    }

    /// The reply did not come in time.
    #[cold]
    pub(crate) fn late() -> TransportError {
        TransportError::new(Kind::Deadline, Ran::Maybe, "")
    }

    #[cold]
    pub(crate) fn id_in_use() -> TransportError {
        TransportError {
            id_in_use: true,
            ..TransportError::new(Kind::Overloaded, Ran::No, "its identifier is in use")
        }
    }
}

pub(crate) type Outcome = Result<Body, TransportError>;

/// What is woken when a call has ended.
#[derive(Default)]
pub(crate) enum Watcher {
    /// Nobody, or the leader.
    #[default]
    Nobody,
    Thread(Arc<dyn Event>),
    Task(Waker),
    /// A thread that gathers the ends of several calls, and whether it waits at this link.
    Gatherer(ReadyToken, bool),
}

impl Watcher {
    /// Whether the service thread must receive for it.
    fn needs_service(&self) -> bool {
        matches!(self, Watcher::Task(_) | Watcher::Gatherer(_, false))
    }

    /// Wakes it. No lock is held. `leading` says that the calling thread leads at the link.
    pub(crate) fn wake(self, leading: bool) {
        match self {
            Watcher::Nobody => {}
            Watcher::Thread(event) => event.set(),
            // A panic in it is not that of the caller who happens to lead.
            Watcher::Task(waker) => guard::run_alone("a waker", || waker.wake()),
            Watcher::Gatherer(token, here) => guard::run_alone("a waker", || match here && leading {
                true => token.mark_ready_serving(),
                false => token.mark_ready(),
            }),
        }
    }
}

/// A datagram that is sent again until its reply comes: the same bytes, or another copy of the call.
pub(crate) struct Retransmission {
    pub(crate) message: Vec<u8>,
    pub(crate) resealer: Option<Arc<Resealer>>,
    pub(crate) at: Time,
    /// How long the next pause is.
    pub(crate) pause: Duration,
    /// It was sent again.
    pub(crate) repeated: bool,
}

impl Retransmission {
    pub(crate) fn new(
        message: &[u8],
        resealer: Option<Arc<Resealer>>,
        now: Time,
        pause: Duration,
    ) -> Retransmission {
        // Copies have the message themselves.
        let message = if resealer.is_some() { Vec::new() } else { message.to_vec() };
        Retransmission { message, resealer, at: now + pause, pause: next_pause(pause), repeated: false }
    }
}

/// What is sent again: the message, unless there are copies to take another from, with no lock held.
pub(crate) type Repeat = (Vec<u8>, Option<Arc<Resealer>>);

/// A call that has no reply yet, or whose reply has not been fetched.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) watcher: Watcher,
    pub(crate) outcome: Option<Outcome>,
    /// How long the stream was, with this call's record at its end.
    pub(crate) end: u64,
    /// How much had come when it was sent.
    pub(crate) heard: u64,
    pub(crate) deadline: Option<Time>,
    /// Of a started call over datagrams.
    pub(crate) retransmission: Option<Box<Retransmission>>,
    /// No thread waits for it and minds its timers.
    pub(crate) unattended: bool,
    /// Nobody will fetch its reply.
    pub(crate) detached: bool,
}

/// Hashes identifiers of calls. They are distinct and follow one another, so their low bits spread.
#[derive(Default)]
pub(crate) struct XidHasher(u64);

impl Hasher for XidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, id: u32) {
        // The table looks at the highest bits too.
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The calls of one link, and what is to be sent.
#[derive(Default)]
pub(crate) struct Table {
    calls: HashMap<u32, Entry, BuildHasherDefault<XidHasher>>,
    /// Why there can be no more.
    pub(crate) broken: Option<TransportError>,
    pub(crate) send_queue: SendQueue,
    /// The identifier of the last call that was made by the leader and not entered. The call is under way at
    /// most while somebody leads.
    pub(crate) leader_xid: u32,
    /// Calls under way whose timers no thread minds, and those for which the service thread must receive.
    unattended: usize,
    for_service: usize,
    /// Nothing that no thread minds is due earlier.
    pub(crate) timer: Option<Time>,
    /// The service thread looks after this link.
    pub(crate) listed: bool,
    /// It will hear when something comes.
    pub(crate) watched: bool,
    /// How many calls were ever started.
    pub(crate) started: u64,
}

/// The bytes that wait to be sent on a stream.
#[derive(Default)]
pub(crate) struct SendQueue {
    /// What waits to be sent.
    pub(crate) out: Vec<u8>,
    /// How long the stream is with all that, and how much of it the system may have been given.
    pub(crate) length: u64,
    pub(crate) handed: u64,
    /// A thread is sending, with no lock held. It will send what is in `out` too.
    pub(crate) writing: bool,
    /// The system takes no more for now.
    pub(crate) blocked: bool,
}

impl SendQueue {
    /// Notes that every counted message which does not wait in `out` is given to the system.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        self.writing = true;
        self.handed = self.length;
    }

    /// Notes that the system took `sent` of these bytes; the rest waits to be sent first. Returns whether it
    /// took all.
    #[inline]
    pub(crate) fn took(&mut self, bytes: &[u8], sent: usize) -> bool {
        self.writing = false;
        let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) else { return true };
        let mut rest = rest.to_vec();
        rest.append(&mut self.out);
        self.out = rest;
        self.handed = self.length - self.out.len() as u64;
        self.blocked = true;
        false
    }

    /// Notes that the system took none of these bytes and never will. Calls whose records end in them did not
    /// run.
    #[cold]
    pub(crate) fn took_none(&mut self, bytes: usize) {
        self.writing = false;
        self.handed = self.length - (self.out.len() + bytes) as u64;
    }

    /// Whether a call may have run whose record ends there, now that the stream has ended: not if its end was
    /// never handed over, for then nobody has read it.
    pub(crate) fn may_have_run(&self, end: u64) -> Ran {
        if end > self.handed { Ran::No } else { Ran::Maybe }
    }
}

impl Table {
    /// Counts a message, if it may be sent, and returns the length of the stream with it. `xid` is the
    /// identifier of a call that gets a reply, and `is_led` whether a thread leads.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        xid: Option<u32>,
        is_led: bool,
        message: &[u8],
    ) -> Result<u64, TransportError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let in_use =
            |xid| is_led && self.leader_xid == xid || !self.calls.is_empty() && self.calls.contains_key(&xid);
        if xid.is_some_and(in_use) {
            return Err(TransportError::id_in_use());
        }
        if !self.send_queue.out.is_empty() && self.send_queue.out.len() + message.len() > MAX_UNSENT_BYTES {
            return Err(TransportError::overloaded("too many bytes wait to be sent"));
        }
        self.send_queue.length += message.len() as u64;
        Ok(self.send_queue.length)
    }

    /// Enters a call whose message was counted. If too many calls are under way it fails, and the message
    /// must not be sent.
    pub(crate) fn begin(&mut self, xid: u32, entry: Entry) -> Result<(), TransportError> {
        if self.len() >= MAX_CALLS {
            self.send_queue.length = self.send_queue.handed + self.send_queue.out.len() as u64;
            return Err(TransportError::overloaded("too many calls are under way"));
        }
        self.enter(xid, entry);
        Ok(())
    }

    /// Enters a call.
    pub(crate) fn enter(&mut self, xid: u32, entry: Entry) {
        self.unattended += usize::from(entry.unattended);
        self.for_service += usize::from(entry.watcher.needs_service());
        if entry.unattended {
            let due = [entry.retransmission.as_ref().map(|next| next.at), entry.deadline, self.timer];
            self.timer = due.into_iter().flatten().min();
        }
        self.calls.insert(xid, entry);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether a call is under way that has this identifier.
    pub(crate) fn expects(&self, xid: u32) -> bool {
        self.calls.get(&xid).is_some_and(|entry| entry.outcome.is_none())
    }

    /// A call has ended. Who is to be told, with no lock held.
    pub(crate) fn end(&mut self, xid: u32, mut outcome: Outcome) -> Watcher {
        let Some(entry) = self.calls.get_mut(&xid).filter(|entry| entry.outcome.is_none()) else {
            return Watcher::Nobody;
        };
        let watcher = mem::take(&mut entry.watcher);
        self.unattended -= usize::from(entry.unattended);
        self.for_service -= usize::from(watcher.needs_service());
        if entry.detached {
            self.calls.remove(&xid);
            return watcher;
        }
        if let (Some(retransmission), Ok(body)) = (entry.retransmission.take(), &mut outcome) {
            body.repeated = retransmission.repeated;
        }
        entry.outcome = Some(outcome);
        watcher
    }

    /// How much had come when a call was sent.
    pub(crate) fn heard(&self, xid: u32) -> u64 {
        self.calls.get(&xid).map_or(0, |entry| entry.heard)
    }

    /// Takes a call out whose reply its thread has.
    pub(crate) fn remove(&mut self, xid: u32) -> Option<Entry> {
        let entry = self.calls.remove(&xid)?;
        if entry.outcome.is_none() {
            self.unattended -= usize::from(entry.unattended);
            self.for_service -= usize::from(entry.watcher.needs_service());
        }
        Some(entry)
    }

    /// Takes a call out if it has ended.
    pub(crate) fn fetch(&mut self, xid: u32) -> Option<Outcome> {
        self.calls.get(&xid)?.outcome.as_ref()?;
        self.calls.remove(&xid)?.outcome
    }

    /// Has `watcher` told of the call's end. The former one is dropped with no lock held: that may run a
    /// task's end.
    pub(crate) fn watch(&mut self, xid: u32, watcher: Watcher) -> Watcher {
        let Some(entry) = self.calls.get_mut(&xid) else { return Watcher::Nobody };
        self.for_service += usize::from(watcher.needs_service());
        let former = mem::replace(&mut entry.watcher, watcher);
        self.for_service -= usize::from(former.needs_service());
        former
    }

    /// A thread minds the call's timers from now on, or no longer.
    pub(crate) fn attend(&mut self, xid: u32, attended: bool) {
        let Some(entry) = self.calls.get_mut(&xid).filter(|entry| entry.outcome.is_none()) else { return };
        let before = mem::replace(&mut entry.unattended, !attended);
        self.unattended = self.unattended + usize::from(!attended) - usize::from(before);
    }

    /// Nobody will fetch the call's reply; it goes on.
    pub(crate) fn detach(&mut self, xid: u32) {
        match self.calls.get_mut(&xid) {
            Some(entry) if entry.outcome.is_none() => entry.detached = true,
            _ => drop(self.calls.remove(&xid)),
        }
    }

    /// Nothing more can come, by this reason: all calls have ended. Who is to be told.
    pub(crate) fn fail(&mut self, kind: Kind, why: Arc<str>) -> Vec<Watcher> {
        self.broken = Some(TransportError::new(kind, Ran::No, why.clone()));
        let watchers = self.end_each(|ran| TransportError::new(kind, ran, why.clone()));
        self.send_queue.out = Vec::new();
        watchers
    }

    /// All calls under way end, by this reason. Who is to be told.
    pub(crate) fn end_all(&mut self, error: &TransportError) -> Vec<Watcher> {
        self.end_each(|_| error.clone())
    }

    /// Ends each call under way by the error for whether it may have run.
    fn end_each(&mut self, error: impl Fn(Ran) -> TransportError) -> Vec<Watcher> {
        let under_way = self.calls.iter().filter(|(_, entry)| entry.outcome.is_none());
        let all: Vec<(u32, TransportError)> =
            under_way.map(|(xid, entry)| (*xid, error(self.send_queue.may_have_run(entry.end)))).collect();
        all.into_iter().map(|(xid, error)| self.end(xid, Err(error))).collect()
    }

    /// Acts on the timers of calls that no thread minds. Who is to be told, and what is to be sent again.
    pub(crate) fn run_timers(
        &mut self,
        now: Time,
        late: &dyn Fn(u64) -> TransportError,
    ) -> (Vec<Watcher>, Vec<Repeat>) {
        if self.timer.is_none_or(|timer| timer > now) {
            return (Vec::new(), Vec::new());
        }
        let (mut expired, mut messages, mut timer) = (Vec::new(), Vec::new(), None::<Time>);
        let mut expect = |at: Time| timer = Some(timer.map_or(at, |timer| timer.min(at)));
        for (xid, entry) in self.calls.iter_mut().filter(|(_, entry)| entry.outcome.is_none()) {
            if let Some(deadline) = entry.deadline.filter(|_| entry.unattended) {
                if deadline <= now {
                    expired.push((*xid, entry.heard));
                    continue;
                }
                expect(deadline);
            }
            if let Some(retransmission) = &mut entry.retransmission {
                if retransmission.at <= now {
                    messages.push((retransmission.message.clone(), retransmission.resealer.clone()));
                    retransmission.repeated = true;
                    retransmission.at = now + retransmission.pause;
                    retransmission.pause = next_pause(retransmission.pause);
                }
                expect(retransmission.at);
            }
        }
        self.timer = timer;
        (expired.into_iter().map(|(xid, heard)| self.end(xid, Err(late(heard)))).collect(), messages)
    }

    /// The datagram that is to be sent again first is sent again at that time, if not earlier.
    pub(crate) fn hasten(&mut self, at: Time) {
        let under_way = self.calls.values_mut().filter(|entry| entry.outcome.is_none());
        let first = under_way.filter_map(|entry| entry.retransmission.as_mut()).min_by_key(|next| next.at);
        if let Some(retransmission) = first.filter(|next| next.at > at) {
            retransmission.at = at;
            self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
        }
    }

    /// Whether calls are under way that no thread minds.
    pub(crate) fn is_unattended(&self) -> bool {
        self.unattended > 0
    }

    /// Whether the service thread must receive as soon as no other thread leads.
    pub(crate) fn needs_service(&self) -> bool {
        self.for_service > 0
    }

    /// Whether something waits to be sent that a thread can send now.
    pub(crate) fn may_write(&self) -> bool {
        let send_queue = &self.send_queue;
        !(send_queue.out.is_empty() || send_queue.writing || send_queue.blocked || self.broken.is_some())
    }
}

/// Returns the pause that follows `pause`: twice as long, up to a bound.
pub(crate) fn next_pause(pause: Duration) -> Duration {
    const MAX_PAUSE: Duration = Duration::from_secs(16);
    (pause * 2).min(MAX_PAUSE.max(pause))
}
