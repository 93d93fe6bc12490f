//! Lets one thread wait for several calls at once. At the calls' link, the thread leads, which means that it
//! receives for all threads that wait there, or follows the thread that leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcall::CallFailed;
use farcall::env::{Alarm, Event, Time, thread_event};
use farcall::wait::{Interrupt, ReadyList, WaitPoint};

use super::{Link, begin_wait, may_wait};
use crate::client::table::TransportError;

impl WaitPoint for Link {
    fn now(&self) -> Time {
        self.env.now()
    }

    fn wait(&self, ready: &ReadyList, enough: usize, until: Option<Time>) -> Result<(), CallFailed> {
        /// The number of the next wait. Each wait has a number and an interrupt of its own.
        static NEXT_WAIT: AtomicUsize = AtomicUsize::new(1);
        let _waiting = begin_wait().map_err(failed)?;
        let Some(link) = self.me.upgrade() else { return Ok(()) };
        link.send_held();
        ready.wait_with(
            NEXT_WAIT.fetch_add(1, Ordering::Relaxed),
            || Arc::new(WaitingThread { event: thread_event(&link.env), alarm: link.alarm().cloned() }),
            || link.gather(&|| ready.count() >= enough, until),
        );
        Ok(())
    }

    fn look(&self) -> Result<(), CallFailed> {
        may_wait().map_err(failed)?;
        let Some(link) = self.me.upgrade() else { return Ok(()) };
        link.send_held();
        link.look();
        Ok(())
    }

    fn room(&self) -> usize {
        usize::MAX
    }
}

impl Link {
    /// Waits, as the leader or as a follower, until `over` returns true or `until` has passed. A thread that
    /// makes `over` true interrupts the wait.
    fn gather(self: &Arc<Self>, over: &dyn Fn() -> bool, until: Option<Time>) {
        let event = thread_event(&self.env);
        let mut leads = self.receiving.lead.join(&event);
        let late = || until.is_some_and(|until| until <= self.env.now());
        while !over() && !late() {
            leads = leads || self.receiving.lead.accept(&event);
            if !leads || self.lock().broken.is_some() {
                event.wait(until.map(|until| until.since(self.env.now())));
            } else if !self.take_some() {
                self.watch(self.alarm().map(|alarm| &**alarm), until);
            }
        }
        self.leave(leads, &event);
    }
}

/// A thread that waits at a link.
struct WaitingThread {
    event: Arc<dyn Event>,
    alarm: Option<Arc<dyn Alarm>>,
}

impl Interrupt for WaitingThread {
    fn interrupt(&self, serving: bool) {
        self.event.set();
        // If the thread leads, it sleeps at the descriptor, where only the alarm wakes it.
        if let Some(alarm) = self.alarm.as_ref().filter(|_| !serving) {
            alarm.ring();
        }
    }
}

fn failed(error: TransportError) -> CallFailed {
    CallFailed::new(error.kind, error.ran).because(error.why.to_string())
}
