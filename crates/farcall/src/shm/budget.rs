//! A budget of connections, bytes or threads that this process spends on peer processes. Each peer process
//! has a share of the budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::workers::Quota;

/// A budget of connections, bytes or threads.
///
/// Each process has a least share. Beyond that, all processes share a pool. A process can take from the pool
/// as much as it leaves in it: half of the pool if it is alone, a quarter if another process has half
/// (Choudhury & Hahne 1998, "Dynamic queue length thresholds", with a factor of 1). All processes that use
/// this belong to one user, so there are no shares of users.
#[derive(Debug)]
pub(super) struct Budget {
    pool: usize,
    least: usize,
    /// The greatest amount that can be taken from the pool and the least shares together.
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// The part of `all` that was taken from the pool, beyond the least shares.
    pooled: usize,
    by: HashMap<i32, usize>,
}

/// The amounts as they would be after a process has taken more.
struct After {
    all: usize,
    pooled: usize,
    own: usize,
}

impl Taken {
    fn put(&mut self, process: i32, After { all, pooled, own }: After) {
        (self.all, self.pooled) = (all, pooled);
        self.by.insert(process, own);
    }
}

/// The share of one process in a budget.
#[derive(Clone, Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    process: i32,
}

impl Budget {
    pub(super) fn new(pool: usize, least: usize, most: usize) -> Arc<Budget> {
        Arc::new(Budget { pool, least, most, taken: Mutex::default() })
    }

    pub(super) fn share(self: &Arc<Self>, process: i32) -> Share {
        Share { budget: self.clone(), process }
    }
}

/// The bytes that one connection holds. They are taken from the budget in steps.
#[derive(Debug)]
pub(super) struct Held {
    share: Share,
    bytes: usize,
    /// The bytes taken from the budget: as many as are held, rounded up to a step.
    taken: usize,
}

/// The size of a step in bytes.
const STEP_BYTES: usize = 512 << 10;

impl Held {
    pub(super) fn new(share: Share) -> Held {
        Held { share, bytes: 0, taken: 0 }
    }

    /// Holds `more` bytes in addition. Returns false, and holds no more, if the budget does not have them.
    pub(super) fn add(&mut self, more: usize) -> bool {
        let bytes = self.bytes.saturating_add(more);
        if bytes > self.taken {
            let lacking = bytes.checked_next_multiple_of(STEP_BYTES).unwrap_or(usize::MAX) - self.taken;
            if !self.share.take(lacking) {
                return false;
            }
            self.taken += lacking;
        }
        self.bytes = bytes;
        true
    }

    /// Holds `less` bytes fewer.
    pub(super) fn remove(&mut self, less: usize) {
        self.bytes = self.bytes.saturating_sub(less);
        let enough = self.bytes.max(1).next_multiple_of(STEP_BYTES);
        if self.taken > enough {
            self.share.give(self.taken - enough);
            self.taken = enough;
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.share.give(self.taken);
    }
}

impl Share {
    /// Returns the process whose share this is.
    pub(super) fn process(&self) -> i32 {
        self.process
    }

    /// Takes `more` from the budget. Returns false, and takes nothing, if the share does not allow it.
    pub(super) fn take(&self, more: usize) -> bool {
        let mut taken = lock(&self.budget.taken);
        let (after, may) = self.with(&taken, more);
        if may {
            taken.put(self.process, after);
        }
        may
    }

    /// Returns the amounts as they would be with `more` taken, and whether the share allows them.
    fn with(&self, taken: &Taken, more: usize) -> (After, bool) {
        let budget = &*self.budget;
        let before = taken.by.get(&self.process).copied().unwrap_or(0);
        let (all, own) = (taken.all.saturating_add(more), before.saturating_add(more));
        let (drawn, draws) = (before.saturating_sub(budget.least), own.saturating_sub(budget.least));
        let pooled = (taken.pooled - drawn).saturating_add(draws);
        let may = all <= budget.most && (draws == 0 || pooled.saturating_add(draws) <= budget.pool);
        (After { all, pooled, own }, may)
    }

    /// Gives `less` back to the budget.
    pub(super) fn give(&self, less: usize) {
        let (budget, mut taken) = (&*self.budget, lock(&self.budget.taken));
        let Some(before) = taken.by.remove(&self.process) else { return };
        let less = less.min(before);
        let after = before - less;
        taken.all -= less;
        taken.pooled -= before.saturating_sub(budget.least) - after.saturating_sub(budget.least);
        if after > 0 {
            taken.by.insert(self.process, after);
        }
    }
}

/// A share of threads, which are taken one by one.
impl Quota for Share {
    fn take(&self) -> bool {
        self.take(1)
    }

    fn overdraw(&self) {
        let mut taken = lock(&self.budget.taken);
        let (after, _) = self.with(&taken, 1);
        taken.put(self.process, after);
    }

    fn give_back(&self) {
        self.give(1);
    }

    fn is_taken(&self) -> bool {
        !self.with(&lock(&self.budget.taken), 1).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that a process can get, one by one, and returns how many.
    fn all(share: &Share) -> usize {
        (0..).take_while(|_| share.take(1)).count()
    }

    #[test]
    fn whoever_takes_all_that_it_gets_leaves_as_much_to_others() {
        let budget = Budget::new(64, 4, 128);
        let (first, second, third) = (budget.share(1), budget.share(2), budget.share(3));
        assert_eq!(all(&first), 4 + 32);
        assert_eq!(all(&second), 4 + 16);
        assert_eq!(all(&third), 4 + 8);
        first.give(36);
        assert_eq!(all(&first), 4 + 20);
        for share in [first, second, third] {
            share.give(usize::MAX);
        }
        let taken = lock(&budget.taken);
        assert_eq!((taken.all, taken.pooled, taken.by.len()), (0, 0, 0));
    }

    #[test]
    fn what_is_overdrawn_is_given_back() {
        let budget = Budget::new(8, 2, 8);
        let share = budget.share(1);
        assert_eq!(all(&share), 2 + 4);
        assert!(share.is_taken());
        share.overdraw();
        share.give_back();
        assert!(share.is_taken() && !share.take(1));
        (0..6).for_each(|_| share.give_back());
        let taken = lock(&budget.taken);
        assert_eq!((taken.all, taken.pooled, taken.by.len()), (0, 0, 0));
    }

    #[test]
    fn each_process_has_its_least_share_until_there_is_no_more_at_all() {
        let budget = Budget::new(64, 4, 128);
        while all(&budget.share(1)) + all(&budget.share(2)) > 0 {}
        let gets: Vec<usize> = (3..30).map(|process| all(&budget.share(process))).collect();
        assert!(gets[..12].iter().all(|gets| *gets >= 4), "{gets:?}");
        assert!(lock(&budget.taken).all <= 128);
    }
}
