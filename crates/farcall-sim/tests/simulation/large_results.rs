//! Tests one large result over a path with heavy loss, and the silence afterwards.

use farcall_sim::Bulk;
use farcall_sim::net::{MICROS, MILLIS, Path, SECS};

fn lossy(delay: u64) -> Path {
    let mut path = Path::clean(delay);
    path.loss = 200_000;
    path.rate = 125_000_000;
    path.queue = 10 * MILLIS;
    path.mtu = 1472;
    path
}

#[test]
fn a_large_result_through_a_fifth_lost_each_way() {
    let t = Bulk { bytes: 64 << 20, path: lossy(100 * MICROS), seed: 1 }.run();
    assert!(t.intact);
    assert!(t.elapsed < 60 * SECS, "{t:?}");
    assert!(t.sent.0 <= (64 << 20) * 3 / 2, "{t:?}");
    assert_eq!((t.watched, t.idle_datagrams), (3600 * SECS, 0), "an idle conversation is silent");
}

#[test]
fn a_result_that_takes_longer_than_the_hold_arrives() {
    // The path takes ten milliseconds each way, so the transfer takes minutes. A result is held for 30 s.
    let t = Bulk { bytes: 16 << 20, path: lossy(10 * MILLIS), seed: 1 }.run();
    assert!(t.intact);
    assert!(t.elapsed > 30 * SECS, "{t:?}");
}
