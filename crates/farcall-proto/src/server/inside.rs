//! What the serving end keeps for a call in which something passes besides its arguments and its result.

use crate::Time;
use crate::exchange::Exchanges;

/// The exchanges of a call.
#[derive(Debug)]
pub(super) struct Inside {
    pub exchanges: Exchanges,
    /// When they are next looked at, which the server's timers have too.
    pub timer: Option<Time>,
    /// Bytes of memory that were counted for the host.
    pub counted: usize,
}
