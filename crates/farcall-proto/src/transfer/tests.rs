//! Messages in fragments: the receiver assembles them in any order, and the sender decides what to send next.

use super::*;

fn take(incoming: &mut Incoming, total: u32, start: u32, end: u32) -> Taken {
    let bytes: Vec<u8> = (start..end).map(|i| i as u8).collect();
    incoming.take(1, Fragment { total, offset: start, ask: false }, &bytes)
}

/// Returns what gives random numbers below a bound.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut x = seed;
    move |below| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) % below
    }
}

#[test]
fn fragments_join_in_any_order() {
    let mut m = Incoming::new(40, Vec::new(), 0, 0);
    assert_eq!(take(&mut m, 40, 8, 16), Taken::New);
    assert_eq!(take(&mut m, 40, 24, 32), Taken::New);
    assert!(m.beyond().eq([(8, 16), (24, 32)]));
    assert_eq!(take(&mut m, 40, 8, 16), Taken::Nothing);
    assert_eq!(take(&mut m, 40, 16, 24), Taken::New);
    assert!(m.beyond().eq([(8, 32)]));
    assert_eq!(take(&mut m, 40, 0, 8), Taken::New);
    assert_eq!((m.through, m.beyond().count(), m.memory() - m.buffer.capacity()), (32, 0, 0));
    assert_eq!(take(&mut m, 40, 28, 40), Taken::Complete);
    assert_eq!(m.into_bytes(), (0..40).collect::<Vec<u8>>());
}

#[test]
fn a_first_fragment_reserves_no_more_than_its_place() {
    let mut m = Incoming::new(1 << 30, Vec::new(), 0, 0);
    assert_eq!(take(&mut m, 1 << 30, 0, 1000), Taken::New);
    assert!(m.memory() <= 2000);
    assert_eq!(take(&mut m, 1 << 30, 1 << 20, (1 << 20) + 4), Taken::Nothing, "beyond the limit");
    assert_eq!(take(&mut m, 1 << 29, 1000, 1004), Taken::Contradiction);
    // The buffer holds at most twice the bytes that have arrived in order.
    let memory = [2000, 6000, 6000, 6000, 6000, 14_000];
    for (start, memory) in (1..7).map(|n| 1000 * n).zip(memory) {
        assert_eq!((take(&mut m, 1 << 30, start, start + 1000), m.memory()), (Taken::New, memory));
    }
}

#[test]
fn a_fragment_beyond_the_limit_or_the_end_is_not_taken() {
    let mut m = Incoming::new(1 << 20, Vec::new(), 0, 0);
    let limit = m.extent().limit as u32;
    assert_eq!(limit, crate::MAX_DATAGRAM as u32);
    assert_eq!(take(&mut m, 1 << 20, limit - 4, limit + 1), Taken::Nothing);
    assert_eq!(take(&mut m, 1 << 20, limit - 4, limit), Taken::New);
    m.grant(1000);
    assert_eq!(m.extent().limit, u64::from(limit), "a granted limit never falls");
    m.grant(1 << 30);
    assert_eq!(take(&mut m, 1 << 20, (1 << 20) - 4, (1 << 20) + 4), Taken::Contradiction);
    assert_eq!(take(&mut m, 1 << 20, (1 << 20) - 4, 1 << 20), Taken::New);
    let mut m = Incoming::new(1 << 20, Vec::new(), 0, 100_000);
    assert_eq!(take(&mut m, 1 << 20, 99_996, 100_000), Taken::New, "the limit is 100,000 from the start");
}

