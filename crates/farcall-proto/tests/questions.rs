//! Packet traces of a client's BINDs: how often it sends them, and what their answers mean to its calls.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::Event;
use farcall_proto::{Kind, Ran};

const MS: Duration = Duration::from_millis(1);

/// The offset of the nonce in a datagram with a BIND. The constants after this one are offsets in a datagram
/// with a WELCOME.
const NONCE: usize = 20 + 4 + 8;
const CONVERSATION: usize = 20 + 4 + 8;
const ISSUED: usize = CONVERSATION + 8 + 16;
const REFUSED: usize = CONVERSATION + 8 + 44 + 4;

/// Delivers the client's BINDs to the server. Returns the BINDs, and the server's answers.
fn ask(pair: &mut Pair) -> (Vec<Datagram>, Vec<Datagram>) {
    let questions = pair.sent();
    pair.receive(&questions);
    (questions, pair.answered())
}

/// Returns a copy of a datagram with other bytes at these offsets.
fn changed(datagram: &Datagram, changes: &[(usize, &[u8])]) -> Datagram {
    let mut frames = datagram[..datagram.len() - 8].to_vec();
    for (at, bytes) in changes {
        frames[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    forged(conversation_of(datagram), 1 << 40, &[frames[20..].to_vec()])
}

/// Returns the text of the failure in which a BIND ends by this answer.
fn detail(pair: &mut Pair, answer: &Datagram) -> String {
    let mut said = None;
    pair.client.receive(pair.now, answer, &mut |event| {
        if let Event::Bound { answer: Err(failure), .. } = event {
            said = Some(failure.to_string());
        }
    });
    said.expect("the BIND has failed")
}

#[test]
fn a_forgotten_bind_ends_without_an_event_and_the_others_are_answered() {
    let mut pair = Pair::acquainted();
    pair.client.bind(pair.now, "Store", 1);
    pair.client.bind(pair.now, "Store/one", 2);
    let (questions, answers) = ask(&mut pair);
    pair.client.forget_bind(1);
    // A BIND for a name does not renew the ticket.
    assert!(questions.iter().all(|d| (d[20], d[21]) == (BIND, 0)));
    let before = pair.client.stats().duplicates;
    pair.hear(&answers);
    pair.hear(&answers);
    assert_eq!(pair.told, [(2, Told::Bound(EXPORT))]);
    assert_eq!((pair.client.timeout(), pair.sent()), (None, Vec::new()));
    assert_eq!(pair.client.stats().duplicates - before, 3);
}

#[test]
fn a_bind_is_sent_again_ever_more_rarely_until_the_patience_is_over() {
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Store", 1);
    let (start, mut asked) = (pair.now, Vec::new());
    while pair.told.is_empty() {
        for question in pair.sent() {
            asked.push((pair.now.since(start).as_millis(), question[NONCE..NONCE + 8].to_vec()));
        }
        let due = pair.client.timeout().expect("the client waits");
        pair.now = due.min(pair.now + 20 * MS).max(pair.now);
        pair.tick();
    }
    let times: Vec<u128> = asked.iter().map(|(at, _)| *at).collect();
    assert_eq!(times[0], 0);
    assert_spread(&times[1..], &[40, 80, 160, 320, 640, 1000, 1000]);
    assert_eq!(pair.client.stats().retransmitted, times.len() as u64 - 1);
    assert!(asked.iter().all(|(_, nonce)| *nonce == asked[0].1), "all BINDs have the same nonce");
    assert_eq!(pair.told, [(1, Told::NotBound(Kind::Unreachable))]);
    let ended = pair.now.since(start).as_millis();
    let last = *times.last().expect("it was asked");
    assert!(
        (10_000..11_000).contains(&ended) && ended - last >= 500,
        "a BIND is given up after ten seconds, and after time for the answer to the last one: {last}, {ended} ms"
    );
}

#[test]
fn each_bind_is_given_up_ten_seconds_after_it_began() {
    let (mut pair, mut times, mut began) = (Pair::new(), Vec::new(), Vec::new());
    for token in 0..3 {
        pair.client.bind(pair.now, "Store", token);
        began.push(pair.now);
        let next = pair.now + 2000 * MS;
        while times.len() < 3 && (pair.now < next || token == 2) {
            pair.sent();
            pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
            pair.tick();
            times.extend(pair.told.drain(..).map(|(token, _)| (token, pair.now)));
        }
    }
    for (token, ((told, given_up), began)) in times.iter().zip(&began).enumerate() {
        let after = given_up.since(*began).as_millis();
        assert!(*told == token as u64 && (10_000..11_000).contains(&after), "{told}: {after} ms");
    }
    assert_eq!(times.len(), 3);
}

#[test]
fn a_bind_that_was_sent_only_once_is_not_given_up() {
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Store", 1);
    pair.sent();
    // The client's process was stopped for a minute.
    pair.pass(Duration::from_secs(60));
    pair.tick();
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Bound(EXPORT))]);
}

