//! Whether an import may be bound to another server than before: an application that keeps state at its server
//! must accept that first (Birrell & Nelson 1984, section 2.4, notes that a binding breaks by a crash).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use super::bind::Target;
use crate::stub::{Restart, RestartHook};
use crate::{CallFailed, Kind, Ran, guard, lock};

/// Which server an import may be bound to. Without a hook it may be bound to any.
#[derive(Default)]
pub(super) struct Restarts {
    hook: OnceLock<RestartHook>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The server that the import was bound to last.
    known: Option<Server>,
    /// Whether another server was found, which the application has not accepted.
    refused: bool,
}

/// A server: the export's number, which no other export has, and its address.
type Server = (u64, SocketAddr);

impl Restarts {
    /// Sets the hook, once. `bound` is the server that the import is bound to.
    ///
    /// # Errors
    /// When a hook was set before.
    pub(super) fn set(&self, hook: RestartHook, bound: Option<Arc<Target>>) -> Result<(), CallFailed> {
        lock(&self.state).known = bound.map(|target| (target.export, target.address));
        let set = self.hook.set(hook);
        set.map_err(|_| CallFailed::new(Kind::Local, Ran::No).because("the import has a hook for restarts"))
    }

    /// Fails while the application has not accepted another server.
    pub(super) fn check(&self) -> Result<(), CallFailed> {
        let refused = self.hook.get().is_some() && lock(&self.state).refused;
        if refused { Err(restarted()) } else { Ok(()) }
    }

    /// Lets the import be bound to a server, if it is the one from before. If it is another one, the hook is
    /// told, once.
    ///
    /// # Errors
    /// When it is another server.
    pub(super) fn admit(&self, target: &Target) -> Result<(), CallFailed> {
        let Some(hook) = self.hook.get() else { return Ok(()) };
        let now = (target.export, target.address);
        let was = {
            let mut state = lock(&self.state);
            let known = *state.known.get_or_insert(now);
            if known == now {
                return Ok(());
            }
            if std::mem::replace(&mut state.refused, true) {
                return Err(restarted());
            }
            known
        };
        let state = self.state.clone();
        let accept = Arc::new(move || *lock(&state) = State::default());
        let restart = Restart::new(was.1, target.address, accept);
        guard::run_alone("a hook for restarts", || hook(restart));
        Err(restarted())
    }
}

fn restarted() -> CallFailed {
    let why = "another server has taken the place of the one from before, and was not accepted yet";
    CallFailed::new(Kind::ServerRestarted, Ran::No).because(why)
}
