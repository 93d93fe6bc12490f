//! Whether a started call in this process was given up, and who is told when it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::guard;
use crate::notice::Notice;

/// Whether a started call was given up, and who is to be told when it is.
#[derive(Default)]
pub(crate) struct GivenUp {
    is: AtomicBool,
    notices: Mutex<Vec<Arc<Notice>>>,
}

impl GivenUp {
    pub(crate) fn is_given_up(&self) -> bool {
        self.is.load(Ordering::SeqCst)
    }

    /// Registers a notice that is told when the call is given up. The caller has to check afterwards whether
    /// the call was given up before.
    pub(crate) fn notify(&self, notice: &Arc<Notice>) {
        self.notices().push(notice.clone());
    }

    /// Removes a notice that `notify` registered.
    pub(crate) fn forget(&self, notice: &Arc<Notice>) {
        self.notices().retain(|other| !Arc::ptr_eq(other, notice));
    }

    pub(crate) fn give_up(&self) {
        self.is.store(true, Ordering::SeqCst);
        let told = std::mem::take(&mut *self.notices());
        for waker in told.iter().filter_map(|notice| notice.tell()) {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    fn notices(&self) -> MutexGuard<'_, Vec<Arc<Notice>>> {
        // Nothing panics while it is held.
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
