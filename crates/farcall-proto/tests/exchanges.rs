//! Exchanges: packet traces of what passes inside a call.

mod common;

use std::time::Duration;

use common::{
    CANCEL, Datagram, HARM, PROBE, Pair, RESULT, STATE, Told, comes, forged, frame, frames_of, join,
};
use farcall_proto::client::CallId;
use farcall_proto::fuzzing::kinds::{CREDIT, DATA, STOP};
use farcall_proto::server::{CallKey, Finish};
use farcall_proto::{ClientConfig, Kind, News, Ran, ServerConfig, Tail};

/// The credit with which each direction begins, in bytes.
const FIRST_CREDIT: usize = common::FIRST_CREDIT as usize;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Takes everything that has come at the client in an exchange. Returns whether that was all.
fn client_takes(pair: &mut Pair, id: CallId, exchange: u32) -> Option<(Vec<u8>, bool)> {
    let (mut into, told) = (Vec::new(), &mut pair.told);
    let all =
        pair.client.take_from(id, exchange, &mut into, usize::MAX, &mut |e| told.push(common::note(e)))?;
    Some((into, all))
}

fn server_takes(pair: &mut Pair, key: CallKey, exchange: u32) -> Option<(Vec<u8>, bool)> {
    let mut into = Vec::new();
    let all = pair.server.take_from(key, exchange, &mut into, usize::MAX)?;
    Some((into, all))
}

/// News of one end, by exchange.
type Heard = Vec<(u32, News)>;

/// The news at the client, and at the server.
fn news(pair: &mut Pair) -> (Heard, Heard) {
    let client =
        std::iter::from_fn(|| pair.client.next_news().map(|(_, _, exchange, news)| (exchange, news)));
    let server = std::iter::from_fn(|| pair.server.next_news().map(|(_, exchange, news)| (exchange, news)));
    (client.collect(), server.collect())
}

/// Carries datagrams between the ends until both are silent; no time passes.
fn carry(pair: &mut Pair) -> usize {
    let mut datagrams = 0;
    loop {
        let (sent, answers) = (pair.sent(), pair.answered());
        pair.receive(&sent);
        pair.hear(&answers);
        pair.server.audit();
        datagrams += sent.len() + answers.len();
        if sent.is_empty() && answers.is_empty() {
            return datagrams;
        }
    }
}

/// Bytes that are different at each place.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Bytes of exchanges that the server keeps for the honest client.
fn kept(pair: &Pair) -> usize {
    pair.server.kept_for(pair.from.ip()).exchanges
}

/// Returns the frames of each datagram, without those that probe for larger datagrams or tell of them.
fn kinds(datagrams: &[Datagram]) -> Vec<Vec<u8>> {
    const ASIDE: [u8; 4] = [0x00, 0x16, 0x17, 0x80];
    let of = |datagram: &Datagram| -> Vec<u8> {
        frames_of(datagram).into_iter().filter(|kind| !ASIDE.contains(kind)).collect()
    };
    datagrams.iter().map(of).filter(|kinds| !kinds.is_empty()).collect()
}

/// Makes the next call, and sees that nothing is kept of the exchanges of the one before.
fn nothing_is_kept(pair: &mut Pair) {
    pair.told.clear();
    pair.start(99, b"next");
    pair.settle();
    assert_eq!(pair.told, [(99, Told::Result(b"next".to_vec()))]);
    pair.server.audit();
    assert_eq!((kept(pair), pair.client.timeout()), (0, None));
    assert_eq!(pair.client.stats().in_flight, 0);
}

#[test]
fn a_question_and_its_answer_are_two_datagrams() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    assert_eq!(pair.server.open_exchange(key), Some(2));
    assert_eq!(pair.server.send_in(key, 2, b"question", Tail::Question), Some(8));
    let question = pair.answered();
    assert_eq!(kinds(&question), [[DATA]]);
    pair.hear(&question);
    assert_eq!(news(&mut pair).0, [(2, News::Came)]);
    assert_eq!(client_takes(&mut pair, id, 2), Some((b"question".to_vec(), true)));
    assert_eq!(pair.client.send_in(id, 2, b"answer..", Tail::Question), Some(8));
    let answer = pair.sent();
    assert_eq!(kinds(&answer), [[DATA]]);
    pair.receive(&answer);
    assert_eq!(news(&mut pair).1, [(2, News::Came)]);
    assert_eq!(server_takes(&mut pair, key, 2), Some((b"answer..".to_vec(), true)));
    // The answer has acknowledged the question, and the result acknowledges the answer.
    assert_eq!(pair.answered(), [] as [Datagram; 0]);
    // There is no second answer, and the first one again changes nothing.
    assert_eq!(pair.client.send_in(id, 2, b"another.", Tail::End), None);
    pair.receive(&answer);
    let told = pair.answered();
    assert_eq!(kinds(&told), [[CREDIT]], "that the exchange is over");
    assert_eq!(news(&mut pair).1, []);
    let result = pair.finish(key, Finish::Result, b"result..");
    assert_eq!(kinds(&result), [[RESULT]]);
    pair.hear(&result);
    assert_eq!(pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
    assert_eq!((pair.sent(), pair.answered()), (vec![], vec![]));
    nothing_is_kept(&mut pair);
}

