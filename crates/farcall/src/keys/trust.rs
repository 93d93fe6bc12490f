//! Answers the protocol's questions about keys.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use farcall_keys::{Decision, Right};
use farcall_proto::secure::{Accepted, Trust};
use zeroize::Zeroizing;

use super::Keys;
use super::clients::Clients;
use super::mutant::Rule;
use crate::env::Env;
use crate::{Principal, lock};

/// The keys of a runtime, as the protocol asks for them.
pub(crate) struct Trusting {
    keys: Keys,
    env: Arc<dyn Env>,
    /// What this end does with the other: a client imports, a server exports.
    right: Right,
    /// The clients that were accepted.
    clients: Clients,
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
        let (keys, env, clients) = (keys.clone(), env.clone(), Clients::new(keys.mutant()));
        Trusting { keys, env, right, clients, servers: Mutex::default() }
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

    /// Returns whether a client is still accepted for what it has shown in its conversation.
    pub(crate) fn still_accepts(&self, client: &Principal) -> bool {
        let Ok(next_expiry) = self.stands_as_shown(client) else {
            return self.keys.mutant().breaks(Rule::ConversationRechecked);
        };
        self.clients.expect_expiry(next_expiry);
        true
    }

    /// Checks that a client is still accepted for what it has shown. Returns when the next of its grants
    /// expires, in Unix seconds.
    fn stands_as_shown(&self, client: &Principal) -> Result<u64, String> {
        let (now, shown) = (self.env.unix_seconds(), self.clients.shown_by(client));
        let shown = shown.ok_or("the client has shown nothing")?;
        self.keys.keyring().still_stands(&shown, now).map_err(|why| why.to_string())?;
        Ok(shown.next_expiry(now))
    }

    /// Returns whether a grant may have expired by which a conversation of a client is open. If so, the
    /// caller asks [`Trusting::still_accepts`] of the clients of all conversations.
    pub(crate) fn look_for_expired_clients(&self) -> bool {
        let is_due = self.clients.look_for_expired(self.env.unix_seconds());
        if is_due {
            self.clients.forget_expiries();
        }
        is_due
    }

    /// Returns a client's rights with an export, and when they have to be asked for again at the latest, in
    /// Unix seconds.
    pub(super) fn decide(
        &self,
        client: &Principal,
        (type_name, instance): (&str, &str),
    ) -> (Result<Decision, String>, u64) {
        let Some(shown) = self.clients.shown_by(client) else {
            return (Err("the caller has shown nothing".to_owned()), u64::MAX);
        };
        let (keyring, now) = (self.keys.keyring(), self.env.unix_seconds());
        let decision = keyring.still_admits(&shown, type_name, instance, now);
        (decision.map_err(|why| why.to_string()), shown.next_expiry(now))
    }

    /// Returns the time when expired grants were last looked for, in Unix seconds.
    #[inline]
    pub(super) fn looked(&self) -> u64 {
        self.clients.looked()
    }

    /// Returns the keys by which this decides.
    #[inline]
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
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
            let principal = Principal::new(server.name.clone(), *server.key.as_bytes());
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
        Ok(self.clients.judged(client))
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        let client = self.clients.find(facts).ok_or("the client is not remembered")?;
        self.stands_as_shown(&client)?;
        Ok(client)
    }

    fn proven(&self, client: &Arc<Principal>) {
        self.clients.proven(client, self.env.unix_seconds());
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
