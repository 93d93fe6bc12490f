//! A thread that waits for started calls which are awaited, and wakes the tasks that await them.
//!
//! (tests/awaited.rs includes this file, and gives it loom's types and a connection without a server through
//! `super::sync` and the other modules.)

use std::io;
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use super::sync::{AtomicBool, Caller, Mutex, MutexGuard, Ordering};
use super::watch::{FIRST_NAP, LONGEST_NAP};
use crate::env::Time;
use crate::guard;

/// A connection, as its service thread sees it.
pub(super) trait Connection: Send + Sync + 'static {
    /// Its service, which has no thread before a call is awaited.
    fn service(&self) -> &Arc<Service>;
    fn caller(&self) -> &Arc<Caller>;
    fn now(&self) -> Time;
    /// Looks whether the server is still there.
    fn look(&self);
    /// Starts a thread.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()>;
}

/// A started call, as the service thread sees it.
pub(super) trait AwaitedCall: Send + Sync {
    /// Has the server wake the caller's process when the call is answered. False: it is answered already.
    fn watch(&self) -> bool;
    /// Whether the call has ended, and then the task to wake.
    fn settle(&self, now: Time) -> Option<Option<Waker>>;
    /// When the call ends though no answer has come, if ever.
    fn until(&self) -> Option<Time>;
}

/// Started by the first call that is awaited.
#[derive(Default)]
pub(crate) struct Service {
    calls: Mutex<Vec<Arc<dyn AwaitedCall>>>,
    /// The thread was started.
    running: AtomicBool,
    starting: Mutex<()>,
    /// It may sleep for ever.
    idle: AtomicBool,
    stopped: AtomicBool,
}

impl Service {
    /// Returns the service of a connection, and starts it if there is none. If no thread can be started now,
    /// the next call tries again.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn of<C: Connection>(link: &Arc<C>) -> io::Result<Awaited<'_, C>> {
        let service = link.service();
        if !service.running.load(Ordering::Acquire) {
            service.start(link)?;
        }
        Ok(Awaited { service, link })
    }

    #[cold]
    fn start(self: &Arc<Self>, link: &Arc<impl Connection>) -> io::Result<()> {
        // Nobody counts on a thread that another is still trying to start.
        let _one = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        let (ours, caller, weak) = (self.clone(), link.caller().clone(), Arc::downgrade(link));
        link.spawn("farcall-await", Box::new(move || ours.live(&caller, &weak)))?;
        self.running.store(true, Ordering::Release);
        Ok(())
    }

    /// It keeps no connection alive while nothing is awaited.
    fn live(&self, caller: &Caller, link: &Weak<impl Connection>) {
        let mut nap = FIRST_NAP;
        while !self.stopped.load(Ordering::Acquire) {
            self.idle.store(true, Ordering::Release);
            let intent = caller.announce_sleep();
            let link = link.upgrade();
            let (now, ended, awaited) = match &link {
                Some(link) => self.collect(link.now()),
                None => return,
            };
            let Some(link) = link.filter(|_| awaited > 0) else {
                // Whoever adds a call wakes us, and so does the end of the connection.
                if ended == 0 && !self.stopped.load(Ordering::Acquire) {
                    caller.sleep_until_woken(intent, None);
                }
                continue;
            };
            self.idle.store(false, Ordering::Release);
            if ended > 0 {
                nap = FIRST_NAP;
                continue;
            }
            caller.sleep_until_woken(intent, Some(self.until(now).map_or(nap, |until| until.min(nap))));
            link.look();
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }

    /// Takes the outcomes that have come, and wakes the tasks that await them. Returns the time, how many
    /// came, and how many calls are still awaited.
    fn collect(&self, now: Time) -> (Time, usize, usize) {
        let mut calls = std::mem::take(&mut *self.lock());
        let (mut ended, mut wakers) = (0, Vec::new());
        calls.retain(|call| match call.settle(now) {
            Some(waker) => {
                ended += 1;
                wakers.extend(waker);
                false
            }
            None => true,
        });
        let mut newer = self.lock();
        newer.append(&mut calls);
        let awaited = newer.len();
        drop(newer);
        for waker in wakers {
            guard::run_alone("a waker", || waker.wake());
        }
        (now, ended, awaited)
    }

    /// The time to the earliest end of waiting.
    fn until(&self, now: Time) -> Option<Duration> {
        self.lock().iter().filter_map(|call| call.until()).min().map(|until| until.since(now))
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn AwaitedCall>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service of a connection, with its thread.
pub(super) struct Awaited<'a, C> {
    service: &'a Arc<Service>,
    link: &'a Arc<C>,
}

impl<C: Connection> Awaited<'_, C> {
    /// Waits for a call, which has a deadline if `timed`.
    pub(super) fn add(&self, call: Arc<dyn AwaitedCall>, timed: bool) {
        self.service.lock().push(call.clone());
        // Either it sees the answer, or the server sees that it is to ring.
        let is_there = !call.watch();
        if self.service.idle.swap(false, Ordering::AcqRel) || is_there || timed {
            self.link.caller().wake();
        }
    }
}
