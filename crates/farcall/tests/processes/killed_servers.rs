//! Real servers, killed and stopped at random, and what was executed according to a log that outlives them.
//!
//! Whatever a caller is told must be true of the log: nothing is executed twice; what did not run is not there; what
//! returned is there once. `FARCALL_FAULTS` says how many faults (1,000 if it is not set), `FARCALL_SEED` which.
//!
//! The test program runs itself again as the servers. Nothing here waits for time to pass: servers say when they are
//! ready, and the next fault comes when so many more calls have ended, well or badly.

use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::progress::{Gone, Over, Progress, setting};
use farcall::{CallFailed, Error, Kind, Ran, Runtime};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

#[farcall::interface]
pub trait Ledger {
    /// Writes the number into the log, and gives it back.
    fn enter(&self, number: u64) -> farcall::Result<u64>;
}

const ROLE: &str = "FARCALL_TEST_ROLE";
const LOG: &str = "FARCALL_TEST_LOG";
const ADDRESS: &str = "FARCALL_TEST_ADDRESS";
/// Servers of the one type.
const SERVERS: usize = 3;
/// Callers, each with sockets of its own.
const CALLERS: usize = 6;
/// How long a caller bears silence: short, since much of it is to come.
const PATIENCE: Duration = Duration::from_millis(60);

#[test]
fn what_callers_are_told_is_true_whatever_happens_to_servers() {
    let faults = setting("FARCALL_FAULTS").unwrap_or(1_000);
    let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = setting("FARCALL_SEED").unwrap_or_else(since);
    println!("{faults} faults, FARCALL_SEED={seed}");
    let scratch = tempfile::tempdir().unwrap();
    let place = Place { registry: scratch.path().join("registry"), log: scratch.path().join("log") };

    let mut servers: Vec<Server> = (0..SERVERS).map(|which| Server::start(&place, which, None)).collect();
    let (over, progress, next) = (AtomicBool::new(false), Progress::default(), AtomicU64::new(0));
    let outcomes = std::thread::scope(|scope| {
        let call = || {
            // Also when this thread panics, whoever waits for progress goes on.
            let _gone = Gone(&progress);
            call_until(&over, &progress, &next, &place)
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        let counts = {
            let _over = Over(&over);
            inflict(faults, &mut Chance(seed), &mut servers, &place, &progress)
        };
        println!("{} killed, {} stopped for a while", counts[0], counts[1]);
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
    });
    // What still stands in a stopped server's socket may run now; only then is the log complete.
    servers.into_iter().for_each(Server::finish);
    judge(&outcomes, &fs::read_to_string(&place.log).unwrap(), seed);
}

/// What a caller was told of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Returned,
    Failed(Kind, Ran),
}

