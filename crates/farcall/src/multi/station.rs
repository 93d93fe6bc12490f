//! Where a thread waits for the ends of the calls that it gathers.

use std::sync::Arc;

use super::{Bells, Interrupt};
use crate::CallFailed;
use crate::env::{Env, Event, Time};

/// Where a thread waits for the ends of calls: at an endpoint that it serves meanwhile, or just so.
pub trait Station: Send + Sync {
    /// The time.
    fn now(&self) -> Time;

    /// Waits until so many bells were rung, or until the time has come, or for no reason.
    ///
    /// # Errors
    /// This thread must not wait now.
    fn wait(&self, bells: &Bells, enough: usize, until: Option<Time>) -> Result<(), CallFailed>;

    /// Takes in what has arrived, without waiting.
    ///
    /// # Errors
    /// As [`Station::wait`].
    fn look(&self) -> Result<(), CallFailed>;

    /// Rests a moment: replies come in, and whoever sends them wakes nobody.
    fn rest(&self) {}

    /// How many bytes of replies can arrive before anybody takes them in.
    fn room(&self) -> usize;
}

/// A station where nothing is served: its thread sleeps until a bell is rung.
pub(crate) struct Parking {
    env: Arc<dyn Env>,
    event: Arc<dyn Event>,
}

impl Parking {
    pub(crate) fn new(env: Arc<dyn Env>) -> Parking {
        let event = env.event();
        Parking { env, event }
    }
}

impl Station for Parking {
    fn now(&self) -> Time {
        self.env.now()
    }

    fn wait(&self, bells: &Bells, enough: usize, until: Option<Time>) -> Result<(), CallFailed> {
        crate::server::may_wait()?;
        let _waiting = crate::server::waiting();
        bells.hear(
            Arc::as_ptr(&self.event).addr(),
            || Arc::new(Alarm(self.event.clone())),
            || {
                if !bells.are(enough) {
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
