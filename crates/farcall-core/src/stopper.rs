//! The handle that ends a server's wait.

use std::fmt;
use std::sync::{Arc, Mutex};

use farcall_base::lock;

use crate::env::{Condition, Env};

/// A handle that ends the `Server::wait` of one server. Its clones end the same wait.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

struct Shared {
    env: Arc<dyn Env>,
    is_stopped: Mutex<bool>,
    stopped: Condition,
}

impl Stopper {
    /// Makes the handle of a server that waits in this environment.
    #[doc(hidden)]
    pub fn new(env: Arc<dyn Env>) -> Stopper {
        Stopper(Arc::new(Shared { env, is_stopped: Mutex::new(false), stopped: Condition::default() }))
    }

    /// Ends `Server::wait`, whether a thread is in it already or calls it later.
    pub fn stop(&self) {
        *lock(&self.0.is_stopped) = true;
        self.0.stopped.notify_all();
    }

    /// Waits until [`Stopper::stop`] is called.
    #[doc(hidden)]
    pub fn wait(&self) {
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
