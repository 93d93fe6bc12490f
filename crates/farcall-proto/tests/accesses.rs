//! Tests of accesses to memory and of the server's record of calls that their callers gave up, one datagram
//! at a time. A *reading* is an access that only reads.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::*;
use farcall_proto::client::Call;
use farcall_proto::server::{CallKey, Finish, Reading, Request};
use farcall_proto::{ACCESSES, ClientConfig, Kind, READINGS, Ran, ServerConfig};

/// Starts an access or a call, and returns its datagram.
fn send(pair: &mut Pair, procedure: u32, token: u64) -> Datagram {
    let call = Call { export: EXPORT, procedure, deadline: None, trace: None, token };
    pair.client.start(|| pair.now, &call, &mut b"args".to_vec()).expect("room for a call");
    pair.sent().remove(0)
}

/// Returns the server's immediate answer to a reading.
fn answered(pair: &mut Pair, datagram: &Datagram) -> Option<Datagram> {
    let mut out = vec![0; 1200];
    let read = |reading: Reading<'_>, room: &mut [u8]| {
        room[..4].copy_from_slice(reading.args);
        Some(4)
    };
    let reading = Reading::peek(datagram, None)?;
    Some(pair.server.answer_reading(pair.now, &pair.from, reading, &mut out, read)?.gather(&out))
}

/// Returns whether the server accepts a reading from this address. The reading is not executed.
fn accepts(pair: &mut Pair, from: SocketAddr, datagram: &Datagram) -> bool {
    let (mut accepted, mut out) = (false, [0; 1200]);
    if let Some(reading) = Reading::peek(datagram, None) {
        let answer = pair.server.answer_reading(pair.now, &from, reading, &mut out, |_, _| {
            accepted = true;
            None
        });
        assert!(answer.is_none());
    }
    accepted
}

/// Delivers a datagram, and returns the key of the call in it, if the server has to execute one.
fn taken(pair: &mut Pair, datagram: &Datagram) -> Option<CallKey> {
    pair.receive(std::slice::from_ref(datagram));
    pair.asked.pop().map(|(key, _)| key)
}

#[test]
fn a_reading_is_answered_at_once_whenever_it_arrives_and_no_result_is_held() {
    let mut pair = Pair::acquainted();
    let held = pair.server.held_bytes();
    let reading = send(&mut pair, READINGS, 1);
    let first = answered(&mut pair, &reading).expect("the server answers a new reading");
    assert!(answered(&mut pair, &reading).is_some(), "the server answers a repeated reading");
    let mut again = None;
    pair.server.receive(pair.now, pair.from, &reading, &mut |request| {
        if let Request::Call(incoming) = request {
            again = Some(incoming.again);
        }
    });
    assert_eq!(
        again,
        Some(true),
        "the reading may have run before, so a refusal must not say that it did not run"
    );
    assert!(pair.server.held_bytes() <= held);
    pair.hear(&[first]);
    assert_eq!(pair.told, [(1, Told::Result(b"args".to_vec()))]);
}

#[test]
fn an_access_that_writes_is_executed_once() {
    let mut pair = Pair::acquainted();
    let access = send(&mut pair, ACCESSES, 1);
    assert!(answered(&mut pair, &access).is_none(), "an access that writes is no reading");
    let key = taken(&mut pair, &access).expect("the access is new");
    pair.finish(key, Finish::Result, b"done");
    pair.pass(ServerConfig::default().hold * 2);
    pair.tick();
    assert_eq!((pair.server.held_bytes(), taken(&mut pair, &access)), (0, None));
}

#[test]
fn the_refusal_of_a_repeated_reading_says_that_the_reading_ran() {
    let withdraw = |pair: &mut Pair| pair.server.withdraw(EXPORT);
    let drain = |pair: &mut Pair| pair.server.drain(pair.now, None);
    for (end, kind) in [(withdraw as fn(&mut Pair), Kind::NotExported), (drain, Kind::Draining)] {
        let mut pair = Pair::acquainted();
        let reading = send(&mut pair, READINGS, 1);
        answered(&mut pair, &reading).expect("the server answers a new reading");
        // The answer is lost. The reading arrives again when the server no longer executes it.
        end(&mut pair);
        assert_eq!(taken(&mut pair, &reading), None);
        let answers = pair.answered();
        pair.hear(&answers);
        assert_eq!(pair.told, [(1, Told::Failed(kind, Ran::Yes))]);
    }
}

