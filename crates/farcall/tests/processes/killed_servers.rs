//! Real servers, killed and stopped at random, with a log of executions that outlives them.
//!
//! Every outcome that a caller is told must agree with the log: no call is executed twice, a call that did
//! not run is not there, and a call that returned is there once. `FARCALL_FAULTS` says how many faults (1,000
//! if it is not set), `FARCALL_SEED` which.
//!
//! The test program runs itself again as the servers. Nothing here waits for time to pass: servers say when
//! they are ready, and the next fault comes when so many more calls have ended, well or badly.

use std::collections::HashMap;
use std::env;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::execution_log::{Chance, Logger, Mortal, Numbers, executions};
use crate::progress::{Gone, Over, Progress};
use farcall::{CallFailed, Error, Kind, Ran, Runtime};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const ROLE: &str = "FARCALL_TEST_ROLE";
const LOG: &str = "FARCALL_TEST_LOG";
const ADDRESS: &str = "FARCALL_TEST_ADDRESS";
/// The number of servers.
const SERVERS: usize = 3;
/// The number of callers, each with sockets of its own.
const CALLERS: usize = 6;
/// How long a caller waits for a silent server. It is short, because servers are silent often here.
const PATIENCE: Duration = Duration::from_millis(60);

#[test]
fn callers_are_told_the_truth_whatever_happens_to_servers() {
    let (faults, seed, mut chance) = Chance::of_test();
    let scratch = tempfile::tempdir().unwrap();
    let place = Place { registry: scratch.path().join("registry"), log: scratch.path().join("log") };

    let mut servers: Vec<Server> = (0..SERVERS).map(|which| Server::start(&place, which, None)).collect();
    let (over, progress, next) = (AtomicBool::new(false), Progress::default(), AtomicU64::new(0));
    let outcomes = std::thread::scope(|scope| {
        let call = || {
            // If this thread panics, the thread that waits for progress goes on.
            let _gone = Gone(&progress);
            call_until(&over, &progress, &next, &place)
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        let counts = {
            let _over = Over(&over);
            inflict(faults, &mut chance, &mut servers, &place, &progress)
        };
        println!("{} killed, {} stopped for a while", counts[0], counts[1]);
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
    });
    // Calls that wait in a stopped server's socket may run now. Only then is the log complete.
    servers.into_iter().for_each(Server::finish);
    judge(&outcomes, &executions(&place.log), seed);
}

/// The outcome of a call that a caller was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Returned,
    Failed(Kind, Ran),
}

/// Compares the outcomes that callers were told with the executions.
fn judge(outcomes: &[(u64, Told)], executions: &HashMap<u64, u32>, seed: u64) {
    let is_true = |(number, told): &(u64, Told)| match (told, executions.get(number).copied().unwrap_or(0)) {
        (Told::Returned | Told::Failed(_, Ran::Yes), count) => count == 1,
        (Told::Failed(_, Ran::No), count) => count == 0,
        (Told::Failed(_, Ran::Maybe), count) => count <= 1,
    };
    let violations: Vec<_> = outcomes.iter().filter(|outcome| !is_true(outcome)).take(9).collect();

    let mut told = HashMap::<Told, u64>::new();
    outcomes.iter().for_each(|(_, outcome)| *told.entry(*outcome).or_default() += 1);
    println!("{} calls, {} executions, told: {told:?}", outcomes.len(), executions.values().sum::<u32>());
    assert!(violations.is_empty(), "FARCALL_SEED={seed}: {violations:?}");
    let known = |number: &u64| outcomes.iter().any(|(called, _)| called == number);
    assert!(
        executions.iter().all(|(number, count)| *count == 1 || known(number)),
        "executed, but never called"
    );
    assert!(told.contains_key(&Told::Returned), "nothing was ever answered");
}

impl std::hash::Hash for Told {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        format!("{self:?}").hash(state);
    }
}

/// Makes calls with numbers that no other caller uses. Returns their outcomes.
fn call_until(over: &AtomicBool, progress: &Progress, next: &AtomicU64, place: &Place) -> Vec<(u64, Told)> {
    let registry = farcall::names::File::at(&place.registry);
    let runtime = Runtime::builder().registry(registry).patience(PATIENCE).build().unwrap();
    let mut outcomes = Vec::new();
    let mut numbers = None;
    while !over.load(Ordering::SeqCst) {
        // The first server that answers is bound. If none does, that counts as a call that has ended.
        let Some(bound) = numbers.take().or_else(|| runtime.import::<dyn Numbers>("Numbers").ok()) else {
            progress.one_more();
            continue;
        };
        let number = next.fetch_add(1, Ordering::Relaxed);
        let told = match bound.enter(number) {
            Ok(result) => {
                assert_eq!(result, number);
                Told::Returned
            }
            Err(Error::CallFailed(why)) => Told::Failed(why.kind(), why.ran()),
            Err(Error::Declared(never)) => match never {},
        };
        outcomes.push((number, told));
        numbers = Some(bound);
        progress.one_more();
    }
    outcomes
}

