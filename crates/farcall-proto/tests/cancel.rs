//! Packet traces of calls that their callers gave up.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::server::Finish;
use farcall_proto::{Kind, Ran};

const LEAST: Duration = Duration::from_millis(20);

/// Returns a pair with a call that the server executes and its caller has cancelled. The server's answer to
/// the CANCEL is lost.
fn cancelled() -> Pair {
    let (mut pair, id, _) = Pair::executing(b"long");
    pair.cancel(id);
    assert_eq!(pair.answered().len(), 1);
    pair
}

#[test]
fn a_cancel_waits_for_the_servers_answer_no_longer_than_for_a_retransmission() {
    let mut pair = cancelled();
    pair.pass(LEAST - Duration::from_millis(1));
    pair.tick();
    assert_eq!(pair.told, []);
    pair.pass(Duration::from_millis(1));
    pair.tick();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Maybe))]);
    // The client goes on telling the server, and reports the cancellation to its caller only once.
    let cancel = pair.sent();
    assert_eq!(cancel.len(), 1);
    pair.receive(&cancel);
    let answers = pair.answered();
    pair.hear(&answers);
    assert_eq!((pair.told.len(), pair.client.stats().outstanding), (1, 0));
}

#[test]
fn a_cancelled_call_that_was_probed_rarely_ends_after_the_least_interval() {
    let (mut pair, id, _) = Pair::executing(b"long");
    let end = pair.now + Duration::from_secs(5);
    while pair.now < end {
        pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
        pair.tick();
        let probe = pair.sent();
        pair.receive(&probe);
        let running = pair.answered();
        pair.hear(&running);
    }
    assert_eq!(pair.told, []);
    pair.client.cancel(pair.now, id);
    let cancelled = pair.now;
    while pair.told.is_empty() {
        pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
        pair.tick();
    }
    assert_eq!(pair.now, cancelled + LEAST);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Maybe))]);
    // The client sends the CANCEL again after the same interval.
    pair.sent();
    pair.pass(LEAST);
    pair.tick();
    assert_eq!(pair.sent().len(), 1);
}

#[test]
fn a_cancel_that_never_arrives_is_sent_seven_times() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"lost");
    pair.sent();
    pair.client.cancel(pair.now, id);
    let mut sent = 0;
    while let Some(due) = pair.client.timeout() {
        sent += pair.sent().len();
        pair.now = due;
        pair.tick();
    }
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Maybe))]);
    assert_eq!(sent, 7, "the client sends a CANCEL at once, one when the caller is told, and five more");
}

#[test]
fn the_result_of_a_cancelled_call_is_discarded() {
    for finish in [Finish::Result, Finish::Exception] {
        let mut pair = cancelled();
        let key = pair.asked[0].0;
        let result = pair.finish(key, finish, b"stopped!");
        pair.hear(&result);
        assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Yes))]);
    }
}

#[test]
fn a_cancelled_call_that_is_refused_did_not_run() {
    let mut pair = cancelled();
    let key = pair.asked[0].0;
    let refusal = farcall_proto::Failure::new(Kind::Overloaded, Ran::No);
    let answers = pair.finish(key, refusal.into(), &[]);
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Overloaded, Ran::No))]);
}

#[test]
fn a_result_that_arrives_before_the_cancel_ends_the_call() {
    let (mut pair, id, key) = Pair::executing(b"fast");
    let result = pair.finish(key, Finish::Result, b"done");
    pair.client.cancel(pair.now, id);
    pair.hear(&result);
    assert_eq!(pair.told, [(1, Told::Result(b"done".to_vec()))]);
}

