//! Threads that run the jobs they are given: as many as are busy at once, up to a bound. Idle threads end.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pool::IDLE;
use crate::env::{Condition, Env};
use crate::guard;

/// What a thread is given to run.
pub type Job = Box<dyn FnOnce() + Send>;

/// The threads, and the jobs that no thread has begun.
pub struct Jobs {
    env: Arc<dyn Env>,
    /// The name of the threads.
    name: &'static str,
    max_queued: usize,
    state: Mutex<State>,
    /// There is a job, or there will be none any more.
    changed: Condition,
    /// How many threads run a job. Written under the lock of the state.
    busy: AtomicUsize,
}

struct State {
    queue: VecDeque<Job>,
    threads: usize,
    max_threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    closed: bool,
}

/// Why a job is not run.
pub enum Refused {
    /// As many jobs are queued as may be, or there will be no more threads.
    Full,
    /// There is no thread, and none can be started.
    NoThread(io::Error),
}

impl Jobs {
    pub fn new(env: Arc<dyn Env>, name: &'static str, max_threads: usize, max_queued: usize) -> Arc<Jobs> {
        let queue = VecDeque::new();
        let state = Mutex::new(State { queue, threads: 0, max_threads, idle: 0, closed: false });
        Arc::new(Jobs {
            env,
            name,
            max_queued,
            state,
            changed: Condition::default(),
            busy: AtomicUsize::new(0),
        })
    }

    /// Has a thread run a job. Never waits.
    ///
    /// # Errors
    /// The job is dropped.
    pub fn submit(self: &Arc<Self>, job: Job) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed || state.queue.len() >= self.max_queued {
            // Before the job is dropped: the drop may run the user's code.
            drop(state);
            return Err(Refused::Full);
        }
        state.queue.push_back(job);
        let Err(why) = self.find_thread(&mut state) else { return Ok(()) };
        if state.threads > 0 {
            // These threads will run it.
            return Ok(());
        }
        let job = state.queue.pop_back();
        drop(state);
        drop(job);
        Err(Refused::NoThread(why))
    }

    /// Allows one thread more, because another will wait for something else.
    pub fn allow_one_more(self: &Arc<Self>) {
        let mut state = self.lock();
        state.max_threads += 1;
        // If no thread can be started, those that there are run what is queued.
        let _ = if state.queue.is_empty() { Ok(()) } else { self.find_thread(&mut state) };
    }

    /// Takes back what [`Jobs::allow_one_more`] allowed. Threads that there are go on.
    pub fn allow_one_fewer(&self) {
        self.lock().max_threads -= 1;
    }

    /// How many threads run a job.
    #[inline]
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
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

    /// Finds a thread for the jobs that are queued, if there may be one more.
    fn find_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.idle >= state.queue.len() {
            self.changed.notify_one();
            return Ok(());
        }
        if state.threads >= state.max_threads {
            return Ok(());
        }
        let jobs = self.clone();
        self.env.spawn(self.name, Box::new(move || jobs.work()))?;
        state.threads += 1;
        self.count_busy(state);
        Ok(())
    }

    fn count_busy(&self, state: &State) {
        self.busy.store(state.threads - state.idle, Ordering::Relaxed);
    }

    /// A thread's life.
    fn work(&self) {
        while let Some(job) = self.next() {
            guard::run_alone(self.name, job);
        }
    }

    /// Waits for the next job. Returns `None` if there will be none, or none has come for long: then the
    /// thread is counted no longer.
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
            self.count_busy(&state);
            let notified;
            (state, notified) = self.changed.wait(&self.env, &self.state, state, Some(IDLE));
            state.idle -= 1;
            self.count_busy(&state);
            if !notified && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        self.count_busy(&state);
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
