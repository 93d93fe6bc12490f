//! Who waits for what on one link: calls by their identifiers, and whose turn it is to receive. No sockets here.
//!
//! Of all threads that wait one leads: it receives for everybody. The rule that must hold: while a thread waits,
//! somebody leads or has been woken to lead.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use farcall::env::{Event, Time};
use farcall::wait::ReadyToken;
use farcall::{Kind, Ran, guard};

use super::copies::Anew;

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

/// Why a call has no reply.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) kind: Kind,
    pub(crate) ran: Ran,
    pub(crate) why: Arc<str>,
    /// Its identifier is that of a call that was made 2^32 calls before and is still under way: nothing was sent.
    pub(crate) taken: bool,
}

impl Lost {
    pub(crate) fn new(kind: Kind, ran: Ran, why: impl Into<Arc<str>>) -> Lost {
        Lost { kind, ran, why: why.into(), taken: false }
    }

    #[cold]
    pub(crate) fn overloaded(why: &str) -> Lost {
        Lost::new(Kind::Overloaded, Ran::No, why)
    }

    /// The reply did not come in time.
    #[cold]
    pub(crate) fn late() -> Lost {
        Lost::new(Kind::Deadline, Ran::Maybe, "")
    }

    #[cold]
    pub(crate) fn taken() -> Lost {
        Lost { taken: true, ..Lost::new(Kind::Overloaded, Ran::No, "its identifier is in use") }
    }
}

pub(crate) type Outcome = Result<Body, Lost>;

/// Who is told when a call has ended.
#[derive(Default)]
pub(crate) enum Watcher {
    /// Nobody, or the one who leads.
    #[default]
    Nobody,
    Thread(Arc<dyn Event>),
    Task(Waker),
    /// One who gathers the ends of several calls; whether it waits at this link.
    Gatherer(ReadyToken, bool),
}

impl Watcher {
    /// Whether somebody else must receive for it.
    fn is_hurried(&self) -> bool {
        matches!(self, Watcher::Task(_) | Watcher::Gatherer(_, false))
    }

    /// Tells. No lock is held. `leading` says that who calls this receives at the link: then nobody else does.
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

/// A datagram that is sent again until its reply comes: these bytes, or another copy of the call.
pub(crate) struct Again {
    pub(crate) message: Vec<u8>,
    pub(crate) copies: Anew,
    pub(crate) at: Time,
    /// How long the next pause is.
    pub(crate) pause: Duration,
    /// It was sent again.
    pub(crate) repeated: bool,
}

impl Again {
    pub(crate) fn new(message: &[u8], copies: Anew, now: Time, pause: Duration) -> Again {
        // Copies have the message themselves.
        let message = if copies.is_some() { Vec::new() } else { message.to_vec() };
        Again { message, copies, at: now + pause, pause: later(pause), repeated: false }
    }
}

/// What is sent again: the message, unless there are copies to take another from, with no lock held.
pub(crate) type Repeat = (Vec<u8>, Anew);

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
    pub(crate) again: Option<Box<Again>>,
    /// No thread waits for it and minds its timers.
    pub(crate) unattended: bool,
    /// Nobody will fetch its reply.
    pub(crate) detached: bool,
}

/// Identifiers are distinct and follow one another: their low bits do.
#[derive(Default)]
pub(crate) struct Direct(u64);

impl Hasher for Direct {
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

/// The calls of one link, its lead, and what is to be sent.
#[derive(Default)]
pub(crate) struct Table {
    calls: HashMap<u32, Entry, BuildHasherDefault<Direct>>,
    /// Why there can be no more.
    pub(crate) broken: Option<Lost>,
    pub(crate) way: Way,
    led: bool,
    /// The identifier of the call that the last leader made: a leader's is not entered.
    leaders: u32,
    /// To whom the lead was passed, if that thread has not come for it yet.
    heir: Option<Arc<dyn Event>>,
    /// Those who follow, the one who waits longest first.
    following: VecDeque<Arc<dyn Event>>,
    /// Calls under way that no thread minds, and those of them for which somebody must receive at once.
    unattended: usize,
    hurried: usize,
    /// Nothing that no thread minds is due earlier.
    pub(crate) timer: Option<Time>,
    /// The service thread looks after this link.
    pub(crate) listed: bool,
    /// It will hear when something comes.
    pub(crate) watched: bool,
    /// How many calls were ever started.
    pub(crate) started: u64,
}

/// What goes out on a stream.
#[derive(Default)]
pub(crate) struct Way {
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

impl Way {
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

