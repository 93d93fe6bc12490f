//! The growth of the window, and when it stops.

use super::*;

const TRIP: Duration = Duration::from_millis(100);
const WIDE: u32 = 1 << 30;

fn at(millis: u64) -> Time {
    Time::from_nanos(1_000_000_000 + millis * 1_000_000)
}

/// All bytes of a window arrive at this time.
fn arrive(c: &mut Congestion, millis: u64) {
    let window = c.window(1200);
    c.arrived((at(millis), TRIP), (window, window), (1200, WIDE));
}

/// Returns the controller of a window that has doubled to 192,000 bytes, and then has lost something at this
/// time.
fn lossy(millis: u64) -> Congestion {
    let mut c = Congestion::default();
    (0..4).for_each(|round| arrive(&mut c, 100 * round));
    assert_eq!(c.window(1200), 192_000);
    c.lost(at(millis), (at(millis - 50), 1200), 1200, false);
    c
}

#[test]
fn the_window_doubles_while_it_is_used_and_nothing_is_lost() {
    let mut c = Congestion::default();
    let mut arrived = |bytes, in_flight, most| {
        c.arrived((at(0), TRIP), (bytes, in_flight), (1200, most));
        c.window(1200)
    };
    assert_eq!(arrived(1200, 5_999, WIDE), 12_000, "the window was less than half used");
    assert_eq!(arrived(1200, 6_000, WIDE), 13_200);
    assert_eq!(arrived(186_800, 13_200, WIDE), 200_000);
    assert_eq!(arrived(1 << 30, 200_000, 200_200), 200_200, "the window does not grow beyond the bound");
    assert_eq!(arrived(1 << 30, 200_200, 1000), 200_200, "the window does not shrink to a smaller bound");
}

#[test]
fn after_a_loss_the_window_returns_to_what_it_was_and_waits_there_and_goes_on() {
    assert_eq!(lossy(500).window(1200), 134_400);
    // It returns within the cube root of (57,600 / 1,200 / 0.4) seconds, which is 4.93 s.
    let mut whole = Vec::new();
    for rounds in [12, 25, 50, 75, 120] {
        let mut c = lossy(500);
        (1..=rounds).for_each(|round| arrive(&mut c, 500 + 100 * round));
        whole.push(c.window(1200) / 1000);
    }
    let near = |kilobytes: u32, expected: u32| kilobytes.abs_diff(expected) <= 3;
    let expected = [167, 185, 192, 200, 361];
    assert!(whole.iter().zip(expected).all(|(whole, expected)| near(*whole, expected)), "{whole:?}");
}

#[test]
fn a_window_that_lost_something_before_it_had_returned_makes_room() {
    let mut c = lossy(500);
    (1..10).for_each(|round| arrive(&mut c, 500 + 100 * round));
    let full = c.window(1200);
    assert!(full < 192_000);
    c.lost(at(2000), (at(1990), 1200), 1200, false);
    assert_eq!(c.window(1200), (f64::from(full) * 0.7) as u32);
    assert!((c.history().cubic.plateau - f64::from(full) * 0.85).abs() < 1.0);
}

#[test]
fn a_window_that_shrank_for_repetitions_alone_is_not_restored_by_other_fragments_that_were_late() {
    let mut c = lossy(500);
    // The repetitions are lost too. They counted as lost before, and nothing can prove that they were late.
    c.lost(at(2000), (at(1990), 0), 1200, true);
    let small = c.window(1200);
    assert!(small < 134_400);
    c.restore(1200);
    assert_eq!(c.window(1200), small);
}

#[test]
fn over_a_near_path_the_window_grows_as_fast_as_renos() {
    let mut c = lossy(500);
    // A thousand round trips of a tenth of a millisecond.
    for round in 0..1000 {
        let (now, window) = (Time::from_nanos(2_000_000_000 + 100_000 * round), c.window(1200));
        c.arrived((now, Duration::from_micros(100)), (window, window), (1200, WIDE));
    }
    let reno = 134_400 + 1000 * 635;
    assert!(c.window(1200).abs_diff(reno) < 20_000, "{}", c.window(1200));
}

