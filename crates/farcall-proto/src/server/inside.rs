//! The server's state for a call with exchanges: the signals and streams that pass while the call runs.

use crate::Time;
use crate::exchange::Exchanges;

/// The exchanges of a call, with their timer and the memory that they take.
#[derive(Debug)]
pub(super) struct Inside {
    pub exchanges: Exchanges,
    /// When the exchanges have something to do next, if they have. The server's timers hold this time too.
    pub timer: Option<Time>,
    /// The bytes of memory that the exchanges take, as counted in the total of the client's host.
    pub counted: usize,
}