#[test]
fn a_reading_never_runs_if_its_cancel_arrives_first() {
    let mut pair = Pair::acquainted();
    let call = Call { export: EXPORT, procedure: READINGS, deadline: None, trace: None, token: 1 };
    let id = pair.client.start(|| pair.now, &call, &mut b"args".to_vec()).unwrap();
    let reading = pair.sent().remove(0);
    pair.client.cancel(pair.now, id);
    let cancel = pair.sent();
    pair.receive(&cancel);
    assert!(answered(&mut pair, &reading).is_none());
    assert_eq!(taken(&mut pair, &reading), None);
}

#[test]
fn readings_of_too_many_activities_make_the_server_forget_the_conversation() {
    let server = ServerConfig { max_conversations: 1, max_activities: 1 << 20, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), server);
    let reading = |activity: u32| {
        let mut body = frame_about(CALL, 0, activity, 1, &[0, EXPORT as u32, READINGS]);
        body.extend(b"args");
        let len = (body.len() - 4) as u16;
        body[2..4].copy_from_slice(&len.to_be_bytes());
        body
    };
    pair.start(9, b"");
    let conversation = conversation_of(&pair.sent()[0]);
    let read =
        |pair: &mut Pair, activity| answered(pair, &forged(conversation, 7, &[reading(activity)])).is_some();
    assert!(
        read(&mut pair, 100_000),
        "the server answers a reading of a single activity, whatever its number"
    );
    let most = (1..100_000).take_while(|activity| read(&mut pair, *activity)).count();
    assert!((60_000..=1 << 16).contains(&most), "the server answered readings of {most} activities");
    pair.now = pair.now + Duration::from_secs(61);
    read(&mut pair, 1);
    assert_eq!(
        pair.server.conversations(),
        0,
        "the conversation has more activities than all conversations together may have, so it is forgotten"
    );
}

#[test]
fn a_cancel_marks_its_own_call_as_given_up_and_no_other_call() {
    let mut pair = Pair::acquainted();
    for procedure in [1, ACCESSES] {
        let call = Call { export: EXPORT, procedure, deadline: None, trace: None, token: 1 };
        let id = pair.client.start(|| pair.now, &call, &mut b"args".to_vec()).unwrap();
        let sent = pair.sent().remove(0);
        let key = taken(&mut pair, &sent).expect("the call is new");
        assert!(!pair.server.is_given_up(key));
        // The CANCEL arrives in a later datagram, and arrives twice.
        pair.client.cancel(pair.now, id);
        let cancel = pair.sent();
        pair.receive(&cancel);
        pair.receive(&cancel);
        assert!(pair.server.is_given_up(key));
        assert_eq!(pair.cancelled.len(), 1);
        let answers = pair.finish(key, Finish::Result, b"done");
        pair.hear(&answers);
        // The call is over. The CANCEL arrives once more, and names no running call.
        pair.cancelled.clear();
        pair.receive(&cancel);
        assert_eq!(pair.cancelled, []);
        pair.answered();
        let next = send(&mut pair, procedure, 2);
        let next = taken(&mut pair, &next).expect("the next call is new");
        assert!(!pair.server.is_given_up(next), "the next call of the activity is not given up");
        assert!(
            pair.server.is_given_up(key),
            "a call counts as given up once its activity makes a newer call"
        );
        let answers = pair.finish(next, Finish::Result, b"done");
        pair.hear(&answers);
    }
    let nobody = CallKey { conversation: 1, activity: 0, sequence: 1 };
    assert!(!pair.server.is_given_up(nobody));
}

