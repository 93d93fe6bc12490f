//! Packet traces of defects that the simulator found.

mod common;

use std::time::Duration;

use common::{EXPORT, Pair, Told};
use farcall_proto::client::Call;
use farcall_proto::{Kind, Ran};

#[test]
fn a_call_without_arguments_needs_room_for_its_head() {
    for rest in (0..300).step_by(4) {
        let mut pair = Pair::new();
        pair.start(1, &vec![1; 900 + rest]);
        pair.start(2, b"");
        pair.start(3, b"");
        pair.settle();
        assert_eq!(pair.told.len(), 3, "{rest}");
    }
}

#[test]
fn a_call_does_not_wait_for_a_ticket_that_was_refused() {
    let mut pair = Pair::new();
    pair.server.drain(pair.now, None);
    pair.start(1, b"work");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Draining, Ran::No))]);
    assert_eq!(pair.client.timeout(), None);
}

#[test]
fn a_call_that_waited_for_the_ticket_of_a_refused_name_asks_for_one() {
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Nobody", 1);
    pair.start(2, b"work");
    pair.settle();
    let refused = (1, Told::NotBound(Kind::NotExported));
    assert!(pair.told.contains(&refused), "{:?}", pair.told);
    assert!(pair.told.contains(&(2, Told::Result(b"work".to_vec()))), "{:?}", pair.told);
}

#[test]
fn a_call_that_was_cancelled_keeps_its_deadline() {
    let mut pair = Pair::new();
    pair.start(1, b"work");
    pair.settle();
    let deadline = Some(pair.now + Duration::from_millis(10));
    let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token: 2 };
    let id = pair.client.start(|| pair.now, &call, &mut b"more".to_vec()).unwrap();
    pair.sent();
    pair.client.cancel(pair.now, id);
    pair.sent();
    while pair.told.len() < 2 {
        pair.now = pair.client.timeout().expect("the call has not ended");
        pair.tick();
        pair.sent();
    }
    assert_eq!(Some(pair.now), deadline);
    assert!(matches!(pair.told[1], (2, Told::Failed(_, Ran::Maybe))));
}

#[test]
fn a_late_answer_does_not_silence_later_calls() {
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Store", 1);
    let question = pair.sent();
    pair.receive(&question);
    let answer = pair.answered();
    // The client's process is stopped for a minute.
    pair.pass(Duration::from_secs(60));
    pair.hear(&answer);
    pair.start(2, b"work");
    pair.sent();
    let again = pair.client.timeout().expect("the client waits for an answer");
    assert!(again.since(pair.now) <= Duration::from_secs(1));
}

#[test]
fn the_client_asks_for_no_ticket_once_no_call_needs_one() {
    let mut pair = Pair::new();
    let deadline = Some(pair.now + Duration::from_millis(100));
    let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token: 1 };
    pair.client.start(|| pair.now, &call, &mut b"work".to_vec()).unwrap();
    while pair.told.is_empty() {
        pair.sent();
        pair.now = pair.client.timeout().expect("the call has not ended");
        pair.tick();
    }
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Deadline, Ran::No))]);
    assert!(pair.sent().is_empty());
    assert_eq!(pair.client.timeout(), None);
}
