//! Resolves names of hosts and services, each in a thread of its own, because the system's resolver takes no
//! deadline and cannot be interrupted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use farcall_names::{Name, canonical, resolve_service};

use super::advertise::names_one_host;
use super::place::Place;
use super::{Inner, bind};
use crate::env::Time;
use crate::question::{Answer, Asides, Question};
use crate::{CallFailed, Kind, Ran};

/// The most addresses of one host that are tried.
const MAX_ADDRESSES: usize = 16;

/// The names of hosts and services that are being resolved.
pub(super) type Resolver = Asides<Place, Vec<SocketAddr>>;

impl Inner {
    /// Returns the addresses of a host or a service, in the order in which to try them. Waits until the
    /// deadline, or for the whole patience if there is none.
    pub(super) fn resolve(
        &self,
        name: &Name,
        place: &Place,
        deadline: Option<Time>,
    ) -> Answer<Vec<SocketAddr>> {
        crate::client::may_wait(&self.env)?;
        let until = deadline.unwrap_or_else(|| self.env.now() + self.settings.patience);
        let answer = self.resolution(place, until)?.wait_until(&*self.env, until);
        let late = || if deadline.is_some() { bind::too_late(name) } else { unresolved(place) };
        answer.unwrap_or_else(|| Err(late()))
    }

    /// Returns the addresses of a host or a service, on behalf of a task, which waits without blocking a
    /// thread. Gives up when `over` returns an error.
    pub(super) async fn resolve_later(
        &self,
        place: &Place,
        deadline: Option<Time>,
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Answer<Vec<SocketAddr>> {
        let until = deadline.unwrap_or_else(|| self.env.now() + self.settings.patience);
        self.resolution(place, until)?.wait(over).await
    }

    /// Returns the question for a host or a service that is under way, or starts one.
    fn resolution(&self, place: &Place, until: Time) -> Answer<Arc<Question<Vec<SocketAddr>>>> {
        let stops = match place {
            // The system's resolver does not say when it gives up.
            Place::Host(..) => None,
            Place::Service(_) => Some(until),
        };
        let (env, asked) = (self.env.clone(), place.clone());
        let look_up = move || {
            let found = match &asked {
                Place::Host(host, port) => env.resolve(host.as_str(), *port),
                Place::Service(_) if !env.has_dns() => {
                    Err(io::Error::new(io::ErrorKind::NotFound, "there is no DNS in the simulation"))
                }
                Place::Service(service) => {
                    resolve_service(service, until.since(env.now()), |name| env.variable(name))
                }
            };
            usable(&asked, found)
        };
        self.resolver.ask(&self.env, place, stops, look_up)
    }
}

/// Returns the resolved addresses, except addresses that no server can have.
fn usable(place: &Place, found: std::io::Result<Vec<SocketAddr>>) -> Answer<Vec<SocketAddr>> {
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
