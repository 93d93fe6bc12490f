//! Counts the bytes of the arguments that a conversation's unfinished calls keep.

use std::sync::Arc;

use farcall_base::{ArgumentBudget, MAX_UNCOUNTED_ARGUMENT_BYTES, SharedArguments};

/// The bytes of the arguments of calls that have not ended. Short arguments are not counted.
pub(super) struct KeptArguments {
    /// Those of all these calls.
    pub bytes: usize,
    /// Those that are not shared, which this conversation has counted in the budget.
    own: usize,
    budget: Arc<ArgumentBudget>,
}

const _: () = assert!(MAX_UNCOUNTED_ARGUMENT_BYTES >= crate::BASE_DATAGRAM, "the fast path counts nothing");

impl KeptArguments {
    pub fn new(budget: &Arc<ArgumentBudget>) -> KeptArguments {
        KeptArguments { bytes: 0, own: 0, budget: budget.clone() }
    }

    /// Returns whether the budget has room for long arguments of this length.
    pub fn admits(&self, len: usize, shared: Option<&SharedArguments>) -> bool {
        self.budget.admits(self.bytes, len, shared)
    }

    #[cold]
    pub fn add(&mut self, len: usize, shared: Option<&SharedArguments>) {
        self.bytes += len;
        match shared {
            Some(shared) => shared.count_in(&self.budget),
            None => {
                self.own += len;
                self.budget.take(len);
            }
        }
    }

    #[cold]
    pub fn remove(&mut self, len: usize, is_shared: bool) {
        self.bytes -= len;
        if !is_shared {
            self.own -= len;
            self.budget.give_back(len);
        }
    }
}

impl Drop for KeptArguments {
    fn drop(&mut self) {
        self.budget.give_back(self.own);
    }
}
