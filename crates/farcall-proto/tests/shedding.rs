//! Tests of what a server drops, and what it refuses, when all clients together have too many calls or
//! activities.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::server::{Finish, KeptForHost};
use farcall_proto::{ClientConfig, ServerConfig};

fn beside(server: ServerConfig) -> Pair {
    Pair::acquainted_with(ClientConfig { max_datagram: 1200, ..ClientConfig::default() }, server)
}

/// Returns what the server keeps for the hostile host. Also checks the server's counts.
fn kept(pair: &Pair) -> KeptForHost {
    pair.server.audit();
    pair.server.kept_for(HARM.into())
}

#[test]
fn calls_with_long_results_that_nobody_fetches_make_way_when_too_many_calls_are_kept() {
    let mut pair = beside(ServerConfig { max_kept_calls: 1000, ..ServerConfig::default() });
    // The honest client fetches its result while the other host calls.
    let key = pair.execute(1, b"ask!");
    let first = pair.finish(key, Finish::Result, &[3; 20_000]);
    for port in 1..=4 {
        let peer = join(&mut pair, HARM, port);
        for activity in 0..600 {
            comes(&mut pair, peer, &[frame_about(CALL, 0, activity, 9, &[0, EXPORT as u32, 1])]);
            let (key, _) = pair.asked.pop().unwrap();
            pair.finish(key, Finish::Result, &[4; 2000]);
            assert!(pair.server.kept_for(HARM.into()).calls <= 1000);
        }
        // In the first two rounds, no client has had the time to fetch its results.
        pair.pass(Duration::from_millis(if port < 2 { 1 } else { 500 }));
    }
    let kept = kept(&pair);
    assert!(kept.calls >= 990 && kept.sending >= 990 * 2000, "{kept:?}");
    pair.hear(&first);
    pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Result(vec![3; 20_000]))]);
}
