//! Resolves names of hosts and services, each in a thread of its own, because the system's resolver takes no
//! deadline and cannot be interrupted.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use farcall_names::{Name, canonical, resolve_service};

use super::advertise::names_one_host;
use super::place::Place;
use super::question::{Answering, Question};
use super::{Inner, bind};
use crate::context::Set;
use crate::env::Time;
use crate::{CallFailed, Kind, Ran, guard, lock};

/// The most hosts that are resolved at the same time. Each takes a thread.
const MAX_QUESTIONS: usize = 64;

/// The most addresses of one host that are tried.
const MAX_ADDRESSES: usize = 16;

/// The names of hosts that are being resolved.
#[derive(Default)]
pub(super) struct Resolver(Mutex<HashMap<Place, Resolution>>);

type Resolution = Arc<Question<Vec<SocketAddr>>>;
type Answer = super::question::Answer<Vec<SocketAddr>>;

impl Inner {
    /// Returns the addresses of a host or a service, in the order in which to try them. Waits until the
    /// deadline, or for the whole patience if there is none.
    pub(super) fn resolve(&self, name: &Name, place: &Place, deadline: Option<Time>) -> Answer {
        crate::client::may_wait(&self.env)?;
        let _waiting = crate::serving::wait_guard();
        let question = self.question(place)?;
        let asker = question.ask();
        let event = self.env.event();
        let waker = Waker::from(Arc::new(Set(event.clone())));
        let until = deadline.unwrap_or_else(|| self.env.now() + self.settings.patience);
        loop {
            if let Poll::Ready(answer) = asker.poll(&mut Context::from_waker(&waker)) {
                return answer;
            }
            let left = until.since(self.env.now());
            if left.is_zero() {
                return Err(if deadline.is_some() { bind::too_late(name) } else { unresolved(place) });
            }
            event.wait(Some(left));
        }
    }

    /// Returns the addresses of a host or a service, on behalf of a task, which waits without blocking a
    /// thread. Gives up when `over` returns an error.
    pub(super) async fn resolve_later(
        &self,
        place: &Place,
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Answer {
        self.question(place)?.wait(over).await
    }

    /// Returns the question for a host or a service that is under way, or starts one.
    fn question(&self, place: &Place) -> Result<Resolution, CallFailed> {
        let question = Resolution::default();
        {
            let mut questions = lock(&self.resolver.0);
            if let Some(question) = questions.get(place) {
                return Ok(question.clone());
            }
            if questions.len() >= MAX_QUESTIONS {
                let why = format!(
                    "{MAX_QUESTIONS} other names of hosts are being resolved: try {place} again later"
                );
                return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
            }
            questions.insert(place.clone(), question.clone());
        }
        let (resolver, asked) = (self.resolver.clone(), place.clone());
        let forget = move || drop(lock(&resolver.0).remove(&asked));
        let mut answering = Answering::new(&question, unresolved(place), forget);
        let (env, place) = (self.env.clone(), place.clone());
        // If no thread can be started, `answering` is dropped, which answers the question.
        let spawned = self.env.spawn(
            "farcall-resolve",
            Box::new(move || {
                let found = guard::run(|| match &place {
                    Place::Host(host, port) => env.resolve(host.as_str(), *port),
                    Place::Service(_) if !env.has_dns() => {
                        Err(io::Error::new(io::ErrorKind::NotFound, "there is no DNS in the simulation"))
                    }
                    Place::Service(service) => resolve_service(service, |name| env.variable(name)),
                });
                if let Ok(found) = found {
                    answering.find(usable(&place, found));
                }
            }),
        );
        spawned.map_err(|why| CallFailed::local("starting a thread", why))?;
        Ok(question)
    }
}

/// Returns the resolved addresses, except addresses that no server can have.
fn usable(place: &Place, found: std::io::Result<Vec<SocketAddr>>) -> Answer {
    let unknown = |why: &str| CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("{place}: {why}"));
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

/// Returns whether this is a link-local address with a link (network interface), as in this host's own
/// configuration.
fn is_scoped(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0 && v6.ip().is_unicast_link_local())
}

#[cold]
fn unresolved(place: &Place) -> CallFailed {
    CallFailed::new(Kind::Unreachable, Ran::No).because(format!("the name of {place} is not resolved so far"))
}
