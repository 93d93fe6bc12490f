//! One caller's memory at the serving end, and what its slots cannot hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall_shm::BulkProducer;

use super::large::Large;
use crate::env::Env;

pub(super) struct Bulk {
    pub(super) env: Arc<dyn Env>,
    pub(super) memory: farcall_shm::Server,
    /// How long to look for more without sleeping while something large is on its way.
    pub(super) brisk: Duration,
    /// Arguments that come by rings, results that go in parts.
    large: Mutex<Large>,
    /// How many results are kept there.
    kept: AtomicUsize,
}

impl Bulk {
    pub(super) fn new(env: Arc<dyn Env>, memory: farcall_shm::Server, large: Large, brisk: Duration) -> Bulk {
        Bulk { env, memory, brisk, large: Mutex::new(large), kept: AtomicUsize::new(0) }
    }

    /// A ring for a result, if one is idle.
    pub(super) fn idle_lane(&self) -> Option<BulkProducer> {
        self.large().idle_lane()
    }

    pub(super) fn give_lane_back(&self, producer: BulkProducer) {
        self.large().give_lane_back(producer);
    }

    /// Whether any result waits to be fetched.
    #[inline]
    pub(super) fn keeps_replies(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }

    /// Keeps what is left of a result until it is fetched. False: there is no room.
    #[cold]
    pub(super) fn keep_reply(&self, slot: usize, number: u64, reply: Vec<u8>, from: usize) -> bool {
        let mut large = self.large();
        let is_kept = large.keep_reply(slot, number, reply, from);
        self.kept.store(large.kept(), Ordering::Relaxed);
        is_kept
    }

    /// Forgets what is kept of a slot's result: that of this number alone, or any.
    #[cold]
    pub(super) fn forget_reply(&self, slot: usize, number: Option<u64>) {
        let mut large = self.large();
        large.forget(slot, number);
        self.kept.store(large.kept(), Ordering::Relaxed);
    }

    pub(super) fn large(&self) -> MutexGuard<'_, Large> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