#[test]
fn fragments_of_a_result_do_not_delay_the_end_of_a_cancelled_call() {
    let (mut pair, id, key) = Pair::executing(b"much");
    let fragments: Vec<Datagram> = pair.finish(key, Finish::Result, &[7; 100_000]);
    assert!(fragments.len() > 1);
    pair.hear(&fragments[..1]);
    pair.client.cancel(pair.now, id);
    let end = pair.now + LEAST;
    for fragment in &fragments[1..] {
        pair.pass(LEAST / 4);
        pair.hear(std::slice::from_ref(fragment));
        pair.tick();
        if pair.now >= end {
            break;
        }
    }
    pair.now = pair.now.max(end);
    pair.tick();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Maybe))]);
}

#[test]
fn a_cancelled_call_whose_procedure_fails_ends_as_cancelled() {
    let mut pair = cancelled();
    let key = pair.asked[0].0;
    let failure = farcall_proto::Failure::new(Kind::Other, Ran::Yes);
    let answers = pair.finish(key, failure.into(), &[]);
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Yes))]);
}

/// Returns the two fields of a failure: whether the call ran, and the kind.
fn said(answer: &Datagram) -> (u8, u16) {
    assert_eq!(frames_of(answer), [RESULT]);
    (answer[41], u16::from_be_bytes([answer[42], answer[43]]))
}

#[test]
fn a_repeated_cancel_gets_the_same_answer() {
    let mut pair = Pair::acquainted();
    let peer = join(&mut pair, HARM, 1);
    let cancel = |pair: &mut Pair, sequence| {
        comes(pair, peer, &[frame_about(CANCEL, 0, 3, sequence, &[])]);
        pair.answered().pop()
    };
    let call = |sequence| frame_about(CALL, 0, 3, sequence, &[0, EXPORT as u32, 1]);
    let did_not_run = Some((0, Kind::Cancelled.code()));
    // The first call never arrives; of the second, one fragment arrives.
    for _ in 0..3 {
        assert_eq!(cancel(&mut pair, 5).as_ref().map(said), did_not_run);
    }
    comes(&mut pair, peer, &[fragment(3, 6, 8, 0, 4)]);
    for _ in 0..3 {
        assert_eq!(cancel(&mut pair, 6).as_ref().map(said), did_not_run);
    }
    assert_eq!(cancel(&mut pair, 5), None, "the activity has made a newer call");
    // The third call has ended. The server holds its result, and later drops it.
    comes(&mut pair, peer, &[call(7)]);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, b"done");
    assert_eq!(cancel(&mut pair, 7).as_ref().map(said), Some((0, 0)));
    for _ in 0..4 {
        pair.pass(Duration::from_secs(15));
        pair.tick();
    }
    assert_eq!(cancel(&mut pair, 7).map(|answer| frames_of(&answer)), Some(vec![STATE]));
    // The server drops a call's result when the activity's next call is cancelled before it arrives.
    comes(&mut pair, peer, &[call(8)]);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, &[7; 100]);
    assert_eq!(pair.server.kept_for(HARM.into()).results, 100);
    assert_eq!(cancel(&mut pair, 9).as_ref().map(said), did_not_run);
    assert_eq!(pair.server.kept_for(HARM.into()).results, 0);
    assert_eq!((pair.asked.len(), pair.cancelled.len()), (0, 0));
}

#[test]
fn a_late_select_for_an_earlier_result_does_not_end_the_next_result_of_the_activity() {
    let (mut pair, _, key) = Pair::executing(b"much");
    let fragments = pair.finish(key, Finish::Result, &[7; 100_000]);
    pair.hear(&fragments);
    let mut all = Vec::new();
    while pair.server.held_bytes() > 0 {
        all = pair.sent();
        pair.receive(&all);
        let more = pair.answered();
        pair.hear(&more);
    }
    assert!(all.iter().any(|datagram| frames_of(datagram).contains(&SELECT)));
    let key = pair.execute(2, b"much");
    let next = pair.finish(key, Finish::Result, &[8; 100_000]);
    pair.receive(&all);
    assert!(pair.server.held_bytes() >= 100_000);
    pair.hear(&next);
    pair.carry(2, Duration::from_secs(10), |_, _, _| true);
    assert_eq!(pair.told[1], (2, Told::Result(vec![8; 100_000])));
}