#[test]
fn the_receiver_acknowledges_if_the_sender_asks_or_a_fragment_is_missing() {
    let mut m = Incoming::new(100, Vec::new(), 0, 0);
    let mut due = |number: u64, start: u32, end: u32, ask| {
        let bytes = vec![0; (end - start) as usize];
        let taken = m.take(number, Fragment { total: 100, offset: start, ask }, &bytes);
        let due = m.acknowledge_due();
        m.acknowledged();
        assert!(!m.acknowledge_due(), "one acknowledgement is enough");
        (taken, due, m.extent().largest)
    };
    assert_eq!(due(7, 0, 10, false), (Taken::New, false, 7));
    assert_eq!(due(8, 10, 20, true), (Taken::New, true, 8));
    assert_eq!(due(6, 0, 10, false), (Taken::Nothing, true, 8), "a duplicate is acknowledged");
    assert_eq!(due(9, 30, 40, false), (Taken::New, true, 9), "there is a gap");
    assert_eq!(due(10, 20, 30, false), (Taken::New, false, 10));
}

#[test]
fn a_message_may_arrive_backwards_in_the_smallest_fragments() {
    for room in [0, 4000] {
        let mut m = Incoming::new(4000, Vec::with_capacity(room), 0, 0);
        assert_eq!(m.lent, room);
        for end in (1..1000).rev() {
            assert_eq!(take(&mut m, 4000, 4 * end, 4 * end + 4), Taken::New);
            assert!(m.beyond().eq([(4 * end, 4000)]), "adjacent fragments are one range");
        }
        assert_eq!(take(&mut m, 4000, 0, 4), Taken::Complete);
        assert!(m.into_bytes().into_iter().eq((0..4000).map(|i| i as u8)));
    }
}

#[test]
fn what_arrived_far_ahead_costs_no_more_than_its_bytes() {
    let mut m = Incoming::new(1 << 30, Vec::new(), 4 << 20, 0);
    assert_eq!(take(&mut m, 1 << 30, 4_000_000, 4_000_004), Taken::New);
    assert_eq!(m.memory(), 64 + 4, "docs/protocol.md, 10");
    for at in (0..255).rev() {
        take(&mut m, 1 << 30, 8 + 16 * at, 12 + 16 * at);
    }
    assert!(m.memory() <= 256 * (PIECE + 8), "{}", m.memory());
    assert_eq!(take(&mut m, 1 << 30, 5000, 5004), Taken::Nothing, "too many pieces");
    assert_eq!(take(&mut m, 1 << 30, 12, 16), Taken::New, "this fragment only lengthens a piece");
}

#[test]
fn in_whatever_order_fragments_come_memory_is_twice_what_arrived_and_the_message_is_whole() {
    const LEN: u32 = 8_000;
    for seed in 1..60u64 {
        let mut below = numbers(seed);
        let (mut m, mut arrived) = (Incoming::new(LEN, Vec::new(), 0, 0), 0);
        let mut here = vec![false; LEN as usize];
        let (longest, backwards) = (1 + below(700), seed % 3 == 0);
        let mut next = if backwards { LEN } else { 0 };
        while m.through < LEN {
            // First the fragments come backwards, then with random offsets and lengths, and in the end the
            // missing ones.
            let (start, end) = match arrived {
                _ if next > 0 => (next - (1 + below(longest) as u32).min(next), next),
                few if few < 5 * LEN as usize => {
                    let start = below(u64::from(LEN)) as u32;
                    (start, (start + 1 + below(longest) as u32).min(LEN))
                }
                _ => (m.through, (m.through + 500).min(LEN)),
            };
            next = if next > 0 { start } else { 0 };
            let (was, taken) = (m.memory(), take(&mut m, LEN, start, end));
            arrived += (end - start) as usize;
            if taken == Taken::Nothing {
                assert_eq!(was, m.memory(), "seed {seed}");
                continue;
            }
            here[start as usize..end as usize].fill(true);
            let distinct = here.iter().filter(|byte| **byte).count();
            let memory = m.memory();
            assert!(memory <= 2 * distinct + PIECE * MAX_BEYOND, "seed {seed}: {memory} of {distinct}");
            assert!(m.pieces.iter().all(|piece| piece.start > m.through), "seed {seed}: the gap is filled");
            let pieces: usize = m.pieces.iter().map(Piece::memory).sum();
            assert_eq!(memory, m.buffer.capacity() + pieces, "seed {seed}");
        }
        assert!(m.into_bytes().into_iter().eq((0..LEN).map(|i| i as u8)), "seed {seed}");
    }
}

