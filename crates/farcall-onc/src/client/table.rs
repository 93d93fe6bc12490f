//! The calls of one link by their identifiers, the thread or task that waits for each, and the bytes to send.
//! This module uses no sockets. The leader is the one of the waiting threads that receives for all.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use farcall::env::{Event, Time};
use farcall::room::{self, NoMemory};
use farcall::wait::ReadyToken;
use farcall::{KeptArguments, Kind, MAX_UNCOUNTED_ARGUMENT_BYTES, Ran, ServerArguments, guard};

use super::resealer::Resealer;

/// The most calls that may be under way on one link.
const MAX_CALLS: usize = 1 << 16;
/// The most bytes that may wait to be sent on one link.
const MAX_UNSENT_BYTES: usize = 64 << 20;

/// As many bytes that wait to be sent are not counted among the arguments that calls keep.
const MAX_UNCOUNTED_UNSENT_BYTES: usize = 64 << 10;

/// A reply message as it was received, with its header.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) kept: Kept,
    /// Whether the call was sent more than once.
    pub(crate) repeated: bool,
}

/// The buffer that holds a reply.
#[derive(Debug)]
pub(crate) enum Kept {
    /// A buffer that later calls use again.
    Short(Vec<u8>),
    /// A buffer that the results may share.
    Long(Bytes),
}

/// Why a call has no reply: the failure that the transport met.
#[derive(Clone, Debug)]
pub(crate) struct TransportError {
    pub(crate) kind: Kind,
    pub(crate) ran: Ran,
    pub(crate) why: Arc<str>,
    /// Why the system did not send the latest datagram, if it did not.
    pub(crate) not_sent: Option<Arc<str>>,
    /// Whether nothing was sent because a call from 2^32 calls before has the same identifier and is still
    /// under way.
    pub(crate) id_in_use: bool,
}

impl TransportError {
    pub(crate) fn new(kind: Kind, ran: Ran, why: impl Into<Arc<str>>) -> TransportError {
        TransportError { kind, ran, why: why.into(), not_sent: None, id_in_use: false }
    }

    #[cold]
    pub(crate) fn overloaded(why: &str) -> TransportError {
        TransportError::new(Kind::Overloaded, Ran::No, why)
    }

    /// Returns the error of a call whose reply did not arrive in time.
    #[cold]
    pub(crate) fn late() -> TransportError {
        TransportError::new(Kind::Deadline, Ran::Maybe, "")
    }