#[test]
fn a_question_that_is_lost_is_sent_again_by_the_servers_timer() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, b"question", Tail::Question);
    assert_eq!(pair.answered().len(), 1);
    let began = pair.now;
    for interval in [20, 60, 140] {
        assert_eq!(pair.server.timeout(), Some(began + MS(interval)));
        pair.now = began + MS(interval);
        pair.server.handle_timeout(pair.now);
        pair.server.audit();
        let again = pair.answered();
        assert_eq!(kinds(&again), [[DATA]]);
        if interval == 140 {
            pair.hear(&again);
        }
    }
    assert_eq!(client_takes(&mut pair, id, 2), Some((b"question".to_vec(), true)));
    let credit = pair.sent();
    assert_eq!(kinds(&credit), [[CREDIT]], "it was asked for");
    pair.receive(&credit);
    pair.pass(MS(5_000));
    pair.server.handle_timeout(pair.now);
    assert!(pair.answered().is_empty(), "the question has arrived");
    pair.client.send_in(id, 2, b"answer..", Tail::Question);
    // The answer is lost, and is sent again by the client's timer.
    assert_eq!(pair.sent().len(), 1);
    pair.pass(MS(25));
    pair.tick();
    let again = pair.sent();
    assert!(kinds(&again).iter().flatten().any(|kind| *kind == DATA));
    pair.receive(&again);
    assert_eq!(server_takes(&mut pair, key, 2), Some((b"answer..".to_vec(), true)));
    let result = pair.finish(key, Finish::Result, b"result..");
    pair.hear(&result);
    assert_eq!(pair.told.len(), 1);
    nothing_is_kept(&mut pair);
}

#[test]
fn a_data_that_credit_shows_to_be_lost_is_sent_again_at_once() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    let all = bytes(6_000);
    assert_eq!(pair.server.send_in(key, 2, &all, Tail::End), Some(6_000));
    let sent = pair.answered();
    assert_eq!(sent.len(), 6);
    pair.hear(&sent[1..]);
    assert_eq!(client_takes(&mut pair, id, 2), Some((vec![], false)));
    let credit = pair.sent();
    pair.receive(&credit);
    let again = pair.answered();
    assert_eq!(kinds(&again), [[DATA]]);
    assert!(again.iter().any(|datagram| datagram.len() == sent[0].len()), "no more than what was lost");
    pair.hear(&again);
    assert_eq!(client_takes(&mut pair, id, 2), Some((all, true)));
    carry(&mut pair);
    assert_eq!(pair.server.timeout().map(|due| due > pair.now + MS(1_000)), Some(true), "only the sweep");
    let result = pair.finish(key, Finish::Result, b"");
    pair.hear(&result);
    assert_eq!(pair.told.len(), 1);
    nothing_is_kept(&mut pair);
}

