//! The destination of a call's outcome, for calls that did not come by the server's socket, such as calls
//! through shared memory.

use std::time::Duration;

use farcall_proto::server::{CallKey, Finish};

use super::caller::Caller;
use crate::xdr::Spill;

/// The connection by which a call came, and which gets the call's outcome.
pub(crate) trait Back: Send + Sync {
    /// Gives the outcome back. Never blocks for long.
    fn give_back(&self, key: CallKey, finish: Finish, reply: Vec<u8>);
    /// Returns how the queue of calls that wait for a worker identifies the caller.
    fn caller(&self) -> Caller;
}

/// Takes the parts of a long result while the procedure's stub still encodes it.
pub(crate) trait Outlet: Spill {
    /// Returns how much time it has taken so far to take these parts.
    fn took(&self) -> Duration;
}
