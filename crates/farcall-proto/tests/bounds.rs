//! Tests of the bounds on what a peer can make a server keep. For each bound in docs/protocol.md, a hostile
//! peer tries to exceed the bound, while an honest peer must be served. The document's table of bounds names
//! these tests, and the last test checks the table.

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use common::*;
use farcall_proto::server::{Finish, KeptForHost};
use farcall_proto::{ClientConfig, Kind, READINGS, Ran, ServerConfig};

/// Returns a server with these settings and an honest client that it knows. Earlier outcomes are forgotten.
fn beside(server: ServerConfig) -> Pair {
    Pair::acquainted_with(
        ClientConfig { max_datagram: 1200, patience_probes: 100, ..ClientConfig::default() },
        server,
    )
}

/// Returns what the server keeps for a host. Also checks the server's counts.
fn kept(pair: &Pair, host: [u8; 4]) -> KeptForHost {
    pair.server.audit();
    pair.server.kept_for(host.into())
}

/// Makes a call of the honest client. Returns whether the call returns.
fn honest_call_returns(pair: &mut Pair, args: &[u8]) -> bool {
    let token = 77_000 + pair.told.len() as u64;
    pair.start(token, args);
    let ends = pair.told.len() + 1;
    pair.carry(ends, Duration::from_secs(60), |_, _, _| true);
    matches!(pair.told.last(), Some((t, Told::Result(r))) if *t == token && r == args)
}

#[test]
fn a_fragment_of_a_high_activity_costs_no_more_than_another() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    let sent = comes(&mut pair, peer, &[fragment(16_383, 1, 1 << 20, 0, 4)]);
    assert!(sent <= 76, "{sent}");
    let kept = kept(&pair, HARM);
    assert!(kept.bytes() <= 1024, "{kept:?}");
    assert!(kept.activities <= 64, "{kept:?}");
    assert!(honest_call_returns(&mut pair, &[5; 3000]));
}

#[test]
fn used_buffers_are_given_only_while_there_is_room_for_twice_their_bytes() {
    for (reassembly_budget, is_given) in [(1_100_000, false), (1_300_000, true)] {
        let mut pair = beside(ServerConfig { reassembly_budget, ..ServerConfig::default() });
        pair.start(1, &[1; 600_000]);
        pair.carry(1, Duration::from_secs(60), |_, _, _| true);
        while pair.server.buffer(pair.now, 100_000).capacity() > 0 {}
        pair.server.recycle(Vec::with_capacity(600_000));
        pair.start(2, b"who?");
        let honest = Peer { id: conversation_of(&pair.sent()[0]), at: pair.from };
        comes(&mut pair, honest, &[fragment(9, 1 << 30, 600_000, 0, 4)]);
        assert_eq!(
            kept(&pair, [10, 0, 0, 1]).arguments >= 600_000,
            is_given,
            "with a budget of {reassembly_budget} bytes"
        );
    }
}

/// Many activities begin at once and their datagrams arrive in any order. The list of activities counts each
/// of them once, also those that were kept apart from it at first.
#[test]
fn activities_that_come_in_disorder_are_counted_once() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    for activity in [10, 11, 12, 1, 2, 3, 13] {
        comes(&mut pair, peer, &[fragment(activity, activity, 1 << 20, 0, 4)]);
    }
    assert_eq!(kept(&pair, HARM).activities, 13 * 16);
    assert!(honest_call_returns(&mut pair, &[5; 3000]));
}

#[test]
fn a_fragment_far_ahead_holds_no_more_than_its_bytes() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    comes(&mut pair, peer, &[fragment(0, 10, 1 << 20, 65_000, 4)]);
    let first = kept(&pair, HARM).arguments;
    assert!(first <= 256 + 128, "{first}");
    // Many activities send one fragment each, of a call of their own, as far ahead as the server allows.
    let mut sent = 0;
    for activity in 1..500 {
        let offset = if activity % 2 == 0 { 65_000 } else { 32_000 };
        sent += comes(&mut pair, peer, &[fragment(activity, 1, 1 << 28, offset, 400)]);
    }
    let kept = kept(&pair, HARM).arguments;
    assert!(kept <= 2 * sent + 500 * 256, "{kept} bytes for {sent}");
    assert!(honest_call_returns(&mut pair, &[5; 3000]));
}

