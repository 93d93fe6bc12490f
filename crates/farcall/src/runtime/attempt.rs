//! One question to those who may export a name, whose answer all started calls wait for.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::bind::{Candidate, Target};
use super::import::Importer;
use super::tasks::Tasks;
use crate::stub::no_reply;
use crate::{CallFailed, Ran};

type Answer = Result<Arc<Target>, CallFailed>;

/// An attempt to bind that is under way. It ends when somebody answers, or nobody has for as long as a caller
/// is patient.
pub(super) struct Attempt {
    asked: Vec<Candidate>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answer: Option<Answer>,
    /// Who waits for it.
    waiting: BTreeMap<u64, Waker>,
    last: u64,
}

impl Attempt {
    /// The one that is under way if it asks the same, else a new one. Only in a step of a task.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn join(importer: &Arc<Importer>, asked: Vec<Candidate>) -> Result<Arc<Attempt>, CallFailed> {
        let attempt = {
            let mut current = importer.attempt();
            if let Some(attempt) = current.as_ref().filter(|attempt| attempt.asked == asked) {
                return Ok(attempt.clone());
            }
            let attempt = Arc::new(Attempt { asked, state: Mutex::default() });
            *current = Some(attempt.clone());
            attempt
        };
        let ending = Ending { importer: importer.clone(), attempt: attempt.clone(), answer: None };
        let spawned = Tasks::spawn(&importer.inner, None, Box::pin(ending.bind()));
        spawned.map_err(|why| CallFailed::local("starting a thread", why))?;
        Ok(attempt)
    }

    /// Waits for the answer, until `over` says that nobody needs it any more.
    pub(super) async fn wait(&self, over: impl Fn() -> Result<(), CallFailed>) -> Answer {
        let place = Place { attempt: self, number: self.number() };
        poll_fn(|context| {
            over()?;
            place.poll(context)
        })
        .await
    }

    fn number(&self) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        state.last
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of those who wait.
struct Place<'a> {
    attempt: &'a Attempt,
    number: u64,
}

impl Place<'_> {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.attempt.lock();
        if let Some(answer) = &state.answer {
            return Poll::Ready(answer.clone());
        }
        state.waiting.insert(self.number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.attempt.lock().waiting.remove(&self.number);
    }
}

/// Ends an attempt, however its task does. To ask runs nothing.
struct Ending {
    importer: Arc<Importer>,
    attempt: Arc<Attempt>,
    answer: Option<Answer>,
}

impl Ending {
    async fn bind(mut self) {
        self.answer = Some(self.importer.bind_later(&self.attempt.asked).await);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Who comes now asks anew.
        self.importer.attempt().take_if(|current| Arc::ptr_eq(current, &self.attempt));
        let waiting = {
            let mut state = self.attempt.lock();
            state.answer = Some(self.answer.take().unwrap_or_else(|| Err(no_reply().but_ran(Ran::No))));
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}
