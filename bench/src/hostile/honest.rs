//! Honest callers: each makes calls of all sizes, one after the other, and each call must succeed.
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farcall::memory::{Memory, Remote};
use farcall::{Runtime, names};

use super::side::Done;
use super::target::{NAME, SEGMENT, SEGMENT_BYTES, Target, TargetClient};

/// The number of honest callers.
pub const CALLERS: usize = 4;

const SHORT: usize = 4 << 10;
const LONG: usize = 100 << 10;

/// The kinds of calls, in turn.
pub const CALLS: [&str; 11] = [
    "null",
    "take 4 KiB",
    "give 4 KiB",
    "read 64 bytes",
    "null",
    "take 100 KiB",
    "give 100 KiB",
    "read 4 KiB",
    "null",
    "read 100 KiB",
    "pause 1 ms",
];

/// The most failures that are reported with their reasons.
const TOLD: usize = 5;

/// The callers of one server. Each has a runtime of its own, and thus a conversation of its own.
pub struct Callers(Vec<Caller>);

struct Caller {
    _runtime: Runtime,
    target: TargetClient,
    segment: Remote,
    data: Vec<u8>,
}

impl Callers {
    /// Starts the callers, equally many at each of the server's addresses.
    pub fn bind(addresses: &[SocketAddr]) -> Result<Callers> {
        let caller = |at: usize| {
            let address = addresses[at % addresses.len()];
            Caller::bind(address).with_context(|| format!("binding to {address}"))
        };
        Ok(Callers((0..CALLERS).map(caller).collect::<Result<_>>()?))
    }

    /// Returns one caller of this runtime's.
    pub fn one_of(runtime: Runtime, address: SocketAddr) -> Result<Callers> {
        Ok(Callers(vec![Caller::of(runtime, address)?]))
    }

    /// Makes all callers call for that time.
    pub fn call(&mut self, time: Duration) -> Result<Done> {
        let called: Vec<Called> = std::thread::scope(|scope| {
            let threads: Vec<_> = self.0.iter().map(|caller| scope.spawn(|| caller.call(time))).collect();
            threads.into_iter().flat_map(|thread| thread.join().ok()).collect()
        });
        let mut done = Done::default();
        for one in called {
            done.rates.push(one.calls as f64 / one.took.as_secs_f64());
            done.calls += one.calls;
            done.failures.extend(one.failures);
            done.longest.resize(CALLS.len(), Duration::ZERO);
            done.longest
                .iter_mut()
                .zip(one.longest)
                .for_each(|(longest, other)| *longest = other.max(*longest));
        }
        Ok(done)
    }
}

/// What one caller has done.
struct Called {
    calls: u64,
    took: Duration,
    longest: [Duration; CALLS.len()],
    failures: Vec<String>,
}

impl Caller {
    fn bind(address: SocketAddr) -> Result<Caller> {
        Caller::of(Runtime::builder().registry(names::Memory::new()).shared_memory(false).build()?, address)
    }

    fn of(runtime: Runtime, address: SocketAddr) -> Result<Caller> {
        let target = runtime.import::<dyn Target>(&format!("udp://{address}/{NAME}"))?;
        let segment = runtime.import_segment(&format!("udp://{address}/{SEGMENT}"))?;
        Ok(Caller { _runtime: runtime, target, segment, data: vec![7; LONG] })
    }

    fn call(&self, time: Duration) -> Called {
        let began = Instant::now();
        let mut called =
            Called { calls: 0, took: time, longest: [Duration::ZERO; CALLS.len()], failures: Vec::new() };
        let mut into = vec![0; LONG];
        'all: loop {
            for which in 0..CALLS.len() {
                let start = Instant::now();
                if start - began >= time {
                    break 'all;
                }
                if let Err(why) = self.one(which, &mut into) {
                    called.failures.push(if called.failures.len() < TOLD { why } else { "another".into() });
                }
                called.calls += 1;
                called.longest[which] = called.longest[which].max(start.elapsed());
            }
        }
        called.took = began.elapsed();
        called
    }

    /// Makes one call; `which` selects its kind.
    fn one(&self, which: usize, into: &mut [u8]) -> Result<(), String> {
        let Caller { target, segment, data, .. } = self;
        let fail = |why: &dyn std::fmt::Display| format!("{}: {why}", CALLS[which]);
        let right = |is: bool| if is { Ok(()) } else { Err(fail(&"a wrong result")) };
        let give = |bytes: usize| {
            let given = target.give(bytes as u32).map_err(|why| fail(&why))?;
            right(given.len() == bytes && given.iter().all(|byte| *byte == 7))
        };
        let take = |bytes: usize| {
            let taken = target.take(&data[..bytes]).map_err(|why| fail(&why))?;
            right(taken as usize == bytes)
        };
        let mut read = |bytes: usize| {
            let into = &mut into[..bytes];
            into.fill(1);
            segment.read_bytes(SEGMENT_BYTES / 2 - LONG as u64, into).map_err(|why| fail(&why))?;
            right(into.iter().all(|byte| *byte == 0))
        };
        match which {
            0 | 4 | 8 => target.null().map_err(|why| fail(&why)),
            1 => take(SHORT),
            2 => give(SHORT),
            3 => read(64),
            5 => take(LONG),
            6 => give(LONG),
            7 => read(SHORT),
            9 => read(LONG),
            _ => target.pause().map_err(|why| fail(&why)),
        }
    }
}
