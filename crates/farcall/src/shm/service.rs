//! A thread that waits for started calls which are awaited, and wakes the tasks that await them.
//!
//! (tests/awaited.rs includes this file, and gives it loom's types and a connection without a server through
//! `super::sync` and the other modules.)

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::link::{FIRST_NAP, LONGEST_NAP, Link};
use super::started::Started;
use super::sync::{AtomicBool, Caller, Mutex, MutexGuard, Ordering};
use crate::env::Time;
use crate::guard;

/// Started by the first call that is awaited.
#[derive(Default)]
pub(crate) struct Service {
    calls: Mutex<Vec<Arc<Started>>>,
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
    pub(super) fn of(link: &Arc<Link>) -> std::io::Result<Awaited<'_>> {
        let service = link.service.get_or_init(Arc::default);
        if !service.running.load(Ordering::Acquire) {
            service.start(link)?;
        }
        Ok(Awaited { service, link })
    }

    #[cold]
    fn start(self: &Arc<Self>, link: &Arc<Link>) -> std::io::Result<()> {
        // Nobody counts on a thread that another is still trying to start.
        let _one = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        let (ours, caller, weak) = (self.clone(), link.caller.clone(), Arc::downgrade(link));
        link.env.spawn("farcall-await", Box::new(move || ours.live(&caller, &weak)))?;
        self.running.store(true, Ordering::Release);
        Ok(())
    }

    /// It keeps no connection alive while nothing is awaited.
    fn live(&self, caller: &Caller, link: &Weak<Link>) {
        let mut nap = FIRST_NAP;
        while !self.stopped.load(Ordering::SeqCst) {
            self.idle.store(true, Ordering::SeqCst);
            let lying = caller.lie_down();
            let link = link.upgrade();
            let (now, ended, awaited) = match &link {
                Some(link) => self.collect(link.env.now()),
                None => return,
            };
            let Some(link) = link.filter(|_| awaited > 0) else {
                // Whoever adds a call wakes us, and so does the end of the connection.
                if ended == 0 && !self.stopped.load(Ordering::SeqCst) {
                    caller.rest(lying, None);
                }
                continue;
            };
            self.idle.store(false, Ordering::SeqCst);
            if ended > 0 {
                nap = FIRST_NAP;
                continue;
            }
            caller.rest(lying, Some(self.until(now).map_or(nap, |until| until.min(nap))));
            link.watch.look(link.env.now());
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
        self.lock().iter().filter_map(|call| call.until().0).min().map(|until| until.since(now))
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Started>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service of a connection.
pub(super) struct Awaited<'a> {
    service: &'a Arc<Service>,
    link: &'a Arc<Link>,
}

impl Awaited<'_> {
    /// Waits for a call.
    pub(super) fn add(&self, call: &Arc<Started>) {
        self.service.lock().push(call.clone());
        // Either it sees the answer, or the server sees that it is to ring.
        let is_there = !self.link.caller.watch(call.ticket);
        if self.service.idle.swap(false, Ordering::SeqCst) || is_there || call.deadline.is_some() {
            self.link.caller.wake();
        }
    }
}
