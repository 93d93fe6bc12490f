//! The exchanges of a call, for the procedure that executes it.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use farcall_proto::server::CallKey;
use farcall_proto::{Tail, Time, server as proto};

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
    waiting: Mutex<Waiting>,
}

/// Who waits for something to change.
#[derive(Default)]
struct Waiting {
    threads: Vec<Arc<dyn Event>>,
    task: Option<Waker>,
}

impl Core {
    /// Takes news about exchanges to the procedures that they concern. Their threads are woken at once, which
    /// costs no more than to remember them; tasks later, because wakers are the user's code.
    #[cold]
    pub(super) fn pass_news(&mut self) {
        while let Some((key, _, _)) = self.protocol.next_news() {
            self.tell(key);
        }
    }

    /// Wakes the threads and tasks that wait in exchanges of a call, because something has changed.
    pub(super) fn tell(&mut self, key: CallKey) {
        let Some(news) = self.exchanging.get(&key) else { return };
        news.epoch.fetch_add(1, Ordering::Release);
        let Waiting { threads, task } = std::mem::take(&mut *lock(&news.waiting));
        threads.iter().for_each(|event| event.set());
        self.accessor.woken.extend(task);
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
    /// Acts on the protocol, and sends what is ready then. Does nothing once the caller's deadline has passed.
    fn act<R>(&self, act: impl FnOnce(&mut proto::Server) -> Option<R>) -> Option<R> {
        let server = &self.server;
        if self.is_over() {
            return None;
        }
        let (done, alarm, quiet) = {
            let mut core = server.lock();
            let done = act(&mut core.protocol);
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

    /// Whether the call's deadline has passed, or the server has been stopped.
    fn is_over(&self) -> bool {
        self.server.is_stopped() || self.deadline.is_some_and(|deadline| deadline <= self.server.now())
    }
}

impl Exchanges for ServedExchanges {
    fn open(&self) -> Option<u32> {
        self.act(|protocol| protocol.open_exchange(self.key))
    }

    fn send(&self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        self.act(|protocol| protocol.send_in(self.key, exchange, bytes, tail))
    }

    fn take(&self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.act(|protocol| protocol.take_from(self.key, exchange, into, most))
    }

    fn stop(&self, exchange: u32) {
        self.act(|protocol| {
            protocol.stop_exchange(self.key, exchange, 0);
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
            // Whoever changed the number before has not seen the event.
            if self.epoch() != epoch || self.is_over() {
                break;
            }
            event.wait(self.deadline.map(|deadline| deadline.since(self.server.now())));
        }
        lock(&self.news.waiting).threads.retain(|other| !Arc::ptr_eq(other, &event));
        EVENT.set(Some(event));
        Ok(())
    }

    fn watch(&self, waker: &Waker) {
        let waker = Some(waker.clone());
        let former = std::mem::replace(&mut lock(&self.news.waiting).task, waker);
        drop(former);
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