/// Compares the fragments that were sent again, which have two indexes, with a plain list.
#[test]
fn repeated_fragments_are_found_by_their_places() {
    for seed in 1..200 {
        let mut below = numbers(seed);
        let mut places: Vec<u64> = (0..40).collect();
        let (mut flight, mut plain) = (Flight::default(), Vec::new());
        for order in 1..=40 {
            let start = 100 * places.swap_remove(below(places.len() as u64) as usize);
            let sent = Sent {
                order,
                number: order,
                start,
                end: start + 4 * (1 + below(25)),
                at: Time::default(),
                again: true,
            };
            flight.push(sent);
            plain.push((sent.start, sent.end, sent.order));
        }
        let mut through = 0;
        while !flight.is_empty() {
            through += 4 * below(200);
            let mut ranges: Vec<(u64, u64)> = Vec::new();
            for _ in 0..below(5) {
                let from = ranges.last().map_or(through, |last| last.1) + 4 + 4 * below(100);
                ranges.push((from, from + 4 + 4 * below(100)));
            }
            let (mut arrived, mut expected, mut kept) = (Vec::new(), Vec::new(), 0);
            plain.retain_mut(|(start, end, order)| {
                let is_whole =
                    *end <= through || ranges.iter().any(|&(from, to)| from <= *start && *end <= to);
                if is_whole {
                    expected.push(*order);
                } else if *start < through {
                    kept += (through - *start) as u32;
                    *start = through;
                }
                !is_whole
            });
            let told = flight.acknowledge(through, ranges.into_iter(), |sent| arrived.push(sent.order));
            arrived.sort_unstable();
            assert_eq!((arrived, told), (expected, kept), "seed {seed}");
            let (mut lost, earlier) = (Vec::new(), plain.first().map_or(0, |first| first.2) + below(3));
            flight.lose(|sent| sent.order < earlier, |sent| lost.push(sent.order));
            let expected: Vec<u64> =
                plain.extract_if(.., |sent| sent.2 < earlier).map(|sent| sent.2).collect();
            assert_eq!(lost, expected, "seed {seed}");
            let sent = |sent: &Sent| (sent.start, sent.end, sent.order);
            assert!(flight.iter().map(sent).eq(plain.iter().copied()), "seed {seed}");
            assert_eq!((flight.len(), flight.newest()), (plain.len(), plain.last().map(|last| last.2)));
        }
    }
}

#[test]
fn what_is_overtaken_three_times_is_lost_and_sent_first() {
    let room = |left| Room { window: 1000, left, quantum: 1000, shared: false };
    let mut m = Outgoing::new(100, 0);
    for i in 0..5 {
        let Next::Range { start, end, again: false, ask: false } = m.next(10, room(1000)) else { panic!() };
        m.sent(Time::default(), 10 + i, start, end, false);
    }
    let select = select_bytes(0, 100, 14, &[(10, 50)]);
    let heard = m.heard(Time::default(), &read(&select), Duration::ZERO);
    assert_eq!(heard.arrived, 40);
    assert!(heard.lost_since.is_some());
    assert_eq!(m.next(10, room(1000)), Next::Range { start: 0, end: 10, again: true, ask: true });
    m.sent(Time::default(), 20, 0, 10, true);
    assert_eq!(m.next(10, room(1000)), Next::Range { start: 50, end: 60, again: false, ask: false });
    assert_eq!(m.next(10, room(9)), Next::NoRoom);
    assert_eq!(m.in_flight, 10);
}