    /// Returns the error of a call whose time was over before it was sent.
    #[cold]
    pub(crate) fn unsent() -> TransportError {
        TransportError::new(Kind::Deadline, Ran::No, "request was sent")
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

/// The thread or task to wake when a call has ended.
#[derive(Default)]
pub(crate) enum Watcher {
    /// No thread or task is to be woken. If the call's thread leads, it receives the reply itself.
    #[default]
    Nobody,
    Thread(Arc<dyn Event>),
    Task(Waker),
    /// A thread that waits for several calls, and whether it waits at this link.
    Gatherer(ReadyToken, bool),
}

impl Watcher {
    /// Returns whether the service thread must receive for this watcher.
    fn needs_service(&self) -> bool {
        matches!(self, Watcher::Task(_) | Watcher::Gatherer(_, false))
    }

    /// Wakes the thread or task. The calling thread holds no lock. `leading` says that it leads at the link.
    pub(crate) fn wake(self, leading: bool) {
        match self {
            Watcher::Nobody => {}
            Watcher::Thread(event) => event.set(),
            // A panic of the waker must not reach the caller whose thread leads.
            Watcher::Task(waker) => guard::run_alone("a waker", || waker.wake()),
            Watcher::Gatherer(token, here) => guard::run_alone("a waker", || match here && leading {
                true => token.mark_ready_serving(),
                false => token.mark_ready(),
            }),
        }
    }
}

/// A datagram that is sent again until its reply arrives: the same bytes, or a newly sealed copy of the call.
pub(crate) struct Retransmission {
    pub(crate) message: Vec<u8>,
    pub(crate) resealer: Option<Arc<Resealer>>,
    pub(crate) at: Time,
    /// The pause after the next copy.
    pub(crate) pause: Duration,
    /// Whether the datagram was sent again.
    pub(crate) repeated: bool,
    /// Counts the message, unless it is short.
    _kept: Option<KeptArguments>,
}

impl Retransmission {
    /// Keeps the message of a call.
    ///
    /// # Errors
    /// The calls to the server keep too many bytes already.
    pub(crate) fn new(
        arguments: &Arc<ServerArguments>,
        message: &[u8],
        resealer: Option<Arc<Resealer>>,
        now: Time,
        pause: Duration,
    ) -> Result<Box<Retransmission>, TransportError> {
        let kept = match message.len() > MAX_UNCOUNTED_ARGUMENT_BYTES {
            true => Some(arguments.keep(message.len()).ok_or_else(|| too_many_bytes(arguments))?),
            false => None,
        };
        // A resealer keeps the message itself.
        let message = if resealer.is_some() { Vec::new() } else { message.to_vec() };
        let (at, pause) = (now + pause, next_pause(pause));
        Ok(Box::new(Retransmission { message, resealer, at, pause, repeated: false, _kept: kept }))
    }
}

#[cold]
fn too_many_bytes(arguments: &ServerArguments) -> TransportError {
    TransportError::overloaded(&arguments.refusal())
}

/// A message to send again. If there is a resealer, the sender gets a newly sealed copy from it instead,
/// while no lock is held.
pub(crate) type Repeat = (Vec<u8>, Option<Arc<Resealer>>);

/// A call that has no reply yet, or whose reply has not been fetched.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) watcher: Watcher,
    pub(crate) outcome: Option<Outcome>,
    /// The position in the outgoing stream, in bytes, at which this call's record ends.
    pub(crate) end: u64,
    /// How many times the link had received something when the call was sent.
    pub(crate) heard: u64,
    pub(crate) deadline: Option<Time>,
    /// The datagram of a started call. A thread that waits for its call keeps the datagram itself.
    pub(crate) retransmission: Option<Box<Retransmission>>,
    /// Whether no thread waits for the call, so that the service thread acts on its timers.
    pub(crate) unattended: bool,
    /// Whether the caller has given up its reply.
    pub(crate) detached: bool,
}

impl Entry {
    /// Returns whether the call was started and its datagram was sent again.
    pub(crate) fn is_repeated(&self) -> bool {
        self.retransmission.as_ref().is_some_and(|retransmission| retransmission.repeated)
    }
}

/// Hashes the identifiers of calls. These are distinct and consecutive, so a multiplication spreads them
/// well.
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
        // A multiplication varies the highest bits, which the hash map uses too.
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The calls of one link, and the bytes to send on it.
#[derive(Default)]
pub(crate) struct Table {
    calls: HashMap<u32, Entry, BuildHasherDefault<XidHasher>>,
    /// Why the link accepts no more calls, once it has ended.
    pub(crate) broken: Option<TransportError>,
    pub(crate) send_queue: SendQueue,
    /// The identifier of the last call that a leader made without entering it in the table. That call can be
    /// under way only while a thread leads.
    pub(crate) leader_xid: u32,
    /// The number of calls under way for which no thread waits.
    unattended: usize,
    /// The number of calls under way for which the service thread must receive.
    for_service: usize,
    /// A lower bound of the times at which a timer of an unattended call is due.
    pub(crate) timer: Option<Time>,
    /// Whether the service thread looks after this link.
    pub(crate) listed: bool,
    /// Whether the service thread waits for data of this link.
    pub(crate) watched: bool,
    /// The number of calls that were ever started on this link.
    pub(crate) started: u64,
    /// The arguments that calls to the server keep.
    pub(crate) arguments: Arc<ServerArguments>,
    /// Counts the bytes that wait to be sent, if they are many.
    unsent: Option<KeptArguments>,
}

/// The bytes that wait to be sent on a stream.
#[derive(Default)]
pub(crate) struct SendQueue {
    /// The bytes that wait to be sent.
    pub(crate) out: Vec<u8>,
    /// The length of the stream, in bytes, including all messages that were counted by [`Table::admit`].
    pub(crate) length: u64,
    /// The number of bytes of the stream that the system may have been given.
    pub(crate) handed: u64,
    /// Whether a thread is sending, with no lock held. That thread then sends `out` too.
    pub(crate) writing: bool,
    /// Whether the system accepts no more bytes at present.
    pub(crate) blocked: bool,
}

impl SendQueue {
    /// Notes that every counted message outside `out` is being given to the system.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        self.writing = true;
        self.handed = self.length;
    }

