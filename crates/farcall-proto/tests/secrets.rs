//! The protocol in schemes with secrets: handshakes, sealed calls, accesses to memory, posts, fragments and
//! datagrams that calls share, changed addresses and restarted servers.
#![cfg(feature = "secure")]

mod common;

use std::time::Duration;

use common::trust::{CLIENT, SERVER, TestTrust, client, server};
use common::*;
use farcall_proto::client::Call;
use farcall_proto::secure::{self, Cipher, Level, Opened};
use farcall_proto::server::{Busiest, Export, Finish, Insert, Reading, Server};
use farcall_proto::{BASE_DATAGRAM, ClientConfig, Kind, MAX_POST, READINGS, Ran, ServerConfig};

const OPEN: u8 = 0;
const SECURE: u8 = 3;
const WELCOME: u8 = 0x02;

fn acquainted() -> Pair {
    Pair::acquainted_with(client(), server())
}

/// Opens a copy of a datagram that one end has sent.
fn opened(cipher: &Cipher, datagram: &[u8]) -> (Datagram, Option<Opened>) {
    let mut copy = datagram.to_vec();
    let opened = secure::open(cipher, &mut copy);
    (copy, opened)
}

/// Returns whether a datagram may be in the open scheme.
fn may_be_open(datagram: &Datagram) -> bool {
    matches!(datagram[20], BIND | WELCOME | CHALLENGE | STALE)
}

/// Delivers a datagram to the server. Returns whether it has no effect: no call, no post, no conversation, at
/// most a hint.
fn is_nothing(pair: &mut Pair, datagram: &Datagram) -> bool {
    let before = (pair.asked.len(), pair.posted.len(), pair.cancelled.len(), pair.server.conversations());
    pair.receive(std::slice::from_ref(datagram));
    let hints = pair.answered().iter().all(|d| matches!(d[20], CHALLENGE | STALE | WELCOME) || d[1] == OPEN);
    before == (pair.asked.len(), pair.posted.len(), pair.cancelled.len(), pair.server.conversations())
        && hints
}

#[test]
fn a_call_takes_two_round_trips_before_it_and_nothing_is_kept_or_computed_for_unproven_addresses() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = Pair::with(client(), ServerConfig { trust: Some(trust.clone()), ..server() });
    pair.start(1, b"call");
    let first = pair.sent();
    pair.receive(&first);
    let hello = pair.answered();
    assert_eq!((first.len(), hello.len(), hello[0][1]), (1, 1, OPEN));
    assert!(hello[0].len() <= 3 * first[0].len());
    assert_eq!(*trust.handshakes.lock().unwrap(), 0);
    pair.hear(&hello);
    let second = pair.sent();
    // The proof is good only at the address that it was given to.
    let from = std::mem::replace(&mut pair.from, "10.9.9.9:9".parse().unwrap());
    pair.receive(&second);
    assert_eq!((pair.answered()[0][1], *trust.handshakes.lock().unwrap()), (OPEN, 0));
    pair.from = from;
    pair.receive(&second);
    let welcome = pair.answered();
    assert_eq!((welcome[0][1], *trust.handshakes.lock().unwrap()), (SECURE, 1));
    assert_eq!(pair.server.conversations(), 0);
    pair.hear(&welcome);
    let call = pair.sent();
    pair.receive(&call);
    assert_eq!((call.len(), pair.asked.len()), (1, 1), "the third datagram is the call");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
    assert_eq!(pair.client.principal().unwrap().key, farcall_crypto::public_key(&SERVER));
    pair.start(2, b"more");
    assert_eq!(pair.settle(), 2);
}

#[test]
fn the_server_learns_who_calls() {
    let mut pair = acquainted();
    pair.start(1, b"call");
    let mut call = pair.sent().remove(0);
    let mut caller = None;
    pair.server.receive_any(pair.now, pair.from, &mut call, &mut |request| {
        if let farcall_proto::server::Request::Call(incoming) = request {
            caller = incoming.principal;
        }
    });
    assert_eq!(caller.unwrap().key, farcall_crypto::public_key(&CLIENT));
}