const WIDE: Room = Room { window: 1 << 30, left: 1 << 30, quantum: 1 << 30, shared: false };

/// Sends the next fragment. Returns where it ends, and whether it asks for an acknowledgement.
fn send(m: &mut Outgoing, number: u64, max: u32, room: Room) -> (u32, bool) {
    let Next::Range { start, end, ask, .. } = m.next(max, room) else { panic!("{:?}", m.next(max, room)) };
    m.sent(Time::from_nanos(number), number, start, end, ask);
    (end as u32, ask)
}

#[test]
fn the_last_fragment_that_may_be_sent_asks_for_an_acknowledgement() {
    let fresh = || Outgoing::new(100, 0);
    // The congestion window has no room for another fragment.
    for (left, ask) in [(10, true), (19, true), (20, false)] {
        let range = Next::Range { start: 0, end: 10, again: false, ask };
        assert_eq!(fresh().next(10, Room { left, ..WIDE }), range, "{left} left");
    }
    assert_eq!(fresh().next(10, Room { left: 9, ..WIDE }), Next::NoRoom);
    let narrow = Room { window: 10, ..WIDE };
    assert_eq!(fresh().next(100, narrow), Next::Range { start: 0, end: 8, again: false, ask: false });
    // The message ends, and another message waits for its share of the window.
    for (shared, ask) in [(true, true), (false, false)] {
        let (mut m, room) = (fresh(), Room { shared, ..WIDE });
        assert_eq!((send(&mut m, 1, 60, room), send(&mut m, 2, 60, room)), ((60, false), (100, ask)));
        assert_eq!(m.next(60, room), Next::Nothing);
    }
    // A quantum of bytes was sent since a fragment last asked.
    let (mut m, room) = (fresh(), Room { quantum: 30, ..WIDE });
    let asked = [1, 2, 3, 4, 5, 6, 7, 8].map(|number| send(&mut m, number, 10, room).1);
    assert_eq!(asked, [false, false, false, true, false, false, false, true]);
    // The number of fragments in flight reaches its bound.
    let mut m = Outgoing::new(1 << 20, 1 << 20);
    let asked = (1..=1 << 16).filter(|number| send(&mut m, *number, 4, WIDE).1);
    assert!(asked.eq([1 << 16]));
    assert_eq!((m.next(4, WIDE), m.in_flight), (Next::Nothing, 1 << 18));
}

#[test]
fn a_short_fragment_before_the_receivers_limit_is_sent_only_if_nothing_is_in_flight() {
    let mut m = Outgoing::new(20_000, 0);
    let sent = (1..=10).map(|number| send(&mut m, number, 1200, WIDE)).collect::<Vec<_>>();
    assert!(sent.iter().map(|(end, _)| *end).eq((1..=10).map(|n| 1200 * n)));
    assert!(sent.iter().map(|(_, ask)| *ask).eq((1..=10).map(|n| n == 10)));
    let mut m = Outgoing::new(20_000, 0);
    let asked = (1..=10).map(|number| send(&mut m, number, 1100, WIDE).1);
    assert!(asked.eq((1..=10).map(|n| n == 10)), "1,000 bytes are left before the limit");
    assert_eq!(m.next(1100, WIDE), Next::Nothing);
    m.heard(Time::default(), &read(&select_bytes(11_000, 12_346, 10, &[])), Duration::ZERO);
    assert_eq!(m.next(1400, WIDE), Next::Range { start: 11_000, end: 12_344, again: false, ask: true });
    // Lost bytes are sent again in fragments of any length.
    let mut m = Outgoing::new(20_000, 0);
    (1..=10).for_each(|number| _ = send(&mut m, number, 1200, WIDE));
    m.heard(Time::default(), &read(&select_bytes(0, 12_000, 9, &[(1200, 10_800)])), Duration::ZERO);
    assert_eq!(m.next(2000, WIDE), Next::Range { start: 0, end: 1200, again: true, ask: true });
    assert_eq!(m.next(400, WIDE), Next::Range { start: 0, end: 400, again: true, ask: true });
    assert_eq!((send(&mut m, 11, 400, WIDE), send(&mut m, 12, 2000, WIDE)), ((400, true), (1200, true)));
    assert_eq!((m.next(1200, WIDE), m.in_flight), (Next::Nothing, 2400));
}