#[test]
fn a_cancel_in_the_datagram_of_its_call_names_that_call() {
    let mut pair = Pair::acquainted();
    pair.start(9, b"");
    let conversation = conversation_of(&pair.sent()[0]);
    let call = frame_about(CALL, 0, 1, 5, &[0, EXPORT as u32, ACCESSES]);
    let both = forged(conversation, 7, &[call, frame_about(CANCEL, 0, 1, 5, &[])]);
    let mut seen = Vec::new();
    pair.server.receive(pair.now, pair.from, &both, &mut |request| match request {
        Request::Call(incoming) => seen.push((true, incoming.key)),
        Request::Cancel(key) => seen.push((false, key)),
        Request::Post(..) => unreachable!(),
    });
    assert_eq!(seen.iter().map(|(call, _)| *call).collect::<Vec<_>>(), [true, false]);
    assert_eq!(seen[0].1, seen[1].1);
    pair.finish(seen[0].1, Finish::Result, b"done");
    assert_eq!(pair.server.unfinished(), 0);
}

/// The length of a long result in bytes.
const LEN: usize = 50_000;

/// Returns a pair whose server can hold two results of `LEN` bytes, and the identifier of its conversation.
fn with_room_for_two() -> (Pair, u64) {
    let server = ServerConfig { held_budget: 2 * LEN, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), server);
    pair.start(1, b"");
    let conversation = conversation_of(&pair.sent()[0]);
    (pair, conversation)
}

/// Delivers an access of the given activity, and returns the key of the access.
fn come(pair: &mut Pair, conversation: u64, activity: u32) -> CallKey {
    let call = frame_about(CALL, 0, activity, 5, &[0, EXPORT as u32, READINGS + 1]);
    taken(pair, &forged(conversation, 100 + u64::from(activity), &[call])).expect("the access is new")
}

#[test]
fn unfetched_results_of_accesses_take_room_until_the_server_drops_them() {
    let (mut pair, conversation) = with_room_for_two();
    let access = |pair: &mut Pair, activity| {
        let key = come(pair, conversation, activity);
        let (now, payload) = (pair.now, &mut vec![7; LEN]);
        assert!(pair.server.finish(now, key, Finish::Result, payload, &mut []).is_none());
    };
    assert!(
        pair.server.has_room(pair.now, &pair.from, 3 * LEN),
        "there is always room for a first result, whatever its length"
    );
    access(&mut pair, 1);
    assert!(pair.server.has_room(pair.now, &pair.from, LEN));
    access(&mut pair, 2);
    assert!(!pair.server.has_room(pair.now, &pair.from, 4));
    assert!(pair.server.timeout().is_some_and(|at| at > pair.now), "the server sweeps later, not at once");
    // A short result is added. It does not make the server drop the long results at once.
    let key = come(&mut pair, conversation, 3);
    pair.finish(key, Finish::Result, &[7; 4]);
    pair.pass(Duration::from_secs(1));
    pair.tick();
    assert!(pair.server.held_bytes() >= 2 * LEN && !pair.server.has_room(pair.now, &pair.from, 4));
    pair.pass(Duration::from_secs(1));
    assert!(pair.server.timeout().is_some_and(|at| at <= pair.now));
    pair.tick();
    assert!(pair.server.held_bytes() < LEN && pair.server.has_room(pair.now, &pair.from, 2 * LEN));
}

#[test]
fn a_long_result_of_a_call_takes_no_room_from_accesses() {
    let (mut pair, conversation) = with_room_for_two();
    let call = frame_about(CALL, 0, 1, 5, &[0, EXPORT as u32, 1]);
    let key = taken(&mut pair, &forged(conversation, 99, &[call])).expect("the call is new");
    pair.finish(key, Finish::Result, &[7; 3 * LEN]);
    assert!(pair.server.has_room(pair.now, &pair.from, LEN));
}

/// Delivers a SELECT, by which the client reports that it has the first `through` bytes of a result.
fn select(pair: &mut Pair, conversation: u64, activity: u32, through: u32) {
    let select = frame_about(SELECT, 0, activity, 5, &[through, 12_000, 0, 0]);
    pair.receive(&[forged(conversation, 1, &[select])]);
    pair.answered();
}

