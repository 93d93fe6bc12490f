//! Whether it is worth to wait awake for replies that come one after the other: who waits for many learns it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// So long one looks for the next reply. To wake a sleeper costs the one who replies a few microseconds, and
/// costs all the more while many that share a processor wait for that.
pub(super) const LULL: Duration = Duration::from_micros(20);

/// A look-out that fewer replies came in, and that ended in vain, took more than it saved.
const WORTH: usize = 4;

/// So many times at most it is not tried after one that was in vain.
const MOST: u32 = 255;

/// What was learnt. One thread at a time learns; that two may is no harm.
#[derive(Default)]
pub(super) struct Awake {
    /// So many times more it is not tried, and was not the last time.
    left_out: AtomicU32,
    leave_out: AtomicU32,
}

impl Awake {
    /// Whether to look out now.
    pub(super) fn is_worth(&self) -> bool {
        let left_out = self.left_out.load(Ordering::Relaxed);
        self.left_out.store(left_out.saturating_sub(1), Ordering::Relaxed);
        left_out == 0
    }

    /// So many replies came, and then none for too long, or there was no need to look on.
    pub(super) fn learn(&self, replies: usize, in_vain: bool) {
        let leave_out = match in_vain && replies < WORTH {
            true => (2 * self.leave_out.load(Ordering::Relaxed) + 1).min(MOST),
            false => 0,
        };
        self.leave_out.store(leave_out, Ordering::Relaxed);
        self.left_out.store(leave_out, Ordering::Relaxed);
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
        awake.learn(WORTH, true);
        assert!(awake.is_worth() && awake.is_worth());
        awake.learn(1, true);
        awake.learn(1, false);
        assert!(awake.is_worth(), "all that were needed came");
    }
}
