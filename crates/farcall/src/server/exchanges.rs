//! The exchanges of a call, for the procedure that executes it.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farcall_proto::server::CallKey;
use farcall_proto::{BASE_DATAGRAM, Tail, Time};

use super::{Core, Server};
use crate::context::Incoming;
use crate::depart;
use crate::env::Event;
use crate::exchange::Exchanges;
use crate::{CallFailed, lock, serving};

/// The calls whose procedures have asked for their exchanges.
pub(super) type Exchanging = HashMap<CallKey, Arc<CallNews>>;

/// What a procedure is to learn of its call's exchanges.
#[derive(Default)]
pub(super) struct CallNews {
    /// How often something has changed.
    epoch: AtomicU64,
    /// The threads that wait for something to change.
    waiting: Mutex<Vec<Arc<dyn Event>>>,
    outbox: Mutex<Outbox>,
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

    /// Wakes the threads that wait in exchanges of a call, because something has changed.
    pub(super) fn tell(&mut self, key: CallKey) {
        let Some(news) = self.exchanging.get(&key) else { return };
        news.epoch.fetch_add(1, Ordering::Release);
        std::mem::take(&mut *lock(&news.waiting)).iter().for_each(|event| event.set());
    }
}

impl Server {
    /// Wakes all threads that wait in exchanges, because the server has been stopped.
    pub(super) fn tell_all(&self) {
        let mut core = self.lock();
        let keys: Vec<CallKey> = core.exchanging.keys().copied().collect();
        keys.into_iter().for_each(|key| core.tell(key));
    }

    /// Returns the exchanges of a call that a procedure executes.
    pub(super) fn exchanges_of(self: Arc<Self>, call: &Incoming) -> Arc<dyn Exchanges> {
        let news = self.lock().exchanging.entry(call.key).or_default().clone();
        Arc::new(ServedExchanges { server: self, key: call.key, deadline: call.deadline, news })
    }
}

/// The server's end of a call's exchanges.
struct ServedExchanges {
    server: Arc<Server>,
    key: CallKey,
    deadline: Option<Time>,
    news: Arc<CallNews>,
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

    fn send_before_result(&self, exchange: u32, bytes: &[u8]) -> Option<usize> {
        let send = |core: &mut Core| core.send_in(self.key, exchange, bytes, Tail::End);
        // All that fits few datagrams waits for the result, which is there in a moment.
        let waits = |sent: &Option<usize>| *sent == Some(bytes.len()) && bytes.len() <= BASE_DATAGRAM;
        self.act_and_flush(send, |sent| !waits(sent))
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

    fn has_arrived(&self, exchange: u32) -> Option<bool> {
        let flushed = self.flush(exchange)?;
        self.act(|core| {
            let awaits = core.protocol.awaits_credit(self.key, exchange);
            (!core.protocol.is_given_up(self.key)).then_some(flushed && !awaits)
        })
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
            lock(&self.news.waiting).push(event.clone());
            // The number may have changed before the event was there.
            if self.epoch() != epoch || self.is_over() {
                break;
            }
            event.wait(self.deadline.map(|deadline| deadline.since(self.server.now())));
        }
        lock(&self.news.waiting).retain(|other| !Arc::ptr_eq(other, &event));
        EVENT.set(Some(event));
        Ok(())
    }
}

impl Drop for ServedExchanges {
    fn drop(&mut self) {
        self.server.lock().exchanging.remove(&self.key);
    }
}

thread_local! {
    /// This thread's buffer for datagrams to send, and what wakes it, kept from one call to the next.
    static OUT: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static EVENT: Cell<Option<Arc<dyn Event>>> = const { Cell::new(None) };
}