    /// Whether a call may have run whose record ends there, now that the stream has ended: not if its end was never handed
    /// over, for then nobody has read it.
    pub(crate) fn may_have_run(&self, end: u64) -> Ran {
        if end > self.handed { Ran::No } else { Ran::Maybe }
    }
}

impl Table {
    /// Whether a call under way may have this identifier.
    #[inline]
    pub(crate) fn has(&self, xid: u32) -> bool {
        self.led && self.leaders == xid || !self.calls.is_empty() && self.calls.contains_key(&xid)
    }

    /// Counts a message, if it may be sent, and returns the length of the stream with it. `xid` is the
    /// identifier of a call that gets a reply.
    #[inline]
    pub(crate) fn admit(&mut self, xid: Option<u32>, message: &[u8]) -> Result<u64, Lost> {
        if let Some(lost) = &self.broken {
            return Err(lost.clone());
        }
        if xid.is_some_and(|xid| self.has(xid)) {
            return Err(Lost::taken());
        }
        if !self.way.out.is_empty() && self.way.out.len() + message.len() > MAX_UNSENT_BYTES {
            return Err(Lost::overloaded("too many bytes wait to be sent"));
        }
        self.way.length += message.len() as u64;
        Ok(self.way.length)
    }

    /// Enters a call whose message was counted. If too many calls are under way it fails, and the message
    /// must not be sent.
    pub(crate) fn begin(&mut self, xid: u32, entry: Entry) -> Result<(), Lost> {
        if self.len() >= MAX_CALLS {
            self.way.length = self.way.handed + self.way.out.len() as u64;
            return Err(Lost::overloaded("too many calls are under way"));
        }
        self.enter(xid, entry);
        Ok(())
    }

    /// Enters a call.
    pub(crate) fn enter(&mut self, xid: u32, entry: Entry) {
        self.unattended += usize::from(entry.unattended);
        self.hurried += usize::from(entry.watcher.is_hurried());
        if entry.unattended {
            let due = [entry.again.as_ref().map(|again| again.at), entry.deadline, self.timer];
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
        self.hurried -= usize::from(watcher.is_hurried());
        if entry.detached {
            self.calls.remove(&xid);
            return watcher;
        }
        if let (Some(again), Ok(body)) = (entry.again.take(), &mut outcome) {
            body.repeated = again.repeated;
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
            self.hurried -= usize::from(entry.watcher.is_hurried());
        }
        Some(entry)
    }

    /// Takes a call out if it has ended.
    pub(crate) fn fetch(&mut self, xid: u32) -> Option<Outcome> {
        self.calls.get(&xid)?.outcome.as_ref()?;
        self.calls.remove(&xid)?.outcome
    }

    /// Has `watcher` told of the call's end. The former one is dropped with no lock held: that may run a task's end.
    pub(crate) fn watch(&mut self, xid: u32, watcher: Watcher) -> Watcher {
        let Some(entry) = self.calls.get_mut(&xid) else { return Watcher::Nobody };
        self.hurried += usize::from(watcher.is_hurried());
        let former = mem::replace(&mut entry.watcher, watcher);
        self.hurried -= usize::from(former.is_hurried());
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
        self.broken = Some(Lost::new(kind, Ran::No, why.clone()));
        let way = &self.way;
        let under_way = self.calls.iter().filter(|(_, entry)| entry.outcome.is_none());
        let all: Vec<(u32, Ran)> =
            under_way.map(|(xid, entry)| (*xid, way.may_have_run(entry.end))).collect();
        let ended = all.into_iter().map(|(xid, ran)| self.end(xid, Err(Lost::new(kind, ran, why.clone()))));
        let mut watchers: Vec<Watcher> = ended.collect();
        // Whoever follows looks again.
        watchers.extend(self.following.iter().cloned().map(Watcher::Thread));
        self.way.out = Vec::new();
        watchers
    }

    /// All calls under way end, by this reason. Who is to be told.
    pub(crate) fn end_all(&mut self, lost: &Lost) -> Vec<Watcher> {
        let all: Vec<u32> =
            self.calls.iter().filter(|(_, e)| e.outcome.is_none()).map(|(xid, _)| *xid).collect();
        all.into_iter().map(|xid| self.end(xid, Err(lost.clone()))).collect()
    }

    /// Acts on the timers of calls that no thread minds. Who is to be told, and what is to be sent again.
    pub(crate) fn run_timers(
        &mut self,
        now: Time,
        late: &dyn Fn(u64) -> Lost,
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
            if let Some(again) = &mut entry.again {
                if again.at <= now {
                    messages.push((again.message.clone(), again.copies.clone()));
                    again.repeated = true;
                    again.at = now + again.pause;
                    again.pause = later(again.pause);
                }
                expect(again.at);
            }
        }
        self.timer = timer;
        (expired.into_iter().map(|(xid, heard)| self.end(xid, Err(late(heard)))).collect(), messages)
    }

