//! Watches the keys of a runtime: reads changed files, and ends the conversations of clients that are no longer
//! accepted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::say;
use crate::Keys;
use crate::env::Env;
use crate::keys::Trusting;
use crate::server::Server;

/// How long it takes at most until changed keys are noticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long it takes at most until an expired key is noticed.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

/// Starts the thread that watches the keys. `server` returns the runtime's server if it has one yet, and `None`
/// when the runtime is gone; then the thread ends.
pub(super) fn watch(
    keys: &Keys,
    env: &Arc<dyn Env>,
    server: impl Fn() -> Option<Option<Arc<Server>>> + Send + 'static,
) -> io::Result<()> {
    let (keys, trust, of_thread) = (keys.clone(), Trusting::of_server(keys, env), env.clone());
    let look = move || {
        let (event, mut generation) = (of_thread.event(), keys.generation());
        let mut checked = of_thread.now();
        while let Some(server) = server() {
            if let Some(fault) = keys.reload() {
                say(&format!("the keys that were read last go on: {fault}"));
            }
            let now = of_thread.now();
            if now.since(checked) >= EXPIRE_EVERY {
                checked = now;
                keys.decide_anew();
            }
            if keys.generation() != generation {
                generation = keys.generation();
                if let Some(server) = &server {
                    server.forget_revoked(|principal| trust.still_accepts(principal));
                }
            }
            drop(server);
            event.wait(Some(LOOK_EVERY));
        }
    };
    env.spawn("farcall-keys", Box::new(look))
}
