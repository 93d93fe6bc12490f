//! What a server has shown belongs to its conversation and to the name that was asked for: a server with
//! several grants loses the names of one of them, and nothing else.
#![cfg(feature = "secure")]

mod common;

use std::sync::Arc;

use common::trust::{CLIENT, SERVER, TestTrust, client, server};
use common::*;
use farcall_proto::client::Call;
use farcall_proto::server::{Export, Server};
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig};

/// The second export, and the names of both.
const SECOND: u64 = EXPORT + 1;
const NAMES: [(&str, u64); 2] = [("Store", EXPORT), ("Other", SECOND)];

/// A pair whose client has bound both names, by the grants 1 and 2. `grants` is what the client knows of
/// them.
struct Bound {
    pair: Pair,
    grants: Arc<TestTrust>,
    shows: Arc<TestTrust>,
}

impl Bound {
    fn new() -> Bound {
        let (grants, shows) = (TestTrust::new(CLIENT, &[SERVER]), TestTrust::new(SERVER, &[CLIENT]));
        shows.grants.lock().unwrap().extend([(&b"Store"[..], 1), (b"Other", 2)]);
        let client = ClientConfig { trust: Some(grants.clone()), ..client() };
        let pair = Pair::with(client, ServerConfig { trust: Some(shows.clone()), ..server() });
        let mut bound = Bound { pair, grants, shows };
        bound.export_second();
        NAMES.iter().for_each(|(name, export)| assert_eq!(bound.bind(name), Told::Bound(*export)));
        bound
    }

    fn export_second(&mut self) {
        let procedures = vec![fingerprint(1, 11)];
        let (type_name, instance) = ("Other".into(), "one".into());
        self.pair.server.export(Export { id: SECOND, type_name, instance, procedures });
    }

    /// Puts a server with the same key and exports in the place of the former one, which has ended.
    fn restart(&mut self) {
        let config = ServerConfig { trust: Some(self.shows.clone()), ..server() };
        self.pair.server = Server::new(config, self.pair.now, [8; 32]);
        self.pair.export();
        self.export_second();
    }

    fn bind(&mut self, name: &str) -> Told {
        self.pair.client.bind(self.pair.now, name, 99);
        self.pair.settle();
        self.pair.told.pop().expect("the server answers").1
    }

    fn call(&mut self, export: u64, token: u64) -> Result<(), (Kind, Ran)> {
        let call = Call { export, procedure: 1, token, ..Call::default() };
        let now = self.pair.now;
        let started = self.pair.client.start(|| now, &call, &mut b"call".to_vec());
        started.map(drop).map_err(|why| (why.kind, why.ran))
    }

    /// Revokes a grant, and has the client judge again what the server has shown.
    fn revoke(&mut self, grant: u8) -> bool {
        self.grants.revoked.lock().unwrap().insert(grant);
        self.pair.client.recheck_server(self.pair.now)
    }
}

#[test]
fn a_name_falls_with_the_grant_that_was_shown_for_it_and_the_other_name_goes_on() {
    for (fallen, other) in [(0, 1), (1, 0)] {
        let mut bound = Bound::new();
        let ((name, export), (other_name, other_export)) = (NAMES[fallen], NAMES[other]);
        bound.call(export, 1).unwrap();
        bound.call(other_export, 2).unwrap();
        let sent = bound.pair.sent();
        bound.pair.receive(&sent);
        assert!(bound.revoke(fallen as u8 + 1));
        assert_eq!(bound.pair.client.timeout(), Some(bound.pair.now));
        assert!(!bound.pair.client.recheck_server(bound.pair.now), "nothing else has fallen");
        // The results come before any timer. Only that of the other name counts.
        bound.pair.settle();
        let refused = Told::Failed(Kind::NotPermitted, Ran::Maybe);
        assert_eq!(bound.pair.told, [(1, refused), (2, Told::Result(b"call".to_vec()))]);
        bound.pair.told.clear();
        assert_eq!(bound.call(export, 3), Err((Kind::ServerRestarted, Ran::No)));
        assert_eq!(bound.bind(name), Told::NotBound(Kind::NotPermitted));
        bound.call(other_export, 4).unwrap();
        bound.pair.settle();
        assert_eq!(bound.pair.told.pop(), Some((4, Told::Result(b"call".to_vec()))));
        assert_eq!(bound.bind(other_name), Told::Bound(other_export));
        // The server shows another grant for the name.
        bound.shows.grants.lock().unwrap().insert(name.as_bytes(), 7);
        assert_eq!(bound.bind(name), Told::Bound(export));
        bound.call(export, 5).unwrap();
        bound.pair.settle();
        assert_eq!(bound.pair.told, [(5, Told::Result(b"call".to_vec()))]);
    }
}

#[test]
fn a_call_of_a_name_that_has_fallen_ends_also_when_nothing_comes_from_the_server() {
    let mut bound = Bound::new();
    bound.call(EXPORT, 1).unwrap();
    assert!(bound.revoke(1));
    bound.pair.tick();
    assert_eq!(bound.pair.told, [(1, Told::Failed(Kind::NotPermitted, Ran::No))]);
}