    /// Notes that the system took the first `sent` bytes of `bytes`, and puts the rest before `out`. Returns
    /// whether the system took all.
    ///
    /// # Errors
    /// This process has no memory for the rest, so the stream cannot go on.
    #[inline]
    pub(crate) fn took(&mut self, bytes: &[u8], sent: usize) -> Result<bool, NoMemory> {
        self.writing = false;
        let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) else { return Ok(true) };
        let (mut unsent, left) = (Vec::new(), rest.len() + self.out.len());
        self.handed = self.length - left as u64;
        room::reserve_exact(&mut unsent, left)?;
        unsent.extend_from_slice(rest);
        unsent.append(&mut self.out);
        self.out = unsent;
        self.blocked = true;
        Ok(false)
    }

    /// Notes that the system took none of these bytes and never will. Calls whose records end within these
    /// bytes did not run.
    #[cold]
    pub(crate) fn took_none(&mut self, bytes: usize) {
        self.writing = false;
        self.handed = self.length - (self.out.len() + bytes) as u64;
    }

    /// Returns whether a call may have run, after the stream has ended. `end` is where the call's record
    /// ends. A call whose last byte was never given to the system did not run.
    pub(crate) fn may_have_run(&self, end: u64) -> Ran {
        if end > self.handed { Ran::No } else { Ran::Maybe }
    }
}

impl Table {
    /// Returns the table of a link to a server.
    pub(crate) fn new(arguments: Arc<ServerArguments>) -> Table {
        Table { arguments, ..Table::default() }
    }

