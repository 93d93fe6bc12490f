//! Traces of clients without keys that prove, or cannot prove, that they are processes of the server's user
//! (docs/protocol.md, section 4.5).

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use farcall_proto::fuzzing::kinds::{TICKET, USER_PROOF, WELCOME};
use farcall_proto::server::Server;
use farcall_proto::{ClientConfig, Kind, Ran, SameUser, ServerConfig, UserSecret, UserSecrets};
#[cfg(feature = "mutants")]
use farcall_proto::{Mutant, Rule};

/// The secrets of a user, which may be removed and made anew, and how often they were looked for.
#[derive(Debug, Default)]
struct Folder {
    secrets: Mutex<Vec<UserSecret>>,
    looks: AtomicU32,
}

impl Folder {
    fn of(bytes: &[u8]) -> Arc<Folder> {
        let folder = Folder::default();
        folder.hold(bytes);
        Arc::new(folder)
    }

    fn hold(&self, bytes: &[u8]) {
        *self.secrets.lock().unwrap() = bytes.iter().map(|byte| UserSecret::new([*byte; 16])).collect();
    }
}

impl UserSecrets for Folder {
    fn secrets(&self) -> Result<Vec<UserSecret>, String> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        match &self.secrets.lock().unwrap()[..] {
            [] => Err("no folder".into()),
            secrets => Ok(secrets.to_vec()),
        }
    }
}

const SERVER: &str = "127.0.0.1:7000";

fn same_user(folder: &Arc<Folder>, server: &str) -> Option<SameUser> {
    Some(SameUser::new(folder.clone(), server.parse().unwrap()))
}

fn server_config(folder: &Arc<Folder>) -> ServerConfig {
    ServerConfig { same_user: same_user(folder, SERVER), ..ServerConfig::default() }
}

/// Returns a client and a server of users with these secrets. The client calls the server at this address.
fn users(client: &[u8], server: &[u8], calls: &str) -> Pair {
    let client = ClientConfig { same_user: same_user(&Folder::of(client), calls), ..ClientConfig::default() };
    let mut pair = Pair::with(client, server_config(&Folder::of(server)));
    pair.from = "127.0.0.1:1000".parse().unwrap();
    pair
}

fn kinds_sent(pair: &mut Pair) -> (Vec<Vec<u8>>, Vec<Datagram>) {
    let sent = pair.sent();
    (sent.iter().map(|datagram| frames_of(datagram)).collect(), sent)
}

/// Carries one question and its answer. Returns the types of the question's frames.
fn round(pair: &mut Pair) -> Vec<u8> {
    let (kinds, sent) = kinds_sent(pair);
    pair.receive(&sent);
    let answers = pair.answered();
    pair.hear(&answers);
    kinds.concat()
}

#[test]
fn a_client_of_the_servers_user_is_let_in_after_one_challenge_and_then_asks_without() {
    let mut pair = users(&[3, 1], &[1, 2], SERVER);
    pair.client.bind(pair.now, "Store/one", 1);
    assert_eq!(round(&mut pair), [BIND, PADDING]);
    assert_eq!(pair.told, [], "the challenge is no answer");
    assert_eq!(round(&mut pair), [USER_PROOF, USER_PROOF, BIND, PADDING], "one proof for each secret");
    assert_eq!(std::mem::take(&mut pair.told), [(1, Told::Bound(EXPORT))]);
    pair.client.bind(pair.now, "Store", 2);
    assert_eq!(round(&mut pair), [BIND, PADDING], "it shows the ticket that the proof has brought");
    assert_eq!(std::mem::take(&mut pair.told), [(2, Told::Bound(EXPORT))]);
    pair.start(3, b"call");
    assert_eq!(pair.settle(), 2, "a call is two datagrams, as ever");
    assert_eq!(pair.told, [(3, Told::Result(b"call".to_vec()))]);
}

#[test]
fn a_client_that_begins_with_a_call_is_let_in_before_it_is_sent() {
    let mut pair = users(&[1], &[1], SERVER);
    pair.start(1, b"call");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
}

#[test]
fn a_client_of_another_user_binds_nothing_and_its_calls_did_not_run() {
    // The last is a client that does not know of proofs, as an older one.
    for secrets in [&[2][..], &[], &[2, 3, 4, 5, 1]] {
        let mut pair = users(secrets, &[1], SERVER);
        for (token, name) in ["Store/one", "Store", "", "Missing"].into_iter().enumerate() {
            pair.client.bind(pair.now, name, token as u64);
        }
        pair.settle();
        pair.told.sort_by_key(|(token, _)| *token);
        let refused: Vec<_> = (0..4).map(|token| (token, Told::NotBound(Kind::NotPermitted))).collect();
        assert_eq!(std::mem::take(&mut pair.told), refused, "also of what is not exported");
        pair.start(9, b"call");
        pair.settle();
        assert_eq!(pair.told, [(9, Told::Failed(Kind::NotPermitted, Ran::No))]);
        assert_eq!((pair.server.conversations(), pair.server.stats().calls), (0, 0));
    }
    let old = ClientConfig::default();
    let mut pair = Pair::with(old, server_config(&Folder::of(&[1])));
    pair.start(9, b"call");
    pair.settle();
    assert_eq!(pair.told, [(9, Told::Failed(Kind::NotPermitted, Ran::No))]);
}