/// The most questions that a conversation has under way.
const UNDER_WAY: usize = 128;

/// Asks for one name under each of these tokens.
fn ask_often(pair: &mut Pair, tokens: std::ops::RangeInclusive<u64>) {
    tokens.for_each(|token| pair.client.bind(pair.now, "Store", token));
}

/// A registry may list any number of names at one server.
#[test]
fn of_many_binds_few_are_under_way_and_all_are_answered_in_turn() {
    let mut pair = Pair::acquainted();
    ask_often(&mut pair, 1..=1_000);
    let mut rounds = 0;
    while pair.told.len() < 1_000 {
        let (questions, answers) = ask(&mut pair);
        assert!((1..=UNDER_WAY).contains(&questions.len()), "{} at once", questions.len());
        pair.hear(&answers);
        rounds += 1;
    }
    assert_eq!(rounds, 1_000_usize.div_ceil(UNDER_WAY));
    let mut tokens: Vec<u64> = pair.told.iter().map(|(token, _)| *token).collect();
    assert!(tokens[..UNDER_WAY].iter().all(|token| *token <= UNDER_WAY as u64), "the first are asked first");
    tokens.sort();
    assert!(tokens.into_iter().eq(1..=1_000));
    assert!(pair.told.iter().all(|(_, told)| *told == Told::Bound(EXPORT)));
    assert_eq!((pair.client.timeout(), pair.sent()), (None, Vec::new()));
}

#[test]
fn binds_that_are_forgotten_before_their_turn_are_not_asked() {
    let mut pair = Pair::acquainted();
    ask_often(&mut pair, 1..=1_000);
    // Some of these are under way, and some wait for their turn.
    (100..=900).for_each(|token| pair.client.forget_bind(token));
    let mut asked = 0;
    while pair.client.timeout().is_some() {
        let (questions, answers) = ask(&mut pair);
        asked += questions.len();
        pair.hear(&answers);
    }
    assert_eq!((asked, pair.told.len()), (199, 199));
    assert!(pair.told.iter().all(|(token, _)| !(100..=900).contains(token)));
}

#[test]
fn binds_that_wait_for_their_turn_are_given_up_with_those_that_were_asked_in_vain() {
    let mut pair = Pair::acquainted();
    let begun = pair.now;
    ask_often(&mut pair, 1..=1_000);
    while pair.told.is_empty() {
        pair.sent();
        let due = pair.client.timeout().expect("the client waits");
        pair.now = due.max(pair.now + MS);
        pair.tick();
    }
    // Each is asked at times of its own, so they are not given up at one time.
    while pair.told.len() < 1_000 {
        pair.sent();
        pair.pass(20 * MS);
        pair.tick();
        assert!(pair.now.since(begun) < Duration::from_secs(13), "{} are given up", pair.told.len());
    }
    assert!(pair.told.iter().all(|(_, told)| *told == Told::NotBound(Kind::Unreachable)));
}

#[test]
fn nonces_differ_in_all_their_bits() {
    let mut pair = Pair::new();
    for token in 0..100 {
        pair.client.bind(pair.now, "Store", token);
    }
    let nonces: Vec<u64> =
        pair.sent().iter().map(|d| u64::from_be_bytes(d[NONCE..][..8].try_into().unwrap())).collect();
    let all: std::collections::HashSet<u64> = nonces.iter().copied().collect();
    assert_eq!(all.len(), 100);
    assert_eq!(nonces.iter().fold((u64::MAX, 0), |(and, or), n| (and & n, or | n)), (0, u64::MAX));
}