/// Sends five fragments of ten bytes, numbered from 10, each at the time of its number, and handles a SELECT.
/// Returns when the earliest fragment was sent that counts as lost, how many bytes arrived, and when the
/// datagram was sent that the SELECT answers.
fn lost(pull: bool, now: u64, largest: u64, ranges: &[(u32, u32)]) -> (Option<u64>, u32, Option<u64>) {
    let mut m = Outgoing::new(100, 0);
    (10..15).for_each(|number| _ = send(&mut m, number, 10, WIDE));
    let bytes = select_bytes(0, 100, largest, ranges);
    let mut select = read(&bytes);
    select.pull = pull;
    let heard = m.heard(Time::from_nanos(now), &select, Duration::from_nanos(20));
    let resent = if heard.lost_since.is_some() { Some((0, 10)) } else { None };
    assert_eq!(m.lost.front().copied(), resent);
    assert_eq!(m.in_flight, m.flight.iter().map(|sent| (sent.end - sent.start) as u32).sum::<u32>());
    assert_eq!((heard.complete, heard.granted), (false, Some(100)));
    (heard.lost_since.map(Time::as_nanos), heard.arrived, heard.answered.map(Time::as_nanos))
}

#[test]
fn a_fragment_is_lost_if_three_later_ones_arrived_or_the_receiver_waited_for_a_round_trip() {
    assert_eq!(lost(false, 1000, 12, &[(10, 30)]), (None, 20, Some(12)), "two later fragments arrived");
    assert_eq!(lost(false, 1000, 13, &[(10, 40)]), (Some(10), 30, Some(13)), "three later fragments arrived");
    assert_eq!(lost(false, 1000, 14, &[(30, 50)]), (Some(10), 20, Some(14)), "the newest fragment arrived");
    assert_eq!(lost(false, 1000, 15, &[]), (Some(10), 0, None), "a probe behind all fragments arrived");
    assert_eq!(lost(false, 1000, 14, &[]), (None, 0, None), "the last fragment arrived and was not taken");
    assert_eq!(lost(false, 1000, 10, &[(20, 50)]), (None, 30, None), "the receiver had these bytes before");
    assert_eq!(lost(true, 30, 12, &[(10, 30)]), (None, 20, None), "the receiver waited for one round trip");
    assert_eq!(lost(true, 31, 12, &[(10, 30)]), (Some(10), 20, None), "the receiver waited for longer");
    let mut m = Outgoing::new(100, 0);
    (10..12).for_each(|number| _ = send(&mut m, number, 10, WIDE));
    assert_eq!(m.overdue(Time::from_nanos(30), Duration::from_nanos(20)), (None, 0));
    assert_eq!(m.overdue(Time::from_nanos(31), Duration::from_nanos(20)), (Some(Time::from_nanos(10)), 10));
    assert_eq!((m.in_flight, send(&mut m, 12, 20, WIDE)), (10, (10, true)));
    // An acknowledgement of the lost fragment comes before it is sent again.
    m.overdue(Time::from_nanos(1000), Duration::ZERO);
    m.heard(Time::from_nanos(1000), &read(&select_bytes(20, 100, 11, &[])), Duration::ZERO);
    assert_eq!((m.in_flight, send(&mut m, 13, 80, WIDE)), (0, (100, false)));
    let all = select_bytes(100, 100, 13, &[]);
    assert!(m.heard(Time::from_nanos(1000), &read(&all), Duration::ZERO).complete);
}

