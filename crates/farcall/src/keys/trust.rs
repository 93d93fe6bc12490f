//! Answers the protocol's questions about keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use farcall_core::Evidence;
use farcall_keys::{Decision, Right};
use farcall_proto::secure::{Accepted, Trust};
use zeroize::Zeroizing;

use super::Keys;
use super::clients::Clients;
use super::expiries::Expiries;
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
    /// When the grants of the other ends expire.
    expiries: Expiries,
    /// What each key of a server has shown last: only a fault asks for it.
    last: Mutex<HashMap<[u8; 32], Arc<farcall_keys::Principal>>>,
}

impl Trusting {
    pub(crate) fn of_client(keys: &Keys, env: &Arc<dyn Env>) -> Arc<Trusting> {
        Arc::new(Trusting::new(keys, env, Right::Import))
    }

    pub(crate) fn of_server(keys: &Keys, env: &Arc<dyn Env>) -> Arc<Trusting> {
        Arc::new(Trusting::new(keys, env, Right::Export))
    }

    fn new(keys: &Keys, env: &Arc<dyn Env>, right: Right) -> Trusting {
        let (keys, env, clients) = (keys.clone(), env.clone(), Clients::new(keys.mutant()));
        Trusting { keys, env, right, clients, expiries: Expiries::new(), last: Mutex::default() }
    }

    /// Returns whether a client is still accepted for what it has shown in its conversation.
    pub(crate) fn still_accepts(&self, client: &Principal) -> bool {
        self.client_stands(client).is_ok() || self.keys.mutant().breaks(Rule::ConversationRechecked)
    }

    /// Checks that a client is still accepted for what it has shown, and notes when that expires.
    fn client_stands(&self, client: &Principal) -> Result<(), String> {
        let shown = self.clients.shown_by(client).ok_or("the client has shown nothing")?;
        self.stands_as_shown(&shown)
    }

    /// Checks that an end is still accepted for what it has shown, and notes when that expires.
    fn stands_as_shown(&self, shown: &farcall_keys::Principal) -> Result<(), String> {
        let now = self.env.unix_seconds();
        self.keys.keyring().still_stands(shown, now).map_err(|why| why.to_string())?;
        self.expiries.expect(shown.next_expiry(now));
        Ok(())
    }

    /// Returns whether a grant may have expired by which a conversation is open. If so, the caller looks at
    /// all conversations.
    pub(crate) fn look_for_expired(&self) -> bool {
        self.expiries.are_due(self.env.unix_seconds())
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
        self.expiries.looked()
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

    fn presentation_for(&self, names: &[&[u8]]) -> Vec<u8> {
        let names: Vec<(&str, &str)> = names.iter().map(|name| parts(name)).collect();
        self.keys.keyring().presentation_for(&names, self.right)
    }

    fn accept_server(&self, name: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        let (type_name, instance) = parts(name);
        let now = self.env.unix_seconds();
        let server = self.keys.keyring().check_server(type_name, instance, presentation, now);
        let server = Arc::new(server.map_err(|why| why.to_string())?);
        let (key, digest) = (server.key.exchange_key(), server.digest());
        let principal = Principal::new(server.name.clone(), *server.key.as_bytes());
        if self.keys.mutant().breaks(Rule::ServerOfConversation) {
            lock(&self.last).insert(principal.key, server.clone());
        }
        let principal = principal.with_evidence(Evidence::new(server, digest));
        Ok(Accepted { key, principal: Arc::new(principal) })
    }

    fn stands(&self, server: &Principal) -> bool {
        let mutant = self.keys.mutant();
        if mutant.breaks(Rule::ServerOfConversation) {
            let last = lock(&self.last).get(&server.key).cloned();
            return last.is_some_and(|last| self.stands_as_shown(&last).is_ok());
        }
        let shown = server_shown_by(server);
        shown.is_some_and(|shown| self.stands_as_shown(shown).is_ok()) || mutant.breaks(Rule::ServerRechecked)
    }

    fn accept_client(&self, key: &[u8; 32], presentation: &[u8]) -> Result<Vec<u8>, String> {
        let now = self.env.unix_seconds();
        let client =
            self.keys.keyring().check_client(key, presentation, now).map_err(|why| why.to_string())?;
        Ok(self.clients.judged(client))
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        let client = self.clients.find(facts).ok_or("the client is not remembered")?;
        self.client_stands(&client)?;
        Ok(client)
    }

    fn proven(&self, client: &Arc<Principal>) {
        self.clients.proven(client);
        // The conversation begins now, and ends with the grant also if that expires at once.
        let shown = self.clients.shown_by(client);
        shown.iter().for_each(|shown| self.expiries.expect(shown.next_expiry(self.env.unix_seconds())));
    }

    fn agreed(&self, line: &dyn Fn() -> Zeroizing<String>) {
        self.keys.log(line);
    }

    fn entropy(&self, out: &mut [u8]) {
        self.env.entropy(out);
    }
}

/// Returns what a server has shown that was accepted by [`Trusting`].
pub(crate) fn server_shown_by(server: &Principal) -> Option<&farcall_keys::Principal> {
    server.evidence()?.judged::<farcall_keys::Principal>()
}

/// Returns the type and the instance of a name as it is in a question. Either may be empty.
fn parts(name: &[u8]) -> (&str, &str) {
    let name = std::str::from_utf8(name).unwrap_or_default();
    name.split_once('/').unwrap_or((name, ""))
}
