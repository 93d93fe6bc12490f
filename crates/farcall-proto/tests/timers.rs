//! Packet traces of a caller's timers.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::{Call, CallProgress, Lone};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig, SharedArguments, Tail};

/// Makes one call whose round trip takes `round_trip` and whose procedure takes no time. If it `streams`, the
/// procedure sends something inside the call before its result. Returns how often the client sent the call.
fn far_away(pair: &mut Pair, token: u64, round_trip: Duration, streams: bool) -> usize {
    let id = pair.start(token, b"far away");
    let mut sent = pair.sent();
    let arrives = pair.now + round_trip;
    while let Some(due) = pair.client.timeout().filter(|due| *due < arrives) {
        pair.now = due.max(pair.now);
        pair.tick();
        sent.extend(pair.sent());
    }
    let calls = |datagram: &Datagram| frames_of(datagram).iter().filter(|kind| **kind == CALL).count();
    let times = sent.iter().map(calls).sum();
    let mut answers = Vec::new();
    for datagram in sent {
        pair.receive(&[datagram]);
        for (key, args) in std::mem::take(&mut pair.asked) {
            if streams {
                pair.server.open_exchange(key);
                pair.server.send_in(key, 2, b"item", Tail::End);
            }
            answers.extend(pair.finish(key, Finish::Result, &args));
        }
        answers.extend(pair.answered());
    }
    pair.now = arrives;
    for answer in answers {
        pair.hear(&[answer]);
        let (told, mut into) = (&mut pair.told, Vec::new());
        pair.client.take_from(id, 2, &mut into, usize::MAX, &mut |event| told.push(note(event)));
    }
    assert_eq!(pair.told.pop(), Some((token, Told::Result(b"far away".to_vec()))));
    times
}

fn far(pair: &mut Pair, token: u64, round_trip: Duration) -> usize {
    far_away(pair, token, round_trip, false)
}

#[test]
fn the_client_learns_a_round_trip_that_becomes_longer() {
    let mut pair = Pair::acquainted();
    let near = Duration::from_micros(100);
    assert!((1..10).all(|token| far(&mut pair, token, near) == 1));
    let away = Duration::from_millis(120);
    let sent: usize = (10..20).map(|token| far(&mut pair, token, away)).sum();
    assert!(sent <= 20, "{sent} datagrams for ten calls");
    assert!((20..30).all(|token| far(&mut pair, token, away) == 1));
}

#[test]
fn the_client_learns_a_longer_round_trip_from_calls_inside_which_something_passes() {
    let mut pair = Pair::acquainted();
    let away = Duration::from_millis(120);
    let sent: usize = (10..20).map(|token| far_away(&mut pair, token, away, true)).sum();
    assert!(sent <= 20, "ten calls were sent {sent} times");
    assert!((20..30).all(|token| far_away(&mut pair, token, away, true) == 1));
    // Such a call that is answered in time measures the round trip: a lost one is sent again after three.
    pair.start(30, b"lost");
    pair.sent();
    for (passes, again) in [(3 * away - Duration::from_millis(1), 0), (Duration::from_millis(1), 1)] {
        pair.pass(passes);
        pair.tick();
        assert_eq!(pair.sent().len(), again);
    }
}

/// Makes calls for six seconds over a path whose round trip takes 100 ms: callers begin at different times,
/// and each makes its next call when it has the result of the last. Returns how many calls were begun in the
/// last two seconds, and how often calls were sent then.
fn staggered(callers: u64) -> (usize, usize) {
    const ROUND_TRIP: u64 = 100;
    let mut pair = Pair::acquainted();
    let mut waits: Vec<u64> = (0..callers).map(|caller| caller * ROUND_TRIP / callers).collect();
    let (mut under_way, mut begun, mut sent) = (std::collections::VecDeque::new(), 0, 0);
    for ms in 0..6_000 {
        pair.pass(Duration::from_millis(1));
        while under_way.front().is_some_and(|(arrives, _)| *arrives <= ms) {
            let (_, answers): (u64, Vec<_>) = under_way.pop_front().expect("it is there");
            pair.hear(&answers);
        }
        for (caller, told) in std::mem::take(&mut pair.told) {
            assert_eq!(told, Told::Result(b"far away".to_vec()));
            waits[caller as usize] = ms;
        }
        pair.tick();
        for caller in 0..callers {
            if waits[caller as usize] == ms {
                pair.start(caller, b"far away");
                begun += usize::from(ms >= 4_000);
            }
        }
        for datagram in pair.sent() {
            let calls = frames_of(&datagram).iter().filter(|kind| **kind == CALL).count();
            sent += if ms >= 4_000 { calls } else { 0 };
            pair.receive(&[datagram]);
            let mut answers = Vec::new();
            for (key, args) in std::mem::take(&mut pair.asked) {
                answers.extend(pair.finish(key, Finish::Result, &args));
            }
            answers.extend(pair.answered());
            under_way.push_back((ms + ROUND_TRIP, answers));
        }
    }
    (begun, sent)
}

