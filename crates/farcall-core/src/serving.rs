//! Whether this thread serves a call, and what it does before it waits in a call of its own: the pool that it
//! belongs to may refuse, and another thread receives meanwhile.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::CallFailed;

/// The pool of threads that a serving thread belongs to, as far as the thread's own waits concern it.
pub trait WorkerPool: Send + Sync {
    /// Whether this thread may wait. The last thread that could receive may not.
    ///
    /// # Errors
    /// What the call that it would wait for fails with.
    fn may_wait(&self) -> Result<(), CallFailed>;
    /// Says that this thread begins to wait, and does not count as a worker meanwhile. Returns false if it
    /// waits already.
    ///
    /// # Errors
    /// If `limited`, and as many threads wait already as the pool allows. Threads that ask at once cannot
    /// exceed that bound.
    fn begin_wait(&self, limited: bool) -> Result<bool, CallFailed>;
    /// Says that this thread waits no longer.
    fn end_wait(&self);
}

/// What this thread serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Nothing,
    /// A call, as a thread of its pool.
    AsWorker,
    /// A call whose future this thread polls. The thread belongs to the executor, not to a pool.
    AsTask,
    /// Calls of a protocol that has its own workers, as one of them.
    Elsewhere,
}

thread_local! {
    static SERVES: Cell<Serves> = const { Cell::new(Serves::Nothing) };
    static POOL: RefCell<Option<Arc<dyn WorkerPool>>> = const { RefCell::new(None) };
}

/// Whether a call is being served, so that one made now may inherit something.
#[inline]
pub fn is_serving() -> bool {
    matches!(SERVES.get(), Serves::AsWorker | Serves::AsTask)
}

/// Sets what this thread serves, and returns what it served before.
#[inline]
pub(crate) fn set(serves: Serves) -> Serves {
    SERVES.replace(serves)
}

/// From now on this thread belongs to `pool`.
pub(crate) fn join(pool: Arc<dyn WorkerPool>) {
    POOL.with_borrow_mut(|place| *place = Some(pool));
}

/// From now on this thread serves calls of another protocol as one of `pool`, or of none. Its waits in farcall
/// are told to the pool.
pub fn serve_elsewhere(pool: Option<Arc<dyn WorkerPool>>) {
    SERVES.set(if pool.is_some() { Serves::Elsewhere } else { Serves::Nothing });
    let former = POOL.with_borrow_mut(|place| std::mem::replace(place, pool));
    drop(former);
}

/// Whether this thread belongs to a pool.
pub fn is_in_pool() -> bool {
    // A thread that is ending belongs to none.
    POOL.try_with(|pool| pool.try_borrow().is_ok_and(|pool| pool.is_some())).unwrap_or(false)
}

/// The pool as one of whose threads this thread serves a call.
#[inline]
fn pool() -> Option<Arc<dyn WorkerPool>> {
    match SERVES.get() {
        Serves::AsWorker | Serves::Elsewhere => POOL.with_borrow(Clone::clone),
        Serves::Nothing | Serves::AsTask => None,
    }
}

/// Whether this thread may wait in farcall.
///
/// # Errors
/// The thread serves a call, no other thread could receive meanwhile, and what it would wait for might have
/// to be received.
#[inline(always)]
pub fn may_wait() -> Result<(), CallFailed> {
    match pool() {
        None => Ok(()),
        Some(pool) => pool.may_wait(),
    }
}

/// Begins a wait in farcall, which lasts until the guard is dropped. A thread that serves a call does not
/// count as a worker meanwhile, and another receives if need be.
#[inline(always)]
pub fn wait_guard() -> WaitGuard {
    WaitGuard(pool().filter(|pool| pool.begin_wait(false).unwrap_or(false)))
}

/// Begins a wait as [`wait_guard`] does, if this thread may wait.
///
/// # Errors
/// As [`may_wait`].
#[inline(always)]
pub fn try_wait_guard() -> Result<WaitGuard, CallFailed> {
    let Some(pool) = pool() else { return Ok(WaitGuard(None)) };
    let begins = pool.begin_wait(true)?;
    Ok(WaitGuard(begins.then_some(pool)))
}

/// A wait of this thread, which serves a call.
#[must_use = "the wait ends when this is dropped"]
pub struct WaitGuard(Option<Arc<dyn WorkerPool>>);

impl Drop for WaitGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(pool) = &self.0 {
            pool.end_wait();
        }
    }
}
