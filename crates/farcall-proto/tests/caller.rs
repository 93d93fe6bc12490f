//! Packet traces of a caller: what it says of its calls, what it believes, and what it counts.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::{Call, CallId};
use farcall_proto::fuzzing::kinds::{MTU_ECHO, WELCOME};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig};

const MS: Duration = Duration::from_millis(1);

/// Nothing larger than the least datagram is tried.
fn small() -> ClientConfig {
    ClientConfig { max_datagram: 1200, ..ClientConfig::default() }
}

/// A datagram with the same frames, sent to another conversation.
fn readdressed(datagram: &Datagram, conversation: u64) -> Datagram {
    forged(conversation, 1 << 40, &[datagram[20..datagram.len() - 8].to_vec()])
}

#[test]
fn whatever_is_no_hint_has_to_name_the_clients_conversation() {
    let executing = || Pair::executing(b"call");
    let fragments = |len| {
        let mut pair = Pair::acquainted();
        pair.start(1, &vec![7; len]);
        let sent = pair.sent();
        pair.receive(&sent);
        let answers = pair.answered();
        (pair, answers)
    };
    let result = |len| {
        let (mut pair, _, key) = executing();
        let answers = pair.finish(key, Finish::Result, &vec![7; len]);
        (pair, answers)
    };
    let state = {
        let (mut pair, _, key) = executing();
        drop(pair.finish(key, Finish::Result, b"lost"));
        pair.pass(31_000 * MS);
        pair.server.handle_timeout(pair.now);
        pair.tick();
        let again = pair.sent();
        pair.receive(&again);
        let answers = pair.answered();
        (pair, answers)
    };
    let welcome = {
        let mut pair = Pair::new();
        pair.client.bind(pair.now, "Store", 1);
        let question = pair.sent();
        pair.receive(&question);
        let answers = pair.answered();
        (pair, answers)
    };
    let (sizes, selects) = {
        let (pair, answers) = fragments(40_000);
        let (sizes, selects): (Vec<_>, Vec<_>) = answers.into_iter().partition(|d| frames_of(d)[0] == MTU_ECHO);
        ((pair, sizes), (fragments(40_000).0, selects))
    };
    let cases = [
        (RESULT, result(8)),
        (RESULT, result(2000)),
        (STATE, state),
        (WELCOME, welcome),
        (MTU_ECHO, sizes),
        (SELECT, selects),
    ];
    let effect = |pair: &Pair| {
        let client = &pair.client;
        (pair.told.len(), client.in_flight(), client.datagram_size(), client.timeout(), client.is_quiet())
    };
    for (kind, (mut pair, answers)) in cases {
        assert!(!answers.is_empty() && answers.iter().all(|d| d[20] == kind), "{kind}");
        let (before, dropped, id) = (effect(&pair), pair.client.stats().dropped, pair.client.id());
        for to in [0, id ^ 1] {
            pair.hear(&answers.iter().map(|d| readdressed(d, to)).collect::<Vec<_>>());
        }
        assert_eq!(effect(&pair), before, "{kind}");
        assert_eq!(pair.client.stats().dropped - dropped, 2 * answers.len() as u64);
        pair.hear(&answers.iter().map(|d| readdressed(d, id)).collect::<Vec<_>>());
        assert_ne!(effect(&pair), before, "{kind}");
    }
}