#[test]
fn a_client_with_several_calls_under_way_learns_a_longer_round_trip() {
    for callers in [1, 2, 3, 10, 64] {
        let (begun, sent) = staggered(callers);
        assert!(begun as u64 >= 15 * callers, "{callers} callers made {begun} calls");
        assert!(sent <= begun + begun / 10 + 1, "{callers} callers sent {begun} calls {sent} times");
    }
}

/// Loses the first datagram of a call. Returns how long the client waits before it sends the call again.
fn lose_one(pair: &mut Pair, token: u64) -> Duration {
    let began = pair.now;
    pair.start(token, b"lost");
    assert_eq!(pair.sent().len(), 1);
    let mut sent = Vec::new();
    while sent.is_empty() {
        pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
        pair.tick();
        sent = pair.sent();
    }
    let waited = pair.now.since(began);
    pair.receive(&sent);
    let (key, args) = pair.asked.pop().expect("the call has arrived");
    let result = pair.finish(key, Finish::Result, &args);
    pair.hear(&result);
    assert_eq!(pair.told.pop(), Some((token, Told::Result(b"lost".to_vec()))));
    waited
}

#[test]
fn the_client_does_not_wait_longer_because_datagrams_were_lost() {
    let mut pair = Pair::acquainted();
    for token in 1..20 {
        let waited = lose_one(&mut pair, token);
        assert!(waited < Duration::from_millis(25), "call {token} was sent again after {waited:?}");
    }
}

/// Makes one call of a procedure that takes `takes`. Returns how many datagrams the client sent for it.
fn slow(pair: &mut Pair, token: u64, takes: Duration) -> usize {
    pair.start(token, b"slow");
    let began = pair.now;
    let mut times = 0;
    loop {
        let sent = pair.sent();
        times += sent.len();
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
        match pair.client.timeout() {
            Some(due) if due.since(began) < takes => pair.now = due.max(pair.now),
            _ => break,
        }
        pair.tick();
    }
    pair.now = began + takes;
    let (key, _) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, b"slow");
    pair.hear(&result);
    assert_eq!(pair.told.pop(), Some((token, Told::Result(b"slow".to_vec()))));
    times
}

#[test]
fn a_client_that_knows_a_procedure_as_slow_sends_its_calls_again_later() {
    let mut pair = Pair::acquainted();
    let quick = Duration::from_micros(100);
    assert!((1..10).all(|token| slow(&mut pair, token, quick) == 1));
    let takes = Duration::from_millis(50);
    assert_eq!(slow(&mut pair, 10, takes), 3, "the client sends the call twice, and a probe");
    assert!((11..20).all(|token| slow(&mut pair, token, takes) == 1));
    // A lost call is sent again after twice that time.
    pair.start(20, b"slow");
    assert_eq!(pair.sent().len(), 1);
    pair.pass(Duration::from_millis(99));
    pair.tick();
    assert_eq!(pair.sent().len(), 0);
    pair.pass(Duration::from_millis(2));
    pair.tick();
    assert_eq!(pair.sent().len(), 1);
    // However slow the procedure becomes, a lost call of it is sent again after 200 ms.
    let mut pair = Pair::acquainted();
    for token in 1..4 {
        slow(&mut pair, token, Duration::from_secs(5));
    }
    pair.start(4, b"slow");
    pair.sent();
    pair.pass(Duration::from_millis(201));
    pair.tick();
    assert_eq!(pair.sent().len(), 1);
    pair.starve();
    assert!(
        matches!(pair.told.pop(), Some((4, Told::Failed(..)))),
        "a call fails after ten seconds of silence"
    );
}

#[test]
fn a_call_is_retransmitted_ever_more_rarely() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"lost");
    pair.sent();
    let (start, mut times) = (pair.now, Vec::new());
    while pair.told.is_empty() {
        pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
        pair.tick();
        // The client also sends ACKs, which say that it waits for its calls.
        let (sent, now) = (pair.sent(), pair.now.since(start).as_millis());
        times.extend(sent.iter().filter(|d| frames_of(d) == [CALL]).map(|_| now));
    }
    assert_spread(&times, &[20, 40, 80, 160, 320, 640, 1000, 1000]);
    let ended = pair.now.since(start).as_millis();
    assert!((10_000..11_000).contains(&ended), "{ended} ms");
}

