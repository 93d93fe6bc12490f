//! Packet traces of what a server holds, how long, and what goes first.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig};

const SECOND: Duration = Duration::from_secs(1);

fn with_budget(held_budget: usize) -> Pair {
    let server = ServerConfig { held_budget, ..ServerConfig::default() };
    let client = ClientConfig { max_datagram: 1200, ..ClientConfig::default() };
    let mut pair = Pair::with(client, server);
    pair.start(0, b"");
    pair.settle();
    pair.told.clear();
    pair
}

#[test]
fn a_result_larger_than_the_budget_arrives_while_others_come_and_go() {
    let mut pair = with_budget(10_000);
    pair.start(1, b"large...");
    let call = pair.sent();
    pair.receive(&call);
    let (large, _) = pair.asked.pop().unwrap();
    let mut way = pair.finish(large, Finish::Result, &vec![7; 500_000]);
    for token in 2..200 {
        pair.start(token, b"small...");
        pair.hear(&way);
        let sent = pair.sent();
        pair.receive(&sent);
        way = pair.answered();
        for (key, args) in std::mem::take(&mut pair.asked) {
            way.extend(pair.finish(key, Finish::Result, &args));
        }
        pair.pass(Duration::from_millis(10));
        pair.tick();
    }
    pair.hear(&way);
    pair.carry(199, SECOND, |_, _, _| true);
    assert!(pair.told.iter().all(|t| matches!(t.1, Told::Result(_))));
    assert_eq!(pair.told.len(), 199);
}

#[test]
fn a_result_that_nobody_fetches_makes_room_for_others() {
    let mut pair = with_budget(100_000);
    for token in 1..=20 {
        pair.start(token, b"large...");
    }
    let calls = pair.sent();
    pair.receive(&calls);
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.finish(key, Finish::Result, &vec![7; 50_000]);
        pair.pass(SECOND);
    }
    assert!(pair.server.held_bytes() <= 150_000, "{}", pair.server.held_bytes());
}

#[test]
fn results_that_nobody_acknowledges_stay_within_the_budget() {
    let mut pair = with_budget(10_000);
    for token in 1..=100 {
        pair.start(token, b"small...");
    }
    let calls = pair.sent();
    pair.receive(&calls);
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.finish(key, Finish::Result, &[7; 1000]);
        assert!(pair.server.held_bytes() <= 10_000);
    }
}

#[test]
fn arguments_that_never_come_are_refused_without_a_word() {
    let mut pair = with_budget(10_000);
    pair.start(1, &vec![7; 100_000]);
    let calls = pair.sent();
    pair.receive(&calls[..1]);
    pair.answered();
    for _ in 0..6 {
        pair.pass(15 * SECOND);
        pair.server.handle_timeout(pair.now);
    }
    assert_eq!((pair.server.timeout(), pair.server.held_bytes()), (None, 0));
    assert_eq!(pair.answered(), Vec::<Datagram>::new(), "a server sends nothing on a timer");
    // Whatever comes now, it never runs.
    pair.receive(&calls);
    assert!(pair.asked.is_empty());
    let answers = pair.answered();
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Other, Ran::No))]);
}
