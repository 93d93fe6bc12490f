//! How a server's thread waits for its end.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Ends the [`Server::wait`](super::Server::wait) of one server.
#[derive(Clone, Default)]
pub struct Stopper(Arc<(Mutex<bool>, Condvar)>);

impl Stopper {
    /// Ends it.
    pub fn stop(&self) {
        let (stopped, changed) = &*self.0;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Waits until it is to end.
    pub(super) fn wait(&self) {
        let (stopped, changed) = &*self.0;
        let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(stopped, |stopped| !*stopped).unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}