#[test]
fn arguments_that_never_end_make_way_at_the_host_that_has_most() {
    let mut pair = beside(ServerConfig { reassembly_budget: 1 << 20, ..ServerConfig::default() });
    let peers: Vec<Peer> = (1..20).map(|port| join(&mut pair, HARM, port)).collect();
    // Half of the arguments of an honest call have arrived. The rest follows later.
    pair.start(1, &[9; 100_000]);
    for _ in 0..2 {
        let sent = pair.sent();
        pair.receive(&sent);
        let heard = pair.answered();
        pair.hear(&heard);
    }
    let held = kept(&pair, [10, 0, 0, 1]).arguments;
    assert!((12_000..150_000).contains(&held), "{held}");
    for round in 1..8 {
        for peer in &peers {
            let fragments: Vec<_> =
                (0..40).map(|activity| fragment(activity, round, 1 << 20, 0, 1000)).collect();
            comes(&mut pair, *peer, &fragments);
            pair.answered();
        }
        let all = kept(&pair, HARM).arguments + kept(&pair, [10, 0, 0, 1]).arguments;
        assert!(all <= 1 << 20, "{all}");
        assert_eq!(
            kept(&pair, [10, 0, 0, 1]).arguments,
            held,
            "the honest host keeps the arguments that have arrived"
        );
    }
    pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Result(vec![9; 100_000]))]);
    assert!(pair.server.stats().evicted_calls > 500);
}

#[test]
fn within_a_host_who_has_much_makes_way_before_who_has_its_least_share() {
    let mut pair = beside(ServerConfig { reassembly_budget: 4 << 20, ..ServerConfig::default() });
    let modest = join(&mut pair, HARM, 1);
    let greedy: Vec<Peer> = (2..6).map(|port| join(&mut pair, HARM, port)).collect();
    comes(&mut pair, modest, &[fragment(0, 10, 8, 0, 4)]);
    for from in (0..600).step_by(50) {
        for peer in &greedy {
            let activities = from..from + 50;
            let fragments: Vec<_> =
                activities.map(|activity| fragment(activity, 9, 1 << 20, 0, 1000)).collect();
            comes(&mut pair, *peer, &fragments);
            pair.answered();
        }
    }
    assert!(pair.server.stats().evicted_calls > 100);
    comes(&mut pair, modest, &[fragment(0, 10, 8, 4, 4)]);
    assert_eq!(pair.asked.len(), 1, "the call of the modest client is whole");
}

#[test]
fn calls_whose_arguments_never_end_do_not_keep_their_conversation_from_being_forgotten() {
    let mut pair = beside(ServerConfig { max_conversations: 8, ..ServerConfig::default() });
    for port in 1..100 {
        let peer = join(&mut pair, HARM, port);
        comes(&mut pair, peer, &[fragment(16_000, 9, 1 << 20, 0, 4)]);
        assert!(pair.server.conversations() <= 8);
    }
    assert!(kept(&pair, HARM).calls <= 16);
    assert!(honest_call_returns(&mut pair, &[5; 3000]));
}

#[test]
fn a_host_that_fills_the_table_forgets_its_own_conversations() {
    let mut pair = beside(ServerConfig { max_conversations: 64, ..ServerConfig::default() });
    let evicted = pair.server.stats().evicted;
    for port in 1..500 {
        join(&mut pair, HARM, port);
        pair.pass(Duration::from_secs(1));
    }
    assert!(pair.server.stats().evicted >= evicted + 400);
    assert_eq!(pair.server.conversations(), 64);
    // The honest conversation has been idle for longer than all others.
    let challenges = pair.server.stats().challenges;
    assert!(honest_call_returns(&mut pair, b"is it known?"));
    assert_eq!(pair.server.stats().challenges, challenges);
    assert_eq!(pair.server.stats().stale, 0);
}

/// Lets each of six conversations of a hostile host use 16,000 activities. Calls `look` after each datagram.
fn use_activities(pair: &mut Pair, mut look: impl FnMut(&Pair)) {
    for port in 1..7 {
        let peer = join(pair, HARM, port);
        for from in (0..16_000).step_by(2000) {
            let cancels: Vec<_> = (from..from + 2000).map(|n| frame_about(CANCEL, 0, n, 9, &[])).collect();
            comes(pair, peer, &cancels);
            pair.answered();
            // The server reads only so many frames of a host in 125 ms.
            pair.pass(Duration::from_secs(1));
            look(pair);
        }
    }
}

