//! Meetings outside UDP: who proves that it has the secrets of a conversation, and until when that counts.
#![cfg(feature = "secure")]

mod common;

use std::net::SocketAddr;

use common::trust::{CLIENT, SERVER, TestTrust, client, server};
use common::*;
use farcall_proto::server::Server;
use farcall_proto::{Holder, Meeting, Met, Proven, ServerConfig, Shown};

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

/// Returns what both ends know of the meeting with this challenge.
fn meeting(challenge: u8) -> Meeting {
    Meeting { challenge: [challenge; 32], processes: [2, 3], at: "10.1.2.3:513".parse().unwrap() }
}

fn say(pair: &Pair, meeting: &Meeting) -> Option<Said> {
    let mut said = None;
    let proven = pair.client.prove_meeting(EXPORT, meeting, |holder, ticket| {
        said = Some((*holder, ticket.to_vec()));
        [b"body of ", ticket].concat()
    })?;
    let (holder, ticket) = said?;
    Some(Said { holder, ticket, proven })
}

fn meet(pair: &mut Pair, said: &Said, meeting: &Meeting) -> Option<Met> {
    let Said { holder, ticket, proven: Proven { proof, body, .. } } = said;
    pair.server.meet(pair.now, &Shown { holder: *holder, ticket, meeting, body, proof })
}

#[test]
fn both_ends_prove_that_they_have_the_secrets_and_the_conversation_is_known_then() {
    let mut pair = bound(server());
    let said = say(&pair, &meeting(1)).unwrap();
    let met = meet(&mut pair, &said, &meeting(1)).unwrap();
    assert_eq!(met.principal.key, farcall_crypto::public_key(&CLIENT));
    assert_eq!(said.proven.server.key, farcall_crypto::public_key(&SERVER));
    assert!(said.proven.is_answered_by(&met.answer));
    assert_eq!(pair.server.conversations(), 1);
    // The conversation goes on by datagrams, and can meet again.
    for token in 1..3 {
        pair.start(token, b"call");
        pair.settle();
        assert_eq!(pair.told.last(), Some(&(token, Told::Result(b"call".to_vec()))));
        let said = say(&pair, &meeting(2)).unwrap();
        let again = meet(&mut pair, &said, &meeting(2)).unwrap();
        assert!(said.proven.is_answered_by(&again.answer));
        assert_eq!(again.principal.key, met.principal.key);
        assert_eq!(pair.server.conversations(), 1);
    }
    assert!(!met.ended.has_ended());
}

#[test]
fn a_client_believes_no_answer_but_that_of_its_server_at_this_meeting() {
    let mut pair = bound(server());
    let said = say(&pair, &meeting(1)).unwrap();
    let answer = meet(&mut pair, &said, &meeting(1)).unwrap().answer;
    for at in 0..Proven::ANSWER_BYTES {
        let mut changed = answer;
        changed[at] ^= 1;
        assert!(!said.proven.is_answered_by(&changed));
        assert!(!said.proven.is_answered_by(&answer[..at]));
    }
    assert!(!said.proven.is_answered_by(&[&answer[..], &[0]].concat()));
    let other = say(&pair, &meeting(2)).unwrap();
    assert!(!other.proven.is_answered_by(&answer), "the answer comes again");
    // Neither end's proof is one of the other end.
    assert!(!said.proven.is_answered_by(&said.proven.proof));
    let mut reflected = said;
    reflected.proven.proof = answer;
    assert!(meet(&mut pair, &reflected, &meeting(1)).is_none());
}