#[test]
fn what_a_conversation_did_is_counted() {
    let mut pair = Pair::acquainted();
    let counts = |pair: &Pair| {
        let s = pair.client.stats();
        [s.calls, s.sent, s.received, s.dropped, s.retransmitted, s.probes, s.duplicates]
    };
    let (before, bytes) = (counts(&pair), pair.client.stats().bytes_sent);
    pair.start(1, b"call");
    let call = pair.sent();
    pair.pass(25 * MS);
    pair.tick();
    let again = pair.sent();
    let mut sent = call.iter().chain(&again).map(Vec::len).sum::<usize>();
    pair.receive(&call);
    pair.receive(&again);
    let running = pair.answered();
    pair.hear(&running);
    pair.now = pair.client.timeout().unwrap();
    pair.tick();
    let probe = pair.sent();
    assert_eq!(frames_of(&probe[0]), [PROBE]);
    sent += probe[0].len();
    let (key, _) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, b"done");
    pair.hear(&result);
    pair.hear(&result);
    pair.hear(&[b"garbage".to_vec()]);
    let after = counts(&pair);
    let did: [u64; 7] = std::array::from_fn(|i| after[i] - before[i]);
    assert_eq!(did, [1, 3, 3, 1, 1, 1, 1]);
    assert_eq!(pair.client.stats().bytes_sent - bytes, sent as u64);
    // However a call begins, it is one.
    let mut out = [0; 2048];
    let departure = pair.client.call((EXPORT, 1), 2, &mut b"call".to_vec(), &mut out).expect("there is no other");
    pair.receive(&[out[..departure.len].to_vec()]);
    let (key, _) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, b"done");
    let now = pair.now;
    assert!(pair.client.take_result(|| now, departure.id, Some(now), &result[0]).is_some());
    assert!(pair.client.start_brief((EXPORT, 1), b"call", &mut out).is_some());
    let last = counts(&pair);
    let did: [u64; 7] = std::array::from_fn(|i| last[i] - after[i]);
    assert_eq!(did, [2, 2, 1, 0, 0, 0, 0]);
}

#[test]
fn a_call_that_is_detached_says_so_itself_or_in_a_probe_at_once_or_later() {
    for (sent, later, says) in [
        (false, false, vec![(CALL, 0x08)]),
        (false, true, vec![(CALL, 0x08)]),
        (true, false, vec![(PROBE, 0x01)]),
        (true, true, vec![]),
    ] {
        let mut pair = Pair::acquainted();
        let id = pair.start(1, b"long");
        assert!(!pair.client.is_sent(id));
        if sent {
            pair.sent();
            assert!(pair.client.is_sent(id));
        }
        assert!(pair.client.is_outstanding(id));
        pair.client.detach(id, later);
        let said: Vec<(u8, u8)> = pair.sent().iter().map(|d| (d[20], d[21])).collect();
        assert_eq!(said, says, "sent {sent}, later {later}");
    }
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"done");
    pair.settle();
    assert!(pair.client.is_sent(id) && !pair.client.is_outstanding(id), "it has ended");
}

#[test]
fn many_small_calls_are_a_reason_for_larger_datagrams() {
    for (calls, len, tries) in [(3, 300, false), (4, 4, false), (4, 120, true), (40, 120, true)] {
        let mut pair = Pair::acquainted();
        for token in 0..calls {
            pair.start(token, &vec![7; len]);
        }
        let before = pair.client.stats().probes;
        let tried = pair.sent().iter().filter(|d| d[20] == MTU_PROBE).count();
        assert_eq!(tried > 0, tries, "{calls} of {len} bytes");
        assert_eq!(pair.client.stats().probes - before, tried as u64);
    }
}

#[test]
fn a_call_goes_whole_if_a_datagram_has_room_for_it_and_for_what_may_stand_before_it() {
    // A TICKET and an ACK, of 48 and 16 bytes.
    const WHOLE: usize = 1200 - 60 - 48 - 16;
    for (len, flags) in [(WHOLE, [0, 0]), (WHOLE + 4, [0, 2])] {
        let mut pair = Pair::acquainted_with(small(), ServerConfig::default());
        let start = |pair: &mut Pair, token| pair.start(token, &vec![token as u8; len]);
        start(&mut pair, 1);
        start(&mut pair, 2);
        let sent = pair.sent();
        assert!(sent.iter().all(|d| frames_of(d) == [ACK, CALL]));
        assert_eq!(sent.iter().map(|d| d[20 + 16 + 1]).collect::<Vec<_>>(), flags, "{len} bytes, in fragments?");
    }
    // In whichever way, they arrive.
    for (len, limited) in (WHOLE - 40..=WHOLE + 80).step_by(4).flat_map(|len| [(len, false), (len, true)]) {
        let mut pair = Pair::with(small(), ServerConfig::default());
        pair.client.bind(pair.now, "", 0);
        pair.settle();
        for token in 1..=3 {
            let deadline = limited.then_some(pair.now + 1000 * MS);
            let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token };
            pair.client.start(pair.now, &call, vec![7; len]).expect("room for a call");
        }
        pair.settle();
        assert_eq!(pair.told.len(), 4, "{len} bytes, a deadline {limited}");
    }
}

