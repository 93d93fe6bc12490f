//! Packet traces of hostile peers. Nothing may panic, and answers and memory must stay within their bounds.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::Conversation;
use farcall_proto::server::Finish;
use farcall_proto::{Kind, READINGS, ServerConfig};

/// Returns the server's identifier of the pair's conversation.
fn known(pair: &mut Pair) -> u64 {
    pair.start(99, b"who?");
    let call = pair.sent();
    pair.receive(&call);
    pair.answered();
    conversation_of(&call[0])
}

#[test]
fn one_datagram_with_many_questions_is_answered_once() {
    let mut pair = Pair::new();
    let bind = frame(BIND, 0, &[0, 7, 0, 9, 0x0001_0001, 1, 0, 0, 0, 0, 0, 0]);
    let many = forged(0, 1, &vec![bind; 1000]);
    pair.receive(&[many]);
    assert_eq!(pair.answered().len(), 1);
}

#[test]
fn one_datagram_with_many_probes_of_its_size_is_echoed_once() {
    let mut pair = Pair::acquainted();
    let id = known(&mut pair);
    let probe = frame(MTU_PROBE, 0, &[8000]);
    pair.receive(&[forged(id, 9, &vec![probe; 1000])]);
    assert_eq!(pair.answered().len(), 1);
    for size in [0, 4, 27, 28, 36, 1199, 60_000, u32::MAX] {
        pair.receive(&[forged(id, 10, &[frame(MTU_PROBE, 0, &[size]), frame(PADDING, 0, &[0; 400])])]);
        assert_eq!(pair.answered().len(), 0, "{size}");
    }
}

#[test]
fn a_limit_that_is_no_multiple_of_four_cuts_no_fragment_short() {
    let mut pair = Pair::acquainted();
    pair.start(1, &vec![1; 40_000]);
    let call = pair.sent();
    let id = conversation_of(&call[0]);
    pair.receive(&call);
    pair.answered();
    // The server grants 12,003 bytes and no more.
    let select = frame_about(SELECT, 0, 0, 2, &[1000, 12_003, 0, 5]);
    pair.hear(&[forged(0xc11e, 900, &[select])]);
    pair.hear(&[forged(0xc11e, 901, &[frame_about(SELECT, 0, 0, 2, &[1000, 20_001, 0, 5])])]);
    for d in pair.sent() {
        assert_eq!(conversation_of(&d), id);
        assert!(d.len().is_multiple_of(4));
    }
}

#[test]
fn an_impossible_acknowledgement_is_harmless() {
    let mut pair = Pair::acquainted();
    let id = known(&mut pair);
    let ack = frame(ACK, 0, &[u32::MAX, u32::MAX, u32::MAX]);
    pair.receive(&[forged(id, 9, &vec![ack; 1000])]);
    pair.receive(&[forged(id, 9, &[frame(ACK, 0, &[0, 0, 0])])]);
    pair.settle();
    assert_eq!(pair.told.len(), 1);
}

/// Returns how many of 100 conversations the server remembers after each has named 4,096 activities. The
/// activities of one conversation take 64 KiB.
fn wide_conversations(max_conversations: usize) -> usize {
    let mut pair = Pair::with(Default::default(), ServerConfig { max_conversations, ..Default::default() });
    for n in 0..100 {
        pair.from.set_port(2000 + n);
        pair.client = Conversation::new(Default::default(), u64::from(n) + 1);
        pair.start(0, b"");
        pair.settle();
        let id = known(&mut pair);
        pair.settle();
        for activities in [0..2048, 2048..4096] {
            let cancels: Vec<_> =
                activities.map(|activity| frame_about(CANCEL, 0, activity, 7, &[])).collect();
            // The server would not act on more frames at once, and forgets no conversation of the last minute
            // for its activities.
            pair.pass(Duration::from_secs(5));
            pair.receive(&[forged(id, 99, &cancels)]);
            pair.answered();
        }
    }
    pair.server.conversations()
}

#[test]
fn activities_cost_a_bounded_amount_of_memory() {
    assert_eq!(wide_conversations(1 << 20), 100);
    let remembered = wide_conversations(200);
    assert!((10..=17).contains(&remembered), "{remembered}");
}

#[test]
fn impossible_frames_about_fragments_are_harmless() {
    let extremes = [0, 1, 3, 1000, 11_999, 12_000, 65_507, 1 << 30, u32::MAX];
    for through in extremes {
        for limit in extremes {
            let mut pair = Pair::acquainted();
            pair.start(1, &vec![1; 100_000]);
            pair.sent();
            for flags in [0, 1] {
                let words = [through, limit, u32::MAX, u32::MAX, 3, 2, u32::MAX, 0, 1200, 65_000];
                pair.hear(&[forged(0xc11e, 1, &[frame_about(SELECT, flags, 0, 2, &words)])]);
                pair.sent();
            }
        }
    }
}

#[test]
fn a_call_at_a_position_that_no_caller_has_is_not_executed() {
    let mut pair = Pair::acquainted();
    let id = known(&mut pair);
    pair.asked.clear();
    let most = ServerConfig::default().max_activities;
    // Each row is: the activity, the exchange, and both halves of the sequence number.
    let odd = [
        [1, 1, 0, 9],
        [1, 0, 1 << 31, 9],
        [1, 0, 1 << 31, 0],
        [1, 0, 0, 0],
        [most, 0, 0, 9],
        [u32::MAX, 0, 0, 9],
        // The last call of activity 2 is over.
        [2, 1, 0, 9],
        [2, 0, 1 << 31, 9],
    ];
    pair.receive(&[forged(id, 9, &[frame_about(CALL, 0, 2, 1, &[0, EXPORT as u32, 1])])]);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, b"over");
    let call = |position: [u32; 4], procedure| {
        frame(CALL, 0, &[&position[..], &[0, EXPORT as u32, procedure]].concat())
    };
    for position in odd {
        for procedure in [1, READINGS + 1] {
            pair.receive(&[forged(id, 9, &[call(position, procedure)])]);
            pair.receive(&[forged(id, 9, &[call(position, procedure), call(position, procedure)])]);
            assert!(pair.asked.is_empty(), "{position:?}");
        }
        pair.answered();
        for kind in [CANCEL, PROBE] {
            pair.receive(&[forged(id, 9, &[frame(kind, 0, &position)])]);
            assert!(pair.answered().is_empty(), "{position:?}");
        }
    }
    pair.receive(&[forged(id, 9, &[call([most - 1, 0, 0, 9], 1)])]);
    assert_eq!(pair.asked.len(), 1);
}