#[test]
fn a_handshake_succeeds_whichever_datagram_is_lost_or_doubled() {
    for which in 0..10 {
        let mut pair = Pair::with(client(), server());
        pair.start(1, b"call");
        let mut n = 0;
        pair.carry(1, Duration::from_secs(5), |_, _, _| (n != which, n += 1).0);
        assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))], "{which}");
        let mut pair = Pair::with(client(), server());
        pair.start(1, b"call");
        while pair.told.is_empty() {
            let sent = pair.sent();
            pair.receive(&[sent.clone(), sent].concat());
            let mut answers = pair.answered();
            for (key, args) in std::mem::take(&mut pair.asked) {
                answers.extend(pair.finish(key, Finish::Result, &args));
            }
            pair.hear(&[answers.clone(), answers].concat());
        }
        assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
    }
}

#[test]
fn a_forged_answer_to_a_question_only_delays_the_handshake() {
    let mut pair = Pair::with(client(), server());
    pair.start(1, b"call");
    let mut n = 0;
    for round in 0..200 {
        let sent = pair.sent();
        pair.receive(&sent);
        let mut answers = pair.answered();
        for (key, args) in std::mem::take(&mut pair.asked) {
            answers.extend(pair.finish(key, Finish::Result, &args));
        }
        for answer in &answers {
            // A forged answer comes first: some byte of the frame is changed, and the datagram is in the open
            // scheme with the right checksum.
            n += 37;
            let mut frames = answer[20..answer.len() - if answer[1] == SECURE { 16 } else { 8 }].to_vec();
            let at = 4 + n % (frames.len() - 4);
            frames[at] ^= 1;
            if round < 20 {
                pair.hear(&[forged(conversation_of(answer), 1 << 50, &[frames])]);
            }
            pair.hear(std::slice::from_ref(answer));
        }
        pair.pass(Duration::from_millis(25));
        pair.tick();
    }
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
}

#[test]
fn all_datagrams_but_questions_and_hints_are_sealed_and_changed_ones_have_no_effect() {
    let mut pair = acquainted();
    pair.start(1, b"argument");
    let call = pair.sent().remove(0);
    assert_eq!(call[1], SECURE);
    assert!(!call.windows(8).any(|bytes| bytes == b"argument"), "it is encrypted");
    assert_eq!(call.len(), 20 + 4 + 28 + 8 + 16);
    for at in 0..call.len() {
        let mut changed = call.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(is_nothing(&mut pair, &changed), "byte {at}");
    }
    for len in 0..call.len() {
        assert!(is_nothing(&mut pair, &call[..len].to_vec()), "{len} bytes");
    }
    pair.receive(&[call]);
    let (key, args) = pair.asked.pop().expect("the unchanged datagram holds a call");
    let result = pair.finish(key, Finish::Result, &args).remove(0);
    assert_eq!(result[1], SECURE);
    for at in 0..result.len() {
        let mut changed = result.clone();
        changed[at] ^= 1 << (at % 8);
        pair.hear(&[changed]);
        assert_eq!(pair.told, [], "byte {at}");
    }
    pair.hear(&[result]);
    assert_eq!(pair.told, [(1, Told::Result(b"argument".to_vec()))]);
}

#[test]
fn a_seal_is_good_for_one_conversation_one_number_and_one_direction() {
    let (mut pair, mut other) = (acquainted(), acquainted());
    other.client = farcall_proto::client::Conversation::new(client(), 0xbeef);
    other.server = std::mem::replace(&mut pair.server, Server::new(server(), pair.now, [1; 32]));
    std::mem::swap(&mut pair.server, &mut other.server);
    pair.start(1, b"argument");
    let call = pair.sent().remove(0);
    let id = conversation_of(&call);
    let with = |at: usize, word: u64| {
        let mut changed = call.clone();
        changed[at..at + 8].copy_from_slice(&word.to_be_bytes());
        changed
    };
    assert!(is_nothing(&mut pair, &with(12, 1 << 20)), "a datagram with another number has no effect");
    assert!(is_nothing(&mut pair, &with(4, id ^ 1)), "a datagram of another conversation has no effect");
    // The same datagrams go to the client, as if the server had sent them.
    pair.hear(&[call.clone(), with(4, 0xc11e)]);
    assert_eq!(pair.client.stats().dropped, 2);
    // The same frames come in the open scheme, with the right tag.
    let frames = call[20..call.len() - 16].to_vec();
    assert!(
        is_nothing(&mut pair, &forged(id, 1 << 20, &[frames])),
        "a datagram in another scheme has no effect"
    );
    pair.receive(&[call]);
    let (key, args) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, &args).remove(0);
    // The same result comes in the open scheme, and then to the server.
    let frames = result[20..result.len() - 16].to_vec();
    pair.hear(&[forged(0xc11e, 1 << 20, &[frames])]);
    assert_eq!(pair.told, []);
    assert!(is_nothing(&mut pair, &result));
    pair.hear(&[result]);
    assert_eq!(pair.told.len(), 1);
}

