//! Keys for tests: an end shows its public key, and accepts the keys that it is told to accept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;

use farcall_base::{Evidence, Principal};
use farcall_crypto::public_key;
use farcall_proto::secure::{Accepted, Trust};
use farcall_proto::{ClientConfig, ServerConfig};
use zeroize::Zeroizing;

/// The private keys of the client and the server.
pub const CLIENT: [u8; 32] = [3; 32];
pub const SERVER: [u8; 32] = [4; 32];

#[derive(Debug)]
pub struct TestTrust {
    private: [u8; 32],
    /// The accepted public keys.
    pub accepted: Mutex<BTreeSet<[u8; 32]>>,
    /// The only name that a server with this public key may answer for, besides the empty one.
    pub names: Mutex<BTreeMap<[u8; 32], Vec<u8>>>,
    /// The grant that this end shows for a name, if it shows one: a number.
    pub grants: Mutex<BTreeMap<&'static [u8], u8>>,
    /// The grants that were revoked.
    pub revoked: Mutex<BTreeSet<u8>>,
    /// The name for which no server is accepted.
    pub forbidden: Mutex<&'static str>,
    /// How many random numbers were asked for. They follow from this number.
    drawn: Mutex<u64>,
    /// How many handshakes were computed.
    pub handshakes: Mutex<u64>,
    /// How often a client's presentation was looked at.
    pub looked: Mutex<u64>,
    /// The names that each handshake of a client was made for, joined by commas.
    pub shown_for: Mutex<Vec<String>>,
    /// The log of secrets, a line for each conversation.
    pub log: Mutex<Vec<String>>,
}

impl TestTrust {
    pub fn new(private: [u8; 32], accepted: &[[u8; 32]]) -> Arc<TestTrust> {
        Arc::new(TestTrust {
            private,
            accepted: Mutex::new(accepted.iter().map(public_key).collect()),
            names: Mutex::default(),
            grants: Mutex::default(),
            revoked: Mutex::default(),
            forbidden: Mutex::new("Forbidden"),
            drawn: Mutex::new(0),
            handshakes: Mutex::new(0),
            looked: Mutex::new(0),
            shown_for: Mutex::default(),
            log: Mutex::default(),
        })
    }

    fn accepts(&self, key: [u8; 32]) -> Result<Arc<Principal>, String> {
        match self.accepted.lock().unwrap().contains(&key) {
            true => Ok(Arc::new(Principal::new("somebody", key))),
            false => Err(format!("key {:02x}{:02x} is not accepted", key[0], key[1])),
        }
    }
}

impl Trust for TestTrust {
    fn private_key(&self) -> Zeroizing<[u8; 32]> {
        *self.handshakes.lock().unwrap() += 1;
        Zeroizing::new(self.private)
    }

    fn presentation(&self, name: &[u8]) -> Vec<u8> {
        let mut shown = public_key(&self.private).to_vec();
        shown.extend(self.grants.lock().unwrap().get(name));
        shown
    }

    fn presentation_for(&self, names: &[&[u8]]) -> Vec<u8> {
        let joined = names.join(&b',');
        self.shown_for.lock().unwrap().push(String::from_utf8(joined).unwrap());
        self.presentation(names[0])
    }

    fn accept_server(&self, name: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        if name == self.forbidden.lock().unwrap().as_bytes() {
            return Err("no key is granted for this name".into());
        }
        let (key, grant) = presentation.split_first_chunk::<32>().ok_or("no key of 32 bytes")?;
        let (key, grant) = (*key, grant.first().copied().unwrap_or_default());
        let names = self.names.lock().unwrap();
        if names.get(&key).is_some_and(|only| !name.is_empty() && name != only) {
            return Err("the key is for another name".into());
        }
        if self.revoked.lock().unwrap().contains(&grant) {
            return Err("the grant was revoked".into());
        }
        let principal = self.accepts(key)?.as_ref().clone();
        let principal = principal.with_evidence(Evidence::new(Arc::new(grant), [grant; 32]));
        Ok(Accepted { key, principal: Arc::new(principal) })
    }

    fn stands(&self, server: &Principal) -> bool {
        let grant = server.evidence().and_then(|shown| shown.judged::<u8>().copied());
        let is_revoked = grant.is_some_and(|grant| self.revoked.lock().unwrap().contains(&grant));
        self.accepts(server.key).is_ok() && !is_revoked
    }

    fn accept_client(&self, key: &[u8; 32], _: &[u8]) -> Result<Vec<u8>, String> {
        *self.looked.lock().unwrap() += 1;
        self.accepts(*key)?;
        Ok(key.to_vec())
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        self.accepts(facts.try_into().map_err(|_| "no key of 32 bytes")?)
    }

    fn agreed(&self, line: &dyn Fn() -> Zeroizing<String>) {
        self.log.lock().unwrap().push(line().to_string());
    }

    fn entropy(&self, out: &mut [u8]) {
        let mut drawn = self.drawn.lock().unwrap();
        *drawn += 1;
        draw(&self.private, *drawn, out);
    }
}

/// Fills `out` with the random bytes that the end with this private key draws, the first, second ... time.
pub fn draw(private: &[u8; 32], nth: u64, out: &mut [u8]) {
    out.fill(private[0]);
    out.iter_mut().zip(nth.to_le_bytes()).for_each(|(byte, nth)| *byte = nth);
}

/// Returns settings of a client that accepts the server.
pub fn client() -> ClientConfig {
    ClientConfig { trust: Some(TestTrust::new(CLIENT, &[SERVER])), ..ClientConfig::default() }
}

/// Returns settings of a server that accepts the client.
pub fn server() -> ServerConfig {
    ServerConfig { trust: Some(TestTrust::new(SERVER, &[CLIENT])), ..ServerConfig::default() }
}
