//! The answers of servers that were asked for an export, as they come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use farcall_proto::Failure;
use farcall_proto::client::Bound;

use super::waiter::{Wakes, Watcher};
use crate::lock;

pub(super) type Answer = Result<Bound, Failure>;

/// The answers of several binds, as they come.
pub(crate) struct BindAnswers {
    /// Those that were not fetched, in the order of arrival: which bind, and its answer.
    answers: Mutex<VecDeque<(usize, Answer)>>,
    /// Who waits for them: a thread, or a task.
    asker: Watcher,
}

impl BindAnswers {
    pub(super) fn new(asker: Watcher) -> Arc<BindAnswers> {
        Arc::new(BindAnswers { answers: Mutex::default(), asker })
    }

    /// How many tasks wait for each answer: none, or one.
    pub(super) fn tasks(&self) -> usize {
        usize::from(self.asker.is_task())
    }

    pub(super) fn end(&self, which: usize, answer: Answer, wakes: &mut Wakes) {
        lock(&self.answers).push_back((which, answer));
        wakes.add(self.asker.clone());
    }

    /// The next answer that has come.
    pub(super) fn fetch(&self) -> Option<(usize, Answer)> {
        lock(&self.answers).pop_front()
    }

    /// Whether there is one to fetch.
    pub(super) fn any(&self) -> bool {
        !lock(&self.answers).is_empty()
    }
}