#[test]
fn the_activities_of_all_are_bounded_and_the_host_that_has_most_makes_way() {
    let mut pair = beside(ServerConfig { max_conversations: 1000, ..ServerConfig::default() });
    for token in 0..200 {
        pair.start(token, b"many");
    }
    pair.settle();
    let honest = kept(&pair, [10, 0, 0, 1]).activities;
    assert!(honest >= 199 * 16, "{honest}");
    // One of the hostile host's conversations uses few activities.
    let modest = join(&mut pair, HARM, 100);
    comes(&mut pair, modest, &[frame_about(CANCEL, 0, 1, 9, &[])]);
    use_activities(&mut pair, |pair| {
        assert!(pair.server.kept_for(HARM.into()).activities <= 16 * (65_536 + 2 * 2000));
    });
    assert_eq!(kept(&pair, [10, 0, 0, 1]).activities, honest);
    let challenges = pair.server.stats().challenges;
    comes(&mut pair, modest, &[frame_about(PROBE, 0, 1, 9, &[])]);
    assert_eq!(pair.server.stats().challenges, challenges, "the server still knows this conversation");
    assert!(honest_call_returns(&mut pair, b"is it known?"));
}

#[test]
fn activities_are_kept_as_long_as_all_together_are_within_their_bound() {
    let mut pair = beside(ServerConfig { max_conversations: 30_000, ..ServerConfig::default() });
    use_activities(&mut pair, |_| {});
    let kept = kept(&pair, HARM);
    assert!(kept.activities >= 16 * 6 * 15_900, "{kept:?}");
}

#[test]
fn calls_with_anything_kept_are_bounded_and_the_host_that_has_most_makes_way() {
    let mut pair = beside(ServerConfig::default());
    pair.start(1, b"ask!");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, b"the result, lost");
    for port in 1..19 {
        let peer = join(&mut pair, HARM, port);
        for from in (0..16_000).step_by(2000) {
            let call = |n| frame_about(CALL, 0, n, 9, &[0, EXPORT as u32, 1]);
            comes(&mut pair, peer, &(from..from + 2000).map(call).collect::<Vec<_>>());
            for (key, _) in std::mem::take(&mut pair.asked) {
                pair.finish(key, Finish::Result, b"kept");
            }
            pair.answered();
        }
        assert!(pair.server.kept_for(HARM.into()).calls <= (1 << 18) + 2000);
    }
    assert!(
        pair.server.kept_for(HARM.into()).calls >= (1 << 18) - 2000,
        "the server has kept something of that many calls"
    );
    assert_eq!(kept(&pair, [10, 0, 0, 1]).calls, 1);
    pair.receive(&call);
    let again = pair.answered();
    pair.hear(&again);
    assert_eq!(pair.told, [(1, Told::Result(b"the result, lost".to_vec()))]);
}

#[test]
fn calls_whose_arguments_never_end_make_way_for_others_when_too_many_calls_are_kept() {
    let mut pair = beside(ServerConfig::default());
    for port in 1..19 {
        let peer = join(&mut pair, HARM, port);
        for from in (0..16_000).step_by(500) {
            let fragments: Vec<_> =
                (from..from + 500).map(|activity| fragment(activity, 9, 8, 0, 4)).collect();
            comes(&mut pair, peer, &fragments);
            pair.answered();
        }
        assert!(pair.server.kept_for(HARM.into()).calls <= 1 << 18);
    }
    assert!(kept(&pair, HARM).calls >= (1 << 18) - 2000);
    assert!(honest_call_returns(&mut pair, &[5; 3000]));
}

#[test]
fn results_that_nobody_acknowledges_make_way_at_the_host_that_has_most() {
    let mut pair = beside(ServerConfig { held_budget: 100_000, ..ServerConfig::default() });
    pair.start(1, b"ask!");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, &[3; 1000]);
    for port in 1..6 {
        let peer = join(&mut pair, HARM, port);
        for activity in 0..200 {
            let call = frame_about(CALL, 0, activity, 9, &[0, EXPORT as u32, 1, 0]);
            comes(&mut pair, peer, &[call]);
            let (key, _) = pair.asked.pop().unwrap();
            pair.finish(key, Finish::Result, &[4; 1000]);
            assert!(pair.server.held_bytes() <= 100_000 + 1000);
        }
    }
    assert_eq!(kept(&pair, [10, 0, 0, 1]).results, 1000);
    pair.receive(&call);
    let again = pair.answered();
    pair.hear(&again);
    assert_eq!(pair.told, [(1, Told::Result(vec![3; 1000]))]);
}

