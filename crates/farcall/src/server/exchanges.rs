//! The exchanges of a call, for the procedure that executes it.

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

use farcall_proto::server::CallKey;
use farcall_proto::{BASE_DATAGRAM, Failure, Kind, Ran, Tail, Time};

use farcall_memory::Accessor;

use super::{Core, Server};
use crate::context::{CallServer, Incoming};
use crate::depart;
use crate::env::Event;
use crate::exchange::{Exchanges, Watchers};
use crate::notice::Notice;
use crate::{Bytes, CallFailed, lock, serving};

/// The calls whose procedures have asked for their exchanges, by their keys.
pub(super) type Exchanging = HashSet<ByKey>;

/// The server's end of a call's exchanges, as an element of a set.
pub(super) struct ByKey(Arc<ServedExchanges>);

/// The server's end of a call's exchanges. A stream may be idle for days, so this is small.
pub(super) struct ServedExchanges {
    server: Arc<Server>,
    key: CallKey,
    /// The identifier of the export that is called.
    export: u64,
    /// The exchange in which the stream is sent that is the result; 0 if there is none.
    result: AtomicU32,
    /// The call's deadline, or [`NEVER`].
    deadline: Time,
    /// How often something has changed.
    epoch: AtomicU32,
    is_given_up: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// The deadline of a call that has none.
const NEVER: Time = Time::from_nanos(u64::MAX);

impl ServedExchanges {
    fn new(server: Arc<Server>, call: &Incoming) -> Arc<ServedExchanges> {
        Arc::new(ServedExchanges {
            server,
            key: call.key,
            export: call.export,
            result: AtomicU32::new(0),
            deadline: call.deadline.unwrap_or(NEVER),
            epoch: AtomicU32::new(0),
            is_given_up: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    fn deadline(&self) -> Option<Time> {
        (self.deadline != NEVER).then_some(self.deadline)
    }

    /// Has the task that executes the call woken by the next change, and returns whether the call was given
    /// up already.
    pub(super) fn watch_call(&self, waker: &Waker) -> bool {
        self.watch_in(0, waker);
        self.is_given_up()
    }

    /// Returns whether the call was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    fn watch_in(&self, exchange: u32, waker: &Waker) {
        let waker = waker.clone();
        let former = lock(&self.waiting).watch(exchange, waker);
        drop(former);
    }
}

/// The threads and tasks that wait for something to change.
#[derive(Default)]
struct Waiting {
    /// The task that waits in one exchange.
    task: Option<(u32, Waker)>,
    more: Option<Box<More>>,
}

/// What few calls have while they are idle.
#[derive(Default)]
struct More {
    threads: Vec<Arc<dyn Event>>,
    /// Tasks that wait in other exchanges.
    tasks: Watchers,
    outbox: Outbox,
    /// Tells the call's tasks that its deadline has passed, once a task has waited.
    late: Option<Arc<Notice>>,
}

impl Waiting {
    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn outbox(&mut self) -> Option<&mut Outbox> {
        Some(&mut self.more.as_deref_mut()?.outbox)
    }

    /// Sets the waker of an exchange. Returns one that is not needed, which the caller drops without a lock.
    #[must_use]
    fn watch(&mut self, exchange: u32, waker: Waker) -> Option<Waker> {
        match &mut self.task {
            None => {
                self.task = Some((exchange, waker));
                None
            }
            // Any change wakes all tasks, so one waker of a task is enough.
            Some((_, known)) if known.will_wake(&waker) => Some(waker),
            Some((number, former)) if *number == exchange => Some(std::mem::replace(former, waker)),
            Some(_) => self.more().tasks.set(exchange, waker),
        }
    }

    /// Wakes the threads.
    fn wake_threads(&mut self) {
        if let Some(more) = &mut self.more {
            std::mem::take(&mut more.threads).iter().for_each(|event| event.set());
        }
    }

    /// Wakes the threads, and takes the tasks.
    fn tell(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.wake_threads();
        let mut tasks = Watchers::default();
        if let Some(more) = &mut self.more {
            tasks = more.tasks.take();
            if more.late.is_none() && more.outbox.exchange == 0 {
                self.more = None;
            }
        }
        self.task.take().into_iter().map(|(_, waker)| waker).chain(tasks.into_wakers())
    }
}

impl Borrow<CallKey> for ByKey {
    fn borrow(&self) -> &CallKey {
        &self.0.key
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.key.hash(hasher);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &ByKey) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

/// Ends the waits of threads.
impl Wake for ServedExchanges {
    fn wake(self: Arc<Self>) {
        self.epoch.fetch_add(1, Ordering::Release);
        lock(&self.waiting).wake_threads();
    }
}

/// Small items that wait until what was sent before is acknowledged, and then share datagrams (RFC 896).
/// Without it each item would take the server's lock.
#[derive(Default)]
struct Outbox {
    /// The exchange that the items are sent in; 0 if nothing of it is under way, so that nothing waits.
    exchange: u32,
    bytes: Vec<u8>,
}

/// The most bytes that wait in an outbox.
const MAX_OUTBOX: usize = 32 << 10;

impl Core {
    /// Takes news about exchanges to the procedures that they concern, and sends what waited for an
    /// acknowledgement.
    #[cold]
    pub(super) fn pass_news(&mut self) {
        while let Some((key, exchange, _)) = self.protocol.next_news() {
            let Some(ByKey(news)) = self.exchanging.get(&key) else { continue };
            let waits = lock(&news.waiting).outbox().is_some_and(|outbox| outbox.exchange == exchange);
            if waits {
                self.send_in(key, exchange, (&[], &Bytes::new()), Tail::More);
            }
            self.tell(key);
        }
    }

    /// Sends what waits in the outbox of an exchange, then `bytes`, and then `long`. Returns how many bytes
    /// of these two were sent: none while anything waits. `None` if the receiver takes no more; nothing waits
    /// then.
    fn send_in(
        &mut self,
        key: CallKey,
        exchange: u32,
        (bytes, long): (&[u8], &Bytes),
        tail: Tail,
    ) -> Option<usize> {
        let ByKey(news) = self.exchanging.get(&key)?;
        let mut waiting = lock(&news.waiting);
        let outbox = &mut waiting.more().outbox;
        let is_its = outbox.exchange == exchange;
        if is_its && !outbox.bytes.is_empty() {
            let Some(sent) = self.protocol.send_in(key, exchange, &outbox.bytes, Tail::More) else {
                *outbox = Outbox::default();
                return None;
            };
            outbox.bytes.drain(..sent);
        }
        let waits = is_its && !outbox.bytes.is_empty();
        let sent = match waits {
            true => Some(0),
            false => self.protocol.send_long_in(key, exchange, (bytes, long), tail),
        };
        let Some(sent) = sent else {
            if is_its {
                *outbox = Outbox::default();
            }
            return None;
        };
        if is_its || outbox.exchange == 0 {
            let busy = tail == Tail::More && self.protocol.awaits_credit(key, exchange) || waits;
            outbox.exchange = if busy { exchange } else { 0 };
        }
        Some(sent)
    }

    /// Tells a procedure that its call was given up. Nothing more waits in its outbox: the next item that it
    /// sends is refused.
    pub(super) fn tell_given_up(&mut self, key: CallKey) {
        if let Some(ByKey(news)) = self.exchanging.get(&key) {
            news.is_given_up.store(true, Ordering::Release);
            lock(&news.waiting).outbox().into_iter().for_each(|outbox| *outbox = Outbox::default());
        }
        self.tell(key);
    }

    /// Wakes the threads that wait in exchanges of a call, because something has changed. Leaves the tasks to
    /// a worker, because wakers are the user's code.
    pub(super) fn tell(&mut self, key: CallKey) {
        let Some(ByKey(news)) = self.exchanging.get(&key) else { return };
        news.epoch.fetch_add(1, Ordering::Release);
        let woken = lock(&news.waiting).tell();
        self.accessor.woken.extend(woken);
    }
}

impl Server {
    /// Wakes all threads and tasks that wait in exchanges, because the server has been stopped.
    pub(super) fn tell_all(&self) {
        let mut keys: Vec<CallKey> = self.lock().exchanging.iter().map(|news| news.0.key).collect();
        keys.sort_unstable();
        keys.into_iter().for_each(|key| self.tell_now(key));
    }

    /// Wakes the threads and tasks that wait in exchanges of a call. The caller may run the user's code.
    fn tell_now(&self, key: CallKey) {
        let woken = {
            let mut core = self.lock();
            core.tell(key);
            std::mem::take(&mut core.accessor.woken)
        };
        Accessor { woken, ..Accessor::default() }.wake();
    }

    /// Returns the exchanges of a call that a procedure executes.
    #[expect(clippy::mutable_key_type, reason = "an element is found by its call's key, which never changes")]
    pub(super) fn exchanges_of(self: Arc<Self>, call: &Incoming) -> Arc<dyn Exchanges> {
        let new = ServedExchanges::new(self.clone(), call);
        let exchanging = &mut self.lock().exchanging;
        if let Some(ByKey(known)) = exchanging.get(&call.key) {
            return known.clone();
        }
        exchanging.insert(ByKey(new.clone()));
        new
    }

    /// Ends the calls of an export, or of all, whose results are streams of which nothing has passed since
    /// `seen` was filled by an earlier look. A watch would otherwise hold up a server that drains for ever.
    pub(super) fn end_quiet_streams(&self, export: Option<u64>, seen: &mut HashMap<CallKey, u64>) {
        let now = self.now();
        let mut core = self.lock();
        let Core { exchanging, protocol, .. } = &mut *core;
        let is_meant = |news: &ServedExchanges| export.is_none_or(|export| export == news.export);
        let mut is_quiet = |news: &ServedExchanges| {
            let (key, epoch, exchange) = (news.key, news.epoch(), news.result.load(Ordering::Relaxed));
            let busy = exchange == 0 || protocol.is_sending(key, exchange) || news.has_outbox(exchange);
            !busy && seen.insert(key, epoch) == Some(epoch) && !news.is_given_up()
        };
        let streams = exchanging.iter().map(|ByKey(news)| &**news);
        let quiet = streams.filter(|news| is_meant(news) && is_quiet(news)).map(|news| news.key);
        let mut quiet: Vec<CallKey> = quiet.collect();
        quiet.sort_unstable();
        let any = !quiet.is_empty();
        for key in quiet {
            let why = "the server drains, and the stream had no items to send";
            let failure = Failure::new(Kind::Draining, Ran::Yes).with_detail(why.to_owned());
            if core.protocol.finish_early(now, key, failure.into()) {
                self.note_cancelled(&mut core, key);
            }
        }
        drop(core);
        if any {
            // The receiving worker sends the failures and wakes the tasks.
            self.socket.wake();
        }
    }

    /// Forgets the exchanges of a call that has ended, if its procedure has asked for them.
    #[cold]
    pub(super) fn end_exchanges(&self, key: CallKey) {
        let (ended, woken) = {
            let mut core = self.lock();
            let before = core.accessor.woken.len();
            core.tell(key);
            (core.exchanging.take(&key), core.accessor.woken.len() > before)
        };
        let late = ended.and_then(|ByKey(ended)| lock(&ended.waiting).more.as_mut()?.late.take());
        if let Some(late) = late {
            CallServer::forget(self, key, &late);
        }
        if woken {
            self.socket.wake();
        }
    }
}

impl Server {
    /// Returns the news of a call whose procedure has asked for its exchanges.
    pub(super) fn news_of(&self, key: CallKey) -> Option<Arc<ServedExchanges>> {
        self.lock().exchanging.get(&key).map(|ByKey(news)| news.clone())
    }
}

/// Tells a call that its deadline has passed.
struct Late {
    server: Weak<Server>,
    key: CallKey,
}

impl Wake for Late {
    fn wake(self: Arc<Self>) {
        if let Some(server) = self.server.upgrade() {
            server.tell_now(self.key);
        }
    }
}

impl ServedExchanges {
    /// Acts on the protocol, and sends what is ready then. Does nothing once the caller's deadline has
    /// passed.
    fn act<R>(&self, act: impl FnOnce(&mut Core) -> Option<R>) -> Option<R> {
        self.act_and_flush(act, |_| true)
    }

    /// Acts on the protocol as `act` does, and sends what is ready then only if `flush` says so.
    fn act_and_flush<R>(
        &self,
        act: impl FnOnce(&mut Core) -> Option<R>,
        flush: impl FnOnce(&Option<R>) -> bool,
    ) -> Option<R> {
        let server = &self.server;
        if self.is_over() {
            return None;
        }
        let (done, alarm, quiet) = {
            let mut core = server.lock();
            let done = act(&mut core);
            (done, core.alarm(), core.protocol.is_quiet())
        };
        if alarm {
            server.watchdog.set();
        }
        if !quiet && flush(&done) {
            let mut out = OUT.take().unwrap_or_else(|| vec![0; depart::ROOM].into_boxed_slice());
            server.flush(&mut out);
            OUT.set(Some(out));
        }
        done
    }

    /// Puts small items into the outbox of an exchange of which earlier bytes are not acknowledged. Returns
    /// whether they are there.
    fn put_in_outbox(&self, exchange: u32, bytes: &[u8]) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some(outbox) = waiting.outbox() else { return false };
        let fits = outbox.exchange == exchange && outbox.bytes.len() + bytes.len() <= MAX_OUTBOX;
        if fits {
            outbox.bytes.extend_from_slice(bytes);
        }
        fits
    }

    fn has_outbox(&self, exchange: u32) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.outbox().is_some_and(|outbox| outbox.exchange == exchange && !outbox.bytes.is_empty())
    }

    /// Whether the call's deadline has passed, or the server has been stopped.
    fn is_over(&self) -> bool {
        self.server.is_stopped() || self.deadline().is_some_and(|deadline| deadline <= self.server.now())
    }
}

impl Exchanges for ServedExchanges {
    fn open(&self) -> Option<u32> {
        self.act(|core| core.protocol.open_exchange(self.key))
    }

