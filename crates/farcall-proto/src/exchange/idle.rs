//! The small form in which a call's exchanges are kept while nothing passes in them. A stream may be idle for
//! days, and there may be many.

use super::inflow::{IdleInflow, Inflow};
use super::outflow::Outflow;
use super::{Exchange, Exchanges};
use crate::Mutant;
use crate::transfer::IdleOutgoing;

/// The small form of a call's exchanges. Only a call with one open exchange has it, in which one end alone
/// has sent so far and nothing is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    number: u32,
    // Few exchanges were opened: a call that opened many is kept whole.
    ours: u16,
    theirs: u16,
    directions: u16,
    received: u16,
    touched: bool,
    begun: bool,
    way: Direction,
}

/// The direction in which something was sent.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Out(IdleOutgoing),
    In(IdleInflow),
}

impl Idle {
    /// How many directions this end has begun.
    pub fn directions(&self) -> u32 {
        self.directions.into()
    }

    /// The number of the open exchange.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Exchanges {
    /// Returns what to keep, if the call has one exchange, and nothing passes in it.
    pub fn idle(&self) -> Option<Idle> {
        let [exchange] = &self.open[..] else { return None };
        let over = self.stuck || self.concluded || self.contradicted;
        let busy = over || self.awaits_opening() || self.due.is_some() || !self.answers.is_empty();
        if busy || exchange.stop_due.is_some() {
            return None;
        }
        let (outgoing, inflow) = (exchange.outflow.idle()?, exchange.inflow.idle()?);
        let untouched = Some(inflow) == Inflow::new(self.mutant).idle();
        let way = match (untouched, exchange.outflow.is_begun()) {
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
            way,
        })
    }

    /// Restores the exchanges from their small form.
    pub fn resume(idle: Idle, lowest: u32, mutant: Mutant) -> Exchanges {
        let Idle { number, ours, theirs, directions, received, touched, begun, way } = idle;
        let (inflow, outflow) = match way {
            Direction::Out(outgoing) => (Inflow::new(mutant), Outflow::resume(outgoing, mutant)),
            Direction::In(inflow) => (Inflow::resume(inflow, mutant), Outflow::new(mutant)),
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
