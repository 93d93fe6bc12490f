//! Asks several servers at once for an export. (A peer is a server as the client knows it, and an endpoint is
//! the client's socket.)

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farcall_proto::Time;

use super::bind_answers::{Answer, BindAnswers};
use super::caller::{Caller, Tools};
use super::owners::Owner;
use super::waiter::Watcher;
use super::{Endpoint, Peer};
use crate::CallFailed;
use crate::env::Env;

/// Questions to servers at one or several endpoints, whose answers one thread waits for. A thread can receive
/// at one endpoint at a time, so it receives at each in turn. Dropping this stops asking the servers that
/// have not answered.
pub(crate) struct Questions {
    /// `None` once this is being dropped.
    caller: Option<Box<Caller>>,
    asked: Vec<Asked>,
    /// The index of the endpoint at which the thread received last.
    last: usize,
    /// How long the thread receives at one of several endpoints before it turns to the next.
    turn: Duration,
}

/// The questions to the servers at one endpoint.
struct Asked {
    endpoint: Arc<Endpoint>,
    peers: Vec<(Arc<Peer>, String)>,
    binds: Arc<BindAnswers>,
    tokens: Vec<u64>,
    /// The number of answers that are still expected.
    left: usize,
}

/// The answer of a server.
pub(crate) struct Answered {
    /// How many endpoints were asked before the server's.
    pub(crate) endpoint: usize,
    /// The index of the server among those that were asked at the endpoint.
    pub(crate) which: usize,
    pub(crate) peer: Arc<Peer>,
    pub(crate) answer: Answer,
}

/// The first and the longest turn of an endpoint.
const FIRST_TURN: Duration = Duration::from_millis(1);
const LONGEST_TURN: Duration = Duration::from_millis(20);

impl Questions {
    /// Makes a list of questions that this thread is to ask.
    ///
    /// # Errors
    /// When this thread must not wait.
    pub(crate) fn new(env: &Arc<dyn Env>) -> Result<Questions, CallFailed> {
        let caller = Some(Caller::take_to_wait(env)?);
        Ok(Questions { caller, asked: Vec::new(), last: 0, turn: FIRST_TURN })
    }

    /// Asks each peer in `peers` which export has the name that is paired with the peer.
    pub(crate) fn ask(
        &mut self,
        endpoint: &Arc<Endpoint>,
        peers: Vec<(Arc<Peer>, String)>,
    ) -> Result<(), CallFailed> {
        endpoint.check_process()?;
        let Some(caller) = &mut self.caller else { return Ok(()) };
        let binds = BindAnswers::new(Watcher::Thread(caller.waiter.clone()));
        let (tokens, timer) = endpoint.ask(&peers, &binds, &mut caller.tools);
        endpoint.set_timer(timer);
        let left = peers.len();
        self.asked.push(Asked { endpoint: endpoint.clone(), peers, binds, tokens, left });
        Ok(())
    }

    /// Waits for the next answer. Returns `None` when all servers have answered, or the time is past.
    pub(crate) fn next(&mut self, by: Option<Time>) -> Option<Answered> {
        let Caller { waiter, tools, .. } = &mut **self.caller.as_mut()?;
        loop {
            for (endpoint, asked) in self.asked.iter_mut().enumerate() {
                if let Some((which, answer)) = asked.binds.fetch() {
                    asked.left -= 1;
                    let peer = asked.peers[which].0.clone();
                    return Some(Answered { endpoint, which, peer, answer });
                }
            }
            let open = |place: &usize| self.asked.get(*place).is_some_and(|asked| asked.left > 0);
            let count = (0..self.asked.len()).filter(open).count();
            self.last = (self.last + 1..self.asked.len()).chain(0..=self.last).find(open)?;
            let endpoint = &self.asked[self.last].endpoint;
            let now = endpoint.env.now();
            if by.is_some_and(|by| by <= now) {
                return None;
            }
            let mut until = by;
            if count > 1 {
                let end = now + self.turn;
                until = Some(by.map_or(end, |by| by.min(end)));
                self.turn = (self.turn * 2).min(LONGEST_TURN);
            }
            let over = || self.asked.iter().any(|asked| asked.binds.any()) || endpoint.is_past(until);
            endpoint.attend(waiter).by(until).until(tools, now, &over);
        }
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        for Asked { endpoint, peers, binds, tokens, .. } in self.asked.drain(..) {
            endpoint.forget(&peers, tokens, &binds);
        }
        if let Some(caller) = self.caller.take() {
            caller.keep();
        }
    }
}

impl Endpoint {
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
pub(crate) struct Asking {
    endpoint: Arc<Endpoint>,
    peers: Vec<(Arc<Peer>, String)>,
    /// The answers and the tokens of the questions; `None` before the servers were asked.
    asked: Option<(Arc<BindAnswers>, Vec<u64>)>,
    /// The number of answers that are still expected.
    left: usize,
}

impl Asking {
    pub(crate) fn new(endpoint: Arc<Endpoint>, peers: Vec<(Arc<Peer>, String)>) -> Asking {
        Asking { left: peers.len(), endpoint, peers, asked: None }
    }

    /// Returns the next answer, or `None` when all servers have answered. Only one task may call this.
    ///
    /// # Errors
    /// When the service thread, which receives the answers, cannot be started.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Answered>, CallFailed>> {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let binds = match &self.asked {
            Some((binds, _)) => binds,
            None => self.ask(context.waker())?,
        };
        let Some((which, answer)) = binds.fetch() else { return Poll::Pending };
        self.left -= 1;
        let peer = self.peers[which].0.clone();
        Poll::Ready(Ok(Some(Answered { endpoint: 0, which, peer, answer })))
    }

    fn ask(&mut self, waker: &Waker) -> Result<&Arc<BindAnswers>, CallFailed> {
        let endpoint = &self.endpoint;
        endpoint.check_process()?;
        let service = endpoint.service()?;
        let binds = BindAnswers::new(Watcher::Task(waker.clone()));
        let mut caller = Caller::take(&endpoint.env);
        let (tokens, timer) = endpoint.ask(&self.peers, &binds, &mut caller.tools);
        caller.keep();
        endpoint.set_timer(timer);
        endpoint.engage(service);
        endpoint.hasten();
        Ok(&self.asked.insert((binds, tokens)).0)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some((binds, tokens)) = self.asked.take() {
            self.endpoint.forget(&self.peers, tokens, &binds);
        }
    }
}
