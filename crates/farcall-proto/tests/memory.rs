//! Packet traces of the results that a server holds: how long it holds them, and which it drops first.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::*;
use farcall_proto::client::Conversation;
use farcall_proto::server::{CallKey, Finish};
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig};

const SECOND: Duration = Duration::from_secs(1);

fn client() -> ClientConfig {
    ClientConfig { max_datagram: 1200, ..ClientConfig::default() }
}

fn with_budget(held_budget: usize) -> Pair {
    Pair::acquainted_with(client(), ServerConfig { held_budget, ..ServerConfig::default() })
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
    for token in 1..=21 {
        pair.start(token, b"large...");
    }
    let calls = pair.sent();
    pair.receive(&calls);
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.finish(key, Finish::Result, &vec![7; 50_000]);
        pair.pass(SECOND);
    }
    // The server drops no more results than it has to.
    assert_eq!(pair.server.held_bytes(), 100_000);
}

#[test]
fn a_result_is_held_until_it_is_acknowledged_or_its_hold_time_is_over() {
    let server = ServerConfig { hold: 4 * SECOND, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(client(), server);
    let peer = join(&mut pair, HARM, 1);
    let call = |pair: &mut Pair, activity, sequence| {
        comes(pair, peer, &[frame_about(CALL, 0, activity, sequence, &[0, EXPORT as u32, 1])]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, &[7; 100]);
        pair.answered();
    };
    (5..=7).for_each(|sequence| call(&mut pair, sequence - 5, sequence));
    // For each call that has ended, the server looks at one activity, in turn.
    for (low, left) in [(6, 200), (6, 200), (8, 100), (9, 0)] {
        comes(&mut pair, peer, &[frame(ACK, 0, &[0, low, 1200])]);
        assert_eq!(
            pair.server.kept_for(HARM.into()).results,
            left,
            "the results of calls below {low} are dropped"
        );
    }
    // The server also drops a result that began later, soon after its hold time.
    pair.pass(Duration::from_millis(1500));
    call(&mut pair, 0, 10);
    let begun = pair.now;
    while let Some(due) = pair.server.timeout() {
        pair.now = due;
        pair.tick();
        if pair.server.kept_for(HARM.into()).results == 0 {
            break;
        }
        assert!(pair.now.since(begun) < 4 * SECOND, "the result is still held");
    }
    assert!((4 * SECOND..=6 * SECOND).contains(&pair.now.since(begun)), "{:?}", pair.now.since(begun));
}

#[test]
fn a_call_never_runs_twice_even_if_nothing_is_held_of_its_activity() {
    let mut pair = Pair::acquainted();
    let peer = join(&mut pair, HARM, 1);
    let calls = [0, 1, 9].map(|activity| frame_about(CALL, 0, activity, 5, &[0, EXPORT as u32, 1]));
    comes(&mut pair, peer, &calls);
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.finish(key, Finish::Result, b"done");
    }
    for _ in 0..4 {
        pair.pass(15 * SECOND);
        pair.tick();
    }
    assert_eq!((pair.server.held_bytes(), pair.server.kept_for(HARM.into()).calls), (0, 0));
    comes(&mut pair, peer, &calls);
    assert!(pair.asked.is_empty());
    assert_eq!(pair.answered().iter().map(|answer| frames_of(answer)).collect::<Vec<_>>(), [[STATE; 3]]);
}

#[test]
fn the_lists_of_a_host_do_not_grow_with_the_conversations_that_are_forgotten() {
    let mut pair = Pair::with(client(), ServerConfig { max_conversations: 2, ..ServerConfig::default() });
    let call = |activity| frame_about(CALL, 0, activity, 9, &[0, EXPORT as u32, 1]);
    let lasting = join(&mut pair, HARM, 1);
    comes(&mut pair, lasting, &[call(3), call(7)]);
    let unfinished = std::mem::take(&mut pair.asked);
    for port in 2..400 {
        let peer = join(&mut pair, HARM, port);
        comes(&mut pair, peer, &[call(5)]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, b"done");
        pair.server.audit();
    }
    assert!(pair.server.stats().evicted > 390);
    let kept = pair.server.kept_for(HARM.into());
    assert!(kept.listed < 80, "{kept:?} with {} unfinished", unfinished.len());
}