#[test]
fn long_arguments_and_results_are_sealed_in_every_fragment() {
    for loss in [0, 7] {
        let mut pair = acquainted();
        let args: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8).collect();
        pair.start(1, &args);
        let (mut n, mut sizes) = (0, Vec::new());
        pair.carry(1, Duration::from_secs(60), |_, d, _| {
            assert!(d[1] == SECURE || may_be_open(d), "scheme {}", d[1]);
            sizes.push(d.len());
            n += 1;
            loss == 0 || n % loss != 0
        });
        assert_eq!(pair.told, [(1, Told::Result(args))]);
        assert!(sizes.iter().all(|len| len.is_multiple_of(4)) && sizes.iter().any(|len| *len > 60_000));
    }
}

#[test]
fn a_result_in_a_separate_buffer_is_sealed_with_its_datagram() {
    let mut pair = Pair::acquainted_with(client(), ServerConfig { max_datagram: 1_200, ..server() });
    pair.start(1, b"call");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    let insert = Insert { at: 4, bytes: vec![9; 40_000].into() };
    pair.server.finish_around(pair.now, key, Finish::Result, &mut b"headtail".to_vec(), insert);
    let mut out = vec![0; 65_536];
    for _ in 0..100 {
        while let Some(parted) = pair.server.transmit(pair.now, &mut out) {
            assert!(parted.insert.is_none(), "the tag covers the whole datagram, so it is not sent in parts");
            pair.hear(&[parted.gather(&out)]);
        }
        let sent = pair.sent();
        pair.receive(&sent);
    }
    let whole = [b"head".to_vec(), vec![9; 40_000], b"tail".to_vec()].concat();
    assert_eq!(pair.told, [(1, Told::Result(whole))]);
}

#[test]
fn accesses_to_memory_posts_and_calls_that_share_a_datagram_are_sealed() {
    let mut pair = acquainted();
    let memory = 78;
    let (type_name, instance) = ("Memory".into(), String::new());
    pair.server.export(Export { id: memory, type_name, instance, procedures: Vec::new() });
    // This is a reading on the fast path, answered at once.
    let mut out = vec![0; 2_000];
    let brief = pair
        .client
        .start_lone((memory, READINGS), b"from to.", &mut out)
        .expect("the call takes the fast path");
    let datagram = out[..brief.bytes].to_vec();
    assert_eq!(datagram[1], SECURE);
    let cipher = pair.server.cipher(pair.now, &pair.from, &datagram).expect("the conversation is known");
    for at in 0..datagram.len() {
        let mut changed = datagram.clone();
        changed[at] ^= 1;
        assert!(at == 0 || opened(&cipher, &changed).1.is_none(), "byte {at}");
    }
    let (mut answer, mut longest) = (vec![0; 2_000], 0);
    let read = |reading: Reading<'_>, room: &mut [u8]| {
        assert_eq!(reading.args, b"from to.");
        assert_eq!(room.len(), BASE_DATAGRAM - 20 - 4 - 20 - 16);
        longest = room.len();
        Some(longest)
    };
    let (plain, by) = opened(&cipher, &datagram);
    let sealed = Reading::peek(&datagram, None);
    let unread = |_: Reading<'_>, _: &mut [u8]| panic!("the datagram is not opened");
    if let Some(reading) = sealed {
        let out = &mut [0; 2_000];
        assert!(pair.server.answer_reading(pair.now, &pair.from, reading, out, unread).is_none());
    }
    let reading = Reading::peek(&plain, by).expect("the datagram holds a reading");
    let sent = pair.server.answer_reading(pair.now, &pair.from, reading, &mut answer, read).unwrap();
    let again = Reading::peek(&plain, by).expect("the datagram holds a reading");
    let unread = |_: Reading<'_>, _: &mut [u8]| panic!("the same datagram comes again");
    let twice = pair.server.answer_reading(pair.now, &pair.from, again, &mut [0; 2_000], unread);
    assert!(twice.is_none());
    let answer = sent.gather(&answer);
    assert_eq!((answer.len(), answer[1]), (BASE_DATAGRAM, SECURE));
    let cipher = pair.client.cipher().unwrap();
    let mut changed = answer.clone();
    changed[100] ^= 1;
    let (changed, none) = opened(&cipher, &changed);
    assert!(pair.client.end_lone(|| pair.now, &brief, None, (&changed, none)).is_none());
    let (plain, by) = opened(&cipher, &answer);
    let ended = pair.client.end_lone(|| pair.now, &brief, None, (&plain, by));
    assert_eq!(ended.map(<[u8]>::len), Some(longest));
    // This is a post of the greatest length, also beside a ticket.
    let conversation = conversation_of(&datagram);
    for shown in [false, true] {
        if shown {
            let [high, low] = [(conversation >> 32) as u32, conversation as u32];
            pair.hear(&[forged(0, 1, &[frame(CHALLENGE, 0, &[high, low, 0, 1])])]);
        }
        let len = pair.client.post(memory, &[7; MAX_POST], &mut out).expect("room");
        assert_eq!(out[1], SECURE);
        pair.receive(&[out[..len].to_vec()]);
    }
    assert_eq!(pair.posted, vec![(memory, vec![7; MAX_POST]); 2]);
    // These calls share a datagram, and so do their results.
    (1..=20).for_each(|token| {
        pair.start(token, &[token as u8; 32]);
    });
    let calls = pair.sent();
    pair.receive(&calls);
    for (key, args) in std::mem::take(&mut pair.asked) {
        pair.server.finish(pair.now, key, Finish::Result, &mut args.clone(), &mut []);
    }
    let results = pair.answered();
    assert!(
        calls.len() <= 3 && results.len() <= 3,
        "calls took {} datagrams and results {}",
        calls.len(),
        results.len()
    );
    pair.hear(&results);
    assert_eq!(pair.told.len(), 20);
}

