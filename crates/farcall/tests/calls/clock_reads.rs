//! Counts how often the calling thread of a group call reads the clock. One reading takes as long as a short
//! procedure, so the thread must read the clock rarely.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use crate::common::{builder, runtime};
use farcall::env::{Env, Time};
use farcall::{Group, System};

/// The operating system, except that it counts the clock readings of one thread.
struct Clock {
    /// The thread whose readings are counted.
    reader: ThreadId,
    readings: AtomicUsize,
}

impl Env for Clock {
    system_does! { bind, spawn, event, entropy }

    fn now(&self) -> Time {
        if current().id() == self.reader {
            self.readings.fetch_add(1, Ordering::Relaxed);
        }
        System.now()
    }
}

#[farcall::interface]
trait Member {
    fn compute(&self) -> farcall::Result<()>;
}

/// A member whose procedure computes for this time.
struct Server(Duration);

impl Member for Server {
    fn compute(&self) -> farcall::Result<()> {
        let began = Instant::now();
        while began.elapsed() < self.0 {}
        Ok(())
    }
}

#[test]
fn a_group_call_reads_the_clock_once_before_and_once_per_call_and_reply() {
    let clock = Arc::new(Clock { reader: current().id(), readings: AtomicUsize::new(0) });
    let caller = builder().env(clock.clone()).build().unwrap();
    let serve = |n: u64| {
        let runtime = runtime();
        let export =
            runtime.export::<dyn Member>("Member", Arc::new(Server(Duration::from_millis(n)))).unwrap();
        let member = caller.import::<dyn Member>(&export.url()).unwrap();
        (export, (n.to_string(), member))
    };
    let (_exports, members): (Vec<_>, Vec<_>) = (1..=3).map(serve).unzip();
    let group = Group::of(members);
    let count_readings = |_| {
        let before = clock.readings.load(Ordering::Relaxed);
        assert_eq!(group.multi().compute().all().results().count(), 3);
        clock.readings.load(Ordering::Relaxed) - before
    };
    // The members compute for 1, 2 and 3 ms, so that each reply arrives alone. A call in which a packet is
    // late, or two packets arrive together, reads the clock more often. So the least count is checked.
    let least = (0..50).map(count_readings).min().unwrap();
    assert!(
        least <= 7,
        "a group call of 3 members reads the clock at most 7 times, and read it {least} times"
    );
}