/// Returns whether the server refuses, as a mismatch, a client whose BIND names these versions and schemes.
fn is_refused(versions: u32, schemes: u32) -> bool {
    let mut pair = Pair::new();
    let bind = frame(BIND, 0, &[0, 7, 0, 9, versions, schemes, 0, 0, 0, 0, 0, 0]);
    pair.receive(&[forged(0, 1, &[bind])]);
    let answers = pair.answered();
    let welcome = farcall_proto::dump::dump(&answers[0]).unwrap();
    welcome.frames()[0].contains(&Kind::Mismatch.to_string())
}

#[test]
fn a_client_of_other_versions_is_refused() {
    for (least, most, refused) in [(0, 0, true), (0, 1, false), (1, 1, false), (1, 2, false), (2, 3, true)] {
        assert_eq!(is_refused(least << 16 | most, 1), refused, "{least} to {most}");
    }
}

#[test]
fn a_client_that_offers_no_scheme_of_the_server_is_refused() {
    let every = u32::MAX;
    for (schemes, refused) in [(0, true), (1, false), (2, true), (3, false), (1 << 5, true), (every, false)] {
        assert_eq!(is_refused(0x0001_0001, schemes), refused, "{schemes:b}");
    }
}

#[test]
fn a_fragment_of_an_earlier_call_of_the_activity_is_ignored() {
    let mut pair = Pair::acquainted();
    let peer = join(&mut pair, HARM, 1);
    comes(&mut pair, peer, &[fragment(3, 9, 8, 0, 4)]);
    comes(&mut pair, peer, &[fragment(3, 8, 8, 4, 4)]);
    assert!(pair.asked.is_empty());
    comes(&mut pair, peer, &[fragment(3, 9, 8, 4, 4)]);
    assert_eq!(pair.asked.len(), 1);
}

#[test]
fn a_probe_or_cancel_of_an_earlier_call_of_the_activity_is_not_answered() {
    let mut pair = Pair::acquainted();
    let peer = join(&mut pair, HARM, 1);
    comes(&mut pair, peer, &[frame_about(CALL, 0, 3, 9, &[0, EXPORT as u32, 1])]);
    for kind in [PROBE, CANCEL] {
        comes(&mut pair, peer, &[frame_about(kind, 0, 3, 8, &[])]);
        assert_eq!((pair.answered().len(), pair.cancelled.len()), (0, 0));
    }
    comes(&mut pair, peer, &[frame_about(PROBE, 0, 3, 9, &[])]);
    assert_eq!(pair.answered().len(), 1);
}

#[test]
fn a_fragment_that_asks_for_nothing_and_leaves_no_gap_is_not_answered() {
    let mut pair = Pair::acquainted();
    let peer = join(&mut pair, HARM, 1);
    for offset in [0, 100] {
        comes(&mut pair, peer, &[fragment(3, 9, 300, offset, 100)]);
        assert_eq!(pair.answered(), Vec::<Datagram>::new());
    }
}

/// The server drops a queued SELECT when the last fragment arrives before the SELECT is sent.
#[test]
fn a_select_that_is_no_longer_needed_is_dropped_and_other_answers_are_sent() {
    for pointless_first in [true, false] {
        let mut pair = Pair::acquainted();
        let peer = join(&mut pair, HARM, 1);
        let probe = frame_about(PROBE, 0, 4, 9, &[]);
        let gap = fragment(3, 9, 8, 4, 4);
        let first = if pointless_first { [gap, probe] } else { [probe, gap] };
        comes(&mut pair, peer, &first);
        comes(&mut pair, peer, &[fragment(3, 9, 8, 0, 4)]);
        assert_eq!(pair.asked.len(), 1);
        let answers = pair.answered();
        assert_eq!(answers.iter().map(|answer| frames_of(answer)).collect::<Vec<_>>(), [[STATE]]);
    }
}

#[test]
fn a_welcome_shares_its_datagram_with_no_other_frame() {
    let mut pair = Pair::acquainted();
    let id = known(&mut pair);
    pair.client.bind(pair.now, "Store", 1);
    let question = pair.sent();
    pair.receive(&question);
    pair.receive(&[forged(id, 9, &[frame_about(PROBE, 0, 5, 9, &[])])]);
    assert_eq!(pair.answered().len(), 2);
}

#[test]
fn a_select_has_no_more_ranges_than_its_limit() {
    let mut pair = Pair::acquainted();
    pair.start(1, &[1; 40_000]);
    pair.sent();
    for (ranges, dropped) in [(32, 0), (33, 1), (100, 1)] {
        let before = pair.client.stats().dropped;
        let words: Vec<u32> = [0, 12_000, 0, 5].into_iter().chain((0..2 * ranges).map(|n| 100 * n)).collect();
        pair.hear(&[forged(0xc11e, 900, &[frame_about(SELECT, 0, 0, 2, &words)])]);
        assert_eq!(pair.client.stats().dropped - before, dropped, "{ranges}");
    }
}
