//! Looks at a worker pool for its watchdog: finds whether a lone receiver is stuck, which threads have
//! executed the same call for long, and whether the watchdog can sleep.
//!
//! (tests/workers.rs includes this file.)

use std::sync::Arc;
use std::time::Duration;

use super::pool::{Pool, Replacement, Worker};

/// The longest time between two looks while calls keep coming.
const LONGEST_NAP: Duration = Duration::from_micros(1600);
/// The longest time between two looks at a stuck receiver for which there is no replacement. When the
/// receiver is done, it receives again by itself, so the looks can be rare.
const LONGEST_STARVED_NAP: Duration = Duration::from_millis(50);

/// How a watchdog looks after a pool.
#[derive(Clone, Copy)]
pub struct Habit {
    /// The shortest time between two looks. It is also the time to the next look at a receiver that was seen
    /// executing.
    pub nap: Duration,
    /// The watchdog sleeps after `looks` looks in a row that each found fewer than `calls` executed calls.
    pub calls: u64,
    pub looks: u32,
    /// Whether each look also finds the threads that are in the same call as at the previous look.
    pub finds_long: bool,
}

/// What a watchdog remembers about a pool from one look to the next.
pub struct Watch {
    habit: Habit,
    /// The state at the last look; `None` while calls are rare, and no looks are needed.
    seen: Option<Seen>,
}

struct Seen {
    progress: u64,
    /// Whether a lone receiver was executing at the last look.
    alone: bool,
    /// How many looks in a row found few executed calls.
    quiet: u32,
    /// The time to the next look while no lone receiver executes.
    nap: Duration,
    /// The time to the next look while a lone receiver executes.
    nap_alone: Duration,
}

/// The result of a look.
#[derive(Default)]
pub struct Found {
    /// A further thread to receive, because the receiver is stuck or the watchdog is about to sleep.
    pub replacement: Option<Replacement>,
    /// The threads that have executed the same call since the last look.
    pub long: Vec<Arc<Worker>>,
}

impl Watch {
    pub fn new(habit: Habit) -> Watch {
        Watch { habit, seen: None }
    }

    /// Returns the time to the next look. Returns `None` until the watchdog is woken because the pool is to
    /// be guarded.
    pub fn nap(&self) -> Option<Duration> {
        self.seen.as_ref().map(|seen| if seen.alone { seen.nap_alone } else { seen.nap })
    }

    /// Looks at the pool.
    pub fn look(&mut self, pool: &mut Pool) -> Found {
        let habit = self.habit;
        if !pool.is_guarded() {
            self.seen = None;
            return Found::default();
        }
        let Some(seen) = &mut self.seen else {
            let (progress, nap) = (pool.progress(), habit.nap);
            self.seen = Some(Seen { progress, alone: true, quiet: 0, nap, nap_alone: nap });
            return Found::default();
        };
        let (long, began) = if habit.finds_long { pool.park_long() } else { (Vec::new(), false) };
        let alone = pool.receiving_to_execute() == 0;
        let moved = pool.progress().wrapping_sub(seen.progress);
        let stuck = alone && seen.alone && moved == 0;
        seen.quiet = if moved >= habit.calls || alone || began { 0 } else { seen.quiet + 1 };
        let is_over = seen.quiet >= habit.looks;
        let replacement = match (is_over, stuck) {
            (true, _) => pool.unguard(),
            (_, true) => pool.replace_stuck(),
            _ => None,
        };
        let starved = stuck && replacement.is_none();
        seen.nap_alone = if starved { (seen.nap_alone * 2).min(LONGEST_STARVED_NAP) } else { habit.nap };
        seen.nap = (seen.nap * 2).min(LONGEST_NAP);
        (seen.progress, seen.alone) = (pool.progress(), alone);
        self.seen.take_if(|_| is_over);
        Found { replacement, long }
    }
}