#[test]
fn a_forgotten_conversation_gives_back_its_buffer() {
    let mut pair = Pair::with(client(), ServerConfig { max_conversations: 1, ..ServerConfig::default() });
    pair.start(1, &[1; 600_000]);
    pair.carry(1, 10 * SECOND, |_, _, _| true);
    pair.server.recycle(Vec::with_capacity(600_000));
    pair.start(2, &[1; 600_000]);
    let sent = pair.sent();
    pair.receive(&sent[..1]);
    assert!(pair.server.kept_for([10, 0, 0, 1].into()).arguments >= 600_000);
    join(&mut pair, HARM, 1);
    assert_eq!((pair.server.conversations(), pair.server.held_bytes()), (1, 0));
    pair.server.audit();
}

#[test]
fn a_conversation_that_moves_to_another_host_takes_its_memory_along() {
    let mut pair = Pair::acquainted();
    for token in 1..=4 {
        pair.start(token, b"held....");
    }
    let long = pair.start(5, &[7; 9_000]);
    let sent = pair.sent();
    pair.receive(&sent[..3]);
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.finish(key, Finish::Result, &[7; 100]);
    }
    let before = pair.server.kept_for([10, 0, 0, 1].into());
    assert!(before.results > 0 && before.arguments > 0 && before.activities > 0, "{before:?} of {long:?}");
    // The client's address changes. The conversation moves when the client has renewed its ticket.
    pair.from = "10.0.0.9:1000".parse().unwrap();
    let moved = |pair: &Pair| pair.server.kept_for([10, 0, 0, 9].into()) != Default::default();
    for _ in 0..100 {
        pair.pass(Duration::from_millis(25));
        pair.tick();
        let sent = pair.sent();
        for datagram in sent {
            if !moved(&pair) {
                pair.receive(&[datagram]);
            }
        }
        if moved(&pair) {
            break;
        }
        let answers = pair.answered();
        pair.hear(&answers);
    }
    pair.server.audit();
    let [left, taken] = [1, 9].map(|host| pair.server.kept_for([10, 0, 0, host].into()));
    assert_eq!((left.bytes(), taken.results, taken.calls), (0, before.results, before.calls));
    assert_eq!((taken.arguments > 0, taken.activities), (true, before.activities));
    pair.carry(5, 10 * SECOND, |_, _, _| true);
    assert_eq!(pair.told.len(), 5);
    assert!(pair.told.iter().all(|(_, told)| matches!(told, Told::Result(_))), "{:?}", pair.told);
}

#[test]
fn clients_with_few_results_keep_them_while_others_of_their_host_have_more() {
    // The least share of a conversation is one byte.
    let mut pair = with_budget(8191);
    let modest: Vec<Peer> = (1..=24).map(|port| join(&mut pair, HARM, port)).collect();
    let greedy: Vec<Peer> = (25..=27).map(|port| join(&mut pair, HARM, port)).collect();
    let call = |pair: &mut Pair, peer, activity, len| {
        comes(pair, peer, &[frame_about(CALL, 0, activity, 50, &[0, EXPORT as u32, 1])]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Finish::Result, &vec![7; len]);
    };
    modest.iter().for_each(|peer| call(&mut pair, *peer, 0, 0));
    (0..30).for_each(|n| call(&mut pair, greedy[n % 3], n as u32 / 3, 1000));
    assert!(modest.iter().all(|peer| answer(&mut pair, *peer, 0, 50) == RESULT));
    // Of the greedy clients' results, the server holds the latest.
    let greedy: Vec<u8> = (0..30).map(|n| answer(&mut pair, greedy[n % 3], n as u32 / 3, 50)).collect();
    assert_eq!(greedy, [[STATE; 22].as_slice(), &[RESULT; 8]].concat());
}

/// Probes a call of a peer. Returns the type of the frame that answers.
fn answer(pair: &mut Pair, peer: Peer, activity: u32, sequence: u32) -> u8 {
    comes(pair, peer, &[frame_about(PROBE, 0, activity, sequence, &[])]);
    let answers = pair.answered();
    assert_eq!(answers.len(), 1);
    frames_of(&answers[0])[0]
}

