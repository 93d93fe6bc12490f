//! Notices tell the exporter of a segment about importers' accesses, if the exporter asked for them.

use std::collections::VecDeque;
#[cfg(unix)]
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(unix)]
use std::sync::OnceLock;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::runtime::Accessor;
#[cfg(unix)]
use farcall_core::env::{Alarm, Source};
use farcall_core::env::{Env, Event};
use farcall_core::sys::fork;
use farcall_core::{guard, lock};

/// A notice of one or more accesses of importers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The offset of the first byte that was written or read.
    pub offset: u64,
    /// How many bytes were written or read.
    pub len: u64,
    /// The source address of the packet. Over UDP a sender does not prove that the address is its own.
    pub from: Option<SocketAddr>,
    /// How many writes this notice covers, counting swaps that found their old word. Several notices that
    /// wait to be fetched may be merged into one.
    pub writes: u64,
    /// How many reads this notice covers, counting swaps that found another word. Only an exporter that asks
    /// for it is notified of reads ([`Notify::Always`](crate::Notify::Always)).
    pub reads: u64,
}

/// What an importer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It wrote, or swapped a word.
    Write,
    /// It read, or found another word than the one that it wanted to swap.
    Read,
}

/// Notices that wait to be fetched. Public for the benchmark.
pub struct Notices {
    /// The fork generation of the process that made this. A forked child has a copy of the notices, but the
    /// same descriptor: it takes no notice and leaves the descriptor alone.
    process: u64,
    state: Mutex<State>,
    event: Arc<dyn Event>,
    /// Set exactly while a notice waits, once the exporter has asked for a descriptor. It is set and cleared
    /// while `state` is locked.
    #[cfg(unix)]
    alarm: OnceLock<Arc<dyn Alarm>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Notice>,
    /// How many threads wait for a notice. If there are none, the event is not set.
    threads: usize,
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
    /// Returns no notices.
    pub fn new(env: &dyn Env) -> Notices {
        Notices {
            process: fork::generation(),
            state: Mutex::default(),
            event: env.event(),
            #[cfg(unix)]
            alarm: OnceLock::new(),
        }
    }

    /// Returns the descriptor that is readable exactly while a notice waits. `make` makes the alarm when the
    /// descriptor is first asked for.
    ///
    /// # Errors
    /// Those of `make`, and [`io::ErrorKind::Unsupported`] if the alarm belongs to a simulation.
    #[cfg(unix)]
    pub fn descriptor(
        &self,
        make: impl FnOnce() -> io::Result<Arc<dyn Alarm>>,
    ) -> io::Result<BorrowedFd<'_>> {
        let simulated = || io::Error::new(io::ErrorKind::Unsupported, "a simulation has no descriptors");
        if self.alarm.get().is_none() {
            let state = lock(&self.state);
            // Another thread may have made the alarm meanwhile.
            if self.alarm.get().is_none() {
                let alarm = make()?;
                if let Source::Simulated(_) = alarm.source() {
                    return Err(simulated());
                }
                if !state.waiting.is_empty() {
                    alarm.raise();
                }
                let _ = self.alarm.set(alarm);
            }
        }
        self.opened_descriptor().ok_or_else(simulated)
    }

    /// Returns the descriptor, if the exporter has asked for it before.
    #[cfg(unix)]
    pub(super) fn opened_descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self.alarm.get()?.source() {
            Source::Descriptor(descriptor) => Some(descriptor),
            Source::Simulated(_) => None,
        }
    }

    /// Adds a notice of an importer's access, and wakes a waiting thread. Moves the wakers of waiting tasks
    /// to `by`, so that the tasks are woken when no lock is held.
    pub fn add(&self, kind: Kind, offset: u64, len: u64, by: &mut Accessor) {
        let (writes, reads) = (u64::from(kind == Kind::Write), u64::from(kind == Kind::Read));
        let notice = Notice { offset, len, from: by.from, writes, reads };
        let mut state = lock(&self.state);
        let full = state.waiting.len() >= MAX_WAITING;
        if !state.waiting.back_mut().is_some_and(|last| last.merge(&notice, full)) {
            state.waiting.push_back(notice);
            if state.waiting.len() == 1 {
                self.set_alarm();
            }
        }
        if !state.wakers.is_empty() {
            by.woken.append(&mut state.wakers);
        }
        if state.threads > 0 {
            drop(state);
            self.event.set();
        }
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
    pub fn fetch(&self) -> Option<Notice> {
        self.fetch_from(&mut lock(&self.state))
    }

    /// Blocks until there is a notice. Returns `None` if there will be no more notices.
    pub(super) fn wait(&self) -> Option<Notice> {
        let mut state = lock(&self.state);
        loop {
            if let Some(notice) = self.fetch_from(&mut state) {
                return Some(notice);
            }
            if state.ended {
                // The event wakes one thread, so each thread that was woken wakes the next.
                self.event.set();
                return None;
            }
            state = self.sleep(state, None);
        }
    }

    /// Waits for a notice, for at most `timeout`, or until [`Notices::wake`].
    pub(super) fn wait_within(&self, timeout: Option<Duration>) -> Option<Notice> {
        let mut state = lock(&self.state);
        self.fetch_from(&mut state).or_else(|| self.fetch_from(&mut self.sleep(state, timeout)))
    }

    /// Unlocks the state, waits until another thread sets the event, and locks the state again.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        most: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.threads += 1;
        drop(state);
        self.event.wait(most);
        let mut state = lock(&self.state);
        state.threads -= 1;
        state
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
        if self.process != fork::generation() {
            return None;
        }
        let notice = state.waiting.pop_front()?;
        if state.waiting.is_empty() {
            self.clear_alarm();
        } else if state.threads > 0 {
            // Two notices in quick succession may have woken only one thread, so this thread wakes the next.
            self.event.set();
        }
        Some(notice)
    }

    /// Makes the descriptor readable, if there is one.
    #[inline]
    fn set_alarm(&self) {
        #[cfg(unix)]
        if let Some(alarm) = self.alarm.get() {
            alarm.raise();
        }
    }

    /// Makes the descriptor unreadable, if there is one.
    #[inline]
    fn clear_alarm(&self) {
        #[cfg(unix)]
        if let Some(alarm) = self.alarm.get() {
            alarm.lower();
        }
    }
}

impl Notice {
    /// Merges a notice of the same bytes and the same importer into this one, and any other notice only if
    /// `must`. The merged notice covers all bytes from the first to the last. It names the importer if both
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
        self.reads += other.reads;
        true
    }
}
