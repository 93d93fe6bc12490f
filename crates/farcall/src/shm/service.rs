//! The service thread of a connection through shared memory. It waits for the outcomes of started calls that
//! tasks await, and wakes the tasks.
//!
//! `tests/awaited.rs` includes this file. Through `super::sync` and the other modules it gives the file
//! loom's types and a connection without a server.

use std::io;
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use super::sync::{AtomicBool, Caller, Mutex, MutexGuard, Ordering};
use super::watch::{FIRST_NAP, LONGEST_NAP};
use crate::env::Time;
use crate::guard;

/// A connection, as the service thread uses it.
pub(super) trait Connection: Send + Sync + 'static {
    /// Returns the connection's service. Its thread is started when a call is first awaited.
    fn service(&self) -> &Arc<Service>;
    fn caller(&self) -> &Arc<Caller>;
    fn now(&self) -> Time;
    /// Checks whether the server is still there.
    fn look(&self);
    /// Starts a thread.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()>;
}

/// A started call, as the service thread uses it.
pub(super) trait AwaitedCall: Send + Sync {
    /// Tells the server to wake this process when it answers the call. Returns false if the call is answered
    /// already.
    fn watch(&self) -> bool;
    /// Takes the outcome if the call has ended, and returns the waker of the task that awaits it, if there is
    /// one. Returns `None` if the call has not ended.
    fn settle(&self, now: Time) -> Option<Option<Waker>>;
    /// Returns the next time at which the call may end even without an answer, if there is such a time.
    fn until(&self, now: Time) -> Option<Time>;
}

/// The calls of a connection that tasks await, and the state of the service thread.
#[derive(Default)]
pub(crate) struct Service {
    calls: Mutex<Vec<Arc<dyn AwaitedCall>>>,
    /// Whether the thread was started.
    running: AtomicBool,
    starting: Mutex<()>,
    /// Whether the thread may be sleeping without a time limit.
    idle: AtomicBool,
    stopped: AtomicBool,
}

impl Service {
    /// Returns the service of a connection. Starts its thread if there is none. If no thread can be started
    /// now, the next call tries again.
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
        // Threads wait here while another thread starts the service thread, because the start may fail.
        let _one = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        let (ours, caller, weak) = (self.clone(), link.caller().clone(), Arc::downgrade(link));
        link.spawn("farcall-await", Box::new(move || ours.live(&caller, &weak)))?;
        self.running.store(true, Ordering::Release);
        Ok(())
    }

    /// Runs the service thread. While no call is awaited, the thread holds no reference to the connection.
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
                // A thread that adds a call wakes this thread, and so does the end of the connection.
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

    /// Takes the outcomes that have come, and wakes the tasks that await them. Returns the present time, the
    /// number of calls that ended, and the number of calls that are still awaited.
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

    /// Returns the time until the first call ends even without an answer.
    fn until(&self, now: Time) -> Option<Duration> {
        self.lock().iter().filter_map(|call| call.until(now)).min().map(|until| until.since(now))
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn AwaitedCall>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service of a connection, whose thread was started.
pub(super) struct Awaited<'a, C> {
    service: &'a Arc<Service>,
    link: &'a Arc<C>,
}

impl<C: Connection> Awaited<'_, C> {
    /// Adds a call to the awaited ones. `timed` says whether the call has a deadline.
    pub(super) fn add(&self, call: Arc<dyn AwaitedCall>, timed: bool) {
        self.service.lock().push(call.clone());
        // Either this thread sees the answer, or the server sees that it must wake this process.
        let is_there = !call.watch();
        if self.service.idle.swap(false, Ordering::AcqRel) || is_there || timed {
            self.link.caller().wake();
        }
    }
}
