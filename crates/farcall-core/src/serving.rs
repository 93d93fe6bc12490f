//! Whether this thread serves a call, and what it does before it waits in a call of its own: the pool that it
//! belongs to may refuse, and another thread receives meanwhile.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::CallFailed;

/// The pool of threads that a serving thread belongs to, as far as the thread's own waits concern it.
pub trait Pool: Send + Sync {
    /// Whether this thread may wait. The last thread that could receive may not.
    ///
    /// # Errors
    /// What the call that it would wait for fails with.
    fn may_wait(&self) -> Result<(), CallFailed>;
    /// Says that this thread begins to wait, and does not count as a worker meanwhile. Returns false if it
    /// waits already.
    fn begin_wait(&self) -> bool;
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
}

thread_local! {
    static SERVES: Cell<Serves> = const { Cell::new(Serves::Nothing) };
    static POOL: RefCell<Option<Arc<dyn Pool>>> = const { RefCell::new(None) };
}

/// Whether a call is being served, so that one made now may inherit something.
#[inline]
pub fn is_serving() -> bool {
    SERVES.get() != Serves::Nothing
}

/// Sets what this thread serves, and returns what it served before.
#[inline]
pub(crate) fn set(serves: Serves) -> Serves {
    SERVES.replace(serves)
}

/// From now on this thread belongs to `pool`.
pub(crate) fn join(pool: Arc<dyn Pool>) {
    POOL.with_borrow_mut(|place| *place = Some(pool));
}

/// Whether this thread belongs to a pool.
pub fn is_in_pool() -> bool {
    // A thread that is ending belongs to none.
    POOL.try_with(|pool| pool.try_borrow().is_ok_and(|pool| pool.is_some())).unwrap_or(false)
}

/// The pool as one of whose threads this thread serves a call.
#[inline]
fn pool() -> Option<Arc<dyn Pool>> {
    if SERVES.get() == Serves::AsWorker { POOL.with_borrow(Clone::clone) } else { None }
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

/// Begins a wait in farcall, which lasts until the guard is dropped. A thread that serves a call does not count
/// as a worker meanwhile, and another receives if need be.
#[inline(always)]
pub fn wait_guard() -> WaitGuard {
    WaitGuard(pool().filter(|pool| pool.begin_wait()))
}

/// A wait of this thread, which serves a call.
#[must_use = "the wait ends when this is dropped"]
pub struct WaitGuard(Option<Arc<dyn Pool>>);

impl Drop for WaitGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(pool) = &self.0 {
            pool.end_wait();
        }
    }
}
