//! Asks several servers at once for an export. (A peer is a server as the client knows it, and an endpoint is
//! the client's socket.)

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use farcall_proto::client::Bound;
use farcall_proto::{Failure, Time};

use super::bind_answers::{Answer, BindAnswers};
use super::caller::{Caller, Tools};
use super::owners::Owner;
use super::waiter::Watcher;
use super::{Endpoint, Peer};
use crate::CallFailed;

impl Endpoint {
    /// Asks each peer in `peers` which export has the name that is paired with the peer. Gives each answer to
    /// `judge` as it arrives, with the peer's index. Ends when `judge` returns true, all peers have answered,
    /// or the deadline has passed.
    pub(crate) fn bind(
        &self,
        peers: &[(Arc<Peer>, String)],
        deadline: Option<Time>,
        judge: &mut dyn FnMut(usize, Result<Bound, Failure>) -> bool,
    ) -> Result<(), CallFailed> {
        self.check_process()?;
        let mut caller = Caller::take_to_wait(&self.env)?;
        let binds = BindAnswers::new(Watcher::Thread(caller.waiter.clone()));
        let (tokens, mut first) = self.ask(peers, &binds, &mut caller.tools);
        for _ in peers {
            self.set_timer(first.take());
            let Caller { waiter, tools, .. } = &mut *caller;
            let over = || binds.any() || self.is_past(deadline);
            self.attend(waiter).by(deadline).until(tools, self.env.now(), &over);
            let Some((which, answer)) = binds.fetch() else { break };
            if judge(which, answer) {
                break;
            }
        }
        self.forget(peers, tokens, &binds);
        caller.keep();
        Ok(())
    }

    /// Sends each peer the question which export has the name that is paired with the peer. Returns the
    /// tokens of the questions and the earliest timer.
    pub(super) fn ask(
        &self,
        peers: &[(Arc<Peer>, String)],
        binds: &Arc<BindAnswers>,
        tools: &mut Tools,
    ) -> (Vec<u64>, Option<Time>) {
        let (mut tokens, mut first) = (Vec::with_capacity(peers.len()), None);
        let now = self.env.now();
        for (which, (peer, name)) in peers.iter().enumerate() {
            let (timer, unlisted) = {
                let mut state = peer.lock();
                let was_busy = state.owners.any_started();
                let token = state.owners.add(Owner::Bind(binds.clone(), which));
                tokens.push(token);
                state.conversation.bind(now, name, token);
                self.tasks.fetch_add(binds.tasks(), Ordering::SeqCst);
                self.count_busy(was_busy, &state.owners);
                let unlisted = !std::mem::replace(&mut state.listed, true);
                (state.conversation.timeout(), unlisted)
            };
            if unlisted {
                self.list(peer);
            }
            self.flush(now, peer, &mut tools.out);
            first = [first, timer].into_iter().flatten().min();
        }
        (tokens, first)
    }

    /// Stops asking the peers that have not answered.
    pub(super) fn forget(&self, peers: &[(Arc<Peer>, String)], tokens: Vec<u64>, binds: &BindAnswers) {
        for ((peer, _), token) in peers.iter().zip(tokens) {
            let mut state = peer.lock();
            let was_busy = state.owners.any_started();
            if state.owners.take(token).is_some() {
                state.conversation.forget_bind(token);
                self.tasks.fetch_sub(binds.tasks(), Ordering::SeqCst);
                self.count_busy(was_busy, &state.owners);
            }
        }
    }
}

/// Servers that a task asks for an export. Dropping this stops asking the servers that have not answered.
pub(crate) struct Asking<'a> {
    endpoint: &'a Arc<Endpoint>,
    peers: &'a [(Arc<Peer>, String)],
    /// The answers and the tokens of the questions; `None` before the servers were asked.
    asked: Option<(Arc<BindAnswers>, Vec<u64>)>,
    /// The number of answers that are still expected.
    left: usize,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>, peers: &'a [(Arc<Peer>, String)]) -> Asking<'a> {
        Asking { endpoint, peers, asked: None, left: peers.len() }
    }

    /// Returns the next answer and its server's index, or `None` when all servers have answered. Only one
    /// task may call this.
    ///
    /// # Errors
    /// When the service thread, which receives the answers, cannot be started.
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

    fn ask(&mut self, waker: &Waker) -> Result<&Arc<BindAnswers>, CallFailed> {
        let endpoint = self.endpoint;
        endpoint.check_process()?;
        let service = endpoint.service()?;
        let binds = BindAnswers::new(Watcher::Task(waker.clone()));
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