#[test]
fn a_call_that_was_never_sent_ends_at_its_deadline_and_no_earlier() {
    let mut pair = Pair::new();
    let deadline = pair.now + Duration::from_secs(2);
    let call = Call { export: EXPORT, procedure: 1, deadline: Some(deadline), trace: None, token: 1 };
    pair.client.start(|| pair.now, &call, &mut Vec::new()).expect("room for a call");
    pair.starve();
    assert_eq!((pair.now, &pair.told[..]), (deadline, &[(1, Told::Failed(Kind::Deadline, Ran::No))][..]));
}

#[test]
fn what_an_older_server_waited_for_until_the_deadline_is_told_as_the_deadline() {
    for (late, kind) in [(false, Kind::Nested), (false, Kind::Cancelled), (true, Kind::Nested)] {
        let mut pair = Pair::acquainted();
        let deadline = pair.now + Duration::from_millis(500);
        let call = Call { export: EXPORT, procedure: 1, deadline: Some(deadline), trace: None, token: 1 };
        pair.client.start(|| pair.now, &call, &mut Vec::new()).expect("room for a call");
        let sent = pair.sent();
        pair.receive(&sent);
        let key = pair.asked[0].0;
        let answers = pair.finish(key, Failure::new(kind, Ran::Yes).into(), &[]);
        pair.now = if late { deadline } else { pair.now + Duration::from_millis(499) };
        pair.hear(&answers);
        let kind = if late { Kind::Deadline } else { kind };
        assert_eq!(pair.told, [(1, Told::Failed(kind, Ran::Yes))]);
    }
}

#[test]
fn a_call_whose_deadline_has_passed_when_it_is_made_is_not_sent() {
    let mut pair = Pair::acquainted();
    let call = Call { export: EXPORT, procedure: 1, deadline: Some(pair.now), trace: None, token: 1 };
    let shared = SharedArguments::new(vec![0; 4]);
    let refused = [
        pair.client.start(|| pair.now, &call, &mut Vec::new()),
        pair.client.start_shared(|| pair.now, &call, &shared),
    ];
    for refused in refused {
        let failure = refused.expect_err("its time is over");
        assert_eq!((failure.kind, failure.ran), (Kind::Deadline, Ran::No));
    }
    assert_eq!(pair.sent(), Vec::<Datagram>::new());
}

#[test]
fn a_call_whose_deadline_passes_before_there_is_a_conversation_is_not_sent_in_it() {
    let mut pair = Pair::new();
    let deadline = pair.now + Duration::from_millis(5);
    let call = Call { export: EXPORT, procedure: 1, deadline: Some(deadline), trace: None, token: 1 };
    pair.client.start(|| pair.now, &call, &mut Vec::new()).expect("room for a call");
    let question = pair.sent();
    pair.receive(&question);
    let ticket = pair.answered();
    pair.now = deadline;
    // What has arrived is handled before any timer.
    pair.hear(&ticket);
    assert!(pair.sent().iter().all(|datagram| !frames_of(datagram).contains(&CALL)));
    pair.tick();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Deadline, Ran::No))]);
}

#[test]
fn calls_that_are_due_within_a_millisecond_are_looked_at_together() {
    let mut pair = Pair::acquainted();
    let (start, half) = (pair.now, Duration::from_micros(500));
    for (token, at) in [(1, start), (2, start + half)] {
        pair.now = at;
        pair.start(token, b"lost");
        pair.sent();
    }
    for (after, again) in [(0, 1), (1, 0), (2, 1)] {
        pair.now = start + Duration::from_millis(20) + after * half;
        pair.tick();
        assert_eq!(
            pair.sent().len(),
            again,
            "{again} calls are sent again {after} half milliseconds after the first is due"
        );
    }
}

