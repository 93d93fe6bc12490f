//! Packet traces of messages in fragments. A message arrives whole, whichever of its datagrams are lost.

mod common;

use std::slice;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use farcall_proto::client::CallId;
use farcall_proto::server::{CallKey, Finish, Insert, Transmit};
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig};

const SECOND: Duration = Duration::from_secs(1);

/// Returns a pair that sends datagrams of at most 1,200 bytes, and gives up only messages that make no
/// progress.
fn small() -> Pair {
    let client = ClientConfig { max_datagram: 1200, patience_probes: 100, ..ClientConfig::default() };
    Pair::acquainted_with(client, ServerConfig::default())
}

/// Returns whether the call with this token has a result of this length.
fn whole(pair: &Pair, token: u64, len: usize) -> bool {
    matches!(pair.told.iter().find(|t| t.0 == token), Some((_, Told::Result(r))) if r.len() == len)
}

#[test]
fn a_late_copy_of_a_call_does_not_restart_its_result() {
    let mut pair = small();
    pair.start(1, b"fetch...");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    let first = pair.finish(key, Finish::Result, &vec![7; 200_000]);
    pair.hear(&first);
    let selects = pair.sent();
    pair.receive(&selects);
    // A copy of the call arrives late, when half of the result has arrived.
    pair.receive(&call);
    let datagrams = pair.carry(1, SECOND, |_, _, _| true);
    assert!(whole(&pair, 1, 200_000));
    assert!(datagrams < 300, "a result of 180 fragments took {datagrams} datagrams");
}

#[test]
fn unacknowledged_fragments_are_retransmitted_if_the_caller_asks_after_a_round_trip() {
    let mut pair = small();
    pair.start(1, b"fetch...");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    let first = pair.finish(key, Finish::Result, &[7; 5_000]);
    // Another result is in flight. Its caller sends no probe.
    let key = pair.execute(2, b"fetch...");
    pair.finish(key, Finish::Result, &[7; 3_000]);
    for (later, again) in [(Duration::ZERO, 0), (SECOND, first.len())] {
        pair.pass(later);
        let before = *pair.server.stats();
        pair.receive(&call);
        pair.server.audit();
        assert_eq!(pair.answered().len(), again);
        pair.server.audit();
        let stats = pair.server.stats();
        let retransmitted = stats.retransmitted - before.retransmitted;
        assert_eq!(retransmitted, 1 + again as u64, "one for the question, and one for each fragment");
    }
}

#[test]
fn a_transfer_that_takes_longer_than_results_are_held_goes_on() {
    let mut pair = small();
    pair.answer = Some(vec![7; 100_000]);
    pair.start(1, b"fetch...");
    // One datagram passes every other second, so ninety fragments take minutes.
    let began = pair.now;
    let mut last = pair.now;
    pair.carry(1, 600 * SECOND, |now, d, to| {
        let passes = to == To::Server || !frames_of(d).contains(&RESULT) || now.since(last) > 2 * SECOND;
        last = if passes && to == To::Client { now } else { last };
        passes
    });
    assert!(whole(&pair, 1, 100_000), "{:?} after {:?}", pair.told, pair.now.since(began));
    assert!(pair.now.since(began) > 100 * SECOND);
}