#[test]
fn the_arguments_that_have_not_grown_for_longest_are_dropped_first() {
    let server = ServerConfig { reassembly_budget: 5_000, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(client(), server);
    let peer = join(&mut pair, HARM, 1);
    let comes = |pair: &mut Pair, activity, offset| {
        comes(pair, peer, &[common::fragment(activity, 9, 4000, offset, 400)]);
    };
    (0..4).for_each(|activity| comes(&mut pair, activity, 0));
    comes(&mut pair, 0, 400);
    comes(&mut pair, 2, 400);
    assert_eq!(pair.server.stats().evicted_calls, 0);
    comes(&mut pair, 4, 0);
    assert_eq!(pair.server.stats().evicted_calls, 1);
    pair.answered();
    let asked: Vec<u8> = (0..5).map(|activity| answer(&mut pair, peer, activity, 9)).collect();
    assert_eq!(asked, [SELECT, RESULT, SELECT, SELECT, SELECT]);
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
fn arguments_that_stop_arriving_are_refused_without_a_datagram() {
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
    // Whatever arrives now, the call never runs.
    pair.receive(&calls);
    assert!(pair.asked.is_empty());
    let answers = pair.answered();
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Other, Ran::No))]);
}

const LONG: usize = 50_000;

/// Returns a pair whose server has room for ten long results that are being sent, and for as many bytes of
/// held results as one of them has.
fn with_room_for_ten() -> Pair {
    let server = ServerConfig { held_budget: LONG, sending_budget: 10 * LONG, ..ServerConfig::default() };
    Pair::acquainted_with(client(), server)
}

/// Has the server execute calls with long results, one after another.
fn call_long(
    pair: &mut Pair,
    tokens: std::ops::RangeInclusive<u64>,
    mut each: impl FnMut(&mut Pair, Vec<Datagram>),
) {
    for token in tokens {
        let key = pair.execute(token, b"long....");
        let result = pair.finish(key, Finish::Result, &vec![7; LONG]);
        assert!(pair.server.held_bytes() <= 11 * LONG, "{}", pair.server.held_bytes());
        each(pair, result);
    }
}

#[test]
fn unfetched_long_results_are_bounded_and_reported_as_lost() {
    let mut pair = with_room_for_ten();
    call_long(&mut pair, 1..=30, |_, _| ());
    pair.carry(30, 60 * SECOND, |_, _, _| true);
    let lost = pair.told.iter().filter(|(_, told)| *told == Told::Failed(Kind::ResultLost, Ran::Yes)).count();
    let there = pair
        .told
        .iter()
        .filter(|(_, told)| matches!(told, Told::Result(result) if result.len() == LONG))
        .count();
    assert_eq!((lost, there), (20, 10));
}

