//! How long a procedure usually takes, and so whether the thread that receives its calls may execute them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The usual running time of a procedure.
pub struct UsualTime {
    /// A moving average in nanoseconds, in which the latest run counts an eighth.
    average: AtomicU64,
    /// How often the procedure was timed, up to `TRIALS`.
    trials: AtomicU64,
    /// A procedure is quick if its average is below this, in nanoseconds.
    quick: u64,
}

/// The number of runs after which the running time of a procedure counts as known.
const TRIALS: u64 = 8;
/// A longer run counts as this many nanoseconds, so that one outlier is soon forgotten.
const OUTLIER: u64 = 1_000_000;

impl UsualTime {
    /// Of a procedure that is quick if it takes less than `quick`. It counts as quick only after some runs.
    pub fn new(quick: Duration) -> UsualTime {
        let [average, trials] = [(); 2].map(|()| AtomicU64::new(0));
        UsualTime { average, trials, quick: nanos(quick) }
    }

    /// Of a procedure that counts as quick until it was found to be slow.
    pub fn presumed_quick(quick: Duration) -> UsualTime {
        UsualTime { trials: AtomicU64::new(TRIALS), ..UsualTime::new(quick) }
    }

    #[inline]
    pub fn is_quick(&self) -> bool {
        self.trials.load(Ordering::Relaxed) >= TRIALS && self.average.load(Ordering::Relaxed) < self.quick
    }

    /// Whether the run that begins now, after that many, is to be timed. To read the clock costs as much as a
    /// quick procedure, so only some runs of quick procedures are.
    #[inline]
    pub fn is_timed(&self, runs: u64) -> bool {
        const ONE_IN: u64 = 16;
        runs.is_multiple_of(ONE_IN) || !self.is_quick()
    }

    /// Notes how long a run took.
    pub fn ran(&self, time: Duration) {
        let time = nanos(time).min(OUTLIER);
        let average = self.average.load(Ordering::Relaxed);
        // A thread may overwrite another thread's update; this is an estimate.
        self.average.store(average - average / 8 + time / 8, Ordering::Relaxed);
        let trials = self.trials.load(Ordering::Relaxed);
        if trials < TRIALS {
            self.trials.store(trials + 1, Ordering::Relaxed);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
