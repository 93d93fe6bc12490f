//! Meetings outside UDP: who proves that it has the secrets of a conversation, and until when that counts.
#![cfg(feature = "secure")]

mod common;

use std::net::SocketAddr;

use common::trust::{CLIENT, SERVER, TestTrust, client, server};
use common::*;
use farcall_proto::server::Server;
use farcall_proto::{Holder, Met, Proven, ServerConfig, Shown};

/// What a client says at a meeting.
struct Said {
    holder: Holder,
    ticket: Vec<u8>,
    proven: Proven,
}

/// Returns a client that has bound a name, but has sent no datagram in its conversation.
fn bound(server: ServerConfig) -> Pair {
    bind(Pair::with(client(), server))
}

fn bind(mut pair: Pair) -> Pair {
    pair.client.bind(pair.now, "Store", 7);
    while !pair.told.iter().any(|(token, _)| *token == 7) {
        let sent = pair.sent();
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert_eq!(pair.server.conversations(), 0);
    pair
}

/// Puts another incarnation of the server in the place of the present one.
fn restart(pair: &mut Pair, secret: u8) {
    pair.server = Server::new(server(), pair.now, [secret; 32]);
    pair.export();
}

fn say(pair: &Pair, transcript: &[u8]) -> Option<Said> {
    let mut said = None;
    let proven = pair.client.prove_meeting(|holder, ticket| {
        said = Some((*holder, ticket.to_vec()));
        transcript.to_vec()
    })?;
    let (holder, ticket) = said?;
    Some(Said { holder, ticket, proven })
}

fn meet(pair: &mut Pair, said: &Said, transcript: &[u8]) -> Option<Met> {
    let Said { holder, ticket, proven } = said;
    pair.server.meet(pair.now, &Shown { holder: *holder, ticket, transcript, proof: &proven.proof })
}

#[test]
fn both_ends_prove_that_they_have_the_secrets_and_the_conversation_is_known_then() {
    let mut pair = bound(server());
    let said = say(&pair, b"meeting").unwrap();
    let met = meet(&mut pair, &said, b"meeting").unwrap();
    assert_eq!(met.principal.key, farcall_crypto::public_key(&CLIENT));
    assert_eq!(said.proven.server.key, farcall_crypto::public_key(&SERVER));
    assert_eq!(met.answer, said.proven.answer);
    assert_ne!(met.answer, said.proven.proof, "nothing can be reflected");
    assert_eq!(pair.server.conversations(), 1);
    // The conversation goes on by datagrams, and can meet again.
    for token in 1..3 {
        pair.start(token, b"call");
        pair.settle();
        assert_eq!(pair.told.last(), Some(&(token, Told::Result(b"call".to_vec()))));
        let said = say(&pair, b"again").unwrap();
        let again = meet(&mut pair, &said, b"again").unwrap();
        assert_eq!((again.answer, again.principal.key), (said.proven.answer, met.principal.key));
        assert_eq!(pair.server.conversations(), 1);
    }
    assert!(!met.ended.has_ended());
}

#[test]
fn a_wrong_proof_and_a_replayed_one_are_refused_and_change_nothing() {
    let mut pair = bound(server());
    let said = say(&pair, b"meeting").unwrap();
    assert!(meet(&mut pair, &said, b"another meeting").is_none(), "the proof comes again");
    for at in 0..32 {
        let mut said = say(&pair, b"meeting").unwrap();
        said.proven.proof[at] ^= 1;
        assert!(meet(&mut pair, &said, b"meeting").is_none());
    }
    let reflected = Proven { proof: said.proven.answer, ..said.proven.clone() };
    let reflected = Said { proven: reflected, ticket: said.ticket.clone(), ..said };
    assert!(meet(&mut pair, &reflected, b"meeting").is_none());
    let said = say(&pair, b"meeting").unwrap();
    // The ticket's last two bytes are padding, which only the transcript covers.
    for at in 0..said.ticket.len() - 2 {
        let (mut changed, mut ticket) = (say(&pair, b"meeting").unwrap(), said.ticket.clone());
        ticket[at] ^= 1;
        changed.ticket = ticket;
        assert!(meet(&mut pair, &changed, b"meeting").is_none(), "{at}");
        changed.ticket = said.ticket[..at].to_vec();
        assert!(meet(&mut pair, &changed, b"meeting").is_none(), "{at}");
    }
    let elsewhere: SocketAddr = "127.0.0.1:9".parse().unwrap();
    for holder in [
        Holder { client: 1, ..said.holder },
        Holder { issued: said.holder.issued + 1, ..said.holder },
        Holder { conversation: 1, ..said.holder },
        Holder { address: elsewhere, ..said.holder },
    ] {
        let Said { ticket, proven, .. } = say(&pair, b"meeting").unwrap();
        assert!(meet(&mut pair, &Said { holder, ticket, proven }, b"meeting").is_none(), "{holder:?}");
    }
    assert_eq!(pair.server.conversations(), 0);
    assert!(meet(&mut pair, &said, b"meeting").is_some());
}

#[test]
fn the_proof_of_one_conversation_is_none_for_another_one_or_another_server() {
    let mut other = Pair::with(client(), server());
    restart(&mut other, 8);
    let (mut pair, other) = (bound(server()), bind(other));
    let (ours, theirs) = (say(&pair, b"meeting").unwrap(), say(&other, b"meeting").unwrap());
    // The other server has other secrets, and knows nothing of this ticket.
    assert!(meet(&mut pair, &theirs, b"meeting").is_none());
    let mixed = Said { proven: theirs.proven, holder: ours.holder, ticket: ours.ticket.clone() };
    assert!(meet(&mut pair, &mixed, b"meeting").is_none());
    restart(&mut pair, 9);
    assert!(meet(&mut pair, &ours, b"meeting").is_none());
    // An end without keys has no secrets to prove.
    let mut open = Pair::acquainted();
    assert!(open.client.prove_meeting(|_, _| Vec::new()).is_none());
    assert!(meet(&mut open, &ours, b"meeting").is_none());
}

#[test]
fn what_was_made_at_a_meeting_ends_with_the_clients_key() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = bound(ServerConfig { trust: Some(trust.clone()), ..server() });
    let said = say(&pair, b"meeting").unwrap();
    let met = meet(&mut pair, &said, b"meeting").unwrap();
    trust.accepted.lock().unwrap().clear();
    pair.server.forget_revoked(pair.now, |_| false);
    assert!(met.ended.has_ended() && met.ended.clone().has_ended());
    assert!(meet(&mut pair, &said, b"meeting").is_none());
    // A client that has never sent a datagram, and whose key was taken away since, is refused too.
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = bound(ServerConfig { trust: Some(trust.clone()), ..server() });
    let said = say(&pair, b"meeting").unwrap();
    trust.accepted.lock().unwrap().clear();
    assert!(meet(&mut pair, &said, b"meeting").is_none());
    assert_eq!(pair.server.conversations(), 0);
}

