//! The server's statistics: each test checks which counters grow, and that no other counter does.

mod common;

use common::*;
use farcall_proto::server::{Finish, Stats};
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig};

/// Returns the counters that have grown since `before`, by name, and by how much.
fn since(before: &Stats, pair: &Pair) -> Vec<(&'static str, u64)> {
    let row = |stats: &Stats| {
        [
            ("calls", stats.calls),
            ("sent", stats.sent),
            ("received", stats.received),
            ("dropped", stats.dropped),
            ("bytes sent", stats.bytes_sent),
            ("duplicates", stats.duplicates),
            ("retransmitted", stats.retransmitted),
            ("challenges", stats.challenges),
            ("stale", stats.stale),
            ("evicted", stats.evicted),
            ("evicted calls", stats.evicted_calls),
            ("refused", stats.refused.iter().sum()),
        ]
    };
    let both = row(pair.server.stats()).into_iter().zip(row(before));
    both.map(|((name, after), (_, before))| (name, after - before)).filter(|(_, more)| *more > 0).collect()
}

/// Returns a pair of a server with these settings and an honest client, and a peer that the server knows.
fn with_peer(server: ServerConfig) -> (Pair, Peer) {
    let client = ClientConfig { max_datagram: 1200, ..ClientConfig::default() };
    let mut pair = Pair::acquainted_with(client, server);
    let peer = join(&mut pair, HARM, 1);
    pair.answered();
    (pair, peer)
}