#[test]
fn a_client_that_moves_and_a_server_that_restarts_work_as_in_any_scheme() {
    let mut pair = acquainted();
    pair.from = "10.0.0.1:2000".parse().unwrap();
    pair.start(1, b"moved...");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"moved...".to_vec()))]);
    assert_eq!(pair.server.conversations(), 1);
    pair.pass(Duration::from_secs(60));
    pair.server = Server::new(server(), pair.now, [8; 32]);
    pair.export();
    pair.pass(Duration::from_secs(10));
    pair.start(2, b"late");
    pair.settle();
    assert_eq!(pair.told[1], (2, Told::Failed(Kind::ServerRestarted, Ran::No)));
    pair.start(3, b"next");
    pair.settle();
    assert_eq!(pair.told[2], (3, Told::Result(b"next".to_vec())));
}

#[test]
fn a_changed_answer_to_a_question_has_no_effect() {
    let mut pair = acquainted();
    pair.start(1, b"call");
    let call = pair.sent();
    pair.receive(&call);
    let conversation = conversation_of(&call[0]);
    let [high, low] = [(conversation >> 32) as u32, conversation as u32];
    pair.hear(&[forged(0, 1 << 40, &[frame(STALE, 0, &[high, low, 0, 9, 1, 0])])]);
    let bind = pair.sent().remove(0);
    let body = usize::from(u16::from_be_bytes([bind[22], bind[23]]));
    // The server says of another incarnation's ticket that it has ended.
    for at in 24..24 + body {
        let mut frames = bind[20..bind.len() - 8].to_vec();
        frames[at - 20] ^= 0x10;
        pair.receive(&[forged(0, 1 << 41, &[frames])]);
        let answers = pair.answered();
        pair.hear(&answers);
        assert_eq!(pair.told, [], "byte {at}");
    }
    for _ in 0..400 {
        pair.settle();
        pair.pass(Duration::from_millis(25));
        pair.tick();
    }
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
    assert_eq!(pair.server.conversations(), 1);
}

