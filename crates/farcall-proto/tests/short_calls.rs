//! Traces of many short calls that wait for room in the congestion window.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::{Call, CallId, CallProgress};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig};

const CALLS: u64 = 1_000;
const MS: Duration = Duration::from_millis(1);

/// Starts calls.
fn start(pair: &mut Pair, calls: u64, deadline: Option<Duration>) -> Vec<CallId> {
    let deadline = deadline.map(|after| pair.now + after);
    let start = |token| {
        let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token };
        pair.client.start(|| pair.now, &call, &mut b"argument".to_vec()).expect("room for a call")
    };
    (1..=calls).map(start).collect()
}

/// Starts calls, and sends those for which there is room. Returns all of them, and the datagrams.
fn crowd(pair: &mut Pair, deadline: Option<Duration>) -> (Vec<CallId>, Vec<Datagram>) {
    (start(pair, CALLS, deadline), pair.sent())
}

/// Returns how many calls have ended so.
fn ended(pair: &Pair, kind: Kind, ran: Ran) -> usize {
    pair.told.iter().filter(|told| told.1 == Told::Failed(kind, ran)).count()
}

fn unsent(pair: &mut Pair, ids: &[CallId]) -> usize {
    ids.iter().filter(|id| pair.client.progress(**id) == CallProgress::Unsent).count()
}

/// Makes a pair whose round trip of ten milliseconds the client knows. Its datagrams are never large.
fn distant() -> Pair {
    let small = ClientConfig { max_datagram: 1_200, ..ClientConfig::default() };
    let mut pair = Pair::with(small, ServerConfig::default());
    for token in 10_000..10_010 {
        pair.start(token, b"argument");
        for _ in 0..4 {
            let sent = pair.sent();
            pair.pass(5 * MS);
            pair.receive(&sent);
            let mut answers = pair.answered();
            for (key, _) in std::mem::take(&mut pair.asked) {
                answers.extend(pair.finish(key, Finish::Result, b"result.."));
            }
            pair.pass(5 * MS);
            pair.hear(&answers);
        }
    }
    pair.told.clear();
    pair
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_ends_at_once_and_is_never_sent() {
    let mut pair = Pair::acquainted();
    let (ids, first) = crowd(&mut pair, None);
    let waiting = unsent(&mut pair, &ids);
    assert!(waiting > 500 && waiting < 990, "{waiting}");
    for id in &ids[ids.len() - waiting..] {
        pair.client.cancel(pair.now, *id);
    }
    pair.tick();
    assert_eq!(ended(&pair, Kind::Cancelled, Ran::No), waiting);
    assert!(pair.sent().is_empty());
    pair.receive(&first);
    assert_eq!(pair.asked.len(), ids.len() - waiting);
    for (key, _) in std::mem::take(&mut pair.asked) {
        let answers = pair.finish(key, Finish::Result, b"result..");
        pair.hear(&answers);
    }
    let stats = pair.client.stats();
    assert_eq!((stats.outstanding, stats.in_flight), (0, 0));
}

#[test]
fn a_call_that_waits_fails_at_its_deadline_and_has_not_run_though_everything_is_lost() {
    let mut pair = Pair::acquainted();
    let (ids, _) = crowd(&mut pair, Some(500 * MS));
    let waiting = unsent(&mut pair, &ids);
    for _ in 0..50 {
        pair.pass(10 * MS);
        pair.tick();
        pair.sent();
    }
    pair.pass(10 * MS);
    pair.tick();
    let (no, maybe) = (ended(&pair, Kind::Deadline, Ran::No), ended(&pair, Kind::Deadline, Ran::Maybe));
    assert_eq!(no + maybe, CALLS as usize);
    assert!(no > 0 && maybe >= CALLS as usize - waiting, "{no} have not run, {maybe} may have");
}

#[test]
fn calls_that_wait_when_the_server_drains_end_and_have_not_run() {
    let mut pair = Pair::acquainted();
    let (ids, first) = crowd(&mut pair, None);
    let waiting = unsent(&mut pair, &ids);
    pair.receive(&first);
    pair.server.drain(pair.now, None);
    pair.server.tell_drain(None);
    let words = pair.answered();
    pair.hear(&words);
    assert_eq!(ended(&pair, Kind::Draining, Ran::No), waiting);
    for (key, _) in std::mem::take(&mut pair.asked) {
        let answers = pair.finish(key, Finish::Result, b"result..");
        pair.hear(&answers);
    }
    let stats = pair.client.stats();
    assert_eq!((stats.outstanding, stats.in_flight), (0, 0));
}

#[test]
fn a_result_that_comes_right_after_its_call_was_sent_again_does_not_shrink_the_window() {
    let mut pair = distant();
    let (ids, first) = crowd(&mut pair, None);
    let sent = ids.len() - unsent(&mut pair, &ids);
    pair.pass(5 * MS);
    pair.receive(&first);
    let calls = std::mem::take(&mut pair.asked);
    pair.pass(22 * MS);
    let answers: Vec<_> =
        calls.iter().flat_map(|(key, _)| pair.finish(*key, Finish::Result, b"result..")).collect();
    // The calls are sent again while their results are under way.
    pair.pass(4 * MS);
    pair.tick();
    pair.sent();
    assert!(pair.client.stats().retransmitted >= sent as u64);
    let before = ids.len() - unsent(&mut pair, &ids);
    pair.pass(MS);
    pair.hear(&answers);
    pair.sent();
    let more = ids.len() - unsent(&mut pair, &ids) - before;
    assert!(more >= sent, "{sent} calls were sent at first, and then {more}");
}

#[test]
fn a_call_that_is_late_when_there_is_room_for_it_leaves_the_room_to_the_next() {
    let mut pair = distant();
    start(&mut pair, 170, None);
    let late = start(&mut pair, 20, Some(100 * MS));
    let next = start(&mut pair, 10, None);
    let first = pair.sent();
    assert!(unsent(&mut pair, &late) > 5 && unsent(&mut pair, &next) == 10);
    pair.pass(100 * MS);
    pair.receive(&first);
    let (key, _) = pair.asked[0];
    let answers = pair.finish(key, Finish::Result, b"result..");
    pair.hear(&answers);
    pair.sent();
    assert!(unsent(&mut pair, &next) < 10);
}
