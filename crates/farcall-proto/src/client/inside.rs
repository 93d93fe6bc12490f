//! The client's state for a call with exchanges: the signals and streams that pass while the call runs.

use crate::Mutant;
use crate::exchange::Exchanges;
use crate::wire::Status;

/// The lowest number of an exchange that a client opens.
const LOWEST: u32 = 1;

/// The exchanges of a call, and its result, which is held back until the exchanges that belong before it have
/// arrived.
#[derive(Debug)]
pub(super) struct Inside {
    pub exchanges: Exchanges,
    /// The number of exchanges whose server half (the data that the server sends in it) must arrive before
    /// the result is delivered.
    pub directions: u32,
    pub result: Option<(Status, Vec<u8>)>,
}

impl Inside {
    pub fn new(mutant: Mutant) -> Box<Inside> {
        Box::new(Inside { exchanges: Exchanges::new(LOWEST, mutant), directions: 0, result: None })
    }

    /// Sets how many server halves must arrive before the result. A fragment of the result has said so.
    pub fn expect(&mut self, directions: u32) {
        self.directions = directions;
    }

    /// Returns how many server halves must arrive before the result, as far as is known.
    pub fn directions(&self) -> u32 {
        self.directions
    }

    /// Returns whether everything has arrived from the server. The user may not have taken it yet.
    pub fn is_complete(&self) -> bool {
        self.has_result() && self.exchanges.arrived() >= self.directions
    }

    /// Returns whether the result has come.
    pub fn has_result(&self) -> bool {
        self.result.is_some()
    }
}
