//! Refuses blocking calls that would wait for the executor of async tasks which their own thread drives.
//!
//! Such a call would never end, because its procedure runs only when the waiting thread goes on. Farcall
//! recognises it for exports by `export_async` on tokio runtimes of one thread. Other executors do not report
//! how many threads they have.

use std::time::Duration;

use crate::env::Time;
use crate::wait::{ReadyList, WaitPoint};
use crate::{CallFailed, Kind, Ran};

#[cfg(feature = "tokio")]
pub use alone::{drives_tokio, is_possible, note, would};

/// How long a thread that drives a one-threaded runtime waits for a call that it has started. If the executor
/// has executed the call already, the outcome arrives in this time.
pub const GRACE: Duration = Duration::from_secs(1);

/// Returns the failure of a call that would wait for itself.
#[cold]
pub fn refusal(ran: Ran) -> CallFailed {
    let why = "this call would wait for the tokio runtime that its own thread drives: use `.start()` and `.await`, \
               `spawn_blocking`, or a multi-threaded runtime";
    CallFailed::new(Kind::Local, ran).because(why)
}

/// Waits at a wait point like [`WaitPoint::wait`], but not for ever if this thread drives the executor of the
/// calls.
///
/// # Errors
/// When this thread must not wait, or when every call that it waits for is `stuck`, because this thread
/// itself would have to execute it.
pub fn wait(
    point: &dyn WaitPoint,
    (ready, enough): (&ReadyList, usize),
    until: Option<Time>,
    stuck: impl FnOnce() -> bool,
) -> Result<(), CallFailed> {
    if !is_possible() {
        return point.wait(ready, enough, until);
    }
    let grace = point.now() + GRACE;
    point.wait(ready, enough, Some(until.map_or(grace, |until| until.min(grace))))?;
    match ready.any() || point.now() < grace || !stuck() {
        true => Ok(()),
        false => Err(refusal(Ran::Maybe)),
    }
}

/// Knows which tokio runtimes execute calls of which exports, and whether a thread would wait for itself.
#[cfg(feature = "tokio")]
mod alone {
    use std::any::Any;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, PoisonError, RwLock, Weak};
    use std::task::{Context, Wake, Waker};

    use tokio::runtime::{Handle, Id, RuntimeFlavor};

    /// The exports whose calls are executed by runtimes of one thread.
    static EXECUTED: RwLock<Vec<Executed>> = RwLock::new(Vec::new());

    /// Whether any such export was ever noted. Each blocking call checks this first.
    static ANY: AtomicBool = AtomicBool::new(false);

    struct Executed {
        export: u64,
        /// The export. The reference cannot be upgraded once the export and all of its calls are gone.
        exported: Weak<dyn Any + Send + Sync>,
        by: Id,
    }

    /// Notes that a runtime executes the calls of this export until `exported` is dropped.
    pub fn note(export: u64, exported: Weak<dyn Any + Send + Sync>, by: &Handle) {
        if by.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return;
        }
        let mut executed = EXECUTED.write().unwrap_or_else(PoisonError::into_inner);
        executed.retain(|one| one.exported.strong_count() > 0);
        executed.push(Executed { export, exported, by: by.id() });
        ANY.store(true, Ordering::Relaxed);
    }

    /// Returns whether the calls of this export can only be executed by this thread itself, so that it must
    /// not wait for them.
    #[inline(always)]
    pub fn would(export: u64) -> bool {
        ANY.load(Ordering::Relaxed) && drives(|one| one.export == export)
    }

    /// Returns whether there is an export of this process whose calls can only be executed by this thread
    /// itself.
    #[inline]
    pub fn is_possible() -> bool {
        ANY.load(Ordering::Relaxed) && drives(|_| true)
    }

    /// Returns whether this thread drives a tokio runtime of one thread.
    pub fn drives_tokio() -> bool {
        driven().is_some()
    }

    #[cold]
    fn drives(is_meant: impl Fn(&Executed) -> bool) -> bool {
        let Some(driven) = driven() else { return false };
        let executed = EXECUTED.read().unwrap_or_else(PoisonError::into_inner);
        executed.iter().any(|one| one.by == driven && is_meant(one) && one.exported.strong_count() > 0)
    }

    /// Returns the one-threaded runtime that this thread drives, if it drives one. A thread that has merely
    /// entered the runtime, or that executes a function given to `spawn_blocking`, is in the runtime's
    /// context too. To tell these apart, this polls `yield_now`. In a thread that does not drive the runtime,
    /// it wakes its task at once, because no scheduler runs there. In a thread that drives the runtime, the
    /// scheduler wakes the task only later.
    fn driven() -> Option<Id> {
        let handle = Handle::try_current().ok()?;
        if handle.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return None;
        }
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
        (!woken.0.load(Ordering::Relaxed)).then(|| handle.id())
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns false: without the feature `tokio` farcall recognises no executor.
#[cfg(not(feature = "tokio"))]
pub const fn would(_export: u64) -> bool {
    false
}

#[cfg(not(feature = "tokio"))]
pub const fn is_possible() -> bool {
    false
}

#[cfg(not(feature = "tokio"))]
pub const fn drives_tokio() -> bool {
    false
}
