//! Attacks on the handshakes of schemes with secrets, on resumption and on the phases of keys: changed answers,
//! repeated datagrams, servers with keys for other names, clients that are no longer accepted.
#![cfg(feature = "secure")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::trust::{CLIENT, SERVER, TestTrust};
use common::*;
use farcall_crypto::public_key;
use farcall_proto::client::{Call, Conversation};
use farcall_proto::secure::{Level, Suites};
use farcall_proto::server::{Export, Server};
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig};

const OPEN: u8 = 0;
const SECURE: u8 = 3;
/// The steps of a handshake.
const HELLO: u8 = 1;
const MESSAGE: u8 = 2;
const RESUME: u8 = 3;
/// Where the bytes of the ticket in a WELCOME begin: those that only the server reads, with their length.
const TICKET_REST: usize = 24 + 16 + 40;

/// A server, a client, and the keys of both.
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

    /// Returns how many handshakes the server has computed.
    fn computed(&self) -> u64 {
        *self.server.handshakes.lock().unwrap()
    }

    /// Makes a call, and returns its outcome.
    fn call(&mut self, token: u64) -> Told {
        self.pair.start(token, b"call");
        self.pair.carry(1, Duration::from_secs(60), |_, _, _| true);
        self.pair.told.pop().expect("an outcome").1
    }

    /// Makes the server, which has room for one conversation, forget that of the client.
    fn make_forgotten(&mut self) {
        self.pair.pass(Duration::from_secs(1));
        let other = Conversation::new(config(&self.client), 0xbeef);
        let client = std::mem::replace(&mut self.pair.client, other);
        assert_eq!(self.call(9), called());
        self.pair.client = client;
        self.pair.pass(Duration::from_secs(1));
    }
}

fn config(trust: &Arc<TestTrust>) -> ClientConfig {
    ClientConfig { trust: Some(trust.clone()), ..ClientConfig::default() }
}

fn called() -> Told {
    Told::Result(b"call".to_vec())
}

/// Returns the length and the place of the step in a WELCOME, or in a BIND that renews nothing, proves nothing
/// and names nothing.
fn step_of(datagram: &Datagram) -> Option<(u8, usize)> {
    let word = |at: usize| u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap()) as usize;
    let handshake = match datagram[20] {
        BIND if datagram[21] == 0 => 24 + 28 + 4,
        2 => TICKET_REST + 4 + word(TICKET_REST).next_multiple_of(4) + 16 + 20 + 16,
        _ => return None,
    };
    let part = handshake + 16;
    (word(handshake) > 0).then(|| (datagram[part], part))
}

fn phase_of(datagram: &Datagram) -> u16 {
    u16::from_be_bytes([datagram[2], datagram[3]]) & 0x3fff
}

fn room_for_one() -> ServerConfig {
    ServerConfig { max_conversations: 1, ..ServerConfig::default() }
}

#[test]
fn a_changed_hello_only_delays_the_handshake() {
    let hello = |party: &mut Party| {
        party.pair.start(1, b"call");
        let sent = party.pair.sent();
        party.pair.receive(&sent);
        party.pair.answered().remove(0)
    };
    let body = hello(&mut Party::new()).len() - 24 - 8;
    for at in 0..body {
        let mut party = Party::new();
        let intact = hello(&mut party);
        let mut frames = intact[20..intact.len() - 8].to_vec();
        frames[4 + at] ^= 3;
        let changed = forged(conversation_of(&intact), 1 << 50, &[frames]);
        party.pair.hear(&[changed, intact]);
        party.pair.carry(1, Duration::from_secs(5), |_, _, _| true);
        let told = party.pair.told.pop().map(|(_, told)| told);
        // What the client cannot accept it takes for the server's word, which is not yet sealed.
        let refusals = [Told::Failed(Kind::Mismatch, Ran::No), Told::Failed(Kind::NotPermitted, Ran::No)];
        assert!(
            told == Some(called()) || refusals.iter().any(|r| told.as_ref() == Some(r)),
            "{at}: {told:?}"
        );
    }
}

