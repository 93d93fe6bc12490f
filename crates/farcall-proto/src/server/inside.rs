//! What the serving end keeps for a call in which something passes besides its arguments and its result.

use crate::exchange::{Exchanges, Idle};
use crate::{Mutant, Time};

/// The lowest number of an exchange that a server opens.
const LOWEST: u32 = 2;

/// The exchanges of a call.
#[derive(Debug)]
pub(super) struct Inside {
    state: State,
    /// Bytes of memory that were counted for the host.
    pub counted: usize,
}

#[derive(Debug)]
enum State {
    Active(Box<Active>),
    /// Nothing passes. There may be many such calls, so this is small.
    Idle(Idle),
}

/// Exchanges in which something passes.
#[derive(Debug)]
pub(super) struct Active {
    pub exchanges: Exchanges,
    /// When they are next looked at, which the server's timers have too.
    pub timer: Option<Time>,
}

impl Inside {
    pub fn new(mutant: Mutant) -> Box<Inside> {
        let active = Active { exchanges: Exchanges::new(LOWEST, mutant), timer: None };
        Box::new(Inside { state: State::Active(Box::new(active)), counted: 0 })
    }

    /// Returns the exchanges to act on.
    pub fn activate(&mut self, mutant: Mutant) -> &mut Active {
        if let State::Idle(idle) = self.state {
            let exchanges = Exchanges::resume(idle, LOWEST, mutant);
            self.state = State::Active(Box::new(Active { exchanges, timer: None }));
        }
        match &mut self.state {
            State::Active(active) => active,
            State::Idle(_) => unreachable!("they were made active"),
        }
    }

    /// Keeps little of the exchanges, if nothing passes in them.
    pub fn rest(&mut self) {
        if let State::Active(active) = &self.state
            && active.timer.is_none()
            && let Some(idle) = active.exchanges.idle()
        {
            self.state = State::Idle(idle);
        }
    }

    /// Bytes of memory that the exchanges hold.
    pub fn memory(&self) -> usize {
        let more = match &self.state {
            State::Active(active) => size_of::<Active>() + active.exchanges.held(),
            State::Idle(_) => 0,
        };
        size_of::<Inside>() + more
    }

    /// When the exchanges are next looked at.
    pub fn timer(&self) -> Option<Time> {
        self.active().and_then(|active| active.timer)
    }

    /// Forgets that the exchanges are to be looked at then.
    pub fn forget_timer(&mut self, due: Time) {
        if let State::Active(active) = &mut self.state
            && active.timer == Some(due)
        {
            active.timer = None;
        }
    }

    /// How many directions the server has begun.
    pub fn directions(&self) -> u32 {
        match &self.state {
            State::Active(active) => active.exchanges.directions,
            State::Idle(idle) => idle.directions(),
        }
    }

    /// Bytes under way.
    pub fn in_flight(&self) -> u32 {
        self.active().map_or(0, |active| active.exchanges.in_flight())
    }

    /// Whether nothing is to be sent or expected any more.
    pub fn is_empty(&self) -> bool {
        self.active().is_some_and(|active| active.exchanges.is_empty())
    }

    /// Whether something is expected of the client, or is to be told it.
    pub fn needs_other_end(&self) -> bool {
        // A direction of an idle exchange is open.
        self.active().is_none_or(|active| active.exchanges.needs_other_end())
    }

    /// Whether datagrams may be too large for the path.
    pub fn is_stuck(&self) -> bool {
        self.active().is_some_and(|active| active.exchanges.stuck)
    }

    /// Whether an exchange is not over.
    pub fn is_open(&self, number: u32) -> bool {
        match &self.state {
            State::Active(active) => active.exchanges.is_open(number),
            State::Idle(idle) => idle.number() == number,
        }
    }

    fn active(&self) -> Option<&Active> {
        match &self.state {
            State::Active(active) => Some(active),
            State::Idle(_) => None,
        }
    }
}
