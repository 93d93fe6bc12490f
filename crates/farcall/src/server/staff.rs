//! The threads of a server: how one is had, and what the others hear of one that waits in a call of its own.

use std::sync::Arc;

use super::crew::{Relief, Seat};
use super::{Server, Summons, last_thread, work};
use crate::serving::Pool;
use crate::{CallFailed, context};

impl Server {
    /// Adds a worker that receives. It is counted already.
    pub(super) fn spawn_worker(self: Arc<Self>) -> std::io::Result<()> {
        let env = self.env.clone();
        env.spawn(
            "farcall-worker",
            Box::new(move || {
                let seat = Seat::new(self.env.event());
                self.lock().crew.join(&seat);
                context::serve_in_thread(
                    self.clone(),
                    Arc::new(Placed { server: self.clone(), seat: seat.clone() }),
                );
                (self.enter)(&mut || work::live(&self, seat.clone()));
            }),
        )
    }

    /// Has somebody see to calls that wait.
    pub(super) fn summon(self: &Arc<Self>, summons: Option<Summons>) {
        match summons {
            Some(Summons::Relief(relief)) => self.relieve(relief),
            Some(Summons::Receiver) => self.socket.wake(),
            None => {}
        }
    }

    /// Has somebody receive.
    pub(super) fn relieve(self: &Arc<Self>, relief: Relief) {
        match relief {
            Relief::Rested(seat) => seat.call(),
            Relief::New => {
                if self.clone().spawn_worker().is_err() && self.lock().crew.lost() {
                    self.sentinel.set();
                }
            }
        }
    }
}

/// A worker, as the calls see it that it makes.
struct Placed {
    server: Arc<Server>,
    seat: Arc<Seat>,
}

impl Pool for Placed {
    fn may_wait(&self) -> Result<(), CallFailed> {
        match self.server.lock().crew.is_last() {
            true => Err(last_thread(&self.server.threads)),
            false => Ok(()),
        }
    }

    fn begin_wait(&self) -> bool {
        let summons = {
            let mut core = self.server.lock();
            if !core.crew.step_aside(&self.seat) {
                return false;
            }
            match core.crew.relieve_waiting() {
                None if !core.is_free() => core.summon(),
                relief => relief.map(Summons::Relief),
            }
        };
        self.server.summon(summons);
        true
    }

    fn end_wait(&self) {
        self.server.lock().crew.step_back(&self.seat);
    }
}
