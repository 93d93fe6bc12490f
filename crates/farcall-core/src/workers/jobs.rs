//! Threads that run jobs. There are as many threads as there are jobs at the same time, up to a bound. Idle
//! threads end after ten seconds.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::budget::Threads;
use super::pool::IDLE;
use crate::env::{Condition, Env};
use crate::serving::WorkerPool;
use crate::{CallFailed, guard};

/// A function that a thread runs.
pub type Job = Box<dyn FnOnce() + Send>;

/// The threads, and the queue of jobs that no thread has begun.
pub struct Jobs {
    env: Arc<dyn Env>,
    /// The name of the threads.
    name: &'static str,
    max_queued: usize,
    /// How many threads there may be.
    budget: Arc<Threads>,
    state: Mutex<State>,
    /// Notified when there is a job, and when there will be no more.
    changed: Condition,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    /// How many threads wait for a job.
    idle: usize,
    closed: bool,
}

/// Why a job is not run.
pub enum Refused {
    /// The queue is full or closed.
    Full,
    /// There is no thread, and the system can start none.
    NoThread(io::Error),
}

impl Jobs {
    /// Makes a queue without threads. The queue starts threads when they are needed, as many as the budget
    /// allows.
    pub fn new(env: Arc<dyn Env>, name: &'static str, budget: Arc<Threads>, max_queued: usize) -> Arc<Jobs> {
        let (state, changed) = (Mutex::default(), Condition::default());
        Arc::new(Jobs { env, name, max_queued, budget, state, changed })
    }

    /// Returns a worker pool for a thread whose job serves a call. A thread that has this pool does not count
    /// in the budget while it waits in a remote call of its own.
    pub fn member(self: &Arc<Self>) -> Arc<dyn WorkerPool> {
        Arc::new(Member { jobs: self.clone(), waits: AtomicBool::new(false) })
    }

    /// Queues a job for a thread, and starts a thread if necessary. Never waits.
    ///
    /// # Errors
    /// The job is dropped.
    pub fn submit(self: &Arc<Self>, job: Job) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed || state.queue.len() >= self.max_queued {
            // The lock is released before the job is dropped, because that drop may run the user's code.
            drop(state);
            return Err(Refused::Full);
        }
        state.queue.push_back(job);
        let Err(why) = self.find_thread(&mut state) else { return Ok(()) };
        if state.threads > 0 {
            // The existing threads will run the job.
            return Ok(());
        }
        let job = state.queue.pop_back();
        drop(state);
        drop(job);
        Err(Refused::NoThread(why))
    }

    /// Finds a thread for the queued jobs. To be called when the budget has room for one more thread again.
    fn look(self: &Arc<Self>) {
        let mut state = self.lock();
        // If no thread can be started, the existing ones run the queued jobs.
        let _ = if state.queue.is_empty() { Ok(()) } else { self.find_thread(&mut state) };
    }

    /// Returns how many threads run a job.
    #[cfg(test)]
    pub(super) fn busy(&self) -> usize {
        let state = self.lock();
        state.threads - state.idle
    }

    /// Takes no more jobs. Queued jobs are still run.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Takes no more jobs, and drops queued ones.
    pub fn stop(&self) {
        self.close();
        let queued = std::mem::take(&mut self.lock().queue);
        drop(queued);
    }

    /// Wakes an idle thread for the queued jobs, or starts one if the budget allows.
    fn find_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.idle >= state.queue.len() {
            self.changed.notify_one();
            return Ok(());
        }
        if !self.budget.take() {
            return Ok(());
        }
        let jobs = self.clone();
        let spawned = self.env.spawn(self.name, Box::new(move || jobs.work()));
        spawned.inspect_err(|_| self.budget.give_back())?;
        state.threads += 1;
        Ok(())
    }

    /// Runs jobs until the thread is to end.
    fn work(&self) {
        while let Some(job) = self.next() {
            guard::run_alone(self.name, job);
        }
    }

    /// Waits for the next job. Returns `None` if the thread is to end, because no job will come or none has
    /// come for ten seconds. The thread is then no longer counted.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let notified;
            (state, notified) = self.changed.wait(&self.env, &self.state, state, Some(IDLE));
            state.idle -= 1;
            if !notified && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        self.budget.give_back();
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker pool of a thread whose job serves a call, as the remote calls that the job makes see it.
struct Member {
    jobs: Arc<Jobs>,
    /// Whether the thread waits. Only that thread reads and writes it.
    waits: AtomicBool,
}

impl WorkerPool for Member {
    fn may_wait(&self) -> Result<(), CallFailed> {
        Ok(self.jobs.budget.may_wait()?)
    }

    fn begin_wait(&self, limited: bool) -> Result<bool, CallFailed> {
        if self.waits.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.jobs.budget.begin_wait(limited)?;
        self.waits.store(true, Ordering::Relaxed);
        self.jobs.look();
        Ok(true)
    }

    fn end_wait(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.jobs.budget.end_wait();
    }
}