#[test]
fn a_name_stands_while_one_of_the_grants_does_that_were_shown_for_it() {
    for (first, second) in [(1, 3), (3, 1)] {
        let mut bound = Bound::new();
        bound.shows.grants.lock().unwrap().insert(b"Store", 3);
        assert_eq!(bound.bind("Store"), Told::Bound(EXPORT));
        bound.call(EXPORT, 1).unwrap();
        assert!(!bound.revoke(first));
        bound.pair.settle();
        assert_eq!(bound.pair.told.pop(), Some((1, Told::Result(b"call".to_vec()))));
        assert!(bound.revoke(second));
        assert_eq!(bound.call(EXPORT, 2), Err((Kind::ServerRestarted, Ran::No)));
    }
}

/// A conversation has the rights of what its client has shown in the handshake. So a handshake that no name
/// has caused, because the server was restarted, has to show what the bound names need, and so has one that
/// another name has caused.
#[test]
fn a_handshake_shows_what_all_names_need_that_are_bound_in_the_conversation() {
    for rebound in [None, Some("Store"), Some("Other")] {
        let mut bound = Bound::new();
        bound.call(EXPORT, 1).unwrap();
        bound.pair.settle();
        bound.restart();
        match rebound {
            None => bound.call(SECOND, 2).unwrap(),
            Some(name) => bound.pair.client.bind(bound.pair.now, name, 2),
        }
        bound.pair.settle();
        let expected = match rebound {
            Some("Store") => "Store,Other",
            _ => "Other,Store",
        };
        assert_eq!(*bound.grants.shown_for.lock().unwrap(), ["Store", expected]);
    }
}

#[test]
fn a_conversation_whose_names_have_all_fallen_is_forgotten() {
    let mut bound = Bound::new();
    assert!(bound.revoke(1) && bound.pair.client.principal().is_some());
    assert!(bound.revoke(2));
    assert!(bound.pair.client.principal().is_none() && bound.pair.client.server_for("Other").is_none());
}

#[test]
fn what_a_server_shows_before_its_proof_changes_nothing() {
    let mut bound = Bound::new();
    // Somebody on the path answers in the server's place, and shows a grant of its key that is revoked later.
    let impostor = TestTrust::new(SERVER, &[CLIENT]);
    impostor.grants.lock().unwrap().insert(b"Store", 9);
    let config = ServerConfig { trust: Some(impostor), ..server() };
    let other = Server::new(config, bound.pair.now, [9; 32]);
    let genuine = std::mem::replace(&mut bound.pair.server, other);
    bound.pair.client.bind(bound.pair.now, "Store", 5);
    let question = bound.pair.sent();
    bound.pair.receive(&question);
    let hello = bound.pair.answered();
    assert!(!hello.is_empty());
    bound.pair.hear(&hello);
    bound.pair.server = genuine;
    bound.call(EXPORT, 1).unwrap();
    assert!(!bound.revoke(9));
    bound.pair.carry(2, std::time::Duration::from_secs(5), |_, _, _| true);
    bound.pair.told.sort_by_key(|(token, _)| *token);
    assert_eq!(bound.pair.told, [(1, Told::Result(b"call".to_vec())), (5, Told::Bound(EXPORT))]);
}

#[test]
fn a_server_with_another_key_gets_no_name_into_the_conversation_by_the_incarnation_of_the_former_one() {
    const OTHER: [u8; 32] = [9; 32];
    let mut bound = Bound::new();
    bound.grants.accepted.lock().unwrap().insert(farcall_crypto::public_key(&OTHER));
    // The other server has chosen the number of the incarnation, which everybody sees, and an export that the
    // first one has.
    let trust = TestTrust::new(OTHER, &[CLIENT]);
    let mutant = common::MUTANT.get();
    let other = ServerConfig { trust: Some(trust), mutant, ..server() };
    bound.pair.server = Server::new(other, bound.pair.now, [7; 32]);
    bound.pair.export();
    bound.pair.client.bind(bound.pair.now, "Store", 5);
    bound.pair.carry(1, std::time::Duration::from_secs(60), |_, _, _| true);
    assert_eq!(bound.pair.told, [(5, Told::Bound(EXPORT))]);
    let key = |name: &str| bound.pair.client.server_for(name).map(|server| server.key);
    assert_eq!((key("Store"), key("Other")), (Some(farcall_crypto::public_key(&OTHER)), None));
    let server = bound.pair.client.principal().unwrap().key;
    assert_eq!(server, farcall_crypto::public_key(&OTHER), "the conversation is with the server of the name");
}

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_names_is_noticed() {
    use farcall_proto::{Mutant, Rule};
    std::panic::set_hook(Box::new(|_| {}));
    for rule in [Rule::NamesUnchecked, Rule::NamesFallTogether] {
        common::MUTANT.set(Mutant::of(rule));
        let test = a_name_falls_with_the_grant_that_was_shown_for_it_and_the_other_name_goes_on;
        let is_noticed = std::panic::catch_unwind(test).is_err();
        common::MUTANT.set(Mutant::NONE);
        assert!(is_noticed, "{rule:?} was not noticed");
    }
    drop(std::panic::take_hook());
}
