//! What a watchdog finds when it looks at a lone receiver: whether the receiver is stuck, and when nobody
//! needs to look any more.
//!
//! (tests/workers.rs includes this file.)

use std::time::Duration;

use super::pool::{Pool, Replacement};

/// The time to the next look at a receiver that was seen executing.
const NAP: Duration = Duration::from_micros(100);
/// The longest time between two looks while calls keep coming.
const LONGEST_NAP: Duration = Duration::from_micros(1600);
/// The longest time between two looks at a receiver that is stuck while there may be no further thread. When
/// the receiver is done it goes on by itself.
const LONGEST_STARVED_NAP: Duration = Duration::from_millis(50);

/// When calls are too rare for a watchdog: after `looks` in a row that each found fewer than `calls`
/// executed.
#[derive(Clone, Copy)]
pub struct Rare {
    pub calls: u64,
    pub looks: u32,
}

/// What the watchdog of a pool remembers from one look to the next.
pub struct Watch {
    rare: Rare,
    progress: u64,
    /// A lone receiver was executing at the last look.
    alone: bool,
    /// Looks in a row that found few calls executed.
    quiet: u32,
    /// The time to the next look while no lone receiver executes.
    nap: Duration,
    /// The time to the next look while a lone receiver executes.
    nap_alone: Duration,
}

impl Watch {
    pub fn new(pool: &Pool, rare: Rare) -> Watch {
        Watch { rare, progress: pool.progress(), alone: true, quiet: 0, nap: NAP, nap_alone: NAP }
    }

    /// Whether calls have been rare for so long that the watchdog sleeps.
    pub fn is_over(&self) -> bool {
        self.quiet >= self.rare.looks
    }

    /// The time to the next look.
    pub fn nap(&self) -> Duration {
        if self.alone { self.nap_alone } else { self.nap }
    }

    /// Looks, and returns the thread that is to receive besides, if the receiver is stuck or will be looked
    /// after no more.
    pub fn look(&mut self, pool: &mut Pool) -> Option<Replacement> {
        let alone = pool.receiving() == 0;
        let moved = pool.progress().wrapping_sub(self.progress);
        let stuck = alone && self.alone && moved == 0;
        self.quiet = if moved >= self.rare.calls || alone { 0 } else { self.quiet + 1 };
        let replacement = match (self.is_over(), stuck) {
            (true, _) => pool.unguard(),
            (_, true) => pool.replace_receiver(),
            _ => None,
        };
        let starved = stuck && replacement.is_none();
        self.nap_alone = if starved { (self.nap_alone * 2).min(LONGEST_STARVED_NAP) } else { NAP };
        self.nap = (self.nap * 2).min(LONGEST_NAP);
        (self.progress, self.alone) = (pool.progress(), alone);
        replacement
    }
}
