//! Learns whether a thread that waits for many replies should poll for the next one before it sleeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long to poll for the next reply. Polling pays off because a server's thread spends a few microseconds
/// to wake a sleeping caller, and more while several threads share a processor.
pub(super) const LULL: Duration = Duration::from_micros(20);

/// If polling found fewer replies than this before it ended for lack of a further reply, it was not worth its
/// cost.
const MIN_REPLIES: usize = 4;

/// The most times in a row that polling is skipped.
const MAX_SKIPS: u32 = 255;

/// Decides when to poll. Usually one thread at a time updates this; updates by two threads at the same time
/// do no harm.
#[derive(Default)]
pub(super) struct Awake {
    /// The number of times that polling is still to be skipped.
    skips_left: AtomicU32,
    /// The number of times that polling was to be skipped after the last attempt.
    skips: AtomicU32,
}

impl Awake {
    /// Returns whether to poll now.
    pub(super) fn is_worth(&self) -> bool {
        let skips_left = self.skips_left.load(Ordering::Relaxed);
        self.skips_left.store(skips_left.saturating_sub(1), Ordering::Relaxed);
        skips_left == 0
    }

    /// Records that polling found this many replies. `in_vain` says that polling ended because no further
    /// reply came in time. Otherwise it ended because no further reply was needed.
    pub(super) fn learn(&self, replies: usize, in_vain: bool) {
        let skips = match in_vain && replies < MIN_REPLIES {
            true => (2 * self.skips.load(Ordering::Relaxed) + 1).min(MAX_SKIPS),
            false => 0,
        };
        self.skips.store(skips, Ordering::Relaxed);
        self.skips_left.store(skips, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_tried_ever_more_rarely_until_it_is_not() {
        let awake = Awake::default();
        let tries =
            |times: usize| (0..times).filter(|_| awake.is_worth()).inspect(|_| awake.learn(1, true)).count();
        assert_eq!(tries(100), 6);
        assert_eq!(tries(10_000), 40, "once in 256 times in the end");
        while !awake.is_worth() {}
        awake.learn(MIN_REPLIES, true);
        assert!(awake.is_worth() && awake.is_worth());
        awake.learn(1, true);
        awake.learn(1, false);
        assert!(awake.is_worth(), "all that were needed came");
    }
}