#[test]
fn calls_keep_no_long_buffers_for_short_results() {
    const BUDGET: usize = 1 << 20;
    let mut pair = beside(ServerConfig { held_budget: BUDGET, ..ServerConfig::default() });
    let peer = join(&mut pair, HARM, 1);
    comes(&mut pair, peer, &[frame_about(CALL, 0, 0, 9, &[0, EXPORT as u32, 1])]);
    let mut reply = Vec::new();
    let mut end_all = |pair: &mut Pair, len: usize| {
        for (key, _) in std::mem::take(&mut pair.asked) {
            reply.resize(len, 7);
            pair.server.finish(pair.now, key, Finish::Result, &mut reply, &mut []);
        }
        pair.answered();
    };
    end_all(&mut pair, 4);
    // The client says that it takes long datagrams.
    comes(&mut pair, peer, &[frame(ACK, 0, &[0, 1, 20_000])]);
    for round in 0..16 {
        for (sequence, len) in [(10, 16_000), (11, 4)] {
            let call = |n| frame_about(CALL, 0, n, sequence, &[0, EXPORT as u32, 1]);
            for activity in 64 * round..64 * (round + 1) {
                comes(&mut pair, peer, &[call(activity)]);
                end_all(&mut pair, len);
            }
        }
        // Refused calls keep no long buffers either, although such buffers are there for reuse.
        let refused = |n| frame_about(CALL, 0, n, 9, &[0, 1 + EXPORT as u32, 1]);
        comes(&mut pair, peer, &(0..64).map(|n| refused(2000 + 64 * round + n)).collect::<Vec<_>>());
        pair.answered();
    }
    let (bytes, calls) = (pair.server.result_buffers(), kept(&pair, HARM).calls);
    assert!(calls >= 2048, "{calls}");
    assert!(bytes <= BUDGET + 400 * calls, "{bytes} bytes for {calls} calls");
    assert!(honest_call_returns(&mut pair, &[5; 3000]));
}

#[test]
fn long_results_make_way_at_the_host_that_is_sent_most() {
    let mut pair = beside(ServerConfig { sending_budget: 1 << 20, ..ServerConfig::default() });
    let peers: Vec<Peer> = (1..40).map(|port| join(&mut pair, HARM, port)).collect();
    let key = pair.execute(1, b"ask!");
    let first = pair.finish(key, Finish::Result, &[3; 200_000]);
    pair.hear(&first);
    // No hostile peer gets as many bytes as the honest one, and none stands still for long.
    for peer in peers {
        let call = frame_about(CALL, 0, 0, 10, &[0, EXPORT as u32, 1, 0]);
        comes(&mut pair, peer, &[call]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, &[4; 100_000]);
        assert!(kept(&pair, HARM).sending + kept(&pair, [10, 0, 0, 1]).sending <= 1 << 20);
        assert_eq!(kept(&pair, [10, 0, 0, 1]).sending, 200_000);
    }
    pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Result(vec![3; 200_000]))]);
}

#[test]
fn a_datagram_with_thousands_of_probes_is_answered_by_thrice_its_bytes() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    for (activity, sequence) in [(0, 100), (7, 1), (16_000, 1), (20_000, 1)] {
        let probe = frame_about(PROBE, 0, activity, sequence, &[]);
        let sent = comes(&mut pair, peer, &vec![probe; 3000]);
        let answers = pair.answered();
        let bytes: usize = answers.iter().map(Vec::len).sum();
        assert!(bytes <= 3 * sent + 1200, "the server answered {sent} bytes by {bytes}");
        assert!(answers.len() <= 3 * sent / 1000, "{} datagrams for {sent} bytes", answers.len());
    }
    // The peer asks again and again for a refusal that is longer than the question.
    let call = frame_about(CALL, 0, 20_000, 1, &[0, EXPORT as u32, 1]);
    let sent = comes(&mut pair, peer, &vec![call; 2000]);
    let answers = pair.answered();
    let bytes: usize = answers.iter().map(Vec::len).sum();
    assert!(bytes <= 3 * sent + 1200, "{bytes} bytes for {sent}");
    assert!(answers.iter().all(|answer| answer.len() <= 1200));
    let refusals: usize = answers.iter().map(|answer| frames_of(answer).len()).sum();
    assert_eq!(refusals, 2000, "the server refuses each call once");
}

