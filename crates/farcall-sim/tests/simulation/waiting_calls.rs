//! Tests that calls which all wait begin soon, although no attribute says that they wait.

use std::sync::Arc;
use std::time::Duration;

use farcall_sim::{check, sim};

#[farcall::interface]
trait Sleeps {
    /// Sleeps until the client has long made all its calls. Returns when it began, in nanoseconds.
    fn sleep(&self) -> farcall::Result<u64>;
}

struct Sleeper;

impl Sleeps for Sleeper {
    fn sleep(&self) -> farcall::Result<u64> {
        let began = sim::now().as_nanos() as u64;
        sim::sleep(Duration::from_secs(5));
        Ok(began)
    }
}

const CALLS: usize = 100;

#[test]
fn calls_that_all_sleep_begin_within_fifty_milliseconds_of_virtual_time() {
    check(20, |sim| -> farcall::Result<()> {
        sim.server("server", || farcall::export::<dyn Sleeps>("Sleeps", Arc::new(Sleeper))?.wait());
        let sleeps = farcall::import::<dyn Sleeps>("Sleeps")?;
        let calls: Vec<_> = (0..CALLS).map(|_| sleeps.start().sleep()).collect();
        let mut began = calls.into_iter().map(|call| call.wait()).collect::<farcall::Result<Vec<u64>>>()?;
        began.sort_unstable();
        let took = Duration::from_nanos(began[CALLS - 1] - began[0]);
        assert!(took < Duration::from_millis(50), "the last began {took:?} after the first");
        Ok(())
    });
}
