//! Tests of what a server drops, and what it refuses, when all clients together have too many calls or
//! activities.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::server::{CallKey, Finish, KeptForHost};
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

/// Returns a call that is refused.
fn refused(activity: u32) -> Vec<u8> {
    frame_about(CALL, 0, activity, 9, &[0, 1 + EXPORT as u32, 1])
}

/// Fills the server with so many thousand activities of each of eight conversations, none of which can be
/// forgotten, because each has a call that is being executed. Returns the conversations and these calls.
fn fill(pair: &mut Pair, thousands: u32) -> Vec<(Peer, CallKey)> {
    let peers: Vec<_> = (1..=8).map(|port| join(pair, HARM, port)).collect();
    let running = peers.iter().map(|peer| {
        comes(pair, *peer, &[frame_about(CALL, 0, 0, 9, &[0, EXPORT as u32, 1])]);
        (*peer, pair.asked.pop().unwrap().0)
    });
    let running = running.collect();
    for peer in peers {
        for from in (0..1000 * thousands).step_by(1000) {
            comes(pair, peer, &(from..from + 1000).map(|n| refused(1 + n)).collect::<Vec<_>>());
            pair.answered();
        }
    }
    running
}

fn crowded() -> Pair {
    beside(ServerConfig { max_conversations: 128, ..ServerConfig::default() })
}

#[test]
fn activities_are_bounded_while_no_conversation_can_be_forgotten() {
    let mut pair = crowded();
    fill(&mut pair, 16);
    let kept = kept(&pair);
    assert!(kept.activities <= 16 * (65_536 + 1000), "{kept:?}");
    // Another network still has room.
    (1..=500).for_each(|token| _ = pair.start(token, b"many"));
    pair.settle();
    assert_eq!(pair.told.len(), 500);
    assert!(pair.told.iter().all(|(_, told)| matches!(told, Told::Result(_))));
    assert!(pair.server.kept_for([10, 0, 0, 1].into()).activities >= 16 * 499);
}

#[test]
fn a_call_that_is_refused_for_want_of_activities_stays_refused() {
    let mut pair = crowded();
    let running = fill(&mut pair, 16);
    let peer = running[7].0;
    let call = |sequence| frame_about(CALL, 0, 16_001, sequence, &[0, EXPORT as u32, 1]);
    comes(&mut pair, peer, &[call(50)]);
    let refusal = pair.answered();
    assert_eq!((pair.asked.len(), frames_of(&refusal[0])), (0, vec![RESULT]));
    // A call that was cancelled before it came stays cancelled too.
    comes(&mut pair, peer, &[frame_about(CANCEL, 0, 16_002, 51, &[])]);
    pair.answered();
    pair.now = pair.now + Duration::from_secs(61);
    for (peer, key) in &running[..7] {
        pair.finish(*key, Finish::Result, b"");
        comes(&mut pair, *peer, &[frame_about(PROBE, 0, 0, 9, &[])]);
        pair.answered();
    }
    let kept = kept(&pair);
    assert!(kept.activities <= 16 * 65_536, "{kept:?} although conversations are idle");
    let cancelled = frame_about(CALL, 0, 16_002, 51, &[0, EXPORT as u32, 1]);
    comes(&mut pair, peer, &[call(50), cancelled]);
    assert_eq!((pair.asked.len(), frames_of(&pair.answered()[0])), (0, vec![RESULT; 2]));
    comes(&mut pair, peer, &[call(52)]);
    assert_eq!(pair.asked.len(), 1, "a newer call is executed");
    pair.server.audit();
}

/// The first fragments of calls make way when calls are refused, each of which is kept too.
#[test]
fn arguments_that_make_way_for_refused_calls_are_not_counted_any_more() {
    let mut pair = beside(ServerConfig { max_kept_calls: 100, ..ServerConfig::default() });
    let peer = join(&mut pair, HARM, 1);
    for activity in 0..100 {
        comes(&mut pair, peer, &[fragment(activity, 9, 1 << 20, 0, 4)]);
    }
    for activity in 100..200 {
        comes(&mut pair, peer, &[refused(activity)]);
    }
    let kept = kept(&pair);
    assert!(kept.calls <= 100, "{kept:?}");
}

/// With it would go the tickets of newcomers that were given before and are not used yet.
#[test]
fn a_young_conversation_is_not_forgotten_for_its_activities() {
    let mut pair = crowded();
    let idle = join(&mut pair, HARM, 100);
    comes(&mut pair, idle, &[refused(16_000)]);
    fill(&mut pair, 16);
    let is_known = |pair: &mut Pair| {
        let challenges = pair.server.stats().challenges;
        comes(pair, idle, &[frame_about(PROBE, 0, 1, 9, &[])]);
        pair.answered();
        pair.server.stats().challenges == challenges
    };
    assert!(is_known(&mut pair));
    pair.now = pair.now + Duration::from_secs(61);
    // The first datagram of each conversation has the server look for one to forget.
    (0..8).for_each(|_| _ = is_known(&mut pair));
    assert!(!is_known(&mut pair));
}

/// One conversation after the other becomes idle. Each is forgotten, has few activities, and makes room for
/// many of a busy one.
#[test]
fn activities_are_bounded_while_idle_conversations_are_forgotten() {
    let mut pair = crowded();
    let small = (20..84).map(|port| {
        let peer = join(&mut pair, HARM, port);
        comes(&mut pair, peer, &[frame_about(CALL, 0, 1, 9, &[0, EXPORT as u32, 1])]);
        (peer, pair.asked.pop().unwrap().0)
    });
    let small: Vec<_> = small.collect();
    let running = fill(&mut pair, 9);
    pair.now = pair.now + Duration::from_secs(61);
    for (n, (peer, key)) in small.into_iter().enumerate() {
        pair.finish(key, Finish::Result, b"");
        comes(&mut pair, peer, &[frame_about(PROBE, 0, 0, 9, &[])]);
        let from = 9001 + 800 * (n as u32 / 8);
        comes(&mut pair, running[n % 8].0, &(from..from + 800).map(refused).collect::<Vec<_>>());
        pair.answered();
    }
    let kept = kept(&pair);
    assert!(kept.activities <= 16 * (65_536 + 16_384 + 800), "{kept:?}");
}