#[test]
fn a_result_that_its_client_asks_for_too_slowly_is_dropped_when_another_access_waits() {
    let (mut pair, conversation) = with_room_for_two();
    for activity in 1..=2 {
        let key = come(&mut pair, conversation, activity);
        pair.server.finish(pair.now, key, Finish::Result, &mut vec![7; LEN], &mut []);
        pair.answered();
    }
    // Fetches four bytes of each result a second. Returns whether the server still holds both results.
    let fetch_slowly = |pair: &mut Pair, seconds: u32, another_waits: bool| {
        for second in 0..seconds {
            pair.pass(Duration::from_secs(1));
            (1..=2).for_each(|activity| select(pair, conversation, activity, 4 * second));
            let _ = another_waits && pair.server.has_room(pair.now, &pair.from, LEN);
            pair.tick();
            pair.pass(Duration::from_millis(250));
            pair.tick();
        }
        pair.server.held_bytes() >= 2 * LEN
    };
    assert!(fetch_slowly(&mut pair, 100, false), "the results are held while no access waits for room");
    assert!(!fetch_slowly(&mut pair, 1, true), "the results are dropped once another access waits for room");
    assert!(pair.server.has_room(pair.now, &pair.from, LEN));
}

#[test]
fn the_fast_path_for_a_datagram_with_a_single_call_or_access_reads_no_clock() {
    for procedure in [1, ACCESSES - 1, ACCESSES, READINGS, u32::MAX] {
        let mut pair = Pair::acquainted();
        let datagram = send(&mut pair, procedure, 1);
        let clock = || panic!("the fast path reads the clock");
        let taken = pair.server.receive_call(pair.now, clock, &pair.from, (&datagram, None), &mut |_| {});
        assert_eq!(taken.map(|call| call.procedure), Some(procedure));
    }
}

#[test]
fn the_fast_path_takes_only_new_accesses_of_activities_with_an_earlier_call() {
    let settings = ServerConfig { max_arguments: 8, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), settings);
    let peer = join(&mut pair, HARM, 1);
    let mut take = |activity, sequence, procedure, args: &[u32]| {
        let words = [&[0, EXPORT as u32, procedure], args].concat();
        let datagram = forged(peer.id, 9, &[frame_about(CALL, 0, activity, sequence, &words)]);
        let now = pair.now;
        let taken = pair.server.receive_call(now, || now, &peer.at, (&datagram, None), &mut |_| {});
        let key = taken.map(|incoming| incoming.key);
        if let Some(key) = key {
            pair.server.finish(pair.now, key, Finish::Result, &mut b"done".to_vec(), &mut [0; 1200]);
        }
        key.map(|key| key.sequence)
    };
    assert_eq!(take(0, 9, ACCESSES, &[]), Some(9));
    assert_eq!(take(0, 10, READINGS + 1, &[7, 7]), Some(10));
    assert_eq!(take(0, 10, ACCESSES, &[]), None, "the access is a duplicate");
    assert_eq!(take(0, 11, ACCESSES, &[7, 7, 7]), None, "the arguments are too long");
    assert_eq!(take(1, 12, ACCESSES, &[]), None, "the activity is new");
    assert_eq!(take(0, 9, 1, &[]), None, "the call is older than the last access of its activity");
}

#[test]
fn a_reading_beyond_the_last_activity_or_with_too_long_arguments_is_not_accepted() {
    let mut pair = Pair::acquainted_with(
        ClientConfig::default(),
        ServerConfig { max_activities: 8, max_arguments: 64, ..ServerConfig::default() },
    );
    let id = conversation_of(&send(&mut pair, 1, 1));
    let reading = |activity, len: usize| {
        let words = [&[0, EXPORT as u32, READINGS + 1][..], &vec![0; len / 4]].concat();
        forged(id, 9, &[frame_about(CALL, 0, activity, 9, &words)])
    };
    for (activity, len, sound) in [(7, 4, true), (8, 4, false), (9, 4, false), (7, 64, true), (7, 68, false)]
    {
        let reading = reading(activity, len);
        let home = pair.from;
        assert_eq!(
            accepts(&mut pair, home, &reading),
            sound,
            "a reading of activity {activity} with {len} bytes of arguments is within the limits: {sound}"
        );
    }
}