    /// Counts a message, if it may be sent, and returns the length of the stream including the message. `xid`
    /// is the identifier of a call that gets a reply; `is_led` says whether a thread leads.
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
        if !self.send_queue.out.is_empty() {
            if self.send_queue.out.len() + message.len() > MAX_UNSENT_BYTES {
                return Err(TransportError::overloaded("too many bytes wait to be sent"));
            }
            if !self.arguments.admits(message.len()) {
                return Err(too_many_bytes(&self.arguments));
            }
        }
        self.send_queue.length += message.len() as u64;
        Ok(self.send_queue.length)
    }

    /// Counts the bytes that wait to be sent among the arguments that calls to the server keep. A buffer's
    /// worth of them, which gathers short calls, is not counted.
    #[inline]
    pub(crate) fn count_unsent(&mut self) {
        if self.send_queue.out.len() > MAX_UNCOUNTED_UNSENT_BYTES || self.unsent.is_some() {
            self.recount_unsent();
        }
    }

    #[cold]
    fn recount_unsent(&mut self) {
        let bytes = self.send_queue.out.len();
        if bytes <= MAX_UNCOUNTED_UNSENT_BYTES {
            self.unsent = None;
            return;
        }
        if self.unsent.is_none() {
            self.unsent = self.arguments.keep(0);
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.set(bytes);
        }
    }

    /// Enters a call whose message was [counted](Table::admit). Fails if too many calls are under way; then
    /// the message must not be sent.
    pub(crate) fn begin(&mut self, xid: u32, entry: Entry) -> Result<(), TransportError> {
        if self.len() >= MAX_CALLS {
            self.send_queue.length = self.send_queue.handed + self.send_queue.out.len() as u64;
            return Err(TransportError::overloaded("too many calls are under way"));
        }
        self.enter(xid, entry);
        Ok(())
    }

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

    /// Returns whether a call with this identifier is under way.
    pub(crate) fn expects(&self, xid: u32) -> bool {
        self.calls.get(&xid).is_some_and(|entry| entry.outcome.is_none())
    }

    /// Records the outcome of a call, and returns the watcher to wake when no lock is held.
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
        if let Ok(body) = &mut outcome {
            body.repeated = entry.is_repeated();
        }
        entry.retransmission = None;
        entry.outcome = Some(outcome);
        watcher
    }

    /// Returns how many times the link had received something when the call was sent.
    pub(crate) fn heard(&self, xid: u32) -> u64 {
        self.calls.get(&xid).map_or(0, |entry| entry.heard)
    }

    /// Removes a call that has its reply or is given up.
    pub(crate) fn remove(&mut self, xid: u32) -> Option<Entry> {
        let entry = self.calls.remove(&xid)?;
        if entry.outcome.is_none() {
            self.unattended -= usize::from(entry.unattended);
            self.for_service -= usize::from(entry.watcher.needs_service());
        }
        Some(entry)
    }

    /// Removes a call if it has ended, and returns its outcome.
    pub(crate) fn fetch(&mut self, xid: u32) -> Option<Outcome> {
        self.calls.get(&xid)?.outcome.as_ref()?;
        self.calls.remove(&xid)?.outcome
    }

    /// Sets the watcher of a call, and returns the former watcher. The caller must drop the former watcher
    /// with no lock held, because the drop may run a task's code.
    pub(crate) fn watch(&mut self, xid: u32, watcher: Watcher) -> Watcher {
        let Some(entry) = self.calls.get_mut(&xid) else { return Watcher::Nobody };
        self.for_service += usize::from(watcher.needs_service());
        let former = mem::replace(&mut entry.watcher, watcher);
        self.for_service -= usize::from(former.needs_service());
        former
    }

    /// Notes whether a thread waits for the call and acts on its timers.
    pub(crate) fn set_attended(&mut self, xid: u32, attended: bool) {
        let Some(entry) = self.calls.get_mut(&xid).filter(|entry| entry.outcome.is_none()) else { return };
        let before = mem::replace(&mut entry.unattended, !attended);
        self.unattended = self.unattended + usize::from(!attended) - usize::from(before);
    }

    /// Lets a call go on, and marks that no thread will fetch its reply.
    pub(crate) fn detach(&mut self, xid: u32) {
        match self.calls.get_mut(&xid) {
            Some(entry) if entry.outcome.is_none() => entry.detached = true,
            _ => drop(self.calls.remove(&xid)),
        }
    }

    /// Ends the link and all of its calls for this reason. Returns the watchers to wake.
    pub(crate) fn fail(&mut self, kind: Kind, why: Arc<str>) -> Vec<Watcher> {
        self.broken = Some(TransportError::new(kind, Ran::No, why.clone()));
        let watchers = self.end_each(|ran| TransportError::new(kind, ran, why.clone()));
        self.send_queue.out = Vec::new();
        self.unsent = None;
        watchers
    }

    /// Ends all calls under way with this error. Returns the watchers to wake.
    pub(crate) fn end_all(&mut self, error: &TransportError) -> Vec<Watcher> {
        self.end_each(|_| error.clone())
    }

    /// Ends each call under way. `error` makes the call's error, given whether the call may have run.
    fn end_each(&mut self, error: impl Fn(Ran) -> TransportError) -> Vec<Watcher> {
        let under_way = self.calls.iter().filter(|(_, entry)| entry.outcome.is_none());
        let all: Vec<(u32, TransportError)> =
            under_way.map(|(xid, entry)| (*xid, error(self.send_queue.may_have_run(entry.end)))).collect();
        all.into_iter().map(|(xid, error)| self.end(xid, Err(error))).collect()
    }

    /// Acts on the timers of unattended calls. Returns the watchers to wake and the messages to send again.
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

    /// Brings the earliest retransmission of all calls forward to `at`, unless it is earlier already.
    pub(crate) fn bring_forward(&mut self, at: Time) {
        let under_way = self.calls.values_mut().filter(|entry| entry.outcome.is_none());
        let first = under_way.filter_map(|entry| entry.retransmission.as_mut()).min_by_key(|next| next.at);
        if let Some(retransmission) = first.filter(|next| next.at > at) {
            retransmission.at = at;
            self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
        }
    }

    /// Returns whether calls are under way for which no thread waits.
    pub(crate) fn is_unattended(&self) -> bool {
        self.unattended > 0
    }

    /// Returns whether the service thread must receive as soon as no other thread leads.
    pub(crate) fn needs_service(&self) -> bool {
        self.for_service > 0
    }

    /// Returns whether bytes wait to be sent that a thread can send now.
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
