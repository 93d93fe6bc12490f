//! Real processes at both ends of shared memory, killed at random.
//!
//! Whatever a caller is told must be true of a log that outlives everybody; and of those who survive, nothing of the
//! dead is left: no descriptor, no mapping. (The sockets' names are no files.) `FARCALL_FAULTS` says how many are killed (1,000 if it is not
//! set), `FARCALL_SEED` which.
//!
//! A binary of its own: it counts the descriptors and the mappings of the whole process.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "common/progress.rs"]
mod progress;

use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use farcall::{Error, Runtime};
use progress::{Gone, Over, Progress, setting};

#[farcall::interface]
pub trait Ledger {
    /// Writes the number into the log, and gives it back.
    fn enter(&self, number: u64) -> farcall::Result<u64>;
}

const ROLE: &str = "FARCALL_TEST_ROLE";
const PLACE: &str = "FARCALL_TEST_PLACE";
/// Which of all processes that were ever started it is: the system gives process numbers again.
const LIFE: &str = "FARCALL_TEST_LIFE";
/// Processes that serve, and processes that call.
const SERVERS: u64 = 2;
const CALLERS: u64 = 2;
/// Threads that call and are not killed.
const SURVIVORS: usize = 2;
/// Threads that one who is not killed may have.
const THREADS: usize = 64;

#[test]
fn what_callers_are_told_is_true_and_nothing_of_the_dead_is_left() {
    let faults = setting("FARCALL_FAULTS").unwrap_or(1_000);
    let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = setting("FARCALL_SEED").unwrap_or_else(since);
    println!("{faults} faults, FARCALL_SEED={seed}");
    let scratch = tempfile::tempdir().unwrap();
    let place = Place(scratch.path().to_owned());

    let runtime = place.runtime();
    let export = runtime.export::<dyn Ledger>("Ledger/survivor", place.scribe()).unwrap();
    let before = Left::now();
    let mut killed: Vec<Mortal> = (0..SERVERS + CALLERS).map(|which| Mortal::start(&place, which)).collect();
    let (over, progress) = (AtomicBool::new(false), Progress::default());
    std::thread::scope(|scope| {
        for which in 0..SURVIVORS {
            let (place, over, progress) = (&place, &over, &progress);
            scope.spawn(move || {
                let _gone = Gone(progress);
                // A runtime of its own, as a process would have; it sees servers die.
                let name = ["Ledger", "Ledger/0"][which];
                call_until(over, &place.runtime(), place, name, which as u64, &|| progress.one_more());
            });
        }
        let _over = Over(&over);
        let mut chance = Chance(seed);
        for _ in 0..faults {
            let which = chance.below(SERVERS + CALLERS);
            killed[which as usize].kill();
            progress.wait_for(chance.below(8));
            killed[which as usize] = Mortal::start(&place, which);
            progress.wait_for(chance.below(12));
        }
    });
    let memory = runtime.stats().exports[0].procedures[0].results;
    killed.into_iter().for_each(|mut mortal| mortal.kill());
    judge(&place, seed);
    println!("{memory} calls were served by the one who was not killed");
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads <= THREADS, "{threads} threads");
    // The host hears of it at once, and its receivers soon after. (What was made before was perhaps not all gone when we counted.)
    while !Left::now().is_within(&before) {
        std::thread::yield_now();
    }
    drop(export);
}

/// What one process has of others.
struct Left {
    descriptors: usize,
    mappings: usize,
}

impl Left {
    fn is_within(&self, most: &Left) -> bool {
        self.descriptors <= most.descriptors && self.mappings <= most.mappings
    }

    fn now() -> Left {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        Left {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: maps.lines().filter(|line| line.contains("memfd:farcall")).count(),
        }
    }
}