#[test]
fn a_reading_is_accepted_only_from_its_client_and_not_during_a_call_or_a_drain() {
    let accepts =
        |pair: &mut Pair, from: &str, reading: &Datagram| accepts(pair, from.parse().unwrap(), reading);
    let home = "10.0.0.1:1000";
    let reading = |conversation, sequence| {
        let words = [0, EXPORT as u32, READINGS + 1, 5];
        forged(conversation, 9, &[frame_about(CALL, 0, 1, sequence, &words)])
    };
    let call = |pair: &mut Pair, conversation, sequence| {
        let call = frame_about(CALL, 0, 1, sequence, &[0, EXPORT as u32, 1, 5]);
        taken(pair, &forged(conversation, 8, &[call])).expect("the call is new")
    };
    let mut pair = Pair::acquainted();
    let id = conversation_of(&send(&mut pair, 1, 1));
    // The server accepts a reading of a known conversation only from the client's address and only
    // untampered.
    assert!(accepts(&mut pair, home, &reading(id, 5)));
    assert!(!accepts(&mut pair, home, &reading(id ^ 1, 5)));
    assert!(!accepts(&mut pair, "10.0.0.1:1001", &reading(id, 5)));
    assert!(!accepts(&mut pair, "10.0.0.2:1000", &reading(id, 5)));
    let mut torn = reading(id, 5);
    torn[60] ^= 1;
    assert!(!accepts(&mut pair, home, &torn));
    let mut local = reading(id, 5);
    let len = local.len();
    local[1] = 1;
    local[len - 8..].copy_from_slice(&(len as u64).to_be_bytes());
    assert!(!accepts(&mut pair, home, &local), "a datagram in the local scheme comes from another machine");
    // The server accepts no reading while the activity's last call executes.
    let key = call(&mut pair, id, 5);
    assert!(!accepts(&mut pair, home, &reading(id, 6)));
    // While the call's short result is held, the server accepts a reading only if the reading is newer.
    pair.finish(key, Finish::Result, b"held");
    assert!(accepts(&mut pair, home, &reading(id, 6)) && !accepts(&mut pair, home, &reading(id, 5)));
    assert!(!accepts(&mut pair, home, &reading(id, 4)), "the activity has made a newer call");
    let key = call(&mut pair, id, 7);
    // The server accepts no reading while a long result is sent in fragments, or arguments arrive in
    // fragments.
    pair.finish(key, Finish::Result, &[7; LEN]);
    assert!(!accepts(&mut pair, home, &reading(id, 8)));
    pair.receive(&[forged(id, 10, &[frame_about(CALL, 2, 1, 9, &[0, EXPORT as u32, 1, 8, 0, 5])])]);
    assert!(!accepts(&mut pair, home, &reading(id, 10)));
    let key = call(&mut pair, id, 11);
    pair.finish(key, Finish::Result, b"held");
    assert!(accepts(&mut pair, home, &reading(id, 12)));
    // A draining server accepts no readings.
    pair.server.drain(pair.now, None);
    assert!(!accepts(&mut pair, home, &reading(id, 12)));
}

#[test]
fn a_reading_in_the_local_scheme_is_parsed_and_answered_in_that_scheme() {
    let client = ClientConfig { loopback: true, ..ClientConfig::default() };
    let mut pair = Pair::with(client, ServerConfig::default());
    pair.from = "127.0.0.1:1000".parse().unwrap();
    pair.start(0, b"");
    pair.settle();
    pair.told.clear();
    let datagram = send(&mut pair, READINGS + 0x123, 1);
    let reading = Reading::peek(&datagram, None).expect("the datagram holds a reading");
    assert_eq!((reading.export, reading.procedure), (EXPORT, READINGS + 0x123));
    assert_eq!(reading.args, b"args");
    let answer = answered(&mut pair, &datagram).expect("the reading is new");
    assert_eq!((datagram[1], answer[1]), (1, 1));
    pair.hear(&[answer]);
    assert_eq!(pair.told, [(1, Told::Result(b"args".to_vec()))]);
}

#[test]
fn a_reading_that_is_answered_at_once_is_counted() {
    let mut pair = Pair::acquainted();
    let before = (pair.server.stats().received, pair.server.stats().calls, pair.server.stats().sent);
    for token in 0..3 {
        let reading = send(&mut pair, READINGS, token);
        let answer = answered(&mut pair, &reading).expect("the server answers a new reading");
        pair.hear(&[answer]);
    }
    let stats = pair.server.stats();
    assert_eq!((stats.received - before.0, stats.calls - before.1, stats.sent - before.2), (3, 3, 3));
}
