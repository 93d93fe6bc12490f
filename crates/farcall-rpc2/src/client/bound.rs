//! The stubs' channel to a subsystem at a server.

use std::sync::Arc;

use farcall::env::Env;
use farcall::stub::{Call, Channel, PendingCall, Sink};
use farcall::wait::{Parking, WaitPoint};

use super::connection::Alone;
use super::started::{Started, Starter};
use super::target::{Outcome, Target};

/// A subsystem at a server, whose procedures a stub calls.
pub(super) struct Bound(Arc<Starter>);

impl Bound {
    pub fn new(target: Target) -> Bound {
        Bound(Arc::new(Starter::new(target)))
    }

    fn target(&self) -> &Target {
        self.0.target()
    }
}

impl Channel for Bound {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let target = self.target();
        let outcome = match target.pack(&call) {
            Ok(packed) => target.run(call.procedure, &packed, target.deadline(&call), &Alone),
            Err(why) => Outcome::Failed(target.about(why, call.procedure)),
        };
        outcome.deliver(sink);
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let target = self.target();
        let started = target
            .pack(&call)
            .and_then(|packed| Started::new(&self.0, *call.procedure, packed, target.deadline(&call)));
        match started {
            Ok(started) => Box::new(started),
            Err(why) => Box::new(target.about(why, call.procedure)),
        }
    }

    fn env(&self) -> Arc<dyn Env> {
        self.target().env().clone()
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        Arc::new(Parking::new(self.target().env().clone()))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.close();
    }
}
