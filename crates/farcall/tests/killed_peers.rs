//! Real processes at both ends of shared memory, killed at random.
//!
//! Every outcome that a caller is told must agree with a log that outlives all processes. A surviving process
//! keeps no descriptor and no mapping of dead ones. `FARCALL_FAULTS` says how many processes are killed
//! (1,000 if it is not set), `FARCALL_SEED` which.
//!
//! This is a binary of its own because it counts the descriptors and the mappings of the whole process.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "common/execution_log.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod execution_log;
#[path = "common/open_resources.rs"]
mod open_resources;
#[path = "common/progress.rs"]
mod progress;

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use execution_log::{Chance, Logger, Mortal, Numbers, append_to, executions};
use farcall::{Error, Runtime};
use open_resources::OpenResources;
use progress::{Gone, Over, Progress, setting};

const ROLE: &str = "FARCALL_TEST_ROLE";
const PLACE: &str = "FARCALL_TEST_PLACE";
/// A number for each process that was ever started, because the system reuses process numbers.
const LIFE: &str = "FARCALL_TEST_LIFE";
/// The number of processes that serve.
const SERVERS: u64 = 2;
/// The number of processes that call.
const CALLERS: u64 = 2;
/// The number of calling threads in the process that is not killed.
const SURVIVORS: usize = 2;
/// The most threads that the process which is not killed may have.
const MAX_THREADS: usize = 64;

#[test]
fn callers_are_told_the_truth_and_nothing_of_dead_processes_is_left() {
    let (faults, seed, mut chance) = Chance::of_test();
    let scratch = tempfile::tempdir().unwrap();
    let place = Place(scratch.path().to_owned());

    let runtime = place.runtime();
    let export = runtime.export::<dyn Numbers>("Numbers/survivor", place.logger()).unwrap();
    let before = OpenResources::now();
    let mut killed: Vec<Mortal> = (0..SERVERS + CALLERS).map(|which| start(&place, which)).collect();
    let (over, progress) = (AtomicBool::new(false), Progress::default());
    std::thread::scope(|scope| {
        for which in 0..SURVIVORS {
            let (place, over, progress) = (&place, &over, &progress);
            scope.spawn(move || {
                let _gone = Gone(progress);
                // Each thread has a runtime of its own, as a process would have. It sees servers die.
                let name = ["Numbers", "Numbers/0"][which];
                call_until(over, &place.runtime(), place, name, which as u64, &|| progress.one_more());
            });
        }
        let _over = Over(&over);
        for _ in 0..faults {
            let which = chance.below(SERVERS + CALLERS);
            killed[which as usize].kill();
            progress.wait_for(chance.below(8));
            killed[which as usize] = start(&place, which);
            progress.wait_for(chance.below(12));
        }
    });
    let memory = runtime.stats().exports[0].procedures[0].results;
    killed.into_iter().for_each(|mut mortal| mortal.kill());
    judge(&place, seed);
    println!("{memory} calls were served by the process that was not killed");
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads <= MAX_THREADS, "{threads} threads");
    // The host notices the death of a process at once, and its receiving threads soon after.
    OpenResources::wait_until_no_more_than(&before);
    drop(export);
}

/// Compares the outcomes that callers were told with the executions.
fn judge(place: &Place, seed: u64) {
    let executions = executions(&place.0.join("log"));
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

/// Makes calls with numbers that no other caller uses, and notes the outcome of each.
fn call_until(over: &AtomicBool, runtime: &Runtime, place: &Place, name: &str, whose: u64, ended: &dyn Fn()) {
    let told = append_to(&place.0.join("told"));
    let (mut numbers, mut next) = (None, 0);
    while !over.load(Ordering::SeqCst) {
        let bound = numbers.take().or_else(|| runtime.import::<dyn Numbers>(name).ok());
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
        // This is one write at the end of the file, so either the whole line is there or nothing.
        (&told).write_all(format!("{number} {word}\n").as_bytes()).unwrap();
        numbers = Some(bound);
    }
}

/// The directory with the registry, the log and the outcomes.
#[derive(Clone)]
struct Place(PathBuf);

impl Place {
    fn runtime(&self) -> Runtime {
        let registry = farcall::names::File::at(self.0.join("registry"));
        let patience = Duration::from_millis(100);
        Runtime::builder().registry(registry).shared_memory(true).patience(patience).build().unwrap()
    }

    fn logger(&self) -> Arc<Logger> {
        Logger::open(&self.0.join("log"))
    }
}

/// Starts a process that will be killed, and waits until it is at work.
fn start(place: &Place, which: u64) -> Mortal {
    static LIVES: AtomicU64 = AtomicU64::new(1);
    let life = LIVES.fetch_add(1, Ordering::Relaxed);
    let (process, _) = Mortal::start("a_process_that_the_test_starts", |command| {
        command.env(ROLE, which.to_string()).env(PLACE, &place.0).env(LIFE, life.to_string());
    });
    process
}

/// Not a test by itself: the other processes run this.
#[test]
fn a_process_that_the_test_starts() {
    let Ok(which) = env::var(ROLE) else { return };
    let place = Place(Path::new(&env::var_os(PLACE).unwrap()).to_owned());
    let (runtime, which) = (place.runtime(), which.parse::<u64>().unwrap());
    if which < SERVERS {
        let _export = runtime.export::<dyn Numbers>(&format!("Numbers/{which}"), place.logger()).unwrap();
        println!("\nready");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    println!("\nready");
    let name = if which.is_multiple_of(2) { "Numbers" } else { "Numbers/survivor" };
    let whose = setting(LIFE).unwrap();
    call_until(&AtomicBool::new(false), &runtime, &place, name, whose << 8 | 0xff, &|| ());
}
