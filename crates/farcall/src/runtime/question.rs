//! A question to servers or to a resolver that is under way. All threads and tasks that ask the same question
//! wait for the same answer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::{CallFailed, lock};

/// The answer to a question, or why there is none.
pub(super) type Answer<T> = Result<T, CallFailed>;

/// A question whose answer is a `T`.
pub(super) struct Question<T>(Mutex<State<T>>);

struct State<T> {
    answer: Option<Answer<T>>,
    /// The wakers of the threads and tasks that wait for the answer, by their numbers.
    waiting: BTreeMap<u64, Waker>,
    last: u64,
}

impl<T> Default for Question<T> {
    fn default() -> Question<T> {
        Question(Mutex::new(State { answer: None, waiting: BTreeMap::new(), last: 0 }))
    }
}

impl<T: Clone> Question<T> {
    /// Waits for the answer. Gives up when `over` returns an error.
    pub(super) async fn wait(&self, over: impl Fn() -> Result<(), CallFailed>) -> Answer<T> {
        let asker = self.ask();
        poll_fn(|context| {
            over()?;
            asker.poll(context)
        })
        .await
    }

    /// Returns a handle with which one thread or task waits for the answer.
    pub(super) fn ask(&self) -> Asker<'_, T> {
        let mut state = lock(&self.0);
        state.last += 1;
        Asker { question: self, number: state.last }
    }
}

/// A thread or task that waits for an answer.
pub(super) struct Asker<'a, T> {
    question: &'a Question<T>,
    number: u64,
}

impl<T: Clone> Asker<'_, T> {
    /// Returns the answer if it has come. Otherwise `context` is woken when the answer comes.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Answer<T>> {
        let mut state = lock(&self.question.0);
        if let Some(answer) = &state.answer {
            return Poll::Ready(answer.clone());
        }
        state.waiting.insert(self.number, context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Asker<'_, T> {
    fn drop(&mut self) {
        lock(&self.question.0).waiting.remove(&self.number);
    }
}

/// Answers a question when this is dropped, even if the thread or task that looks for the answer panics.
pub(super) struct Answering<T, F: FnMut()> {
    question: Arc<Question<T>>,
    answer: Option<Answer<T>>,
    forget: F,
}

impl<T, F: FnMut()> Answering<T, F> {
    /// Returns an answerer, whose drop answers the question: with `unanswered`, unless [`Answering::find`]
    /// has set another answer. The drop first runs `forget`, which must make later askers ask again.
    pub(super) fn new(question: &Arc<Question<T>>, unanswered: CallFailed, forget: F) -> Answering<T, F> {
        Answering { question: question.clone(), answer: Some(Err(unanswered)), forget }
    }

    /// Sets the answer that the drop gives.
    pub(super) fn find(&mut self, answer: Answer<T>) {
        self.answer = Some(answer);
    }
}

impl<T, F: FnMut()> Drop for Answering<T, F> {
    fn drop(&mut self) {
        (self.forget)();
        let waiting = {
            let mut state = lock(&self.question.0);
            state.answer = self.answer.take();
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}
