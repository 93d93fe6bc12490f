//! The threads of an in-process channel that run what was started: as many as are busy at once, up to a bound.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::{CallFailed, Kind, Ran, guard};

/// Threads at most.
const THREADS: usize = 64;
/// Calls at most that no thread has come to yet.
const QUEUE: usize = 65_536;

/// What a thread is given to do.
pub(super) trait Run: Send + Sync {
    fn run(&self);
}

/// Dropped, it lets the threads finish what is queued, and go.
#[derive(Default)]
pub(super) struct Workers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<dyn Run>>,
    threads: usize,
    /// Threads that wait for `changed`.
    idle: usize,
    closed: bool,
}

impl Workers {
    /// Never blocks: past the bound it refuses.
    pub(super) fn add(&self, job: Arc<dyn Run>) -> Result<(), CallFailed> {
        let mut queue = self.0.lock();
        if queue.jobs.len() >= QUEUE {
            return Err(CallFailed::new(Kind::Overloaded, Ran::No).because("too many calls are started"));
        }
        queue.jobs.push_back(job);
        if queue.jobs.len() <= queue.idle {
            self.0.changed.notify_one();
            return Ok(());
        }
        if queue.threads < THREADS {
            let shared = self.0.clone();
            let spawned = thread::Builder::new().name("farcall-local".into()).spawn(move || shared.serve());
            match spawned {
                Ok(_) => queue.threads += 1,
                Err(why) if queue.threads == 0 => {
                    queue.jobs.pop_back();
                    return Err(CallFailed::new(Kind::Overloaded, Ran::No).caused_by(why));
                }
                Err(_) => {} // the others will come to it
            }
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        while let Some(job) = self.next() {
            guard::run_alone("a call in this process", || {
                job.run();
                drop(job);
            });
        }
    }

    /// Blocks for the next job; `None` once there will be no more.
    fn next(&self) -> Option<Arc<dyn Run>> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}
