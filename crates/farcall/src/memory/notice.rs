//! Notices: how an exporter hears that others wrote, if it wants to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::env::{Env, Event};

/// Somebody wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// Where, from this byte on.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Who: the address that the packet came from. Over UDP nobody proves that it is theirs.
    pub from: Option<SocketAddr>,
    /// How many writes it tells of: while nobody fetches them notices become fewer and tell of more.
    pub writes: u64,
}

/// Notices that wait to be fetched.
pub(super) struct Notices {
    waiting: Mutex<VecDeque<Notice>>,
    event: Arc<dyn Event>,
}

/// As many wait one by one; then each takes in the next.
const MOST: usize = 64;

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Notices").field(&self.lock()).finish()
    }
}

impl Notices {
    pub(super) fn new(env: &dyn Env) -> Notices {
        Notices { waiting: Mutex::default(), event: env.event() }
    }

    /// Somebody wrote there.
    pub(super) fn add(&self, offset: u64, len: u64, from: Option<SocketAddr>) {
        let notice = Notice { offset, len, from, writes: 1 };
        let mut waiting = self.lock();
        let full = waiting.len() >= MOST;
        if !waiting.back_mut().is_some_and(|last| last.takes_in(&notice, full)) {
            waiting.push_back(notice);
        }
        drop(waiting);
        self.event.set();
    }

    /// The oldest.
    pub(super) fn fetch(&self) -> Option<Notice> {
        self.lock().pop_front()
    }

    /// Blocks until there may be one, but no longer than `most`.
    pub(super) fn wait(&self, most: Option<Duration>) {
        self.event.wait(most);
    }

    /// Wakes who waits.
    pub(super) fn wake(&self) {
        self.event.set();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Notice>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notice {
    /// Becomes one with a notice of the same bytes, by the same writer; with any other one only if it must. Then it tells
    /// of all bytes from the first to the last, by nobody in particular unless it is the same.
    fn takes_in(&mut self, other: &Notice, must: bool) -> bool {
        let same = (self.offset, self.len, self.from) == (other.offset, other.len, other.from);
        if !same && !must {
            return false;
        }
        let end = (self.offset + self.len).max(other.offset + other.len);
        self.offset = self.offset.min(other.offset);
        self.len = end - self.offset;
        self.from = self.from.filter(|from| Some(*from) == other.from);
        self.writes += other.writes;
        true
    }
}
