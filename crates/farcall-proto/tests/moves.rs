//! Tests of a conversation that moves between two hosts over and over. Tickets for both stay good.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::*;
use farcall_proto::fuzzing::kinds::TICKET;

/// The hosts between which the conversation moves.
const HOSTS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 3, 0, 1]];

/// The number of the conversation's activities. Each has a call that was refused.
const ACTIVITIES: u32 = 100;

/// Returns the TICKET frame of a datagram, if it has one.
fn ticket_of(datagram: &Datagram) -> Option<Vec<u8>> {
    let mut frames = &datagram[20..datagram.len() - 8];
    while let [kind, _, high, low, ..] = *frames {
        let (frame, rest) = frames.split_at(4 + usize::from(u16::from_be_bytes([high, low])));
        if kind == TICKET {
            return Some(frame.to_vec());
        }
        frames = rest;
    }
    None
}

/// Makes a call of the pair's client, from an address. Returns the ticket that the client shows.
fn call_from(pair: &mut Pair, from: SocketAddr) -> Vec<u8> {
    pair.from = from;
    pair.start(1, b"here");
    let mut ticket = None;
    for _ in 0..10 {
        let sent = pair.sent();
        ticket = ticket.or_else(|| sent.iter().find_map(ticket_of));
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    pair.settle();
    ticket.expect("the client shows a ticket")
}

/// A conversation with its two addresses, and its tickets for them.
struct Mover {
    id: u64,
    at: [(SocketAddr, Vec<u8>); 2],
}

/// Returns a mover and its server. The server keeps something for another conversation of each host.
fn mover() -> (Pair, Mover) {
    let mut pair = Pair::new();
    let refused = |activity| frame_about(CALL, 0, activity, 9, &[0, 1 + EXPORT as u32, 1]);
    for host in HOSTS {
        let anchor = join(&mut pair, host, 1);
        comes(&mut pair, anchor, &[refused(0)]);
    }
    let at = HOSTS.map(|host| SocketAddr::from((host, 1000)));
    let at = at.map(|address| (address, call_from(&mut pair, address)));
    pair.pass(Duration::from_secs(1));
    pair.start(1, b"more");
    let id = conversation_of(&pair.sent()[0]);
    let all: Vec<_> = (1..=ACTIVITIES).map(refused).collect();
    comes(&mut pair, Peer { id, at: at[1].0 }, &all);
    pair.answered();
    assert!(pair.server.kept_for(HOSTS[1].into()).calls >= ACTIVITIES as usize);
    (pair, Mover { id, at })
}

/// Delivers 1,000 datagrams of the mover, which come from its two addresses in turn, in such intervals.
/// Returns how often the conversation moved.
fn alternate(pair: &mut Pair, mover: &Mover, interval: Duration) -> usize {
    let mut moves = 0;
    let mut was_at = 1;
    for n in 0..1000 {
        let (at, ticket) = &mover.at[n % 2];
        pair.pass(interval);
        comes(pair, Peer { id: mover.id, at: *at }, std::slice::from_ref(ticket));
        pair.answered();
        let kept = HOSTS.map(|host| pair.server.kept_for(host.into()));
        let is_at = usize::from(kept[1].calls > kept[0].calls);
        moves += usize::from(is_at != was_at);
        was_at = is_at;
        for kept in kept {
            assert!(
                kept.listed + kept.listed_calls <= 2 * (kept.calls + 2) + 3 * 64,
                "{kept:?} after {n} datagrams"
            );
        }
    }
    pair.server.audit();
    moves
}

#[test]
fn the_lists_of_hosts_do_not_grow_with_the_moves_of_a_conversation() {
    let (mut pair, mover) = mover();
    let moves = alternate(&mut pair, &mover, Duration::from_millis(150));
    assert_eq!(moves, 1000, "every datagram came late enough");
}

#[test]
fn a_conversation_that_alternates_between_two_hosts_moves_seldom() {
    let (mut pair, mover) = mover();
    let moves = alternate(&mut pair, &mover, Duration::from_millis(1));
    // It moves three times at once, and then once in 125 ms, and 125 µs more for each of its calls.
    assert!((7..=10).contains(&moves), "{moves} moves in a second");
    // A later datagram finds the conversation, wherever it comes from.
    pair.pass(Duration::from_secs(1));
    assert_eq!(alternate(&mut pair, &mover, Duration::from_millis(150)), 1000);
}

/// A datagram that was sent before the move comes after it.
#[test]
fn a_conversation_that_was_moved_back_by_a_late_datagram_moves_again_at_once() {
    let (mut pair, mover) = mover();
    for which in [0, 1, 0] {
        let (at, ticket) = &mover.at[which];
        comes(&mut pair, Peer { id: mover.id, at: *at }, std::slice::from_ref(ticket));
        assert!(pair.server.kept_for(HOSTS[which].into()).calls >= ACTIVITIES as usize);
    }
}