#[test]
fn forged_hints_end_no_call_and_an_end_without_the_secret_cannot_join() {
    let mut pair = acquainted();
    pair.start(1, b"call");
    let call = pair.sent();
    pair.receive(&call);
    let conversation = conversation_of(&call[0]);
    let [high, low] = [(conversation >> 32) as u32, conversation as u32];
    let challenge = forged(0, 1 << 40, &[frame(CHALLENGE, 0, &[high, low, 0, 9])]);
    let stale = |reason| forged(0, 1 << 40, &[frame(STALE, 0, &[high, low, 0, 9, reason, 0])]);
    // A hint that was changed, or is in another scheme than the open one, has no effect.
    for hint in [&challenge, &stale(1)] {
        for at in [1, hint.len() - 1] {
            for bit in [1, 2, 3] {
                let mut changed = hint.clone();
                changed[at] ^= bit;
                changed.extend_from_slice(if at == 1 && bit == 3 { &[0; 8] } else { &[] });
                pair.hear(&[changed]);
                assert_eq!(pair.sent(), Vec::<Datagram>::new());
            }
        }
    }
    pair.hear(&[challenge]);
    assert_eq!(pair.sent().len(), 1, "the intact hint has an effect");
    for reason in 1..=4 {
        pair.hear(&[stale(reason)]);
        pair.settle();
    }
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
    assert_eq!(pair.server.conversations(), 1);
    let stranger = Some(TestTrust::new([9; 32], &[SERVER]) as _);
    let deceived = Some(TestTrust::new(CLIENT, &[[9; 32]]) as _);
    let known = || client().trust;
    for (ours, theirs, expected) in [
        (known(), None, Kind::Mismatch),
        (None, server().trust, Kind::Mismatch),
        (stranger, server().trust, Kind::NotPermitted),
        (deceived, server().trust, Kind::NotPermitted),
    ] {
        let client = ClientConfig { trust: ours, ..ClientConfig::default() };
        let mut pair = Pair::with(client, ServerConfig { trust: theirs, ..ServerConfig::default() });
        pair.start(1, b"call");
        pair.carry(1, Duration::from_secs(60), |_, _, _| true);
        assert_eq!(pair.told, [(1, Told::Failed(expected, Ran::No))]);
        assert_eq!(pair.server.conversations(), 0);
    }
}

#[test]
fn a_client_whose_key_is_taken_away_while_its_handshake_is_computed_is_refused() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = Pair::with(client(), ServerConfig { trust: Some(trust.clone()), ..server() });
    pair.start(1, b"call");
    let hello = pair.sent();
    pair.receive(&hello);
    let shown = pair.answered();
    pair.hear(&shown);
    let message = pair.sent().remove(0);
    pair.server.receive(pair.now, pair.from, &message, &mut |_| {});
    let computed = pair.server.next_handshake(pair.now).expect("a handshake").compute();
    trust.accepted.lock().unwrap().clear();
    let mut out = vec![0; 2_000];
    let answer = pair.server.finish_handshake(pair.now, computed, &mut out).expect("an answer");
    pair.hear(&[answer.gather(&out)]);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::NotPermitted, Ran::No))]);
}

#[test]
fn an_answer_to_a_conversation_that_was_forgotten_since_is_not_sent_without_a_seal() {
    let mut pair = acquainted();
    let key = pair.execute(1, b"call");
    pair.pass(Duration::from_secs(1));
    pair.tick();
    let asks = pair.sent();
    pair.receive(&asks);
    pair.server.forget_revoked(pair.now, |_| false);
    assert_eq!((pair.server.next_forsaken(), pair.server.conversations()), (Some(key), 0));
    assert!(!pair.server.is_quiet());
    assert_eq!(pair.answered(), Vec::<Datagram>::new());
}

#[test]
fn a_client_that_is_no_longer_accepted_cannot_resume() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = Pair::acquainted_with(client(), ServerConfig { trust: Some(trust.clone()), ..server() });
    pair.server.forget_revoked(pair.now, |_| false);
    trust.accepted.lock().unwrap().clear();
    for token in 1..=2 {
        pair.start(token, b"call");
        pair.carry(token as usize, Duration::from_secs(60), |_, _, _| true);
    }
    assert!(matches!(pair.told[0], (1, Told::Failed(..))), "{:?}", pair.told);
    assert_eq!(pair.told[1], (2, Told::Failed(Kind::NotPermitted, Ran::No)));
    assert_eq!(pair.server.conversations(), 0);
}

