//! One connection, or one socket for datagrams, from its first byte to its last: what goes out, and what comes in.
//!
//! The thread that waits for a reply receives itself, and for everybody else meanwhile (`table` says whose turn it is).
//! What is sent by several threads at once leaves in one system call: who finds another sending leaves it its bytes.

mod service;

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use farcall::env::{Alarm, Env, Event, Time, thread_event};
use farcall::{Kind, Ran};

use super::carrier::{self, Carrier, Wait};
use super::copies::Anew;
use super::incoming::{Mine, Posted};
use super::refusals::{Next, Refusals};
use super::table::{Again, Body, Entry, Lost, Outcome, Table, Watcher, later};
use super::timers::{Terms, Timers};
use crate::wait_guard::WaitGuard;
use crate::wire::record::{Limits, RecordError, Records};
use service::Service;

/// Started calls are held back until so many bytes may leave together.
const HOLD: usize = 32 << 10;
/// Longer than any datagram.
const DATAGRAM: usize = 64 << 10;

/// Takes what a server asks of its client, on the connection by which it is called.
pub(crate) trait Back: Send + Sync {
    /// A message that is a call. Returns at once.
    fn take(&self, link: &Arc<Link>, message: Vec<u8>);
}

pub(crate) struct Link {
    env: Arc<dyn Env>,
    me: Weak<Link>,
    carrier: Box<dyn Carrier>,
    datagrams: bool,
    back: Option<Arc<dyn Back>>,
    table: Mutex<Table>,
    /// The leader's alone.
    reader: Mutex<Reader>,
    /// `Table::way` is blocked: the leader must see when it is not.
    blocked: AtomicBool,
    state: AtomicU8,
    /// Grows with each reception. It is odd while a record has come in part.
    heard: AtomicU64,
    /// Wakes one who gathers here.
    alarm: OnceLock<Option<Arc<dyn Alarm>>>,
    /// The thread that looks after the link while no caller does, once there is one.
    service: OnceLock<Arc<Service>>,
}

/// What becomes of a link, in this order.
const LIVE: u8 = 0;
/// A call's deadline has passed, and since the call was sent nothing has come, or only part of a record. The
/// next call is made on a new connection; other calls under way here may still be answered.
const SILENT: u8 = 1;
/// New calls are made on another link, which has replaced this one.
const REPLACED: u8 = 2;
/// `Table::broken` says why.
const DEAD: u8 = 3;

enum Reader {
    Stream(Box<Records>),
    Datagrams(Box<[u8]>, Refusals),
}

/// What came of receiving once.
enum Came {
    /// The reply that was waited for; the lead is passed already.
    Mine(Body),
    /// Something, perhaps.
    Something,
    Nothing,
    /// Datagrams are not taken: the next try is not to be later than that.
    Refused(Time),
    /// Datagrams have been refused for so long that the server is taken for gone.
    GivenUp(Lost),
    Broken,
}

thread_local! {
    /// This thread receives for others: if it waited in a second call, nobody would.
    static LEADS: Cell<bool> = const { Cell::new(false) };
}

impl Reader {
    /// When the record under way will have taken too long.
    fn due(&self) -> Option<Time> {
        match self {
            Reader::Stream(records) => records.patience(),
            Reader::Datagrams(..) => None,
        }
    }

    /// When datagrams are to be sent again after a refusal.
    fn next_try(&self, now: Time) -> Option<Time> {
        match self {
            Reader::Stream(_) => None,
            Reader::Datagrams(_, refusals) => refusals.next_try(now),
        }
    }

    /// Says so if it has.
    fn overdue(&mut self, now: impl FnOnce() -> Time) -> Option<RecordError> {
        match self {
            Reader::Stream(records) if records.is_partial() => records.check(now()).err(),
            Reader::Stream(_) | Reader::Datagrams(..) => None,
        }
    }
}