#[test]
fn an_offer_of_suites_that_was_changed_is_noticed() {
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let mut greeted = 0;
    party.pair.carry(1, Duration::from_secs(5), |_, d, to| {
        greeted += usize::from(to == To::Client && d[1] == OPEN && d[20] == 2);
        true
    });
    assert_eq!(greeted, 1);
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let mut bind = party.pair.sent().remove(0);
    let (step, at) = step_of(&bind).unwrap();
    assert_eq!(step, HELLO);
    bind[at + 1] = 0b100;
    let len = bind.len();
    let bind = forged(0, 1, &[bind[20..len - 8].to_vec()]);
    party.pair.receive(&[bind]);
    let answers = party.pair.answered();
    assert_eq!(answers[0][step_of(&answers[0]).unwrap().1 + 1], 2, "the server was told of no other suite");
    party.pair.hear(&answers);
    let mut chosen = 0;
    party.pair.carry(1, Duration::from_secs(5), |_, d, to| {
        if let Some((MESSAGE, at)) = step_of(d).filter(|_| to == To::Client) {
            chosen = d[at + 1];
        }
        true
    });
    assert_eq!(party.pair.told, [(1, called())]);
    let best = Suites::of_this_machine().best(Level::Secure).unwrap();
    assert_eq!(chosen, best as u8, "both have said in the handshake what they can");
}

