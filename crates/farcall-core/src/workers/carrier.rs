//! What a pool asks of the carrier whose calls its threads receive, and how a thread of it is started.

use std::io;
use std::sync::Arc;

use super::{Pool, Replacement, Worker};
use crate::context::{self, CallServer};
use crate::serving::WorkerPool;
use crate::{CallFailed, Kind, Ran};

/// What receives calls for a pool: a socket, or a session through shared memory.
pub trait Carrier: Send + Sync + Sized + 'static {
    /// The name of its threads.
    const THREAD: &'static str;

    /// What serves the calls that the threads execute.
    fn call_server(self: &Arc<Self>) -> Arc<dyn CallServer>;

    /// Acts on the pool, under the lock that guards it.
    fn with_pool<R>(&self, act: impl FnOnce(&mut Pool) -> R) -> R;

    /// A worker's life: it receives, executes and rests, until the carrier stops or nobody needs it.
    fn live(self: &Arc<Self>, worker: &Arc<Worker>);

    /// Wakes the thread that looks after lone receivers.
    fn wake_watchdog(&self);

    /// Notes that an executing thread begins to wait in a call of its own, and has another thread receive.
    /// Returns false if the thread waits already.
    fn begin_wait(self: &Arc<Self>, worker: &Worker) -> bool {
        let begun = self.with_pool(|pool| pool.begin_wait(worker).then(|| pool.replace_waiting()));
        let Some(replacement) = begun else { return false };
        replacement.into_iter().for_each(|replacement| replace(self, replacement));
        true
    }
}

/// Has the thread receive that a pool has chosen.
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
    carrier.call_server().env().spawn(C::THREAD, Box::new(move || run(&run_in_thread)))
}

/// Makes this thread a worker that the pool has counted already, until its life as one ends.
pub fn run<C: Carrier>(carrier: &Arc<C>) {
    let server = carrier.call_server();
    let worker = Worker::new(server.env().event());
    carrier.with_pool(|pool| pool.register(&worker));
    context::serve_in_thread(server, Arc::new(Member { carrier: carrier.clone(), worker: worker.clone() }));
    carrier.live(&worker);
}

/// A worker, as the calls see it that its procedures make.
struct Member<C> {
    carrier: Arc<C>,
    worker: Arc<Worker>,
}

impl<C: Carrier> WorkerPool for Member<C> {
    fn may_wait(&self) -> Result<(), CallFailed> {
        let refused = self.carrier.with_pool(|pool| pool.is_last().then(|| pool.max_threads()));
        let Some(max) = refused else { return Ok(()) };
        let why =
            format!("this is the last of the server's {max} threads (FARCALL_THREADS): it must not wait");
        Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why))
    }

    fn begin_wait(&self) -> bool {
        self.carrier.begin_wait(&self.worker)
    }

    fn end_wait(&self) {
        self.carrier.with_pool(|pool| pool.end_wait(&self.worker));
    }
}