/// Seed 5707 of the simulation once failed: what was sent again within the pause after a look at all calls
/// set the timer to a time that had passed. Then each datagram had all calls looked at again.
#[test]
fn what_is_sent_within_the_pause_after_a_look_sets_no_timer_to_the_past() {
    let half = Duration::from_micros(500);
    for challenged in [false, true] {
        let mut pair = Pair::acquainted();
        pair.start(1, b"lost");
        let lost = pair.sent();
        pair.pass(half);
        let id = pair.start(2, b"lost");
        let exchange = pair.client.open_exchange(id).expect("the call has none");
        pair.client.send_in(id, exchange, b"bytes...", Tail::More);
        pair.sent();
        pair.pass(Duration::from_millis(20) - half);
        pair.tick();
        assert_eq!(pair.sent().len(), 1, "the first call is due, and the second one is not");
        // The second call and its bytes are due since a tenth of a millisecond, but are not looked at yet.
        pair.pass(half + half / 5);
        if challenged {
            let known = conversation_of(&lost[0]);
            let challenge = frame(CHALLENGE, 0, &[(known >> 32) as u32, known as u32, 0, 0]);
            pair.hear(&[forged(pair.client.id(), 999, &[challenge])]);
        } else {
            pair.client.send_in(id, exchange, b"further.", Tail::More);
        }
        assert_eq!(pair.sent().len(), usize::from(challenged));
        let due = pair.client.timeout().expect("calls are outstanding");
        assert!(due > pair.now, "{due:?} at {:?}, challenged: {challenged}", pair.now);
        pair.now = due;
        pair.tick();
        assert_eq!(pair.sent().len(), 1, "now the second call's bytes are sent again");
    }
}

#[test]
fn a_call_that_was_sent_twice_or_in_fragments_does_not_tell_how_long_its_procedure_takes() {
    let least = Duration::from_millis(20);
    let patience = |pair: &mut Pair| {
        pair.start(9, b"next");
        let start = pair.now;
        pair.sent();
        while pair.sent().is_empty() {
            pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
            pair.tick();
        }
        pair.now.since(start)
    };
    // The first CALL is lost. The client cannot know which CALL the server answered, nor how long the
    // procedure took.
    let mut pair = Pair::acquainted();
    pair.start(1, b"lost");
    pair.sent();
    pair.pass(Duration::from_millis(25));
    pair.tick();
    pair.settle();
    assert_eq!(patience(&mut pair), least, "one result came, so the other CALL was lost");
    // Sending long arguments takes time, too.
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 5000]);
    let sent = pair.sent();
    pair.receive(&sent);
    pair.pass(Duration::from_millis(15));
    // The server's acknowledgement of the arguments is lost.
    drop(pair.answered());
    let (key, _) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, b"done");
    pair.hear(&result);
    assert_eq!((pair.told.len(), patience(&mut pair)), (1, least));
}

/// Starts a call on the fast path. The conversation knows only the call's number, unless something other than
/// its result arrives.
fn leave(pair: &mut Pair) -> (Lone, Datagram) {
    let mut out = vec![0; 65_536];
    let lone =
        pair.client.start_lone((EXPORT, 1), b"usual...", &mut out).expect("no other call is outstanding");
    (lone, out[..lone.bytes].to_vec())
}

/// Makes a call on the fast path whose result arrives after `takes`. Returns how long the client would have
/// waited before it sent the call again.
fn leave_and_return(pair: &mut Pair, takes: Duration) -> Duration {
    let (lone, datagram) = leave(pair);
    let left = pair.now;
    pair.pass(takes);
    pair.receive(&[datagram]);
    let (key, args) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, &args).remove(0);
    let now = pair.now;
    assert_eq!(pair.client.end_lone(|| now, &lone, Some(left), (&result, None)), Some(&b"usual..."[..]));
    assert_eq!(pair.client.timeout(), None);
    Duration::from_nanos(lone.patience)
}

#[test]
fn a_call_on_the_fast_path_needs_no_clock() {
    let mut pair = Pair::new();
    pair.start(0, b"");
    pair.carry(1, Duration::from_secs(1), |_, _, _| true);
    for _ in 1..100 {
        leave_and_return(&mut pair, Duration::from_micros(50));
    }
    let learned = pair.client.stats().round_trip.unwrap();
    assert!((50..100).contains(&learned.as_micros()), "{learned:?}");
}

#[test]
fn a_procedure_that_is_quick_again_is_probed_as_soon_as_before() {
    let (mut pair, quick) = (Pair::acquainted(), Duration::from_micros(50));
    let before = leave_and_return(&mut pair, quick);
    slow(&mut pair, 2, Duration::from_millis(50));
    assert!(leave_and_return(&mut pair, quick) > before);
    let last = (4..300).map(|_| leave_and_return(&mut pair, quick)).last();
    assert_eq!(last, Some(before));
}