#[test]
fn long_results_stay_within_their_budget_also_where_that_of_others_is_larger() {
    let server = ServerConfig { held_budget: 64 << 20, sending_budget: 4 * LONG, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(client(), server);
    call_long(&mut pair, 1..=10, |pair, _| {
        assert!(pair.server.held_bytes() <= 4 * LONG, "{}", pair.server.held_bytes());
    });
}

/// Swaps the pair's client for another client.
fn change(pair: &mut Pair, aside: &mut (Conversation, SocketAddr)) {
    std::mem::swap(&mut pair.client, &mut aside.0);
    std::mem::swap(&mut pair.from, &mut aside.1);
}

/// Gives the pair a new client, on another host. Returns the former client and its address.
fn another(pair: &mut Pair) -> (Conversation, SocketAddr) {
    another_at(pair, "10.0.0.2:1000")
}

/// Gives the pair a new client, at this address. Returns the former client and its address.
fn another_at(pair: &mut Pair, address: &str) -> (Conversation, SocketAddr) {
    let mut aside = (Conversation::new(client(), 0xbad), address.parse().unwrap());
    change(pair, &mut aside);
    pair.start(0, b"");
    pair.settle();
    pair.told.clear();
    aside
}

/// Delivers datagrams of a result to the client, and its SELECTs to the server. Returns the server's next
/// datagrams.
fn fetch(pair: &mut Pair, way: &[Datagram]) -> Vec<Datagram> {
    pair.hear(way);
    let select = pair.sent();
    pair.receive(&select);
    pair.answered()
}

/// Delivers the rest of `many` results. Asserts that none of them is lost.
fn fetch_all(pair: &mut Pair, many: usize, way: &[Datagram]) {
    pair.hear(way);
    pair.carry(many, 10 * SECOND, |_, _, _| true);
    assert_eq!(pair.told.len(), many);
    assert!(pair.told.iter().all(|(_, told)| matches!(told, Told::Result(_))), "a result is lost");
}

#[test]
fn a_client_that_fetches_its_result_gets_it_whatever_others_leave_unfetched() {
    for speaks in [false, true] {
        let mut pair = with_room_for_ten();
        let key = pair.execute(1, b"long....");
        let mut way = pair.finish(key, Finish::Result, &vec![7; 4 * LONG]);
        let mut other = another(&mut pair);
        let mut fetched = 0;
        call_long(&mut pair, 2..=60, |pair, result| {
            // If `speaks`, the other client reports that it has some of each result, but never all of one.
            if speaks {
                fetch(pair, &result[..8.min(result.len())]);
            }
            change(pair, &mut other);
            if pair.told.is_empty() && pair.server.stats().calls.is_multiple_of(3) {
                way = fetch(pair, &way);
                fetched += 1;
            }
            change(pair, &mut other);
        });
        change(&mut pair, &mut other);
        assert!(fetched > 3, "the result was fetched in {fetched} steps while others began");
        assert_eq!(pair.told, [(1, Told::Result(vec![7; 4 * LONG]))]);
    }
}

#[test]
fn a_result_that_has_just_begun_does_not_count_as_unfetched() {
    let mut pair = with_room_for_ten();
    let mut way = Vec::new();
    call_long(&mut pair, 1..=5, |_, result| way.extend(result));
    let mut first = another(&mut pair);
    call_long(&mut pair, 6..=11, |_, _| ());
    change(&mut pair, &mut first);
    fetch_all(&mut pair, 5, &way);
}

#[test]
fn a_client_that_fetches_many_results_loses_none_that_waits_for_another() {
    let mut pair = with_room_for_ten();
    let mut way = Vec::new();
    call_long(&mut pair, 1..=5, |_, result| way.extend(result));
    // This time is enough for the first two results, and not for five.
    pair.pass(Duration::from_millis(2500));
    way = fetch(&mut pair, &way[..8]);
    let mut first = another(&mut pair);
    call_long(&mut pair, 6..=11, |_, _| ());
    change(&mut pair, &mut first);
    fetch_all(&mut pair, 5, &way);
}

#[test]
fn the_client_that_is_sent_most_makes_way_for_others_even_if_it_fetches_fast() {
    let mut pair = with_room_for_ten();
    let (mut way, mut others) = (Vec::new(), Vec::new());
    call_long(&mut pair, 1..=10, |_, result| way.extend(result));
    way = fetch(&mut pair, &way[..8]);
    let mut first = another(&mut pair);
    call_long(&mut pair, 11..=13, |_, result| others.extend(result));
    fetch_all(&mut pair, 3, &others);
    change(&mut pair, &mut first);
    pair.told.clear();
    pair.hear(&way);
    pair.carry(10, 60 * SECOND, |_, _, _| true);
    let lost = pair.told.iter().filter(|(_, told)| *told == Told::Failed(Kind::ResultLost, Ran::Yes)).count();
    assert_eq!((lost, pair.told.len()), (3, 10));
}

#[test]
fn the_latest_result_is_lost_if_two_clients_are_being_sent_as_much() {
    // The second client is on the first client's host, or on another.
    for address in ["10.0.0.1:2000", "10.0.0.2:1000"] {
        let server = ServerConfig { held_budget: LONG, sending_budget: 9 * LONG, ..ServerConfig::default() };
        let mut pair = Pair::acquainted_with(client(), server);
        let mut way = Vec::new();
        call_long(&mut pair, 1..=5, |_, result| way.extend(result));
        let mut first = another_at(&mut pair, address);
        call_long(&mut pair, 6..=10, |_, _| ());
        pair.carry(5, 10 * SECOND, |_, _, _| true);
        pair.told.sort_by_key(|(token, _)| *token);
        assert_eq!(pair.told[4], (10, Told::Failed(Kind::ResultLost, Ran::Yes)));
        assert!(pair.told[..4].iter().all(|(_, told)| matches!(told, Told::Result(_))), "at {address}");
        change(&mut pair, &mut first);
        pair.told.clear();
        fetch_all(&mut pair, 5, &way);
    }
}

#[test]
fn the_host_that_is_being_sent_most_makes_way_until_another_is_being_sent_as_much() {
    let server = ServerConfig { held_budget: LONG, sending_budget: 9 * LONG, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(client(), server);
    call_long(&mut pair, 1..=6, |_, _| ());
    another(&mut pair);
    let key = pair.execute(7, b"long....");
    pair.finish(key, Finish::Result, &vec![7; 5 * LONG]);
    assert_eq!(
        pair.server.held_bytes(),
        5 * LONG,
        "the server drops one of the six results, and the latest result"
    );
}

#[test]
fn the_client_of_a_host_that_is_being_sent_most_makes_way() {
    let mut pair = with_room_for_ten();
    let (mut way, mut others) = (Vec::new(), Vec::new());
    call_long(&mut pair, 1..=8, |_, result| way.extend(result));
    let mut first = another_at(&mut pair, "10.0.0.1:2000");
    call_long(&mut pair, 9..=11, |_, result| others.extend(result));
    fetch_all(&mut pair, 3, &others);
    change(&mut pair, &mut first);
    pair.told.clear();
    pair.hear(&way);
    pair.carry(8, 60 * SECOND, |_, _, _| true);
    let failed = pair.told.iter().filter(|(_, told)| !matches!(told, Told::Result(_)));
    let lost: Vec<u64> = failed.map(|(token, _)| *token).collect();
    assert_eq!((lost.len(), pair.told.len()), (1, 8), "{lost:?}");
}

#[test]
fn fetched_results_stay_and_the_latest_result_without_room_is_lost() {
    let mut pair = with_room_for_ten();
    let key = pair.execute(1, b"long....");
    let first = pair.finish(key, Finish::Result, &vec![7; 10 * LONG]);
    let way = fetch(&mut pair, &first);
    call_long(&mut pair, 2..=2, |_, result| assert_eq!(result, Vec::<Datagram>::new()));
    pair.hear(&way);
    pair.carry(2, 10 * SECOND, |_, _, _| true);
    pair.told.sort_by_key(|(token, _)| *token);
    assert_eq!(
        pair.told,
        [(1, Told::Result(vec![7; 10 * LONG])), (2, Told::Failed(Kind::ResultLost, Ran::Yes))]
    );
}

#[test]
fn a_client_that_fetches_slowly_does_not_keep_others_out() {
    let mut pair = with_room_for_ten();
    let key = pair.execute(1, b"long....");
    let first = pair.finish(key, Finish::Result, &vec![7; 10 * LONG]);
    // Some of the result comes after a time in which all of it could have come.
    pair.pass(10 * SECOND);
    fetch(&mut pair, &first);
    call_long(&mut pair, 2..=2, |pair, result| {
        pair.hear(&result);
        pair.carry(1, 10 * SECOND, |_, _, _| true);
    });
    assert!(matches!(pair.told[0], (2, Told::Result(_)) | (1, Told::Failed(Kind::ResultLost, Ran::Yes))));
}

#[test]
fn a_single_result_longer_than_the_sending_budget_can_be_fetched() {
    let mut pair = with_room_for_ten();
    pair.answer = Some(vec![7; 20 * LONG]);
    pair.start(1, b"long....");
    pair.carry(1, 10 * SECOND, |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Result(vec![7; 20 * LONG]))]);
}

