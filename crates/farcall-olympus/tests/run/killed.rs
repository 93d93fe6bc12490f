//! Real processes, really killed: servers, the interpreter and the registry's server, at random points. What
//! must be true is what the simulation checks (farcall-sim/tests/simulation/olympus.rs).
//!
//! `FARCALL_OLYMPUS_RUNS` is the number of runs (10 with a registry in a directory, 3 in etcd), `FARCALL_SEED`
//! the seed of the first (1).

use std::collections::BTreeMap;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farcall::Runtime;
use farcall::names::{Etcd, Registry};
use farcall_olympus::interpreter::Decision;
use farcall_olympus::journal::Journal;
use farcall_olympus::model::PlaceId;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::rules::Rules;
use farcall_olympus::run::{self, Outcome, Past, Run, Settings};
use serde_json::{Value, json};

use super::cluster::{Cluster, cluster};
use super::common::model;

/// Says what the process is that a test starts: `server` or `interpreter`.
const ROLE: &str = "FARCALL_TEST_ROLE";
/// The directory of the journal and the logs.
const PLACE: &str = "FARCALL_TEST_PLACE";
/// The place of the registry.
const NAMES: &str = "FARCALL_TEST_NAMES";
/// How long etcd keeps the name of a process that was killed.
const LEASE: Duration = Duration::from_secs(2);
/// The test fails after this time. Nothing here takes that long.
const GUARD: Duration = Duration::from_secs(60);

const TOKENS: u64 = 300;

#[farcall::interface]
trait Step {
    /// Logs and returns the number of this execution.
    fn first(&self, number: u64) -> farcall::Result<u64>;
    /// Returns its argument. It may run twice.
    #[idempotent]
    fn second(&self, execution: u64) -> farcall::Result<u64>;
}

struct Server {
    log: File,
    next: AtomicU64,
}

impl Step for Server {
    fn first(&self, number: u64) -> farcall::Result<u64> {
        let count = self.next.fetch_add(1, Ordering::SeqCst);
        let execution = (u64::from(std::process::id()) << 24) + count;
        let mut log = &self.log;
        log.write_all(format!("{number} {execution}\n").as_bytes()).expect("the log is written");
        Ok(execution)
    }

    fn second(&self, execution: u64) -> farcall::Result<u64> {
        Ok(execution)
    }
}

fn append(path: PathBuf) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

/// Not a test by itself: the servers and interpreters that the test starts and kills.
#[test]
fn a_process_that_the_test_starts() {
    let (Ok(role), Ok(place), Ok(names)) = (env::var(ROLE), env::var(PLACE), env::var(NAMES)) else { return };
    let place = PathBuf::from(place);
    let registry: Arc<dyn Registry> = match names.starts_with("etcd:") {
        true => Arc::new(Etcd::builder(&names).unwrap().lease_time(LEASE).build()),
        false => farcall::names::open(&names, |_| None).unwrap(),
    };
    let runtime = Runtime::builder().registry(registry).build().unwrap();
    match role.as_str() {
        "interpreter" => interpret(&runtime, &place),
        name => {
            let server = Server { log: append(place.join("executions")), next: AtomicU64::new(0) };
            runtime.export::<dyn Step>(name, Arc::new(server)).unwrap().wait().unwrap();
        }
    }
}

fn graph() -> Value {
    let numbers: Vec<u64> = (0..TOKENS).collect();
    json!({
        "places": [{ "name": "new", "tokens": numbers }, { "name": "middle", "capacity": 5 }, { "name": "done" }],
        "nodes": [
            {
                "name": "first",
                "in": [{ "place": 0, "as": "n" }],
                "call": { "server": "Step", "name": "first", "arguments": "[n]" },
                "out": [{ "place": 1, "value": "[n, result]" }],
            },
            {
                "name": "second",
                "in": [{ "place": 1, "as": "token" }],
                "call": { "server": "Step", "name": "second", "arguments": "[token[1]]" },
                "out": [{ "place": 2, "value": "[token[0], result]" }],
            },
        ],
    })
}

/// The interpreter and its operator, who has every call made again that may have run.
fn interpret(runtime: &Runtime, place: &Path) {
    let (path, procedures) = (place.join("journal"), Procedures::new(runtime));
    let settings = Settings { max_pause: Duration::from_millis(20), bound: 6, ..Settings::default() };
    let has_begun = std::fs::read(&path).is_ok_and(|bytes| bytes.contains(&b'\n'));
    let run = match has_begun {
        true => Run::resume(Past::open(&path, Rules::standard()).unwrap(), &procedures, settings).unwrap(),
        false => {
            let _ = std::fs::remove_file(&path);
            let journal = Some(Journal::create(&path).unwrap());
            Run::start(model(&graph()), &procedures, Settings { journal, ..settings }).unwrap()
        }
    };
    let mut shown = append(place.join("shown"));
    while let Outcome::Stopped(firings) = run.wait() {
        for firing in firings {
            let record = run.firing(firing).unwrap();
            writeln!(shown, "{} {}", record.tokens[0], firing.0).unwrap();
            run.command(run::Command::Decide { firing, decision: Decision::PutBack }).unwrap();
        }
    }
    assert_eq!(run.wait(), Outcome::Quiet);
    append(place.join("finished"));
}