#[test]
fn a_slow_reader_holds_one_window_and_its_sender_waits() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    let all = bytes(100_000);
    pair.server.open_exchange(key);
    assert_eq!(pair.server.send_in(key, 2, &all, Tail::End), Some(FIRST_CREDIT));
    carry(&mut pair);
    assert_eq!(pair.server.send_in(key, 2, &all[FIRST_CREDIT..], Tail::End), Some(0));
    assert_eq!(news(&mut pair), (vec![(2, News::Came)], vec![]));
    // The sender asks for credit now and then, ever more rarely; no call fails by that.
    let (before, until) = (pair.server.stats().sent, pair.now + Duration::from_secs(60));
    while pair.now < until {
        pair.now =
            pair.server.timeout().into_iter().chain(pair.client.timeout()).min().unwrap().max(pair.now);
        pair.tick();
        carry(&mut pair);
    }
    let asked = pair.server.stats().sent - before;
    assert!((50..100).contains(&asked), "{asked} datagrams in a minute");
    assert_eq!((pair.told.len(), news(&mut pair)), (0, (vec![], vec![])));
    // Another exchange is not held up by this one.
    assert_eq!(pair.server.open_exchange(key), Some(4));
    pair.server.send_in(key, 4, b"meanwhile...", Tail::End);
    carry(&mut pair);
    assert_eq!(client_takes(&mut pair, id, 4), Some((b"meanwhile...".to_vec(), true)));
    // As the reader takes bytes in, the sender may send more, until the item, longer than any window, has
    // passed.
    let (mut taken, mut sent) = (Vec::new(), FIRST_CREDIT);
    loop {
        let (more, ended) = client_takes(&mut pair, id, 2).expect("it is open");
        taken.extend(more);
        if ended {
            break;
        }
        carry(&mut pair);
        sent += pair.server.send_in(key, 2, &all[sent..], Tail::End).expect("it is open");
        carry(&mut pair);
    }
    assert_eq!((taken, sent), (all, 100_000));
    let result = pair.finish(key, Finish::Result, b"");
    pair.hear(&result);
    carry(&mut pair);
    assert_eq!(pair.told.len(), 1);
    nothing_is_kept(&mut pair);
}

#[test]
fn a_result_that_comes_first_waits_for_the_items() {
    for (long, take) in [(false, true), (true, true), (false, false)] {
        let (mut pair, id, key) = Pair::executing(b"argument");
        pair.server.open_exchange(key);
        pair.server.send_in(key, 2, b"one.", Tail::More);
        carry(&mut pair);
        pair.server.send_in(key, 2, b"two.", Tail::More);
        let result = bytes(if long { 10_000 } else { 8 });
        let sent = pair.finish(key, Finish::Result, &result);
        let (items, rest): (Vec<_>, Vec<_>) = sent.into_iter().partition(|d| frames_of(d)[0] == DATA);
        assert!(items.len() == 1, "what the server sends has ended with its result");
        if long {
            pair.hear(&rest);
        } else {
            // Both were in one datagram. The result alone comes again when it is asked for.
            assert_eq!((kinds(&items), rest.len()), (vec![vec![DATA, RESULT]], 0));
            pair.pass(MS(30));
            pair.tick();
            carry(&mut pair);
            pair.now = pair.client.timeout().unwrap();
            pair.tick();
            carry(&mut pair);
        }
        carry(&mut pair);
        pair.hear(&items);
        carry(&mut pair);
        assert!(pair.told.is_empty(), "the items were not taken");
        // Even if the server has forgotten all by now, nothing is missing.
        pair.pass(Duration::from_secs(40));
        pair.tick();
        carry(&mut pair);
        pair.tick();
        carry(&mut pair);
        assert!(pair.told.is_empty(), "{:?}", pair.told);
        if take {
            assert_eq!(client_takes(&mut pair, id, 2), Some((b"one.two.".to_vec(), true)));
        } else {
            let told = &mut pair.told;
            pair.client.stop_exchange(id, 2, 7, &mut |e| told.push(common::note(e)));
        }
        assert_eq!(pair.told, [(1, Told::Result(result))]);
        carry(&mut pair);
        nothing_is_kept(&mut pair);
    }
}

#[test]
fn a_result_that_waits_for_its_items_does_not_go_with_that_of_another_call() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    let other = pair.execute(2, b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, b"item", Tail::More);
    let (mut out, mut sent) = (vec![0; 65_536], Vec::new());
    for key in [key, other] {
        let result = &mut b"result..".to_vec();
        let written = pair.server.finish(pair.now, key, Finish::Result, result, &mut out);
        sent.extend(written.map(|written| out[..written.len].to_vec()));
    }
    assert_eq!(kinds(&sent), [[RESULT]], "of the other call");
    pair.hear(&sent);
    assert_eq!(pair.told, [(2, Told::Result(b"result..".to_vec()))]);
    let items = pair.answered();
    assert_eq!(kinds(&items), [[DATA, RESULT]]);
    pair.hear(&items);
    assert_eq!(client_takes(&mut pair, id, 2), Some((b"item".to_vec(), true)));
    assert_eq!(pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
    carry(&mut pair);
    nothing_is_kept(&mut pair);
}

