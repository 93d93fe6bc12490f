//! What the calling end keeps for a call in which something passes besides its arguments and its result.

use crate::Mutant;
use crate::exchange::Exchanges;
use crate::wire::Status;

/// The lowest number of an exchange that a client opens.
const LOWEST: u32 = 1;

/// The exchanges of a call, and its result while others are to come before it.
#[derive(Debug)]
pub(super) struct Inside {
    pub exchanges: Exchanges,
    /// How many directions of the server's come before the result.
    pub directions: u32,
    pub result: Option<(Status, Vec<u8>)>,
}

impl Inside {
    pub fn new(mutant: Mutant) -> Box<Inside> {
        Box::new(Inside { exchanges: Exchanges::new(LOWEST, mutant), directions: 0, result: None })
    }

    /// Notes that the result, of which a fragment has come, comes after so many directions.
    pub fn expect(&mut self, directions: u32) {
        self.directions = directions;
    }

    /// After how many directions the result comes, as far as is known.
    pub fn directions(&self) -> u32 {
        self.directions
    }

    /// Whether the server is not needed any more: all has come, and the user is to take it.
    pub fn is_complete(&self) -> bool {
        self.has_result() && self.exchanges.arrived() >= self.directions
    }

    /// Whether the result has come.
    pub fn has_result(&self) -> bool {
        self.result.is_some()
    }
}
