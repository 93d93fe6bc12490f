//! A thread that gathers the ends of several calls, and serves their link while it waits.

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
        /// No two waits have the same seat: each has an interrupt of its own.
        static SEAT: AtomicUsize = AtomicUsize::new(1);
        let _waiting = begin_wait().map_err(failed)?;
        let Some(link) = self.me.upgrade() else { return Ok(()) };
        link.send_held();
        ready.wait_with(
            SEAT.fetch_add(1, Ordering::Relaxed),
            || Arc::new(Seated { event: thread_event(&link.env), alarm: link.alarm().cloned() }),
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
    /// Waits until it is over, or `until`: as the leader, or as one that follows. Whoever knows that it is
    /// over interrupts it.
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
struct Seated {
    event: Arc<dyn Event>,
    alarm: Option<Arc<dyn Alarm>>,
}

impl Interrupt for Seated {
    fn interrupt(&self, serving: bool) {
        self.event.set();
        // It may be the one that serves, and then it sleeps at the descriptor.
        if let Some(alarm) = self.alarm.as_ref().filter(|_| !serving) {
            alarm.ring();
        }
    }
}

fn failed(error: TransportError) -> CallFailed {
    CallFailed::new(error.kind, error.ran).because(error.why.to_string())
}