/// Returns the conversation and the ticket of a WELCOME, as words.
fn ticket_of(welcome: &[u8]) -> (u64, Vec<u8>) {
    assert_eq!(frames_of(welcome)[0], WELCOME);
    let body = &welcome[24..];
    let conversation = u64::from_be_bytes(body[8..16].try_into().unwrap());
    let rest = u32::from_be_bytes(body[56..60].try_into().unwrap()) as usize;
    (conversation, body[16..60 + rest.next_multiple_of(4)].to_vec())
}

/// Returns whether the ticket of a challenge admits a call of somebody who proves nothing.
fn challenge_admits() -> bool {
    let mut pair = users(&[2], &[1], SERVER);
    pair.client.bind(pair.now, "Store/one", 1);
    let (_, asked) = kinds_sent(&mut pair);
    pair.receive(&asked);
    let welcome = pair.answered();
    let (conversation, ticket) = ticket_of(&welcome[0]);
    let mut shown = vec![TICKET, 0];
    shown.extend((ticket.len() as u16).to_be_bytes());
    shown.extend(ticket);
    let call = frame(CALL, 0, &[0, 0, 0, 1, 0, EXPORT as u32, 1, 7]);
    pair.receive(&[forged(conversation, 1, &[shown, call])]);
    !pair.asked.is_empty()
}

/// Returns whether somebody is let in by a proof that was made for a server at another address. There a
/// process of another user has passed the challenge of the genuine server on.
fn proof_moves() -> bool {
    let mut pair = users(&[1], &[1], "127.0.0.1:7001");
    pair.client.bind(pair.now, "Store/one", 1);
    pair.settle();
    pair.told == [(1, Told::Bound(EXPORT))]
}

/// Returns whether a client of another user is let in because it proves something.
fn any_proof_does() -> bool {
    let mut pair = users(&[2], &[1], SERVER);
    pair.client.bind(pair.now, "Store/one", 1);
    pair.settle();
    pair.told == [(1, Told::Bound(EXPORT))]
}

#[test]
fn a_challenge_admits_nobody_and_a_proof_is_good_at_one_server_only() {
    assert!(!challenge_admits() && !proof_moves() && !any_proof_does());
}

#[cfg(feature = "mutants")]
#[test]
fn who_breaks_a_rule_of_proofs_lets_strangers_in() {
    for (rule, is_noticed) in [
        (Rule::ChallengeAdmits, challenge_admits as fn() -> bool),
        (Rule::UserProofMoves, proof_moves),
        (Rule::UserUnproven, any_proof_does),
    ] {
        MUTANT.set(Mutant::of(rule));
        assert!(is_noticed(), "{rule:?}");
        MUTANT.set(Mutant::NONE);
    }
    assert_eq!(Rule::OF_USERS.len(), 3, "this test knows them all");
}

#[test]
fn a_proof_that_somebody_repeats_from_another_address_or_later_lets_nobody_in() {
    let mut pair = users(&[1], &[1], SERVER);
    pair.client.bind(pair.now, "Store/one", 1);
    round(&mut pair);
    let (_, proof) = kinds_sent(&mut pair);
    let refused = |pair: &mut Pair| {
        pair.receive(&proof);
        let answers = pair.answered();
        let refused = u16::from_be_bytes(answers[0][24 + 8 + 8 + 48 + 4..][..2].try_into().unwrap());
        (answers.len(), u32::from(refused))
    };
    let honest = std::mem::replace(&mut pair.from, "127.0.0.1:1001".parse::<SocketAddr>().unwrap());
    assert_eq!(refused(&mut pair), (1, u32::from(Kind::NotPermitted.code())), "from elsewhere");
    pair.from = honest;
    pair.pass(Duration::from_secs(61));
    assert_eq!(refused(&mut pair), (1, u32::from(Kind::NotPermitted.code())), "after its time");
}

#[test]
fn a_server_that_began_between_challenge_and_proof_challenges_again() {
    let folder = Folder::of(&[1]);
    let mut pair = users(&[1], &[1], SERVER);
    pair.client.bind(pair.now, "Store/one", 1);
    round(&mut pair);
    for secret in 2..4 {
        pair.server = Server::new(server_config(&folder), pair.now, [secret; 32]);
        pair.export();
        round(&mut pair);
        assert_eq!(pair.told, []);
    }
    round(&mut pair);
    assert_eq!(pair.told, [(1, Told::Bound(EXPORT))]);
}

