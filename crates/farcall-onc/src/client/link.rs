//! One connection, or one socket for datagrams: sends its calls and receives their replies.
//!
//! A thread that waits for a reply leads or follows ([`Lead`](farcall::wait::Lead)): the leader receives for
//! all threads that wait at the link. Bytes that several threads send at once leave in one system call: a
//! thread that finds another one sending leaves its bytes in the send queue.
//!
//! ```text
//! reader     the buffers into which a link receives
//! reports    what the network reports of datagrams
//! gather     a thread that waits for any of several calls
//! service    the thread that sends and receives while no caller waits
//! ```

mod datagrams;
mod gather;
mod reader;
mod reports;
mod service;

use std::borrow::Cow;
use std::cell::Cell;
use std::io::ErrorKind;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use farcall::env::{Alarm, Env, Event, Time, is_network_report, thread_event};
use farcall::serving::{self, WaitGuard};
use farcall::wait::Lead;
use farcall::{Kind, Ran, ServerArguments};

use super::carrier::{self, Carrier, Wait};
use super::incoming::{Incoming, OwnCall};
use super::refusals::Refusals;
use super::resealer::Resealer;
use super::table::{Body, Entry, Outcome, Retransmission, Table, TransportError, Watcher, next_pause};
use super::timers::{CallOptions, Timers};
use crate::wire::record::Limits;
use datagrams::NotSent;
use reader::Reader;
use service::Service;

/// The most bytes of started calls that are held back to be sent together.
const MAX_HELD_BYTES: usize = 32 << 10;

/// Receives the calls that a server makes to its client on the client's connection.
pub(crate) trait Back: Send + Sync {
    /// Takes a call message. Returns at once.
    fn take(&self, link: &Arc<Link>, message: Vec<u8>);
}

/// What a link carries, and whether it can be replaced.
#[derive(Clone, Copy)]
pub(crate) struct LinkKind {
    /// Whether messages are datagrams.
    pub(crate) datagrams: bool,
    /// Whether a link that leads nowhere is replaced by a new one.
    pub(crate) is_replaceable: bool,
    /// The number of refused tries after which the server is considered gone, if messages are datagrams.
    pub(crate) refused_tries: u32,
}

pub(crate) struct Link {
    env: Arc<dyn Env>,
    me: Weak<Link>,
    pub(super) carrier: Box<dyn Carrier>,
    datagrams: bool,
    is_replaceable: bool,
    back: Option<Arc<dyn Back>>,
    table: Mutex<Table>,
    /// The arguments that calls to this server keep.
    arguments: Arc<ServerArguments>,
    receiving: Receiving,
    /// A copy of `SendQueue::blocked` that is read without the table's lock. A leader that reads an old value
    /// does no harm, because the thread that blocks the queue engages the service thread.
    blocked: AtomicBool,
    not_sent: NotSent,
    state: AtomicU8,
    /// Wakes a thread that waits for several calls at this link.
    alarm: OnceLock<Option<Arc<dyn Alarm>>>,
    /// The thread that looks after the link while no caller waits at it, once it has started.
    service: OnceLock<Arc<Service>>,
    /// Whether the service thread may have to receive as soon as no thread leads. Cleared under the table's
    /// lock.
    awaited: AtomicBool,
}

/// The state that the leader uses to receive.
struct Receiving {
    lead: Lead<dyn Event>,
    /// Locked by the leader alone.
    reader: Mutex<Reader>,
    /// A count that grows with each reception. It is odd while a record is partly received.
    heard: AtomicU64,
}

/// The first state of a link. The states follow one another in the order of their numbers.
const LIVE: u8 = 0;
/// A call's deadline has passed, and either nothing has arrived since the call was sent, or the last record
/// has arrived only in part. The next call is made on a new connection; other calls under way here may still
/// be answered.
const SILENT: u8 = 1;
/// New calls are made on another link, which has replaced this one.
const REPLACED: u8 = 2;
/// The link has ended; `Table::broken` says why.
const DEAD: u8 = 3;

