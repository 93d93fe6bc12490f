//! Counts how often both ends of a connection read the clock where one processor must do for both. A thread
//! that polls reads the clock, so the count shows whether it polls in vain.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ThreadId, current};

use crate::common::{builder, skip};
use farcall::System;
use farcall::env::{Env, Time};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

/// The operating system, except that it counts the clock readings of the threads that make and receive calls.
/// Other threads read the clock as time passes.
struct Clock {
    caller: ThreadId,
    readings: AtomicUsize,
}

impl Env for Clock {
    system_does! { bind, spawn, event, entropy, shares_memory }

    fn now(&self) -> Time {
        if current().id() == self.caller || current().name() == Some("farcall-shm") {
            self.readings.fetch_add(1, Ordering::Relaxed);
        }
        System.now()
    }
}

#[farcall::interface]
trait Block {
    fn give(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32>;
}

struct Server;

impl Block for Server {
    fn give(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        Ok(vec![7; bytes as usize])
    }
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32> {
        Ok(bytes.len() as u32)
    }
}

#[test]
fn ends_that_share_a_processor_do_not_poll_for_one_another() {
    const CALLS: usize = 500;
    const BYTES: usize = 8 << 10;
    let mut processors = CpuSet::new();
    processors.set(sched_getcpu());
    // The runtime's threads inherit the thread's processor.
    if sched_setaffinity(None, &processors).is_err() {
        return skip("must not bind a thread to a processor");
    }
    let clock = Arc::new(Clock { caller: current().id(), readings: AtomicUsize::new(0) });
    let runtime = builder().env(clock.clone()).shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Block>("Block", Arc::new(Server)).unwrap();
    let block = runtime.import::<dyn Block>("Block").unwrap();
    let elsewhere = builder().shared_memory(false).build().unwrap();
    let by_udp = elsewhere.import::<dyn Block>(&export.url()).unwrap();
    let take = || assert_eq!(block.take(&[7; BYTES]).unwrap() as usize, BYTES);
    let give = || assert_eq!(block.give(BYTES as u32).unwrap().len(), BYTES);
    let count_readings = |call: &dyn Fn()| {
        let call = || {
            call();
            // Meanwhile the server finds no further request in the memory.
            assert_eq!(by_udp.take(&[]).unwrap(), 0);
        };
        // The first calls do not count: neither end knows yet on which processor the other one runs.
        (0..50).for_each(|_| call());
        let before = clock.readings.load(Ordering::Relaxed);
        (0..CALLS).for_each(|_| call());
        clock.readings.load(Ordering::Relaxed) - before
    };
    // Two readings measure how long a long result waits for the caller. A poll that ends in vain takes three
    // or more, at either end.
    for (what, call, most) in
        [("arguments", &take as &dyn Fn(), CALLS / 2), ("a result", &give, CALLS * 5 / 2)]
    {
        let readings = count_readings(call);
        println!("{readings} readings of the clock in {CALLS} calls with {what} of {BYTES} bytes");
        assert!(readings < most, "{readings} readings in {CALLS} calls with {what} of {BYTES} bytes");
    }
    let links = runtime.stats().links;
    assert!(links.iter().map(|link| link.calls).sum::<u64>() >= 2 * CALLS as u64, "through shared memory");
}