    /// The datagram that is to be sent again first is sent again at that time, if not earlier.
    pub(crate) fn hasten(&mut self, at: Time) {
        let under_way = self.calls.values_mut().filter(|entry| entry.outcome.is_none());
        let first = under_way.filter_map(|entry| entry.again.as_mut()).min_by_key(|again| again.at);
        if let Some(again) = first.filter(|again| again.at > at) {
            again.at = at;
            self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
        }
    }

    /// Whether calls are under way that no thread minds.
    pub(crate) fn is_unattended(&self) -> bool {
        self.unattended > 0
    }

    /// Whether somebody must receive at once who is no thread that waits.
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried > 0
    }

    /// Whether something waits to be sent that a thread can send now.
    pub(crate) fn may_write(&self) -> bool {
        let way = &self.way;
        !(way.out.is_empty() || way.writing || way.blocked || self.broken.is_some())
    }

    pub(crate) fn is_led(&self) -> bool {
        self.led
    }

    /// True: lead, until [`Table::pass`]. False: somebody else does.
    pub(crate) fn try_lead(&mut self) -> bool {
        !mem::replace(&mut self.led, true)
    }

    /// Takes the lead for the thread that makes the call of this identifier. Returns true if the thread now
    /// leads, until [`Table::pass`], and false if another thread leads.
    #[inline]
    pub(crate) fn try_lead_for(&mut self, xid: u32) -> bool {
        let leads = self.try_lead();
        self.leaders = if leads { xid } else { self.leaders };
        leads
    }

    /// As [`Table::try_lead`]; who does not lead then follows: it sleeps, and when woken asks whether it [leads](Table::inherits).
    pub(crate) fn join(&mut self, event: &Arc<dyn Event>) -> bool {
        let leads = self.try_lead();
        if !leads {
            self.follow(event.clone());
        }
        leads
    }

    /// Somebody else leads.
    pub(crate) fn follow(&mut self, event: Arc<dyn Event>) {
        self.following.push_back(event);
    }

    /// Whether the lead was passed to this thread.
    pub(crate) fn inherits(&mut self, event: &Arc<dyn Event>) -> bool {
        self.heir.take_if(|heir| Arc::ptr_eq(heir, event)).is_some()
    }

    /// Leads no longer. Who is to be woken.
    pub(crate) fn pass(&mut self) -> Option<Arc<dyn Event>> {
        let next = self.following.pop_front();
        self.heir.clone_from(&next);
        self.led = next.is_some();
        next
    }

    /// Follows no longer. One to whom the lead was passed meanwhile passes it on.
    pub(crate) fn leave(&mut self, event: &Arc<dyn Event>) -> Option<Arc<dyn Event>> {
        if self.inherits(event) {
            return self.pass();
        }
        self.following.retain(|follower| !Arc::ptr_eq(follower, event));
        None
    }
}

/// The pause after that one: ever longer, up to a bound.
pub(crate) fn later(pause: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(16);
    (pause * 2).min(LONGEST.max(pause))
}