#[test]
fn a_wrong_proof_and_a_replayed_one_are_refused_and_change_nothing() {
    let mut pair = bound(server());
    let said = say(&pair, &meeting(1)).unwrap();
    assert!(meet(&mut pair, &said, &meeting(2)).is_none(), "the proof comes again");
    for at in 0..32 {
        let mut said = say(&pair, &meeting(1)).unwrap();
        said.proven.proof[at] ^= 1;
        assert!(meet(&mut pair, &said, &meeting(1)).is_none());
    }
    // The ticket's last two bytes are padding, which only the body covers.
    for at in 0..said.ticket.len() - 2 {
        let (mut changed, mut ticket) = (say(&pair, &meeting(1)).unwrap(), said.ticket.clone());
        ticket[at] ^= 1;
        changed.ticket = ticket;
        assert!(meet(&mut pair, &changed, &meeting(1)).is_none(), "{at}");
        changed.ticket = said.ticket[..at].to_vec();
        assert!(meet(&mut pair, &changed, &meeting(1)).is_none(), "{at}");
    }
    for at in 0..said.proven.body.len() {
        let mut changed = say(&pair, &meeting(1)).unwrap();
        changed.proven.body[at] ^= 1;
        assert!(meet(&mut pair, &changed, &meeting(1)).is_none(), "{at}");
        changed.proven.body = said.proven.body[..at].to_vec();
        assert!(meet(&mut pair, &changed, &meeting(1)).is_none(), "{at}");
    }
    let elsewhere: SocketAddr = "127.0.0.1:9".parse().unwrap();
    for holder in [
        Holder { client: 1, ..said.holder },
        Holder { issued: said.holder.issued + 1, ..said.holder },
        Holder { conversation: 1, ..said.holder },
        Holder { address: elsewhere, ..said.holder },
    ] {
        let Said { ticket, proven, .. } = say(&pair, &meeting(1)).unwrap();
        assert!(meet(&mut pair, &Said { holder, ticket, proven }, &meeting(1)).is_none(), "{holder:?}");
    }
    assert_eq!(pair.server.conversations(), 0);
    assert!(meet(&mut pair, &said, &meeting(1)).is_some());
}

#[test]
fn a_process_that_stands_between_two_ends_is_not_believed_by_either() {
    let mut pair = bound(server());
    // The process has the number 4. It passes on the server's challenge, or gives one of its own.
    let ours = Meeting { processes: [4, 3], ..meeting(1) };
    let at = "10.1.2.3:514".parse().unwrap();
    for theirs in [
        Meeting { processes: [2, 4], ..meeting(1) },
        Meeting { processes: [2, 4], ..meeting(2) },
        Meeting { processes: [4, 4], ..meeting(1) },
        Meeting { at, ..ours },
        Meeting { challenge: [2; 32], ..ours },
    ] {
        let said = say(&pair, &theirs).unwrap();
        assert!(meet(&mut pair, &said, &ours).is_none(), "{theirs:?}");
        // Nor does the client believe the answer that the server gives to what the process itself can prove.
        let known = say(&pair, &ours).unwrap();
        let answer = meet(&mut pair, &known, &ours).unwrap().answer;
        assert!(known.proven.is_answered_by(&answer));
        assert!(!said.proven.is_answered_by(&answer), "{theirs:?}");
    }
}

#[test]
fn what_is_said_at_a_meeting_has_less_than_64_kib() {
    let mut pair = bound(server());
    let long = |len| pair.client.prove_meeting(EXPORT, &meeting(1), |_, _| vec![0; len]);
    assert!(long(65_535).is_some() && long(65_536).is_none());
    let mut said = say(&pair, &meeting(1)).unwrap();
    said.proven.body.resize(65_536, 0);
    assert!(meet(&mut pair, &said, &meeting(1)).is_none());
}

#[test]
fn the_ticket_of_a_conversation_that_is_forgotten_is_not_good_at_a_meeting() {
    let mut pair = bound(server());
    let said = say(&pair, &meeting(1)).unwrap();
    drop(meet(&mut pair, &said, &meeting(1)).unwrap());
    pair.server.forget_revoked(pair.now, |_| false);
    assert_eq!(pair.server.conversations(), 0);
    assert!(meet(&mut pair, &said, &meeting(1)).is_none());
}

