//! The call by which a new machine is enrolled, and the runtimes that make and serve it.
//!
//! The call is open: nothing in it is secret, and both ends show by the token that they are the right ones
//! (docs/keys.md, "Enrolment").

use std::time::Duration;

use farcall::names::Memory;
use farcall::{Builder, Runtime};

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

/// Returns the settings of a runtime without keys and without a registry. The user's `FARCALL_*` variables
/// are those of other calls, and a new machine has no keys yet.
pub(super) fn plain() -> Builder {
    Runtime::builder().ignore_variables().registry(Memory::new()).shared_memory(false).describe(false)
}

/// How long the new machine waits for the authority.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
