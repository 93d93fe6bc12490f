//! Where the outcome of a started call waits for whoever asks: one thread takes it out of the call's slot,
//! for one that polls, waits or cancels.
//!
//! (tests/awaited.rs includes this file, and gives it loom's types through `super::sync`.)

use std::sync::PoisonError;
use std::task::Waker;

use farcall_proto::Time;

use super::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// The state of a started call whose outcome is an `E`.
pub(super) struct Handover<E> {
    state: Mutex<State<E>>,
    kept: Condvar,
    /// The service thread knows of it.
    awaited: AtomicBool,
}

struct State<E> {
    stage: Stage<E>,
    waker: Option<Waker>,
    /// Until when its caller waits for the server's word on its cancel, if it was cancelled.
    cancelled: Option<Time>,
}

enum Stage<E> {
    Sent,
    /// The service thread takes the outcome out of the slot.
    Taking,
    /// It has.
    Kept(E),
    /// It was given to whoever asked.
    Over,
}

impl<E> Handover<E> {
    /// That of a call that was sent.
    pub(super) fn new() -> Handover<E> {
        let state = State { stage: Stage::Sent, waker: None, cancelled: None };
        Handover { state: Mutex::new(state), kept: Condvar::new(), awaited: AtomicBool::new(false) }
    }

    /// Has a task woken when the outcome is kept. The waker that was there, and whether the service thread is
    /// to be told of the call.
    pub(super) fn listen(&self, waker: &Waker) -> (Option<Waker>, bool) {
        let former = self.lock().waker.replace(waker.clone());
        (former, !self.awaited.swap(true, Ordering::SeqCst))
    }

    /// Whether the service thread was told of the call.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst)
    }

    /// Has the call be given up, by `give_up`, and waited for no longer than till then. False: it was before,
    /// or has ended.
    pub(super) fn cancel(&self, until: Time, give_up: impl FnOnce()) -> bool {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Sent) || state.cancelled.is_some() {
            return false;
        }
        state.cancelled = Some(until);
        give_up();
        true
    }

    /// Until when the server's word on its cancel is waited for.
    pub(super) fn cancelled(&self) -> Option<Time> {
        self.lock().cancelled
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.lock().stage, Stage::Sent)
    }

    /// Of a thread that will pass the outcome on itself: whether it is the one that takes it out of the slot.
    pub(super) fn take(&self) -> bool {
        self.begin(Stage::Over)
    }

    /// The same of the service thread, which [keeps](Handover::keep) it.
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

    /// Keeps the outcome that was taken. Whom to wake.
    pub(super) fn keep(&self, outcome: E) -> Option<Waker> {
        let mut state = self.lock();
        state.stage = Stage::Kept(outcome);
        self.kept.notify_all();
        state.waker.take()
    }

    /// Whom to wake of a call that nobody needs to look after any more. (To drop a waker is the user's code.)
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

    /// The outcome, if it is kept.
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
