//! The answers of servers that were asked for an export, as they come.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use farcall_proto::Failure;
use farcall_proto::client::Bound;

use super::waiter::{Waiter, Wakes, Watcher};

pub(super) type Answer = Result<Bound, Failure>;

/// The answers of several binds, as they come.
pub(crate) struct BindAnswers {
    state: Mutex<State>,
    asker: Asker,
}

/// Who waits for them.
pub(super) enum Asker {
    Thread(Arc<Waiter>),
    Task(Waker),
}

struct State {
    /// In the order of arrival: which bind, and its answer.
    answers: Vec<(usize, Answer)>,
    /// How many were fetched.
    fetched: usize,
}

impl BindAnswers {
    pub(super) fn new(asker: Asker) -> Arc<BindAnswers> {
        Arc::new(BindAnswers { state: Mutex::new(State { answers: Vec::new(), fetched: 0 }), asker })
    }

    /// How many tasks wait for each answer: none, or one.
    pub(super) fn tasks(&self) -> usize {
        usize::from(matches!(self.asker, Asker::Task(_)))
    }

    pub(super) fn end(&self, which: usize, answer: Answer, wakes: &mut Wakes) {
        self.lock().answers.push((which, answer));
        match &self.asker {
            Asker::Thread(waiter) => wakes.waiters.push(waiter.clone()),
            Asker::Task(waker) => wakes.add(Watcher::Task(waker.clone())),
        }
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
