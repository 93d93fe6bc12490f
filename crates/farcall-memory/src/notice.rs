//! Notices tell the exporter of a segment about importers' writes, if the exporter asked for them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::runtime::Accessor;
use farcall_core::env::{Env, Event};
use farcall_core::{guard, lock};

/// A notice of one or more writes of importers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The offset of the first byte that was written.
    pub offset: u64,
    /// How many bytes were written.
    pub len: u64,
    /// The source address of the packet. Over UDP a sender does not prove that the address is its own.
    pub from: Option<SocketAddr>,
    /// How many writes this notice covers. Several notices that wait to be fetched may be merged into one.
    pub writes: u64,
}

/// Notices that wait to be fetched.
pub(crate) struct Notices {
    state: Mutex<State>,
    event: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Notice>,
    /// Tasks that wait for a notice.
    wakers: Vec<Waker>,
    /// Whether there will be no more notices.
    ended: bool,
}

/// The most notices that wait. A further notice is merged into the newest of them.
const MAX_WAITING: usize = 64;

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Notices").field(&lock(&self.state).waiting).finish()
    }
}

impl Notices {
    pub(super) fn new(env: &dyn Env) -> Notices {
        Notices { state: Mutex::default(), event: env.event() }
    }

    /// Adds a notice of an importer's write, and wakes a waiting thread. Moves the wakers of waiting tasks to
    /// `by`, so that the tasks are woken when no lock is held.
    pub(super) fn add(&self, offset: u64, len: u64, by: &mut Accessor) {
        let notice = Notice { offset, len, from: by.from, writes: 1 };
        let mut state = lock(&self.state);
        let full = state.waiting.len() >= MAX_WAITING;
        if !state.waiting.back_mut().is_some_and(|last| last.merge(&notice, full)) {
            state.waiting.push_back(notice);
        }
        by.woken.append(&mut state.wakers);
        drop(state);
        self.event.set();
    }

    /// Ends all waiting, because there will be no more notices.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.event.set();
        wakers.into_iter().for_each(|waker| guard::run_alone("a waker", || waker.wake()));
    }

    /// Returns the oldest notice, if there is one.
    pub(crate) fn fetch(&self) -> Option<Notice> {
        self.fetch_from(&mut lock(&self.state))
    }

    /// Blocks until there is a notice. Returns `None` if there will be no more notices.
    pub(super) fn wait(&self) -> Option<Notice> {
        loop {
            let mut state = lock(&self.state);
            if let Some(notice) = self.fetch_from(&mut state) {
                return Some(notice);
            }
            if state.ended {
                // The event wakes one thread, so each thread that was woken wakes the next.
                self.event.set();
                return None;
            }
            drop(state);
            self.event.wait(None);
        }
    }

    /// Waits for a notice, for at most `timeout`, or until [`Notices::wake`].
    pub(super) fn wait_within(&self, timeout: Option<Duration>) -> Option<Notice> {
        self.fetch().or_else(|| {
            self.event.wait(timeout);
            self.fetch()
        })
    }

    /// Wakes a thread that waits.
    pub(super) fn wake(&self) {
        self.event.set();
    }

    /// Returns the oldest notice. If there is none, the task will be woken when there may be one.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Notice> {
        let mut state = lock(&self.state);
        if let Some(notice) = self.fetch_from(&mut state) {
            return Poll::Ready(notice);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn fetch_from(&self, state: &mut State) -> Option<Notice> {
        let notice = state.waiting.pop_front()?;
        if !state.waiting.is_empty() {
            // Two notices in quick succession may have woken only one thread, so this thread wakes the next.
            self.event.set();
        }
        Some(notice)
    }
}

impl Notice {
    /// Merges a notice of the same bytes and the same writer into this one, and any other notice only if
    /// `must`. The merged notice covers all bytes from the first to the last. It names the writer if both
    /// notices name the same one. Returns whether the notice was merged.
    fn merge(&mut self, other: &Notice, must: bool) -> bool {
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
