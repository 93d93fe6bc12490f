//! The server's state for a call with exchanges: the signals and streams that pass while the call runs.

use crate::exchange::{Exchanges, Idle};
use crate::{Mutant, Time};

/// The lowest number of an exchange that a server opens.
const LOWEST: u32 = 2;

/// The exchanges of a call, with their timer and the memory that they take.
#[derive(Debug)]
pub(super) enum Inside {
    Active(Box<Active>),
    /// Nothing passes. There may be many such calls, so this is small.
    Idle(Idle),
}

/// Exchanges in which something passes.
#[derive(Debug)]
pub(super) struct Active {
    pub exchanges: Exchanges,
    /// When the exchanges have something to do next, if they have. The server's timers hold this time too.
    pub timer: Option<Time>,
    /// Bytes of memory that were counted for the host.
    counted: usize,
}

impl Inside {
    pub fn new(mutant: Mutant) -> Box<Inside> {
        let active = Active { exchanges: Exchanges::new(LOWEST, mutant), timer: None, counted: 0 };
        Box::new(Inside::Active(Box::new(active)))
    }

    /// Returns the exchanges to act on.
    pub fn activate(&mut self, mutant: Mutant) -> &mut Active {
        if let Inside::Idle(idle) = *self {
            let (exchanges, counted) = (Exchanges::resume(idle, LOWEST, mutant), self.counted());
            *self = Inside::Active(Box::new(Active { exchanges, timer: None, counted }));
        }
        match self {
            Inside::Active(active) => active,
            Inside::Idle(_) => unreachable!("they were made active"),
        }
    }

    /// Keeps little of the exchanges, if nothing passes in them. Returns the bytes of memory that were
    /// counted for the host, and those that are to be counted now.
    pub fn rest(&mut self) -> (usize, usize) {
        let counted = self.counted();
        if let Inside::Active(active) = self {
            active.counted = size_of::<Inside>() + size_of::<Active>() + active.exchanges.held();
            if active.timer.is_none()
                && let Some(idle) = active.exchanges.idle()
            {
                *self = Inside::Idle(idle);
            }
        }
        (counted, self.counted())
    }

    /// Bytes of memory that were counted for the host.
    pub fn counted(&self) -> usize {
        match self {
            Inside::Active(active) => active.counted,
            Inside::Idle(_) => size_of::<Inside>(),
        }
    }

    /// When the exchanges are next looked at.
    pub fn timer(&self) -> Option<Time> {
        self.active().and_then(|active| active.timer)
    }

    /// Forgets that the exchanges are to be looked at then.
    pub fn forget_timer(&mut self, due: Time) {
        if let Inside::Active(active) = self
            && active.timer == Some(due)
        {
            active.timer = None;
        }
    }

    /// How many directions the server has begun.
    pub fn directions(&self) -> u32 {
        match self {
            Inside::Active(active) => active.exchanges.directions,
            Inside::Idle(idle) => idle.directions(),
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

    /// Whether bytes that were sent in an exchange have not been acknowledged. If so, the user is told when
    /// the client next says what has arrived.
    pub fn awaits_credit(&mut self, number: u32) -> bool {
        match self {
            Inside::Active(active) => active.exchanges.awaits_credit(number),
            Inside::Idle(_) => false,
        }
    }

    /// Whether the user has bytes to send in an exchange that have not arrived.
    pub fn is_sending(&self, number: u32) -> bool {
        self.active().is_some_and(|active| active.exchanges.is_sending(number))
    }

    /// Whether the client must still send something in an exchange, or must be sent something.
    pub fn needs_other_end(&self) -> bool {
        // An exchange that is idle has not ended.
        self.active().is_none_or(|active| active.exchanges.needs_other_end())
    }

    /// Whether datagrams may be too large for the path.
    pub fn is_stuck(&self) -> bool {
        self.active().is_some_and(|active| active.exchanges.stuck)
    }

    /// How many tries in a row have brought nothing to the client.
    pub fn vain(&self) -> u8 {
        self.active().map_or(0, |active| active.exchanges.vain())
    }

    /// Does not count the tries so far, because the client was silent.
    pub fn forgive(&mut self) {
        if let Inside::Active(active) = self {
            active.exchanges.forgive();
        }
    }

    /// Whether an exchange is not over.
    pub fn is_open(&self, number: u32) -> bool {
        match self {
            Inside::Active(active) => active.exchanges.is_open(number),
            Inside::Idle(idle) => idle.number() == number,
        }
    }

    fn active(&self) -> Option<&Active> {
        match self {
            Inside::Active(active) => Some(active),
            Inside::Idle(_) => None,
        }
    }
}