#[test]
fn a_window_that_is_not_used_does_not_grow_for_the_time_that_passes() {
    let mut c = lossy(500);
    arrive(&mut c, 600);
    c.arrived((at(700), TRIP), (1200, 1200), (1200, WIDE));
    arrive(&mut c, 3_600_000);
    assert!(c.window(1200) < 160_000, "{}", c.window(1200));
}

#[test]
fn the_window_is_never_less_than_four_datagrams_or_eight_small_ones() {
    let mut c = Congestion::default();
    (1..20).for_each(|round| c.lost(at(2 * round + 1), (at(2 * round), 1200), 1200, false));
    let windows = [1200, 2400, 2404, 64_000].map(|datagram| c.window(datagram));
    assert_eq!(windows, [9600, 9600, 9616, 256_000]);
}

#[test]
fn messages_share_the_window_and_ask_for_an_acknowledgement_in_each_quarter_of_their_share() {
    let mut c = Congestion::default();
    let room = |c: &Congestion, in_flight, others, most| {
        let room = c.room(1200, in_flight, others, most);
        (room.window, room.left, room.quantum, room.shared)
    };
    assert_eq!(room(&c, 2000, 0, 1 << 20), (12_000, 10_000, 3000, false));
    assert_eq!(room(&c, 2000, 2, 1 << 20), (12_000, 10_000, 1000, true));
    assert_eq!(room(&c, 13_000, 1, 4000), (4000, 0, 500, true));
    c.arrived((at(0), TRIP), (500_000, 12_000), (1200, 1 << 20));
    let eight_datagrams = 9600;
    assert_eq!(room(&c, 0, 0, 1 << 20), (512_000, 512_000, eight_datagrams, false));
}

#[test]
fn the_window_shrinks_once_for_the_losses_of_one_round() {
    let mut c = lossy(500);
    let after = c.window(1200);
    c.lost(at(510), (at(460), 1200), 1200, false);
    assert_eq!(c.window(1200), after);
    c.lost(at(600), (at(500), 1200), 1200, false);
    assert!(c.window(1200) < after, "a datagram that was sent after the window had shrunk was lost");
}

#[test]
fn a_window_that_shrank_although_nothing_was_lost_is_restored() {
    let mut c = lossy(500);
    c.lost(at(510), (at(460), 2400), 1200, false);
    c.restore(2400);
    assert_eq!(c.window(1200), 134_400, "a third of what counted as lost may be lost");
    c.restore(1200);
    assert_eq!((c.window(1200), c.threshold), (192_000, u32::MAX));
    // What is known to be late once more restores nothing more.
    c.lost(at(700), (at(600), 1200), 1200, false);
    c.lost(at(900), (at(800), 1200), 1200, false);
    c.restore(1200);
    c.restore(1200);
    assert_eq!(c.window(1200), 134_400, "only the last reduction was in vain");
}

/// Measures round trips of these lengths, in milliseconds, four in each round. Returns how much of the bytes
/// that arrive the window grows by then.
fn growth(rounds: &[u64]) -> u32 {
    let (mut c, mut now) = (Congestion::default(), 0);
    for millis in rounds {
        let sent = at(now);
        now += millis;
        (0..4).for_each(|_| c.took(sent, at(now)));
    }
    let window = c.window(1200);
    c.arrived((at(now), TRIP), (window, window), (1200, WIDE));
    c.window(1200) - window
}

#[test]
fn round_trips_that_grow_slow_the_doubling_and_end_it_unless_they_are_short_again() {
    assert_eq!(growth(&[64, 64]), 12_000);
    // They must grow by an eighth, but at least by 4 ms and at most by 16 ms.
    assert_eq!(
        [&[64, 71][..], &[64, 72], &[8, 11], &[8, 12], &[800, 815], &[800, 816]].map(growth),
        [12_000, 3_000, 12_000, 3_000, 12_000, 3_000]
    );
    assert_eq!(growth(&[64, 72, 72, 72, 72, 72]), 3_000);
    assert!(growth(&[64, 72, 72, 72, 72, 72, 72]) < 1_000, "the window no longer doubles");
    assert_eq!(growth(&[64, 72, 64, 64, 64, 64, 64, 64]), 12_000, "the queue was not ours");
}
