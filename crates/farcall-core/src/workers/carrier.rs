//! What a worker pool needs from its carrier, which its threads receive calls from, and how the threads are
//! started.

use std::io;
use std::sync::Arc;

use super::budget::MayNotWait;
use super::{Job, Pool, Replacement, Watch, Worker};
use crate::env::Env;
use crate::serving::WorkerPool;
use crate::{CallFailed, Kind, Ran};

/// What the threads of a pool receive calls from: a socket, a session through shared memory, or the
/// connections of a server.
pub trait Carrier: Send + Sync + Sized + 'static {
    /// The name of the carrier's threads.
    const THREAD: &'static str;

    fn env(&self) -> &Arc<dyn Env>;

    /// Calls `act` with the pool, under the lock that guards it.
    fn with_pool<R>(&self, act: impl FnOnce(&mut Pool) -> R) -> R;

    /// Makes this thread serve the carrier's calls from now on, as a worker of `pool`.
    fn enter(self: &Arc<Self>, pool: Arc<dyn WorkerPool>);

    /// Runs a worker: it receives, executes and rests, until the carrier stops or the worker is no longer
    /// needed.
    fn live(self: &Arc<Self>, worker: &Arc<Worker>);

    /// Wakes the thread that looks after lone receivers.
    fn wake_watchdog(&self);

    /// Runs a worker in a new thread.
    ///
    /// # Errors
    /// When there can be no more threads.
    fn spawn(&self, life: Job) -> io::Result<()> {
        self.env().spawn(Self::THREAD, life)
    }

    /// Notes that an executing thread begins to wait in a remote call of its own. If no thread receives then,
    /// lets another thread receive. Returns false if the thread waits already.
    ///
    /// # Errors
    /// If `limited` and the thread must not wait: [`Pool::begin_wait`] says why.
    fn begin_wait(self: &Arc<Self>, worker: &Worker, limited: bool) -> Result<bool, MayNotWait> {
        let begun = self.with_pool(|pool| {
            let begun = pool.begin_wait(worker, limited)?;
            Ok(begun.then(|| pool.replace_waiting()))
        })?;
        let Some(replacement) = begun else { return Ok(false) };
        replacement.into_iter().for_each(|replacement| replace(self, replacement));
        Ok(true)
    }

    /// Notes that the thread waits no longer.
    fn end_wait(&self, worker: &Worker) {
        self.with_pool(|pool| pool.end_wait(worker));
    }

    /// Looks at the pool as its watchdog, and lets another thread receive if necessary. Returns the threads
    /// that have executed the same call since the last look.
    fn look(self: &Arc<Self>, watch: &mut Watch) -> Vec<Arc<Worker>> {
        let found = self.with_pool(|pool| watch.look(pool));
        found.replacement.into_iter().for_each(|replacement| replace(self, replacement));
        found.long
    }
}

/// Makes the thread that a pool has chosen receive: calls a resting thread, or starts a new one.
pub fn replace<C: Carrier>(carrier: &Arc<C>, replacement: Replacement) {
    match replacement {
        Replacement::Rested(worker) => worker.call(),
        Replacement::New => {
            if start(carrier).is_err() && carrier.with_pool(Pool::start_failed) {
                carrier.wake_watchdog();
            }
        }
    }
}

/// Starts a thread that the pool has counted already.
///
/// # Errors
/// When there can be no more threads.
pub fn start<C: Carrier>(carrier: &Arc<C>) -> io::Result<()> {
    let run_in_thread = carrier.clone();
    carrier.spawn(Box::new(move || run(&run_in_thread)))
}

/// Makes this thread a worker, which the pool has counted already, and runs it until it is no longer needed.
pub fn run<C: Carrier>(carrier: &Arc<C>) {
    let env = carrier.env();
    let worker = Worker::in_thread(env.event(), env.thread_number());
    carrier.with_pool(|pool| pool.register(&worker));
    carrier.enter(Arc::new(Member { carrier: carrier.clone(), worker: worker.clone() }));
    carrier.live(&worker);
}

/// The worker pool of one worker, as the remote calls that its procedures make see it.
struct Member<C> {
    carrier: Arc<C>,
    worker: Arc<Worker>,
}

impl<C: Carrier> WorkerPool for Member<C> {
    fn may_wait(&self) -> Result<(), CallFailed> {
        Ok(self.carrier.with_pool(|pool| pool.may_wait())?)
    }

    fn begin_wait(&self, limited: bool) -> Result<bool, CallFailed> {
        Ok(self.carrier.begin_wait(&self.worker, limited)?)
    }

    fn end_wait(&self) {
        self.carrier.end_wait(&self.worker);
    }
}

impl From<MayNotWait> for CallFailed {
    fn from(why: MayNotWait) -> CallFailed {
        let why = match why {
            MayNotWait::Last(max) => {
                format!("this is the last of the server's {max} threads (FARCALL_THREADS): it must not wait")
            }
            MayNotWait::Enough => "too many procedures of this server wait in calls of their own".into(),
        };
        CallFailed::new(Kind::Overloaded, Ran::No).because(why)
    }
}