#[test]
fn long_results_that_wait_to_be_sent_are_not_taken_for_held_ones() {
    let mut pair = with_room_for_ten();
    (1..=8).for_each(|token| _ = pair.start(token, b"long...."));
    let calls = pair.sent();
    pair.receive(&calls);
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.server.finish(pair.now, key, Finish::Result, &mut vec![7; LONG], &mut []);
    }
    pair.carry(8, 10 * SECOND, |_, _, _| true);
    assert!(pair.told.iter().all(|(_, told)| matches!(told, Told::Result(_))), "a result is lost");
}

#[test]
fn long_results_stay_within_their_budget_after_many_conversations_were_forgotten() {
    // These are more conversations than the server searches for room. Each is forgotten while it has a
    // result.
    const MANY: u16 = 1100;
    let server = ServerConfig { sending_budget: 4 * LONG, max_conversations: 1, ..ServerConfig::default() };
    let mut pair = Pair::with(client(), server);
    for port in 1..=MANY {
        pair.pass(Duration::from_millis(1));
        pair.client = Conversation::new(client(), u64::from(port));
        pair.from.set_port(port);
        pair.start(1, b"");
        pair.settle();
    }
    assert_eq!(pair.server.stats().evicted, u64::from(MANY) - 1);
    for token in 2..=12 {
        pair.start(token, b"long....");
    }
    let calls = pair.sent();
    pair.receive(&calls);
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.finish(key, Finish::Result, &vec![7; LONG]);
        assert!(pair.server.held_bytes() <= 4 * LONG, "{}", pair.server.held_bytes());
    }
}