/// Delivers these frames from a peer. Returns the counters that have grown, except those of datagrams, and
/// the number of answers.
fn counted(pair: &mut Pair, peer: Peer, frames: &[Vec<u8>]) -> (Vec<(&'static str, u64)>, usize) {
    let before = *pair.server.stats();
    comes(pair, peer, frames);
    let answers: Vec<Datagram> = pair.answered();
    let counted = since(&before, pair);
    let bytes = counted.iter().find(|(name, _)| *name == "bytes sent").map_or(0, |(_, bytes)| *bytes);
    assert_eq!(answers.iter().map(Vec::len).sum::<usize>() as u64, bytes);
    assert!(counted.contains(&("received", 1)));
    let of_datagrams = ["received", "sent", "bytes sent"];
    let rest = counted.into_iter().filter(|(name, _)| !of_datagrams.contains(name)).collect();
    (rest, answers.len())
}

/// Returns the frame of a call without arguments.
fn call(activity: u32, sequence: u32, export: u32) -> Vec<u8> {
    frame_about(CALL, 0, activity, sequence, &[0, export, 1])
}

const EXPORTED: u32 = EXPORT as u32;

#[test]
fn a_call_and_its_duplicates_are_counted_as_one_call() {
    let (mut pair, peer) = with_peer(ServerConfig::default());
    let once = [call(3, 9, EXPORTED)];
    assert_eq!(counted(&mut pair, peer, &once), (vec![("calls", 1)], 0));
    assert_eq!(counted(&mut pair, peer, &once), (vec![("duplicates", 1)], 1));
    let (key, _) = pair.asked.pop().unwrap();
    let before = *pair.server.stats();
    let result = pair.finish(key, Finish::Result, b"done");
    assert_eq!(since(&before, &pair), [("sent", 1), ("bytes sent", result[0].len() as u64)]);
    assert_eq!(counted(&mut pair, peer, &once), (vec![("duplicates", 1), ("retransmitted", 1)], 1));
    // The call is older than the last of its activity.
    assert_eq!(counted(&mut pair, peer, &[call(3, 8, EXPORTED)]), (vec![("duplicates", 1)], 0));
    // The call is new, and its activity was used before.
    assert_eq!(counted(&mut pair, peer, &[call(3, 10, EXPORTED)]), (vec![("calls", 1)], 0));
    assert_eq!(pair.server.unfinished(), 1);
}

#[test]
fn malformed_and_misdirected_frames_are_counted_as_dropped() {
    let (mut pair, peer) = with_peer(ServerConfig::default());
    let one = (vec![("dropped", 1)], 0);
    for senseless in [
        // These are a body that is too short, a frame that only servers send, and frames at impossible
        // positions.
        frame(CALL, 0, &[1, 2]),
        frame_about(STATE, 0, 1, 1, &[0]),
        frame_about(CALL, 0, 3, 0, &[0, EXPORTED, 1]),
        frame(CALL, 0, &[3, 1, 0, 9, 0, EXPORTED, 1]),
        frame(PROBE, 0, &[3, 1, 0, 9]),
    ] {
        assert_eq!(counted(&mut pair, peer, &[senseless]), one);
    }
    // The second of two acknowledgements in a datagram is dropped.
    assert_eq!(counted(&mut pair, peer, &vec![frame(ACK, 0, &[0, 1, 1200]); 2]), one);
    // The fragment goes beyond the end of its message.
    assert_eq!(counted(&mut pair, peer, &[fragment(4, 9, 100, 98, 4)]), one);
    // The second fragment contradicts the first of its message; the third does not.
    let both = vec![("dropped", 1), ("duplicates", 1)];
    assert_eq!(counted(&mut pair, peer, &[fragment(5, 9, 100, 0, 4)]), (vec![], 0));
    assert_eq!(counted(&mut pair, peer, &[fragment(5, 9, 104, 4, 4)]), (both, 0));
    assert_eq!(counted(&mut pair, peer, &[fragment(5, 9, 100, 4, 4)]), (vec![("duplicates", 1)], 0));
    // A datagram that was changed on its way is counted as dropped only.
    let before = *pair.server.stats();
    let mut changed = forged(peer.id, 7, &[call(3, 9, EXPORTED)]);
    changed[30] ^= 1;
    pair.receive(&[changed]);
    assert_eq!(since(&before, &pair), [("dropped", 1)]);
}

#[test]
fn refusals_are_counted_by_their_kind() {
    let (mut pair, peer) = with_peer(ServerConfig { max_arguments: 8, ..ServerConfig::default() });
    let mut refused = |kind: Kind, refuse: &mut dyn FnMut(&mut Pair)| {
        let before = pair.server.stats().refused;
        refuse(&mut pair);
        let after = pair.server.stats().refused;
        let more: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
        assert_eq!(more.iter().sum::<u64>(), 1, "{kind}");
        assert_eq!(more[usize::from(kind.code())], 1, "{kind}");
    };
    refused(Kind::NotExported, &mut |pair| _ = comes(pair, peer, &[call(0, 10, 5)]));
    refused(Kind::TooLarge, &mut |pair| {
        comes(pair, peer, &[frame_about(CALL, 0, 0, 11, &[0, EXPORTED, 1, 0, 0, 0])]);
    });
    refused(Kind::Cancelled, &mut |pair| {
        comes(pair, peer, &[fragment(0, 12, 8, 0, 4)]);
        comes(pair, peer, &[frame_about(CANCEL, 0, 0, 12, &[])]);
    });
    refused(Kind::Deadline, &mut |pair| {
        comes(pair, peer, &[call(0, 13, EXPORTED)]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.finish(key, Failure::new(Kind::Deadline, Ran::No).into(), &[]);
    });
    refused(Kind::Draining, &mut |pair| {
        pair.server.drain(pair.now, None);
        comes(pair, peer, &[call(0, 14, EXPORTED)]);
    });
}

#[test]
fn conversations_that_are_forgotten_and_tickets_that_are_refused_are_counted() {
    let (mut pair, peer) = with_peer(ServerConfig { max_conversations: 2, ..ServerConfig::default() });
    let ticket = |client: u64| {
        let mut ticket = frame(0x05, 0, &[0; 11]);
        ticket[4..12].copy_from_slice(&client.to_be_bytes());
        ticket
    };
    let stranger = Peer { id: 5, ..peer };
    assert_eq!(counted(&mut pair, stranger, &[call(0, 9, EXPORTED)]), (vec![("challenges", 1)], 1));
    assert_eq!(counted(&mut pair, stranger, &[ticket(8), call(0, 9, EXPORTED)]), (vec![("stale", 1)], 1));
    // The server ignores a ticket in a conversation that it knows.
    assert_eq!(counted(&mut pair, peer, &[ticket(8), call(0, 9, EXPORTED)]), (vec![("calls", 1)], 0));
    pair.asked.clear();
    let before = *pair.server.stats();
    join(&mut pair, HARM, 2);
    let evicted = since(&before, &pair).into_iter().find(|(name, _)| *name == "evicted");
    assert_eq!((evicted, pair.server.conversations()), (Some(("evicted", 1)), 2));
}

#[test]
fn calls_that_are_refused_for_lack_of_room_are_counted_with_the_client_of_the_last() {
    let (mut pair, peer) = with_peer(ServerConfig { reassembly_budget: 4000, ..ServerConfig::default() });
    assert_eq!(counted(&mut pair, peer, &[fragment(0, 9, 5000, 0, 1000)]), (vec![], 0));
    assert_eq!(pair.server.stats().paid, None);
    let (counted, _) = counted(&mut pair, peer, &[fragment(1, 9, 5000, 0, 1000)]);
    assert_eq!(counted, [("evicted calls", 1), ("refused", 1)]);
    assert_eq!(pair.server.stats().paid, Some(peer.at));
}

#[test]
fn datagrams_in_fragments_and_in_envelopes_are_counted_with_all_their_bytes() {
    let (mut pair, peer) = with_peer(ServerConfig::default());
    let ask = |pair: &mut Pair, sequence| {
        comes(pair, peer, &[call(0, sequence, EXPORTED)]);
        (pair.asked.pop().unwrap().0, *pair.server.stats())
    };
    // The result is sent in fragments.
    let (key, before) = ask(&mut pair, 10);
    let datagrams = pair.finish(key, Finish::Result, &[7; 5000]);
    let bytes: usize = datagrams.iter().map(Vec::len).sum();
    assert_eq!(since(&before, &pair), [("sent", datagrams.len() as u64), ("bytes sent", bytes as u64)]);
    // The result is sent at once. (`fragments.rs` tests the counts of datagrams in parts.)
    let mut out = vec![0; 1200];
    comes(&mut pair, peer, &[frame_about(SELECT, 0, 0, 10, &[5000, 5000, 0, 0])]);
    let datagram = forged(peer.id, 7, &[call(0, 12, EXPORTED)]);
    let now = pair.now;
    let key = pair
        .server
        .receive_call(now, || now, &peer.at, (&datagram, None), &mut |_| {})
        .expect("the datagram holds just one call")
        .key;
    let before = *pair.server.stats();
    let sent = pair.server.finish(now, key, Finish::Result, &mut b"done".to_vec(), &mut out);
    let len = sent.expect("the result fits into a datagram").len;
    assert_eq!(since(&before, &pair), [("sent", 1), ("bytes sent", len as u64)]);
}