#[test]
fn a_result_that_is_lost_behind_a_long_stream_is_soon_asked_for() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    for _ in 0..50 {
        pair.server.send_in(key, 2, &bytes(1_000), Tail::More);
        carry(&mut pair);
        assert_eq!(client_takes(&mut pair, id, 2), Some((bytes(1_000), false)));
    }
    pair.server.send_in(key, 2, b"last", Tail::End);
    let lost = pair.finish(key, Finish::Result, b"result..");
    assert_eq!(kinds(&lost), [[DATA, RESULT]]);
    pair.now = pair.server.timeout().unwrap();
    pair.server.handle_timeout(pair.now);
    let again = pair.answered();
    assert_eq!(kinds(&again), [[DATA]], "but no result without a probe");
    pair.hear(&again);
    assert_eq!(client_takes(&mut pair, id, 2), Some((b"last".to_vec(), true)));
    carry(&mut pair);
    assert!(pair.client.timeout().unwrap() <= pair.now + MS(20), "{:?}", pair.client.timeout());
    pair.pass(MS(20));
    pair.tick();
    carry(&mut pair);
    assert_eq!(pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
    nothing_is_kept(&mut pair);
}

#[test]
fn a_client_sends_inside_a_call_and_the_result_ends_it() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"argument");
    assert_eq!(pair.client.open_exchange(id), Some(1));
    assert_eq!(pair.client.send_in(id, 1, b"first...", Tail::More), Some(8));
    let sent = pair.sent();
    assert_eq!(kinds(&sent), [[common::CALL, DATA]]);
    pair.receive(&sent);
    let key = pair.asked.pop().unwrap().0;
    assert_eq!(news(&mut pair).1, [(1, News::Came)]);
    assert_eq!(server_takes(&mut pair, key, 1), Some((b"first...".to_vec(), false)));
    carry(&mut pair);
    pair.client.send_in(id, 1, &bytes(5_000), Tail::More);
    let lost = pair.sent();
    assert!(lost.len() >= 5);
    // The server needs no more. What was on the way need not be sent again.
    let result = pair.finish(key, Finish::Result, b"enough..");
    assert_eq!(kinds(&result), [[RESULT]]);
    pair.receive(&lost);
    let answers = pair.answered();
    pair.hear(&answers);
    pair.hear(&result);
    assert_eq!(pair.told, [(1, Told::Result(b"enough..".to_vec()))]);
    carry(&mut pair);
    nothing_is_kept(&mut pair);
}

#[test]
fn who_stops_is_sent_nothing_more_than_the_end() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, &bytes(FIRST_CREDIT), Tail::More);
    carry(&mut pair);
    pair.client.stop_exchange(id, 2, 5, &mut |_| {});
    let stop = pair.sent();
    assert_eq!(kinds(&stop), [[STOP]]);
    // It is lost, and repeated.
    pair.pass(MS(25));
    pair.tick();
    let stop = pair.sent();
    assert!(kinds(&stop).concat().contains(&STOP));
    pair.receive(&stop);
    assert_eq!(news(&mut pair).1, [(2, News::Stopped(5))]);
    assert_eq!(pair.server.send_in(key, 2, b"more", Tail::More), None, "the client takes no more");
    let end = pair.answered();
    assert_eq!(kinds(&end), [vec![STATE], vec![DATA]], "the answer to a probe, and the end");
    assert!(end[1].len() < 100, "no bytes");
    pair.hear(&end);
    let credit = pair.sent();
    assert_eq!(kinds(&credit), [[CREDIT]]);
    pair.receive(&credit);
    pair.pass(MS(500));
    pair.tick();
    assert!(!kinds(&pair.sent()).concat().contains(&STOP), "the end has come");
    let result = pair.finish(key, Finish::Result, b"");
    pair.hear(&result);
    assert_eq!(pair.told.len(), 1);
    nothing_is_kept(&mut pair);
    // The other way.
    pair.told.clear();
    let id = pair.start(1, b"argument");
    pair.client.open_exchange(id);
    pair.client.send_in(id, 1, b"one.", Tail::More);
    let call = pair.sent();
    pair.receive(&call);
    let key = pair.asked.pop().unwrap().0;
    pair.server.stop_exchange(key, 1, 6);
    carry(&mut pair);
    assert_eq!(news(&mut pair).0, [(1, News::Stopped(6))]);
    let result = pair.finish(key, Finish::Result, b"");
    pair.hear(&result);
    assert_eq!(pair.told.len(), 1);
    nothing_is_kept(&mut pair);
}

