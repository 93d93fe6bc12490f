//! Keeps the outcome of a started call, made through shared memory, for its caller. The server puts the
//! outcome into the call's slot, a place in the shared memory. Exactly one thread takes the outcome out of
//! the slot. This is the caller's thread, when it polls or waits, or the service thread, which keeps the
//! outcome here.
//!
//! `tests/awaited.rs` includes this file, and gives it loom's types through `super::sync`.

use std::sync::PoisonError;
use std::task::Waker;

use farcall_proto::Time;

use super::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// The state of a started call. `E` is the type of its outcome.
pub(super) struct Handover<E> {
    state: Mutex<State<E>>,
    kept: Condvar,
    /// Whether the service thread was told of the call.
    awaited: AtomicBool,
}

struct State<E> {
    stage: Stage<E>,
    waker: Option<Waker>,
    /// If the caller has cancelled the call, the time until which it waits for the server's answer to the
    /// cancel.
    cancelled: Option<Time>,
}

enum Stage<E> {
    Sent,
    /// The service thread takes the outcome out of the slot now.
    Taking,
    /// The service thread has taken the outcome, and keeps it here.
    Kept(E),
    /// The outcome was given to the caller.
    Over,
}

impl<E> Handover<E> {
    /// Returns the state of a call that was sent.
    pub(super) fn new() -> Handover<E> {
        let state = State { stage: Stage::Sent, waker: None, cancelled: None };
        Handover { state: Mutex::new(state), kept: Condvar::new(), awaited: AtomicBool::new(false) }
    }

    /// Registers the waker of a task that awaits the outcome. Returns the former waker, and whether the
    /// caller must tell the service thread of the call.
    pub(super) fn listen(&self, waker: &Waker) -> (Option<Waker>, bool) {
        let former = self.lock().waker.replace(waker.clone());
        (former, !self.awaited.swap(true, Ordering::AcqRel))
    }

    /// Returns whether the service thread was told of the call.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Cancels the call by `give_up`, and sets `until` as the time until which the caller waits for the
    /// server's answer. Returns false, without calling `give_up`, if the call was cancelled before or has
    /// ended.
    pub(super) fn cancel(&self, until: Time, give_up: impl FnOnce()) -> bool {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Sent) || state.cancelled.is_some() {
            return false;
        }
        state.cancelled = Some(until);
        give_up();
        true
    }

    /// Withdraws the call by `withdraw`, unless it was cancelled or has ended. Returns whether that succeeds:
    /// then the calling thread has the outcome, and gives it to the caller, or
    /// [keeps](Handover::keep) it here if it `keeps`.
    pub(super) fn withdraw(&self, keeps: bool, withdraw: impl FnOnce() -> bool) -> bool {
        let mut state = self.lock();
        let is_sent = matches!(state.stage, Stage::Sent) && state.cancelled.is_none();
        let is_withdrawn = is_sent && withdraw();
        if is_withdrawn {
            state.stage = if keeps { Stage::Taking } else { Stage::Over };
        }
        is_withdrawn
    }

    /// Returns the time until which to wait for the server's answer to a cancel, if the call was cancelled.
    pub(super) fn cancelled(&self) -> Option<Time> {
        self.lock().cancelled
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.lock().stage, Stage::Sent)
    }

    /// Claims the outcome for the calling thread, which then takes it out of the slot and passes it to the
    /// caller. Returns false if another thread claimed the outcome before.
    pub(super) fn take(&self) -> bool {
        self.begin(Stage::Over)
    }

    /// Claims the outcome for the service thread, which then takes it out of the slot and
    /// [keeps](Handover::keep) it here. Returns false if another thread claimed the outcome before.
    pub(super) fn take_to_keep(&self) -> bool {
        self.begin(Stage::Taking)
    }

    fn begin(&self, next: Stage<E>) -> bool {
        let mut state = self.lock();
        let is_first = matches!(state.stage, Stage::Sent);
        if is_first {
            state.stage = next;
        }
        is_first
    }

    /// Stores the outcome that the service thread has taken. Returns the waker to wake.
    pub(super) fn keep(&self, outcome: E) -> Option<Waker> {
        let mut state = self.lock();
        state.stage = Stage::Kept(outcome);
        self.kept.notify_all();
        state.waker.take()
    }

    /// Takes the waker out when the call has ended in another way. The code that calls this must hold no lock
    /// when it drops the waker, because the drop runs user code.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.lock().waker.take()
    }

    /// Blocks while the service thread takes the outcome out of the slot.
    pub(super) fn wait_while_taken(&self) {
        let mut state = self.lock();
        while matches!(state.stage, Stage::Taking) {
            state = self.kept.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the stored outcome out. Returns `None` if none is stored.
    pub(super) fn give(&self) -> Option<E> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.stage, Stage::Over) {
            Stage::Kept(outcome) => Some(outcome),
            other => {
                state.stage = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
