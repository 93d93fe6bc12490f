//! The memory that one caller shares with the server, at the server's end, and the arguments and results that
//! are too long for the memory's slots. A slot is a small place for one call; long arguments and results pass
//! through rings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::large::Large;
use super::spin;
use crate::env::Env;
use crate::lock;

pub(super) struct Bulk {
    pub(super) env: Arc<dyn Env>,
    pub(super) memory: farcall_shm::Server,
    /// How long to poll for the next part of a long message before sleeping.
    pub(super) brisk: Duration,
    /// Arguments that arrive by rings, and results until they are fetched.
    large: Mutex<Large>,
    /// The number of results that `large` keeps.
    kept: AtomicUsize,
}

impl Bulk {
    pub(super) fn new(env: Arc<dyn Env>, memory: farcall_shm::Server, large: Large, brisk: Duration) -> Bulk {
        Bulk { env, memory, brisk, large: Mutex::new(large), kept: AtomicUsize::new(0) }
    }

    /// Polls `is_there` for about `most`, unless the caller needs this processor. Returns whether it became
    /// true.
    #[inline]
    pub(super) fn poll(&self, most: Duration, is_there: impl FnMut() -> bool) -> bool {
        spin(&*self.env, most, || self.memory.shares_processor(), is_there)
    }

    /// Returns whether any result waits to be fetched.
    #[inline]
    pub(super) fn keeps_replies(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }

    /// Keeps the rest of a result, from byte `from`, until the caller fetches it. Returns false if there is
    /// no room.
    #[cold]
    pub(super) fn keep_reply(&self, slot: usize, number: u64, reply: Vec<u8>, from: usize) -> bool {
        let mut large = self.large();
        let is_kept = large.keep_reply(slot, number, reply, from);
        self.kept.store(large.kept(), Ordering::Relaxed);
        is_kept
    }

    /// Forgets the kept result of a slot. If `number` is given, forgets only the result of the call with that
    /// number.
    #[cold]
    pub(super) fn forget_reply(&self, slot: usize, number: Option<u64>) {
        let mut large = self.large();
        large.forget(slot, number);
        self.kept.store(large.kept(), Ordering::Relaxed);
    }

    pub(super) fn large(&self) -> MutexGuard<'_, Large> {
        lock(&self.large)
    }
}
