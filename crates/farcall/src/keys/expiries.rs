//! Finds out when grants expire, without looking at every conversation each time.

use std::sync::atomic::{AtomicU64, Ordering};

/// When the grants expire by which conversations are open, in Unix seconds.
pub(super) struct Expiries {
    /// When the next one expires, or earlier.
    next: AtomicU64,
    /// The time when expired grants were last looked for.
    looked: AtomicU64,
}

impl Expiries {
    pub(super) fn new() -> Expiries {
        Expiries { next: AtomicU64::new(u64::MAX), looked: AtomicU64::new(0) }
    }

    /// Notes when a grant expires by which a conversation is open.
    pub(super) fn expect(&self, next: u64) {
        self.next.fetch_min(next, Ordering::Relaxed);
    }

    /// Returns whether such a grant may have expired. If so, forgets when grants expire: the caller looks at
    /// all conversations, and each tells again by [`Expiries::expect`]. A conversation that begins meanwhile
    /// tells under the lock under which it begins, so the caller either looks at it, or it tells later than
    /// this.
    pub(super) fn are_due(&self, now: u64) -> bool {
        self.looked.store(now, Ordering::Relaxed);
        let are_due = now >= self.next.load(Ordering::Relaxed);
        if are_due {
            self.next.store(u64::MAX, Ordering::Relaxed);
        }
        are_due
    }

    /// Returns the time when expired grants were last looked for.
    #[inline]
    pub(super) fn looked(&self) -> u64 {
        self.looked.load(Ordering::Relaxed)
    }
}