/// The outcome of one reception.
enum Reception {
    /// The reply to the leader's own call. The lead has already been passed.
    OwnReply(Body),
    /// Data that holds no reply to the leader's own call.
    Something,
    Nothing,
    /// The server's port is refused. The next try is at this time at the latest.
    Refused(Time),
    /// The server's port has been refused for so long that the server is considered gone.
    GivenUp(TransportError),
    Broken,
}

thread_local! {
    /// Whether this thread leads. A leader must not wait in a second call, because no thread would then
    /// receive.
    static LEADS: Cell<bool> = const { Cell::new(false) };
}

impl Link {
    pub(crate) fn new(
        env: Arc<dyn Env>,
        carrier: Box<dyn Carrier>,
        LinkKind { datagrams, is_replaceable, refused_tries }: LinkKind,
        limits: Limits,
        back: Option<Arc<dyn Back>>,
        arguments: Arc<ServerArguments>,
    ) -> Arc<Link> {
        let reader = Reader::new(datagrams, limits, Refusals::until(refused_tries));
        let link = Arc::new_cyclic(|me| Link {
            env,
            me: me.clone(),
            carrier,
            datagrams,
            is_replaceable,
            back,
            table: Mutex::new(Table::new(arguments.clone())),
            arguments,
            receiving: Receiving {
                lead: Lead::default(),
                reader: Mutex::new(reader),
                heard: AtomicU64::new(0),
            },
            blocked: AtomicBool::new(false),
            not_sent: NotSent::default(),
            state: AtomicU8::new(LIVE),
            alarm: OnceLock::new(),
            service: OnceLock::new(),
            awaited: AtomicBool::new(false),
        });
        if link.back.is_some() {
            service::engage(&link);
        }
        link
    }