/// Random runs show this fault too rarely (`exchanges_random.rs`).
#[cfg(feature = "mutants")]
#[test]
fn a_stop_that_is_not_repeated_is_noticed() {
    use farcall_proto::{Mutant, Rule};
    common::MUTANT.set(Mutant::of(Rule::StopOnce));
    let noticed = std::panic::catch_unwind(who_stops_is_sent_nothing_more_than_the_end).is_err();
    common::MUTANT.set(Mutant::NONE);
    assert!(noticed);
}

#[test]
fn a_stop_does_not_forget_an_end_that_was_acknowledged() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, &bytes(6_000), Tail::End);
    let sent = pair.answered();
    // The second datagram is lost. The client says so, and that it has the end; its word is late.
    pair.hear(&[&sent[..1], &sent[2..]].concat());
    let late = pair.sent();
    pair.client.stop_exchange(id, 2, 5, &mut |_| {});
    let word = pair.sent();
    pair.receive(&word);
    pair.receive(&late);
    carry(&mut pair);
    pair.pass(MS(100));
    pair.tick();
    assert_eq!(kinds(&pair.sent()), [[PROBE]], "of the result");
    assert_eq!(pair.answered(), [] as [Datagram; 0], "both know that the direction is over");
    let result = pair.finish(key, Finish::Result, b"");
    pair.hear(&result);
    assert_eq!(pair.told.len(), 1);
    nothing_is_kept(&mut pair);
}

#[test]
fn a_call_that_was_touched_and_given_up_may_have_run() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, b"question", Tail::Question);
    carry(&mut pair);
    client_takes(&mut pair, id, 2);
    pair.client.cancel(pair.now, id);
    let refusal = farcall_proto::Failure::new(Kind::Overloaded, Ran::No);
    let result = pair.finish(key, refusal.into(), b"");
    pair.hear(&result);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Overloaded, Ran::Maybe))]);
    nothing_is_kept(&mut pair);
}

#[test]
fn credit_beyond_any_place_and_for_bytes_never_sent_does_no_harm() {
    let (mut pair, _, key) = Pair::executing(b"argument");
    let peer = common::Peer { id: key.conversation, at: pair.from };
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, &bytes(4_000), Tail::More);
    pair.answered();
    let top = [u32::MAX; 2];
    let call = [0, 2, 0, key.sequence as u32];
    for (through, limit) in
        [([0, 0], top), ([0, 2], top), ([0, 1_002], top), (top, top), ([0, 3_000], [0, 0])]
    {
        let credit = frame(CREDIT, 0, &[&call[..], &through, &limit, &top, &[0, u32::MAX]].concat());
        comes(&mut pair, peer, &[credit]);
        pair.answered();
        pair.pass(MS(50));
        pair.tick();
    }
    pair.server.send_in(key, 2, &bytes(4_000), Tail::End);
    let last = pair.answered();
    assert!(!last.is_empty() && last.iter().all(|datagram| datagram.len() <= 1_200));
    pair.finish(key, Finish::Result, b"");
    pair.server.audit();
}

#[test]
fn news_that_nobody_asks_for_are_bounded() {
    let (mut pair, _, key) = Pair::executing(b"argument");
    let peer = common::Peer { id: key.conversation, at: pair.from };
    // Each opens an exchange that is over at once.
    for exchange in (1..40_000).step_by(2) {
        comes(&mut pair, peer, &[data(exchange, 3, key.sequence as u32, 0, &[])]);
        assert!(pair.server.news() <= 4_096);
    }
    pair.finish(key, Finish::Result, b"");
    pair.server.audit();
}

/// A DATA of the call 2 of activity 0.
fn data(exchange: u32, flags: u8, sequence: u32, offset: u32, words: &[u32]) -> Vec<u8> {
    frame(DATA, flags, &[&[0, exchange, 0, sequence, 0, offset], words].concat())
}

