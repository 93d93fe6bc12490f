//! The handle that ends a server's wait.

use std::fmt;
use std::sync::Arc;

use crate::env::{Env, Event};

/// A handle that ends the wait of one server: `Server::wait`, `Server::until_signal`, `Export::wait` and
/// `Export::until_signal`. Its clones end the same wait.
#[derive(Clone)]
pub struct Stopper(Arc<dyn Event>);

impl Stopper {
    /// Makes the handle of a server that waits in this environment.
    #[doc(hidden)]
    pub fn new(env: &Arc<dyn Env>) -> Stopper {
        Stopper(env.event())
    }

    /// Ends the server's wait, whether a thread is in it already or calls it later.
    pub fn stop(&self) {
        self.0.set();
    }

    /// Waits until [`Stopper::stop`] is called.
    #[doc(hidden)]
    pub fn wait(&self) {
        self.0.wait(None);
    }

    /// Returns what [`Stopper::stop`] sets.
    #[doc(hidden)]
    pub fn event(&self) -> &Arc<dyn Event> {
        &self.0
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}
