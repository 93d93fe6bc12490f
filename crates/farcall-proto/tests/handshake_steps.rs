//! A handshake that is computed outside the server's lock: what may happen before it is handed in again.
#![cfg(feature = "secure")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::trust::{CLIENT, SERVER, TestTrust};
use common::*;
use farcall_proto::client::Conversation;
use farcall_proto::server::{Computed, Handshake, Server};
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig};

const OPEN: u8 = 0;
const SECURE: u8 = 3;
/// Where the length of a ticket's sealed part is in a WELCOME.
const TICKET_REST: usize = 24 + 16 + 40;

/// A server and a client whose handshakes are computed when the test says so.
struct Party {
    pair: Pair,
    client: Arc<TestTrust>,
    server: Arc<TestTrust>,
}

impl Party {
    fn new() -> Party {
        Party::with(ServerConfig::default())
    }

    fn with(settings: ServerConfig) -> Party {
        let (client, server) = (TestTrust::new(CLIENT, &[SERVER]), TestTrust::new(SERVER, &[CLIENT]));
        let settings = ServerConfig { trust: Some(server.clone()), ..settings };
        Party { pair: Pair::with(config(&client), settings), client, server }
    }

    /// Delivers datagrams to the server, which computes no handshake in them.
    fn receive(&mut self, datagrams: &[Datagram]) {
        for datagram in datagrams {
            self.pair.server.receive(self.pair.now, self.pair.from, datagram, &mut |_| {});
        }
    }

    /// Has the client begin a handshake. Returns the BIND that has its message.
    fn ask(&mut self) -> Vec<Datagram> {
        let hello = self.pair.sent();
        self.receive(&hello);
        let shown = self.pair.answered();
        self.pair.hear(&shown);
        self.pair.sent()
    }

    /// Has the client begin a handshake, and takes it out of the server.
    fn begin(&mut self) -> Handshake {
        let message = self.ask();
        self.receive(&message);
        assert!(self.pair.server.has_handshakes());
        let handshake = self.pair.server.next_handshake(self.pair.now).expect("a handshake");
        assert!(!self.pair.server.has_handshakes() && self.pair.answered().is_empty());
        handshake
    }

    /// Hands a computed handshake in, and returns the server's answer.
    fn finish(&mut self, computed: Computed) -> Datagram {
        let mut out = vec![0; 65_536];
        let sent = self.pair.server.finish_handshake(self.pair.now, computed, &mut out);
        let answer = sent.expect("an answer");
        assert_eq!(answer.to, self.pair.from);
        answer.gather(&out)
    }

    /// Runs `act` with another client in the place of this one, at an address of its own.
    fn as_another<R>(&mut self, id: u64, host: [u8; 4], act: impl FnOnce(&mut Party) -> R) -> R {
        let other = Conversation::new(config(&self.client), id);
        let client = std::mem::replace(&mut self.pair.client, other);
        let from = std::mem::replace(&mut self.pair.from, SocketAddr::from((host, 1000)));
        let told = std::mem::take(&mut self.pair.told);
        let done = act(self);
        (self.pair.client, self.pair.from, self.pair.told) = (client, from, told);
        done
    }

    /// Makes a call, and returns its outcome.
    fn call(&mut self, token: u64) -> Told {
        self.pair.start(token, b"call");
        self.end()
    }

    /// Carries datagrams until a call or a question ends, and returns the outcome.
    fn end(&mut self) -> Told {
        self.pair.carry(1, Duration::from_secs(60), |_, _, _| true);
        self.pair.told.pop().expect("an outcome").1
    }

    /// Returns how many handshakes the server has computed.
    fn computed(&self) -> u64 {
        *self.server.handshakes.lock().unwrap()
    }
}

fn config(trust: &Arc<TestTrust>) -> ClientConfig {
    ClientConfig { trust: Some(trust.clone()), ..ClientConfig::default() }
}

fn called() -> Told {
    Told::Result(b"call".to_vec())
}

/// Returns the length of the sealed part of the ticket in a WELCOME.
fn sealed_part(welcome: &Datagram) -> u8 {
    welcome[TICKET_REST + 3]
}

#[test]
fn while_a_handshake_is_computed_other_clients_join_and_call() {
    fn can_go_to_another_thread<T: Send>(value: T) -> T {
        value
    }
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let handshake = can_go_to_another_thread(party.begin());
    assert_eq!(party.computed(), 0, "so far nothing was computed");
    let joined = party.as_another(0xbeef, [10, 0, 0, 2], |party| party.call(7));
    assert_eq!((joined, party.pair.server.conversations(), party.computed()), (called(), 1, 1));
    let computed = can_go_to_another_thread(handshake.compute());
    let joined = party.as_another(0xbee, [10, 0, 0, 3], |party| party.call(8));
    assert_eq!((joined, party.pair.server.conversations(), party.computed()), (called(), 2, 3));
    let welcome = party.finish(computed);
    party.pair.hear(&[welcome]);
    assert_eq!((party.end(), party.pair.server.conversations()), (called(), 3));
}

#[test]
fn a_bind_that_comes_again_while_it_waits_is_computed_once() {
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let message = party.ask();
    party.receive(&[message.clone(), message.clone(), message].concat());
    let handshake = party.pair.server.next_handshake(party.pair.now).expect("a handshake");
    assert!(!party.pair.server.has_handshakes());
    let welcome = party.finish(handshake.compute());
    party.pair.hear(&[welcome]);
    assert_eq!((party.end(), party.computed()), (called(), 1));
}