#[test]
fn messages_arrive_whole_whichever_datagrams_are_lost() {
    for seed in 0..50u64 {
        let mut pair = small();
        for token in 1..=3 {
            pair.start(token, &vec![token as u8; 60_000]);
        }
        let mut x = seed * 77 + 1;
        pair.carry(3, 300 * SECOND, |_, _, _| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % 100 >= seed
        });
        for token in 1..=3 {
            assert!(
                whole(&pair, token, 60_000),
                "seed {seed}: {:?}",
                pair.told
                    .iter()
                    .map(|t| (t.0, if let Told::Failed(k, r) = t.1 { Some((k, r)) } else { None }))
                    .collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn a_transfer_continues_when_the_path_carries_only_smaller_datagrams() {
    for arguments in [true, false] {
        let mut pair = Pair::acquainted();
        pair.start(1, &vec![1; 400_000]);
        pair.carry(1, SECOND, |_, _, _| true);
        assert!(pair.client.stats().datagram > 30_000);
        // From now on no datagram larger than an Ethernet frame passes.
        pair.told.clear();
        pair.answer = (!arguments).then(|| vec![2; 400_000]);
        let args = if arguments { vec![1; 400_000] } else { vec![1; 8] };
        pair.start(2, &args);
        pair.carry(1, 5 * SECOND, |_, d, _| d.len() <= 1472);
        assert!(whole(&pair, 2, 400_000), "{:?}, arguments {arguments}", pair.told);
        // When the path carries large datagrams again, the client uses them again after some time.
        pair.pass(600 * SECOND);
        pair.start(3, &vec![3; 400_000]);
        pair.carry(2, SECOND, |_, _, _| true);
        assert!(pair.client.stats().datagram > 30_000);
    }
}

#[test]
fn the_datagram_size_falls_back_after_three_losses_in_a_row() {
    let mut pair = Pair::acquainted();
    pair.start(1, &vec![1; 400_000]);
    pair.carry(1, SECOND, |_, _, _| true);
    let CallId { activity, sequence } = pair.start(2, &vec![1; 400_000]);
    let sizes = [
        (1, 0),
        (1, 0),
        (0, 64_000),
        (1, 64_000),
        // These SELECTs report neither progress nor a loss.
        (0, 64_000),
        (0, 64_000),
        (0, 64_000),
        (1, 64_000),
        (1, 64_000),
    ]
    .map(|(pull, through)| {
        pair.sent();
        pair.pass(SECOND / 10);
        let select = frame_about(SELECT, pull, activity, sequence as u32, &[through, 400_000, 0, 0]);
        pair.hear(&[forged(pair.client.id(), 1, &[select])]);
        pair.client.stats().datagram
    });
    assert_eq!(sizes[..8], [64_000; 8]);
    assert_eq!(sizes[8], 1200);
    assert!(pair.client.stats().retransmitted > 5, "the lost fragments were sent again");
}

#[test]
fn results_of_one_conversation_share_its_window() {
    let mut pair = small();
    pair.answer = Some(vec![7; 3_000_000]);
    for token in 1..=4 {
        pair.start(token, b"fetch...");
    }
    pair.carry(1, SECOND, |_, _, _| true);
    // When the first message ends, the other messages have nearly ended too.
    let first = pair.now;
    pair.carry(4, SECOND, |_, _, _| true);
    assert_eq!(pair.told.len(), 4);
    assert!(pair.now.since(first) < Duration::from_millis(50), "{:?}", pair.now.since(first));
}

#[test]
fn a_result_that_arrived_is_dropped_although_other_calls_are_outstanding() {
    let mut pair = small();
    let mut keys = Vec::new();
    for token in 1..=50 {
        pair.start(token, b"fetch...");
    }
    let calls = pair.sent();
    pair.receive(&calls);
    keys.append(&mut pair.asked);
    // Only the newest call ends. All other calls go on.
    let (newest, _) = keys.pop().unwrap();
    let first = pair.finish(newest, Finish::Result, &vec![7; 30_000]);
    pair.hear(&first);
    pair.carry(1, SECOND, |_, _, _| true);
    assert!(whole(&pair, 50, 30_000));
    let last = pair.sent();
    pair.receive(&last);
    assert_eq!(pair.server.held_bytes(), 0);
}

#[test]
fn arguments_of_one_conversation_share_its_window() {
    let mut pair = small();
    pair.answer = Some(vec![0; 4]);
    for token in 1..=4 {
        pair.start(token, &vec![1; 3_000_000]);
    }
    pair.carry(4, 10 * SECOND, |_, _, _| true);
    assert_eq!(pair.told.len(), 4);
}

#[test]
fn a_result_let_go_in_mid_transfer_is_said_to_be_lost() {
    let server = ServerConfig { held_budget: 1000, ..ServerConfig::default() };
    let mut pair = Pair::with(ClientConfig { max_datagram: 1200, ..ClientConfig::default() }, server);
    pair.start(1, b"fetch...");
    pair.start(2, b"fetch...");
    pair.answer = Some(vec![7; 100_000]);
    let mut fragments = 0;
    pair.carry(2, 5 * SECOND, |_, d, to| {
        fragments += usize::from(to == To::Client && frames_of(d).contains(&RESULT));
        fragments < 30
    });
    for (_, told) in &pair.told {
        assert!(matches!(told, Told::Result(_) | Told::Failed(Kind::ResultLost | Kind::Unreachable, _)));
        assert_ne!(*told, Told::Failed(Kind::Unreachable, Ran::No));
    }
}

#[test]
fn the_rest_of_a_result_is_not_sent_after_a_cancel() {
    let mut pair = small();
    let id = pair.start(1, b"fetch...");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    let first = pair.finish(key, Finish::Result, &vec![7; 200_000]);
    pair.hear(&first);
    pair.sent();
    pair.client.cancel(pair.now, id);
    let datagrams = pair.carry(1, SECOND, |_, _, _| true);
    assert!(datagrams < 5, "{datagrams}");
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Yes))]);
    assert_eq!(pair.server.held_bytes(), 0);
}