#[test]
fn a_lost_call_on_the_fast_path_is_sent_again() {
    let mut pair = Pair::acquainted();
    let (lone, _lost) = leave(&mut pair);
    // Another call begins and is sent meanwhile, and the first is no longer alone.
    assert!(pair.client.start_lone((EXPORT, 1), &[], &mut [0; 2048]).is_none());
    let left = pair.now;
    pair.start(2, b"another.");
    assert_eq!(pair.sent().len(), 1);
    let patience = lone.patience;
    pair.pass(Duration::from_millis(1));
    pair.client.go_on(pair.now, lone, Some(left), 1, b"usual...");
    assert_eq!(pair.client.timeout(), Some(left.plus(patience)));
    pair.now = left.plus(patience - 1);
    pair.tick();
    assert!(pair.sent().is_empty());
    pair.now = left.plus(patience);
    pair.tick();
    assert_eq!(pair.sent().iter().map(|d| frames_of(d)).collect::<Vec<_>>(), [[ACK, CALL, CALL]]);
    pair.carry(2, Duration::from_secs(1), |_, _, _| true);
    pair.told.sort_by_key(|told| told.0);
    let told = |token, bytes: &[u8]| (token, Told::Result(bytes.to_vec()));
    assert_eq!(pair.told, [told(1, b"usual..."), told(2, b"another.")]);
}

/// A call to a dead server may have an ICMP error for each datagram. Looking at all outstanding calls for
/// each error would take quadratic time.
#[test]
fn errors_of_a_dead_server_do_not_make_the_client_search_its_calls_too_often() {
    const CALLS: u64 = 5_000;
    // On loopback all are sent at once.
    let client = ClientConfig { loopback: true, ..ClientConfig::default() };
    let mut pair = Pair::acquainted_with(client, ServerConfig::default());
    let begin = |pair: &mut Pair, token| {
        pair.start(token, b"argument");
        pair.sent();
    };
    // Sends all that is due shortly after the error. Returns how many calls have been sent again by then.
    let again = |pair: &mut Pair| {
        pair.pass(Duration::from_micros(5_100));
        pair.tick();
        pair.sent();
        pair.client.stats().retransmitted
    };
    (1..=CALLS).for_each(|token| begin(&mut pair, token));
    pair.client.handle_unreachable(pair.now);
    begin(&mut pair, CALLS + 1);
    pair.client.handle_unreachable(pair.now);
    assert_eq!(
        again(&mut pair),
        CALLS,
        "the client has just searched its calls, so the second error does not make it send the last call"
    );
    // The search takes a microsecond for each call.
    pair.client.handle_unreachable(pair.now);
    assert_eq!(again(&mut pair), CALLS + 1);
}

#[test]
fn calls_that_wait_for_the_window_fail_with_those_that_were_sent_and_have_not_run() {
    const CALLS: u64 = 1_000;
    let mut pair = Pair::acquainted();
    (1..=CALLS).for_each(|token| _ = pair.start(token, b"argument"));
    // No datagram reaches the server.
    for _ in 0..1_600 {
        pair.sent();
        pair.pass(Duration::from_millis(10));
        pair.tick();
    }
    let failed = |ran| pair.told.iter().filter(|told| told.1 == Told::Failed(Kind::Unreachable, ran)).count();
    let (no, maybe) = (failed(Ran::No), failed(Ran::Maybe));
    assert_eq!(no + maybe, CALLS as usize, "{no} and {maybe}");
    assert!(maybe >= 50 && no > maybe, "{no} have not run, {maybe} may have");
    assert_eq!(pair.client.stats().in_flight, 0);
}

#[test]
fn a_result_is_taken_for_no_other_call() {
    let mut pair = Pair::acquainted();
    let calls = [1, 2].map(|token| pair.start(token, b"word"));
    let sent = pair.sent();
    pair.receive(&sent);
    let (first, second) = (pair.asked[0].0, pair.asked[1].0);
    let results = [first, second].map(|key| pair.finish(key, Finish::Result, b"word").remove(0));
    // The second call's result comes first.
    pair.hear(&results[1..]);
    assert_eq!(pair.told, [(2, Told::Result(b"word".to_vec()))]);
    let progress = calls.map(|call| pair.client.progress(call));
    assert_eq!(progress, [CallProgress::Sent, CallProgress::Ended]);
    pair.hear(&results[..1]);
    assert_eq!(pair.told[1..], [(1, Told::Result(b"word".to_vec()))]);
}

#[test]
fn each_received_datagram_is_counted_once_on_either_path() {
    let mut pair = Pair::acquainted();
    let before = (pair.client.stats().received, pair.server.stats().received, pair.server.stats().calls);
    for _ in 1..=3 {
        leave_and_return(&mut pair, Duration::from_micros(50));
    }
    let after = (pair.client.stats().received, pair.server.stats().received, pair.server.stats().calls);
    assert_eq!((after.0 - before.0, after.1 - before.1, after.2 - before.2), (3, 3, 3));
    pair.restart_server(8);
    pair.start(4, b"");
    pair.settle();
    assert_eq!((pair.server.stats().challenges, pair.server.stats().stale), (1, 1));
}
