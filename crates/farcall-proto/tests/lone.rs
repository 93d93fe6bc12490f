//! Packet traces of lone calls, which are calls on the fast path: the only outstanding calls of their
//! conversations. A lone call is sent as any call is, but the conversation keeps only its number.

mod common;

use common::*;
use farcall_proto::client::Lone;
use farcall_proto::server::Finish;
use farcall_proto::{Failure, Kind, Ran};

/// The arguments of each call.
const ARGS: &[u8] = b"alone...";

/// The export and the procedure that are called.
const CALLEE: (u64, u32) = (EXPORT, 1);

/// Starts a lone call, and returns the call and its datagram, unless the call cannot be lone.
fn lone(pair: &mut Pair) -> Option<(Lone, Datagram)> {
    lone_of(pair, CALLEE)
}

/// Starts a lone call of the given procedure.
fn lone_of(pair: &mut Pair, callee: (u64, u32)) -> Option<(Lone, Datagram)> {
    let mut out = vec![0; 65_536];
    let lone = pair.client.start_lone(callee, ARGS, &mut out)?;
    out.truncate(lone.bytes);
    Some((lone, out))
}

/// Delivers the datagram of a call to the server, finishes the call, and returns the server's answers.
fn answer(pair: &mut Pair, datagram: &Datagram, finish: Finish) -> Vec<Datagram> {
    pair.receive(std::slice::from_ref(datagram));
    let (key, args) = pair.asked.pop().expect("a call");
    assert_eq!(args, ARGS);
    pair.finish(key, finish, &args)
}

#[test]
fn a_lone_call_is_sent_as_any_call_and_ends_by_its_result() {
    let (mut one, mut other) = (Pair::acquainted(), Pair::acquainted());
    other.start(1, ARGS);
    for _ in 0..20 {
        let (lone, datagram) = lone(&mut one).expect("no other call is outstanding");
        assert_eq!(other.sent(), [&datagram[..]]);
        let answers = answer(&mut one, &datagram, Finish::Result);
        assert_eq!(answer(&mut other, &datagram, Finish::Result), answers);
        assert_eq!(one.client.end_lone(|| one.now, &lone, Some(one.now), (&answers[0], None)), Some(ARGS));
        other.hear(&answers);
        assert_eq!((one.client.stats().outstanding, one.client.timeout()), (0, None));
        assert!(one.client.is_quiet(0));
        other.start(1, ARGS);
    }
    assert_eq!(one.client.stats().received, other.client.stats().received);
}

#[test]
fn a_lone_call_whose_answer_is_lost_is_sent_again_and_executed_once() {
    let mut pair = Pair::acquainted();
    let (lone, datagram) = lone(&mut pair).unwrap();
    let sent = pair.now;
    drop(answer(&mut pair, &datagram, Finish::Result));
    pair.now = sent.plus(lone.patience);
    pair.client.go_on(pair.now, lone, Some(sent), 1, ARGS);
    pair.tick();
    let again = pair.sent();
    assert_eq!((again.len(), again[0].len()), (1, datagram.len()));
    pair.receive(&again);
    assert!(pair.asked.is_empty(), "the server has executed the call already");
    let answers = pair.answered();
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Result(ARGS.to_vec()))]);
}

#[test]
fn a_lone_call_that_only_reads_needs_no_send_time() {
    let reading = (EXPORT, farcall_proto::READINGS);
    let mut pair = Pair::acquainted();
    let mut untimed = 0;
    for _ in 0..64 {
        let (lone, datagram) = lone(&mut pair).unwrap();
        assert!(lone.timed, "a call that may have effects needs its send time");
        let answers = answer(&mut pair, &datagram, Finish::Result);
        assert!(pair.client.end_lone(|| pair.now, &lone, Some(pair.now), (&answers[0], None)).is_some());
        let (lone, datagram) = lone_of(&mut pair, reading).unwrap();
        untimed += u32::from(!lone.timed);
        let answers = answer(&mut pair, &datagram, Finish::Result);
        let sent = lone.timed.then_some(pair.now);
        assert!(pair.client.end_lone(|| pair.now, &lone, sent, (&answers[0], None)).is_some());
    }
    assert!(untimed >= 32, "only {untimed} readings went without a send time");
    let (lone, datagram) = lone_of(&mut pair, reading).unwrap();
    // The datagram is lost. When the call leaves the fast path, the client sends it again at once, because
    // the client does not know when the call was sent.
    pair.client.go_on(pair.now, lone, None, 1, ARGS);
    pair.tick();
    let again = pair.sent();
    assert_eq!((again.len(), again[0].len()), (1, datagram.len()));
    let answers = answer(&mut pair, &again[0], Finish::Result);
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Result(ARGS.to_vec()))]);
}

