//! Packet traces of an address that moves between two living servers: what a caller learns about its calls.

mod common;

use std::time::Duration;

use common::{CHALLENGE, Datagram, EXPORT, Pair, STALE, Told, conversation_of, forged, frame, frames_of};
use farcall_proto::fuzzing::kinds::WELCOME;
use farcall_proto::server::{Finish, Server};
use farcall_proto::{Kind, Ran, ServerConfig};

/// Returns a pair whose server is A, and another server B that started `born` ago. The client has not heard
/// from A since before B started.
fn two_servers(born: Duration) -> (Pair, Server) {
    let mut pair = Pair::acquainted();
    pair.pass(Duration::from_secs(60));
    let b = Server::new(ServerConfig::default(), pair.now, [9; 32]);
    pair.pass(born);
    (pair, b)
}

#[test]
fn calls_of_a_living_server_that_lost_its_address_are_not_reported_as_not_run() {
    // Server A reports that it executes the call. Then the address is B's, and B has lived for longer than
    // the call.
    let (mut pair, b) = two_servers(Duration::from_secs(10));
    pair.start(1, b"slow");
    let call = pair.sent();
    pair.receive(&call);
    pair.pass(Duration::from_millis(30));
    pair.tick();
    let again = pair.sent();
    pair.receive(&again);
    let running = pair.answered();
    pair.hear(&running);
    pair.server = b;
    pair.pass(Duration::from_millis(3000));
    pair.tick();
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ServerRestarted, Ran::Maybe))]);
    // Server A does not report on this call. Since B began, the client has received another call's result
    // from A, on the usual way or on the fast path.
    for way in ["handled", "alone"] {
        let (mut pair, b) = two_servers(Duration::from_secs(10));
        let (now, mut out) = (pair.now, vec![0; 2048]);
        let fast = |pair: &mut Pair, datagram: &[u8]| {
            pair.receive(&[datagram.to_vec()]);
            let (key, args) = pair.asked.pop().expect("the server has the call");
            pair.finish(key, Finish::Result, &args)
        };
        match way {
            "handled" => {
                pair.start(1, b"fast");
                pair.settle();
            }
            _ => {
                let brief = pair.client.start_lone((EXPORT, 1), b"fast", &mut out);
                let brief = brief.expect("no other call is outstanding");
                let result = fast(&mut pair, &out[..brief.bytes]);
                assert!(pair.client.end_lone(|| now, &brief, Some(now), (&result[0], None)).is_some());
            }
        }
        pair.told.clear();
        pair.pass(Duration::from_secs(5));
        pair.start(2, b"lost");
        let call = pair.sent();
        pair.receive(&call);
        pair.server = b;
        pair.pass(Duration::from_millis(30));
        pair.tick();
        pair.settle();
        assert_eq!(pair.told, [(2, Told::Failed(Kind::ServerRestarted, Ran::Maybe))], "{way}");
    }
}

#[test]
fn a_late_refusal_ends_no_call_if_the_server_knows_the_conversation() {
    // Server B, 2 s old, refuses a call. Then the address goes back to A, and the call gets its result from
    // A.
    let (mut pair, b) = two_servers(Duration::from_secs(2));
    let a = std::mem::replace(&mut pair.server, b);
    pair.start(1, b"call");
    let call = pair.sent();
    pair.receive(&call);
    assert_eq!(pair.answered().len(), 1, "the server challenges the client");
    let shown = {
        pair.hear(&[forged_challenge(conversation_of(&call[0]))]);
        pair.sent()
    };
    pair.receive(&shown);
    let stale = pair.answered();
    assert_eq!(frames_of(&stale[0]), [STALE]);
    pair.server = a;
    pair.pass(Duration::from_millis(100));
    pair.tick();
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
    // Long after that the refusal arrives. Server A is asked, and knows the conversation.
    pair.pass(Duration::from_secs(60));
    pair.start(2, b"more");
    let call = pair.sent();
    pair.receive(&call);
    pair.hear(&stale);
    pair.settle();
    assert_eq!(pair.told[1], (2, Told::Result(b"more".to_vec())));
}

#[test]
fn an_answer_is_dated_by_the_time_of_its_question() {
    // The client receives from A a second after B began. Much later the address is B's, and the client asks B
    // about the ticket.
    let (mut pair, b) = two_servers(Duration::from_secs(1));
    pair.start(1, b"call");
    pair.settle();
    pair.pass(Duration::from_secs(99));
    pair.server = b;
    pair.start(2, b"more");
    let mut answers = Vec::new();
    for expected in [CHALLENGE, STALE, WELCOME] {
        pair.hear(&answers);
        let said = pair.sent();
        pair.receive(&said);
        answers = pair.answered();
        assert_eq!(frames_of(&answers[0])[0], expected);
    }
    // When it was asked, B was 100 s old and A had been silent for 99 s. The 20 s that the answer travels
    // must not be added to A's silence: 119 s would mean that A was silent before B began.
    pair.pass(Duration::from_secs(20));
    pair.hear(&answers);
    assert_eq!(pair.told[1], (2, Told::Failed(Kind::ServerRestarted, Ran::Maybe)));
}

fn forged_challenge(conversation: u64) -> Datagram {
    let [high, low] = [(conversation >> 32) as u32, conversation as u32];
    forged(0, 1, &[frame(CHALLENGE, 0, &[high, low, 0, 1])])
}
