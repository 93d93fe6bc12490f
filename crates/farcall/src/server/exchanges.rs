//! The exchanges of a call, for the procedure that executes it.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Wake, Waker};

use farcall_proto::server::CallKey;
use farcall_proto::{Tail, Time};

use farcall_memory::Accessor;

use super::{Core, Server};
use crate::context::{CallServer, Incoming};
use crate::depart;
use crate::env::Event;
use crate::exchange::{Exchanges, Watchers};
use crate::notice::Notice;
use crate::{CallFailed, lock, serving};

/// The calls whose procedures have asked for their exchanges.
pub(super) type Exchanging = HashMap<CallKey, Arc<CallNews>>;

/// What a procedure is to learn of its call's exchanges.
#[derive(Default)]
pub(super) struct CallNews {
    /// How often something has changed.
    epoch: AtomicU64,
    /// The threads and tasks that wait for something to change.
    waiting: Mutex<Waiting>,
    outbox: Mutex<Outbox>,
}

#[derive(Default)]
struct Waiting {
    threads: Vec<Arc<dyn Event>>,
    tasks: Watchers,
}

/// Ends the waits of threads.
impl Wake for CallNews {
    fn wake(self: Arc<Self>) {
        self.epoch.fetch_add(1, Ordering::Release);
        std::mem::take(&mut lock(&self.waiting).threads).iter().for_each(|event| event.set());
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
            let Some(news) = self.exchanging.get(&key) else { continue };
            let waits = lock(&news.outbox).exchange == exchange;
            if waits {
                self.send_in(key, exchange, &[], Tail::More);
            }
            self.tell(key);
        }
    }

    /// Sends what waits in the outbox of an exchange, and then `bytes`. Returns how many of `bytes` were
    /// sent: none while anything waits.
    fn send_in(&mut self, key: CallKey, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        let news = self.exchanging.get(&key)?;
        let outbox = &mut *lock(&news.outbox);
        let is_its = outbox.exchange == exchange;
        if is_its && !outbox.bytes.is_empty() {
            let sent = self.protocol.send_in(key, exchange, &outbox.bytes, Tail::More);
            // Where the receiver takes no more, nothing waits.
            outbox.bytes.drain(..sent.unwrap_or(outbox.bytes.len()));
            sent?;
        }
        let waits = is_its && !outbox.bytes.is_empty();
        let sent = if waits { 0 } else { self.protocol.send_in(key, exchange, bytes, tail)? };
        if is_its || outbox.exchange == 0 {
            let busy = tail == Tail::More && self.protocol.awaits_credit(key, exchange) || waits;
            outbox.exchange = if busy { exchange } else { 0 };
        }
        Some(sent)
    }

    /// Tells a procedure that its call was given up. Nothing more waits in its outbox: the next item that it
    /// sends is refused.
    pub(super) fn tell_given_up(&mut self, key: CallKey) {
        if let Some(news) = self.exchanging.get(&key) {
            *lock(&news.outbox) = Outbox::default();
        }
        self.tell(key);
    }

    /// Wakes the threads that wait in exchanges of a call, because something has changed. Leaves the tasks to a
    /// worker, because wakers are the user's code.
    pub(super) fn tell(&mut self, key: CallKey) {
        let Some(news) = self.exchanging.get(&key) else { return };
        news.epoch.fetch_add(1, Ordering::Release);
        let Waiting { threads, tasks } = std::mem::take(&mut *lock(&news.waiting));
        threads.iter().for_each(|event| event.set());
        self.accessor.woken.extend(tasks.into_wakers());
    }
}