impl Link {
    pub(crate) fn new(
        env: Arc<dyn Env>,
        carrier: Box<dyn Carrier>,
        datagrams: bool,
        limits: Limits,
        back: Option<Arc<dyn Back>>,
    ) -> Arc<Link> {
        let reader = match datagrams {
            true => Reader::Datagrams(vec![0; DATAGRAM].into(), Refusals::default()),
            false => Reader::Stream(Box::new(Records::new(limits))),
        };
        let link = Arc::new_cyclic(|me| Link {
            env,
            me: me.clone(),
            carrier,
            datagrams,
            back,
            table: Mutex::default(),
            reader: Mutex::new(reader),
            blocked: AtomicBool::new(false),
            state: AtomicU8::new(LIVE),
            heard: AtomicU64::new(0),
            alarm: OnceLock::new(),
            service: OnceLock::new(),
        });
        if link.back.is_some() {
            service::engage(&link);
        }
        link
    }

    /// Whether calls are to be made here: `only` says that there will be no other link.
    #[inline]
    pub(crate) fn is_usable(&self, only: bool) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state == LIVE || (only && state < DEAD)
    }

    /// New calls are made elsewhere from now on. It ends when none is under way here any more.
    pub(crate) fn replace(&self) {
        self.state.fetch_max(REPLACED, Ordering::SeqCst);
        let table = self.lock();
        if table.is_empty() && !table.is_led() {
            self.fail(table, Kind::Unreachable, "the connection was silent for too long");
        }
    }

    /// A call's time is over which was sent when so much had come.
    #[cold]
    pub(crate) fn late(&self, then: u64) -> Lost {
        let now = self.heard.load(Ordering::Relaxed);
        if !self.datagrams && (now == then || now % 2 == 1) {
            self.state.fetch_max(SILENT, Ordering::SeqCst);
        }
        Lost::late()
    }

    /// Looks whether the server has ended the connection, unless somebody would hear of it anyway.
    #[cold]
    pub(crate) fn check(self: &Arc<Self>) {
        if !self.datagrams && self.lock().try_lead() {
            self.look();
        }
    }

    /// Calls, and waits for the reply. The leader, who takes its own reply in, does not enter its call in the table.
    pub(crate) fn call(self: &Arc<Self>, message: &[u8], terms: &Terms) -> Outcome {
        may_wait()?;
        let waits = wait_guard()?;
        let mut table = self.lock();
        let end = table.admit(Some(terms.xid), message)?;
        let entered = !table.try_lead_for(terms.xid);
        let mine = Mine { xid: terms.xid, end, entered, heard: self.heard.load(Ordering::Relaxed) };
        if mine.entered {
            table.begin(mine.xid, Entry { end, heard: mine.heard, ..Entry::default() })?;
            let event = thread_event(&self.env);
            table.follow(event.clone());
            table.watch(mine.xid, Watcher::Thread(event));
        }
        self.depart(table, message, false);
        self.await_reply(&mine, terms, !mine.entered, self.datagrams.then_some(message), &waits)
    }

    /// Sends a call that has no reply.
    pub(crate) fn send_only(self: &Arc<Self>, message: &[u8]) -> Result<(), Lost> {
        let mut table = self.lock();
        let end = table.admit(None, message)?;
        self.depart(table, message, false);
        self.engage_if_blocked();
        let table = self.lock();
        let ran = table.way.may_have_run(end);
        table.broken.clone().map_or(Ok(()), |lost| Err(Lost { ran, ..lost }))
    }

    /// Starts a call. It leaves at once if it is the only one; else it may wait for others to leave with it, until a
    /// thread waits, or the service thread looks.
    pub(crate) fn start(self: &Arc<Self>, message: &[u8], terms: &Terms, anew: Anew) -> Result<(), Lost> {
        let again = self.datagrams.then(|| Box::new(Again::new(message, anew, terms.now, terms.pause)));
        let mut table = self.lock();
        let end = table.admit(Some(terms.xid), message)?;
        let heard = self.heard.load(Ordering::Relaxed);
        let entry =
            Entry { end, heard, deadline: terms.deadline, again, unattended: true, ..Entry::default() };
        table.begin(terms.xid, entry)?;
        table.started += 1;
        let hold = !self.datagrams && table.len() > 1 && table.way.out.len() + message.len() < HOLD;
        let unlisted = !mem::replace(&mut table.listed, true);
        self.depart(table, message, hold);
        service::look_after(self, unlisted);
        Ok(())
    }

    /// Waits for the reply to a call that was started.
    pub(crate) fn wait(self: &Arc<Self>, xid: u32, deadline: Option<Time>) -> Outcome {
        let mut table = self.lock();
        if let Some(outcome) = table.fetch(xid) {
            return outcome;
        }
        let waits =
            may_wait().and_then(|()| wait_guard()).map_err(|lost| Lost { ran: Ran::Maybe, ..lost })?;
        table.attend(xid, true);
        let mine = Mine { xid, end: 0, entered: true, heard: table.heard(xid) };
        let event = thread_event(&self.env);
        let leads = table.join(&event);
        let watcher = if leads { Watcher::Nobody } else { Watcher::Thread(event) };
        let former = table.watch(xid, watcher);
        self.flush(table);
        drop(former);
        let now = self.env.now();
        let within = deadline.map(|deadline| deadline.since(now));
        let terms = Terms { xid, deadline, within, pause: Duration::ZERO, now };
        self.await_reply(&mine, &terms, leads, None, &waits)
    }

    /// The outcome of a call that was started, if there is one; else `watcher` is told of it.
    pub(crate) fn poll(self: &Arc<Self>, xid: u32, watcher: impl FnOnce() -> Watcher) -> Option<Outcome> {
        let mut table = self.lock();
        if let Some(outcome) = table.fetch(xid) {
            return Some(outcome);
        }
        let former = table.watch(xid, watcher());
        let engage = (table.is_hurried() && !table.watched && !table.is_led()) || !table.listed;
        drop(table);
        drop(former);
        if engage {
            service::engage(self);
            self.rouse_service();
        }
        None
    }

    /// Gives a call up; true if it had not ended.
    pub(crate) fn give_up(&self, xid: u32) -> bool {
        let entry = self.lock().remove(xid);
        entry.is_some_and(|entry| entry.outcome.is_none())
    }

    /// As if the server had said that.
    pub(crate) fn end(&self, xid: u32, outcome: Outcome) {
        let watcher = self.lock().end(xid, outcome);
        watcher.wake(false);
    }

    /// Lets a call run whose reply nobody wants.
    pub(crate) fn detach(self: &Arc<Self>, xid: u32) {
        let mut table = self.lock();
        table.detach(xid);
        self.flush(table);
        self.engage_if_blocked();
    }

    /// Sends what was held back.
    pub(crate) fn send_held(&self) {
        self.flush(self.lock());
    }

    /// Ends it.
    pub(crate) fn close(&self) {
        self.fail(self.lock(), Kind::Stopped, "the client was dropped");
    }

    /// Sends a message that was counted in, or holds it back.
    #[inline]
    fn depart(&self, mut table: MutexGuard<'_, Table>, message: &[u8], hold: bool) {
        if self.datagrams {
            drop(table);
            return self.send_datagram(message);
        }
        let way = &mut table.way;
        if hold || way.writing || way.blocked || !way.out.is_empty() {
            way.out.extend_from_slice(message);
            if !hold {
                self.flush(table);
            }
            return;
        }
        let table = self.write(table, message);
        self.flush(table);
    }

    /// Sends all that waits to be sent, unless another thread is at it.
    fn flush<'a>(&'a self, mut table: MutexGuard<'a, Table>) {
        let mut used = Vec::new();
        while table.may_write() {
            let batch = mem::replace(&mut table.way.out, mem::take(&mut used));
            table = self.write(table, &batch);
            used = batch;
            used.clear();
        }
        if table.way.out.capacity() == 0 && used.capacity() <= 2 * HOLD {
            table.way.out = used;
        }
    }

    /// Hands bytes over, which are all that is counted in and not in `Way::out`. No lock is held meanwhile.
    fn write<'a>(&'a self, mut table: MutexGuard<'a, Table>, bytes: &[u8]) -> MutexGuard<'a, Table> {
        table.way.hand_over();
        drop(table);
        let sent = self.carrier.send(bytes);
        let mut table = self.lock();
        let sent = match sent {
            Ok(sent) => sent,
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(why) => {
                table.way.took_none(bytes.len());
                self.fail(table, Kind::Unreachable, &why.to_string());
                return self.lock();
            }
        };
        if !table.way.took(bytes, sent) {
            self.blocked.store(true, Ordering::SeqCst);
        }
        table
    }

    /// The system takes more again.
    pub(crate) fn unblock(&self) {
        let mut table = self.lock();
        table.way.blocked = false;
        self.blocked.store(false, Ordering::SeqCst);
        self.flush(table);
    }

    /// Where the system takes no more and this thread does not lead, the service thread sees when it does.
    fn engage_if_blocked(self: &Arc<Self>) {
        if self.blocked.load(Ordering::SeqCst) {
            service::engage(self);
        }
    }

    /// Sends one datagram. An error that the system returns may be about an earlier datagram, perhaps of
    /// another thread: the socket's pending error is told only once, and then the receiving thread does not
    /// hear it. So the datagram is sent again after such an error; if the port is still refused, that raises
    /// an error of its own. After any other error the datagram is sent once more, and may be lost, as in a
    /// network.
    pub(crate) fn send_datagram(&self, message: &[u8]) {
        const TRIES: usize = 32;
        for _ in 0..TRIES {
            match self.carrier.send(message) {
                Err(why) if Refusals::is_one(why.kind()) => {}
                Err(_) => return drop(self.carrier.send(message)),
                Ok(_) => return,
            }
        }
    }

    /// Waits until a call has ended, as the leader or as one that follows. A server's procedure that waits has others go on
    /// with its work meanwhile.
    fn await_reply(
        self: &Arc<Self>,
        mine: &Mine,
        terms: &Terms,
        leads: bool,
        again: Option<&[u8]>,
        waits: &WaitGuard,
    ) -> Outcome {
        waits.begin();
        let mut timers =
            Timers { deadline: terms.deadline, again, at: None, pause: terms.pause, repeated: false };
        if !leads {
            self.engage_if_blocked();
            if let Some(outcome) = self.follow(mine.xid, &mut timers, terms.now) {
                return timers.mark(outcome);
            }
        }
        let former = LEADS.replace(true);
        let outcome = self.lead(mine, terms, &mut timers);
        LEADS.set(former);
        timers.mark(outcome)
    }

    /// Sleeps until the call has ended, or this thread leads.
    fn follow(&self, xid: u32, timers: &mut Timers<'_>, start: Time) -> Option<Outcome> {
        let event = thread_event(&self.env);
        timers.set(start);
        loop {
            let mut table = self.lock();
            if let Some(outcome) = table.fetch(xid) {
                let next = table.leave(&event);
                drop(table);
                wake(next);
                return Some(outcome);
            }
            if table.inherits(&event) {
                return None;
            }
            drop(table);
            let now = self.env.now();
            if timers.is_late(now) {
                let mut table = self.lock();
                let next = table.leave(&event);
                let entry = table.remove(xid).unwrap_or_default();
                drop(table);
                wake(next);
                return Some(entry.outcome.unwrap_or_else(|| Err(self.late(entry.heard))));
            }
            self.send_again(timers, now);
            event.wait(timers.next(now));
        }
    }

    /// Receives for everybody until the call has ended.
    fn lead(self: &Arc<Self>, mine: &Mine, terms: &Terms, timers: &mut Timers<'_>) -> Outcome {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // The first wait needs no clock: hardly any time has passed.
        let mut wait = terms.first_wait(timers);
        if let Some(due) = reader.due() {
            wait = wait.until(due, self.env.now());
        }
        if let Some(at) = reader.next_try(terms.now) {
            timers.set(terms.now);
            timers.hasten(at);
            wait = wait.until(at, self.env.now());
        }
        loop {
            // What came before the time was over counts.
            let is_late = wait == Wait::No;
            match self.receive(&mut reader, wait, Some(mine)) {
                Came::Mine(body) => return Ok(body),
                Came::Broken => return self.finish(mine, None),
                Came::GivenUp(lost) => return self.finish(mine, Some(lost)),
                Came::Something | Came::Nothing | Came::Refused(_) if is_late => {
                    return self.finish(mine, Some(self.late(mine.heard)));
                }
                Came::Something | Came::Nothing => timers.set(terms.now),
                Came::Refused(at) => {
                    timers.set(terms.now);
                    timers.hasten(at);
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

    /// Ends the lead of one who has not received its reply.
    #[cold]
    fn finish(&self, mine: &Mine, lost: Option<Lost>) -> Outcome {
        let mut table = self.lock();
        let ended = if mine.entered { table.remove(mine.xid).and_then(|entry| entry.outcome) } else { None };
        let ran = table.way.may_have_run(mine.end);
        let broken = table.broken.clone().map(|lost| Lost { ran, ..lost });
        self.pass(table);
        ended.unwrap_or_else(|| Err(lost.or(broken).unwrap_or_else(Lost::late)))
    }

    fn pass(&self, mut table: MutexGuard<'_, Table>) {
        let next = table.pass();
        let hurried = next.is_none() && table.is_hurried();
        drop(table);
        wake(next);
        if hurried {
            self.wake_service();
        }
    }

    fn send_again(&self, timers: &mut Timers<'_>, now: Time) {
        let Some(message) = timers.again.filter(|_| timers.at.is_some_and(|at| at <= now)) else { return };
        self.send_datagram(message);
        timers.pause = later(timers.pause);
        timers.at = Some(now + timers.pause);
        timers.repeated = true;
    }

    /// Receives once, as the leader.
    fn receive(self: &Arc<Self>, reader: &mut Reader, wait: Wait, mine: Option<&Mine>) -> Came {
        if self.blocked.load(Ordering::SeqCst) && wait != Wait::No {
            let time = if let Wait::For(time) = wait { Some(time) } else { None };
            match carrier::wait(&*self.env, &*self.carrier, true, None, time) {
                Ok(ready) if ready.write => self.unblock(),
                Ok(ready) if ready.read => {}
                _ => return self.nothing(reader),
            }
            return self.receive(reader, Wait::No, mine);
        }
        let space = match reader {
            Reader::Stream(records) => records.space(),
            Reader::Datagrams(buffer, _) => buffer,
        };
        match self.carrier.receive(space, wait) {
            Ok(0) if !self.datagrams => self.break_off(Kind::Unreachable, "the server ended the connection"),
            Ok(len) => self.take_in(reader, len, mine),
            Err(why) => match why.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut => self.nothing(reader),
                _ => match reader {
                    Reader::Stream(_) => self.break_off(Kind::Unreachable, &why.to_string()),
                    Reader::Datagrams(_, refusals) => self.refused(&why, refusals),
                },
            },
        }
    }

    /// Nothing came, and a record that is under way may have taken too long.
    fn nothing(&self, reader: &mut Reader) -> Came {
        match reader.overdue(|| self.env.now()) {
            None => Came::Nothing,
            Some(why) => self.break_off(Kind::BadResult, &why.to_string()),
        }
    }

    /// Gives what came to whom it is for.
    #[inline]
    fn take_in(self: &Arc<Self>, reader: &mut Reader, len: usize, mine: Option<&Mine>) -> Came {
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
        // Nobody else receives.
        let whole = (self.heard.load(Ordering::Relaxed) | 1) + 1;
        self.heard.store(whole, Ordering::Relaxed);
        if let Some(body) = alone.and_then(|message| mine?.take(message)) {
            if let Reader::Stream(records) = reader {
                records.skip();
            }
            self.pass(self.lock());
            return Came::Mine(body);
        }
        let mut table = self.lock();
        let mut posted = Posted::default();
        let mut fault = None;
        match reader {
            Reader::Datagrams(buffer, _) => posted.sort(&mut table, Cow::Borrowed(&buffer[..len]), mine),
            Reader::Stream(records) => {
                fault = loop {
                    match records.next() {
                        Ok(Some(record)) => posted.sort(&mut table, record, mine),
                        Ok(None) => break None,
                        Err(why) => break Some(why),
                    }
                };
                if fault.is_none() && records.is_partial() {
                    self.heard.store(whole + 1, Ordering::Relaxed);
                    fault = records.check(self.env.now()).err();
                }
            }
        }
        let leading = posted.mine.is_none();
        match leading {
            true => drop(table),
            false => self.pass(table),
        }
        let Posted { mine, watchers, calls } = posted;
        // Mostly there is nobody else.
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
            return mine.map_or(Came::Broken, Came::Mine);
        }
        mine.map_or(Came::Something, Came::Mine)
    }

    /// Handles the system's word that the server's port is refused. It brings the next try forward; if
    /// refusals go on, all calls end.
    #[cold]
    fn refused(&self, why: &io::Error, refusals: &mut Refusals) -> Came {
        let next = match Refusals::is_one(why.kind()) {
            true => refusals.refused(self.env.now()),
            false => Next::GiveUp,
        };
        match next {
            Next::Retry(at) => Came::Refused(at),
            Next::FirstRetry(at) => {
                self.lock().hasten(at);
                self.wake_service();
                Came::Refused(at)
            }
            Next::GiveUp => {
                let lost = Lost::new(Kind::Unreachable, Ran::Maybe, why.to_string());
                let watchers = self.lock().end_all(&lost);
                watchers.into_iter().for_each(|watcher| watcher.wake(false));
                Came::GivenUp(lost)
            }
        }
    }

    fn break_off(&self, kind: Kind, why: &str) -> Came {
        self.fail(self.lock(), kind, why);
        Came::Broken
    }

    /// All calls end, by this reason.
    fn fail(&self, mut table: MutexGuard<'_, Table>, kind: Kind, why: &str) {
        if table.broken.is_some() {
            return;
        }
        let watchers = table.fail(kind, why.into());
        self.state.store(DEAD, Ordering::SeqCst);
        drop(table);
        self.carrier.shutdown();
        watchers.into_iter().for_each(|watcher| watcher.wake(false));
    }

    /// Takes in what has come, without waiting, as one who leads; and leads no longer.
    pub(crate) fn look(self: &Arc<Self>) {
        /// The rest waits its turn.
        const MOST: usize = 16;
        (0..MOST).all(|_| self.take_some());
        self.pass(self.lock());
    }

    /// Takes in something that has come, a refusal too, as one who leads; false if there was nothing.
    pub(crate) fn take_some(self: &Arc<Self>) -> bool {
        let former = LEADS.replace(true);
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let came = self.receive(&mut reader, Wait::No, None);
        LEADS.set(former);
        !matches!(came, Came::Nothing | Came::Broken)
    }

    /// Leads, or follows, no longer.
    pub(crate) fn leave(&self, leads: bool, event: &Arc<dyn Event>) {
        let mut table = self.lock();
        if leads {
            return self.pass(table);
        }
        let next = table.leave(event);
        drop(table);
        wake(next);
    }

    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    pub(crate) fn me(&self) -> Option<Arc<Link>> {
        self.me.upgrade()
    }

    /// Waits until something has come or `until`, as one who leads; the alarm ends the wait. Where the system has no
    /// descriptors for an alarm, it ends soon: then whoever waits looks for what an alarm would have told.
    pub(crate) fn watch(&self, alarm: Option<&dyn Alarm>, until: Option<Time>) {
        const SOON: Duration = Duration::from_millis(10);
        let until = [until, self.due()].into_iter().flatten().min();
        let time = until.map(|until| until.since(self.env.now()));
        let time = if alarm.is_some() { time } else { Some(time.map_or(SOON, |time| time.min(SOON))) };
        let blocked = self.blocked.load(Ordering::SeqCst);
        if let Ok(ready) = carrier::wait(&*self.env, &*self.carrier, blocked, alarm.map(Alarm::source), time)
        {
            if ready.write {
                self.unblock();
            }
            alarm.inspect(|alarm| alarm.quiet());
        }
    }

    /// What wakes one who gathers here.
    pub(crate) fn alarm(&self) -> Option<&Arc<dyn Alarm>> {
        self.alarm.get_or_init(|| self.env.alarm().ok()).as_ref()
    }

    pub(crate) fn carrier(&self) -> &dyn Carrier {
        &*self.carrier
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst)
    }

    pub(crate) fn is_served_back(&self) -> bool {
        self.back.is_some() && self.state.load(Ordering::Relaxed) < REPLACED
    }

    /// When the record under way will have taken too long; none if another thread receives, which minds that.
    pub(crate) fn due(&self) -> Option<Time> {
        self.reader.try_lock().ok()?.due()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing of a user's runs while it is held.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that this thread waits, to the worker pool that it may belong to.
#[inline]
fn wait_guard() -> Result<WaitGuard, Lost> {
    WaitGuard::new()
        .map_err(|_| Lost::overloaded("too many procedures of this server wait in calls of their own"))
}

/// A thread that receives for others must not wait in a second call: it waits for itself.
#[inline]
pub(crate) fn may_wait() -> Result<(), Lost> {
    if !LEADS.get() {
        return Ok(());
    }
    let why = "no call can be waited for in a waker: start it there";
    Err(Lost::new(Kind::Local, Ran::No, why))
}

fn wake(thread: Option<Arc<dyn Event>>) {
    thread.iter().for_each(|event| event.set());
}
