//! What the caller of a started call is to learn about the call's exchanges (signals and streams), and the
//! threads that wait for news.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farcall_proto::News;

use crate::lock;
use crate::wait::Parker;

/// What the caller of a started call is to learn about the call's exchanges.
#[derive(Default)]
pub(super) struct CallNews {
    /// How often something has changed.
    epoch: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Exchanges that the server has opened, which the caller has not asked for yet.
    opened: VecDeque<u32>,
    /// The highest number of an exchange that the server has opened.
    highest: u32,
    /// Threads that wait for something to change.
    waiters: Vec<Arc<dyn Parker>>,
    /// Whether the call was detached, so that no caller answers signals.
    declines: bool,
}

impl CallNews {
    /// Notes news about an exchange. Returns the threads to wake.
    pub(super) fn note(&self, exchange: u32, news: News) -> Vec<Arc<dyn Parker>> {
        let mut state = lock(&self.state);
        if news == News::Came && exchange.is_multiple_of(2) && exchange > state.highest {
            // Exchanges are opened in order, so the exchanges in between are open too.
            let first = state.highest + 2;
            state.opened.extend((first..=exchange).step_by(2));
            state.highest = exchange;
        }
        self.epoch.fetch_add(1, Ordering::Release);
        std::mem::take(&mut state.waiters)
    }

    /// Notes that no caller answers signals any more. Returns the exchanges to decline.
    pub(super) fn decline(&self) -> VecDeque<u32> {
        let mut state = lock(&self.state);
        state.declines = true;
        std::mem::take(&mut state.opened)
    }

    /// Returns whether no caller answers signals.
    pub(super) fn declines(&self) -> bool {
        lock(&self.state).declines
    }

    /// Notes a change that concerns no exchange: the call has ended, or the thread that waits for it has
    /// something else to do. Returns the threads to wake.
    pub(super) fn change(&self) -> Vec<Arc<dyn Parker>> {
        self.epoch.fetch_add(1, Ordering::Release);
        std::mem::take(&mut lock(&self.state).waiters)
    }

    /// Returns how often something has changed.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns an exchange that the server has opened and that this method has not returned before.
    pub(super) fn next_opened(&self) -> Option<u32> {
        lock(&self.state).opened.pop_front()
    }

    /// Registers a thread to be woken by the next change.
    pub(super) fn wait(&self, waiter: Arc<dyn Parker>) {
        lock(&self.state).waiters.push(waiter);
    }

    /// Forgets a thread that waits no longer.
    pub(super) fn wait_no_more(&self, waiter: &Arc<dyn Parker>) {
        lock(&self.state).waiters.retain(|other| !Arc::ptr_eq(other, waiter));
    }
}
