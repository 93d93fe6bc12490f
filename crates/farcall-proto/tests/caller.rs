//! Packet traces of a client: what it sends about its calls, which datagrams it accepts, and what it counts.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::{Call, CallId, CallProgress};
use farcall_proto::fuzzing::kinds::{MTU_ECHO, WELCOME};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig};

const MS: Duration = Duration::from_millis(1);

/// Returns the configuration of a client that never probes larger datagrams than 1,200 bytes.
fn small() -> ClientConfig {
    ClientConfig { max_datagram: 1200, ..ClientConfig::default() }
}

/// Returns a datagram with the same frames, sent to another conversation.
fn readdressed(datagram: &Datagram, conversation: u64) -> Datagram {
    forged(conversation, 1 << 40, &[datagram[20..datagram.len() - 8].to_vec()])
}

#[test]
fn a_frame_other_than_a_hint_has_to_name_the_clients_conversation() {
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
        let echoes = |d: &Datagram| frames_of(d)[0] == MTU_ECHO;
        let (sizes, selects): (Vec<_>, Vec<_>) = answers.into_iter().partition(echoes);
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
        (
            pair.told.len(),
            client.stats().in_flight,
            client.stats().datagram,
            client.timeout(),
            client.is_quiet(0),
        )
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
fn the_client_counts_its_calls_and_datagrams() {
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
    // Calls on the fast path are counted, too.
    let mut out = [0; 2048];
    let lone = pair.client.start_lone((EXPORT, 1), b"call", &mut out).expect("there is no other call");
    pair.receive(&[out[..lone.bytes].to_vec()]);
    let (key, _) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, b"done");
    let now = pair.now;
    assert!(pair.client.end_lone(|| now, &lone, Some(now), (&result[0], None)).is_some());
    assert!(pair.client.start_lone((EXPORT, 1), b"call", &mut out).is_some());
    let last = counts(&pair);
    let did: [u64; 7] = std::array::from_fn(|i| last[i] - after[i]);
    assert_eq!(did, [2, 2, 1, 0, 0, 0, 0]);
}

#[test]
fn a_call_is_marked_as_detached_in_its_call_or_in_a_probe() {
    for (sent, later, says) in [
        (false, false, vec![(CALL, 0x08)]),
        (false, true, vec![(CALL, 0x08)]),
        (true, false, vec![(PROBE, 0x01)]),
        (true, true, vec![]),
    ] {
        let mut pair = Pair::acquainted();
        let id = pair.start(1, b"long");
        assert_eq!(pair.client.progress(id), CallProgress::Unsent);
        if sent {
            pair.sent();
            assert_eq!(pair.client.progress(id), CallProgress::Sent);
        }
        assert_ne!(pair.client.progress(id), CallProgress::Ended);
        pair.client.detach(id, later);
        let said: Vec<(u8, u8)> = pair.sent().iter().map(|d| (d[20], d[21])).collect();
        assert_eq!(said, says, "sent {sent}, later {later}");
    }
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"done");
    pair.settle();
    assert_eq!(pair.client.progress(id), CallProgress::Ended);
}

#[test]
fn many_small_calls_make_the_client_probe_larger_datagrams() {
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
fn a_call_is_sent_whole_if_it_fits_a_datagram_beside_a_ticket_and_an_ack() {
    // A TICKET has 48 bytes, an ACK 16.
    const WHOLE: usize = 1200 - 60 - 48 - 16;
    for (len, flags) in [(WHOLE, [0, 0]), (WHOLE + 4, [0, 2])] {
        let mut pair = Pair::acquainted_with(small(), ServerConfig::default());
        let start = |pair: &mut Pair, token| pair.start(token, &vec![token as u8; len]);
        start(&mut pair, 1);
        start(&mut pair, 2);
        let sent = pair.sent();
        assert!(sent.iter().all(|d| frames_of(d) == [ACK, CALL]));
        assert_eq!(sent.iter().map(|d| d[20 + 16 + 1]).collect::<Vec<_>>(), flags, "flags of {len} bytes");
    }
    // Calls of any length near this bound arrive, with and without a deadline.
    let lengths = (WHOLE - 40..=WHOLE + 80).step_by(4);
    for (len, limited) in lengths.flat_map(|len| [(len, false), (len, true)]) {
        let mut pair = Pair::with(small(), ServerConfig::default());
        pair.client.bind(pair.now, "", 0);
        pair.settle();
        for token in 1..=3 {
            let deadline = limited.then_some(pair.now + 1000 * MS);
            let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token };
            pair.client.start(|| pair.now, &call, &mut vec![7; len]).expect("room for a call");
        }
        pair.settle();
        assert_eq!(pair.told.len(), 4, "{len} bytes, with a deadline: {limited}");
    }
}

