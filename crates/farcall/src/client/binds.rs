//! Asking several servers for an export at once.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use farcall_proto::Failure;
use farcall_proto::client::Bound;

use super::waiter::{Caller, Other, Waiter, Wakes};
use super::{Endpoint, Peer};
use crate::CallFailed;

type Answer = Result<Bound, Failure>;

/// The answers of several binds, as they come.
pub(crate) struct Binds {
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

impl Binds {
    pub(super) fn new(asker: Asker) -> Arc<Binds> {
        Arc::new(Binds { state: Mutex::new(State { answers: Vec::new(), fetched: 0 }), asker })
    }

    /// How many tasks wait for each answer: none, or one.
    pub(super) fn tasks(&self) -> usize {
        usize::from(matches!(self.asker, Asker::Task(_)))
    }

    pub(super) fn end(&self, which: usize, answer: Answer, wakes: &mut Wakes) {
        self.lock().answers.push((which, answer));
        match &self.asker {
            Asker::Thread(waiter) => wakes.waiters.push(waiter.clone()),
            Asker::Task(waker) => wakes.others.push(Other::Task(waker.clone())),
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

/// Servers that a task asks. Those who have not answered when this is dropped are asked no more.
pub(crate) struct Asking<'a> {
    endpoint: &'a Arc<Endpoint>,
    peers: &'a [(Arc<Peer>, String)],
    /// Once they were asked.
    asked: Option<(Arc<Binds>, Vec<u64>)>,
    /// How many answers there are still to be.
    left: usize,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>, peers: &'a [(Arc<Peer>, String)]) -> Asking<'a> {
        Asking { endpoint, peers, asked: None, left: peers.len() }
    }

    /// The next answer, and whose it is; none when all have answered. Always of the same task.
    ///
    /// # Errors
    /// The system gives no thread that would receive the answers.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Answer)>, CallFailed> {
        poll_fn(|context| {
            if self.left == 0 {
                return Poll::Ready(Ok(None));
            }
            let binds = match &self.asked {
                Some((binds, _)) => binds,
                None => self.ask(context.waker())?,
            };
            let Some(answer) = binds.fetch() else { return Poll::Pending };
            self.left -= 1;
            Poll::Ready(Ok(Some(answer)))
        })
        .await
    }

    fn ask(&mut self, waker: &Waker) -> Result<&Arc<Binds>, CallFailed> {
        let endpoint = self.endpoint;
        endpoint.check_process()?;
        let service = endpoint.service()?;
        let binds = Binds::new(Asker::Task(waker.clone()));
        let mut caller = Caller::take(&endpoint.env);
        let (tokens, timer) = endpoint.ask(self.peers, &binds, &mut caller.tools);
        caller.keep();
        endpoint.set_timer(timer);
        endpoint.engage(service);
        endpoint.hasten();
        Ok(&self.asked.insert((binds, tokens)).0)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some((binds, tokens)) = self.asked.take() {
            self.endpoint.forget(self.peers, tokens, &binds);
        }
    }
}