#[test]
fn a_lost_last_select_does_not_take_the_window_from_other_results() {
    let mut pair = small();
    pair.answer = Some(vec![7; 11_000]);
    pair.start(1, b"fetch...");
    pair.start(2, b"fetch...");
    // The client receives all of the first result. Its last SELECT to the server is lost.
    let mut said = 0;
    pair.carry(1, SECOND, |_, d, to| {
        said += usize::from(to == To::Server);
        said <= 1 || !frames_of(d).contains(&SELECT)
    });
    pair.carry(2, SECOND, |_, _, _| true);
    assert!(whole(&pair, 1, 11_000) && whole(&pair, 2, 11_000));
}

#[test]
fn a_result_whose_last_select_is_lost_frees_the_window_while_an_older_call_goes_on() {
    let mut pair = small();
    (1..=3).for_each(|token| _ = pair.start(token, b"fetch..."));
    let calls = pair.sent();
    pair.receive(&calls);
    let [_, second, third] = [0, 1, 2].map(|n| pair.asked[n].0);
    pair.asked.clear();
    let result = pair.finish(second, Finish::Result, &[7; 11_000]);
    pair.hear(&result);
    assert!(whole(&pair, 2, 11_000));
    // The SELECT of the second result is lost, and the oldest call is still outstanding.
    assert!(pair.sent().iter().any(|datagram| frames_of(datagram).contains(&SELECT)));
    let first = pair.finish(third, Finish::Result, &[7; 11_000]);
    assert!(first.len() < 3, "the second result fills the window");
    pair.hear(&first);
    pair.carry(2, 5 * SECOND, |_, _, _| true);
    assert!(whole(&pair, 3, 11_000), "{} have ended", pair.told.len());
}

#[test]
fn a_result_that_waits_for_the_window_goes_on_as_soon_as_another_has_arrived() {
    let mut pair = small();
    (1..=2).for_each(|token| _ = pair.start(token, b"fetch..."));
    let calls = pair.sent();
    pair.receive(&calls);
    let [first, second] = [0, 1].map(|n| pair.asked[n].0);
    let result = pair.finish(first, Finish::Result, &[7; 11_000]);
    let begun = pair.finish(second, Finish::Result, &[7; 11_000]).len();
    assert!(begun < 3, "the first result fills the window");
    pair.hear(&result);
    let select = pair.sent();
    pair.receive(&select);
    assert!(begun + pair.answered().len() >= 10, "the server sends all of the second result");
}

#[test]
fn while_the_window_is_full_only_fragments_that_were_sent_long_ago_count_as_lost() {
    let mut pair = small();
    (1..=2).for_each(|token| _ = pair.start(token, b"fetch..."));
    let calls = pair.sent();
    pair.receive(&calls);
    let [first, second] = [0, 1].map(|n| pair.asked[n].0);
    pair.finish(first, Finish::Result, &[7; 8_000]);
    pair.pass(SECOND);
    let begun = pair.finish(second, Finish::Result, &[7; 11_000]).len();
    assert!((2..5).contains(&begun), "the window has room for a few fragments, and {begun} were sent");
    let again = frame_about(PROBE, 0, second.activity, second.sequence as u32, &[]);
    pair.receive(&[forged(second.conversation, 7_000, &[again])]);
    pair.server.audit();
    assert!(begun + pair.answered().len() >= 10, "the server sends all of the second result");
    pair.server.audit();
}

