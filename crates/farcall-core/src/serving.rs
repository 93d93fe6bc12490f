//! Knows whether this thread serves a call, and acts before the thread waits in a remote call of its own: the
//! thread's pool may refuse the wait, and otherwise another thread receives meanwhile.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::CallFailed;

/// The pool to which a serving thread belongs. The thread tells it when it waits.
pub trait WorkerPool: Send + Sync {
    /// Checks whether this thread may wait. The last thread that could receive must not wait.
    ///
    /// # Errors
    /// The failure of the call for which the thread would wait.
    fn may_wait(&self) -> Result<(), CallFailed>;
    /// Notes that this thread begins to wait. The thread does not count as a worker meanwhile. Returns false
    /// if it waits already.
    ///
    /// # Errors
    /// If `limited`, and as many threads wait already as the pool allows. This bound holds even if several
    /// threads begin to wait at the same time.
    fn begin_wait(&self, limited: bool) -> Result<bool, CallFailed>;
    /// Notes that this thread waits no longer.
    fn end_wait(&self);
}

/// What this thread serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Nothing,
    /// Calls of a protocol that has its own workers. The thread is one of these workers.
    Elsewhere,
    /// A call, as a thread of its pool.
    AsWorker,
    /// A call whose future this thread polls. The thread belongs to the executor, not to a pool.
    AsTask,
}

thread_local! {
    static SERVES: Cell<Serves> = const { Cell::new(Serves::Nothing) };
    static POOL: RefCell<Option<Arc<dyn WorkerPool>>> = const { RefCell::new(None) };
}

/// Returns whether this thread serves a call of farcall's own protocol. A call that it makes can inherit from
/// that call.
#[inline]
pub fn is_serving() -> bool {
    matches!(SERVES.get(), Serves::AsWorker | Serves::AsTask)
}

/// Sets what this thread serves, and returns what it served before.
#[inline]
pub(crate) fn set(serves: Serves) -> Serves {
    SERVES.replace(serves)
}

/// Makes this thread belong to `pool` from now on.
pub(crate) fn join(pool: Arc<dyn WorkerPool>) {
    POOL.with_borrow_mut(|place| *place = Some(pool));
}

/// Makes this thread serve calls of another protocol from now on, as a member of `pool`, which is told when
/// the thread waits in farcall. With `None` the thread serves nothing and belongs to no pool.
pub fn serve_elsewhere(pool: Option<Arc<dyn WorkerPool>>) {
    SERVES.set(if pool.is_some() { Serves::Elsewhere } else { Serves::Nothing });
    let former = POOL.with_borrow_mut(|place| std::mem::replace(place, pool));
    drop(former);
}

/// Returns whether this thread belongs to a pool.
pub fn is_in_pool() -> bool {
    // If the thread is ending, its thread-local value is gone, and the thread counts as belonging to no pool.
    POOL.try_with(|pool| pool.try_borrow().is_ok_and(|pool| pool.is_some())).unwrap_or(false)
}

/// Returns the pool of this thread, if the thread serves a call as a member of a pool.
#[inline]
fn pool() -> Option<Arc<dyn WorkerPool>> {
    match SERVES.get() {
        Serves::AsWorker | Serves::Elsewhere => POOL.with_borrow(Clone::clone),
        Serves::Nothing | Serves::AsTask => None,
    }
}

/// Checks whether this thread may wait in farcall.
///
/// # Errors
/// The thread serves a call, and no other thread could receive meanwhile what this thread would wait for.
#[inline(always)]
pub fn may_wait() -> Result<(), CallFailed> {
    match pool() {
        None => Ok(()),
        Some(pool) => pool.may_wait(),
    }
}

/// Begins a wait in farcall, which lasts until the guard is dropped. If this thread serves a call, it does
/// not count as a worker meanwhile, and another thread receives if none does.
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

/// A guard for a wait of this thread. The wait ends when it is dropped.
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
