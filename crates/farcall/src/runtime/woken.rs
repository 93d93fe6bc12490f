//! An executor without threads of its own: the thread that wakes a task polls it.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::{guard, lock, server};

/// A task, unless a thread polls it at the moment.
struct Woken(Mutex<State>);

struct State {
    /// The task; `None` while a thread polls it, and once it has ended.
    task: Option<server::Task>,
    /// Whether the task was woken while a thread polled it.
    again: bool,
}

/// Polls a task now, and whenever it is woken.
pub(super) fn run(task: server::Task) {
    Arc::new(Woken(Mutex::new(State { task: Some(task), again: false }))).poll();
}

impl Woken {
    fn poll(self: &Arc<Self>) {
        let mut task = {
            let mut state = lock(&self.0);
            match state.task.take() {
                Some(task) => task,
                None => {
                    state.again = true;
                    return;
                }
            }
        };
        let waker = Waker::from(self.clone());
        loop {
            let polled = guard::run(|| task.as_mut().poll(&mut Context::from_waker(&waker)));
            if !matches!(polled, Ok(Poll::Pending)) {
                return guard::run_alone("the drop of a task", || drop(task));
            }
            let mut state = lock(&self.0);
            if !std::mem::take(&mut state.again) {
                state.task = Some(task);
                return;
            }
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}
