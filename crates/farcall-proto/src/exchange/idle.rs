//! The small form in which a call's exchanges are kept while nothing passes in them. A stream may be idle for
//! days, and an end may have many streams.

use super::inflow::{IdleInflow, Inflow};
use super::outflow::Outflow;
use super::{Exchange, Exchanges};
use crate::Mutant;
use crate::transfer::IdleOutgoing;

/// The small form of a call's exchanges. A call has it only if exactly one exchange is open, if at most one
/// end has sent in that exchange, and if nothing is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    number: u32,
    // These counts are small. A call with larger counts has no small form.
    ours: u16,
    theirs: u16,
    directions: u16,
    received: u16,
    touched: bool,
    begun: bool,
    direction: Direction,
}

/// The direction in which bytes were sent. Nothing was sent in the other direction.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Out(IdleOutgoing),
    In(IdleInflow),
}

impl Idle {
    /// Returns the number of directions that this end has begun.
    pub fn directions(&self) -> u32 {
        self.directions.into()
    }

    /// Returns the number of the open exchange.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Exchanges {
    /// Returns the small form, if exactly one exchange is open and nothing passes in it.
    pub fn idle(&self) -> Option<Idle> {
        let [exchange] = &self.open[..] else { return None };
        let over = self.stuck || self.concluded || self.contradicted;
        let busy = over || self.awaits_opening() || self.due.is_some() || !self.answers.is_empty();
        if busy || exchange.stop_due.is_some() {
            return None;
        }
        let (outgoing, inflow) = (exchange.outflow.idle()?, exchange.inflow.idle()?);
        let untouched = Some(inflow) == Inflow::new(self.mutant).idle();
        let direction = match (untouched, exchange.outflow.is_begun()) {
            (true, _) => Direction::Out(outgoing),
            (false, false) => Direction::In(inflow),
            (false, true) => return None,
        };
        let few = |count: u32| u16::try_from(count).ok();
        Some(Idle {
            number: exchange.number,
            ours: few(self.ours)?,
            theirs: few(self.theirs)?,
            directions: few(self.directions)?,
            received: few(self.received)?,
            touched: self.touched,
            begun: exchange.begun,
            direction,
        })
    }

    /// Restores the exchanges from their small form.
    pub fn resume(idle: Idle, lowest: u32, mutant: Mutant) -> Exchanges {
        let Idle { number, ours, theirs, directions, received, touched, begun, direction } = idle;
        let (inflow, outflow) = match direction {
            Direction::Out(outgoing) => (Inflow::new(mutant), Outflow::resume(outgoing, mutant)),
            Direction::In(inflow) => (Inflow::resume(inflow, mutant), Outflow::new(mutant, 0)),
        };
        let open = vec![Exchange { number, mutant, inflow, outflow, begun, ..Exchange::default() }];
        Exchanges {
            open,
            ours: ours.into(),
            theirs: theirs.into(),
            directions: directions.into(),
            received: received.into(),
            touched,
            ..Exchanges::new(lowest, mutant)
        }
    }
}