#[test]
fn a_client_proves_nothing_to_a_server_that_it_accepts_no_more() {
    let trust = TestTrust::new(CLIENT, &[SERVER]);
    let config = farcall_proto::ClientConfig { trust: Some(trust.clone()), ..client() };
    let mut pair = Pair::acquainted_with(config, server());
    assert!(say(&pair, b"meeting").is_some());
    trust.accepted.lock().unwrap().clear();
    assert!(say(&pair, b"meeting").is_none());
    trust.accepted.lock().unwrap().insert(farcall_crypto::public_key(&SERVER));
    pair.client.forget_server(pair.now);
    assert!(say(&pair, b"meeting").is_none());
}

#[test]
fn a_conversation_that_has_met_is_not_forgotten_for_want_of_room() {
    let mut pair = bound(ServerConfig { max_conversations: 1, ..server() });
    let said = say(&pair, b"meeting").unwrap();
    let met = meet(&mut pair, &said, b"meeting").unwrap();
    let join = |pair: &mut Pair| {
        let mut other = bound_to(pair);
        other.start(1, b"call");
        let sent = other.sent();
        let from = std::mem::replace(&mut pair.from, ELSEWHERE.parse().unwrap());
        pair.receive(&sent);
        pair.from = from;
        std::mem::take(&mut pair.asked).len()
    };
    assert_eq!(join(&mut pair), 0, "there is no room");
    assert!(!met.ended.has_ended());
    let ended = met.ended.clone();
    drop(met);
    assert!(!ended.has_ended());
    drop(ended);
    // The refusal has made tickets void that were given before it, so this one is later.
    assert_eq!(join(&mut pair), 1, "the connection is gone, so the conversation gives way");
}

/// The address of another client.
const ELSEWHERE: &str = "10.7.7.7:7";

/// Returns another client that has bound a name at the server of `pair`.
fn bound_to(pair: &mut Pair) -> Pair {
    let mut other = Pair::with(client(), server());
    other.client.bind(other.now, "Store", 7);
    other.now = pair.now;
    while !other.told.iter().any(|(token, _)| *token == 7) {
        let sent = other.sent();
        let from = std::mem::replace(&mut pair.from, ELSEWHERE.parse().unwrap());
        pair.receive(&sent);
        let answers = pair.answered();
        pair.from = from;
        other.hear(&answers);
    }
    other
}
