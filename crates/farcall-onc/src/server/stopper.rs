//! The handle that ends [`Server::wait`](super::Server::wait).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use farcall::System;
use farcall::env::Condition;

/// A handle that ends the [`Server::wait`](super::Server::wait) of one server. Its clones end the same wait.
#[derive(Clone, Default)]
pub struct Stopper(Arc<(Mutex<bool>, Condition)>);

impl Stopper {
    /// Ends [`Server::wait`](super::Server::wait), whether a thread is in it already or calls it later.
    pub fn stop(&self) {
        let (stopped, changed) = &*self.0;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Waits until [`Stopper::stop`] is called.
    pub(super) fn wait(&self) {
        let (stopped, changed) = &*self.0;
        let env = System::current();
        let mut guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*guard {
            guard = changed.wait(&env, stopped, guard, None).0;
        }
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}