#[test]
fn a_first_message_that_comes_again_changes_nothing_and_is_not_computed_again() {
    let mut party = Party::new();
    party.pair.start(1, b"call");
    let sent = party.pair.sent();
    party.pair.receive(&sent);
    let hello = party.pair.answered();
    party.pair.hear(&hello);
    let message = party.pair.sent();
    let mut answers = Vec::new();
    for _ in 0..1_000 {
        party.pair.receive(&message);
        answers.extend(party.pair.answered());
    }
    assert_eq!((party.computed(), party.pair.server.conversations()), (1, 0));
    assert!(answers.len() == 1_000 && answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(step_of(&answers[0]).unwrap().0, MESSAGE);
    assert!(answers[0].len() <= 3 * message[0].len());
    party.pair.pass(Duration::from_secs(11));
    party.pair.receive(&message);
    assert_eq!(step_of(&party.pair.answered()[0]).unwrap().0, HELLO, "the answer is not kept any more");
    party.pair.pass(Duration::from_secs(50));
    party.pair.receive(&message);
    assert_eq!(party.computed(), 1, "the proof is too old");
    assert_eq!(step_of(&party.pair.answered()[0]).unwrap().0, HELLO);
}

#[test]
fn a_client_that_is_refused_gets_no_secrets_in_its_ticket() {
    let mut party = Party::new();
    party.server.accepted.lock().unwrap().clear();
    party.pair.start(1, b"call");
    let mut rests = Vec::new();
    party.pair.carry(1, Duration::from_secs(5), |_, d, _| {
        if d[20] == 2 {
            rests.push((d[1], d[TICKET_REST + 3]));
        }
        true
    });
    assert_eq!(rests, [(OPEN, 0), (SECURE, 0)]);
    assert_eq!(party.pair.told, [(1, Told::Failed(Kind::NotPermitted, Ran::No))]);
}

#[test]
fn the_datagram_that_makes_a_conversation_known_is_not_taken_again() {
    let mut party = Party::new();
    party.pair.client.bind(party.pair.now, "Store/one", 1);
    while party.pair.told.is_empty() {
        let sent = party.pair.sent();
        party.pair.receive(&sent);
        let answers = party.pair.answered();
        party.pair.hear(&answers);
    }
    assert_eq!((&party.pair.told[0].1, party.pair.server.conversations()), (&Told::Bound(EXPORT), 0));
    let mut out = vec![0; 2_000];
    for posted in 1..=3 {
        let len = party.pair.client.post(EXPORT, b"once", &mut out).unwrap();
        party.pair.receive(&vec![out[..len].to_vec(); 3]);
        assert_eq!((party.pair.posted.len(), party.pair.server.conversations()), (posted, 1));
    }
}

#[test]
fn a_forgotten_conversation_is_resumed_without_a_handshake_while_its_client_is_accepted() {
    let mut party = Party::with(room_for_one());
    assert_eq!(party.call(1), called());
    party.make_forgotten();
    let computed = party.computed();
    assert_eq!(party.call(2), Told::Failed(Kind::Forgotten, Ran::No));
    let mut steps = Vec::new();
    party.pair.start(3, b"call");
    party
        .pair
        .carry(1, Duration::from_secs(5), |_, d, _| (steps.extend(step_of(d).map(|(step, _)| step)), true).1);
    assert_eq!((party.pair.told.pop(), party.computed()), (Some((3, called())), computed));
    party.make_forgotten();
    let computed = party.computed();
    // A ticket key that is replaced a second time cannot open the ticket any more.
    for _ in 0..2 {
        party.pair.pass(Duration::from_secs(601));
        let asks = Conversation::new(config(&party.client), 0xabcd);
        let client = std::mem::replace(&mut party.pair.client, asks);
        party.pair.client.bind(party.pair.now, "", 4);
        party.pair.carry(1, Duration::from_secs(5), |_, _, _| true);
        assert_eq!(party.pair.told.pop(), Some((4, Told::Bound(0))));
        party.pair.client = client;
    }
    assert_eq!(party.computed(), computed + 2);
    party.pair.pass(Duration::from_secs(1));
    assert_eq!(party.call(5), Told::Failed(Kind::Forgotten, Ran::No));
    assert_eq!((party.call(6), party.computed()), (called(), computed + 3));
    party.make_forgotten();
    party.server.accepted.lock().unwrap().clear();
    party.pair.start(7, b"call");
    let before = party.pair.asked.len();
    party.pair.carry(1, Duration::from_secs(60), |_, d, to| {
        assert!(to == To::Server || step_of(d).is_none_or(|(step, _)| step != RESUME));
        true
    });
    assert_eq!(party.pair.asked.len(), before);
    assert!(
        matches!(party.pair.told[..], [(7, Told::Failed(_, Ran::No | Ran::Maybe))]),
        "{:?}",
        party.pair.told
    );
}

#[test]
fn a_server_answers_only_for_names_that_its_key_may_answer_for_also_when_it_resumes() {
    for forgets in [false, true] {
        let mut party = Party::with(room_for_one());
        let (type_name, instance) = ("Other".into(), String::new());
        party.pair.server.export(Export { id: 78, type_name, instance, procedures: Vec::new() });
        assert_eq!(party.call(1), called());
        if forgets {
            party.make_forgotten();
        }
        party.client.names.lock().unwrap().insert(public_key(&SERVER), b"Store/one".to_vec());
        for (token, name, bound) in [(2, "Other", false), (3, "Store/one", true)] {
            party.pair.client.bind(party.pair.now, name, token);
            party.pair.carry(1, Duration::from_secs(60), |_, _, _| true);
            let told = party.pair.told.pop().expect("an answer");
            assert_eq!(matches!(told, (_, Told::Bound(_))), bound, "{told:?}");
        }
    }
}

#[test]
fn another_server_at_the_address_gets_no_call_that_was_meant_for_the_former_one() {
    let mut party = Party::new();
    const OTHER: [u8; 32] = [9; 32];
    party.client.accepted.lock().unwrap().insert(public_key(&OTHER));
    party.client.names.lock().unwrap().insert(public_key(&OTHER), b"Other".to_vec());
    assert_eq!(party.call(1), called());
    party.pair.start(2, b"argument");
    let trust = TestTrust::new(OTHER, &[CLIENT]);
    let settings = ServerConfig { trust: Some(trust), ..ServerConfig::default() };
    party.pair.server = Server::new(settings, party.pair.now, [8; 32]);
    party.pair.export();
    let (type_name, instance) = ("Other".into(), String::new());
    party.pair.server.export(Export { id: 78, type_name, instance, procedures: Vec::new() });
    party.pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(party.pair.told.pop(), Some((2, Told::Failed(Kind::Unreachable, Ran::Maybe))));
    assert_eq!(party.pair.server.conversations(), 0, "nothing has led to secrets");
    party.pair.start(3, b"argument");
    party.pair.client.bind(party.pair.now, "Other", 4);
    party.pair.carry(2, Duration::from_secs(60), |_, _, _| true);
    party.pair.told.sort_by_key(|(token, _)| *token);
    let expected = [(3, Told::Failed(Kind::ServerRestarted, Ran::Maybe)), (4, Told::Bound(78))];
    assert_eq!(party.pair.told, expected);
    // Calls that begin later are refused too, except those of what the new server has bound.
    let call = |export| Call { export, procedure: 1, deadline: None, trace: None, token: 5 };
    let mut out = vec![0; 2_000];
    let late = party.pair.client.start(|| party.pair.now, &call(EXPORT), &mut b"argument".to_vec());
    assert_eq!(late.map_err(|failure| (failure.kind, failure.ran)), Err((Kind::ServerRestarted, Ran::No)));
    assert!(party.pair.client.start_lone((EXPORT, 1), b"argument", &mut out).is_none());
    assert!(party.pair.client.post(EXPORT, b"argument", &mut out).is_none());
    assert_eq!(party.pair.server.stats().calls, 0);
    party.pair.told.clear();
    party.pair.client.start(|| party.pair.now, &call(78), &mut b"call".to_vec()).expect("it is permitted");
    party.pair.carry(1, Duration::from_secs(5), |_, _, _| true);
    assert_eq!(party.pair.told, [(5, called())]);
}

#[test]
fn keys_change_every_ten_minutes_and_only_when_both_ends_have_the_last_ones() {
    let mut party = Party::new();
    assert_eq!(party.call(0), called());
    for phase in 0..5 {
        let mut seen = Vec::new();
        party.pair.pass(Duration::from_secs(660));
        party.pair.start(1, b"call");
        party.pair.carry(1, Duration::from_secs(5), |_, d, to| (seen.push((to, phase_of(d))), true).1);
        assert_eq!(seen, [(To::Server, phase), (To::Client, phase + 1)]);
        assert_eq!(party.pair.told.pop(), Some((1, called())));
    }
    // The answer in the next phase is lost: the client does not have the keys, and the server keeps to them.
    party.pair.pass(Duration::from_secs(660));
    party.pair.start(1, b"call");
    let (mut seen, mut lost) = (Vec::new(), 0);
    party.pair.carry(1, Duration::from_secs(60), |_, d, to| {
        seen.push(phase_of(d));
        lost += u32::from(to == To::Client);
        to == To::Server || lost > 3
    });
    assert_eq!((party.pair.told.pop(), seen.iter().max(), seen.len()), (Some((1, called())), Some(&6), 8));
}

#[test]
fn an_idle_server_erases_its_ticket_keys_and_then_has_no_timer() {
    let mut pair = Pair::with(common::trust::client(), common::trust::server());
    pair.client.bind(pair.now, "Store", 1);
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Bound(EXPORT))]);
    for _ in 0..2 {
        assert!(pair.server.timeout().is_some());
        pair.pass(Duration::from_secs(600));
        pair.server.handle_timeout(pair.now);
    }
    assert_eq!(pair.server.timeout(), None);
    // The ticket holds the secrets of the conversation, which nobody can read any more.
    pair.start(2, b"call");
    let call = pair.sent();
    pair.receive(&call);
    assert_eq!((pair.asked.len(), pair.server.conversations()), (0, 0));
}

#[test]
fn every_promise_of_the_specification_names_its_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(document) = std::fs::read_to_string(root.join("docs/protocol.md")) else {
        println!("skipped: docs/protocol.md is not here (the crate stands alone)");
        return;
    };
    let table = document.split("| attacker | promise | test |").nth(1).expect("the table of section 11.9");
    let mut named = 0;
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [attacker, promise, tests] = cells[..] else { panic!("a row of three cells: {row}") };
        assert!(!attacker.is_empty() && !promise.is_empty());
        if tests.starts_with("by construction") {
            continue;
        }
        for test in tests.split(", ") {
            let (file, name) = test.trim_matches('`').split_once("::").expect("FILE::TEST");
            let folder = if file.contains('/') { "crates" } else { "crates/farcall-proto/tests" };
            let text = std::fs::read_to_string(root.join(format!("{folder}/{file}.rs"))).expect(file);
            assert!(
                text.contains(&format!("#[test]\n    fn {name}()"))
                    || text.contains(&format!("#[test]\nfn {name}()")),
                "{name}"
            );
            named += 1;
        }
    }
    assert!(named >= 15, "{named}");
}