/// Returns a pair whose server has room for three long results of each conversation, and `many` calls that
/// the server has not executed yet.
fn with_calls(many: u64) -> (Pair, Vec<CallKey>) {
    let server = ServerConfig { sending_budget: 16 * 3 * LONG, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(client(), server);
    (1..=many).for_each(|token| _ = pair.start(token, b"long...."));
    let calls = pair.sent();
    pair.receive(&calls);
    let keys = std::mem::take(&mut pair.asked).into_iter().map(|(key, _)| key).collect();
    (pair, keys)
}

#[test]
fn calls_with_long_results_wait_until_their_conversation_has_fetched_others() {
    let (mut pair, keys) = with_calls(6);
    let conversation = Some(keys[0].conversation);
    let may = |pair: &mut Pair, call: usize| pair.server.may_execute(keys[call], LONG);
    let began: Vec<bool> = (0..4).map(|call| may(&mut pair, call)).collect();
    assert_eq!(began, [true, true, true, false]);
    assert!(may(&mut pair, 0), "a call with promised room may still be executed");
    assert_eq!(pair.server.next_with_room(), None);
    // One result turns out to be short, and another call takes its place.
    pair.finish(keys[0], Finish::Result, &[7; 4]);
    assert_eq!((pair.server.next_with_room(), pair.server.next_with_room()), (conversation, None));
    assert!(may(&mut pair, 3) && !may(&mut pair, 4));
    // One call fails.
    pair.finish(keys[1], Failure::new(Kind::Overloaded, Ran::No).into(), &[]);
    assert_eq!(pair.server.next_with_room(), conversation);
    assert!(may(&mut pair, 4) && !may(&mut pair, 5));
    // One result is as long as expected, so as much is being sent as before, until it is fetched.
    let way = pair.finish(keys[2], Finish::Result, &vec![7; LONG]);
    assert_eq!(pair.server.next_with_room(), conversation);
    assert!(!may(&mut pair, 5));
    pair.told.clear();
    pair.hear(&way);
    pair.carry(1, SECOND, |_, _, _| true);
    pair.settle();
    assert_eq!(pair.server.next_with_room(), conversation);
    assert!(may(&mut pair, 5));
}

/// Delivers a probe of a call. Returns the conversation that then has room for another result.
fn probe_one(pair: &mut Pair, key: CallKey) -> Option<u64> {
    let probe = frame_about(PROBE, 0, key.activity, key.sequence as u32, &[]);
    pair.receive(&[forged(key.conversation, 7_000, &[probe])]);
    pair.server.next_with_room()
}

#[test]
fn a_call_without_promised_room_frees_none_when_it_ends_or_is_probed() {
    let (mut pair, keys) = with_calls(5);
    assert!(pair.server.may_execute(keys[0], 3 * LONG) && !pair.server.may_execute(keys[1], LONG));
    assert_eq!(probe_one(&mut pair, keys[2]), None);
    pair.finish(keys[2], Finish::Result, &[7; 4]);
    pair.finish(keys[3], Failure::new(Kind::Overloaded, Ran::No).into(), &[]);
    assert_eq!(pair.server.next_with_room(), None);
    pair.finish(keys[0], Finish::Result, &[7; 4]);
    assert_eq!(pair.server.next_with_room(), Some(keys[0].conversation));
}

#[test]
fn a_probe_of_a_call_frees_the_room_that_it_was_promised() {
    let (mut pair, keys) = with_calls(3);
    assert!(pair.server.may_execute(keys[0], 3 * LONG) && !pair.server.may_execute(keys[1], LONG));
    // The first call may depend on the second call. So a probe of the first makes room for the second.
    let probe = |pair: &mut Pair| {
        pair.pass(SECOND);
        pair.tick();
        let probes = pair.sent();
        assert!(!probes.is_empty());
        pair.receive(&probes);
        pair.server.next_with_room()
    };
    assert_eq!(probe(&mut pair), Some(keys[0].conversation));
    assert!(pair.server.may_execute(keys[1], 3 * LONG) && !pair.server.may_execute(keys[2], LONG));
    assert_eq!(pair.server.next_with_room(), None);
    // A second probe of the first call frees no more room. Nor does the end of the call, because its result
    // is held.
    assert_eq!(probe_one(&mut pair, keys[0]), None);
    assert!(!pair.server.is_given_up(keys[0]));
    pair.finish(keys[0], Finish::Result, &vec![7; 3 * LONG]);
    assert_eq!(pair.server.next_with_room(), None);
    assert!(pair.server.held_bytes() >= 3 * LONG);
    pair.start(9, b"long....");
    let call = pair.sent();
    pair.receive(&call);
    assert!(!pair.server.may_execute(pair.asked[0].0, 4));
}

#[test]
fn only_one_result_longer_than_the_share_is_made_at_a_time() {
    let (mut pair, keys) = with_calls(2);
    assert!(pair.server.may_execute(keys[0], 100 * LONG) && !pair.server.may_execute(keys[1], 4));
    pair.finish(keys[0], Finish::Result, &[7; 4]);
    assert!(pair.server.may_execute(keys[1], 4));
}

#[test]
fn a_newer_call_of_the_activity_frees_the_room_that_a_call_was_promised() {
    for frame in [CALL, CANCEL] {
        let (mut pair, keys) = with_calls(2);
        pair.start(9, b"");
        let conversation = conversation_of(&pair.sent()[0]);
        assert!(pair.server.may_execute(keys[0], 3 * LONG) && !pair.server.may_execute(keys[1], LONG));
        let export: &[u32] = if frame == CALL { &[0, EXPORT as u32, 1] } else { &[] };
        pair.receive(&[forged(conversation, 100, &[frame_about(frame, 0, keys[0].activity, 99, export)])]);
        assert_eq!(pair.server.next_with_room(), Some(keys[0].conversation));
        assert!(pair.server.may_execute(keys[1], 3 * LONG));
        pair.finish(keys[0], Finish::Result, &[7; 4]);
        pair.finish(keys[1], Finish::Result, &[7; 4]);
    }
}

/// Returns how many bytes of arguments a client at this address may have in flight.
fn window_of(pair: &mut Pair, address: &str) -> u32 {
    pair.from = address.parse().unwrap();
    pair.client = Conversation::new(ClientConfig { loopback: true, ..client() }, 5);
    pair.start(0, b"");
    pair.settle();
    let long = pair.start(1, &[7; 1_000_000]);
    let mut window = 0;
    while pair.asked.is_empty() {
        let sent = pair.sent();
        pair.receive(&sent);
        let answers = pair.answered();
        for select in answers.iter().filter(|answer| frames_of(answer) == [SELECT]) {
            let word = |at: usize| u32::from_be_bytes(select[at..at + 4].try_into().unwrap());
            let [through, limit] = [40, 44].map(word);
            window = window.max(limit - through);
        }
        pair.pass(Duration::from_millis(1));
        pair.hear(&answers);
    }
    pair.client.cancel(pair.now, long);
    window
}

#[test]
fn a_client_on_the_same_machine_has_a_smaller_window_and_messages_share_theirs() {
    let server = ServerConfig { window: 300_000, local_window: 100_000, ..ServerConfig::default() };
    assert_eq!(window_of(&mut Pair::with(client(), server.clone()), "127.0.0.1:9"), 100_000);
    assert_eq!(window_of(&mut Pair::with(client(), server.clone()), "10.0.0.1:9"), 300_000);
    let mut pair = Pair::with(client(), server);
    for port in 1..=2 {
        let other = join(&mut pair, HARM, port);
        comes(&mut pair, other, &[common::fragment(3, 9, 1000, 0, 4)]);
    }
    assert_eq!(
        window_of(&mut pair, "10.0.0.1:9"),
        100_000,
        "each of three messages has a third of the window"
    );
}

/// Returns a datagram with a fragment of a call's arguments, which asks how many bytes the client may send.
fn fragment(conversation: u64, total: u32, offset: u32, len: usize) -> Datagram {
    let mut head = frame_about(CALL, 0x06, 7, 5, &[0, EXPORT as u32, 1, total, offset]);
    head.extend(vec![7; len]);
    let body = (head.len() - 4) as u16;
    head[2..4].copy_from_slice(&body.to_be_bytes());
    forged(conversation, 100 + u64::from(offset), &[head])
}

/// Returns how many bytes of the arguments the client may send, by the server's answer.
fn limit(pair: &mut Pair) -> u32 {
    let answers = pair.answered();
    assert_eq!(answers.iter().map(|answer| frames_of(answer)).collect::<Vec<_>>(), [[SELECT]]);
    u32::from_be_bytes(answers[0][44..48].try_into().unwrap())
}

#[test]
fn a_client_that_has_sent_little_of_long_arguments_may_send_little_ahead() {
    const TOTAL: u32 = 8 << 20;
    const EACH: u32 = 1000;
    let mut pair = Pair::acquainted();
    pair.start(1, b"");
    let conversation = conversation_of(&pair.sent()[0]);
    pair.receive(&[fragment(conversation, TOTAL, 0, EACH as usize)]);
    let first = limit(&mut pair);
    assert!(first <= EACH + 65_507, "{first}");
    // This fragment is from far ahead, as if the client could send the whole message at once.
    pair.receive(&[fragment(conversation, TOTAL, 1 << 20, EACH as usize)]);
    assert_eq!(limit(&mut pair), first);
    assert!(pair.server.held_bytes() < 10_000, "{}", pair.server.held_bytes());
    // Later, the client may send ahead four times as many bytes as have arrived.
    for offset in (1..100).map(|n| n * EACH) {
        pair.receive(&[fragment(conversation, TOTAL, offset, EACH as usize)]);
        assert!(limit(&mut pair) <= (offset + EACH) + (4 * (offset + EACH)).max(65_507));
    }
    pair.receive(&[fragment(conversation, TOTAL, 100 * EACH, EACH as usize)]);
    assert_eq!(limit(&mut pair), 5 * 101 * EACH);
}

#[test]
fn a_call_of_any_activity_is_executed_once_even_if_nothing_is_held_of_it() {
    for activity in [0, 1, 9000] {
        let mut pair = Pair::acquainted();
        pair.start(9, b"");
        let conversation = conversation_of(&pair.sent()[0]);
        let call = [forged(conversation, 8, &[frame_about(CALL, 0, activity, 5, &[0, EXPORT as u32, 1, 6])])];
        pair.receive(&call);
        let (key, _) = pair.asked.pop().expect("the call is new");
        pair.finish(key, Finish::Result, b"done");
        pair.pass(ServerConfig::default().hold * 2);
        pair.tick();
        assert_eq!(pair.server.held_bytes(), 0);
        pair.receive(&call);
        assert_eq!(pair.asked, [], "activity {activity}");
        assert_eq!(frames_of(&pair.answered()[0]), [STATE]);
    }
}