#[test]
fn a_call_does_not_wait_for_a_ticket_that_is_refused() {
    // The server does not know the name. The client asks for a ticket without a name, for the call.
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Shop", 1);
    pair.start(2, b"call");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::NotBound(Kind::NotExported)), (2, Told::Result(b"call".to_vec()))]);
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Shop", 1);
    assert_eq!(pair.settle(), 2, "the client asks for no ticket, because no call needs one");
    // The server gives no tickets.
    let mut pair = Pair::new();
    pair.server.drain(pair.now, None);
    pair.client.bind(pair.now, "Store", 1);
    pair.start(2, b"call");
    pair.settle();
    pair.told.sort_by_key(|told| told.0);
    assert_eq!(pair.told, [(1, Told::NotBound(Kind::Draining)), (2, Told::Failed(Kind::Draining, Ran::No))]);
    assert_eq!(pair.client.timeout(), None);
    // The only call that needs a ticket is cancelled.
    let mut pair = Pair::new();
    let id = pair.start(1, b"call");
    pair.sent();
    pair.client.cancel(pair.now, id);
    pair.tick();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::No))]);
    assert_eq!(pair.client.timeout(), None);
}

#[test]
fn the_outcome_of_a_bind_ends_no_call_that_was_sent() {
    for (name, told) in [("Store", Told::Bound(EXPORT)), ("Shop", Told::NotBound(Kind::NotExported))] {
        let (mut pair, ..) = Pair::executing(b"long");
        pair.client.bind(pair.now, name, 2);
        let (_, answers) = ask(&mut pair);
        pair.hear(&answers);
        assert_eq!((pair.sent(), &pair.told[..]), (Vec::new(), &[(2, told)][..]));
    }
    let (mut pair, ..) = Pair::executing(b"long");
    pair.server.drain(pair.now, None);
    pair.client.bind(pair.now, "Store", 2);
    let (_, answers) = ask(&mut pair);
    pair.hear(&answers);
    assert_eq!(pair.told, [(2, Told::NotBound(Kind::Draining))]);
    // Every BIND is lost, and no other datagram.
    let (mut pair, ..) = Pair::executing(b"long");
    pair.asked.clear();
    pair.client.bind(pair.now, "Store", 2);
    pair.carry(1, Duration::from_secs(20), |_, d, _| d[20] != BIND);
    assert_eq!(pair.told, [(2, Told::NotBound(Kind::Unreachable))]);
    assert_eq!(pair.client.stats().outstanding, 1);
}

#[test]
fn the_failure_of_a_refused_bind_says_why() {
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Shop", 1);
    let (_, answers) = ask(&mut pair);
    let said = detail(&mut pair, &answers[0]);
    assert!(said.contains("\"Shop\""), "{said}");
    pair.client.bind(pair.now, "Store", 2);
    let (_, answers) = ask(&mut pair);
    let mismatch = changed(&answers[0], &[(REFUSED, &9u16.to_be_bytes())]);
    let said = detail(&mut pair, &mismatch);
    // The server's range of versions has this program's, so the schemes are what differs.
    assert!(said.contains("clients without keys"), "{said}");
}

#[test]
fn a_renewed_ticket_of_another_conversation_ends_the_former_conversation() {
    let (mut pair, ..) = Pair::executing(b"long");
    pair.pass(20 * MS);
    pair.tick();
    let conversation = conversation_of(&pair.sent()[0]);
    let [high, low] = [(conversation >> 32) as u32, conversation as u32];
    pair.hear(&[forged(0, 1 << 40, &[frame(STALE, 0, &[high, low, 0, 9, 1, 0, 0, 7, u32::MAX, 0])])]);
    let (_, answers) = ask(&mut pair);
    let other = changed(&answers[0], &[(CONVERSATION, &[7; 8]), (ISSUED, &[1; 8])]);
    pair.hear(&[other]);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ServerRestarted, Ran::Maybe))]);
    pair.start(2, b"next");
    assert_eq!(conversation_of(&pair.sent()[0]), u64::from_be_bytes([7; 8]));
}
