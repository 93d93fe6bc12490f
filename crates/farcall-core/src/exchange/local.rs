//! Exchanges within this process: the two ends of a call share their bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use super::{Exchanges, Tail, Watchers};
use crate::env::{Env as _, Time};
use crate::{CallFailed, System, lock, serving};

/// How many bytes a direction holds that were not taken.
const WINDOW: usize = 12_000;

/// The most exchanges that one end may have open.
const MAX_OPEN: usize = 64;

/// One end of the exchanges of a call of this process.
pub(crate) struct LocalExchanges {
    shared: Arc<Shared>,
    /// The caller's end is 0, the server's 1.
    end: usize,
    /// When the waits of the caller's end are over, and with them the call's exchanges.
    deadline: Option<Time>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    exchanges: BTreeMap<u32, [Direction; 2]>,
    /// How many exchanges each end has opened.
    opened: [u32; 2],
    /// Exchanges that each end has not heard of yet.
    unheard: [VecDeque<u32>; 2],
    /// Counts, for each end, what the other end has changed.
    epochs: [u64; 2],
    /// What each end is to wake when the other has changed something.
    watchers: [Watchers; 2],
    /// The call has ended or was given up.
    over: bool,
}

/// What the end of this index sends.
#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    ended: bool,
    stopped: bool,
    begun: bool,
}

/// Returns the two ends of a call's exchanges: the caller's and the server's. The call has this deadline.
pub(crate) fn pair(deadline: Option<Time>) -> (LocalExchanges, LocalExchanges) {
    let shared = Arc::new(Shared::default());
    let caller = LocalExchanges { shared: shared.clone(), end: 0, deadline };
    (caller, LocalExchanges { shared, end: 1, deadline: None })
}

impl LocalExchanges {
    /// Notes that the call has ended or was given up.
    pub(crate) fn end_all(&self) {
        let mut state = lock(&self.shared.state);
        state.over = true;
        state.epochs[self.end] += 1;
        let own = state.watchers[self.end].take();
        self.tell(state);
        own.wake();
    }

    /// Returns whether the call's deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= System.now())
    }

    /// Returns the call's deadline, at the caller's end.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Wakes the threads of the other end that wait.
    fn tell(&self, mut state: MutexGuard<'_, State>) {
        state.epochs[1 - self.end] += 1;
        let watchers = state.watchers[1 - self.end].take();
        drop(state);
        self.shared.changed.notify_all();
        watchers.wake();
    }
}

impl Exchanges for LocalExchanges {
    fn open(&self) -> Option<u32> {
        let mut state = lock(&self.shared.state);
        let ours = |number: &&u32| **number % 2 != self.end as u32;
        if state.over || state.exchanges.keys().filter(ours).count() >= MAX_OPEN {
            return None;
        }
        let number = 1 + self.end as u32 + 2 * state.opened[self.end];
        state.opened[self.end] += 1;
        state.exchanges.insert(number, Default::default());
        Some(number)
    }

    fn send(&self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        let mut state = lock(&self.shared.state);
        if state.over {
            return None;
        }
        let direction = &mut state.exchanges.get_mut(&exchange)?[self.end];
        if direction.stopped || direction.ended {
            return None;
        }
        let sent = bytes.len().min(WINDOW.saturating_sub(direction.bytes.len())) & !3;
        direction.bytes.extend(&bytes[..sent]);
        direction.ended = sent == bytes.len() && tail != Tail::More;
        let opens = exchange % 2 != self.end as u32 && !std::mem::replace(&mut direction.begun, true);
        if opens {
            state.unheard[1 - self.end].push_back(exchange);
        }
        self.tell(state);
        Some(sent)
    }

    fn take(&self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        let mut state = lock(&self.shared.state);
        let over = state.over;
        let directions = state.exchanges.get_mut(&exchange)?;
        let theirs = &mut directions[1 - self.end];
        // What was sent before the end of the call can be taken after it.
        if over && theirs.bytes.is_empty() && !theirs.ended {
            return None;
        }
        let len = theirs.bytes.len().min(most);
        take_front(&mut theirs.bytes, len, into);
        let all = theirs.ended && theirs.bytes.is_empty();
        if all && directions[self.end].ended {
            state.exchanges.remove(&exchange);
        }
        if len > 0 {
            self.tell(state);
        }
        Some(all)
    }

    fn stop(&self, exchange: u32) {
        let mut state = lock(&self.shared.state);
        let Some(directions) = state.exchanges.get_mut(&exchange) else { return };
        let theirs = &mut directions[1 - self.end];
        (theirs.stopped, theirs.bytes) = (true, VecDeque::new());
        self.tell(state);
    }

    fn has_arrived(&self, exchange: u32) -> Option<bool> {
        let state = lock(&self.shared.state);
        let direction = &state.exchanges.get(&exchange)?[self.end];
        (!state.over && !direction.stopped).then_some(direction.bytes.is_empty())
    }

    fn give_up(&self) {
        self.end_all();
    }

    fn next_opened(&self) -> Option<u32> {
        lock(&self.shared.state).unheard[self.end].pop_front()
    }

    fn epoch(&self) -> u64 {
        lock(&self.shared.state).epochs[self.end]
    }

    fn wait(&self, epoch: u64) -> Result<(), CallFailed> {
        let _waiting = serving::try_wait_guard()?;
        let mut state = lock(&self.shared.state);
        while state.epochs[self.end] == epoch {
            let Some(deadline) = self.deadline else {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.since(System.now());
            if left.is_zero() {
                drop(state);
                self.end_all();
                return Ok(());
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn watch(&self, exchange: u32, epoch: u64, waker: &Waker) {
        let waker = waker.clone();
        let mut state = lock(&self.shared.state);
        if state.epochs[self.end] != epoch {
            drop(state);
            return waker.wake();
        }
        let former = state.watchers[self.end].set(exchange, waker);
        drop(state);
        drop(former);
    }

    fn nudge(&self) -> Waker {
        Waker::from(Arc::new(Nudge { shared: self.shared.clone(), end: self.end }))
    }
}

/// Moves the first `len` bytes to the end of `into`, by two copies of memory. (Draining them one by one took
/// a fifth of the time of a bulk transfer.)
fn take_front(from: &mut VecDeque<u8>, len: usize, into: &mut Vec<u8>) {
    let (first, second) = from.as_slices();
    let split = len.min(first.len());
    into.extend_from_slice(&first[..split]);
    into.extend_from_slice(&second[..len - split]);
    from.drain(..len);
}

/// Ends the waits at one end.
struct Nudge {
    shared: Arc<Shared>,
    end: usize,
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.shared.state);
        state.epochs[self.end] += 1;
        let watchers = state.watchers[self.end].take();
        drop(state);
        self.shared.changed.notify_all();
        watchers.wake();
    }
}