/// Compares what was told with what was executed.
fn judge(place: &Place, seed: u64) {
    let mut executions = HashMap::<u64, u32>::new();
    for line in fs::read_to_string(place.0.join("log")).unwrap().lines() {
        *executions.entry(line.parse().unwrap()).or_default() += 1;
    }
    assert!(executions.values().all(|count| *count == 1), "FARCALL_SEED={seed}: executed twice");
    let mut told = HashMap::<String, u64>::new();
    for line in fs::read_to_string(place.0.join("told")).unwrap().lines() {
        let (number, word) = line.split_once(' ').unwrap();
        let ran = executions.contains_key(&number.parse().unwrap());
        let is_true = match word.rsplit(' ').next().unwrap() {
            "Yes" => ran,
            "No" => !ran,
            _ => true,
        };
        assert!(is_true, "FARCALL_SEED={seed}: {line}, executed: {ran}");
        *told.entry(word.to_owned()).or_default() += 1;
    }
    println!("{} executions, told: {told:?}", executions.len());
    assert!(told.contains_key("Returned Yes"));
}

/// A call with a number that nobody else has, again and again, and a note of what it was told.
fn call_until(over: &AtomicBool, runtime: &Runtime, place: &Place, name: &str, whose: u64, ended: &dyn Fn()) {
    let told = place.append("told");
    let (mut ledger, mut next) = (None, 0);
    while !over.load(Ordering::SeqCst) {
        let bound = ledger.take().or_else(|| runtime.import::<dyn Ledger>(name).ok());
        ended();
        let Some(bound) = bound else { continue };
        next += 1;
        let number = whose << 32 | next;
        let outcome = if next % 3 == 0 { bound.start().enter(number).wait() } else { bound.enter(number) };
        let word = match outcome {
            Ok(_) => "Returned Yes".to_owned(),
            Err(Error::CallFailed(why)) => format!("{:?} {:?}", why.kind(), why.ran()),
            Err(Error::Declared(never)) => match never {},
        };
        // One write, at the end of the file: all of the line is there, or nothing.
        (&told).write_all(format!("{number} {word}\n").as_bytes()).unwrap();
        ledger = Some(bound);
    }
}

/// Where everybody publishes and writes.
#[derive(Clone)]
struct Place(PathBuf);

impl Place {
    fn runtime(&self) -> Runtime {
        let registry = farcall::names::File::at(self.0.join("registry"));
        let patience = Duration::from_millis(100);
        Runtime::builder().registry(registry).shared_memory(true).patience(patience).build().unwrap()
    }

    fn append(&self, name: &str) -> File {
        File::options().append(true).create(true).open(self.0.join(name)).unwrap()
    }

    fn scribe(&self) -> Arc<Scribe> {
        Arc::new(Scribe { log: self.append("log") })
    }
}

struct Scribe {
    log: File,
}

impl Ledger for Scribe {
    fn enter(&self, number: u64) -> farcall::Result<u64> {
        (&self.log).write_all(format!("{number}\n").as_bytes()).unwrap();
        // The server is killed, or stopped, at moments drawn by chance. The call sleeps so that some of these
        // moments fall between its line and its result. No assertion depends on how long it sleeps.
        if number.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(number % 5));
        }
        Ok(number)
    }
}

/// A process that will be killed.
struct Mortal {
    child: Child,
    /// What it says; kept, so that it can.
    _says: BufReader<std::process::ChildStdout>,
}

impl Mortal {
    /// Starts one, and waits until it is at work.
    fn start(place: &Place, which: u64) -> Mortal {
        static LIVES: AtomicU64 = AtomicU64::new(1);
        let life = LIVES.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "a_process_that_the_test_starts", "--nocapture"]);
        command.env(ROLE, which.to_string()).env(PLACE, &place.0).env(LIFE, life.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            assert_ne!(says.read_line(&mut line).unwrap(), 0, "a process ended too early");
        }
        Mortal { child, _says: says }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: what the other processes do.
#[test]
fn a_process_that_the_test_starts() {
    let Ok(which) = env::var(ROLE) else { return };
    let place = Place(Path::new(&env::var_os(PLACE).unwrap()).to_owned());
    let (runtime, which) = (place.runtime(), which.parse::<u64>().unwrap());
    if which < SERVERS {
        let _export = runtime.export::<dyn Ledger>(&format!("Ledger/{which}"), place.scribe()).unwrap();
        println!("\nready");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    println!("\nready");
    let name = if which.is_multiple_of(2) { "Ledger" } else { "Ledger/survivor" };
    let whose = setting(LIFE).unwrap();
    call_until(&AtomicBool::new(false), &runtime, &place, name, whose << 8 | 0xff, &|| ());
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