#[test]
fn a_call_of_two_fragments_each_way_takes_at_most_five_datagrams() {
    let mut pair = small();
    pair.answer = Some(vec![7; 2_000]);
    pair.start(1, &vec![7; 2_000]);
    assert!(pair.carry(1, SECOND, |_, _, _| true) <= 5);
    pair.settle();
    assert_eq!(pair.server.held_bytes(), 0);
}

/// Returns a pair on one machine, where datagrams are large, and the datagrams with the beginning of a long
/// result that the server has sent.
fn long_result_on_one_machine() -> (Pair, Vec<Datagram>) {
    let client = ClientConfig { loopback: true, ..ClientConfig::default() };
    let mut pair = Pair::with(client, ServerConfig::default());
    pair.from = "127.0.0.1:1000".parse().unwrap();
    pair.answer = Some(vec![7; 8_000_000]);
    for token in 0..3 {
        pair.start(token, b"fetch...");
        pair.carry(1, SECOND, |_, _, _| true);
        pair.told.clear();
    }
    let key = pair.execute(3, b"fetch...");
    let way = pair.finish(key, Finish::Result, &vec![7; 8_000_000]);
    (pair, way)
}

#[test]
fn a_short_result_waits_behind_few_bytes_of_a_long_result() {
    let (mut pair, mut way) = long_result_on_one_machine();
    assert!(
        way.iter().map(Vec::len).sum::<usize>() > 1 << 20,
        "a long result fills a large window when no other call is outstanding"
    );
    let mut ahead = Vec::new();
    for token in 4.. {
        // A short call begins. Its result goes to the socket behind the datagrams that are there.
        pair.start(token, b"short...");
        let sent = pair.sent();
        pair.receive(&sent);
        way.extend(pair.answered());
        ahead.push(way.iter().map(Vec::len).sum::<usize>());
        for (key, args) in std::mem::take(&mut pair.asked) {
            way.extend(pair.finish(key, Finish::Result, &args));
        }
        pair.pass(Duration::from_micros(50));
        pair.hear(&std::mem::take(&mut way));
        assert_eq!(pair.told.last().map(|t| t.0), Some(token), "the short result arrives at once");
        if pair.told.iter().any(|t| t.0 == 3) {
            break;
        }
    }
    assert!(ahead.len() > 10, "{ahead:?}");
    assert!(ahead[2..].iter().all(|bytes| *bytes <= 300_000), "{ahead:?}");
}

#[test]
fn a_short_call_beside_a_long_message_counts_as_company_for_a_tenth_of_a_second() {
    let ms = Duration::from_millis;
    let short = |pair: &mut Pair, token| {
        pair.start(token, b"short...");
        let sent = pair.sent();
        pair.receive(&sent);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, b"done")
    };
    let mut pair = small();
    let results = [short(&mut pair, 1), short(&mut pair, 2)].concat();
    pair.hear(&results);
    assert!(pair.told.len() == 2 && !pair.client.has_company(pair.now), "both calls are short");
    // A short call that ends after the long message is not company.
    let long = |pair: &mut Pair, token| {
        pair.start(token, b"long....");
        let call = pair.sent();
        pair.receive(&call);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, &[7; 5000])
    };
    let (fragments, last) = (long(&mut pair, 3), short(&mut pair, 4));
    pair.hear(&[fragments, last].concat());
    assert!(pair.told.len() == 4 && !pair.client.has_company(pair.now));
    pair.settle();
    // A short call that ends before the long message is company.
    let (fragments, other) = (long(&mut pair, 5), short(&mut pair, 6));
    pair.hear(&[fragments[..1].to_vec(), other].concat());
    let has = [0, 99, 100].map(|later| pair.client.has_company(pair.now + ms(later)));
    assert_eq!((pair.told.len(), has), (5, [true, true, false]));
}

