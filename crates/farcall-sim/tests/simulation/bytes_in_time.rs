//! Laws of how long transfers take on paths with round trips from a millisecond to a third of a second, and
//! of what they cost.

use farcall_proto::Mutant;
#[cfg(feature = "soak")]
use farcall_proto::Rule;
use farcall_sim::net::{MICROS, MILLIS, Nanos, Path, SECS};
use farcall_sim::{Bulk, Load, Transfer};

const MIB: usize = 1 << 20;

/// The round trips of the paths, in milliseconds.
const ROUND_TRIPS: [u64; 8] = [1, 5, 10, 20, 40, 80, 200, 300];

const LOADS: [Load; 4] = [Load::Result, Load::Arguments, Load::Down, Load::Up];

/// Returns a path for datagrams as Ethernet carries them.
fn clean(round_trip: Nanos) -> Path {
    let mut path = Path::clean(round_trip / 2);
    path.mtu = 1472;
    path
}

/// Returns such a path for a gigabit a second, on which datagrams that are sent within a tenth of the round
/// trip, but at most a millisecond, arrive in any order.
fn reordering(round_trip: Nanos) -> Path {
    let mut path = clean(round_trip);
    (path.jitter, path.rate, path.queue) = ((round_trip / 10).min(MILLIS), 125_000_000, SECS);
    path
}

fn run(bytes: usize, load: Load, transfers: u32, path: Path) -> Transfer {
    let t = Bulk { bytes, load, transfers, path, seed: 3, mutant: Mutant::NONE }.run();
    assert!(t.intact, "{load:?} of {bytes} bytes over {path:?}: {t:?}");
    t
}

/// Returns how many flights carry this many bytes, if the first carries 12,000 and each as many again as all
/// before it and 12,000 more.
fn flights(bytes: usize) -> u64 {
    let (mut flights, mut carried) = (0, 0);
    while carried < bytes {
        (flights, carried) = (flights + 1, 2 * carried + 12_000);
    }
    flights
}

/// Returns how many bytes the end sent that sent more.
fn sent(t: &Transfer) -> u64 {
    t.sent.0.max(t.client_sent.0)
}

/// Returns how many bytes are sent at most for as many of transfers, with all overhead, if none is sent twice.
fn most_sent(bytes: usize) -> u64 {
    bytes as u64 * 5 / 4
}

#[test]
fn slow_start_alone_bounds_a_first_transfer_over_a_clean_path_and_nothing_is_sent_twice() {
    for load in LOADS {
        for round_trip in ROUND_TRIPS.map(|ms| ms * MILLIS) {
            let t = run(MIB, load, 1, clean(round_trip));
            let most = (flights(MIB) + 2) * round_trip;
            let took = t.elapsed as f64 / round_trip as f64;
            assert!(t.elapsed <= most, "{load:?}: {took:.1} round trips of {} ms", round_trip / MILLIS);
            assert_eq!(t.repeated, 0, "{load:?} in round trips of {} ms: {t:?}", round_trip / MILLIS);
        }
    }
}

#[test]
fn a_later_transfer_over_a_clean_path_takes_few_round_trips() {
    for load in LOADS {
        for round_trip in ROUND_TRIPS.map(|ms| ms * MILLIS) {
            let t = run(MIB, load, 3, clean(round_trip));
            let took = t.last as f64 / round_trip as f64;
            assert!(
                t.last <= 3 * round_trip,
                "{load:?}: {took:.1} round trips of {} ms",
                round_trip / MILLIS
            );
            assert_eq!(t.repeated, 0, "{load:?} in round trips of {} ms: {t:?}", round_trip / MILLIS);
            assert!(sent(&t) <= most_sent(3 * MIB), "{load:?} in {} ms: {t:?}", round_trip / MILLIS);
        }
    }
}

#[test]
fn datagrams_that_overtake_one_another_do_not_slow_a_transfer_down() {
    // (DATA that overtakes its call at the server is dropped there, and so is lost: no stream up is among
    // these.)
    for load in [Load::Result, Load::Arguments, Load::Down] {
        for round_trip in [1, 10, 80].map(|ms| ms * MILLIS) {
            let t = run(2 * MIB, load, 1, reordering(round_trip));
            let most = (flights(2 * MIB) + 4) * round_trip + 20 * MILLIS;
            let took = t.elapsed as f64 / round_trip as f64;
            assert!(
                t.elapsed <= most,
                "{load:?}: {took:.1} round trips of {} ms: {t:?}",
                round_trip / MILLIS
            );
            assert!(t.repeated <= 20, "{load:?} in {} ms: {t:?}", round_trip / MILLIS);
        }
    }
}

#[test]
fn a_transfer_over_a_path_with_few_losses_takes_less_than_a_round_trip_for_each_four_kilobytes() {
    for load in LOADS {
        for round_trip in [MILLIS, 20 * MILLIS, 80 * MILLIS, 200 * MILLIS] {
            let mut path = clean(round_trip);
            path.loss = 10_000;
            let t = run(MIB, load, 1, path);
            let took = t.elapsed as f64 / round_trip as f64;
            let most = 256 * round_trip.max(20 * MILLIS + 100 * MICROS);
            assert!(t.elapsed <= most, "{load:?}: {took:.1} round trips of {} ms", round_trip / MILLIS);
        }
    }
}

#[test]
#[cfg(feature = "soak")]
fn an_end_that_takes_what_is_late_for_lost_is_noticed() {
    let transfer = |load, mutant, path| {
        Bulk { bytes: MIB, load, transfers: 1, path, seed: 3, mutant: Mutant::of(mutant) }.run()
    };
    let again = |mutant| {
        let (load, path) = (Load::Down, reordering(80 * MILLIS));
        Bulk { bytes: MIB, load, transfers: 3, path, seed: 3, mutant }.run().repeated
    };
    let (sound, broken) = (again(Mutant::NONE), again(Mutant::of(Rule::LoanRefused)));
    assert!(broken > sound + 100, "{broken} fragments are repeated, otherwise {sound}");
    for load in [Load::Result, Load::Down] {
        let t = transfer(load, Rule::UnmeasuredIsShort, clean(80 * MILLIS));
        assert!(t.repeated > 0, "{load:?}: {t:?}");
    }
    for load in LOADS {
        let t = transfer(load, Rule::LateIsLost, reordering(80 * MILLIS));
        assert!(t.elapsed > (flights(MIB) + 4) * 80 * MILLIS + 20 * MILLIS, "{load:?}: {t:?}");
    }
}