/// Returns the number of calls that the server's answers report on.
fn states(pair: &mut Pair) -> usize {
    let answers = pair.answered();
    answers.iter().flat_map(|answer| frames_of(answer)).filter(|kind| *kind == STATE).count()
}

#[test]
fn words_about_calls_are_acted_upon_as_far_as_their_host_leaves_time_to_others() {
    let mut pair = beside(ServerConfig::default());
    let [first, second] = [1, 2].map(|port| join(&mut pair, HARM, port));
    let other = join(&mut pair, [10, 7, 7, 7], 3);
    pair.answered();
    let probes = vec![frame_about(PROBE, 0, 5, 100, &[]); 1000];
    let asked_about = |pair: &mut Pair, peer: Peer, probes: &[Vec<u8>]| {
        comes(pair, peer, probes);
        states(pair)
    };
    let many: usize =
        [first, second].repeat(5).into_iter().map(|peer| asked_about(&mut pair, peer, &probes)).sum();
    assert!((2048..=2058).contains(&many), "the server acted on {many} probes");
    assert_eq!(
        asked_about(&mut pair, first, &probes),
        1,
        "the server still acts on the first frame of a datagram"
    );
    let call = frame_about(CALL, 0, 7, 100, &[0, EXPORT as u32, 1]);
    let and_a_call = [probes[0].clone(), probes[0].clone(), call];
    assert_eq!(asked_about(&mut pair, first, &and_a_call), 1);
    assert_eq!(pair.asked.len(), 0, "the server does not read the rest of the datagram");
    assert_eq!(asked_about(&mut pair, other, &probes), 1000, "the server acts on all frames of another host");
    assert!(honest_call_returns(&mut pair, &[5; 3000]));
    pair.pass(Duration::from_millis(125));
    assert_eq!(
        asked_about(&mut pair, second, &probes),
        1000,
        "the server acts on frames of the first host again later"
    );
    // Duplicates of a call that is being executed count like probes.
    let calls = vec![frame_about(CALL, 0, 6, 100, &[0, EXPORT as u32, 1]); 1300];
    assert_eq!(asked_about(&mut pair, second, &calls), 1050);
}

#[test]
fn a_call_that_is_cancelled_over_and_over_is_given_up_once() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    comes(&mut pair, peer, &[frame_about(CALL, 0, 3, 9, &[0, EXPORT as u32, 1])]);
    for _ in 0..3 {
        comes(&mut pair, peer, &vec![frame_about(CANCEL, 0, 3, 9, &[]); 1000]);
    }
    assert_eq!(pair.cancelled.len(), 1);
}

#[test]
fn nothing_is_kept_of_a_call_that_is_cancelled_before_it_comes() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    let before = kept(&pair, HARM).calls;
    let cancels: Vec<_> = (0..1000).map(|activity| frame_about(CANCEL, 0, activity, 900, &[])).collect();
    comes(&mut pair, peer, &cancels);
    pair.answered();
    assert!(kept(&pair, HARM).calls <= before, "{:?}", kept(&pair, HARM));
    // The call never runs, and the server says so to a client that asks.
    comes(&mut pair, peer, &[frame_about(CALL, 0, 7, 900, &[0, EXPORT as u32, 1])]);
    assert!(pair.asked.is_empty());
    let answers = pair.answered();
    assert_eq!(frames_of(&answers[0]), [RESULT]);
}