#[test]
fn what_a_restored_receiver_has_forgotten_is_sent_again() {
    let mut m = Outgoing::new(100, 0);
    assert_eq!((send(&mut m, 1, 60, WIDE), send(&mut m, 2, 60, WIDE)), ((60, false), (100, false)));
    let hear = |m: &mut Outgoing, through, largest, ranges: &[(u32, u32)]| {
        let select = select_bytes(through, 1000, largest, ranges);
        m.heard(Time::default(), &read(&select), Duration::ZERO).complete
    };
    assert!(!hear(&mut m, 60, 1, &[]));
    assert_eq!((m.next(60, WIDE), m.in_flight), (Next::Nothing, 40));
    // The first fragment is gone: the receiver was restored from before it came.
    assert!(!hear(&mut m, 0, 2, &[(60, 100)]));
    assert_eq!(send(&mut m, 3, 60, WIDE), (60, false));
    assert!(hear(&mut m, 100, 3, &[]));
}

#[test]
fn a_receiver_that_was_restored_while_a_long_message_came_gets_all_of_it() {
    const TOTAL: u32 = 400_000;
    let (mut sender, mut number) = (Outgoing::new(TOTAL, 0), 0);
    // The sender sends all that it may, and hears what the receiver has.
    let mut exchange = |to: &mut Incoming| {
        while let Next::Range { start, end, ask, .. } = sender.next(1_200, WIDE) {
            number += 1;
            sender.sent(Time::from_nanos(number), number, start, end, ask);
            let bytes = vec![7; (end - start) as usize];
            to.take(number, Fragment { total: TOTAL, offset: start as u32, ask }, &bytes);
            to.grant(80_000);
        }
        // The sender probes, too.
        number += 1;
        to.note(number);
        let (extent, beyond) = (to.extent(), to.beyond().collect::<Vec<_>>());
        let select = select_bytes(extent.through as u32, extent.limit as u32, extent.largest, &beyond);
        sender.heard(Time::from_nanos(number), &read(&select), Duration::ZERO).complete
    };
    let mut receiver = Incoming::new(TOTAL, Vec::new(), 0, 0);
    for _ in 0..3 {
        assert!(!exchange(&mut receiver));
    }
    let (mut restored, largest) = (Incoming::new(TOTAL, Vec::new(), 0, 0), receiver.extent().largest);
    restored.take(largest / 4, Fragment { total: TOTAL, offset: 0, ask: false }, &[7; 1_200]);
    let rounds = (0..100).take_while(|_| !exchange(&mut restored)).count();
    assert!(rounds < 20, "{rounds} rounds");
}

#[test]
fn a_select_that_no_receiver_can_have_sent_is_ignored() {
    let mut m = Outgoing::new(100, 0);
    send(&mut m, 1, 60, WIDE);
    for through in [104, u32::MAX - 3, 50] {
        let heard = m.heard(Time::default(), &read(&select_bytes(through, 200, 1, &[])), Duration::ZERO);
        assert_eq!((heard.arrived, heard.granted, m.in_flight), (0, None, 60));
    }
    assert_eq!(m.next(60, WIDE), Next::Range { start: 60, end: 100, again: false, ask: false });
    m.restart();
    assert_eq!((m.in_flight, send(&mut m, 2, 60, WIDE)), (0, (60, false)));
}

fn select_bytes(through: u32, limit: u32, largest: u64, ranges: &[(u32, u32)]) -> Vec<u8> {
    let mut v = vec![0; 16];
    v.extend(through.to_be_bytes());
    v.extend(limit.to_be_bytes());
    v.extend(largest.to_be_bytes());
    for r in ranges {
        v.extend(r.0.to_be_bytes());
        v.extend(r.1.to_be_bytes());
    }
    v
}

fn read(bytes: &[u8]) -> Select<'_> {
    Select::read_for_tests(bytes)
}

