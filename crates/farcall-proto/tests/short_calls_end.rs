//! However short calls end, their bytes are no longer under way then, each once.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::{Call, CallId};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig};

const CALLS: u64 = 600;
const MS: Duration = Duration::from_millis(1);

/// When the calls of a crowd fail.
const DEADLINE: Duration = Duration::from_secs(60);

/// A result of the procedure. The client expects the next ones to be as long.
const LONG: [u8; 800] = [7; 800];

/// Makes a pair with more calls than the window has room for, and returns the calls. Those that were sent
/// counted with a long result first. Then a short one came, and the server, which does not know the
/// conversation any more, asked for its ticket, so they were sent again.
fn crowd() -> (Pair, Vec<CallId>, Vec<Datagram>) {
    let small = ClientConfig { max_datagram: 1_200, ..ClientConfig::default() };
    let mut pair = Pair::acquainted_with(small, ServerConfig::default());
    (1..=20).for_each(|token| _ = pair.start(token, b"argument"));
    let sent = pair.sent();
    pair.receive(&sent);
    finish(&mut pair, &LONG);
    pair.settle();
    let deadline = Some(pair.now + DEADLINE);
    let begin = |token| {
        let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token };
        pair.client.start(|| pair.now, &call, &mut b"argument".to_vec()).expect("room for a call")
    };
    let ids = (1..=CALLS).map(begin).collect();
    let sent = pair.sent();
    pair.receive(&sent);
    let few = pair.client.stats().in_flight / LONG.len() as u32;
    assert!((9..20).contains(&few), "{few} calls and their results fill the window");
    let (first, _) = pair.asked.remove(0);
    let short = pair.finish(first, Finish::Result, b"result..");
    pair.hear(&short);
    pair.told.clear();
    let conversation = conversation_of(&sent[0]);
    let [high, low] = [(conversation >> 32) as u32, conversation as u32];
    pair.hear(&[forged(0, 1 << 40, &[frame(CHALLENGE, 0, &[high, low, 0, 9])])]);
    let again = pair.sent();
    pair.client.audit();
    (pair, ids, again)
}

/// Finishes all calls that the server executes.
fn finish(pair: &mut Pair, result: &[u8]) {
    for (key, _) in std::mem::take(&mut pair.asked) {
        let answers = pair.finish(key, Finish::Result, result);
        pair.hear(&answers);
    }
}

/// Lets time pass to each timer of the client until none runs. Passes what the client sends to `network`.
fn pass(pair: &mut Pair, mut network: impl FnMut(&mut Pair, Vec<Datagram>)) {
    for _ in 0..100_000 {
        let Some(next) = pair.client.timeout() else { return };
        pair.now = next.max(pair.now);
        pair.tick();
        let sent = pair.sent();
        network(pair, sent);
    }
    panic!("a timer still runs");
}

/// Checks that the crowd's calls have ended, and that nothing is under way.
fn must_be_empty(pair: &Pair) {
    let stats = pair.client.stats();
    assert_eq!((stats.outstanding, stats.in_flight), (0, 0));
    assert_eq!(pair.told.len(), CALLS as usize - 1, "each call ends once");
}

fn count(pair: &Pair, told: &Told) -> usize {
    pair.told.iter().filter(|(_, other)| other == told).count()
}

#[test]
fn by_their_results() {
    let (mut pair, _, again) = crowd();
    pair.receive(&again);
    finish(&mut pair, b"result..");
    pair.settle();
    must_be_empty(&pair);
}