#[test]
fn results_of_accesses_that_one_host_does_not_fetch_leave_room_to_others() {
    let budget = 1 << 20;
    let mut pair = beside(ServerConfig { held_budget: budget, ..ServerConfig::default() });
    let peer = join(&mut pair, HARM, 1);
    let bytes = 100_000;
    for activity in 0..10 {
        comes(&mut pair, peer, &[frame_about(CALL, 0, activity, 900, &[0, EXPORT as u32, READINGS + 1])]);
        let (key, _) = pair.asked.pop().unwrap();
        assert!(pair.server.has_room(pair.now, &peer.at, bytes));
        pair.server.finish(pair.now, key, Finish::Result, &mut vec![7; bytes], &mut []);
    }
    assert!(!pair.server.has_room(pair.now, &peer.at, bytes), "the host already has the whole budget");
    let anybody = |host| SocketAddr::from((host, 1));
    assert!(
        pair.server.has_room(pair.now, &anybody([10, 0, 0, 1]), bytes),
        "a host without results has room for one"
    );
    assert!(
        !pair.server.has_room(pair.now, &anybody([10, 0, 0, 1]), budget + bytes),
        "no host has room for a result longer than the whole budget"
    );
    // The server keeps at least a 64th of the budget for each host.
    let modest = join(&mut pair, [10, 7, 7, 7], 2);
    let access = |pair: &mut Pair, peer: Peer, activity, len| {
        let has = pair.server.has_room(pair.now, &peer.at, len);
        comes(pair, peer, &[frame_about(CALL, 0, activity, 900, &[0, EXPORT as u32, READINGS + 1])]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.server.finish(pair.now, key, Finish::Result, &mut vec![7; len], &mut []);
        has
    };
    assert!(access(&mut pair, peer, 10, 48_000), "the rest of the budget has room for a shorter result");
    let has: Vec<bool> = (0..6).map(|activity| access(&mut pair, modest, activity, 4000)).collect();
    assert_eq!(has, [true, true, true, true, false, false]);
    pair.server.audit();
}

#[test]
fn what_has_arrived_of_arguments_is_said_once_however_often_it_is_asked_for() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    let holes: Vec<_> = (0..40).map(|n| fragment(3, 1, 1 << 20, 100 + 100 * n, 4)).collect();
    comes(&mut pair, peer, &holes);
    pair.answered();
    comes(&mut pair, peer, &vec![frame_about(PROBE, 0, 3, 1, &[]); 1000]);
    let answers = pair.answered();
    assert_eq!(answers.len(), 1);
    assert_eq!(frames_of(&answers[0]), [SELECT]);
    // The server answers once more when the peer asks again.
    comes(&mut pair, peer, &[frame_about(PROBE, 0, 3, 1, &[])]);
    assert_eq!(pair.answered().len(), 1);
    // The server puts the SELECTs of several calls into one datagram, each with the largest number of ranges.
    comes(&mut pair, peer, &[frame_about(PROBE, 0, 30, 1, &[])]);
    for activity in 4..12 {
        let holes: Vec<_> = (0..40).map(|n| fragment(activity, 1, 1 << 20, 100 + 100 * n, 4)).collect();
        comes(&mut pair, peer, &holes);
    }
    let answers = pair.answered();
    let kinds: Vec<_> = answers.iter().map(|answer| frames_of(answer)).collect();
    assert_eq!(kinds, [&[STATE, SELECT, SELECT, SELECT][..], &[SELECT; 4], &[SELECT]]);
    let select = 36 + 32 * 8;
    let lengths = [24 + 3 * select, 4 * select, select].map(|frames| 20 + frames + 8);
    assert!(answers.iter().map(Vec::len).eq(lengths));
}

#[test]
fn results_that_are_sent_again_for_one_datagram_have_a_mebibyte() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    for activity in 0..3000 {
        comes(&mut pair, peer, &[frame_about(CALL, 0, activity, 9, &[0, EXPORT as u32, 1, 0])]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, &[4; 1000]);
    }
    let probes: Vec<_> = (0..3000).map(|activity| frame_about(PROBE, 0, activity, 9, &[])).collect();
    comes(&mut pair, peer, &probes);
    let bytes: usize = pair.answered().iter().map(Vec::len).sum();
    assert!((900_000..1_200_000).contains(&bytes), "{bytes}");
}

#[test]
fn answers_that_wait_are_bounded_and_each_host_has_its_share() {
    let mut pair = beside(ServerConfig::default());
    let peers: Vec<Peer> = (1..9).map(|port| join(&mut pair, HARM, port)).collect();
    // The peers ask without end, and the server sends nothing meanwhile.
    for round in 0..20 {
        for peer in &peers {
            let probes: Vec<_> = (0..2000).map(|n| frame_about(PROBE, 0, 1 + n, 5 + round, &[])).collect();
            comes(&mut pair, *peer, &probes);
        }
        // After this time the server reads a host's next questions.
        pair.pass(Duration::from_millis(125));
    }
    assert_eq!(pair.server.replies(), 8192 / 2);
    pair.start(1, &[1; 3000]);
    let sent = pair.sent();
    pair.receive(&sent);
    pair.hear(&[]);
    pair.carry(1, Duration::from_secs(5), |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Result(vec![1; 3000]))]);
}

