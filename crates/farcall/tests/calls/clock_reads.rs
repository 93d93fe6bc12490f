//! How often a call of many servers reads the clock: one reading takes as long as a short procedure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use crate::common::{builder, runtime};
use farcall::env::{Env, Time};
use farcall::{Group, System};

/// The operating system, except that it counts how often one thread reads the clock.
struct Clock {
    whose: ThreadId,
    looks: AtomicUsize,
}

impl Env for Clock {
    system_does! { bind, spawn, event, entropy }

    fn now(&self) -> Time {
        if current().id() == self.whose {
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
        System.now()
    }
}

#[farcall::interface]
trait Member {
    fn compute(&self) -> farcall::Result<()>;
}

/// A member that computes for this long.
struct Server(Duration);

impl Member for Server {
    fn compute(&self) -> farcall::Result<()> {
        let began = Instant::now();
        while began.elapsed() < self.0 {}
        Ok(())
    }
}

#[test]
fn replies_that_come_late_and_alone_take_a_look_each() {
    let clock = Arc::new(Clock { whose: current().id(), looks: AtomicUsize::new(0) });
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
    let looks = |_| {
        let before = clock.looks.load(Ordering::Relaxed);
        assert_eq!(group.multi().compute().all().results().count(), 3);
        clock.looks.load(Ordering::Relaxed) - before
    };
    // There are more readings when a packet comes late, or two together.
    let least = (0..50).map(looks).min().unwrap();
    assert!(least <= 7, "one for each call, one for each reply, and one before: {least}");
}