#[test]
fn a_server_that_has_forgotten_a_conversation_resumes_it_with_random_bytes_of_its_own() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = Pair::acquainted_with(client(), ServerConfig { trust: Some(trust.clone()), ..server() });
    assert_eq!(*trust.handshakes.lock().unwrap(), 1);
    pair.server.forget_revoked(pair.now, |_| false);
    pair.start(1, b"call");
    // The server challenges the call, then says that the ticket is too old.
    for _ in 0..2 {
        let call = pair.sent();
        pair.receive(&call);
        let hint = pair.answered();
        pair.hear(&hint);
    }
    let bind = pair.sent();
    let answers: Vec<_> = (0..2).flat_map(|_| (pair.receive(&bind), pair.answered()).1).collect();
    let random = |answer: &Datagram| {
        // The server's random bytes stand before what it shows of itself.
        let key = farcall_crypto::public_key(&SERVER);
        let at = answer.windows(32).position(|bytes| bytes == key).expect("it resumes");
        answer[at - 32..at].to_vec()
    };
    assert_eq!((answers.len(), answers[0][1]), (2, SECURE));
    assert_ne!(random(&answers[0]), random(&answers[1]));
    pair.hear(&answers);
    pair.settle();
    assert!(matches!(pair.told[..], [(1, Told::Failed(Kind::Forgotten, _))]), "{:?}", pair.told);
    pair.start(2, b"next");
    pair.settle();
    assert_eq!(pair.told[1], (2, Told::Result(b"next".to_vec())));
    assert_eq!(*trust.handshakes.lock().unwrap(), 1, "it was resumed");
}

#[test]
fn tickets_are_good_for_twenty_minutes_at_most_once_their_conversation_is_forgotten() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = Pair::acquainted_with(client(), ServerConfig { trust: Some(trust.clone()), ..server() });
    pair.server.forget_revoked(pair.now, |_| false);
    for _ in 0..2 {
        pair.pass(Duration::from_secs(601));
        let other = farcall_proto::client::Conversation::new(client(), 0xbeef);
        let honest = std::mem::replace(&mut pair.client, other);
        pair.start(1, b"call");
        pair.settle();
        pair.client = honest;
    }
    pair.told.clear();
    let before = *trust.handshakes.lock().unwrap();
    pair.start(2, b"call");
    pair.settle();
    pair.start(3, b"call");
    pair.settle();
    assert_eq!(pair.told.last(), Some(&(3, Told::Result(b"call".to_vec()))));
    assert_eq!(*trust.handshakes.lock().unwrap(), before + 1, "a new handshake");
}

/// Returns how long ago the handshake of the server's only conversation was, as the server tells it.
fn age_of_keys(pair: &Pair) -> Duration {
    let mut busiest = Busiest::new(2, 0);
    while pair.server.look_for_busiest(pair.now, &mut busiest) {}
    let [only] = busiest.found()[..] else { panic!("there is one conversation") };
    let told = pair.server.conversation(pair.now, only).unwrap();
    assert_eq!(told.level, Level::Secure);
    told.handshake
}

#[test]
fn a_client_that_resumes_again_and_again_makes_a_handshake_every_twelve_hours() {
    let trust = TestTrust::new(SERVER, &[CLIENT]);
    let mut pair = Pair::acquainted_with(client(), ServerConfig { trust: Some(trust.clone()), ..server() });
    let began = pair.now;
    let (mut last, mut after) = (began, Vec::new());
    for hour in 1..=26 {
        for quarter in 0..4 {
            pair.pass(Duration::from_secs(900));
            pair.tick();
            pair.server.forget_revoked(pair.now, |_| false);
            let before = *trust.handshakes.lock().unwrap();
            for token in 0..2 {
                pair.told.clear();
                pair.start(token, b"call");
                pair.settle();
            }
            assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))], "{hour}:{quarter}");
            if *trust.handshakes.lock().unwrap() > before {
                after.push(pair.now.since(began).as_secs());
                last = pair.now;
            }
            // What the server tells of its conversations counts from the handshake, not from the resumption.
            let told = age_of_keys(&pair).as_secs();
            assert!(told.abs_diff(pair.now.since(last).as_secs()) <= 1, "{hour}:{quarter}: {told} s");
        }
    }
    assert_eq!(after, [43_200 + 900, 2 * (43_200 + 900)]);
}

#[test]
fn an_answer_to_a_changed_question_is_not_believed() {
    let mut pair = acquainted();
    pair.client.bind(pair.now, "Store", 9);
    let mut bind = pair.sent().remove(0);
    let name = bind.windows(5).position(|bytes| bytes == b"Store").unwrap();
    bind[name] = b'T';
    let end = bind.len() - 8;
    pair.receive(&[forged(0, 1 << 41, &[bind[20..end].to_vec()])]);
    let answers = pair.answered();
    assert_eq!((answers.len(), answers[0][1]), (1, SECURE), "the server has answered");
    pair.hear(&answers);
    assert_eq!(pair.told, []);
    pair.carry(1, Duration::from_secs(5), |_, _, _| true);
    assert_eq!(pair.told, [(9, Told::Bound(EXPORT))]);
}

