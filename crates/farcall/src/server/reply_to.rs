//! The destination of the outcome of a call that did not come by the socket, for example a call through
//! shared memory.

use std::time::Duration;

use farcall_proto::server::{CallKey, Finish};

use super::payer::Caller;
use crate::xdr::Spill;

/// The connection that handed a call in, and that gets its outcome.
pub(crate) trait Back: Send + Sync {
    /// Gives the outcome back. Never blocks for long.
    fn give_back(&self, key: CallKey, finish: Finish, reply: Vec<u8>);
    /// Returns the caller's name in the queue of calls that wait for a worker.
    fn caller(&self) -> Caller;
}

/// Takes the parts of a long result while the procedure's stub still encodes it.
pub(crate) trait Outlet: Spill {
    /// Returns how long taking these parts has lasted so far.
    fn took(&self) -> Duration;
}