#[test]
fn the_usual_call_is_one_that_fits_the_datagram() {
    let (mut pair, mut out) = (Pair::acquainted(), vec![0; 2048]);
    for (len, room, usual) in [(1144, 2048, false), (1140, 1199, false), (3, 2048, false), (1140, 2048, true)] {
        let departure = pair.client.call((EXPORT, 1), 1, &mut vec![7; len], &mut out[..room]);
        assert_eq!(departure.map(|departure| departure.len), usual.then_some(len + 60));
    }
    pair.receive(&[out[..1200].to_vec()]);
    assert_eq!(pair.asked[0].1, [7; 1140]);
}

#[test]
fn which_calls_have_ended_is_said_by_who_has_had_several_at_once() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"call");
    assert!(pair.client.ready() == 1 && pair.client.is_quiet_but(1) && !pair.client.is_quiet());
    let first = pair.sent();
    assert_eq!(frames_of(&first[0]), [CALL], "the next call says that this one has ended");
    pair.start(2, b"call");
    pair.start(3, b"call");
    assert!(pair.client.ready() == 2 && pair.client.is_quiet_but(2) && !pair.client.is_quiet_but(1));
    let low = |d: &Datagram| u64::from_be_bytes(d[24..32].try_into().unwrap());
    let others = pair.sent();
    assert_eq!((frames_of(&others[0]), low(&others[0])), (vec![ACK, CALL, CALL], 2));
    pair.receive(&[first, others].concat());
    pair.settle();
    assert_eq!((pair.told.len(), pair.client.ready()), (3, 0));
    pair.start(4, b"call");
    let next = pair.sent();
    assert_eq!((frames_of(&next[0]), low(&next[0])), (vec![ACK, CALL], 5));
}

#[test]
fn an_error_hastens_the_first_retransmission_and_no_other() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"call");
    pair.sent();
    pair.client.handle_unreachable(pair.now);
    assert_eq!(pair.client.timeout(), Some(pair.now + 5 * MS));
    pair.pass(5 * MS);
    pair.tick();
    assert_eq!(pair.sent().len(), 1);
    let due = pair.client.timeout();
    pair.pass(MS);
    pair.client.handle_unreachable(pair.now);
    assert_eq!(pair.client.timeout(), due);
}

#[test]
fn the_room_of_arguments_is_used_again() {
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 200]);
    pair.settle();
    let buffer = pair.client.buffer();
    assert!(buffer.is_empty() && buffer.capacity() >= 200, "{}", buffer.capacity());
}

#[test]
fn what_is_under_way_is_counted_until_it_has_arrived() {
    let mut pair = Pair::acquainted_with(small(), ServerConfig::default());
    pair.start(1, &[7; 5000]);
    let sent = pair.sent();
    assert_eq!(pair.client.in_flight(), 5000);
    pair.receive(&sent);
    pair.settle();
    assert_eq!((pair.client.in_flight(), pair.told.len()), (0, 1));
}

/// As many calls, which the server executes.
fn executing(calls: u64) -> (Pair, Vec<CallId>) {
    let mut pair = Pair::acquainted_with(small(), ServerConfig::default());
    let ids = (0..calls).map(|token| pair.start(token, b"call")).collect();
    let sent = pair.sent();
    pair.receive(&sent);
    (pair, ids)
}

