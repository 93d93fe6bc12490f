//! Tests one large result over a path with heavy loss, and the silence afterwards.

use farcall_proto::Mutant;
use farcall_sim::net::{MICROS, MILLIS, Path, SECS};
use farcall_sim::{Bulk, Load};

fn lossy(delay: u64) -> Path {
    let mut path = Path::clean(delay);
    path.loss = 200_000;
    path.rate = 125_000_000;
    path.queue = 10 * MILLIS;
    path.mtu = 1472;
    path
}

fn result(bytes: usize, path: Path) -> Bulk {
    Bulk { bytes, load: Load::Result, transfers: 1, path, seed: 1, mutant: Mutant::NONE }
}

#[test]
fn a_large_result_through_a_fifth_lost_each_way() {
    let t = result(64 << 20, lossy(100 * MICROS)).run();
    assert!(t.intact);
    assert!(t.elapsed < 60 * SECS, "{t:?}");
    assert!(t.sent.0 <= (64 << 20) * 3 / 2, "{t:?}");
    assert_eq!((t.watched, t.idle_datagrams), (3600 * SECS, 0), "an idle conversation is silent");
}

#[test]
fn a_result_that_takes_longer_than_the_hold_arrives() {
    // The path takes ten milliseconds each way, so the transfer takes minutes. A result is held for 30 s.
    let t = result(16 << 20, lossy(10 * MILLIS)).run();
    assert!(t.intact);
    assert!(t.elapsed > 30 * SECS, "{t:?}");
}
