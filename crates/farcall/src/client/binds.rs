//! Asking several servers for an export at once.

use std::sync::{Arc, Mutex, PoisonError};

use farcall_proto::Failure;
use farcall_proto::client::Bound;

use super::waiter::{Waiter, Wakes};

type Answer = Result<Bound, Failure>;

/// The answers of several binds, as they come.
pub(crate) struct Binds {
    state: Mutex<State>,
    waiter: Arc<Waiter>,
}

struct State {
    /// In the order of arrival: which bind, and its answer.
    answers: Vec<(usize, Answer)>,
    /// How many were fetched.
    fetched: usize,
}

impl Binds {
    pub(super) fn new(waiter: Arc<Waiter>) -> Arc<Binds> {
        Arc::new(Binds { state: Mutex::new(State { answers: Vec::new(), fetched: 0 }), waiter })
    }

    pub(super) fn end(&self, which: usize, answer: Answer, wakes: &mut Wakes) {
        self.lock().answers.push((which, answer));
        wakes.waiters.push(self.waiter.clone());
    }

    /// The next answer that has come.
    pub(super) fn fetch(&self) -> Option<(usize, Answer)> {
        let mut state = self.lock();
        let answer = state.answers.get(state.fetched)?.clone();
        state.fetched += 1;
        Some(answer)
    }

    /// Whether there is one to fetch.
    pub(super) fn any(&self) -> bool {
        let state = self.lock();
        state.fetched < state.answers.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