    /// Returns whether new calls are to be made on this link. `only` says that no other link can replace it.
    #[inline]
    pub(crate) fn is_usable(&self, only: bool) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state == LIVE || (only && state < DEAD)
    }

    /// Notes that new calls are made on another link. This link ends when it has no call under way.
    pub(crate) fn replace(&self) {
        self.state.fetch_max(REPLACED, Ordering::AcqRel);
        let table = self.lock();
        if table.is_empty() && self.is_unled() {
            self.fail(table, Kind::Unreachable, "the connection was silent for too long");
        }
    }

    /// Returns the error of a call whose deadline has passed. `then` is the value of [`Receiving::heard`]
    /// when the call was sent. Marks a link that can be replaced as [`SILENT`] if nothing has arrived since,
    /// or if a record is partly received.
    #[cold]
    pub(crate) fn late(&self, then: u64) -> TransportError {
        let now = self.receiving.heard.load(Ordering::Relaxed);
        if now == then || now % 2 == 1 {
            self.fall_silent();
        }
        TransportError { not_sent: self.not_sent.why(), ..TransportError::late() }
    }

    /// Has the next call made on another link, if there can be one.
    fn fall_silent(&self) {
        if self.is_replaceable {
            self.state.fetch_max(SILENT, Ordering::AcqRel);
        }
    }

    /// Checks whether the server has ended the connection.
    #[cold]
    pub(crate) fn check(self: &Arc<Self>) {
        if !self.datagrams {
            self.look();
        }
    }

    /// Sends a call and waits for its reply. A leader receives its own reply, so it does not enter its call
    /// in the table.
    pub(crate) fn call(self: &Arc<Self>, xid: u32, message: &[u8], options: &CallOptions) -> Outcome {
        let _waiting = begin_wait()?;
        let mut table = self.lock();
        let end = table.admit(Some(xid), !self.is_unled(), message)?;
        let mut leads = self.receiving.lead.try_lead();
        let own = OwnCall { xid, end, entered: !leads, heard: self.receiving.heard.load(Ordering::Relaxed) };
        if leads {
            table.leader_xid = xid;
        } else {
            let event = thread_event(&self.env);
            let watcher = Watcher::Thread(event.clone());
            table.begin(xid, Entry { end, heard: own.heard, watcher, ..Entry::default() })?;
            leads = self.receiving.lead.join(&event);
        }
        self.send_or_hold(table, message, false);
        self.await_reply(&own, options, leads, self.datagrams.then_some(message))
    }

    /// Sends a call that has no reply.
    pub(crate) fn send_only(self: &Arc<Self>, message: &[u8]) -> Result<(), TransportError> {
        let mut table = self.lock();
        let end = table.admit(None, false, message)?;
        self.send_or_hold(table, message, false);
        self.engage_if_blocked();
        let table = self.lock();
        let ran = table.send_queue.may_have_run(end);
        table.broken.clone().map_or(Ok(()), |error| Err(TransportError { ran, ..error }))
    }

    /// Starts a call. Sends it at once if no other call is under way. Otherwise the call may be held back, to
    /// be sent together with later calls, until a thread waits or the service thread flushes the queue.
    pub(crate) fn start(
        self: &Arc<Self>,
        xid: u32,
        message: &[u8],
        options: &CallOptions,
        resealer: Option<Arc<Resealer>>,
    ) -> Result<(), TransportError> {
        let retransmission = if self.datagrams {
            Some(Retransmission::new(&self.arguments, message, resealer, options.now, options.pause)?)
        } else {
            None
        };
        let mut table = self.lock();
        let end = table.admit(Some(xid), !self.is_unled(), message)?;
        let heard = self.receiving.heard.load(Ordering::Relaxed);
        let entry = Entry {
            end,
            heard,
            deadline: options.deadline,
            retransmission,
            unattended: true,
            ..Entry::default()
        };
        table.begin(xid, entry)?;
        table.started += 1;
        let hold =
            !self.datagrams && table.len() > 1 && table.send_queue.out.len() + message.len() < MAX_HELD_BYTES;
        let unlisted = !mem::replace(&mut table.listed, true);
        self.send_or_hold(table, message, hold);
        service::look_after(self, unlisted);
        Ok(())
    }

    /// Waits for the reply to a call that was started. If this thread may not wait, gives the call up.
    pub(crate) fn wait(self: &Arc<Self>, xid: u32, deadline: Option<Time>) -> Outcome {
        let mut table = self.lock();
        if let Some(outcome) = table.fetch(xid) {
            return outcome;
        }
        let _waiting = match begin_wait() {
            Ok(waiting) => waiting,
            Err(error) => {
                drop(table);
                self.give_up(xid);
                return Err(TransportError { ran: Ran::Maybe, ..error });
            }
        };
        table.set_attended(xid, true);
        let own = OwnCall { xid, end: 0, entered: true, heard: table.heard(xid) };
        let event = thread_event(&self.env);
        let leads = self.receiving.lead.join(&event);
        let watcher = if leads { Watcher::Nobody } else { Watcher::Thread(event) };
        let former = table.watch(xid, watcher);
        self.flush(table);
        drop(former);
        let now = self.env.now();
        let options = CallOptions { deadline, now, patience: None, pause: Duration::ZERO };
        self.await_reply(&own, &options, leads, None)
    }

    /// Returns the outcome of a started call, if it has ended. Otherwise has `watcher` woken when it ends.
    pub(crate) fn poll(self: &Arc<Self>, xid: u32, watcher: impl FnOnce() -> Watcher) -> Option<Outcome> {
        let mut table = self.lock();
        if let Some(outcome) = table.fetch(xid) {
            return Some(outcome);
        }
        let former = table.watch(xid, watcher());
        if table.needs_service() {
            self.awaited.store(true, Ordering::Relaxed);
        }
        // SeqCst: this thread writes `awaited` and then reads whether a thread leads; a leader passes the
        // lead and then reads `awaited`. At least one of them sees what the other wrote.
        fence(Ordering::SeqCst);
        let engage = (table.needs_service() && !table.watched && self.is_unled()) || !table.listed;
        drop(table);
        drop(former);
        if engage {
            service::engage(self);
            self.wake_service_now();
        }
        None
    }

    /// Gives a call up. Returns whether it was still under way.
    pub(crate) fn give_up(&self, xid: u32) -> bool {
        let entry = self.lock().remove(xid);
        entry.is_some_and(|entry| entry.outcome.is_none())
    }

    /// Ends a call with this outcome, and wakes its watcher.
    pub(crate) fn end(&self, xid: u32, outcome: Outcome) {
        let watcher = self.lock().end(xid, outcome);
        watcher.wake(false);
    }

    /// Lets a call run on, and ignores its reply.
    pub(crate) fn detach(self: &Arc<Self>, xid: u32) {
        let mut table = self.lock();
        table.detach(xid);
        self.flush(table);
        self.engage_if_blocked();
    }

    /// Sends the started calls that were held back.
    pub(crate) fn send_held(&self) {
        self.flush(self.lock());
    }

    /// Ends the link and all of its calls.
    pub(crate) fn close(&self) {
        self.fail(self.lock(), Kind::Stopped, "the client was dropped");
    }

    /// Sends a message that was admitted, or appends it to the send queue if `hold`.
    #[inline]
    fn send_or_hold(&self, mut table: MutexGuard<'_, Table>, message: &[u8], hold: bool) {
        if self.datagrams {
            drop(table);
            return self.send_datagram(message);
        }
        let send_queue = &mut table.send_queue;
        if hold || send_queue.writing || send_queue.blocked || !send_queue.out.is_empty() {
            send_queue.out.extend_from_slice(message);
            table.count_unsent();
            if !hold {
                self.flush(table);
            }
            return;
        }
        let table = self.write(table, message);
        self.flush(table);
    }

    /// Sends all bytes of the send queue, unless another thread is sending.
    fn flush<'a>(&'a self, mut table: MutexGuard<'a, Table>) {
        let mut used = Vec::new();
        while table.may_write() {
            let batch = mem::replace(&mut table.send_queue.out, mem::take(&mut used));
            table = self.write(table, &batch);
            used = batch;
            used.clear();
            table.count_unsent();
        }
        if table.send_queue.out.capacity() == 0 && used.capacity() <= 2 * MAX_HELD_BYTES {
            table.send_queue.out = used;
        }
    }

    /// Gives `bytes` to the system, with no lock held meanwhile. `bytes` must be all bytes that were
    /// admitted, except those in `SendQueue::out` and those that were sent.
    fn write<'a>(&'a self, mut table: MutexGuard<'a, Table>, bytes: &[u8]) -> MutexGuard<'a, Table> {
        table.send_queue.hand_over();
        drop(table);
        let sent = self.carrier.send(bytes);
        let mut table = self.lock();
        let sent = match sent {
            Ok(sent) => sent,
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(why) => {
                table.send_queue.took_none(bytes.len());
                self.fail(table, Kind::Unreachable, &why.to_string());
                return self.lock();
            }
        };
        match table.send_queue.took(bytes, sent) {
            Ok(true) => table,
            Ok(false) => {
                self.blocked.store(true, Ordering::Release);
                table
            }
            Err(why) => {
                self.fail(table, Kind::Unreachable, &why.to_string());
                self.lock()
            }
        }
    }

    /// Sends the queued bytes now that the system accepts more.
    pub(crate) fn unblock(&self) {
        let mut table = self.lock();
        table.send_queue.blocked = false;
        self.blocked.store(false, Ordering::Release);
        self.flush(table);
    }

    /// Makes the service thread wait for the socket to become writable, if the system accepts no more bytes.
    /// For threads that do not lead.
    fn engage_if_blocked(self: &Arc<Self>) {
        if self.blocked.load(Ordering::Acquire) {
            service::engage(self);
        }
    }

    /// Waits until a call has ended, as the leader or as a follower.
    fn await_reply(
        self: &Arc<Self>,
        own: &OwnCall,
        options: &CallOptions,
        leads: bool,
        datagram: Option<&[u8]>,
    ) -> Outcome {
        let mut timers =
            Timers { deadline: options.deadline, datagram, at: None, pause: options.pause, repeated: false };
        if !leads {
            self.engage_if_blocked();
            if let Some(outcome) = self.follow(own.xid, &mut timers, options.now) {
                return timers.mark(outcome);
            }
        }
        let former = LEADS.replace(true);
        let outcome = self.lead(own, options, &mut timers);
        LEADS.set(former);
        timers.mark(outcome)
    }

    /// Sleeps until the call has ended, or this thread becomes the leader. Returns `None` in the latter case.
    fn follow(&self, xid: u32, timers: &mut Timers<'_>, start: Time) -> Option<Outcome> {
        let event = thread_event(&self.env);
        timers.set(start);
        loop {
            let outcome = self.lock().fetch(xid);
            if outcome.is_some() {
                self.leave(false, &event);
                return outcome;
            }
            if self.receiving.lead.accept(&event) {
                return None;
            }
            let now = self.env.now();
            if timers.is_late(now) {
                let entry = self.lock().remove(xid).unwrap_or_default();
                self.leave(false, &event);
                return Some(entry.outcome.unwrap_or_else(|| Err(self.late(entry.heard))));
            }
            self.send_again(timers, now);
            event.wait(timers.next(now));
        }
    }

    /// Receives for all threads that wait at the link until this call has ended.
    fn lead(self: &Arc<Self>, own: &OwnCall, options: &CallOptions, timers: &mut Timers<'_>) -> Outcome {
        let mut reader = self.receiving.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // The first wait does without reading the clock, because hardly any time has passed.
        let mut wait = options.first_wait(timers);
        if let Some(due) = reader.due() {
            wait = wait.until(due, self.env.now());
        }
        if let Some(at) = reader.next_try(options.now) {
            timers.set(options.now);
            timers.bring_forward(at);
            wait = wait.until(at, self.env.now());
        }
        loop {
            // A reply that arrived before the deadline counts, so the socket is read once more.
            let is_late = wait == Wait::No;
            match self.receive(&mut reader, wait, Some(own)) {
                Reception::OwnReply(body) => return Ok(body),
                Reception::Broken => return self.finish(own, None),
                Reception::GivenUp(error) => return self.finish(own, Some(error)),
                Reception::Something | Reception::Nothing | Reception::Refused(_) if is_late => {
                    return self.finish(own, Some(self.late(own.heard)));
                }
                Reception::Something | Reception::Nothing => timers.set(options.now),
                Reception::Refused(at) => {
                    timers.set(options.now);
                    timers.bring_forward(at);
                }
            }
            let now = self.env.now();
            self.send_again(timers, now);
            wait = match timers.next(now) {
                _ if timers.is_late(now) => Wait::No,
                Some(time) => Wait::For(time),
                None => Wait::Forever,
            };
            if let Some(due) = reader.due() {
                wait = wait.until(due, now);
            }
        }
    }

    /// Passes the lead of a thread that did not receive its own reply, and returns its call's outcome.
    #[cold]
    fn finish(&self, own: &OwnCall, error: Option<TransportError>) -> Outcome {
        let mut table = self.lock();
        let ended = if own.entered { table.remove(own.xid).and_then(|entry| entry.outcome) } else { None };
        let ran = table.send_queue.may_have_run(own.end);
        let broken = table.broken.clone().map(|error| TransportError { ran, ..error });
        drop(table);
        self.pass();
        ended.unwrap_or_else(|| Err(error.or(broken).unwrap_or_else(TransportError::late)))
    }

    /// Passes the lead to a follower, if one waits.
    #[inline]
    fn pass(&self) {
        self.receiving.lead.pass();
        self.serve_awaited();
    }

    /// Makes the service thread receive for waiting tasks if no thread leads any more.
    #[inline]
    fn serve_awaited(&self) {
        // SeqCst for the reason given in `poll`.
        fence(Ordering::SeqCst);
        if self.awaited.load(Ordering::Relaxed) {
            self.hand_to_service();
        }
    }

    #[cold]
    fn hand_to_service(&self) {
        let table = self.lock();
        let for_service = table.needs_service();
        if !for_service {
            self.awaited.store(false, Ordering::Relaxed);
        }
        drop(table);
        if for_service && self.is_unled() {
            self.wake_service();
        }
    }

    /// Returns whether no thread leads.
    pub(crate) fn is_unled(&self) -> bool {
        self.receiving.lead.is_free()
    }

    fn send_again(&self, timers: &mut Timers<'_>, now: Time) {
        let Some(message) = timers.datagram.filter(|_| timers.at.is_some_and(|at| at <= now)) else { return };
        self.send_datagram(message);
        timers.pause = next_pause(timers.pause);
        timers.at = Some(now + timers.pause);
        timers.repeated = true;
    }

    /// Receives once, as the leader.
    fn receive(self: &Arc<Self>, reader: &mut Reader, wait: Wait, own: Option<&OwnCall>) -> Reception {
        if self.blocked.load(Ordering::Acquire) && wait != Wait::No {
            let time = if let Wait::For(time) = wait { Some(time) } else { None };
            match carrier::wait(&*self.env, &*self.carrier, true, None, time) {
                Ok(ready) if ready.write => self.unblock(),
                Ok(ready) if ready.read => {}
                _ => return self.nothing(reader),
            }
            return self.receive(reader, Wait::No, own);
        }
        let received = match reader {
            Reader::Stream(records) => self.carrier.receive(records.space(), wait),
            Reader::Datagrams(buffer, _) => match self.carrier.receive(buffer, wait) {
                Err(why) if is_network_report(&why) => self.receive_after(why, buffer, own),
                received => received,
            },
        };
        match received {
            Ok(0) if !self.datagrams => self.break_off(Kind::Unreachable, "the server ended the connection"),
            Ok(len) => self.take_in(reader, len, own),
            Err(why) => match why.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut => self.nothing(reader),
                _ => match reader {
                    Reader::Stream(_) => self.break_off(Kind::Unreachable, &why.to_string()),
                    Reader::Datagrams(_, refusals) => self.refused(&why, refusals),
                },
            },
        }
    }

    /// Handles a reception without data. Breaks the connection off if a partly received record has taken too
    /// long.
    fn nothing(&self, reader: &mut Reader) -> Reception {
        match reader.overdue(|| self.env.now()) {
            None => Reception::Nothing,
            Some(why) => self.break_off(Kind::BadResult, &why.to_string()),
        }
    }

    /// Sorts `len` received bytes into messages, and delivers each to the call for which it is.
    #[inline]
    fn take_in(self: &Arc<Self>, reader: &mut Reader, len: usize, own: Option<&OwnCall>) -> Reception {
        let alone = match &mut *reader {
            Reader::Datagrams(buffer, refusals) => {
                refusals.heard();
                buffer.get(..len)
            }
            Reader::Stream(records) => {
                records.filled(len);
                records.alone()
            }
        };
        // A load and a store are enough, because only the leader changes the count.
        let whole = (self.receiving.heard.load(Ordering::Relaxed) | 1) + 1;
        self.receiving.heard.store(whole, Ordering::Relaxed);
        if let Some(body) = alone.and_then(|message| own?.take(message)) {
            if let Reader::Stream(records) = reader {
                records.skip();
            }
            self.pass();
            return Reception::OwnReply(body);
        }
        let mut table = self.lock();
        let mut incoming = Incoming::default();
        let mut fault = None;
        match reader {
            Reader::Datagrams(buffer, _) => incoming.sort(&mut table, Cow::Borrowed(&buffer[..len]), own),
            Reader::Stream(records) => {
                fault = loop {
                    match records.next() {
                        Ok(Some(record)) => incoming.sort(&mut table, record, own),
                        Ok(None) => break None,
                        Err(why) => break Some(why),
                    }
                };
                if fault.is_none() && records.is_partial() {
                    self.receiving.heard.store(whole + 1, Ordering::Relaxed);
                    fault = records.check(self.env.now()).err();
                }
            }
        }
        let leading = incoming.own.is_none();
        drop(table);
        if !leading {
            self.pass();
        }
        let Incoming { own, watchers, calls } = incoming;
        // Usually no other call waits.
        if !watchers.is_empty() {
            watchers.into_iter().for_each(|watcher| watcher.wake(leading));
        }
        if !calls.is_empty()
            && let Some(back) = &self.back
        {
            calls.into_iter().for_each(|message| back.take(self, message));
        }
        if let Some(why) = fault {
            self.break_off(Kind::BadResult, &why.to_string());
            return own.map_or(Reception::Broken, Reception::OwnReply);
        }
        own.map_or(Reception::Something, Reception::OwnReply)
    }

    fn break_off(&self, kind: Kind, why: &str) -> Reception {
        self.fail(self.lock(), kind, why);
        Reception::Broken
    }

    /// Ends the link and all of its calls for this reason.
    fn fail(&self, mut table: MutexGuard<'_, Table>, kind: Kind, why: &str) {
        if table.broken.is_some() {
            return;
        }
        let watchers = table.fail(kind, why.into());
        self.state.store(DEAD, Ordering::Release);
        drop(table);
        self.carrier.shutdown();
        watchers.into_iter().for_each(|watcher| watcher.wake(false));
    }

    /// Receives the data that has arrived, without waiting. Does nothing if another thread leads, because the
    /// leader receives it.
    pub(crate) fn look(self: &Arc<Self>) {
        const MAX_RECEPTIONS: usize = 16;
        if self.receiving.lead.try_lead() {
            (0..MAX_RECEPTIONS).all(|_| self.take_some());
            self.pass();
        }
    }

    /// Receives once without waiting, as the leader. Returns whether there was data or a refusal.
    fn take_some(self: &Arc<Self>) -> bool {
        let former = LEADS.replace(true);
        let mut reader = self.receiving.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let came = self.receive(&mut reader, Wait::No, None);
        LEADS.set(former);
        !matches!(came, Reception::Nothing | Reception::Broken)
    }

    /// Ends this thread's wait, in which it leads if `leads` and follows otherwise.
    fn leave(&self, leads: bool, event: &Arc<dyn Event>) {
        match leads {
            true => self.receiving.lead.pass(),
            false => self.receiving.lead.leave(event),
        }
        self.serve_awaited();
    }

    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Waits, as the leader, until data arrives, the alarm rings or `until` has passed. Without an alarm the
    /// wait is short, so that the caller checks again for what an alarm would report.
    fn watch(&self, alarm: Option<&dyn Alarm>, until: Option<Time>) {
        const MAX_WAIT_WITHOUT_ALARM: Duration = Duration::from_millis(10);
        let until = [until, self.due()].into_iter().flatten().min();
        let time = until.map(|until| until.since(self.env.now()));
        let time = match alarm {
            Some(_) => time,
            None => Some(time.unwrap_or(Duration::MAX).min(MAX_WAIT_WITHOUT_ALARM)),
        };
        let blocked = self.blocked.load(Ordering::Acquire);
        if let Ok(ready) = carrier::wait(&*self.env, &*self.carrier, blocked, alarm.map(Alarm::source), time)
        {
            if ready.write {
                self.unblock();
            }
            alarm.inspect(|alarm| alarm.quiet());
        }
    }

    /// Returns the alarm that wakes a thread that waits for several calls at this link.
    fn alarm(&self) -> Option<&Arc<dyn Alarm>> {
        self.alarm.get_or_init(|| self.env.alarm().ok()).as_ref()
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    pub(crate) fn is_served_back(&self) -> bool {
        self.back.is_some() && self.state.load(Ordering::Relaxed) < REPLACED
    }

    /// Returns when the record that is being received will have taken too long. Returns `None` if another
    /// thread receives, because that thread checks the time.
    pub(crate) fn due(&self) -> Option<Time> {
        self.receiving.reader.try_lock().ok()?.due()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        // No code of the user's runs while the lock is held, so a panic cannot leave the table inconsistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a wait in a thread that leads: it would wait for itself to receive.
#[inline]
fn may_wait() -> Result<(), TransportError> {
    if !LEADS.get() {
        return Ok(());
    }
    let why = "a waker must not wait for a call; it can start one";
    Err(TransportError::new(Kind::Local, Ran::No, why))
}

/// Tells the worker pool, if this thread belongs to one, that the thread waits from now on. Other workers
/// take over the calls that it has read and not served.
#[inline]
fn begin_wait() -> Result<WaitGuard, TransportError> {
    may_wait()?;
    serving::try_wait_guard().map_err(|why| TransportError::new(why.kind(), why.ran(), why.detail()))
}