/// A process of the test.
struct Process {
    role: &'static str,
    child: Child,
}

impl Process {
    fn start(role: &'static str, place: &Path, names: &str) -> Process {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "killed::a_process_that_the_test_starts", "--nocapture"]);
        command.env(ROLE, role).env(PLACE, place).env(NAMES, names).stdout(Stdio::null());
        if names.starts_with("etcd:") {
            // A process that finds no etcd, or its name taken until the lease is over, says so and ends.
            command.stderr(Stdio::null());
        }
        Process { role, child: command.spawn().unwrap() }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a number below `bound` (xorshift, Marsaglia 2003).
fn below(state: &mut u64, bound: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % bound
}

/// What the processes did in a run.
#[derive(Debug, Default)]
struct Sums {
    kills: u64,
    registry_kills: u64,
    executions: usize,
    shown: usize,
}

/// Runs the graph once, with names in etcd if there is a cluster, and otherwise in a directory.
fn once(seed: u64, sums: &mut Sums, mut etcd: Option<&mut Cluster>) {
    let kind = if etcd.is_some() { "etcd" } else { "directory" };
    let place = env::temp_dir().join(format!("olympus-killed-{}-{kind}-{seed}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let in_directory = || place.join("names").to_str().unwrap().to_owned();
    let names = etcd.as_ref().map_or_else(in_directory, |etcd| etcd.new_place());
    let start = |role| Process::start(role, &place, &names);
    let mut processes = ["Step/one", "Step/two", "interpreter"].map(start);
    let begun = Instant::now();
    let mut kills = below(&mut random, 10);
    while !place.join("finished").exists() {
        assert!(begun.elapsed() < GUARD, "seed {seed}: the run does not end");
        // A process is killed at a random moment. The test waits for nothing here.
        std::thread::sleep(Duration::from_micros(below(&mut random, 60_000)));
        if kills > 0 {
            kills -= 1;
            sums.kills += 1;
            let victim = below(&mut random, if etcd.is_some() { 4 } else { 3 }) as usize;
            match (processes.get_mut(victim), &mut etcd) {
                (None, Some(etcd)) => etcd.kill(0),
                (process, _) => process.into_iter().for_each(Process::kill),
            }
            // The others run for a random time without it; the test waits for nothing here either.
            std::thread::sleep(Duration::from_micros(below(&mut random, 20_000)));
            if let (3, Some(etcd)) = (victim, &mut etcd) {
                sums.registry_kills += 1;
                etcd.restart(0);
            }
        }
        for process in &mut processes {
            if process.has_ended() {
                *process = start(process.role);
            }
        }
    }
    drop(processes);
    audit(seed, &place, sums);
    std::fs::remove_dir_all(&place).unwrap();
}

fn audit(seed: u64, place: &Path, sums: &mut Sums) {
    let past = Past::open(&place.join("journal"), Rules::standard()).unwrap();
    assert_eq!(past.interpreter().under_way().count(), 0, "seed {seed}");
    let executions = lines(&place.join("executions"));
    let shown = lines(&place.join("shown"));
    let mut done = BTreeMap::new();
    for token in &past.interpreter().marking().get(PlaceId(2)).unwrap().tokens {
        let (number, execution) = (token[0].as_u64().unwrap(), token[1].as_u64().unwrap());
        assert_eq!(done.insert(number, execution), None, "seed {seed}: token {number} was doubled");
        assert!(executions.contains(&(number, execution)), "seed {seed}: {token} is made up");
    }
    assert_eq!(done.len() as u64, TOKENS, "seed {seed}: tokens were lost");
    for number in 0..TOKENS {
        let ran = executions.iter().filter(|(executed, _)| *executed == number).count();
        let shown = shown.iter().filter(|(shown, _)| *shown == number).count();
        assert!(
            ran <= 1 + shown,
            "seed {seed}: token {number} ran {ran} times, and {shown} calls were shown"
        );
    }
    sums.executions += executions.len();
    sums.shown += shown.len();
}

fn lines(path: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number = |word: Option<&str>| word.unwrap().parse().unwrap();
    let line = |line: &str| {
        let mut words = line.split(' ');
        (number(words.next()), number(words.next()))
    };
    text.lines().map(line).collect()
}

#[test]
fn servers_and_interpreters_that_are_killed_lose_no_token_and_hide_no_call() {
    if env::var(ROLE).is_ok() {
        return;
    }
    runs(10, &mut None);
}

#[test]
fn nor_do_they_when_etcd_is_killed_too() {
    if env::var(ROLE).is_ok() {
        return;
    }
    let Some(etcd) = cluster(1) else { return };
    let sums = runs(3, &mut Some(etcd));
    assert!(sums.registry_kills > 0, "no run has killed etcd");
}

fn runs(usual: u64, etcd: &mut Option<Cluster>) -> Sums {
    let setting = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let runs = setting("FARCALL_OLYMPUS_RUNS").unwrap_or(usual);
    let first = setting("FARCALL_SEED").unwrap_or(1);
    let mut sums = Sums::default();
    (first..first + runs).for_each(|seed| once(seed, &mut sums, etcd.as_mut()));
    println!("{runs} runs: {sums:?}");
    sums
}