#[test]
fn by_results_that_come_after_the_server_said_that_they_run() {
    let (mut pair, _, again) = crowd();
    pair.receive(&again);
    // The client asks, and the server answers that they run.
    for _ in 0..500 {
        pair.pass(MS);
        pair.tick();
        let sent = pair.sent();
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert_eq!((pair.asked.len(), pair.client.stats().in_flight), (CALLS as usize - 1, 0));
    finish(&mut pair, b"result..");
    must_be_empty(&pair);
}

#[test]
fn by_refusals_that_say_that_they_did_not_run() {
    let (mut pair, _, again) = crowd();
    pair.receive(&again);
    pass(&mut pair, |pair, sent| {
        pair.receive(&sent);
        for (key, _) in std::mem::take(&mut pair.asked) {
            let answers = pair.finish(key, Failure::new(Kind::Overloaded, Ran::No).into(), b"");
            pair.hear(&answers);
        }
    });
    must_be_empty(&pair);
    assert_eq!(count(&pair, &Told::Failed(Kind::Overloaded, Ran::No)), pair.told.len());
}

#[test]
fn by_a_cancel_that_the_server_answers() {
    let (mut pair, ids, again) = crowd();
    pair.receive(&again);
    ids.iter().for_each(|id| pair.client.cancel(pair.now, *id));
    let cancels = pair.sent();
    pair.receive(&cancels);
    let answers = pair.answered();
    pair.hear(&answers);
    pair.tick();
    must_be_empty(&pair);
}

#[test]
fn by_a_cancel_that_is_lost() {
    let (mut pair, ids, _) = crowd();
    ids.iter().for_each(|id| pair.client.cancel(pair.now, *id));
    pass(&mut pair, |_, _| {});
    must_be_empty(&pair);
}

#[test]
fn by_their_deadline() {
    let (mut pair, ..) = crowd();
    pair.pass(DEADLINE);
    pass(&mut pair, |_, _| {});
    must_be_empty(&pair);
    assert!(count(&pair, &Told::Failed(Kind::Deadline, Ran::Maybe)) > 0);
    assert!(count(&pair, &Told::Failed(Kind::Deadline, Ran::No)) > 0);
}

#[test]
fn by_a_servers_word_that_it_drains() {
    let (mut pair, ..) = crowd();
    // No call that was sent last has arrived.
    pair.asked.clear();
    pair.server.drain(pair.now, None);
    pair.server.tell_drain(None);
    let words = pair.answered();
    pair.hear(&words);
    pass(&mut pair, |pair, sent| {
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
        pair.client.audit();
    });
    must_be_empty(&pair);
    assert!(count(&pair, &Told::Failed(Kind::Draining, Ran::No)) > 0);
}

#[test]
fn by_a_servers_silence() {
    let (mut pair, ..) = crowd();
    pass(&mut pair, |_, _| {});
    must_be_empty(&pair);
    assert!(count(&pair, &Told::Failed(Kind::Unreachable, Ran::Maybe)) > 0);
}

#[test]
fn by_refused_datagrams() {
    let (mut pair, ..) = crowd();
    pass(&mut pair, |pair, sent| {
        for datagram in sent {
            pair.client.handle_refused(pair.now, &datagram[..datagram.len().min(48)]);
        }
    });
    must_be_empty(&pair);
}

#[test]
fn by_a_restart_of_the_server_after_which_the_others_go_to_its_next_life() {
    let (mut pair, ..) = crowd();
    pair.asked.clear();
    pair.pass(MS);
    pair.restart_server(8);
    pass(&mut pair, |pair, sent| {
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
        pair.settle();
        pair.client.audit();
    });
    must_be_empty(&pair);
    assert!(count(&pair, &Told::Failed(Kind::ServerRestarted, Ran::Maybe)) >= 9);
    assert!(count(&pair, &Told::Result(b"argument".to_vec())) > 100);
}

#[test]
fn by_results_of_calls_that_were_sent_again_in_fragments() {
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 4_000]);
    pair.settle();
    assert!(pair.client.stats().datagram > 4_000, "larger datagrams pass");
    pair.told.clear();
    (1..CALLS).for_each(|token| _ = pair.start(token, &[7; 2_000]));
    pair.sent();
    assert!(pair.client.stats().in_flight > 0);
    // The path has become narrower, and the client finds that out.
    pass(&mut pair, |pair, sent| {
        let small: Vec<_> = sent.into_iter().filter(|datagram| datagram.len() <= 1_500).collect();
        pair.receive(&small);
        let answers = pair.answered();
        pair.hear(&answers);
        finish(pair, b"result..");
    });
    must_be_empty(&pair);
}

#[test]
fn calls_that_were_given_up_and_not_heard_of_leave_their_room_to_others_when_the_server_is_asked_again() {
    let (mut pair, ids, _) = crowd();
    for id in &ids[..CALLS as usize - 5] {
        pair.client.cancel(pair.now, *id);
    }
    let sent = pair.sent();
    assert!(!sent.iter().any(|datagram| frames_of(datagram).contains(&CALL)), "there is no room");
    let called = (0..100).any(|_| {
        pair.pass(MS);
        pair.tick();
        pair.sent().iter().any(|datagram| frames_of(datagram).contains(&CALL))
    });
    assert!(called);
}
