//! The clients of a server with keys: what each has shown, from which its conversations' rights follow.
//!
//! A key can have several grants, and show others in each conversation. So nothing here is looked up by a
//! key: a conversation's principal holds what that conversation has shown, and a ticket names it by a digest.
//!
//! A client's first message proves nothing, because anybody on the path can repeat it. What it shows is
//! judged and waits until the client proves itself by the first datagram of the conversation. Meanwhile no
//! other conversation depends on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use farcall_core::Evidence;

use super::mutant::{Mutant, Rule};
use crate::{Principal, lock};

/// The digest of what a client has shown, which a ticket holds.
type Facts = [u8; 32];

/// The maximum number of clients that have proven themselves and are remembered, each once for everything
/// that it has shown. A client that was forgotten makes a handshake again.
const MAX_PROVEN: usize = 1 << 17;

/// The maximum number of clients that have not proven themselves yet and are remembered. A server computes at
/// most 2,240 handshakes a second, so a client has at least some seconds to go on.
const MAX_UNPROVEN: usize = 1 << 13;

/// The clients of one runtime's server.
pub(super) struct Clients {
    known: Mutex<Known>,
    mutant: Mutant,
    /// What each key has shown last: only a fault asks for it.
    last: Mutex<HashMap<[u8; 32], farcall_keys::Principal>>,
}

struct Known {
    proven: Recent,
    unproven: Recent,
}

/// Principals by what they have shown. The oldest is forgotten when there are too many.
struct Recent {
    of: HashMap<Facts, Arc<Principal>>,
    /// The facts in the order in which they came, and perhaps some that were taken out.
    order: VecDeque<Facts>,
    most: usize,
}

impl Clients {
    pub(super) fn new(mutant: Mutant) -> Clients {
        let known = Known { proven: Recent::new(MAX_PROVEN), unproven: Recent::new(MAX_UNPROVEN) };
        Clients { known: Mutex::new(known), mutant, last: Mutex::default() }
    }

    /// Keeps what a client has shown until it proves itself, and returns the facts for its ticket. Changes
    /// nothing that is known of clients that have.
    pub(super) fn judged(&self, client: farcall_keys::Principal) -> Vec<u8> {
        let facts = client.digest();
        if self.mutant.breaks(Rule::NothingBeforeProof) {
            lock(&self.last).insert(*client.key.as_bytes(), client.clone());
        }
        let mut known = lock(&self.known);
        if !known.proven.of.contains_key(&facts) && !known.unproven.of.contains_key(&facts) {
            let principal = Principal::new(client.name.clone(), *client.key.as_bytes());
            let evidence = Evidence::new(Arc::new(client), facts);
            known.unproven.insert(facts, Arc::new(principal.with_evidence(evidence)));
        }
        facts.to_vec()
    }

    /// Returns the client that has shown what a ticket names.
    pub(super) fn find(&self, facts: &[u8]) -> Option<Arc<Principal>> {
        let known = lock(&self.known);
        [&known.proven, &known.unproven].into_iter().find_map(|known| known.of.get(facts).cloned())
    }

    /// Notes that a client has proven itself, and begins a conversation.
    pub(super) fn proven(&self, principal: &Arc<Principal>) {
        let Some(facts) = principal.evidence().map(Evidence::digest) else { return };
        let mut known = lock(&self.known);
        known.unproven.of.remove(&facts);
        if !known.proven.of.contains_key(&facts) {
            known.proven.insert(facts, principal.clone());
        }
    }

    /// Returns what a client has shown in its conversation.
    pub(super) fn shown_by(&self, principal: &Principal) -> Option<farcall_keys::Principal> {
        if self.mutant.breaks(Rule::NothingBeforeProof) {
            return lock(&self.last).get(&principal.key).cloned();
        }
        principal.evidence()?.judged().cloned()
    }
}

impl Recent {
    fn new(most: usize) -> Recent {
        Recent { of: HashMap::new(), order: VecDeque::new(), most }
    }

    fn insert(&mut self, facts: Facts, principal: Arc<Principal>) {
        while self.order.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.of.remove(&oldest);
        }
        self.order.push_back(facts);
        self.of.insert(facts, principal);
    }
}

#[cfg(test)]
mod tests {
    use farcall_keys::{Identity, Keyring};

    use super::*;

    fn client(byte: u8, name: &str) -> farcall_keys::Principal {
        let key = Identity::from_entropy([byte; 32]);
        let line = format!("{} {name}", key.public()).parse().unwrap();
        let keyring = Keyring::new(Identity::from_entropy([0; 32])).with_authorized_key(line).unwrap();
        let shown = Keyring::new(key).presentation("", "", farcall_keys::Right::Import);
        let exchange = Identity::from_entropy([byte; 32]).public().exchange_key();
        keyring.check_client(&exchange, &shown, 0).unwrap()
    }

    #[test]
    fn what_is_shown_again_changes_nothing_and_takes_nobody_s_place() {
        let clients = Clients::new(Mutant::default());
        let facts = clients.judged(client(1, "one"));
        let principal = clients.find(&facts).unwrap();
        clients.proven(&principal);
        for _ in 0..3 {
            assert_eq!(clients.judged(client(1, "one")), facts);
            assert!(Arc::ptr_eq(&clients.find(&facts).unwrap(), &principal));
        }
        let known = lock(&clients.known);
        assert_eq!((known.unproven.of.len(), known.proven.order.len()), (0, 1));
    }

    #[test]
    fn clients_that_prove_nothing_take_the_places_of_their_like_alone() {
        let known = client(1, "known");
        let clients = Clients::new(Mutant::default());
        let facts = clients.judged(known);
        clients.proven(&clients.find(&facts).unwrap());
        let unproven: Vec<Vec<u8>> = (2..=20).map(|byte| clients.judged(client(byte, "new"))).collect();
        lock(&clients.known).unproven.most = 4;
        let last = clients.judged(client(21, "new"));
        assert!(clients.find(&facts).is_some() && clients.find(&last).is_some());
        let left = unproven.iter().filter(|facts| clients.find(facts).is_some()).count();
        assert_eq!((left, lock(&clients.known).unproven.of.len()), (3, 4));
    }
}