/// What is said of a hundred calls at once takes as many datagrams as it needs.
#[test]
fn whatever_is_to_be_said_of_many_calls_is_said_of_each() {
    const CALLS: usize = 100;
    let said = |pair: &mut Pair, kind: u8| {
        let sent = pair.sent();
        assert!(sent.len() > 1 && sent.iter().all(|d| d.len() <= 1200));
        assert_eq!(sent.iter().flat_map(|d| frames_of(d)).filter(|frame| *frame == kind).count(), CALLS);
        pair.receive(&sent);
    };
    // That they are given up.
    let (mut pair, ids) = executing(CALLS as u64);
    ids.iter().for_each(|id| pair.client.cancel(pair.now, *id));
    said(&mut pair, CANCEL);
    assert_eq!(pair.cancelled.len(), CALLS);
    // That they are waited for.
    let (mut pair, ids) = executing(CALLS as u64);
    ids.iter().for_each(|id| pair.client.detach(*id, false));
    said(&mut pair, PROBE);
    // What has arrived of their results, and that all has.
    for (offsets, told) in [(&[4][..], 0), (&[4, 0], CALLS)] {
        let (mut pair, ids) = executing(CALLS as u64);
        for id in ids {
            let fragment = |offset| frame_about(RESULT, 2, id.activity, id.sequence as u32, &[0, 8, offset, 7]);
            let fragments = offsets.iter().map(|offset| forged(pair.client.id(), 1, &[fragment(*offset)]));
            pair.hear(&fragments.collect::<Vec<_>>());
        }
        said(&mut pair, SELECT);
        assert_eq!(pair.told.len(), told);
    }
}

#[test]
fn a_result_is_taken_only_by_the_call_that_was_sent_and_of_the_exchange_that_is_the_call() {
    let (mut pair, _, key) = Pair::executing(b"call");
    let result = pair.finish(key, Finish::Result, b"done");
    let mut unsent = Pair::acquainted();
    unsent.start(1, b"call");
    let before = unsent.client.stats().duplicates;
    unsent.hear(&result);
    assert_eq!((&unsent.told[..], unsent.client.stats().duplicates - before), (&[][..], 1));
    let mut other = result[0].clone();
    other[20 + 4 + 7] = 1;
    pair.hear(&[readdressed(&other, pair.client.id())]);
    // Flags that nobody knows mean nothing; whom it is for does.
    let mut flagged = result[0].clone();
    flagged[20 + 1] = 0x40;
    pair.hear(&[readdressed(&flagged, 0)]);
    assert_eq!(pair.told, []);
    pair.hear(&[readdressed(&flagged, pair.client.id())]);
    assert_eq!(pair.told, [(1, Told::Result(b"done".to_vec()))]);
}

#[test]
fn fragments_of_another_message_are_dropped() {
    let (mut pair, id, _) = Pair::executing(b"call");
    let before = pair.client.stats().dropped;
    // Its outcome, its length, where the fragment stands, and its bytes.
    for words in [[0, 8, 4, 7], [0, 12, 0, 7], [1 << 24, 8, 0, 7], [0, 8, 8, 7]] {
        let fragment = frame_about(RESULT, 2, id.activity, id.sequence as u32, &words);
        pair.hear(&[forged(pair.client.id(), 1, &[fragment])]);
    }
    assert_eq!((&pair.told[..], pair.client.stats().dropped - before), (&[][..], 3));
    let last = frame_about(RESULT, 2, id.activity, id.sequence as u32, &[0, 8, 0, 7]);
    pair.hear(&[forged(pair.client.id(), 1, &[last])]);
    assert_eq!(pair.told, [(1, Told::Result(vec![0, 0, 0, 7, 0, 0, 0, 7]))]);
}

/// The way in which a driver looks whether a datagram is just the result that it waits for.
#[test]
fn only_the_first_word_about_a_call_that_was_sent_once_is_taken_as_just_its_result() {
    for word in ["none", "sent again", "running", "cancelled", "another conversation", "no checksum"] {
        let (mut pair, id, key) = Pair::executing(b"call");
        match word {
            "sent again" => {
                pair.pass(20 * MS);
                pair.tick();
            }
            "running" => {
                pair.pass(20 * MS);
                let running = frame_about(STATE, 0, id.activity, id.sequence as u32, &[2]);
                pair.hear(&[forged(pair.client.id(), 1, &[running])]);
            }
            "cancelled" => pair.client.cancel(pair.now, id),
            _ => {}
        }
        let mut result = pair.finish(key, Finish::Result, b"done").remove(0);
        match word {
            "another conversation" => result = readdressed(&result, pair.client.id() ^ 1),
            "no checksum" => {
                let len = result.len();
                result[1] = 1;
                result[len - 8..].copy_from_slice(&(len as u64).to_be_bytes());
            }
            _ => {}
        }
        let (before, now) = (pair.client.stats().received, pair.now);
        let taken = pair.client.take_result(|| now, id, None, &result).is_some();
        assert_eq!((taken, pair.client.stats().received - before), (word == "none", u64::from(taken)), "{word}");
        assert_eq!(pair.client.outstanding(), usize::from(!taken));
    }
}

