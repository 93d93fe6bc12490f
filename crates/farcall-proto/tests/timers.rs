//! Packet traces of a caller's timers.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::server::Finish;

/// One call whose way takes `round_trip`, its procedure no time. Gives how often it was sent.
fn far(pair: &mut Pair, token: u64, round_trip: Duration) -> usize {
    pair.start(token, b"far away");
    let mut sent = pair.sent();
    let arrives = pair.now + round_trip;
    let mut times = sent.len();
    while let Some(due) = pair.client.timeout().filter(|due| *due < arrives) {
        pair.now = due.max(pair.now);
        pair.tick();
        let again = pair.sent();
        times += again.len();
        sent.extend(again);
    }
    let mut answers = Vec::new();
    for datagram in sent {
        pair.receive(&[datagram]);
        for (key, args) in std::mem::take(&mut pair.asked) {
            answers.extend(pair.finish(key, Finish::Result, &args));
        }
        answers.extend(pair.answered());
    }
    pair.now = arrives;
    pair.hear(&answers);
    assert_eq!(pair.told.pop(), Some((token, Told::Result(b"far away".to_vec()))));
    times
}

#[test]
fn a_way_that_becomes_longer_is_learned() {
    let mut pair = Pair::acquainted();
    let near = Duration::from_micros(100);
    assert!((1..10).all(|token| far(&mut pair, token, near) == 1));
    let away = Duration::from_millis(120);
    let sent: usize = (10..20).map(|token| far(&mut pair, token, away)).sum();
    assert!(sent <= 20, "{sent} datagrams for ten calls");
    assert!((20..30).all(|token| far(&mut pair, token, away) == 1));
}