#[test]
fn answers_that_wait_are_bounded_for_all_hosts_together() {
    let mut pair = beside(ServerConfig::default());
    let peers: Vec<Peer> = (1..=60).map(|host| join(&mut pair, [10, 7, 0, host], 1)).collect();
    let probes: Vec<_> = (0..2000).map(|n| frame_about(PROBE, 0, 1 + n, 5, &[])).collect();
    for peer in &peers {
        comes(&mut pair, *peer, &probes);
    }
    // Each host has its least share until half of all are taken, and there are more hosts than shares.
    assert!(pair.server.replies() <= 8192, "{}", pair.server.replies());
    pair.answered();
    assert!(honest_call_returns(&mut pair, b"is it heard?"));
}

#[test]
fn lists_of_calls_that_have_ended_do_not_grow() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    // The first message in the list never ends, so no later one leaves the list by itself.
    comes(&mut pair, peer, &[fragment(1, 1, 8, 0, 4)]);
    for sequence in 2..1000 {
        comes(&mut pair, peer, &[fragment(2, sequence, 8, 0, 4)]);
        comes(&mut pair, peer, &[fragment(2, sequence, 8, 4, 4)]);
        let (key, _) = pair.asked.pop().expect("all of it has come");
        pair.finish(key, Finish::Result, b"");
        pair.answered();
    }
    let kept = kept(&pair, HARM);
    assert!(kept.listed < 100, "{kept:?}");
}

#[test]
fn only_who_sent_as_much_before_is_given_a_used_buffer() {
    let mut pair = beside(ServerConfig::default());
    // The server has long buffers: those of an honest client's arguments.
    for _ in 0..3 {
        pair.start(1, &[1; 600_000]);
        pair.carry(pair.told.len() + 1, Duration::from_secs(60), |_, _, _| true);
        pair.server.recycle(Vec::with_capacity(600_000));
    }
    let peer = join(&mut pair, HARM, 1);
    comes(&mut pair, peer, &[fragment(0, 10, 600_000, 0, 4)]);
    assert!(kept(&pair, HARM).arguments <= 256 + 8);
    let honest = Peer {
        id: conversation_of(
            &{
                pair.start(2, b"who?");
                pair.sent()
            }[0],
        ),
        at: pair.from,
    };
    // The server does not use a buffer that is more than twice as long as the arguments.
    let given = |pair: &mut Pair, activity| {
        let before = kept(pair, [10, 0, 0, 1]).arguments;
        comes(pair, honest, &[fragment(activity, 1 << 30, 600_000, 0, 4)]);
        kept(pair, [10, 0, 0, 1]).arguments - before
    };
    while pair.server.buffer(pair.now, 100_000).capacity() > 0 {}
    pair.server.recycle(Vec::with_capacity(1_300_000));
    assert!(given(&mut pair, 9) <= 256 + 8);
    assert_eq!(pair.server.buffer(pair.now, 100_000).capacity(), 1_300_000);
    pair.server.recycle(Vec::with_capacity(1_100_000));
    assert!(given(&mut pair, 10) >= 1_100_000);
}

#[test]
fn a_host_leaves_others_some_of_the_used_buffers() {
    const LONG: u32 = 900_000;
    let mut pair = beside(ServerConfig::default());
    pair.start(1, &[1; LONG as usize]);
    pair.carry(pair.told.len() + 1, Duration::from_secs(60), |_, _, _| true);
    pair.start(2, b"who?");
    let honest = Peer { id: conversation_of(&pair.sent()[0]), at: pair.from };
    let peer = join(&mut pair, HARM, 1);
    for offset in (0..LONG).step_by(1100) {
        comes(&mut pair, peer, &[fragment(0, 10, LONG, offset, 1100.min(LONG - offset) as usize)]);
    }
    let (key, _) = pair.asked.pop().expect("all arguments have arrived");
    pair.finish(key, Finish::Result, b"");
    // These are as many spare buffers as there can be.
    (0..16).for_each(|_| pair.server.recycle(Vec::with_capacity(LONG as usize)));
    for activity in 1..=20 {
        comes(&mut pair, peer, &[fragment(activity, 10, LONG, 0, 4)]);
    }
    assert!(
        kept(&pair, HARM).arguments >= 12 * LONG as usize,
        "a host may get many spare buffers while there are enough"
    );
    comes(&mut pair, honest, &[fragment(9, 1 << 30, LONG, 0, 4)]);
    assert!(kept(&pair, [10, 0, 0, 1]).arguments >= LONG as usize);
}