    fn send(&self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        if tail == Tail::More && !self.is_over() && self.put_in_outbox(exchange, bytes) {
            return Some(bytes.len());
        }
        self.act(|core| core.send_in(self.key, exchange, (bytes, &Bytes::new()), tail))
    }

    fn send_long(&self, exchange: u32, bytes: &[u8], long: &Bytes) -> Option<usize> {
        self.act(|core| core.send_in(self.key, exchange, (bytes, long), Tail::More))
    }

    fn send_before_result(&self, exchange: u32, bytes: &[u8]) -> Option<usize> {
        let send = |core: &mut Core| core.send_in(self.key, exchange, (bytes, &Bytes::new()), Tail::End);
        // All that fits few datagrams waits for the result, which is there in a moment.
        let waits = |sent: &Option<usize>| *sent == Some(bytes.len()) && bytes.len() <= BASE_DATAGRAM;
        self.act_and_flush(send, |sent| !waits(sent))
    }

    fn flush(&self, exchange: u32) -> Option<bool> {
        if self.has_outbox(exchange) {
            self.act(|core| core.send_in(self.key, exchange, (&[], &Bytes::new()), Tail::More))?;
        }
        Some(!self.has_outbox(exchange))
    }

    fn take(&self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.act(|core| core.protocol.take_from(self.key, exchange, into, most))
    }