#[test]
fn a_client_whose_server_has_restarted_or_forgotten_it_proves_itself_again() {
    let folder = Folder::of(&[1]);
    let mut pair = users(&[1], &[1], SERVER);
    pair.start(1, b"before..");
    pair.settle();
    pair.server = Server::new(server_config(&folder), pair.now, [9; 32]);
    pair.export();
    pair.pass(Duration::from_secs(1));
    pair.start(2, b"lost");
    pair.start(3, b"next");
    pair.settle();
    pair.start(4, b"after...");
    pair.settle();
    pair.told.sort_by_key(|(token, _)| *token);
    assert_eq!(pair.told[0], (1, Told::Result(b"before..".to_vec())));
    assert_eq!(pair.told[1], (2, Told::Failed(Kind::ServerRestarted, Ran::Maybe)));
    assert_eq!(pair.told[3], (4, Told::Result(b"after...".to_vec())));
}

#[test]
fn a_client_that_has_moved_renews_its_ticket_without_a_further_proof() {
    let mut pair = users(&[1], &[1], SERVER);
    pair.start(1, b"before..");
    pair.settle();
    pair.from = "127.0.0.1:1001".parse().unwrap();
    pair.start(2, b"after...");
    pair.settle();
    assert_eq!(pair.told[1], (2, Told::Result(b"after...".to_vec())));
}

#[test]
fn a_server_looks_for_a_secret_that_was_made_anew_but_not_for_each_proof() {
    let (of_client, of_server) = (Folder::of(&[1]), Folder::of(&[1]));
    let client = ClientConfig { same_user: same_user(&of_client, SERVER), ..ClientConfig::default() };
    let mut pair = Pair::with(client, server_config(&of_server));
    pair.client.bind(pair.now, "Store/one", 1);
    pair.settle();
    assert_eq!(of_server.looks.load(Ordering::Relaxed), 1);
    // The folder was removed, as at the end of the user's session, and is made again.
    [&of_client, &of_server].iter().for_each(|folder| folder.hold(&[2]));
    pair.pass(Duration::from_secs(1));
    for client in 1..100 {
        let config =
            ClientConfig { same_user: same_user(&Folder::of(&[9]), SERVER), ..ClientConfig::default() };
        pair.client = farcall_proto::client::Conversation::new(config, client);
        pair.client.bind(pair.now, "Store/one", 2);
        pair.settle();
    }
    assert_eq!(of_server.looks.load(Ordering::Relaxed), 2, "strangers make it look once in 100 ms");
    pair.told.clear();
    pair.pass(Duration::from_millis(100));
    let config = ClientConfig { same_user: same_user(&of_client, SERVER), ..ClientConfig::default() };
    pair.client = farcall_proto::client::Conversation::new(config, 0xc11e);
    pair.client.bind(pair.now, "Store/one", 3);
    pair.settle();
    assert_eq!(pair.told, [(3, Told::Bound(EXPORT))]);
}

#[test]
fn malformed_and_countless_proofs_are_nothing() {
    let mut pair = users(&[1], &[1], SERVER);
    pair.client.bind(pair.now, "Store/one", 1);
    let (_, asked) = kinds_sent(&mut pair);
    let bind = asked[0][20..asked[0].len() - 8].to_vec();
    for (proofs, answers) in [
        (vec![frame(USER_PROOF, 0, &[0, 1, 2, 3, 4, 5]); 20], 1),
        (vec![frame(USER_PROOF, 0, &[0, 1, 2, 3, 4, 5, 6, 7])], 1),
        (vec![frame(USER_PROOF, 0, &[0, 1])], 0),
    ] {
        pair.receive(&[forged(0, 1, &[proofs, vec![bind.clone()]].concat())]);
        assert_eq!(pair.answered().len(), answers);
    }
    // In a conversation the frame means nothing, and what follows it counts.
    pair.receive(&asked);
    let answers = pair.answered();
    pair.hear(&answers);
    pair.start(2, b"call");
    pair.settle();
    pair.start(3, b"next");
    let call = pair.sent();
    let next = fragment(1, 3, 8, 0, 4);
    pair.receive(&[forged(
        conversation_of(&call[0]),
        99,
        &[frame(USER_PROOF, 0, &[0, 1, 2, 3, 4, 5]), next, frame_about(PROBE, 0, 1, 3, &[])],
    )]);
    assert_eq!(pair.answered().iter().map(|d| frames_of(d)).collect::<Vec<_>>(), [[SELECT]]);
}
