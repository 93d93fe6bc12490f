//! Names of hosts, resolved in threads of their own: the system's resolver takes no deadline and cannot be
//! interrupted.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use farcall_names::{Host, Name, canonical};

use super::advertise::names_one_host;
use super::{Inner, bind};
use crate::env::{Event, Time};
use crate::{CallFailed, Kind, Ran, guard};

/// Hosts that are resolved at the same time: each takes a thread.
const MAX_QUESTIONS: usize = 64;

/// Addresses of one host that are tried.
const MAX_ADDRESSES: usize = 16;

/// The questions that are under way. All who ask the same wait for the same answer.
#[derive(Default)]
pub(super) struct Resolver(Mutex<HashMap<(Host, u16), Arc<Question>>>);

type Answer = Result<Vec<SocketAddr>, CallFailed>;

#[derive(Default)]
struct Question(Mutex<State>);

#[derive(Default)]
struct State {
    answer: Option<Answer>,
    waiting: Vec<Waker>,
}

impl Inner {
    /// The addresses of a host, in the order in which they are to be tried. Waits until the deadline, or for
    /// as long as a caller is patient.
    pub(super) fn resolve(&self, name: &Name, host: (&Host, u16), deadline: Option<Time>) -> Answer {
        crate::client::may_wait(&self.env)?;
        let _waiting = crate::serving::wait_guard();
        let question = self.question(host)?;
        let event = self.env.event();
        let waker = Waker::from(Arc::new(Sets(event.clone())));
        let until = deadline.unwrap_or_else(|| self.env.now() + self.settings.patience);
        loop {
            if let Poll::Ready(answer) = question.poll(&mut Context::from_waker(&waker)) {
                return answer;
            }
            let left = until.since(self.env.now());
            if left.is_zero() {
                return Err(if deadline.is_some() { bind::too_late(name) } else { unresolved(host.0) });
            }
            event.wait(Some(left));
        }
    }

    /// As [`Inner::resolve`] for a task, until `over` says that nobody needs the answer any more.
    pub(super) async fn resolve_later(
        &self,
        host: (&Host, u16),
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Answer {
        let question = self.question(host)?;
        poll_fn(|context| {
            over()?;
            question.poll(context)
        })
        .await
    }

    /// The question that is under way, or a new one.
    fn question(&self, (host, port): (&Host, u16)) -> Result<Arc<Question>, CallFailed> {
        let (key, question) = ((host.clone(), port), Arc::<Question>::default());
        {
            let mut questions = self.resolver.lock();
            if let Some(question) = questions.get(&key) {
                return Ok(question.clone());
            }
            if questions.len() >= MAX_QUESTIONS {
                let why = format!(
                    "{MAX_QUESTIONS} other names of hosts are being resolved: try {host} again later"
                );
                return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
            }
            questions.insert(key.clone(), question.clone());
        }
        let asked = Asked { resolver: self.resolver.clone(), key, question: question.clone(), answer: None };
        let env = self.env.clone();
        // (Where there is no thread `asked` is dropped, which answers.)
        let spawned = self.env.spawn(
            "farcall-resolve",
            Box::new(move || {
                let mut asked = asked;
                let (host, port) = &asked.key;
                let found = guard::run(|| env.resolve(host.as_str(), *port));
                asked.answer = found.ok().map(|found| answer(host, found));
            }),
        );
        spawned.map_err(|why| CallFailed::local("starting a thread", why))?;
        Ok(question)
    }
}

/// What the resolver says, without what can be no server's.
fn answer(host: &Host, found: std::io::Result<Vec<SocketAddr>>) -> Answer {
    let unknown =
        |why: &str| CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("the host {host}: {why}"));
    let found = found.map_err(|why| unknown(&why.to_string()).caused_by(why))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found.into_iter().map(canonical) {
        let is_usable = names_one_host(address.ip()) || is_scoped(&address);
        if is_usable && !addresses.contains(&address) && addresses.len() < MAX_ADDRESSES {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(unknown("it has no address that can be called"));
    }
    Ok(addresses)
}

/// A link-local address with its link, as the host's own configuration may give it.
fn is_scoped(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0 && v6.ip().is_unicast_link_local())
}

#[cold]
fn unresolved(host: &Host) -> CallFailed {
    CallFailed::new(Kind::Unreachable, Ran::No)
        .because(format!("the name of the host {host} is not resolved so far"))
}

impl Resolver {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Host, u16), Arc<Question>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.lock();
        match &state.answer {
            Some(answer) => Poll::Ready(answer.clone()),
            None => {
                if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers a question, however its thread ends.
struct Asked {
    resolver: Arc<Resolver>,
    key: (Host, u16),
    question: Arc<Question>,
    answer: Option<Answer>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Who comes now asks anew.
        self.resolver.lock().remove(&self.key);
        let waiting = {
            let mut state = self.question.lock();
            state.answer = Some(self.answer.take().unwrap_or_else(|| Err(unresolved(&self.key.0))));
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Wakes a thread that waits for an event.
struct Sets(Arc<dyn Event>);

impl Wake for Sets {
    fn wake(self: Arc<Self>) {
        self.0.set();
    }
}