#[test]
fn an_exchange_of_a_wrong_number_is_not_opened() {
    let (mut pair, _, key) = Pair::executing(b"argument");
    let peer = common::Peer { id: key.conversation, at: pair.from };
    let sequence = key.sequence as u32;
    comes(&mut pair, peer, &[data(2, 5, sequence, 0, &[7])]);
    assert_eq!((pair.server.stats().dropped, pair.answered().len()), (1, 0), "the server did not open it");
    for exchange in [1, 3, 5].into_iter().chain((7..600).step_by(2)) {
        comes(&mut pair, peer, &[data(exchange, 4, sequence, 0, &[7])]);
    }
    pair.server.audit();
    let (_, came) = news(&mut pair);
    assert_eq!(came.len(), 128, "twice as many as a client may open");
    assert!(kept(&pair) < 128 * 1_200, "{}", kept(&pair));
    comes(&mut pair, peer, &[data(u32::MAX, 4, sequence, 0, &[7])]);
    assert_eq!(news(&mut pair).1, []);
    let mut opened = std::iter::from_fn(|| pair.server.open_exchange(key));
    assert_eq!((opened.by_ref().count(), opened.next()), (64, None));
    // What does not fit the limit, or the end, is not taken.
    comes(&mut pair, peer, &[data(1, 0, sequence, common::FIRST_CREDIT, &[7]), data(1, 1, sequence, 4, &[])]);
    comes(&mut pair, peer, &[data(1, 0, sequence, 4, &[7]), data(1, 1, sequence, 8, &[])]);
    assert_eq!(server_takes(&mut pair, key, 1), Some((vec![0, 0, 0, 7], true)));
    pair.finish(key, Finish::Result, b"");
    pair.server.audit();
}

#[test]
fn words_about_a_call_that_is_over_make_nothing_and_are_answered_like_a_probe() {
    let (mut pair, _, key) = Pair::executing(b"argument");
    let peer = common::Peer { id: key.conversation, at: pair.from };
    let sequence = key.sequence as u32;
    let result = pair.finish(key, Finish::Result, b"done");
    pair.hear(&result);
    comes(&mut pair, peer, &[data(1, 4, sequence - 1, 0, &[7]), data(1, 4, sequence + 1, 0, &[7])]);
    assert!(pair.answered().is_empty(), "of other calls than the last nothing is said");
    comes(&mut pair, peer, &[data(1, 4, sequence, 0, &[7])]);
    assert_eq!(kinds(&pair.answered()), [[RESULT]]);
    pair.pass(Duration::from_secs(31));
    pair.tick();
    comes(&mut pair, peer, &[data(1, 4, sequence, 0, &[7])]);
    assert_eq!((kinds(&pair.answered()), kept(&pair)), (vec![vec![STATE]], 0));
    // The other way: the client says that it needs no more.
    let late = forged(0xc11e, 999, &[data(2, 5, sequence, 8, &[7])]);
    pair.hear(&[late.clone(), late]);
    assert_eq!(kinds(&pair.sent()), [[CREDIT]]);
    let never = forged(0xc11e, 999, &[data(2, 5, sequence + 5, 8, &[7])]);
    pair.hear(&[never]);
    assert!(pair.sent().is_empty());
}

#[test]
fn a_cancel_ends_exchanges_at_both_ends() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.client.open_exchange(id);
    pair.client.send_in(id, 1, &bytes(4_000), Tail::More);
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, &bytes(4_000), Tail::More);
    carry(&mut pair);
    pair.client.send_in(id, 1, &bytes(4_000), Tail::More);
    pair.server.send_in(key, 2, &bytes(4_000), Tail::More);
    let lost = (pair.sent(), pair.answered());
    assert!(!lost.0.is_empty() && !lost.1.is_empty());
    pair.client.cancel(pair.now, id);
    assert_eq!(
        (pair.client.send_in(id, 1, b"more", Tail::More), client_takes(&mut pair, id, 2)),
        (None, None)
    );
    assert_eq!(pair.client.stats().in_flight, 0);
    let cancel = pair.sent();
    assert_eq!(kinds(&cancel).concat().last(), Some(&CANCEL));
    pair.receive(&cancel);
    assert_eq!(pair.cancelled, [key]);
    assert_eq!(
        (pair.server.send_in(key, 2, b"more", Tail::More), pair.server.open_exchange(key)),
        (None, None)
    );
    assert_eq!((server_takes(&mut pair, key, 1), kept(&pair)), (None, 0));
    // What was on the way changes nothing.
    pair.receive(&lost.0);
    pair.hear(&lost.1);
    assert_eq!((kept(&pair), news(&mut pair).1), (0, vec![]));
    carry(&mut pair);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Maybe))]);
    pair.finish(key, Finish::Result, b"late");
    nothing_is_kept(&mut pair);
}

#[test]
fn a_client_that_is_gone_ends_exchanges() {
    let (mut pair, _, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, &bytes(FIRST_CREDIT), Tail::More);
    let (began, mut sent) = (pair.now, pair.answered().len());
    let forsaken = loop {
        pair.now = pair.server.timeout().expect("a call is executed");
        pair.server.handle_timeout(pair.now);
        pair.server.audit();
        sent += pair.answered().len();
        if let Some(key) = pair.server.next_forsaken() {
            break key;
        }
    };
    assert_eq!(forsaken, key);
    assert!(pair.now.since(began) < Duration::from_secs(14) && sent < 300, "{sent} datagrams");
    assert_eq!((kept(&pair), pair.server.open_exchange(key)), (0, None));
    pair.finish(key, Finish::Result, b"late");
    pair.server.audit();
}