#[test]
fn concurrent_long_results_keep_their_window_although_their_calls_are_short() {
    let (mut pair, way) = long_result_on_one_machine();
    pair.hear(&way);
    pair.start(4, b"fetch...");
    let datagrams = pair.carry(2, SECOND, |_, _, _| true);
    assert!(whole(&pair, 3, 8_000_000) && whole(&pair, 4, 8_000_000));
    assert!(datagrams < 350, "results of 250 fragments took {datagrams} datagrams");
}

#[test]
fn fragments_that_were_allowed_before_a_short_call_began_are_accepted() {
    let (mut pair, way) = long_result_on_one_machine();
    pair.hear(&way);
    let ask = |pair: &mut Pair, token: u64, len: usize| {
        pair.start(token, b"fetch...");
        let sent = pair.sent();
        pair.receive(&sent);
        let mut answers = pair.answered();
        let (key, _) = pair.asked.pop().unwrap();
        answers.extend(pair.finish(key, Finish::Result, &vec![7; len]));
        answers
    };
    pair.carry(1, SECOND, |_, _, _| true);
    let first = ask(&mut pair, 4, 1 << 20);
    let second = ask(&mut pair, 5, 1 << 19);
    pair.hear(&first);
    let short = ask(&mut pair, 6, 8);
    pair.hear(&short);
    pair.hear(&second);
    pair.carry(4, SECOND, |_, _, _| true);
    assert!(whole(&pair, 4, 1 << 20) && whole(&pair, 5, 1 << 19) && whole(&pair, 6, 8));
    assert_eq!(pair.server.stats().retransmitted, 0);
}

/// Cancels the call with the long result, and has the server execute another call.
fn another_call(pair: &mut Pair) -> CallKey {
    pair.client.cancel(pair.now, CallId { activity: 0, sequence: 4 });
    pair.settle();
    pair.start(9, b"fetch...");
    let sent = pair.sent();
    pair.receive(&sent);
    pair.asked.pop().unwrap().0
}

#[test]
fn inserted_bytes_are_sent_without_a_copy() {
    let (mut pair, _) = long_result_on_one_machine();
    let (mut rest, bytes) = (vec![1; 101], Bytes::from((0..259_663).map(|n| n as u8).collect::<Vec<u8>>()));
    let key = another_call(&mut pair);
    let before = *pair.server.stats();
    let mut whole = rest.clone();
    whole.splice(6..6, bytes.iter().copied());
    let insert = Insert { at: 6, bytes: bytes.clone() };
    pair.server.finish_around(pair.now, key, Finish::Result, &mut rest, insert);
    let (mut out, mut apart, mut counted) = (vec![0; 65_536], 0, (0, 0));
    while let Some(Transmit { len, insert, .. }) = pair.server.transmit(pair.now, &mut out) {
        let mut datagram = out[..len].to_vec();
        if let Some(Insert { at, bytes: part }) = insert.map(|insert| *insert) {
            assert!(
                bytes.as_ptr_range().contains(&part.as_ptr()),
                "a part lies in the inserted bytes and is no copy"
            );
            assert!(part.len() >= 8 << 10, "the server copies parts of less than 8 KiB");
            datagram.splice(at..at, part.iter().copied());
            assert_eq!(frames_of(&datagram), [RESULT], "the datagram has no other frame");
            apart += part.len();
        }
        counted = (counted.0 + 1, counted.1 + datagram.len() as u64);
        pair.hear(&[datagram]);
    }
    let stats = pair.server.stats();
    assert_eq!((stats.sent - before.sent, stats.bytes_sent - before.bytes_sent), counted);
    assert!(
        (250_000..259_663).contains(&apart),
        "{apart} bytes were not copied; only the last part is short enough to be copied"
    );
    assert_eq!(pair.told.last(), Some(&(9, Told::Result(whole))));
    let sent = pair.sent();
    pair.receive(&sent);
    assert!(pair.server.has_loose());
    assert_eq!((pair.server.held_bytes(), pair.server.take_loose()), (0, vec![bytes]));
    assert!(!pair.server.has_loose());
}