#[test]
fn a_failure_that_the_caller_did_not_ask_for_is_not_called_a_cancel() {
    let (mut pair, _, key) = Pair::executing(b"call");
    let failure = Failure::new(Kind::Other, Ran::No);
    let answers = pair.finish(key, failure.into(), &[]);
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Other, Ran::No))]);
    // If he did, why the call never runs is known here: the server says only that it does not.
    for (ran, told) in [(0, Told::Failed(Kind::Cancelled, Ran::No)), (2, Told::Failed(Kind::Other, Ran::Yes))] {
        let (mut pair, id, _) = Pair::executing(b"call");
        pair.client.cancel(pair.now, id);
        let refusal = frame_about(RESULT, 0, id.activity, id.sequence as u32, &[2 << 24 | ran << 16, 0]);
        pair.hear(&[forged(pair.client.id(), 1, &[refusal])]);
        assert_eq!(pair.told, [(1, told)]);
    }
}

#[test]
fn the_next_call_says_too_that_a_long_result_has_arrived() {
    let (mut pair, id, _) = Pair::executing(b"call");
    for offset in [0, 4] {
        let fragment = frame_about(RESULT, 2, id.activity, id.sequence as u32, &[0, 8, offset, 7]);
        pair.hear(&[forged(pair.client.id(), 1, &[fragment])]);
    }
    let mut out = [0; 2048];
    assert!(pair.client.call((EXPORT, 1), 2, &mut b"call".to_vec(), &mut out).is_none());
    pair.start(2, b"call");
    assert_eq!(pair.sent().iter().map(|d| frames_of(d)).collect::<Vec<_>>()[0], [SELECT, CALL]);
}

#[test]
fn the_largest_result_is_as_long_as_the_setting_says() {
    for (len, told) in [(2000, Told::Result(vec![7; 2000])), (2004, Told::Failed(Kind::TooLarge, Ran::Yes))] {
        let mut pair = Pair::acquainted_with(ClientConfig { max_result: 2000, ..small() }, ServerConfig::default());
        pair.start(1, b"call");
        pair.answer = Some(vec![7; len]);
        pair.carry(1, Duration::from_secs(1), |_, _, _| true);
        assert_eq!(pair.told, [(1, told)]);
    }
}

#[test]
fn a_server_that_does_not_know_a_call_is_told_of_it_again_or_that_it_is_given_up() {
    for (cancelled, says) in [(false, CALL), (true, CANCEL)] {
        let (mut pair, id, _) = Pair::executing(b"call");
        if cancelled {
            pair.client.cancel(pair.now, id);
            assert_eq!(pair.sent().len(), 1);
        }
        let unknown = frame_about(STATE, 0, id.activity, id.sequence as u32, &[0]);
        pair.hear(&[forged(pair.client.id(), 1, &[unknown])]);
        assert_eq!(pair.sent().iter().map(|d| frames_of(d)).collect::<Vec<_>>(), [[says]]);
    }
}

#[test]
fn who_gave_the_ticket_proves_it_and_nobody_else() {
    let mut pair = Pair::new();
    assert!(pair.client.expected_proof(b"question").is_none(), "there is no ticket");
    pair.client.bind(pair.now, "", 1);
    pair.settle();
    let (holder, proof) = pair.client.expected_proof(b"question").expect("a ticket");
    assert_eq!(pair.server.prove(&holder, b"question"), proof);
    assert_ne!(pair.server.prove(&holder, b"another"), proof);
    pair.restart_server(8);
    assert_ne!(pair.server.prove(&holder, b"question"), proof);
}