/// Compares what was told with what was executed.
fn judge(outcomes: &[(u64, Told)], log: &str, seed: u64) {
    let mut executions = HashMap::<u64, u32>::new();
    log.lines().for_each(|line| *executions.entry(line.parse().unwrap()).or_default() += 1);
    let is_true = |(number, told): &(u64, Told)| match (told, executions.get(number).copied().unwrap_or(0)) {
        (Told::Returned | Told::Failed(_, Ran::Yes), count) => count == 1,
        (Told::Failed(_, Ran::No), count) => count == 0,
        (Told::Failed(_, Ran::Maybe), count) => count <= 1,
    };
    let violations: Vec<_> = outcomes.iter().filter(|outcome| !is_true(outcome)).take(9).collect();

    let mut told = HashMap::<Told, u64>::new();
    outcomes.iter().for_each(|(_, outcome)| *told.entry(*outcome).or_default() += 1);
    println!("{} calls, {} executions, told: {told:?}", outcomes.len(), log.lines().count());
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

/// A caller: a call with a number that nobody else has, again and again.
fn call_until(over: &AtomicBool, progress: &Progress, next: &AtomicU64, place: &Place) -> Vec<(u64, Told)> {
    let registry = farcall::names::File::at(&place.registry);
    let runtime = Runtime::builder().registry(registry).patience(PATIENCE).build().unwrap();
    let mut outcomes = Vec::new();
    let mut ledger = None;
    while !over.load(Ordering::SeqCst) {
        // Whoever answers first is bound; while nobody does, that is an end of a call too.
        let Some(bound) = ledger.take().or_else(|| runtime.import::<dyn Ledger>("Ledger").ok()) else {
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
        ledger = Some(bound);
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
            // Perhaps while it is stopped.
            if chance.below(4) == 0 {
                servers[which].signal(Signal::STOP);
                progress.wait_for(chance.below(10));
            }
            servers[which].kill();
            progress.wait_for(chance.below(20));
            // Perhaps at the same address, where packets for the dead one still arrive.
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

/// Nobody waits for the patience, which is an hour, neither in a call that the server may have begun nor to
/// bind anew.
#[test]
#[cfg(target_os = "linux")]
fn a_server_that_is_killed_is_noticed_because_its_port_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let place = Place { registry: scratch.path().join("registry"), log: scratch.path().join("log") };
    // Where none of the servers of the other test takes the port once it is free, and answers.
    let mut server = Server::start(&place, 0, Some("127.0.0.2:0".into()));
    let hour = Duration::from_secs(3600);
    let runtime = Runtime::builder()
        .registry(farcall::names::File::at(&place.registry))
        .shared_memory(false)
        .patience(hour);
    let runtime = runtime.build().unwrap();
    let name = format!("udp://{}/Ledger", server.address);
    let ledger = runtime.import::<dyn Ledger>(&name).unwrap();
    ledger.enter(1).unwrap();
    server.signal(Signal::STOP);
    // The server's threads may run on for a while after the signal was sent, so wait until it has stopped.
    let stopped = waitpid(Some(Pid::from_child(&server.child)), WaitOptions::UNTRACED).unwrap();
    assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    let pending = [2, 3].map(|number| ledger.start().enter(number));
    server.kill();
    for pending in pending {
        let why = CallFailed::from(pending.wait().unwrap_err());
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
    }
    for why in [ledger.enter(4).unwrap_err(), runtime.import::<dyn Ledger>(&name).map(drop).unwrap_err()] {
        let why = CallFailed::from(why);
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "{why}");
    }
}

/// Where servers publish, and write.
struct Place {
    registry: std::path::PathBuf,
    log: std::path::PathBuf,
}

/// A process that serves.
struct Server {
    child: Child,
    address: String,
    /// What it says; kept, so that it can.
    _says: BufReader<std::process::ChildStdout>,
}

impl Server {
    /// Starts one, and waits until it is ready.
    fn start(place: &Place, which: usize, address: Option<String>) -> Server {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "killed_servers::a_server_that_the_test_starts", "--nocapture"]);
        command
            .env(ROLE, format!("Ledger/{which}"))
            .env(LOG, &place.log)
            .env("FARCALL_REGISTRY", &place.registry);
        command.env(ADDRESS, address.as_deref().unwrap_or("127.0.0.1:0"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(says.read_line(&mut line).unwrap(), 0, "a server ended too early");
            if let Some(address) = line.strip_prefix("ready at ") {
                break address.trim().to_owned();
            }
        };
        Server { child, address, _says: says }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Has it finish what it has received, and waits for its end.
    fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: what the other processes do.
#[test]
fn a_server_that_the_test_starts() {
    let Ok(name) = env::var(ROLE) else { return };
    let log = env::var_os(LOG).unwrap();
    let log = File::options().append(true).create(true).open(Path::new(&log)).unwrap();
    let scribe = Arc::new(Scribe(log));
    let export = |address: &str| {
        let runtime = Runtime::builder().address(address.parse().unwrap()).build().unwrap();
        runtime.export::<dyn Ledger>(&name, scribe.clone())
    };
    // Somebody else may have taken the port meanwhile.
    let export = export(&env::var(ADDRESS).unwrap()).or_else(|_| export("127.0.0.1:0")).unwrap();
    println!("\nready at {}", export.address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // A call of our own comes after everything that was received before.
    let last = farcall::import::<dyn Ledger>(&export.url()).unwrap();
    last.enter(u64::from(std::process::id()) | 1 << 63).unwrap();
    assert!(export.drain(Duration::from_secs(30)));
}

struct Scribe(File);

impl Ledger for Scribe {
    fn enter(&self, number: u64) -> farcall::Result<u64> {
        // One write, at the end of the file: all of the line is there, or nothing.
        (&self.0).write_all(format!("{number}\n").as_bytes()).unwrap();
        // The server is killed, or stopped, at moments drawn by chance. The call sleeps so that some of these
        // moments fall between its line and its result. No assertion depends on how long it sleeps.
        if number.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(number % 5));
        }
        Ok(number)
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
