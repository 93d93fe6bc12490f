//! Wait points, at which a thread waits for the ends of several calls.

use std::sync::Arc;

use super::{Interrupt, ReadyList};
use crate::env::{Env, Event, Time};
use crate::{CallFailed, SharedPath, serving};

/// A place where a thread waits for the ends of calls: a socket or connection from which the thread receives
/// meanwhile, or [`Parking`].
pub trait WaitPoint: Send + Sync {
    /// Returns the time.
    fn now(&self) -> Time;

    /// Waits until `enough` calls are ready, or the time `until` has come. May return earlier, for no reason.
    ///
    /// # Errors
    /// This thread must not wait now.
    fn wait(&self, ready: &ReadyList, enough: usize, until: Option<Time>) -> Result<(), CallFailed>;

    /// Receives what has arrived, without waiting.
    ///
    /// # Errors
    /// The errors of [`WaitPoint::wait`].
    fn look(&self) -> Result<(), CallFailed>;

    /// Returns how many bytes of replies can arrive before a thread must receive them.
    fn room(&self) -> usize;

    /// Returns the path by which the replies of all servers come here, or `None` if nothing is known of it.
    fn shared_path(&self) -> Option<Arc<SharedPath>> {
        None
    }

    /// Notes that a thread runs the user's code, which may take long, while calls that it waits for here are
    /// outstanding. Until the thread comes back, something else looks after these calls, if their servers
    /// would otherwise give the thread up.
    fn step_away(self: Arc<Self>) {}

    /// Notes that a thread has come back that had stepped away.
    fn come_back(&self) {}
}

/// Guard: a thread runs the user's code, while calls that it waits for at a wait point are outstanding.
pub struct SteppedAway(Arc<dyn WaitPoint>);

impl SteppedAway {
    /// Notes that the calling thread [steps away](WaitPoint::step_away).
    pub fn from_point(point: &Arc<dyn WaitPoint>) -> SteppedAway {
        point.clone().step_away();
        SteppedAway(point.clone())
    }
}

impl Drop for SteppedAway {
    fn drop(&mut self) {
        self.0.come_back();
    }
}

/// A wait point that serves nothing: its thread sleeps until a call becomes ready.
pub struct Parking {
    env: Arc<dyn Env>,
    event: Arc<dyn Event>,
}

impl Parking {
    /// Makes a wait point.
    pub fn new(env: Arc<dyn Env>) -> Parking {
        let event = env.event();
        Parking { env, event }
    }
}

impl WaitPoint for Parking {
    fn now(&self) -> Time {
        self.env.now()
    }

    fn wait(&self, ready: &ReadyList, enough: usize, until: Option<Time>) -> Result<(), CallFailed> {
        serving::may_wait()?;
        let _waiting = serving::wait_guard();
        ready.wait_with(
            Arc::as_ptr(&self.event).addr(),
            || Arc::new(Alarm(self.event.clone())),
            || {
                if ready.count() < enough {
                    self.event.wait(until.map(|until| until.since(self.env.now())));
                }
            },
        );
        Ok(())
    }

    fn look(&self) -> Result<(), CallFailed> {
        Ok(())
    }

    fn room(&self) -> usize {
        usize::MAX
    }
}

struct Alarm(Arc<dyn Event>);

impl Interrupt for Alarm {
    fn interrupt(&self, _: bool) {
        self.0.set();
    }
}
