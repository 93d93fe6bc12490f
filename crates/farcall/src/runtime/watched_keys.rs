//! Watches the keys of a runtime: reads changed files, and ends the conversations with clients and servers
//! that are no longer accepted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::say;
use crate::Keys;
use crate::client::Endpoint;
use crate::env::Env;
use crate::keys::Trusting;
use crate::server::Server;

/// How long it takes at most until changed keys are noticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long it takes at most until an expired key is noticed.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

/// What uses a runtime's keys: its sockets as a client, and its server if it has one yet.
pub(super) type Users = (Vec<Arc<Endpoint>>, Option<Arc<Server>>);

/// Starts the thread that watches the keys. `servers` are the servers that this runtime has accepted. `users`
/// returns `None` when the runtime is gone, and then the thread ends.
pub(super) fn watch(
    keys: &Keys,
    env: &Arc<dyn Env>,
    servers: &Arc<Trusting>,
    users: impl Fn() -> Option<Users> + Send + 'static,
) -> io::Result<()> {
    let (keys, clients, of_thread) = (keys.clone(), Trusting::of_server(keys, env), env.clone());
    let servers = servers.clone();
    let look = move || {
        let (event, mut generation) = (of_thread.event(), keys.generation());
        let mut checked = of_thread.now();
        while let Some((endpoints, server)) = users() {
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
                    server.forget_revoked(|principal| clients.still_accepts(principal));
                }
                let rejected = servers.rejected_servers();
                if !rejected.is_empty() {
                    endpoints.iter().for_each(|endpoint| endpoint.forget_servers(&rejected));
                }
            }
            drop((endpoints, server));
            event.wait(Some(LOOK_EVERY));
        }
    };
    env.spawn("farcall-keys", Box::new(look))
}