#[test]
fn a_bind_that_comes_again_while_it_is_computed_and_after_makes_no_second_conversation() {
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let message = party.ask();
    party.receive(&message);
    let first = party.pair.server.next_handshake(party.pair.now).expect("a handshake").compute();
    party.receive(&message);
    assert!(!party.pair.server.has_handshakes() && party.pair.answered().is_empty());
    let lost = party.finish(first);
    party.receive(&message);
    let again = party.pair.answered();
    assert_eq!(again, [lost], "the answer is sent again");
    party.pair.hear(&again);
    assert_eq!((party.end(), party.computed(), party.pair.server.conversations()), (called(), 1, 1));
    party.receive(&message);
    let late = party.pair.answered();
    party.pair.hear(&late);
    assert_eq!((party.call(2), party.pair.server.conversations()), (called(), 1));
}

#[test]
fn a_handshake_that_was_computed_for_an_earlier_incarnation_gives_no_secrets() {
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let computed = party.begin().compute();
    let settings = ServerConfig { trust: Some(party.server.clone()), ..ServerConfig::default() };
    party.pair.server = Server::new(settings, party.pair.now, [8; 32]);
    party.pair.export();
    let answer = party.finish(computed);
    assert_eq!((answer[1], sealed_part(&answer)), (OPEN, 0), "the server says only who it is");
    party.pair.hear(&[answer]);
    assert_eq!((party.end(), party.computed()), (called(), 2), "the client begins again");
}

#[test]
fn a_client_whose_key_is_taken_away_while_its_handshake_is_computed_gets_no_secrets() {
    for before in [true, false] {
        let mut party = Party::new();
        party.pair.start(1, b"call");
        let handshake = party.begin();
        let revoke = || party.server.accepted.lock().unwrap().clear();
        if before {
            revoke();
        }
        let computed = handshake.compute();
        revoke();
        let answer = party.finish(computed);
        assert_eq!((answer[1], sealed_part(&answer)), (SECURE, 0));
        party.pair.hear(&[answer]);
        assert_eq!(party.pair.told, [(1, Told::Failed(Kind::NotPermitted, Ran::No))]);
        assert_eq!(party.pair.server.conversations(), 0);
    }
}

#[test]
fn the_ticket_of_a_handshake_is_sealed_by_the_key_of_the_time_when_it_ends() {
    let mut party = Party::new();
    assert_eq!(party.as_another(0xbeef, [10, 0, 0, 2], |party| party.call(7)), called());
    party.pair.pass(Duration::from_secs(590));
    party.pair.client.bind(party.pair.now, "Store", 1);
    let computed = party.begin().compute();
    party.pair.pass(Duration::from_secs(20));
    let welcome = party.finish(computed);
    party.pair.hear(&[welcome]);
    assert_eq!(party.pair.told.pop(), Some((1, Told::Bound(EXPORT))));
    // Now the key is erased that the server had when the handshake began.
    party.pair.pass(Duration::from_secs(620));
    party.pair.tick();
    party.pair.start(2, b"call");
    let call = party.pair.sent();
    party.pair.receive(&call);
    assert_eq!((party.pair.asked.len(), party.pair.server.conversations()), (1, 2));
}

#[test]
fn the_ticket_of_a_handshake_is_good_although_the_horizon_has_risen_meanwhile() {
    let mut party = Party::with(ServerConfig { max_conversations: 1, ..ServerConfig::default() });
    party.pair.start(1, b"call");
    let computed = party.begin().compute();
    for id in 1..=3 {
        let host = [10, 0, 0, 2 + id as u8];
        assert_eq!(party.as_another(id, host, |party| party.call(7)), called());
        party.pair.pass(Duration::from_secs(2));
    }
    assert!(party.pair.server.stats().evicted > 0, "the horizon has risen");
    let welcome = party.finish(computed);
    party.pair.hear(&[welcome]);
    assert_eq!(party.end(), called());
}

#[test]
fn an_export_that_is_withdrawn_while_a_handshake_is_computed_is_not_bound() {
    let mut party = Party::new();
    party.pair.client.bind(party.pair.now, "Store/one", 1);
    let computed = party.begin().compute();
    party.pair.server.withdraw(EXPORT);
    let welcome = party.finish(computed);
    party.pair.hear(&[welcome]);
    assert_eq!(party.pair.told, [(1, Told::NotBound(Kind::NotExported))]);
}

#[test]
fn a_proof_that_becomes_too_old_while_a_handshake_is_computed_proves_nothing() {
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let computed = party.begin().compute();
    party.pair.pass(Duration::from_secs(61));
    let answer = party.finish(computed);
    assert_eq!((answer[1], sealed_part(&answer)), (OPEN, 0));
}

#[test]
fn a_message_that_does_not_open_is_answered_by_who_the_server_is() {
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let mut message = party.ask().remove(0);
    // The message is the last field of the first frame.
    let end = 24 + usize::from(u16::from_be_bytes([message[22], message[23]]));
    message[end - 8] ^= 1;
    let changed = forged(0, 1, &[message[20..message.len() - 8].to_vec()]);
    party.receive(&[changed]);
    let computed = party.pair.server.next_handshake(party.pair.now).expect("a handshake").compute();
    let answer = party.finish(computed);
    assert_eq!((answer[1], sealed_part(&answer)), (OPEN, 0));
    party.pair.hear(&[answer]);
    assert_eq!(party.end(), called());
}
