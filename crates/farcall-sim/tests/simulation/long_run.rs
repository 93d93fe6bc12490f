//! Long runs of servers and clients under all faults, for the tests of the driver, of ONC RPC and of what
//! passes inside calls.
//!
//! 1,000 seeds of one of these tests take some minutes: `FARCALL_SIM_SEEDS=1000 cargo test --profile soak -p
//! farcall-sim --test simulation driver`. A failure prints its seed, which `FARCALL_SIM_SEED` replays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::xdr::Decode;
use farcall::{Error, Pending, Ran};
use farcall_sim::sim::Outcome;
use farcall_sim::{Faults, Process, Sim, check, replay, sim};

/// Runs a test under so many seeds. Fails if no call of one of the kinds succeeded under any seed, because
/// then the test has checked nothing of that kind.
pub fn check_kinds(seeds: u64, kinds: &[&str], run: impl Fn(&Sim, &Successes) + Send + Sync + 'static) {
    let (successes, runs) = (Successes::default(), Arc::new(AtomicU64::new(0)));
    let (counted, ended) = (successes.clone(), runs.clone());
    check(seeds, move |sim| {
        run(sim, &counted);
        ended.fetch_add(1, Ordering::Relaxed);
    });
    // The replay of one seed need not have calls of every kind.
    if runs.load(Ordering::Relaxed) < seeds {
        return;
    }
    let counts = successes.0.lock().unwrap();
    let missing: Vec<_> = kinds.iter().filter(|kind| !counts.contains_key(*kind)).collect();
    assert!(missing.is_empty(), "no call of these kinds succeeded: {missing:?}; of others: {counts:?}");
}

/// Checks that two runs of one seed are the same.
pub fn check_replay(seeds: u64, run: impl Fn(&Sim, &Successes) + Copy + Send + Sync + 'static) {
    let test = move |sim: &Sim| run(sim, &Successes::default());
    for seed in 0..seeds {
        assert_eq!(replay(seed, test), replay(seed, test));
    }
}

/// How many calls of each kind have returned a result, in all runs of a test.
#[derive(Clone, Default)]
pub struct Successes(Arc<Mutex<BTreeMap<&'static str, u64>>>);

/// What a caller was told about a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    Returned,
    Failed(Ran),
}

/// The kind of all calls that have ended with a declared exception.
pub const EXCEPTION: &str = "exception";

impl Successes {
    /// Returns what a caller was told, and counts the call if it has returned.
    pub fn note<T, E>(&self, kind: &'static str, ended: &Result<T, Error<E>>) -> Told {
        let kind = match ended {
            Ok(_) => kind,
            Err(Error::Declared(_)) => EXCEPTION,
            Err(Error::CallFailed(why)) => return Told::Failed(why.ran()),
        };
        *self.0.lock().unwrap().entry(kind).or_default() += 1;
        Told::Returned
    }
}

/// How large a run is.
pub struct Scale {
    /// The most servers; there is at least one.
    pub servers: u64,
    /// The most threads of a client; there is at least one.
    pub threads: u64,
    /// How many calls each thread makes.
    pub calls: u64,
}

/// Runs servers and clients under random faults, until all clients have ended and the last late packet has
/// come. `serve` is a server's main function; `call` is that of a client's thread, and takes how many calls
/// to make.
pub fn run<R: Outcome>(
    sim: &Sim,
    scale: &Scale,
    serve: impl Fn() -> R + Clone + Send + Sync + 'static,
    call: impl Fn(u64) + Clone + Send + Sync + 'static,
) {
    let Scale { servers, threads, calls } = *scale;
    sim.limit(Duration::from_secs(24 * 3600));
    sim.random_faults();
    let server = |n| sim.server(&format!("server {n}"), serve.clone());
    let servers: Vec<Process> = (0..1 + sim.below(servers)).map(server).collect();
    let client = |n| {
        let call = call.clone();
        sim.process(&format!("client {n}"), move || {
            let thread = |_| {
                let call = call.clone();
                sim::spawn(move || call(calls))
            };
            let threads: Vec<_> = (0..1 + sim::below(threads)).map(thread).collect();
            threads.into_iter().for_each(|thread| thread.join());
        })
    };
    let clients: Vec<Process> = (0..1 + sim.below(2)).map(client).collect();
    for _ in 0..sim.below(8) {
        sim.sleep(Duration::from_millis(sim.below(4000)));
        let server = &servers[sim.below(servers.len() as u64) as usize];
        let client = &clients[sim.below(clients.len() as u64) as usize];
        disturb(sim, server, client);
    }
    sim.faults(Faults::none());
    sim.run();
    // All late packets arrive now, and servers give up the calls of clients that crashed.
    sim.sleep(Duration::from_secs(7 * 3600));
}

/// Causes one fault of a process, of the path between two processes, or of the network.
fn disturb(sim: &Sim, server: &Process, client: &Process) {
    match sim.below(7) {
        0 | 1 => {
            server.crash();
            sim.sleep(Duration::from_millis(sim.below(8000)));
            server.restart();
        }
        2 => client.crash(),
        3 => {
            let one = [server, client][sim.below(2) as usize];
            one.pause();
            sim.sleep(Duration::from_millis(sim.below(20_000)));
            one.resume();
        }
        4 => {
            sim.cut(server, client);
            sim.sleep(Duration::from_millis(sim.below(20_000)));
            sim.heal();
        }
        _ => drop(sim.random_faults()),
    }
}

/// Makes calls one after another, with pauses of at most `most_pause` microseconds, and checks that none
/// takes as long as `longest`.
pub fn call_repeatedly(calls: u64, longest: Duration, most_pause: u64, one_call: impl Fn()) {
    for _ in 0..calls {
        let before = sim::now();
        one_call();
        let took = sim::now() - before;
        assert!(took < longest, "a call took {took:?}");
        if sim::below(3) == 0 {
            sleep_micros(sim::below(most_pause));
        }
    }
}

/// The kind of a call, and what its caller was told.
type Ended<T, E> = (&'static str, farcall::Result<T, E>);

/// Ends a started call in a random way. Returns how it ended, unless the caller gave it up.
pub fn end_started<T, E>(mut started: Pending<T, E>) -> Option<Ended<T, E>>
where
    T: for<'a> Decode<'a>,
    E: for<'a> Decode<'a>,
{
    match sim::below(6) {
        0 | 1 => return Some(("start and wait", started.wait())),
        2 => return Some(("start and await", sim::block_on(started))),
        3 => {
            sleep_micros(1 << sim::below(20));
            started.cancel();
            return Some(("cancel", started.wait()));
        }
        4 => drop(started),
        _ => started.detach(),
    }
    None
}

/// Returns what `connect` returns as soon as it succeeds.
pub fn connected<T, E>(connect: impl Fn() -> Result<T, E>) -> T {
    loop {
        match connect() {
            Ok(client) => return client,
            Err(_) => sim::sleep(Duration::from_millis(300)),
        }
    }
}

/// Sleeps for so long, and does nothing for none.
pub fn sleep_micros(micros: u64) {
    if micros > 0 {
        sim::sleep(Duration::from_micros(micros));
    }
}