#[test]
fn only_a_datagram_with_just_its_result_ends_a_lone_call() {
    let failure = || Finish::Failed(Box::new(Failure::new(Kind::Panicked, Ran::Yes)));
    for (finish, told) in [
        (Finish::Exception, Told::Exception(ARGS.to_vec())),
        (failure(), Told::Failed(Kind::Panicked, Ran::Yes)),
    ] {
        let mut pair = Pair::acquainted();
        let (former, datagram) = lone(&mut pair).unwrap();
        let stale = answer(&mut pair, &datagram, Finish::Result);
        assert!(pair.client.end_lone(|| pair.now, &former, Some(pair.now), (&stale[0], None)).is_some());
        let (lone, datagram) = lone(&mut pair).unwrap();
        let answers = answer(&mut pair, &datagram, finish);
        let mut torn = stale[0].clone();
        torn.pop();
        for wrong in [&stale[0], &answers[0], &torn, &datagram, &Vec::new()] {
            assert_eq!(pair.client.end_lone(|| pair.now, &lone, Some(pair.now), (wrong, None)), None);
        }
        pair.client.go_on(pair.now, lone, Some(pair.now), 2, ARGS);
        pair.hear(&stale);
        assert_eq!(pair.told, []);
        pair.hear(&answers);
        assert_eq!(pair.told, [(2, told)]);
    }
}

#[test]
fn a_second_call_turns_a_lone_call_into_an_ordinary_one() {
    let mut pair = Pair::acquainted();
    let (lone, datagram) = lone(&mut pair).unwrap();
    assert!(self::lone(&mut pair).is_none(), "a lone call is outstanding already");
    pair.start(2, b"beside..");
    let answers = answer(&mut pair, &datagram, Finish::Result);
    assert_eq!(pair.client.end_lone(|| pair.now, &lone, Some(pair.now), (&answers[0], None)), None);
    pair.client.go_on(pair.now, lone, Some(pair.now), 1, ARGS);
    pair.hear(&answers);
    pair.settle();
    let told = [(1, Told::Result(ARGS.to_vec())), (2, Told::Result(b"beside..".to_vec()))];
    assert_eq!(pair.told, told);
}

#[test]
fn a_call_that_needs_more_than_one_plain_datagram_is_not_lone() {
    let mut fresh = Pair::new();
    assert!(lone(&mut fresh).is_none(), "the client has no ticket");
    let mut pair = Pair::acquainted();
    let mut out = vec![0; 65_536];
    let before = pair.client.stats();
    assert!(pair.client.start_lone(CALLEE, &[0; 1200], &mut out).is_none());
    assert!(pair.client.start_lone(CALLEE, b"odd", &mut out).is_none());
    assert!(pair.client.start_lone(CALLEE, ARGS, &mut [0; 60]).is_none());
    assert_eq!((pair.client.stats().calls, pair.client.stats().outstanding), (before.calls, 0));
    // A call that fills a datagram of the least size can be lone. A longer call cannot.
    let (least, header) = (farcall_proto::BASE_DATAGRAM, 60);
    assert!(pair.client.start_lone(CALLEE, &vec![0; least - header + 4], &mut out).is_none());
    let lone = pair
        .client
        .start_lone(CALLEE, &vec![0; least - header], &mut out)
        .expect("the call fits into the datagram");
    assert_eq!((lone.bytes, pair.client.stats().calls), (least, before.calls + 1));
}

#[test]
fn a_lone_call_ends_once_and_not_as_a_lone_call_after_go_on() {
    let mut pair = Pair::acquainted();
    let (lone, datagram) = lone(&mut pair).unwrap();
    let answers = answer(&mut pair, &datagram, Finish::Result);
    let end = |pair: &mut Pair, lone: &Lone, answer: &Datagram| {
        let now = pair.now;
        pair.client.end_lone(|| now, lone, Some(now), (answer, None)).is_some()
    };
    assert_eq!([end(&mut pair, &lone, &answers[0]), end(&mut pair, &lone, &answers[0])], [true, false]);
    for runs in [false, true] {
        let (lone, datagram) = self::lone(&mut pair).unwrap();
        pair.receive(std::slice::from_ref(&datagram));
        pair.client.go_on(pair.now, lone, Some(pair.now), 1, ARGS);
        if runs {
            pair.receive(std::slice::from_ref(&datagram));
            let running = pair.answered();
            pair.hear(&running);
        }
        let (key, _) = pair.asked.pop().expect("a call");
        let result = pair.finish(key, Finish::Result, ARGS);
        assert!(!end(&mut pair, &lone, &result[0]), "a call that has left the fast path ends by an event");
        pair.hear(&result);
        assert_eq!(pair.told.pop(), Some((1, Told::Result(ARGS.to_vec()))));
    }
}
