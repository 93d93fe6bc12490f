//! Watches the keys of a runtime: reads changed files, and ends the conversations with clients and servers
//! that are no longer accepted.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use farcall_keys::{Grant, Right, Scope, Terms};

use super::{Inner, State};
use crate::client::Endpoint;
use crate::env::Env;
use crate::keys::Trusting;
use crate::server::Server;
use crate::shm::{Host, Link, Offers, Watcher};
use crate::{CallFailed, Keys};

/// How long it takes at most until changed keys are noticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long it takes at most until an expired key is noticed.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

/// What uses a runtime's keys.
pub(super) struct Users {
    /// The sockets from which it calls.
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    /// The connections by which it calls through shared memory.
    pub(super) links: Vec<Arc<Link>>,
    /// Knows whose memory it has mapped.
    pub(super) watcher: Option<Arc<Watcher>>,
    /// Its server, if it has one yet, and that server's end of shared memory.
    pub(super) server: Option<Arc<Server>>,
    pub(super) host: Option<Host>,
    /// Its segments that others may have mapped.
    pub(super) offers: Arc<Offers>,
}

impl Users {
    /// Ends what clients have that are no longer accepted, and takes memory away that others may not map any
    /// more.
    fn forget_clients(&self, accepted: &Trusting) {
        let Some(server) = &self.server else { return };
        server.forget_revoked(|principal| accepted.still_accepts(principal));
        if let Some(host) = &self.host {
            host.end_forgotten();
        }
        let may = |export, principal: &_, writes| server.may_map(export, Some(principal), writes);
        self.offers.take_from(&**server.env(), may);
    }

    /// Ends what this runtime has of servers that are no longer accepted for it. Their names end first,
    /// because a connection through shared memory that is being made looks whether its conversation still has
    /// them.
    fn forget_servers(&self) {
        self.endpoints.iter().for_each(|endpoint| endpoint.recheck_servers());
        self.links.iter().for_each(|link| link.distrust_if_rejected());
        if let Some(watcher) = &self.watcher {
            watcher.distrust_rejected();
        }
    }
}

impl Inner {
    /// Starts the thread that watches this runtime's keys, if it has keys and no such thread yet.
    pub(super) fn watch_keys(&self, state: &mut State) -> Result<(), CallFailed> {
        let (Some(keys), Some(servers), Some(clients), false) =
            (&self.settings.keys, &self.accepted_servers, &self.accepted_clients, state.watches_keys)
        else {
            return Ok(());
        };
        let inner = self.me.clone();
        let users = move || {
            let inner = inner.upgrade()?;
            let state = inner.lock();
            Some(Users {
                endpoints: state.endpoints.iter().map(|(_, endpoint)| endpoint.clone()).collect(),
                links: state.links.iter().filter_map(|(_, link)| link.upgrade()).collect(),
                watcher: state.watcher.clone(),
                server: state.server.clone(),
                host: state.host.clone(),
                offers: inner.offers.clone(),
            })
        };
        watch(keys, &self.env, (servers, clients), users)
            .map_err(|why| CallFailed::local("starting a thread", why))?;
        state.watches_keys = true;
        Ok(())
    }
}

/// Starts the thread that watches the keys. `servers` and `clients` are those that this runtime has accepted.
/// `users` returns `None` when the runtime is gone, and then the thread ends.
fn watch(
    keys: &Keys,
    env: &Arc<dyn Env>,
    (servers, clients): (&Arc<Trusting>, &Arc<Trusting>),
    users: impl Fn() -> Option<Users> + Send + 'static,
) -> io::Result<()> {
    let (keys, of_thread) = (keys.clone(), env.clone());
    let (servers, clients) = (servers.clone(), clients.clone());
    let look = move || {
        let (event, mut generation) = (of_thread.event(), keys.generation());
        let (mut checked, mut expired) = (of_thread.now(), HashSet::new());
        while let Some(of_keys) = users() {
            keys.reload().iter().for_each(|what| of_thread.say(what));
            let keyring = keys.keyring();
            for grant in expired_grants(keyring.grants(), of_thread.unix_seconds()) {
                if expired.insert((grant.authority(), grant.terms().serial)) {
                    let Terms { principal, rights, scope, serial, .. } = grant.terms();
                    of_thread.say(&format!(
                        "this end's own grant {serial}, by which {principal} may {rights} {scope}, has expired: \
                         others refuse it now; ask the authority for a new one (`farcall keys grant`)"
                    ));
                }
            }
            let now = of_thread.now();
            if now.since(checked) >= EXPIRE_EVERY {
                checked = now;
                keys.decide_anew();
            }
            let has_changed = std::mem::replace(&mut generation, keys.generation()) != generation;
            if clients.look_for_expired() || has_changed {
                of_keys.forget_clients(&clients);
            }
            if servers.look_for_expired() || has_changed {
                of_keys.forget_servers();
            }
            drop(of_keys);
            event.wait(Some(LOOK_EVERY));
        }
    };
    env.spawn("farcall-keys", Box::new(look))
}

/// Returns the grants that have expired, unless another one that counts still gives the same principal what
/// they gave.
fn expired_grants(grants: &[Grant], now: u64) -> impl Iterator<Item = &Grant> {
    let has_rights = |by: &Terms, of: &Terms| {
        [Right::Export, Right::Import].iter().all(|right| by.rights.has(*right) || !of.rights.has(*right))
    };
    let has_scope = |by: &Terms, of: &Terms| by.scope == of.scope || by.scope == Scope::any();
    let succeeds = move |by: &Terms, of: &Terms| {
        by.expires > now && by.principal == of.principal && has_rights(by, of) && has_scope(by, of)
    };
    let has_successor = move |of: &Grant| grants.iter().any(|by| succeeds(by.terms(), of.terms()));
    grants.iter().filter(move |grant| grant.terms().expires <= now && !has_successor(grant))
}

#[cfg(test)]
mod tests {
    use farcall_keys::{Identity, Rights};

    use super::*;

    #[test]
    fn a_grant_that_has_expired_is_told_of_unless_another_one_gives_the_same() {
        let told = |others: &[(&str, Rights, &str, u64)]| {
            let first = ("store", Rights::EXPORT, "Store/a", 10);
            let all = [first].into_iter().chain(others.iter().copied()).enumerate();
            let grants: Vec<Grant> = all
                .map(|(serial, (principal, rights, scope, expires))| {
                    let (principal, scope) = (principal.parse().unwrap(), scope.parse().unwrap());
                    let key = Identity::from_entropy([1; 32]).public();
                    let serial = serial as u64;
                    let terms = Terms { key, principal, rights, scope, serial, expires };
                    Identity::from_entropy([2; 32]).grant(terms).unwrap()
                })
                .collect();
            expired_grants(&grants, 10).map(|grant| grant.terms().serial).collect::<Vec<_>>()
        };
        assert_eq!(told(&[]), [0]);
        assert!(told(&[("store", Rights::EXPORT, "Store/a", 11)]).is_empty());
        assert!(told(&[("store", Rights::BOTH, "*", 11)]).is_empty());
        assert_eq!(told(&[("store", Rights::EXPORT, "Store/a", 10)]), [0, 1]);
        assert_eq!(told(&[("store", Rights::IMPORT, "Store/a", 11)]), [0]);
        assert_eq!(told(&[("store", Rights::EXPORT, "Store/b", 11)]), [0]);
        assert_eq!(told(&[("other", Rights::EXPORT, "Store/a", 11)]), [0]);
    }
}
