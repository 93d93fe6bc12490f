//! The services of a simulated network that processes ask: the registry, and the resolver of hosts' names.
//! Both can fall silent, and the registry can end.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::names::{Error, Result};

/// How often a question looks whether it is answered now.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Services(Mutex<State>);

#[derive(Default)]
struct State {
    hosts: BTreeMap<String, Vec<IpAddr>>,
    registry_is_silent: bool,
    /// Whether each question fails at once.
    registry_has_ended: bool,
    /// Whether the registry ends questions that have a time when that is over. Otherwise they wait on.
    ignores_deadlines: bool,
    resolver_is_silent: bool,
}

impl Services {
    pub(super) fn name_host(&self, name: &str, addresses: Vec<IpAddr>) {
        self.lock().hosts.insert(name.to_owned(), addresses);
    }

    pub(super) fn silence_registry(&self, silent: bool, ignores_deadlines: bool) {
        let mut state = self.lock();
        state.registry_is_silent = silent;
        state.ignores_deadlines = ignores_deadlines;
    }

    pub(super) fn end_registry(&self, ended: bool) {
        self.lock().registry_has_ended = ended;
    }

    pub(super) fn keeps_deadlines(&self) -> bool {
        !self.lock().ignores_deadlines
    }

    pub(super) fn silence_resolver(&self, silent: bool) {
        self.lock().resolver_is_silent = silent;
    }

    /// Waits by `sleep` until the registry answers, for `within` at most.
    ///
    /// # Errors
    /// The time is over, or the registry has ended.
    pub(super) fn ask_registry(&self, within: Option<Duration>, sleep: impl Fn(Duration)) -> Result<()> {
        let mut left = within.filter(|_| self.keeps_deadlines());
        let unavailable = |why: &str| {
            let (registry, why) = ("the simulated one".to_owned(), why.to_owned());
            Err(Error::Unavailable { registry, why })
        };
        if self.lock().registry_has_ended {
            return unavailable("it has ended");
        }
        while self.lock().registry_is_silent {
            let pause = left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY));
            if pause.is_zero() {
                return unavailable("it is silent");
            }
            sleep(pause);
            left = left.map(|left| left - pause);
        }
        Ok(())
    }

    /// Waits by `sleep` until the resolver answers. Returns the addresses of a host.
    pub(super) fn resolve(&self, host: &str, port: u16, sleep: impl Fn(Duration)) -> Option<Vec<SocketAddr>> {
        while self.lock().resolver_is_silent {
            sleep(LOOK_EVERY);
        }
        let state = self.lock();
        Some(state.hosts.get(host)?.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