#[test]
fn a_server_that_is_another_one_ends_exchanges_and_the_call_may_have_run() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, b"question", Tail::Question);
    carry(&mut pair);
    client_takes(&mut pair, id, 2);
    pair.pass(Duration::from_secs(30));
    pair.restart_server(9);
    pair.pass(Duration::from_secs(60));
    pair.client.send_in(id, 2, b"answer..", Tail::Question);
    for _ in 0..20 {
        carry(&mut pair);
        pair.pass(MS(100));
        pair.tick();
    }
    assert!(matches!(pair.told[..], [(1, Told::Failed(_, Ran::Maybe))]), "{:?}", pair.told);
    assert_eq!(pair.asked.len(), 1, "it was not executed again");
    assert_eq!((client_takes(&mut pair, id, 2), pair.client.stats().in_flight), (None, 0));
}

#[test]
fn a_refusal_of_a_call_of_which_something_was_taken_does_not_say_no() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, b"question", Tail::Question);
    carry(&mut pair);
    client_takes(&mut pair, id, 2);
    let refusal = farcall_proto::Failure::new(Kind::Overloaded, Ran::No);
    let result = pair.finish(key, refusal.into(), b"");
    pair.hear(&result);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Overloaded, Ran::Maybe))]);
    nothing_is_kept(&mut pair);
}

#[test]
fn what_clients_send_and_nobody_takes_stays_within_the_budget() {
    let config = ServerConfig { held_budget: 200_000, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), config);
    let honest = pair.execute(1, b"argument");
    let mut peers = Vec::new();
    for port in 1..=20 {
        let peer = join(&mut pair, HARM, port);
        comes(&mut pair, peer, &[common::fragment(0, 50, 8, 0, 8)]);
        peers.push(peer);
    }
    for exchange in (1..=127).step_by(2) {
        for offset in (0..common::FIRST_CREDIT).step_by(1_000) {
            for peer in &peers {
                comes(&mut pair, *peer, &[data(exchange, 4, 50, offset, &[7; 250])]);
            }
        }
        pair.server.audit();
    }
    let harm = pair.server.kept_for(std::net::IpAddr::from(HARM)).exchanges;
    assert!((150_000..600_000).contains(&harm), "{harm} bytes");
    // The honest client is not touched.
    let from = common::Peer { id: honest.conversation, at: pair.from };
    for offset in (0..common::FIRST_CREDIT).step_by(1_000) {
        comes(&mut pair, from, &[data(1, 0, honest.sequence as u32, offset, &[7; 250])]);
    }
    assert_eq!(server_takes(&mut pair, honest, 1).expect("it is open").0.len(), FIRST_CREDIT);
}

#[test]
fn many_exchanges_in_each_of_thousands_of_calls_stay_within_the_budget() {
    const BUDGET: usize = 8 << 20;
    let config = ServerConfig { held_budget: BUDGET, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), config);
    let honest = pair.execute(1, b"argument");
    let harm = join(&mut pair, HARM, 1);
    let mut most = 0;
    for activity in 0..3_000 {
        let sequence = 50 + activity;
        comes(&mut pair, harm, &[common::fragment(activity, sequence, 8, 0, 8)]);
        let position = [activity, 255, 0, sequence];
        comes(&mut pair, harm, &[frame(DATA, 0, &[&position[..], &[0, 0, 7]].concat())]);
        most = most.max(pair.server.kept_for(HARM.into()).exchanges);
    }
    pair.server.audit();
    assert!(pair.asked.len() > 2_900 && most > BUDGET / 2, "{} calls, {most} bytes", pair.asked.len());
    assert!(most < 2 * BUDGET, "{most} bytes");
    // Another host opens exchanges still.
    let from = common::Peer { id: honest.conversation, at: pair.from };
    comes(&mut pair, from, &[data(1, 0, honest.sequence as u32, 0, &[7])]);
    assert_eq!(server_takes(&mut pair, honest, 1), Some((vec![0, 0, 0, 7], false)));
    // The calls end, and so do their exchanges.
    for (key, _) in std::mem::take(&mut pair.asked) {
        pair.finish(key, Finish::Result, b"result..");
    }
    pair.server.audit();
    pair.pass(Duration::from_secs(60));
    for _ in 0..200 {
        pair.tick();
        pair.answered();
        pair.pass(Duration::from_secs(1));
    }
    assert_eq!(pair.server.kept_for(HARM.into()).exchanges, 0);
}

