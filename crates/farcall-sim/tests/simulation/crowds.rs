//! Laws of many short calls at once: through a bottleneck they use the link and do not overflow its queue, and
//! elsewhere they wait for nothing.

use farcall_proto::Mutant;
#[cfg(feature = "soak")]
use farcall_proto::Rule;
use farcall_sim::net::{MILLIS, Nanos, Path, SECS};
use farcall_sim::{Crowd, Crowded};

/// Ten megabits a second, in bytes.
const RATE: u64 = 1_250_000;
/// For how long calls are made, and how long through a bottleneck: so long that the beginning does not matter,
/// in round trips of 80 ms either.
const TIME: Nanos = 10 * SECS;
const LONG: Nanos = 20 * SECS;

/// Returns a path with a bottleneck that queues 100 KiB.
fn bottleneck(round_trip: Nanos) -> Path {
    let mut path = Path::clean(round_trip / 2);
    (path.mtu, path.rate, path.queue) = (1472, RATE, (100 << 10) * SECS / RATE);
    path
}

fn crowd(outstanding: usize, bytes: usize, takes: Nanos, path: Path, time: Nanos) -> Crowded {
    let t = Crowd { outstanding, bytes, takes, time, path, seed: 3, mutant: Mutant::NONE }.run();
    assert_eq!(t.failed, 0, "{outstanding} calls of {bytes} bytes: {t:?}");
    t
}

#[test]
fn many_short_calls_through_a_bottleneck_use_it_and_lose_little() {
    for outstanding in [100, 1000, 4000] {
        for round_trip in [2, 20, 80].map(|ms| ms * MILLIS) {
            let t = crowd(outstanding, 1000, 0, bottleneck(round_trip), LONG);
            let used = t.ended as f64 * 1000.0 / (RATE * LONG / SECS) as f64;
            assert!(t.dropped * 100 <= 3 * t.sent, "{outstanding} in {} ms: {t:?}", round_trip / MILLIS);
            assert!(used >= 0.9, "{outstanding} in {} ms: {used:.3}: {t:?}", round_trip / MILLIS);
        }
    }
}

#[test]
fn calls_of_a_slow_procedure_do_not_fill_the_window() {
    for (round_trip, takes) in [(1, 100), (20, 100), (1, 500), (20, 500)] {
        let (round_trip, takes) = (round_trip * MILLIS, takes * MILLIS);
        let t = crowd(1000, 100, takes, Path::clean(round_trip / 2), TIME);
        // A thousand calls each time that the procedure and a round trip have passed.
        let most = 1000 * TIME / (takes + round_trip);
        assert!(t.ended * 100 >= most * 95, "{} of {most} in {} ms: {t:?}", t.ended, round_trip / MILLIS);
    }
}

#[test]
#[cfg(feature = "soak")]
fn calls_that_do_not_count_as_under_way_are_noticed() {
    let (mutant, path) = (Mutant::of(Rule::ShortCallsUncounted), bottleneck(20 * MILLIS));
    let t = Crowd { outstanding: 1000, bytes: 1000, takes: 0, time: TIME, path, seed: 3, mutant }.run();
    assert!(t.dropped * 100 > 3 * t.sent, "{t:?}");
}

/// Returns how many of a thousand calls end whose procedure takes ten seconds, when all are started at once, if
/// only eight round trips and 20 ms pass besides.
fn begun_at_once(round_trip: Nanos, mutant: Mutant) -> u64 {
    let (takes, path) = (10 * SECS, Path::clean(round_trip / 2));
    let time = takes + 8 * round_trip + 20 * MILLIS;
    Crowd { outstanding: 1000, bytes: 100, takes, time, path, seed: 3, mutant }.run().ended
}

#[test]
fn calls_that_run_long_all_begin_at_once() {
    for round_trip in [MILLIS / 5, MILLIS, 20 * MILLIS, 80 * MILLIS] {
        let begun = begun_at_once(round_trip, Mutant::NONE);
        assert_eq!(begun, 1000, "in round trips of {} us", round_trip / (MILLIS / 1000));
    }
}

#[test]
#[cfg(feature = "soak")]
fn a_client_that_does_not_ask_which_calls_have_left_the_path_is_noticed() {
    assert!(begun_at_once(MILLIS / 5, Mutant::of(Rule::RoomUnasked)) < 1000);
}
