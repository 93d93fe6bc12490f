//! Keeps the outcome of a started call for its caller. Exactly one thread takes the outcome out of the call's
//! slot: the caller's, when it polls or waits, or the service thread, which keeps the outcome here.
//!
//! `tests/awaited.rs` includes this file, and gives it loom's types through `super::sync`.

use std::sync::PoisonError;
use std::task::Waker;

use farcall_proto::Time;

use super::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// The state of a started call whose outcome is an `E`.
pub(super) struct Handover<E> {
    state: Mutex<State<E>>,
    kept: Condvar,
    /// Whether the service thread was told of the call.
    awaited: AtomicBool,
}

struct State<E> {
    stage: Stage<E>,
    waker: Option<Waker>,
    /// Until when the caller waits for the server's answer to its cancel, if it cancelled the call.
    cancelled: Option<Time>,
}

enum Stage<E> {
    Sent,
    /// The service thread takes the outcome out of the slot.
    Taking,
    /// The service thread has taken the outcome, and keeps it here.
    Kept(E),
    /// The outcome was given to the caller.
    Over,
}

impl<E> Handover<E> {
    /// Makes the state of a call that was sent.
    pub(super) fn new() -> Handover<E> {
        let state = State { stage: Stage::Sent, waker: None, cancelled: None };
        Handover { state: Mutex::new(state), kept: Condvar::new(), awaited: AtomicBool::new(false) }
    }

    /// Registers the waker of a task that awaits the outcome. Returns the waker that was registered before,
    /// and whether the caller has to tell the service thread of the call.
    pub(super) fn listen(&self, waker: &Waker) -> (Option<Waker>, bool) {
        let former = self.lock().waker.replace(waker.clone());
        (former, !self.awaited.swap(true, Ordering::AcqRel))
    }

    /// Whether the service thread was told of the call.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Gives the call up by running `give_up`, and lets the caller wait until `until` for the server's
    /// answer. Returns false if the call was given up before, or has ended.
    pub(super) fn cancel(&self, until: Time, give_up: impl FnOnce()) -> bool {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Sent) || state.cancelled.is_some() {
            return false;
        }
        state.cancelled = Some(until);
        give_up();
        true
    }

    /// Returns until when the server's answer to a cancel is waited for, if the call was cancelled.
    pub(super) fn cancelled(&self) -> Option<Time> {
        self.lock().cancelled
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.lock().stage, Stage::Sent)
    }

    /// Returns whether the calling thread is the one to take the outcome out of the slot. That thread passes
    /// the outcome on itself.
    pub(super) fn take(&self) -> bool {
        self.begin(Stage::Over)
    }

    /// Returns whether the service thread is the one to take the outcome out of the slot. It then
    /// [keeps](Handover::keep) the outcome.
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

    /// Keeps the outcome that was taken, and returns the waker to wake.
    pub(super) fn keep(&self, outcome: E) -> Option<Waker> {
        let mut state = self.lock();
        state.stage = Stage::Kept(outcome);
        self.kept.notify_all();
        state.waker.take()
    }

    /// Takes out the waker of a call that has ended otherwise. The waker is returned, not dropped here,
    /// because its drop is the user's code.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.lock().waker.take()
    }

    /// Blocks while the service thread takes the outcome.
    pub(super) fn wait_while_taken(&self) {
        let mut state = self.lock();
        while matches!(state.stage, Stage::Taking) {
            state = self.kept.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the outcome out, if it is kept.
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
