//! Where the outcome of a call goes that did not come by the socket.

use std::time::Duration;

use farcall_proto::server::{CallKey, Finish};

use super::payer::Caller;
use crate::xdr::Spill;

/// Who handed a call in, and gets its outcome.
pub(crate) trait Back: Send + Sync {
    /// Gives the outcome back. Never blocks for long.
    fn give_back(&self, key: CallKey, finish: Finish, reply: Vec<u8>);
    /// The caller, as the queue of calls that wait for a worker knows it.
    fn caller(&self) -> Caller;
}

/// Takes a long result while it is made.
pub(crate) trait Outlet: Spill {
    /// How long that took so far.
    fn took(&self) -> Duration;
}