#[test]
fn a_direction_grows_and_its_end_is_sent_beyond_the_limit() {
    let mut m = Outgoing::stream(0);
    assert_eq!(m.next(1200, WIDE), Next::Nothing);
    m.extend(100);
    assert_eq!(send(&mut m, 1, 1200, WIDE), (100, true));
    m.extend(20_000);
    while let Next::Range { start, end, ask, .. } = m.next(5_000, WIDE) {
        m.sent(Time::default(), 2, start, end, ask);
    }
    assert!(!m.is_blocked() && !m.is_idle());
    let all = select_bytes(12_000, 12_000, 2, &[]);
    assert!(!m.heard(Time::default(), &read(&all), Duration::ZERO).complete);
    assert!(m.is_blocked() && !m.is_idle(), "all has arrived that may be sent");
    m.heard(Time::default(), &read(&select_bytes(12_000, 20_100, 2, &[])), Duration::ZERO);
    assert_eq!(send(&mut m, 3, 65_000, WIDE), (20_100, true));
    m.end(true);
    assert_eq!((send(&mut m, 4, 1200, WIDE), m.added()), ((20_104, false), 20_100));
    // What a direction has acknowledged never goes back: its bytes are not kept.
    m.heard(Time::default(), &read(&select_bytes(100, 20_100, 9, &[])), Duration::ZERO);
    assert!(m.heard(Time::default(), &read(&select_bytes(20_104, 20_100, 4, &[])), Duration::ZERO).complete);
    assert!(m.is_idle());
}

#[test]
fn a_first_report_that_allows_less_than_was_lent_bounds_what_is_sent_next() {
    let mut m = Outgoing::stream(100_000);
    m.extend(100_000);
    assert_eq!(send(&mut m, 1, 4_000, WIDE).0, 4_000);
    let bytes = select_bytes(4_000, 12_000, 1, &[]);
    m.heard(Time::from_nanos(2), &read(&bytes), Duration::ZERO);
    let mut reached = 0;
    while let Next::Range { start, end, ask, .. } = m.next(4_000, WIDE) {
        m.sent(Time::from_nanos(3), 2, start, end, ask);
        reached = end;
    }
    assert_eq!(reached, 12_000);
}

#[test]
fn a_direction_that_is_cut_ends_where_it_is() {
    for ended in [false, true] {
        let mut m = Outgoing::stream(0);
        m.extend(3000);
        assert_eq!(send(&mut m, 1, 1000, WIDE), (1000, false));
        if ended {
            m.end(false);
            assert_eq!(send(&mut m, 2, 3000, WIDE), (3004, true));
        }
        m.cut();
        let end = if ended { 3000 } else { 1000 };
        assert_eq!((m.added(), m.in_flight), (end, 0));
        assert_eq!(send(&mut m, 3, 1200, WIDE), (end as u32 + 4, true));
        m.finish();
        assert!(m.is_idle() && m.in_flight == 0);
    }
}

/// Sends the next fragment, of at most eight bytes, at this time.
fn send_at(m: &mut Outgoing, at: Time, number: u64) {
    let Next::Range { start, end, ask, .. } = m.next(8, WIDE) else { panic!("nothing to send") };
    m.sent(at, number, start, end, ask);
}

