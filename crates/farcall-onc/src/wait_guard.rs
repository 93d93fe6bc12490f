//! Tells a server's worker pool that one of its procedures waits in a call of its own.
//!
//! A client's link says so for each thread that waits. Only a thread of a worker pool has one to tell.

use std::cell::RefCell;
use std::sync::Arc;

/// The worker pool that a thread belongs to.
pub(crate) trait WorkerPool {
    /// A procedure on this thread is about to wait. Returns false if as many wait as may: if it waited all
    /// the same, nobody might be left to serve the call that it waits for.
    fn may_wait(&self) -> bool;

    /// The wait begins: other threads take over what this thread has read and not served.
    fn begin_wait(&self);

    /// The wait has ended, or never began.
    fn end_wait(&self);
}

/// What a call is told that such a procedure makes and that must not be waited for.
pub(crate) const TOO_MANY_WAIT: &str = "too many procedures of this server wait in calls of their own";

thread_local! {
    static POOL: RefCell<Option<Arc<dyn WorkerPool>>> = const { RefCell::new(None) };
}

/// Makes this thread a member of a worker pool, or of none.
pub(crate) fn join(pool: Option<Arc<dyn WorkerPool>>) {
    POOL.set(pool);
}

/// As many procedures of the pool wait as may.
pub(crate) struct TooManyWait;

/// Until it is dropped, this thread does not count as one that executes.
pub(crate) struct WaitGuard(Option<Arc<dyn WorkerPool>>);

impl WaitGuard {
    /// # Errors
    /// If too many procedures of this thread's pool wait already.
    #[inline]
    pub(crate) fn new() -> Result<WaitGuard, TooManyWait> {
        match POOL.with_borrow(Clone::clone) {
            Some(pool) if !pool.may_wait() => Err(TooManyWait),
            pool => Ok(WaitGuard(pool)),
        }
    }

    /// Lets other threads take over before this one waits.
    #[inline]
    pub(crate) fn begin(&self) {
        self.0.iter().for_each(|pool| pool.begin_wait());
    }
}

impl Drop for WaitGuard {
    #[inline]
    fn drop(&mut self) {
        self.0.iter().for_each(|pool| pool.end_wait());
    }
}
