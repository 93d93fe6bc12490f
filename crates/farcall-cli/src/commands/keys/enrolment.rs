//! The call by which a new machine is enrolled, and the runtimes that make and serve it.
//!
//! The call is open: nothing in it is secret, and both ends show by the token that they are the right ones
//! (docs/keys.md, "Enrolment").

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::{Env, Event, Socket, SocketOptions, Time};
use farcall::names::Memory;
use farcall::{Builder, Runtime, System};

/// An authority that waits for a new machine.
#[farcall::interface]
pub(super) trait Enrolment {
    /// Answers a request with a grant.
    ///
    /// # Errors
    /// Why the request gets none: what was expected, what came, and what to do.
    fn enrol(&self, request: &[u8]) -> farcall::Result<Vec<u8>, String>;

    /// Says that the machine that made this request has kept its grant.
    #[idempotent]
    fn kept(&self, request: &[u8]) -> farcall::Result<()>;
}

/// The operating system without the user's `FARCALL_*` variables: they are those of other calls, and a new
/// machine has no keys yet.
struct Plain;

/// Returns the settings of a runtime without keys and without a registry.
pub(super) fn plain() -> Builder {
    Runtime::builder().env(Arc::new(Plain)).registry(Memory::new()).shared_memory(false).describe(false)
}

impl Env for Plain {
    fn now(&self) -> Time {
        System.now()
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        System.bind(address, options)
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        System.spawn(name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        System.event()
    }

    fn entropy(&self, out: &mut [u8]) {
        System.entropy(out);
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// How long the new machine waits for the authority.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