#[test]
fn a_server_must_be_accepted_for_each_name_also_in_a_conversation_that_stands_or_is_resumed() {
    for forgotten in [false, true] {
        let trust = TestTrust::new(CLIENT, &[SERVER]);
        *trust.forbidden.lock().unwrap() = "Store/one";
        let mut pair = Pair::acquainted_with(ClientConfig { trust: Some(trust), ..client() }, server());
        if forgotten {
            pair.server.forget_revoked(pair.now, |_| false);
        }
        pair.client.bind(pair.now, "Store/one", 9);
        pair.settle();
        assert_eq!(pair.told, [(9, Told::NotBound(Kind::NotPermitted))], "{forgotten}");
        pair.client.bind(pair.now, "Store", 10);
        pair.settle();
        assert_eq!(pair.told[1], (10, Told::Bound(EXPORT)));
    }
}

#[test]
fn a_datagram_is_acted_upon_once_also_the_first_of_a_conversation() {
    let mut pair = Pair::with(client(), server());
    pair.start(1, b"call");
    for _ in 0..2 {
        let sent = pair.sent();
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().expect("the first datagram holds the call");
    let result = pair.finish(key, Finish::Result, b"done");
    let before = (pair.server.stats().dropped, pair.server.stats().received);
    pair.receive(&call);
    let after = (pair.server.stats().dropped, pair.server.stats().received);
    assert_eq!(after, (before.0 + 1, before.1));
    assert!(pair.answered().is_empty());
    pair.hear(&result);
    let before = (pair.client.stats().dropped, pair.client.stats().received);
    pair.hear(&result);
    let after = (pair.client.stats().dropped, pair.client.stats().received);
    assert_eq!(after, (before.0 + 1, before.1));
    assert_eq!(pair.told, [(1, Told::Result(b"done".to_vec()))]);
}

#[test]
fn a_call_that_waits_does_not_go_to_another_server_than_the_one_that_it_was_bound_at() {
    const OTHER: [u8; 32] = [9; 32];
    let trust = TestTrust::new(CLIENT, &[SERVER, OTHER]);
    let mut pair = Pair::acquainted_with(ClientConfig { trust: Some(trust), ..client() }, server());
    let mutant = common::MUTANT.get();
    pair.server = Server::new(ServerConfig { mutant, ..server() }, pair.now, [8; 32]);
    pair.server.drain(pair.now, None);
    pair.start(1, b"call");
    pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert!(matches!(pair.told[0], (1, Told::Failed(..))), "{:?}", pair.told);
    // There is no conversation now. Another server answers, which the client accepts for other names.
    let other = ServerConfig { trust: Some(TestTrust::new(OTHER, &[CLIENT])), mutant, ..server() };
    pair.server = Server::new(other, pair.now, [9; 32]);
    pair.export();
    pair.start(2, b"secret..");
    pair.carry(2, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(pair.told[1], (2, Told::Failed(Kind::NotPermitted, Ran::No)));
    assert_eq!(pair.client.principal().unwrap().key, farcall_crypto::public_key(&SERVER));
    assert_eq!(pair.asked, []);
}

#[test]
fn calls_of_a_server_that_is_no_longer_accepted_end_and_names_are_bound_anew() {
    let trust = TestTrust::new(CLIENT, &[SERVER]);
    let mut pair = Pair::acquainted_with(ClientConfig { trust: Some(trust.clone()), ..client() }, server());
    pair.start(1, b"sent");
    let sent = pair.sent();
    pair.start(2, b"none");
    let cipher = pair.client.cipher().unwrap();
    trust.accepted.lock().unwrap().clear();
    pair.client.recheck_server(pair.now);
    assert_eq!((pair.client.principal(), pair.client.timeout()), (None, Some(pair.now)));
    assert!(pair.sent().is_empty(), "nothing is sent to the server any more");
    // What the server says now is not believed, even if it was opened before.
    pair.receive(&sent);
    let (key, _) = pair.asked.pop().expect("the call had been sent");
    let result = pair.finish(key, Finish::Result, b"done");
    let (datagram, phase) = opened(&cipher, &result[0]);
    let told = &mut pair.told;
    pair.client.receive_opened(pair.now, (&datagram, phase), &mut |event| told.push(note(event)));
    pair.hear(&result);
    pair.tick();
    let failed = |ran| Told::Failed(Kind::NotPermitted, ran);
    assert_eq!(pair.told, [(1, failed(Ran::Maybe)), (2, failed(Ran::No))]);
    // A call by the former binding does not start, and the name is bound to no such server.
    let call = Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token: 3 };
    let why = pair.client.start(|| pair.now, &call, &mut b"call".to_vec()).unwrap_err();
    assert_eq!((why.kind, why.ran), (Kind::ServerRestarted, Ran::No));
    pair.client.bind(pair.now, "Store", 4);
    pair.settle();
    assert_eq!(pair.told[2], (4, Told::NotBound(Kind::NotPermitted)));
    // A server that is accepted again answers.
    trust.accepted.lock().unwrap().insert(farcall_crypto::public_key(&SERVER));
    pair.client.bind(pair.now, "Store", 5);
    pair.settle();
    pair.start(6, b"call");
    pair.settle();
    assert_eq!(pair.told[3..], [(5, Told::Bound(EXPORT)), (6, Told::Result(b"call".to_vec()))]);
}

#[test]
fn a_server_whose_key_is_taken_away_during_the_handshake_is_not_bound() {
    let trust = TestTrust::new(CLIENT, &[SERVER]);
    let mut pair = Pair::with(ClientConfig { trust: Some(trust.clone()), ..client() }, server());
    pair.client.bind(pair.now, "Store", 1);
    for step in 0..2 {
        let sent = pair.sent();
        pair.receive(&sent);
        if step == 1 {
            trust.accepted.lock().unwrap().clear();
        }
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert_eq!(pair.told, [(1, Told::NotBound(Kind::NotPermitted))]);
    assert!(pair.client.principal().is_none());
}

#[test]
fn a_question_that_is_not_permitted_ends_no_call_of_another_name() {
    let trust = TestTrust::new(CLIENT, &[SERVER]);
    *trust.forbidden.lock().unwrap() = "Other";
    let mut pair = Pair::with(ClientConfig { trust: Some(trust), ..client() }, server());
    pair.client.bind(pair.now, "Other", 9);
    pair.start(1, b"call");
    pair.carry(2, Duration::from_secs(5), |_, _, _| true);
    assert_eq!(pair.told[0], (9, Told::NotBound(Kind::NotPermitted)));
    assert_eq!(pair.told[1], (1, Told::Result(b"call".to_vec())));
}

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_handshakes_is_noticed() {
    use farcall_proto::{Mutant, Rule};
    const TESTS: [fn(); 11] = [
        a_call_takes_two_round_trips_before_it_and_nothing_is_kept_or_computed_for_unproven_addresses,
        a_client_that_is_no_longer_accepted_cannot_resume,
        a_call_that_waits_does_not_go_to_another_server_than_the_one_that_it_was_bound_at,
        a_server_that_has_forgotten_a_conversation_resumes_it_with_random_bytes_of_its_own,
        tickets_are_good_for_twenty_minutes_at_most_once_their_conversation_is_forgotten,
        a_client_that_resumes_again_and_again_makes_a_handshake_every_twelve_hours,
        an_answer_to_a_changed_question_is_not_believed,
        a_server_must_be_accepted_for_each_name_also_in_a_conversation_that_stands_or_is_resumed,
        a_datagram_is_acted_upon_once_also_the_first_of_a_conversation,
        all_datagrams_but_questions_and_hints_are_sealed_and_changed_ones_have_no_effect,
        a_client_whose_key_is_taken_away_while_its_handshake_is_computed_is_refused,
    ];
    let more = [Rule::ServerUnchecked, Rule::FirstUnnoted, Rule::AnswersReplayed, Rule::ReplayIgnored];
    std::panic::set_hook(Box::new(|_| {}));
    let is_noticed = |rule: &Rule| {
        common::MUTANT.set(Mutant::of(*rule));
        TESTS.iter().any(|test| std::panic::catch_unwind(test).is_err())
    };
    // Only short phases show these (`short_phases.rs`), or several names (`server_names.rs`).
    let of_others =
        [Rule::PhaseUnconfirmed, Rule::PhaseUnlimited, Rule::NamesUnchecked, Rule::NamesFallTogether];
    let rules = Rule::OF_HANDSHAKES.iter().filter(|rule| !of_others.contains(rule)).chain(&more);
    let unnoticed: Vec<_> = rules.filter(|rule| !is_noticed(rule)).collect();
    common::MUTANT.set(Mutant::NONE);
    drop(std::panic::take_hook());
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