    fn mutant(&self) -> farcall_core::broken::Mutant {
        farcall_core::env::mutant(|| self.server.env.clone())
    }

    fn stop(&self, exchange: u32) {
        self.act(|core| {
            core.protocol.stop_exchange(self.key, exchange, 0);
            Some(())
        });
    }

    fn has_arrived(&self, exchange: u32) -> Option<bool> {
        let flushed = self.flush(exchange)?;
        self.act(|core| {
            let awaits = core.protocol.awaits_credit(self.key, exchange);
            (!core.protocol.is_given_up(self.key)).then_some(flushed && !awaits)
        })
    }

    fn sends_result(&self, exchange: u32) {
        self.result.store(exchange, Ordering::Relaxed);
    }

    fn next_opened(&self) -> Option<u32> {
        // A procedure knows the exchanges of its arguments by their numbers.
        None
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire).into()
    }

    fn wait(&self, epoch: u64) -> Result<(), CallFailed> {
        let _waiting = serving::try_wait_guard()?;
        let event = EVENT.take().unwrap_or_else(|| self.server.env.event());
        loop {
            lock(&self.waiting).more().threads.push(event.clone());
            // The number may have changed before the event was there.
            if self.epoch() != epoch || self.is_over() {
                break;
            }
            event.wait(self.deadline().map(|deadline| deadline.since(self.server.now())));
        }
        if let Some(more) = &mut lock(&self.waiting).more {
            more.threads.retain(|other| !Arc::ptr_eq(other, &event));
        }
        EVENT.set(Some(event));
        Ok(())
    }

