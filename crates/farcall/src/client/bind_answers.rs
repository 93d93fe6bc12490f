//! Collects the answers of servers that were asked for an export.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use farcall_proto::Failure;
use farcall_proto::client::Bound;

use super::waiter::{Wakes, Watcher};
use crate::lock;

pub(super) type Answer = Result<Bound, Failure>;

/// The answers of several binds (questions which export has a name), in the order in which they arrive.
pub(crate) struct BindAnswers {
    /// The answers that were not fetched yet, each with the index of its bind.
    answers: Mutex<VecDeque<(usize, Answer)>>,
    /// The thread or task that waits for the answers.
    asker: Watcher,
}

impl BindAnswers {
    pub(super) fn new(asker: Watcher) -> Arc<BindAnswers> {
        Arc::new(BindAnswers { answers: Mutex::default(), asker })
    }

    /// Returns the number of tasks that wait for each answer: 0 or 1.
    pub(super) fn tasks(&self) -> usize {
        usize::from(self.asker.is_task())
    }

    pub(super) fn end(&self, which: usize, answer: Answer, wakes: &mut Wakes) {
        lock(&self.answers).push_back((which, answer));
        wakes.add(self.asker.clone());
    }

    /// Takes the next answer that has arrived.
    pub(super) fn fetch(&self) -> Option<(usize, Answer)> {
        lock(&self.answers).pop_front()
    }

    /// Returns whether there is an answer to fetch.
    pub(super) fn any(&self) -> bool {
        !lock(&self.answers).is_empty()
    }
}
