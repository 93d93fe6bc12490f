//! Tests the choice of a member for each call: ten servers, of which one is ten times slower, one refuses
//! every call at once, and one answers nothing.
//!
//! With these three, the calls of a balanced stub must be about as fast and as many as without them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::intercept::{Call, Interceptor};
use farcall::{CallFailed, Kind, Ran, Runtime};
use farcall_sim::{Sim, replay, sim};

#[farcall::interface]
trait Work {
    #[blocking]
    fn work(&self) -> farcall::Result<()>;
}

struct Server(Duration);

impl Work for Server {
    fn work(&self) -> farcall::Result<()> {
        sim::sleep(self.0);
        Ok(())
    }
}

/// Refuses every call.
struct Refuses;

impl Interceptor for Refuses {
    fn before(&self, _: &Call<'_>) -> Result<(), CallFailed> {
        Err(CallFailed::new(Kind::Overloaded, Ran::No))
    }
}

const SERVERS: usize = 10;
const CALLERS: usize = 14;
const SERVICE: Duration = Duration::from_millis(5);
/// How long a caller waits.
const DEADLINE: Duration = Duration::from_millis(200);
/// For how long calls are made before they count, and for how long they count.
const BEFORE: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, PartialEq)]
enum By {
    TwoByChance,
    Turns,
}

/// How long each call took that ended while calls counted, in microseconds; and how many failed.
#[derive(Default)]
struct Seen {
    took: Vec<u64>,
    failed: u64,
}

/// Runs calls to the servers. With `bad`, three of them are as the head of this file says; otherwise there
/// are only the others.
fn run(sim: &Sim, by: By, bad: bool, seen: &Arc<Mutex<Seen>>) {
    let serve = |name: usize, time: Duration, refuses: bool| {
        sim.server(&format!("server {name}"), move || {
            let builder = Runtime::builder();
            let builder = if refuses { builder.intercept_serving(Refuses) } else { builder };
            builder.build()?.export::<dyn Work>(&format!("Work/{name}"), Arc::new(Server(time)))?.wait()
        })
    };
    let good: Vec<_> = (3..SERVERS).map(|name| serve(name, SERVICE, false)).collect();
    let silent = bad.then(|| {
        serve(0, 10 * SERVICE, false);
        serve(1, SERVICE, true);
        serve(2, SERVICE, false)
    });
    sim.sleep(Duration::from_millis(100));
    let seen = seen.clone();
    sim.process("client", move || client(by, &seen));
    sim.sleep(Duration::from_millis(300));
    // It has answered when it was bound.
    if let Some(silent) = &silent {
        silent.pause();
    }
    sim.sleep(BEFORE + COUNTED);
    if let Some(silent) = &silent {
        silent.resume();
    }
    sim.run();
    drop(good);
}

fn client(by: By, seen: &Arc<Mutex<Seen>>) {
    let balancer = farcall::import_all::<dyn Work>("Work").unwrap().balancer();
    let (from, to) = (sim::now() + BEFORE, sim::now() + BEFORE + COUNTED);
    let callers = (0..CALLERS).map(|_| {
        let (seen, balancer) = (seen.clone(), balancer.clone());
        sim::spawn(move || {
            let stub = match by {
                By::TwoByChance => balancer.stub(),
                By::Turns => balancer.round_robin(),
            };
            let stub = stub.within(DEADLINE);
            while sim::now() < to {
                let begun = sim::now();
                let ended = stub.work();
                let now = sim::now();
                if begun >= from && now <= to {
                    let mut seen = seen.lock().unwrap();
                    seen.took.push((now - begun).as_micros() as u64);
                    seen.failed += u64::from(ended.is_err());
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    callers.into_iter().for_each(|caller| caller.join());
}

/// Returns how many calls ended, the 99th percentile of their times in microseconds, and how many failed.
fn measured(seed: u64, by: By, bad: bool) -> (usize, u64, u64) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let noting = seen.clone();
    replay(seed, move |sim| run(sim, by, bad, &noting)).unwrap_or_else(|failure| panic!("{failure}"));
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.took.sort();
    let p99 = seen.took[seen.took.len() * 99 / 100];
    (seen.took.len(), p99, seen.failed)
}

#[test]
fn a_slow_a_refusing_and_a_silent_member_cost_a_balanced_stub_little() {
    for seed in 0..2 {
        let (ideal, ideal_p99, _) = measured(seed, By::TwoByChance, false);
        let (calls, p99, failed) = measured(seed, By::TwoByChance, true);
        let (turns, turns_p99, turns_failed) = measured(seed, By::Turns, true);
        println!(
            "seed {seed}: without the three {ideal} calls, p99 {ideal_p99} us; with them {calls}, {p99} us, {failed} \
             failed; one after the other {turns}, {turns_p99} us, {turns_failed} failed"
        );
        assert!(2 * p99 <= 3 * ideal_p99, "seed {seed}: p99 {p99} us, at most 1.5 times {ideal_p99} us");
        assert!(100 * calls >= 95 * ideal, "seed {seed}: {calls} calls, at least 95 % of {ideal}");
    }
}
