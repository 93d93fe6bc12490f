//! The nodes that might begin, by priority, and the choice among them.

use std::collections::VecDeque;

use crate::model::NodeId;

/// The nodes that might begin. A node stays here until it is found blocked.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// A queue for each rank. The first rank has the greatest priority.
    queues: Vec<VecDeque<NodeId>>,
    /// All ranks before this one are empty.
    first: usize,
    /// For each node, whether it is in a queue.
    queued: Vec<bool>,
    /// The state of the generator of random choices; 0: the first of the queue is chosen.
    seed: u64,
}

/// Where a chosen node is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub node: NodeId,
    rank: usize,
    at: usize,
}

impl Ready {
    pub fn new(ranks: usize, nodes: usize, seed: u64) -> Ready {
        Ready { queues: vec![VecDeque::new(); ranks], first: 0, queued: vec![false; nodes], seed }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds a node behind the others of its rank, unless it is there.
    #[inline]
    pub fn add(&mut self, node: NodeId, rank: usize) {
        let queued = &mut self.queued[node.0 as usize];
        if *queued {
            return;
        }
        *queued = true;
        self.queues[rank].push_back(node);
        self.first = self.first.min(rank);
    }

    /// Chooses a node of the first rank that has any.
    #[inline]
    pub fn choose(&mut self) -> Option<Chosen> {
        while self.queues.get(self.first)?.is_empty() {
            self.first += 1;
        }
        let queue = &self.queues[self.first];
        let at = if self.seed == 0 { 0 } else { below(&mut self.seed, queue.len()) };
        Some(Chosen { node: queue[at], rank: self.first, at })
    }

    /// Removes a node that is blocked.
    #[inline]
    pub fn remove(&mut self, chosen: Chosen) {
        self.queued[chosen.node.0 as usize] = false;
        let queue = &mut self.queues[chosen.rank];
        if chosen.at == 0 {
            queue.pop_front()
        } else {
            queue.swap_remove_back(chosen.at)
        };
    }

    /// Puts a node that has begun behind the others, so that each gets its turn.
    #[inline]
    pub fn has_begun(&mut self, chosen: Chosen) {
        let queue = &mut self.queues[chosen.rank];
        if self.seed == 0 && queue.len() > 1 {
            queue.rotate_left(1);
        }
    }
}

/// Returns a number below `bound` by SplitMix64 (Steele, Lea & Flood 2014), of which a state of 0 is left
/// out.
fn below(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15).max(1);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(x ^ (x >> 31)) * bound as u128) >> 64) as usize
}
