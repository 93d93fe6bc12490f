//! The bound of all calls under way, and the share of it that calls of failing nodes have.

use std::collections::VecDeque;

use crate::model::NodeId;

/// The calls under way, and the nodes whose firings wait until there are fewer.
#[derive(Debug)]
pub struct Load {
    /// The most calls under way.
    pub bound: usize,
    /// How many calls are under way.
    pub calling: usize,
    /// How many of them are trials: calls of nodes whose last call failed.
    pub trials: usize,
    /// The nodes with firings that wait for calls to end, each once, in the order of their turns.
    pub turns: VecDeque<NodeId>,
}

impl Load {
    pub fn new(bound: usize) -> Load {
        Load { bound: bound.max(1), calling: 0, trials: 0, turns: VecDeque::new() }
    }

    /// Returns whether no more calls may be sent.
    pub fn is_full(&self) -> bool {
        self.calling >= self.bound
    }

    /// Returns whether a call may be sent, which is a trial or is not.
    pub fn has_room(&self, is_trial: bool) -> bool {
        !self.is_full() && (!is_trial || self.trials < self.bound.div_ceil(2))
    }
}
