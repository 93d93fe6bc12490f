//! Connects the UDP server to the pool of workers in `farcall-core`, for which the server is a carrier: what
//! the pool's threads receive calls from.

use std::sync::Arc;

use super::{Assignee, Server, work};
use crate::context;
use crate::env::Env;
use crate::serving::WorkerPool;
use crate::workers::{Carrier, MayNotWait, Pool, Worker, replace};

impl Carrier for Server {
    const THREAD: &'static str = "farcall-worker";

    fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn with_pool<R>(&self, act: impl FnOnce(&mut Pool) -> R) -> R {
        act(&mut self.lock().pool)
    }

    fn enter(self: &Arc<Self>, pool: Arc<dyn WorkerPool>) {
        context::serve_in_thread(self.clone(), pool);
    }

    fn live(self: &Arc<Self>, worker: &Arc<Worker>) {
        (self.enter)(&mut || work::live(self, worker.clone()));
    }

    fn wake_watchdog(&self) {
        self.watchdog.set();
    }

    fn begin_wait(self: &Arc<Self>, worker: &Worker, limited: bool) -> Result<bool, MayNotWait> {
        let assignee = {
            let mut core = self.lock();
            if !core.pool.begin_wait(worker, limited)? {
                return Ok(false);
            }
            match core.pool.replace_waiting() {
                // Another thread still receives, but calls wait for a worker.
                None if !core.is_free() => core.assign_queue(0),
                replacement => replacement.map(Assignee::Worker),
            }
        };
        self.assign(assignee);
        Ok(true)
    }
}

impl Server {
    /// Wakes or starts the thread that is to execute waiting calls.
    pub(super) fn assign(self: &Arc<Self>, assignee: Option<Assignee>) {
        match assignee {
            Some(Assignee::Worker(replacement)) => replace(self, replacement),
            Some(Assignee::Receiver) => self.socket.wake(),
            None => {}
        }
    }
}
