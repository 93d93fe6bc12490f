//! Calls whose caller wants to try another server in the second half of their time (section 5.3 of
//! docs/protocol-policy.md).
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{EXPORT, Pair, Told};
use farcall_proto::client::{Call, CallId, Margin};
use farcall_proto::server::Finish;
use farcall_proto::{Kind, Ran, Time};

/// The time of a call.
const WITHIN: Duration = Duration::from_secs(4);

/// Starts a call that must begin in the first half of its time. `twice` says that it may run twice.
fn hurried(pair: &mut Pair, twice: bool) -> (CallId, Time) {
    hurried_within(pair, WITHIN, twice)
}

fn hurried_within(pair: &mut Pair, within: Duration, twice: bool) -> (CallId, Time) {
    let deadline = pair.now + within;
    let call = Call { export: EXPORT, procedure: 1, deadline: Some(deadline), trace: None, token: 1 };
    let id = pair.client.start(|| pair.now, &call, &mut b"call".to_vec()).unwrap();
    pair.client.hurry(id, Margin::new(within / 2, twice));
    (id, deadline)
}

/// Acts on the client's timers until its call has ended. The server hears what is sent while `hears` returns
/// true. Returns when the call ended.
fn until_ended(pair: &mut Pair, mut hears: impl FnMut(&mut Pair) -> bool) -> Time {
    while pair.told.is_empty() {
        pair.now = pair.client.timeout().expect("a call is under way").max(pair.now);
        pair.tick();
        let sent = pair.sent();
        if hears(pair) {
            pair.receive(&sent);
            let answers = pair.answered();
            pair.hear(&answers);
        }
    }
    pair.now
}

#[test]
fn a_call_of_which_the_server_has_said_nothing_fails_at_half_of_its_time_if_it_may_run_twice() {
    for (twice, rest) in [(true, WITHIN / 2), (false, Duration::ZERO)] {
        let mut pair = Pair::acquainted();
        let (_, deadline) = hurried(&mut pair, twice);
        pair.sent();
        assert_eq!(until_ended(&mut pair, |_| false) + rest, deadline);
        assert_eq!(pair.told, [(1, Told::Failed(Kind::Deadline, Ran::Maybe))]);
    }
}

#[test]
fn a_call_whose_server_stopped_after_it_had_said_so_fails_at_half_of_its_time_too() {
    let mut pair = Pair::acquainted();
    let (_, deadline) = hurried(&mut pair, true);
    // The server answers the first question about the call, and then stops.
    let mut answers = 2;
    let call = pair.sent();
    pair.receive(&call);
    let ended = until_ended(&mut pair, |_| {
        answers -= i32::from(answers > 0);
        answers > 0
    });
    assert_eq!(ended + WITHIN / 2, deadline);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Deadline, Ran::Maybe))]);
}

#[test]
fn a_call_that_was_detached_has_its_whole_time() {
    let mut pair = Pair::acquainted();
    let (id, deadline) = hurried(&mut pair, true);
    pair.client.detach(id, false);
    pair.sent();
    assert_eq!(until_ended(&mut pair, |_| false), deadline);
}

#[test]
fn a_call_that_the_server_executes_has_its_whole_time() {
    let mut pair = Pair::acquainted();
    let (_, deadline) = hurried(&mut pair, true);
    let call = pair.sent();
    pair.receive(&call);
    assert_eq!(until_ended(&mut pair, |_| true), deadline);
    let mut pair = Pair::acquainted();
    let (_, deadline) = hurried(&mut pair, true);
    let call = pair.sent();
    pair.receive(&call);
    until_ended(&mut pair, |pair| {
        if deadline.since(pair.now) < WITHIN / 2 && !pair.asked.is_empty() {
            let (key, _) = pair.asked.pop().unwrap();
            let result = pair.finish(key, Finish::Result, b"late");
            pair.hear(&result);
        }
        true
    });
    assert_eq!(pair.told, [(1, Told::Result(b"late".to_vec()))]);
}

/// The path fails for a moment in the second half of the time, when the server has worked for an hour.
#[test]
fn a_call_that_the_server_executes_is_not_given_up_for_a_few_lost_answers() {
    let mut pair = Pair::acquainted();
    let within = Duration::from_secs(7_200);
    let (_, deadline) = hurried_within(&mut pair, within, true);
    let call = pair.sent();
    pair.receive(&call);
    let mut fails_at = None;
    until_ended(&mut pair, |pair| {
        let left = deadline.since(pair.now);
        if left < within / 4 && !pair.asked.is_empty() {
            let (key, _) = pair.asked.pop().unwrap();
            let result = pair.finish(key, Finish::Result, b"late");
            pair.hear(&result);
        }
        left > within / 2 - Duration::from_secs(60)
            || pair.now.since(*fails_at.get_or_insert(pair.now)) > Duration::from_millis(500)
    });
    assert_eq!(pair.told, [(1, Told::Result(b"late".to_vec()))]);
}
