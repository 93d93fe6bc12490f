//! A thread that gathers the ends of several calls, and serves their link while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

use farcall::env::{Env, Time};
use farcall::wait::{Interrupt, ReadyList, WaitPoint};
use farcall::{CallFailed, System};

use super::alarm::Alarm;
use super::link::{Link, may_wait};
use super::table::Lost;

impl WaitPoint for Link {
    fn now(&self) -> Time {
        System.now()
    }

    fn wait(&self, ready: &ReadyList, enough: usize, until: Option<Time>) -> Result<(), CallFailed> {
        /// No two waits have the same seat: each has an interrupt of its own.
        static SEAT: AtomicUsize = AtomicUsize::new(1);
        may_wait().map_err(failed)?;
        let Some(link) = self.me() else { return Ok(()) };
        link.send_held();
        let until = until.map(|until| Instant::now() + until.since(System.now()));
        ready.wait_with(
            SEAT.fetch_add(1, Ordering::Relaxed),
            || Arc::new(Seated { thread: thread::current(), alarm: link.alarm().cloned() }),
            || link.gather(&|| ready.count() >= enough, until),
        );
        Ok(())
    }

    fn look(&self) -> Result<(), CallFailed> {
        may_wait().map_err(failed)?;
        let Some(link) = self.me() else { return Ok(()) };
        link.send_held();
        if link.lock().try_lead() {
            link.look();
        }
        Ok(())
    }

    fn room(&self) -> usize {
        usize::MAX
    }
}

impl Link {
    /// Waits until it is over, or `until`: as the leader, or as one that follows. Whoever knows that it is over
    /// interrupts it.
    fn gather(self: &Arc<Self>, over: &dyn Fn() -> bool, until: Option<Instant>) {
        let me = thread::current();
        let mut leads = self.lock().join(thread::current);
        let late = || until.is_some_and(|until| until <= Instant::now());
        while !over() && !late() {
            let (inherits, broken) = {
                let mut table = self.lock();
                (table.inherits(me.id()), table.broken.is_some())
            };
            leads |= inherits;
            match until {
                _ if leads && !broken => {
                    if !self.take_some() {
                        self.watch(self.alarm().map(|alarm| &**alarm), until);
                    }
                }
                Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
        self.leave(leads, me.id());
    }
}

/// A thread that waits at a link.
struct Seated {
    thread: Thread,
    alarm: Option<Arc<Alarm>>,
}

impl Interrupt for Seated {
    fn interrupt(&self, serving: bool) {
        self.thread.unpark();
        // It may be the one that serves, and then it sleeps at the descriptor.
        if let Some(alarm) = self.alarm.as_ref().filter(|_| !serving) {
            alarm.ring();
        }
    }
}

fn failed(lost: Lost) -> CallFailed {
    CallFailed::new(lost.kind, lost.ran).because(lost.why.to_string())
}