#[test]
fn an_acknowledgement_costs_no_more_than_the_calls_that_it_tells_of() {
    let mut pair = beside(ServerConfig::default());
    let peer = join(&mut pair, HARM, 1);
    for activity in 0..1000 {
        comes(&mut pair, peer, &[frame_about(CALL, 0, activity, 9, &[0, EXPORT as u32, 1, 0])]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, &[4; 100]);
    }
    let mut before = kept(&pair, HARM).results;
    assert_eq!(before, 100_000);
    let mut datagrams = 0;
    while before > 0 {
        // The server acts only on the first of several acknowledgements in one datagram.
        comes(&mut pair, peer, &vec![frame(ACK, 0, &[0, 1000, 1200]); 3]);
        let after = kept(&pair, HARM).results;
        assert!(before - after <= 256 * 100, "{before} to {after}");
        (before, datagrams) = (after, datagrams + 1);
        assert!(datagrams < 10, "the server still holds {before} bytes");
    }
}

#[test]
fn honest_clients_behind_one_address_are_not_hurt_while_nothing_is_short() {
    let mut pair = beside(ServerConfig { reassembly_budget: 1 << 20, ..ServerConfig::default() });
    let peers: Vec<Peer> = (1..100).map(|port| join(&mut pair, HARM, port)).collect();
    for peer in &peers {
        comes(&mut pair, *peer, &[fragment(0, 10, 8000, 0, 4000)]);
    }
    for peer in &peers {
        comes(&mut pair, *peer, &[fragment(0, 10, 8000, 4000, 4000)]);
    }
    assert_eq!(pair.asked.len(), peers.len());
    assert_eq!(pair.server.stats().evicted_calls, 0);
}

#[test]
fn who_is_refused_for_want_of_room_hears_that_it_did_not_run() {
    let mut pair = beside(ServerConfig { reassembly_budget: 20_000, ..ServerConfig::default() });
    pair.start(1, &[1; 100_000]);
    pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Overloaded, Ran::No))]);
}

/// Returns the rows of the table of bounds: what, how much, who pays, and the tests.
fn rows(document: &str) -> Vec<Vec<&str>> {
    let section = document.split("\n## ").find(|section| section.starts_with("10. ")).expect("section 10");
    let table = section.lines().skip_while(|line| !line.starts_with("| what | bound | who pays | test |"));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns whether that file has a test of this name.
fn is_test(root: &Path, file: &str, name: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(root.join(file)) else { return false };
    let Some(at) = text.find(&format!("fn {name}()")) else { return false };
    text[..at].trim_end().ends_with("#[test]")
}

#[test]
fn every_bound_of_the_specification_says_who_pays_and_names_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join("docs/protocol.md")).expect("the specification");
    let rows = rows(&document);
    assert!(rows.len() >= 16, "{} rows", rows.len());
    let mut named = Vec::new();
    for row in rows {
        let [what, bound, pays, tests] = row[..] else { panic!("a row of four cells: {row:?}") };
        assert!(!what.is_empty() && !bound.is_empty() && !pays.is_empty(), "{row:?}");
        for test in tests.split(',') {
            let test = test.trim().trim_matches('`');
            let (file, name) =
                test.split_once("::").unwrap_or_else(|| panic!("{what}: {test:?} is no FILE::TEST"));
            let file = if file.contains('/') {
                format!("crates/{file}.rs")
            } else {
                format!("crates/farcall-proto/tests/{file}.rs")
            };
            assert!(is_test(&root, &file, name), "{what}: there is no test {name} in {file}");
            named.push(name.to_owned());
        }
    }
    // Every test of a bound in this file is in the table.
    let here = include_str!("bounds.rs");
    for test in
        here.split("#[test]\nfn ").skip(1).filter_map(|test| test.split_once("()")).map(|(name, _)| name)
    {
        let about_the_table = test.starts_with("every_bound");
        assert!(about_the_table || named.iter().any(|name| name == test), "the table does not name {test}");
    }
}