#[test]
fn a_fragment_that_counted_as_lost_and_arrives_after_all_tells_how_long_it_took() {
    let at = |millis: u64| Time::from_nanos(1_000_000 * millis);
    let mut m = Outgoing::new(40, 0);
    let hear = |m: &mut Outgoing, now, (through, largest, pull), least| {
        let bytes = select_bytes(through, 1000, largest, &[]);
        let mut select = read(&bytes);
        select.pull = pull;
        let heard = m.heard(at(now), &select, Duration::from_millis(least));
        (heard.answered, heard.late)
    };
    (7..10).for_each(|number| send_at(&mut m, at(0), number));
    // The receiver waits in vain, since the answer is under way. The fragments are sent again.
    assert_eq!(hear(&mut m, 50, (0, 0, true), 5), (None, false));
    (10..13).for_each(|number| send_at(&mut m, at(50), number));
    assert_eq!(hear(&mut m, 400, (16, 8, false), 5), (Some(at(0)), true));
    // A repeated report teaches nothing. A receiver that has waited sends one that teaches nothing, too.
    assert_eq!(hear(&mut m, 420, (16, 8, false), 500), (None, false));
    assert_eq!(hear(&mut m, 430, (24, 9, true), 500), (None, false));
    send_at(&mut m, at(440), 13);
    assert_eq!(hear(&mut m, 840, (32, 13, false), 500), (Some(at(440)), false));
}

#[test]
fn few_of_the_fragments_that_counted_as_lost_are_remembered() {
    let mut m = Outgoing::new(12_000, 0);
    for round in 0..100u64 {
        let now = Time::from_nanos(round * 1_000_000_000);
        (0..10).for_each(|place| send_at(&mut m, now, round * 10 + place));
        assert!(m.overdue(now + Duration::from_millis(900), Duration::from_millis(1)).0.is_some());
        assert!(m.presumed.len() <= MAX_PRESUMED);
    }
}

#[test]
fn what_counted_as_lost_and_arrives_without_being_repeated_was_only_late() {
    let sent = || {
        let mut m = Outgoing::new(100, 0);
        (10..15).for_each(|number| _ = send(&mut m, number, 8, WIDE));
        m
    };
    let hear = |m: &mut Outgoing, through, largest, ranges: &[(u32, u32)]| {
        let heard =
            m.heard(Time::default(), &read(&select_bytes(through, 100, largest, ranges)), Duration::ZERO);
        (heard.lost, heard.spurious)
    };
    // The first fragment is overtaken, and comes before it is sent again.
    let mut m = sent();
    assert_eq!(hear(&mut m, 0, 13, &[(8, 32)]), (8, 0));
    assert_eq!(hear(&mut m, 32, 13, &[]), (0, 8));
    // It comes after it was sent again, but before the repetition.
    let mut m = sent();
    assert_eq!(hear(&mut m, 0, 13, &[(8, 32)]), (8, 0));
    send(&mut m, 15, 8, WIDE);
    assert_eq!(hear(&mut m, 32, 13, &[]), (0, 8));
    // The repetition comes.
    let mut m = sent();
    assert_eq!(hear(&mut m, 0, 13, &[(8, 32)]), (8, 0));
    send(&mut m, 15, 8, WIDE);
    assert_eq!(hear(&mut m, 40, 15, &[]), (0, 0));
    // A repetition that is lost was counted before.
    let mut m = sent();
    assert_eq!(hear(&mut m, 0, 13, &[(8, 32)]), (8, 0));
    send(&mut m, 15, 8, WIDE);
    assert_eq!(m.overdue(Time::from_nanos(1000), Duration::ZERO).1, 8, "only the fifth fragment is new");
    assert_eq!(hear(&mut m, 40, 14, &[]), (0, 16));
}

#[test]
fn on_a_path_that_reorders_datagrams_a_fragment_must_be_overtaken_by_some_time() {
    let lost = |reordering: u64, overtaking: u32| {
        let mut m = Outgoing::new(1000, 0);
        (0..u64::from(overtaking) + 1).for_each(|number| _ = send(&mut m, number, 10, WIDE));
        m.reordering = reordering;
        let select = select_bytes(0, 1000, overtaking.into(), &[(10, 10 + 10 * overtaking)]);
        m.heard(Time::default(), &read(&select), Duration::ZERO).lost > 0
    };
    assert_eq!(
        [(0, 1), (0, 3), (5, 1), (5, 4), (5, 5)].map(|(r, o)| lost(r, o)),
        [true, true, false, false, true]
    );
}