#[test]
fn an_insert_is_copied_where_datagrams_are_not_sent_in_parts() {
    let bytes = Bytes::from((0..80_000).map(|n| n as u8).collect::<Vec<u8>>());
    let whole = [vec![1; 4], bytes.to_vec(), vec![1; 4]].concat();
    for local in [true, false] {
        let (mut pair, key) = match local {
            true => {
                let (mut pair, _) = long_result_on_one_machine();
                let key = another_call(&mut pair);
                (pair, key)
            }
            false => {
                let (pair, _, key) = Pair::executing(b"fetch...");
                (pair, key)
            }
        };
        pair.told.clear();
        let insert = Insert { at: 4, bytes: bytes.clone() };
        pair.server.finish_around(pair.now, key, Finish::Result, &mut vec![1; 8], insert);
        let mut out = vec![0; 65_536];
        while pair.told.is_empty() {
            let mut datagrams = 0;
            while let Some(sent) = pair.server.transmit(pair.now, &mut out) {
                assert!(local || sent.insert.is_none());
                datagrams += 1;
                pair.hear(&[sent.gather(&out)]);
            }
            assert!(datagrams > 0 && datagrams < 100);
            let select = pair.sent();
            pair.receive(&select);
        }
        assert!(matches!(&pair.told[0].1, Told::Result(result) if *result == whole));
    }
}

#[test]
fn the_inserted_bytes_of_a_result_that_is_not_sent_are_given_back() {
    let insert = Insert { at: 0, bytes: Bytes::from(vec![8; 80_000]) };
    for (finish, told) in [
        (Finish::Result, Some(Told::Failed(Kind::Cancelled, Ran::Yes))),
        (Failure::new(Kind::Panicked, Ran::Yes).into(), Some(Told::Failed(Kind::Cancelled, Ran::Yes))),
        (Finish::Result, None),
    ] {
        let (mut pair, id, key) = Pair::executing(b"fetch...");
        match told {
            Some(_) => pair.cancel(id),
            // The call has already returned.
            None => _ = pair.finish(key, Finish::Result, b"done"),
        }
        pair.answered();
        pair.server.finish_around(pair.now, key, finish, &mut vec![], insert.clone());
        assert_eq!(pair.server.take_loose(), slice::from_ref(&insert.bytes));
        let answers = pair.answered();
        pair.hear(&answers);
        assert_eq!(pair.told.pop().map(|(_, told)| told), told);
        assert!(pair.server.held_bytes() < 100);
        pair.server.audit();
    }
}

#[test]
fn an_insert_is_copied_if_the_tag_covers_all_bytes() {
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 300_000]);
    pair.carry(1, SECOND, |_, _, _| true);
    let (mut whole, bytes) = (b"head".to_vec(), Bytes::from(vec![9; 300_000]));
    let key = pair.execute(2, b"fetch...");
    let insert = Insert { at: 4, bytes: bytes.clone() };
    pair.server.finish_around(pair.now, key, Finish::Result, &mut whole.clone(), insert);
    whole.extend(bytes);
    let (mut out, mut largest) = (vec![0; 65_536], 0);
    for _ in 0..100 {
        while let Some(Transmit { len, insert, .. }) = pair.server.transmit(pair.now, &mut out) {
            assert!(insert.is_none());
            largest = largest.max(len);
            pair.hear(&[out[..len].to_vec()]);
        }
        pair.pass(Duration::from_millis(1));
        pair.tick();
        let sent = pair.sent();
        pair.receive(&sent);
    }
    assert!(largest > 30_000, "the largest datagram has {largest} bytes, which is long enough for parts");
    assert_eq!(pair.told[1], (2, Told::Result(whole)));
}

#[test]
fn a_fragment_that_was_sent_within_a_round_trip_is_not_lost_because_its_receiver_waits() {
    let mut pair = small();
    pair.start(1, b"fetch...");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, &[7; 10_000]);
    let select = frame_about(SELECT, 1, 0, key.sequence as u32, &[0, 65_507, 0, 0]);
    let waits = forged(conversation_of(&call[0]), 9, &[select]);
    // No round trip was measured. It takes no longer than the client's ticket is old, and that is not 5 ms.
    for (after, again) in [(0, false), (3, false), (3, true), (3, false), (3, true)] {
        pair.pass(Duration::from_millis(after));
        pair.receive(std::slice::from_ref(&waits));
        assert_eq!(
            pair.answered().len() > 1,
            again,
            "after {after} ms more, the fragments count as lost: {again}"
        );
    }
}
