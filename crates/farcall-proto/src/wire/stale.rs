//! STALE: a hint that a ticket was not accepted. The client does not rely on the hint, but asks the server by
//! a BIND.

use super::kinds::STALE;
use super::{Malformed, Reader, Writer};

/// Why a ticket was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaleReason {
    /// The ticket is of another incarnation. In a WELCOME the age that goes with this reason is how long this
    /// incarnation has lived.
    Incarnation = 1,
    /// The ticket's conversation was forgotten. In a WELCOME the age is the time since the server last forgot
    /// any conversation.
    Horizon = 2,
    /// The ticket was given to another address, or is forged.
    Address = 3,
    /// The server has no room for another conversation. No call ever ran under this ticket.
    Full = 4,
}

impl StaleReason {
    pub(super) fn of(number: u32) -> Result<StaleReason, Malformed> {
        let known = [StaleReason::Incarnation, StaleReason::Horizon, StaleReason::Address, StaleReason::Full];
        known.into_iter().find(|reason| *reason as u32 == number).ok_or(Malformed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub conversation: u64,
    /// The number of the datagram that is refused.
    pub number: u64,
    pub reason: StaleReason,
}

impl Stale {
    pub(super) fn read(mut r: Reader<'_>) -> Result<Stale, Malformed> {
        Ok(Stale { conversation: r.u64()?, number: r.u64()?, reason: StaleReason::of(r.u32()?)? })
    }
}

impl Writer<'_> {
    pub fn stale(&mut self, s: &Stale) {
        self.frame(STALE, 0, 24).u64(s.conversation).u64(s.number).u32(s.reason as u32).u32(0);
    }
}