/// Kills and stops servers. Returns how often each.
fn inflict(
    faults: u64,
    chance: &mut Chance,
    servers: &mut [Server],
    place: &Place,
    progress: &Progress,
) -> [u64; 2] {
    let mut counts = [0, 0];
    for _ in 0..faults {
        let which = chance.below(SERVERS as u64) as usize;
        let kill = chance.below(2) == 0;
        counts[usize::from(!kill)] += 1;
        if kill {
            // The server may be killed while it is stopped.
            if chance.below(4) == 0 {
                servers[which].signal(Signal::STOP);
                progress.wait_for(chance.below(10));
            }
            servers[which].kill();
            progress.wait_for(chance.below(20));
            // The next server may have the same address, where packets for the dead one still arrive.
            let address = (chance.below(2) == 0).then(|| servers[which].address.clone());
            servers[which] = Server::start(place, which, address);
        } else {
            servers[which].signal(Signal::STOP);
            progress.wait_for(chance.below(30));
            servers[which].signal(Signal::CONT);
        }
        progress.wait_for(chance.below(40));
    }
    counts
}

/// No caller waits for the patience, which is an hour: neither in a call that the server may have begun, nor
/// to bind again.
#[test]
#[cfg(target_os = "linux")]
fn a_server_that_is_killed_is_noticed_because_its_port_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let place = Place { registry: scratch.path().join("registry"), log: scratch.path().join("log") };
    // At this address none of the servers of the other test takes the port once it is free.
    let mut server = Server::start(&place, 0, Some("127.0.0.2:0".into()));
    let hour = Duration::from_secs(3600);
    let runtime = Runtime::builder()
        .registry(farcall::names::File::at(&place.registry))
        .shared_memory(false)
        .patience(hour);
    let runtime = runtime.build().unwrap();
    let name = format!("udp://{}/Numbers", server.address);
    let numbers = runtime.import::<dyn Numbers>(&name).unwrap();
    numbers.enter(1).unwrap();
    server.signal(Signal::STOP);
    // The server's threads may run on for a while after the signal was sent, so wait until it has stopped.
    let stopped = waitpid(Some(Pid::from_child(&server.process.child)), WaitOptions::UNTRACED).unwrap();
    assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    let pending = [2, 3].map(|number| numbers.start().enter(number));
    server.kill();
    for pending in pending {
        let why = CallFailed::from(pending.wait().unwrap_err());
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
    }
    for why in [numbers.enter(4).unwrap_err(), runtime.import::<dyn Numbers>(&name).map(drop).unwrap_err()] {
        let why = CallFailed::from(why);
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "{why}");
    }
}

/// The files of the registry and of the log.
struct Place {
    registry: std::path::PathBuf,
    log: std::path::PathBuf,
}

/// A process that serves.
struct Server {
    process: Mortal,
    address: String,
}

impl Server {
    /// Starts a server, and waits until it is ready.
    fn start(place: &Place, which: usize, address: Option<String>) -> Server {
        let (process, ready) = Mortal::start("killed_servers::a_server_that_the_test_starts", |command| {
            command.env(ROLE, format!("Numbers/{which}")).env(LOG, &place.log);
            command.env("FARCALL_REGISTRY", &place.registry);
            command.env(ADDRESS, address.as_deref().unwrap_or("127.0.0.1:0"));
        });
        Server { process, address: ready.trim_start_matches("at ").to_owned() }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    /// Lets the server finish the calls that it has received, and waits for its end.
    fn finish(mut self) {
        drop(self.process.child.stdin.take());
        assert!(self.process.child.wait().unwrap().success());
    }
}

/// Not a test by itself: the servers run this.
#[test]
fn a_server_that_the_test_starts() {
    let Ok(name) = env::var(ROLE) else { return };
    let logger = Logger::open(Path::new(&env::var_os(LOG).unwrap()));
    let export = |address: &str| {
        let runtime = Runtime::builder().address(address.parse().unwrap()).build().unwrap();
        runtime.export::<dyn Numbers>(&name, logger.clone())
    };
    // Another process may have taken the port meanwhile.
    let export = export(&env::var(ADDRESS).unwrap()).or_else(|_| export("127.0.0.1:0")).unwrap();
    println!("\nready at {}", export.address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // This process's own call comes after everything that was received before.
    let last = farcall::import::<dyn Numbers>(&export.url()).unwrap();
    last.enter(u64::from(std::process::id()) | 1 << 63).unwrap();
    assert!(export.drain(Duration::from_secs(30)));
}