#[test]
fn the_fast_path_takes_a_call_that_fits_the_datagram() {
    let (mut pair, mut out) = (Pair::acquainted(), vec![0; 2048]);
    let fits = (1140, 2048, true);
    for (len, room, usual) in [(1144, 2048, false), (1140, 1199, false), (3, 2048, false), fits] {
        let lone = pair.client.start_lone((EXPORT, 1), &vec![7; len], &mut out[..room]);
        assert_eq!(lone.map(|lone| lone.bytes), usual.then_some(len + 60));
    }
    pair.receive(&[out[..1200].to_vec()]);
    assert_eq!(pair.asked[0].1, [7; 1140]);
}

#[test]
fn a_client_that_has_several_calls_at_once_says_which_calls_have_ended() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"call");
    assert!(pair.client.ready() == 1 && pair.client.is_quiet(1) && !pair.client.is_quiet(0));
    let first = pair.sent();
    assert_eq!(frames_of(&first[0]), [CALL], "a single call needs no ACK");
    pair.start(2, b"call");
    pair.start(3, b"call");
    assert!(pair.client.ready() == 2 && pair.client.is_quiet(2) && !pair.client.is_quiet(1));
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
fn an_unreachable_error_brings_only_the_first_retransmission_forward() {
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
fn the_buffer_of_arguments_is_reused() {
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 200]);
    pair.settle();
    let buffer = pair.client.buffer();
    assert!(buffer.is_empty() && buffer.capacity() >= 200, "{}", buffer.capacity());
}

#[test]
fn bytes_in_flight_are_counted_until_they_have_arrived() {
    let mut pair = Pair::acquainted_with(small(), ServerConfig::default());
    pair.start(1, &[7; 5000]);
    let sent = pair.sent();
    assert_eq!(pair.client.stats().in_flight, 5000);
    pair.receive(&sent);
    pair.settle();
    assert_eq!((pair.client.stats().in_flight, pair.told.len()), (0, 1));
}

/// Returns a pair whose server executes this number of calls.
fn executing(calls: u64) -> (Pair, Vec<CallId>) {
    let mut pair = Pair::acquainted_with(small(), ServerConfig::default());
    let ids = (0..calls).map(|token| pair.start(token, b"call")).collect();
    let sent = pair.sent();
    pair.receive(&sent);
    (pair, ids)
}

#[test]
fn frames_about_a_hundred_calls_are_spread_over_several_datagrams() {
    const CALLS: usize = 100;
    let said = |pair: &mut Pair, kind: u8| {
        let sent = pair.sent();
        assert!(sent.len() > 1 && sent.iter().all(|d| d.len() <= 1200));
        assert_eq!(sent.iter().flat_map(|d| frames_of(d)).filter(|frame| *frame == kind).count(), CALLS);
        pair.receive(&sent);
    };
    // The client cancels each call.
    let (mut pair, ids) = executing(CALLS as u64);
    ids.iter().for_each(|id| pair.client.cancel(pair.now, *id));
    said(&mut pair, CANCEL);
    assert_eq!(pair.cancelled.len(), CALLS);
    // The client detaches each call.
    let (mut pair, ids) = executing(CALLS as u64);
    ids.iter().for_each(|id| pair.client.detach(*id, false));
    said(&mut pair, PROBE);
    // The client acknowledges a fragment of each result, or the whole result.
    for (offsets, told) in [(&[4][..], 0), (&[4, 0], CALLS)] {
        let (mut pair, ids) = executing(CALLS as u64);
        for id in ids {
            let (activity, sequence) = (id.activity, id.sequence as u32);
            let fragment = |offset| frame_about(RESULT, 2, activity, sequence, &[0, 8, offset, 7]);
            let client = pair.client.id();
            let fragments = offsets.iter().map(|offset| forged(client, 1, &[fragment(*offset)]));
            pair.hear(&fragments.collect::<Vec<_>>());
        }
        said(&mut pair, SELECT);
        assert_eq!(pair.told.len(), told);
    }
}

