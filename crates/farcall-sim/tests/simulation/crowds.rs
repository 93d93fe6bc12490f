//! Laws of many short calls at once: through a bottleneck they use the link and do not overflow its queue, and
//! elsewhere they wait for nothing.

use farcall_proto::Mutant;
#[cfg(feature = "soak")]
use farcall_proto::Rule;
use farcall_sim::net::{MILLIS, Nanos, Path, SECS};
use farcall_sim::{Crowd, Crowded};

/// Ten megabits a second, in bytes.
const RATE: u64 = 1_250_000;
const TIME: Nanos = 10 * SECS;

/// Returns a path with a bottleneck that queues 100 KiB.
fn bottleneck(round_trip: Nanos) -> Path {
    let mut path = Path::clean(round_trip / 2);
    (path.mtu, path.rate, path.queue) = (1472, RATE, (100 << 10) * SECS / RATE);
    path
}

fn crowd(outstanding: usize, bytes: usize, takes: Nanos, path: Path, mutant: Mutant) -> Crowded {
    let t = Crowd { outstanding, bytes, takes, time: TIME, path, seed: 3, mutant }.run();
    assert_eq!(t.failed, 0, "{outstanding} calls of {bytes} bytes: {t:?}");
    t
}

#[test]
fn many_short_calls_through_a_bottleneck_use_it_and_lose_little() {
    for outstanding in [100, 1000, 4000] {
        for round_trip in [2, 20, 80].map(|ms| ms * MILLIS) {
            let t = crowd(outstanding, 1000, 0, bottleneck(round_trip), Mutant::NONE);
            let used = t.ended as f64 * 1000.0 / (RATE * TIME / SECS) as f64;
            assert!(t.dropped * 100 <= 3 * t.sent, "{outstanding} in {} ms: {t:?}", round_trip / MILLIS);
            assert!(
                used >= 0.85,
                "{outstanding} in {} ms: {used:.3} of the link: {t:?}",
                round_trip / MILLIS
            );
        }
    }
}

#[test]
fn calls_of_a_slow_procedure_do_not_fill_the_window() {
    for (round_trip, takes) in [(1, 100), (20, 100), (1, 500), (20, 500)] {
        let (round_trip, takes) = (round_trip * MILLIS, takes * MILLIS);
        let t = crowd(1000, 100, takes, Path::clean(round_trip / 2), Mutant::NONE);
        // A thousand calls each time that the procedure and a round trip have passed.
        let most = 1000 * TIME / (takes + round_trip);
        assert!(t.ended * 10 >= most * 8, "{} of {most} in {} ms: {t:?}", t.ended, round_trip / MILLIS);
    }
}

#[test]
#[cfg(feature = "soak")]
fn calls_that_do_not_count_as_under_way_are_noticed() {
    let mutant = Mutant::of(Rule::ShortCallsUncounted);
    let t = crowd(1000, 1000, 0, bottleneck(20 * MILLIS), mutant);
    assert!(t.dropped * 100 > 3 * t.sent, "{t:?}");
}