impl Server {
    /// Wakes all threads and tasks that wait in exchanges, because the server has been stopped.
    pub(super) fn tell_all(&self) {
        let keys: Vec<CallKey> = self.lock().exchanging.keys().copied().collect();
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
    pub(super) fn exchanges_of(self: Arc<Self>, call: &Incoming) -> Arc<dyn Exchanges> {
        let news = self.lock().exchanging.entry(call.key).or_default().clone();
        let late = OnceLock::new();
        Arc::new(ServedExchanges { server: self, key: call.key, deadline: call.deadline, news, late })
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

/// The server's end of a call's exchanges.
struct ServedExchanges {
    server: Arc<Server>,
    key: CallKey,
    deadline: Option<Time>,
    news: Arc<CallNews>,
    /// Tells the call's tasks that its deadline has passed, once a task has waited.
    late: OnceLock<Arc<Notice>>,
}

impl ServedExchanges {
    /// Acts on the protocol, and sends what is ready then. Does nothing once the caller's deadline has
    /// passed.
    fn act<R>(&self, act: impl FnOnce(&mut Core) -> Option<R>) -> Option<R> {
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
        if !quiet {
            let mut out = OUT.take().unwrap_or_else(|| vec![0; depart::ROOM].into_boxed_slice());
            server.flush(&mut out);
            OUT.set(Some(out));
        }
        done
    }

    /// Puts small items into the outbox of an exchange of which earlier bytes are not acknowledged. Returns
    /// whether they are there.
    fn put_in_outbox(&self, exchange: u32, bytes: &[u8]) -> bool {
        let outbox = &mut *lock(&self.news.outbox);
        let fits = outbox.exchange == exchange && outbox.bytes.len() + bytes.len() <= MAX_OUTBOX;
        if fits {
            outbox.bytes.extend_from_slice(bytes);
        }
        fits
    }

    fn has_outbox(&self, exchange: u32) -> bool {
        let outbox = &*lock(&self.news.outbox);
        outbox.exchange == exchange && !outbox.bytes.is_empty()
    }

    /// Whether the call's deadline has passed, or the server has been stopped.
    fn is_over(&self) -> bool {
        self.server.is_stopped() || self.deadline.is_some_and(|deadline| deadline <= self.server.now())
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
        self.act(|core| core.send_in(self.key, exchange, bytes, tail))
    }

    fn flush(&self, exchange: u32) -> Option<bool> {
        if self.has_outbox(exchange) {
            self.act(|core| core.send_in(self.key, exchange, &[], Tail::More))?;
        }
        Some(!self.has_outbox(exchange))
    }

    fn take(&self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.act(|core| core.protocol.take_from(self.key, exchange, into, most))
    }

    fn stop(&self, exchange: u32) {
        self.act(|core| {
            core.protocol.stop_exchange(self.key, exchange, 0);
            Some(())
        });
    }

    fn next_opened(&self) -> Option<u32> {
        // A procedure knows the exchanges of its arguments by their numbers.
        None
    }

    fn epoch(&self) -> u64 {
        self.news.epoch.load(Ordering::Acquire)
    }

    fn wait(&self, epoch: u64) -> Result<(), CallFailed> {
        let _waiting = serving::try_wait_guard()?;
        let event = EVENT.take().unwrap_or_else(|| self.server.env.event());
        loop {
            lock(&self.news.waiting).threads.push(event.clone());
            // The number may have changed before the event was there.
            if self.epoch() != epoch || self.is_over() {
                break;
            }
            event.wait(self.deadline.map(|deadline| deadline.since(self.server.now())));
        }
        lock(&self.news.waiting).threads.retain(|other| !Arc::ptr_eq(other, &event));
        EVENT.set(Some(event));
        Ok(())
    }

    fn watch(&self, exchange: u32, epoch: u64, waker: &Waker) {
        let former = lock(&self.news.waiting).tasks.set(exchange, waker.clone());
        drop(former);
        if self.deadline.is_some() {
            self.watch_deadline();
        }
        // The number may have changed before the waker was there.
        if self.epoch() != epoch || self.is_over() {
            waker.wake_by_ref();
        }
    }

    fn nudge(&self) -> Waker {
        Waker::from(self.news.clone())
    }
}

impl ServedExchanges {
    /// Has the call's tasks woken when its deadline passes.
    fn watch_deadline(&self) {
        let server = &self.server;
        self.late.get_or_init(|| {
            let notice = Notice::new(self.deadline);
            notice.watch(&Waker::from(Arc::new(Late { server: Arc::downgrade(server), key: self.key })));
            server.notify(self.key, &notice);
            notice
        });
    }
}

impl Drop for ServedExchanges {
    fn drop(&mut self) {
        if let Some(late) = self.late.get() {
            CallServer::forget(&*self.server, self.key, late);
        }
        // The news may hold the last reference to a task, so they are dropped without the lock.
        let news = self.server.lock().exchanging.remove(&self.key);
        drop(news);
    }
}

thread_local! {
    /// This thread's buffer for datagrams to send, and what wakes it, kept from one call to the next.
    static OUT: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static EVENT: Cell<Option<Arc<dyn Event>>> = const { Cell::new(None) };
}