#[test]
fn a_result_ends_only_a_call_that_was_sent_and_only_in_the_exchange_of_the_call() {
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
    // The client ignores an unknown flag. It drops a result that names no conversation.
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
    // Each fragment is: outcome, total length, offset, bytes. The first is good. The others differ from it in
    // their length or outcome, or lie beyond the end.
    for words in [[0, 8, 4, 7], [0, 12, 0, 7], [1 << 24, 8, 0, 7], [0, 8, 8, 7]] {
        let fragment = frame_about(RESULT, 2, id.activity, id.sequence as u32, &words);
        pair.hear(&[forged(pair.client.id(), 1, &[fragment])]);
    }
    assert_eq!((&pair.told[..], pair.client.stats().dropped - before), (&[][..], 3));
    let last = frame_about(RESULT, 2, id.activity, id.sequence as u32, &[0, 8, 0, 7]);
    pair.hear(&[forged(pair.client.id(), 1, &[last])]);
    assert_eq!(pair.told, [(1, Told::Result(vec![0, 0, 0, 7, 0, 0, 0, 7]))]);
}

#[test]
fn a_call_on_the_fast_path_ends_only_by_its_result() {
    for word in ["none", "an exception", "another conversation", "no checksum"] {
        let (mut pair, mut out) = (Pair::acquainted(), vec![0; 1200]);
        let lone = pair.client.start_lone((EXPORT, 1), b"call", &mut out).expect("there is no other call");
        pair.receive(&[out[..lone.bytes].to_vec()]);
        let (key, _) = pair.asked.pop().unwrap();
        let finish = if word == "an exception" { Finish::Exception } else { Finish::Result };
        let mut result = pair.finish(key, finish, b"done").remove(0);
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
        let taken = pair.client.end_lone(|| now, &lone, Some(now), (&result, None)).is_some();
        assert_eq!(taken, word == "none", "{word}");
        assert_eq!(pair.client.stats().received - before, u64::from(taken), "{word}");
        assert_eq!(pair.client.stats().outstanding, usize::from(!taken));
    }
}

#[test]
fn a_failure_is_reported_as_cancelled_only_if_the_caller_cancelled_the_call() {
    let (mut pair, _, key) = Pair::executing(b"call");
    let failure = Failure::new(Kind::Other, Ran::No);
    let answers = pair.finish(key, failure.into(), &[]);
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Other, Ran::No))]);
    // The server says that a cancelled call does not run, but not why: the client knows that.
    let cancelled = Told::Failed(Kind::Cancelled, Ran::No);
    for (ran, told) in [(0, cancelled), (2, Told::Failed(Kind::Other, Ran::Yes))] {
        let (mut pair, id, _) = Pair::executing(b"call");
        pair.client.cancel(pair.now, id);
        let refusal = frame_about(RESULT, 0, id.activity, id.sequence as u32, &[2 << 24 | ran << 16, 0]);
        pair.hear(&[forged(pair.client.id(), 1, &[refusal])]);
        assert_eq!(pair.told, [(1, told)]);
    }
}

#[test]
fn the_datagram_of_the_next_call_also_acknowledges_a_long_result() {
    let (mut pair, id, _) = Pair::executing(b"call");
    for offset in [0, 4] {
        let fragment = frame_about(RESULT, 2, id.activity, id.sequence as u32, &[0, 8, offset, 7]);
        pair.hear(&[forged(pair.client.id(), 1, &[fragment])]);
    }
    let mut out = [0; 2048];
    assert!(pair.client.start_lone((EXPORT, 1), b"call", &mut out).is_none());
    pair.start(2, b"call");
    assert_eq!(pair.sent().iter().map(|d| frames_of(d)).collect::<Vec<_>>()[0], [SELECT, CALL]);
}

#[test]
fn the_largest_result_is_as_long_as_the_setting_says() {
    for (len, told) in [(2000, Told::Result(vec![7; 2000])), (2004, Told::Failed(Kind::TooLarge, Ran::Yes))] {
        let client = ClientConfig { max_result: 2000, ..small() };
        let mut pair = Pair::acquainted_with(client, ServerConfig::default());
        pair.start(1, b"call");
        pair.answer = Some(vec![7; len]);
        pair.carry(1, Duration::from_secs(1), |_, _, _| true);
        assert_eq!(pair.told, [(1, told)]);
    }
}

#[test]
fn a_server_that_does_not_know_a_call_is_sent_the_call_or_its_cancel_again() {
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
fn only_the_server_that_gave_the_ticket_can_prove_it() {
    let mut pair = Pair::new();
    assert!(pair.client.expected_proof(b"question").is_none(), "the client has no ticket");
    pair.client.bind(pair.now, "", 1);
    pair.settle();
    let (holder, proof) = pair.client.expected_proof(b"question").expect("a ticket");
    assert_eq!(pair.server.prove(&holder, b"question"), proof);
    assert_ne!(pair.server.prove(&holder, b"another"), proof);
    pair.restart_server(8);
    assert_ne!(pair.server.prove(&holder, b"question"), proof);
}
