//! Decides whether an import may be bound to another server than before. A binding breaks when its server
//! crashes (Birrell & Nelson 1984, section 2.3). An application that keeps state at the server must know that
//! before it calls again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use super::bind::Target;
use crate::stub::{Restart, RestartHook};
use crate::{CallFailed, Kind, Ran, guard, lock};

/// The server that an import may be bound to. Without a hook the import may be bound to any server.
#[derive(Default)]
pub(super) struct Restarts {
    hook: OnceLock<RestartHook>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The server that the import was bound to last.
    known: Option<Server>,
    /// Another server, which was found and which the application has not accepted.
    found: Option<Server>,
}

/// A server: the export's number, which no other export has, and its address.
type Server = (u64, SocketAddr);

impl Restarts {
    /// Sets the hook, once. `bound` is the server that the import is bound to.
    ///
    /// # Errors
    /// When a hook was set before.
    pub(super) fn set(&self, hook: RestartHook, bound: Option<Arc<Target>>) -> Result<(), CallFailed> {
        let mut state = lock(&self.state);
        let why = "the import already has a hook for restarts";
        self.hook.set(hook).map_err(|_| CallFailed::new(Kind::Local, Ran::No).because(why))?;
        state.known = bound.map(|target| (target.export, target.address));
        Ok(())
    }

    /// Fails while the application has not accepted another server that was found.
    pub(super) fn check(&self) -> Result<(), CallFailed> {
        let refused = self.hook.get().is_some() && lock(&self.state).found.is_some();
        if refused { Err(restarted()) } else { Ok(()) }
    }

    /// Lets the import be bound to `target` if that is the server from before. If it is another server, calls
    /// the hook, once. The hook is the user's code, and may block.
    ///
    /// # Errors
    /// When `target` is another server.
    pub(super) fn admit(&self, target: &Target) -> Result<(), CallFailed> {
        let Some(hook) = self.hook.get() else { return Ok(()) };
        let now = (target.export, target.address);
        let was = {
            let mut state = lock(&self.state);
            let known = *state.known.get_or_insert(now);
            if known == now {
                return Ok(());
            }
            if state.found.is_some() {
                return Err(restarted());
            }
            state.found = Some(now);
            known
        };
        let state = self.state.clone();
        // The application may keep a `Restart` and accept it late. If yet another server has been found by
        // then, that server is not accepted.
        let accept = move || {
            let mut state = lock(&state);
            if state.found.take_if(|found| *found == now).is_some() {
                state.known = Some(now);
            }
        };
        let restart = Restart::new(was.1, target.address, Arc::new(accept));
        guard::run_alone("a hook for restarts", || hook(restart));
        Err(restarted())
    }
}

fn restarted() -> CallFailed {
    let why = "another server has taken the place of the former one, and the application has not accepted it";
    CallFailed::new(Kind::ServerRestarted, Ran::No).because(why)
}