#[test]
fn the_proof_of_one_conversation_is_none_for_another_one_or_another_server() {
    let mut other = Pair::with(client(), server());
    restart(&mut other, 8);
    let (mut pair, other) = (bound(server()), bind(other));
    let (ours, theirs) = (say(&pair, &meeting(1)).unwrap(), say(&other, &meeting(1)).unwrap());
    // The other server has other secrets, and knows nothing of this ticket.
    assert!(meet(&mut pair, &theirs, &meeting(1)).is_none());
    let mixed = Said { proven: theirs.proven, holder: ours.holder, ticket: ours.ticket.clone() };
    assert!(meet(&mut pair, &mixed, &meeting(1)).is_none());
    restart(&mut pair, 9);
    assert!(meet(&mut pair, &ours, &meeting(1)).is_none());
    // An end without keys has no secrets to prove.
    let mut open = Pair::acquainted();
    assert!(open.client.prove_meeting(EXPORT, &meeting(1), |_, _| Vec::new()).is_none());
    assert!(meet(&mut open, &ours, &meeting(1)).is_none());
}

#[test]
fn what_was_made_at_a_meeting_ends_with_the_clients_key() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = bound(ServerConfig { trust: Some(trust.clone()), ..server() });
    let said = say(&pair, &meeting(1)).unwrap();
    let met = meet(&mut pair, &said, &meeting(1)).unwrap();
    trust.accepted.lock().unwrap().clear();
    pair.server.forget_revoked(pair.now, |_| false);
    assert!(met.ended.has_ended() && met.ended.clone().has_ended());
    assert!(meet(&mut pair, &said, &meeting(1)).is_none());
    // A client that has never sent a datagram, and whose key was taken away since, is refused too.
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = bound(ServerConfig { trust: Some(trust.clone()), ..server() });
    let said = say(&pair, &meeting(1)).unwrap();
    trust.accepted.lock().unwrap().clear();
    assert!(meet(&mut pair, &said, &meeting(1)).is_none());
    assert_eq!(pair.server.conversations(), 0);
}

#[test]
fn a_client_proves_nothing_to_a_server_that_it_accepts_no_more() {
    let trust = TestTrust::new(CLIENT, &[SERVER]);
    let config = farcall_proto::ClientConfig { trust: Some(trust.clone()), ..client() };
    let mut pair = bind(Pair::with(config, server()));
    assert!(say(&pair, &meeting(1)).is_some());
    trust.accepted.lock().unwrap().clear();
    assert!(say(&pair, &meeting(1)).is_none());
    assert!(pair.client.recheck_server(pair.now));
    trust.accepted.lock().unwrap().insert(farcall_crypto::public_key(&SERVER));
    assert!(say(&pair, &meeting(1)).is_none());
}

#[test]
fn a_conversation_that_has_met_is_not_forgotten_for_want_of_room() {
    let mut pair = bound(ServerConfig { max_conversations: 1, ..server() });
    let said = say(&pair, &meeting(1)).unwrap();
    let met = meet(&mut pair, &said, &meeting(1)).unwrap();
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

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_meetings_is_noticed() {
    use farcall_proto::{Mutant, Rule};
    const TESTS: [fn(); 9] = [
        both_ends_prove_that_they_have_the_secrets_and_the_conversation_is_known_then,
        a_client_believes_no_answer_but_that_of_its_server_at_this_meeting,
        a_wrong_proof_and_a_replayed_one_are_refused_and_change_nothing,
        a_process_that_stands_between_two_ends_is_not_believed_by_either,
        the_ticket_of_a_conversation_that_is_forgotten_is_not_good_at_a_meeting,
        the_proof_of_one_conversation_is_none_for_another_one_or_another_server,
        what_was_made_at_a_meeting_ends_with_the_clients_key,
        a_client_proves_nothing_to_a_server_that_it_accepts_no_more,
        a_conversation_that_has_met_is_not_forgotten_for_want_of_room,
    ];
    std::panic::set_hook(Box::new(|_| {}));
    let is_noticed = |rule: &Rule| {
        common::MUTANT.set(Mutant::of(*rule));
        TESTS.iter().any(|test| std::panic::catch_unwind(test).is_err())
    };
    // Who the client is, and whether it is still accepted, is checked as for datagrams.
    let rules = Rule::OF_MEETINGS.iter().chain(&[Rule::RevocationIgnored, Rule::TicketUnchecked]);
    let unnoticed: Vec<_> = rules.filter(|rule| !is_noticed(rule)).collect();
    common::MUTANT.set(Mutant::NONE);
    drop(std::panic::take_hook());
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
