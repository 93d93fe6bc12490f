//! Connects the UDP server to the pool of workers in `farcall-core`.

use std::sync::Arc;

use super::{Assignee, Server, work};
use crate::context::CallServer;
use crate::workers::{Carrier, Pool, Worker, replace};

impl Carrier for Server {
    const THREAD: &'static str = "farcall-worker";

    fn call_server(self: &Arc<Self>) -> Arc<dyn CallServer> {
        self.clone()
    }

    fn with_pool<R>(&self, act: impl FnOnce(&mut Pool) -> R) -> R {
        act(&mut self.lock().pool)
    }

    fn live(self: &Arc<Self>, worker: &Arc<Worker>) {
        (self.enter)(&mut || work::live(self, worker.clone()));
    }

    fn wake_watchdog(&self) {
        self.watchdog.set();
    }

    fn begin_wait(self: &Arc<Self>, worker: &Worker) -> bool {
        let assignee = {
            let mut core = self.lock();
            if !core.pool.begin_wait(worker) {
                return false;
            }
            match core.pool.replace_waiting() {
                // Another thread still receives, but calls wait for a worker.
                None if !core.is_free() => core.assign_queue(),
                replacement => replacement.map(Assignee::Worker),
            }
        };
        self.assign(assignee);
        true
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
