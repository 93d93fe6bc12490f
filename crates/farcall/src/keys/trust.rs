//! Answers the protocol's questions about keys.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use farcall_keys::Right;
use farcall_proto::secure::{Accepted, Trust};
use zeroize::Zeroizing;

use super::Keys;
use crate::env::Env;
use crate::{Principal, lock};

/// The keys of a runtime, as the protocol asks for them.
pub(crate) struct Trusting {
    keys: Keys,
    env: Arc<dyn Env>,
    /// What this end does with the other: a client imports, a server exports.
    right: Right,
    /// The servers that were accepted, by their keys.
    servers: Mutex<HashMap<[u8; 32], Names>>,
}

/// A server that was accepted: for which names, and why. There are as many as this program has asked for.
type Names = HashMap<Box<[u8]>, farcall_keys::Principal>;

impl Trusting {
    pub(crate) fn of_client(keys: &Keys, env: &Arc<dyn Env>) -> Arc<Trusting> {
        Arc::new(Trusting::new(keys, env, Right::Import))
    }

    pub(crate) fn of_server(keys: &Keys, env: &Arc<dyn Env>) -> Arc<Trusting> {
        Arc::new(Trusting::new(keys, env, Right::Export))
    }

    fn new(keys: &Keys, env: &Arc<dyn Env>, right: Right) -> Trusting {
        Trusting { keys: keys.clone(), env: env.clone(), right, servers: Mutex::default() }
    }

    /// Returns the keys of the servers that are no longer accepted for every name for which they were. They
    /// have to show again that they may answer.
    pub(crate) fn rejected_servers(&self) -> HashSet<[u8; 32]> {
        let mut servers = lock(&self.servers);
        let (keyring, now) = (self.keys.keyring(), self.env.unix_seconds());
        let stands = |server: &farcall_keys::Principal| keyring.still_stands(server, now).is_ok();
        servers.extract_if(|_, names| !names.values().all(stands)).map(|(key, _)| key).collect()
    }

    /// Returns a server that was accepted for this name, and why it was.
    pub(crate) fn server(&self, key: &[u8; 32], name: &str) -> Option<farcall_keys::Principal> {
        lock(&self.servers).get(key)?.get(name.as_bytes()).cloned()
    }

    /// Returns whether a client's key is still accepted.
    pub(crate) fn still_accepts(&self, principal: &Principal) -> bool {
        self.recall(&principal.key).is_ok()
    }
}

impl std::fmt::Debug for Trusting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.keys.fmt(f)
    }
}

impl Trust for Trusting {
    fn private_key(&self) -> Zeroizing<[u8; 32]> {
        self.keys.keyring().identity().exchange_secret()
    }

    fn presentation(&self, name: &[u8]) -> Vec<u8> {
        let (type_name, instance) = parts(name);
        self.keys.keyring().presentation(type_name, instance, self.right)
    }

    fn accept_server(&self, name: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        let (type_name, instance) = parts(name);
        loop {
            let generation = self.keys.generation();
            let now = self.env.unix_seconds();
            let server = self.keys.keyring().check_server(type_name, instance, presentation, now);
            let server = server.map_err(|why| why.to_string())?;
            let mut servers = lock(&self.servers);
            // If the keys have changed since, `rejected_servers` may have been called already, and would miss
            // a server that the former keys accepted.
            if self.keys.generation() != generation {
                continue;
            }
            let principal = Principal { name: server.name.clone(), key: *server.key.as_bytes() };
            let key = server.key.exchange_key();
            servers.entry(principal.key).or_default().insert(name.into(), server);
            return Ok(Accepted { key, principal: Arc::new(principal) });
        }
    }

    fn stands(&self, server: &Principal) -> bool {
        lock(&self.servers).contains_key(&server.key)
    }

    fn accept_client(&self, key: &[u8; 32], presentation: &[u8]) -> Result<Vec<u8>, String> {
        let now = self.env.unix_seconds();
        let client =
            self.keys.keyring().check_client(key, presentation, now).map_err(|why| why.to_string())?;
        let facts = client.key.as_bytes().to_vec();
        self.keys.remember(client);
        Ok(facts)
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        let key: &[u8; 32] = facts.try_into().map_err(|_| "the ticket names no key")?;
        let client = self.keys.client(key).ok_or("the client is not remembered")?;
        let now = self.env.unix_seconds();
        self.keys.keyring().still_stands(&client.shown, now).map_err(|why| why.to_string())?;
        Ok(client.principal.clone())
    }

    fn agreed(&self, line: &dyn Fn() -> Zeroizing<String>) {
        self.keys.log(line);
    }

    fn entropy(&self, out: &mut [u8]) {
        self.env.entropy(out);
    }
}

/// Returns the type and the instance of a name as it is in a question. Either may be empty.
fn parts(name: &[u8]) -> (&str, &str) {
    let name = std::str::from_utf8(name).unwrap_or_default();
    name.split_once('/').unwrap_or((name, ""))
}