#[test]
fn a_client_that_takes_items_slowly_is_not_taken_for_gone() {
    let config = ClientConfig { patience: Duration::from_secs(2), ..ClientConfig::default() };
    let mut pair = Pair::acquainted_with(config, ServerConfig::default());
    let id = pair.start(1, b"argument");
    let call = pair.sent();
    pair.receive(&call);
    let key = pair.asked.pop().expect("it is executed").0;
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, &bytes(4_000), Tail::More);
    carry(&mut pair);
    for _ in 0..600 {
        // Too little for the server to hear of it.
        let (mut into, told) = (Vec::new(), &mut pair.told);
        pair.client.take_from(id, 2, &mut into, 4, &mut |event| told.push(common::note(event)));
        assert_eq!(into.len(), 4);
        carry(&mut pair);
        pair.pass(MS(100));
        pair.tick();
        carry(&mut pair);
        assert_eq!(pair.server.next_forsaken(), None);
    }
}

#[test]
fn a_call_with_exchanges_that_its_server_no_longer_knows_ends_and_is_not_sent_again() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    pair.server.open_exchange(key);
    pair.server.send_in(key, 2, b"question", Tail::Question);
    carry(&mut pair);
    client_takes(&mut pair, id, 2);
    // The server was restored: it has the conversation, and not the call.
    let unknown = common::frame_about(STATE, 0, key.activity, key.sequence as u32, &[0]);
    let mut number = 1 << 20;
    while pair.told.is_empty() {
        pair.now = pair.client.timeout().expect("the call has not ended").max(pair.now);
        pair.tick();
        let sent = pair.sent();
        assert!(sent.iter().all(|datagram| !frames_of(datagram).contains(&common::CALL)), "it runs again");
        number += 1;
        pair.hear(&[forged(0xc11e, number, std::slice::from_ref(&unknown))]);
    }
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Unreachable, Ran::Maybe))]);
}

#[test]
fn a_direction_that_contradicts_itself_ends_its_call() {
    let (mut pair, id, key) = Pair::executing(b"argument");
    let sequence = key.sequence as u32;
    pair.hear(&[forged(0xc11e, 1 << 20, &[data(2, 0, sequence, 0, &[7, 7])])]);
    assert_eq!(client_takes(&mut pair, id, 2).map(|(bytes, all)| (bytes.len(), all)), Some((8, false)));
    // The server has forgotten that it sent as much, and ends the direction earlier.
    pair.hear(&[forged(0xc11e, (1 << 20) + 1, &[data(2, 1, sequence, 4, &[])])]);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ResultLost, Ran::Maybe))]);
    let cancel = pair.sent();
    assert!(cancel.iter().any(|datagram| frames_of(datagram).contains(&CANCEL)), "the server is told");
    assert_eq!((pair.client.next_news(), client_takes(&mut pair, id, 2)), (None, None));
}

#[test]
fn other_bytes_that_the_client_has_are_not_taken_for_the_end_of_a_restored_server() {
    let [(mut pair, id, key), (mut earlier, ..)] = [(); 2].map(|()| Pair::executing(b"argument"));
    let sends = |pair: &mut Pair, len: usize, tail| pair.server.send_in(key, 2, &bytes(len), tail);
    assert_eq!((pair.server.open_exchange(key), sends(&mut pair, 1_004, Tail::More)), (Some(2), Some(1_004)));
    carry(&mut pair);
    // The restored server sends four bytes less, and then the end, which is lost.
    std::mem::swap(&mut pair.server, &mut earlier.server);
    assert_eq!((pair.server.open_exchange(key), sends(&mut pair, 1_000, Tail::More)), (Some(2), Some(1_000)));
    let again = pair.answered();
    pair.hear(&again);
    assert_eq!(sends(&mut pair, 0, Tail::End), Some(0));
    drop(pair.answered());
    let credit = pair.sent();
    pair.receive(&credit);
    assert_eq!(kinds(&credit), [[CREDIT]]);
    pair.finish(key, Finish::Result, b"result..");
    assert_eq!(client_takes(&mut pair, id, 2), Some((bytes(1_004), false)));
    for _ in 0..100 {
        pair.pass(MS(100));
        pair.tick();
        carry(&mut pair);
    }
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ResultLost, Ran::Maybe))]);
}