    fn watch(&self, exchange: u32, epoch: u64, waker: &Waker) {
        self.watch_in(exchange, waker);
        if self.deadline().is_some() {
            self.watch_deadline();
        }
        // The number may have changed before the waker was there.
        if self.epoch() != epoch || self.is_over() {
            waker.wake_by_ref();
        }
    }

    fn nudge(&self) -> Waker {
        // After the call has ended no thread waits in it, so the waker does nothing.
        self.server.news_of(self.key).map_or_else(|| Waker::noop().clone(), Waker::from)
    }
}

impl ServedExchanges {
    /// Has the call's tasks woken when its deadline passes.
    #[cold]
    fn watch_deadline(&self) {
        let (key, deadline) = (self.key, self.deadline());
        if lock(&self.waiting).more().late.is_some() {
            return;
        }
        let notice = Notice::new(deadline);
        notice.watch(&Waker::from(Arc::new(Late { server: Arc::downgrade(&self.server), key })));
        let former = lock(&self.waiting).more().late.replace(notice.clone());
        self.server.notify(key, &notice);
        if let Some(former) = former {
            CallServer::forget(&*self.server, key, &former);
        }
    }
}

thread_local! {
    /// This thread's buffer for datagrams to send, and what wakes it, kept from one call to the next.
    static OUT: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static EVENT: Cell<Option<Arc<dyn Event>>> = const { Cell::new(None) };
}
