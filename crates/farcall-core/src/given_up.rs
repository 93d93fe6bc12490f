//! The cancellation of a started call within this process: a flag, a deadline, and the notices that its
//! procedure registered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::env::{Env as _, Time};
use crate::notice::Notice;
use crate::{System, guard, lock};

/// Whether a started call was given up, and the notices to tell when it is.
pub(crate) struct GivenUp {
    is_given_up: AtomicBool,
    /// When the call is given up at the latest.
    deadline: Option<Time>,
    notices: Mutex<Vec<Arc<Notice>>>,
}

impl GivenUp {
    pub(crate) fn new(deadline: Option<Time>) -> Arc<GivenUp> {
        Arc::new(GivenUp { is_given_up: AtomicBool::new(false), deadline, notices: Mutex::default() })
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed) || self.is_late()
    }

    /// Returns whether the call's deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= System.now())
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Registers a notice that is told when the call is given up. Check after this whether the call was given
    /// up before.
    pub(crate) fn notify(&self, notice: &Arc<Notice>) {
        lock(&self.notices).push(notice.clone());
    }

    /// Removes a notice that `notify` registered.
    pub(crate) fn forget(&self, notice: &Arc<Notice>) {
        lock(&self.notices).retain(|other| !Arc::ptr_eq(other, notice));
    }

    /// Gives the call up, and wakes its procedure.
    pub(crate) fn give_up(&self) {
        // Relaxed suffices. A notice that is registered before the lock below is taken is told. The thread
        // that registers a notice later sees the flag, because the lock orders the two.
        self.is_given_up.store(true, Ordering::Relaxed);
        let told = std::mem::take(&mut *lock(&self.notices));
        for waker in told.iter().filter_map(|notice| notice.tell()) {
            guard::run_alone("a waker", || waker.wake());
        }
    }
}
