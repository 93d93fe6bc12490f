//! The usual running time of a procedure. If that time is short, the thread that receives the procedure's
//! calls executes them itself, and no other thread receives meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The usual running time of a procedure.
pub struct UsualTime {
    /// A moving average in nanoseconds. The latest run counts an eighth.
    average: AtomicU64,
    /// How many runs were timed, up to `RUNS_UNTIL_KNOWN`.
    runs_timed: AtomicU64,
    /// A procedure is quick if its average is below this, in nanoseconds.
    quick: u64,
}

/// The number of timed runs after which the running time of a procedure counts as known.
const RUNS_UNTIL_KNOWN: u64 = 8;
/// A run that takes longer counts as this many nanoseconds (1 ms), so that one exceptionally long run is soon
/// forgotten.
const MAX_COUNTED_NANOS: u64 = 1_000_000;

impl UsualTime {
    /// Makes an estimate for a procedure that is quick if it takes less than `quick`. The procedure counts as
    /// slow until `RUNS_UNTIL_KNOWN` runs were timed.
    pub fn new(quick: Duration) -> UsualTime {
        let [average, runs_timed] = [(); 2].map(|()| AtomicU64::new(0));
        UsualTime { average, runs_timed, quick: nanos(quick) }
    }

    /// Makes an estimate for a procedure that counts as quick until its average is found to be `quick` or
    /// longer.
    pub fn presumed_quick(quick: Duration) -> UsualTime {
        UsualTime { runs_timed: AtomicU64::new(RUNS_UNTIL_KNOWN), ..UsualTime::new(quick) }
    }

    /// Returns whether the procedure is known to be quick.
    #[inline]
    pub fn is_quick(&self) -> bool {
        self.runs_timed.load(Ordering::Relaxed) >= RUNS_UNTIL_KNOWN
            && self.average.load(Ordering::Relaxed) < self.quick
    }

    /// Returns whether the run that begins now is to be timed, after `runs` earlier runs. Reading the clock
    /// costs as much as a quick procedure, so only one in `TIMED_ONE_IN` runs of quick procedures is timed.
    #[inline]
    pub fn is_timed(&self, runs: u64) -> bool {
        const TIMED_ONE_IN: u64 = 16;
        runs.is_multiple_of(TIMED_ONE_IN) || !self.is_quick()
    }

    /// Adds the duration of a timed run to the average.
    pub fn ran(&self, time: Duration) {
        let time = nanos(time).min(MAX_COUNTED_NANOS);
        let average = self.average.load(Ordering::Relaxed);
        // A thread may overwrite another thread's update. That does no harm, because this is an estimate.
        self.average.store(average - average / 8 + time / 8, Ordering::Relaxed);
        let runs_timed = self.runs_timed.load(Ordering::Relaxed);
        if runs_timed < RUNS_UNTIL_KNOWN {
            self.runs_timed.store(runs_timed + 1, Ordering::Relaxed);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
