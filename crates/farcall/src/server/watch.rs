//! What the sentinel finds when it looks at a lone receiver: whether the receiver is stuck, and when nobody
//! needs to look any more.
//!
//! (tests/crew.rs includes this file.)

use std::time::Duration;

use super::crew::{Crew, Relief};

/// The time to the next look at a receiver that was seen executing.
const NAP: Duration = Duration::from_micros(100);
/// The longest time between two looks while calls keep coming.
const LONGEST_NAP: Duration = Duration::from_micros(1600);
/// The sentinel sleeps after this many looks in a row that each found fewer than [`FEW`] calls executed.
const QUIET: u32 = 8;
/// Fewer calls than this between two looks do not pay for looking.
const FEW: u64 = 8;

/// What the sentinel remembers from one look to the next.
pub(crate) struct Watch {
    progress: u64,
    /// A lone receiver was executing at the last look.
    alone: bool,
    quiet: u32,
    /// The time to the next look, when there is nothing to look into.
    nap: Duration,
}

impl Watch {
    pub(crate) fn new(crew: &Crew) -> Watch {
        Watch { progress: crew.progress, alone: true, quiet: 0, nap: NAP }
    }

    /// Whether nothing has moved for so long that the sentinel sleeps.
    pub(crate) fn is_over(&self) -> bool {
        self.quiet >= QUIET
    }

    /// The time to the next look.
    pub(crate) fn nap(&self) -> Duration {
        if self.alone { NAP } else { self.nap }
    }

    /// Looks, and returns the thread that is to receive besides, if the receiver is stuck or will be looked
    /// after no more.
    pub(crate) fn look(&mut self, crew: &mut Crew) -> Option<Relief> {
        let alone = crew.receiving() == 0;
        let moved = crew.progress.wrapping_sub(self.progress);
        let stuck = alone && self.alone && moved == 0;
        self.quiet = if moved >= FEW || alone { 0 } else { self.quiet + 1 };
        self.nap = (self.nap * 2).min(LONGEST_NAP);
        (self.progress, self.alone) = (crew.progress, alone);
        let second = if self.is_over() { crew.unguard() } else { None };
        if stuck { crew.relieve_if_alone() } else { second }
    }
}
