//! The handle that ends [`Server::wait`](super::Server::wait).

use std::fmt;
use std::sync::{Arc, Mutex};

use farcall::env::{Condition, Env};
use farcall::lock;

/// A handle that ends the [`Server::wait`](super::Server::wait) of one server. Its clones end the same wait.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

struct Shared {
    env: Arc<dyn Env>,
    is_stopped: Mutex<bool>,
    stopped: Condition,
}

impl Stopper {
    pub(crate) fn new(env: Arc<dyn Env>) -> Stopper {
        Stopper(Arc::new(Shared { env, is_stopped: Mutex::new(false), stopped: Condition::default() }))
    }

    /// Ends [`Server::wait`](super::Server::wait), whether a thread is in it already or calls it later.
    pub fn stop(&self) {
        *lock(&self.0.is_stopped) = true;
        self.0.stopped.notify_all();
    }

    /// Waits until [`Stopper::stop`] is called.
    pub(crate) fn wait(&self) {
        let Shared { env, is_stopped, stopped } = &*self.0;
        let mut guard = lock(is_stopped);
        while !*guard {
            guard = stopped.wait(env, is_stopped, guard, None).0;
        }
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}
