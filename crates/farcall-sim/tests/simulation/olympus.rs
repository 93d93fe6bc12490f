//! Tests graphs whose nodes are remote procedures (farcall-olympus) while servers, the registry and the
//! interpreter crash.
//!
//! Each token has a number, and each execution of the first node's procedure too. At the end of a run:
//!
//! - Every number is in one place exactly once, or somebody has discarded it. So no token was lost or
//!   doubled.
//! - What a token carries on is the outcome of one execution for its number, which no other token carries.
//! - Of every other execution for the number, a firing that stopped was shown. So every call that may have
//!   run was shown, and none was made again that is not idempotent, unless somebody decided so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::names::{Entry, Error, Label, Listing, Registration, Registry};
use farcall::{Runtime, System};
use farcall_olympus::interpreter::{Decision, FiringId};
use farcall_olympus::journal::{Journal, Record, Storage, read};
use farcall_olympus::model::Graph;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::rules::Rules;
use farcall_olympus::run::mutant::{Mutant, Rule};
use farcall_olympus::run::{Command, Outcome, Past, Run, Settings};
use farcall_sim::{Faults, Process, Sim, check, find, replay, sim};
use serde_json::{Value, json};

#[farcall::interface]
trait Work {
    /// Returns the number of this execution. Refuses every seventh number.
    fn first(&self, number: u64) -> farcall::Result<u64, Refused>;
    /// Returns its argument. It may run twice.
    #[idempotent]
    fn second(&self, execution: u64) -> farcall::Result<u64>;
}

#[derive(Debug, farcall::Xdr)]
struct Refused {
    execution: u64,
}

/// How many tokens a run has.
const TOKENS: u64 = 12;

/// What all processes share, and no crash destroys.
#[derive(Default)]
struct Books {
    /// The number of the token of each execution of the first procedure.
    executions: Mutex<Vec<u64>>,
    /// The tokens whose firings were shown as stopped.
    shown: Mutex<HashMap<FiringId, u64>>,
    journal: Mutex<Vec<u8>>,
    registry_is_down: AtomicBool,
    is_finished: AtomicBool,
    /// How often the interpreter crashed at its journal, and how many calls may have run, for the test's
    /// report.
    crashes: AtomicU64,
}

struct Worker(Arc<Books>);

impl Work for Worker {
    fn first(&self, number: u64) -> farcall::Result<u64, Refused> {
        let execution = {
            let mut executions = self.0.executions.lock().unwrap();
            executions.push(number);
            executions.len() as u64 - 1
        };
        sim::note(&format!("token {number} is executed as {execution}"));
        sleep_sometimes();
        if number % 7 == 3 { Err(Refused { execution }.into()) } else { Ok(execution) }
    }

    fn second(&self, execution: u64) -> farcall::Result<u64> {
        sleep_sometimes();
        Ok(execution)
    }
}

fn sleep_sometimes() {
    if sim::below(3) == 0 {
        sim::sleep(Duration::from_micros(1 << sim::below(21)));
    }
}

/// A registry whose server crashes and comes back.
struct Flaky {
    registry: Arc<dyn Registry>,
    books: Arc<Books>,
}

impl Flaky {
    fn up(&self) -> farcall::names::Result<&dyn Registry> {
        match self.books.registry_is_down.load(Ordering::Relaxed) {
            true => {
                Err(Error::Unavailable { registry: "simulated".into(), why: "its server has crashed".into() })
            }
            false => Ok(&*self.registry),
        }
    }
}

impl Registry for Flaky {
    fn publish(&self, entry: &Entry) -> farcall::names::Result<Registration> {
        self.up()?.publish(entry)
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<bool> {
        self.up()?.withdraw(type_name, instance)
    }

    fn instances(&self, type_name: &Label) -> farcall::names::Result<Vec<Entry>> {
        self.up()?.instances(type_name)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<Option<Entry>> {
        self.up()?.lookup(type_name, instance)
    }

    fn list(&self) -> farcall::names::Result<Listing> {
        self.up()?.list()
    }

    fn version(&self) -> farcall::names::Result<u64> {
        self.up()?.version()
    }
}

/// Returns a runtime of this process that uses the registry whose server crashes.
fn runtime(books: &Arc<Books>) -> farcall::Result<Runtime> {
    let registry = Runtime::current()?.registry().clone();
    let registry = Flaky { registry, books: books.clone() };
    Runtime::builder().env(System::current()).registry(registry).build()
}

/// Exports, withdraws, and exports again, until the process crashes.
fn serve(books: &Arc<Books>, name: &str) -> farcall::Result<()> {
    let runtime = runtime(books)?;
    loop {
        let export = runtime.export::<dyn Work>(name, Arc::new(Worker(books.clone())));
        sim::sleep(Duration::from_millis(sim::below(8000)));
        drop(export);
        sim::sleep(Duration::from_millis(sim::below(500)));
    }
}

/// The interpreter's disk. The interpreter may crash before, amid and after a write.
struct Disk(Arc<Books>);

impl Storage for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if std::thread::panicking() {
            // The process has crashed, and its destructors run. What they write would not reach a disk.
            return Err(io::Error::other("the process is gone"));
        }
        let dies = sim::below(40) == 0;
        let kept = if dies { sim::below(bytes.len() as u64 + 1) as usize } else { bytes.len() };
        self.0.journal.lock().unwrap().extend_from_slice(&bytes[..kept]);
        if dies {
            self.0.crashes.fetch_add(1, Ordering::Relaxed);
            sim::note(&format!("the interpreter dies after {kept} of {} bytes of its journal", bytes.len()));
            sim::crash();
        }
        Ok(())
    }
}

fn graph() -> Graph {
    let numbers: Vec<u64> = (0..TOKENS).collect();
    let graph = json!({
        "places": [
            { "name": "new", "tokens": numbers },
            { "name": "middle", "capacity": 3 },
            { "name": "refused" },
            { "name": "done" },
        ],
        "nodes": [
            {
                "name": "first",
                "in": [{ "place": 0, "as": "n" }],
                "call": { "server": "Work", "name": "first", "arguments": "[n]" },
                "out": [
                    { "place": 1, "value": "[n, result]" },
                    { "place": 2, "on": "Refused", "value": "[n, error.execution]" },
                ],
            },
            {
                "name": "second",
                "in": [{ "place": 1, "as": "token" }],
                "call": { "server": "Work", "name": "second", "arguments": "[token[1]]" },
                "out": [{ "place": 3, "value": "[token[0], result]" }],
            },
        ],
    });
    serde_json::from_value(graph).unwrap()
}

/// What a decided firing carries instead of the number of an execution.
const NO_EXECUTION: u64 = 1 << 40;

/// The interpreter and its operator, from the beginning or from the journal.
fn interpret(books: &Arc<Books>, mutant: Mutant) -> farcall::Result<()> {
    let procedures = Procedures::new(&runtime(books)?);
    let procedures = if sim::below(2) == 0 { procedures.within(Duration::from_secs(4)) } else { procedures };
    let settings =
        Settings { bound: 1 + sim::below(6) as usize, seed: sim::below(3), mutant, ..Settings::default() };
    let former = books.journal.lock().unwrap().clone();
    let is_new = !former.contains(&b'\n');
    let run = if is_new {
        books.journal.lock().unwrap().clear();
        let journal = Some(Journal::over(Disk(books.clone())));
        Run::start(graph(), &procedures, Settings { journal, ..settings }).expect("the graph is right")
    } else {
        let last = former.iter().rposition(|byte| *byte == b'\n').expect("there is a line") + 1;
        books.journal.lock().unwrap().truncate(last);
        let past = Past::read(&*former, Rules::standard()).expect("the journal can be read");
        Run::resume(past.with_journal(Journal::over(Disk(books.clone()))), &procedures, settings)
            .expect("the run goes on")
    };
    loop {
        match run.wait() {
            Outcome::Quiet => break,
            Outcome::Stopped(firings) => firings.into_iter().for_each(|firing| decide(books, &run, firing)),
            other => panic!("{other:?}"),
        }
    }
    books.is_finished.store(true, Ordering::Relaxed);
    Ok(())
}

/// Looks at a firing that has stopped, and decides what becomes of it.
fn decide(books: &Books, run: &Run, firing: FiringId) {
    let shown = run.firing(firing).expect("a stopped firing is shown");
    assert!(shown.error.is_some(), "{shown:?}");
    let number = shown.tokens[0].as_u64().expect("only calls of the first procedure stop");
    sim::note(&format!("token {number} is shown: {shown:?}"));
    books.shown.lock().unwrap().insert(firing, number);
    sleep_sometimes();
    let decision = match sim::below(4) {
        0 => Decision::Retry,
        1 => Decision::Discard,
        2 => Decision::Return(NO_EXECUTION.into()),
        _ => Decision::PutBack,
    };
    run.command(Command::Decide { firing, decision }).expect("it has stopped");
}

fn run(sim: &Sim, mutant: Mutant) -> Arc<Books> {
    let books = Arc::new(Books::default());
    sim.limit(Duration::from_secs(48 * 3600));
    sim.random_faults();
    let server = |which: u64| {
        let books = books.clone();
        sim.server(&format!("server {which}"), move || serve(&books, &format!("Work/{which}")))
    };
    let servers: Vec<Process> = (0..1 + sim.below(2)).map(server).collect();
    let interpreter = {
        let books = books.clone();
        sim.server("interpreter", move || interpret(&books, mutant))
    };
    let is_finished = || books.is_finished.load(Ordering::Relaxed);
    let mut left = sim.below(25);
    while !is_finished() {
        sim.sleep(Duration::from_millis(sim.below(3000)));
        if !interpreter.is_running() && !is_finished() {
            interpreter.restart();
        }
        servers.iter().for_each(Process::restart);
        if left == 0 {
            sim.faults(Faults::none());
            books.registry_is_down.store(false, Ordering::Relaxed);
            continue;
        }
        left -= 1;
        let server = &servers[sim.below(servers.len() as u64) as usize];
        match sim.below(6) {
            0 | 1 => server.crash(),
            2 => interpreter.crash(),
            3 => {
                let down = sim.below(2) == 0;
                books.registry_is_down.store(down, Ordering::Relaxed);
            }
            4 => {
                sim.cut(server, &interpreter);
                sim.sleep(Duration::from_millis(sim.below(20_000)));
                sim.heal();
            }
            _ => drop(sim.random_faults()),
        }
    }
    audit(&books);
    books
}

fn audit(books: &Books) {
    let journal = books.journal.lock().unwrap().clone();
    let past = Past::read(&*journal, Rules::standard()).expect("the journal can be read");
    let interpreter = past.interpreter();
    assert_eq!(interpreter.under_way().count(), 0, "a firing was not shown");
    let executions = books.executions.lock().unwrap();
    let shown = books.shown.lock().unwrap();
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for place in 0..4 {
        let place = interpreter.marking().get(farcall_olympus::model::PlaceId(place)).unwrap();
        for token in &place.tokens {
            let (number, execution) = parts(token);
            *seen.entry(number).or_default() += 1;
            if execution != NO_EXECUTION {
                assert!(used.insert(execution), "two tokens carry execution {execution}");
                assert_eq!(executions[execution as usize], number, "execution {execution}");
            }
        }
    }
    let discarded = discarded(&journal, &shown);
    for number in 0..TOKENS {
        let there = seen.remove(&number).unwrap_or(0) + u64::from(discarded.contains(&number));
        assert_eq!(there, 1, "token {number} was lost or doubled");
        let ran = executions.iter().filter(|executed| **executed == number).count();
        let carried = executions.iter().enumerate();
        let carried =
            carried.filter(|(at, executed)| **executed == number && used.contains(&(*at as u64))).count();
        let stops = stops(&journal, &shown, number);
        assert!(ran - carried <= stops, "token {number} ran {ran} times, and {stops} calls were shown");
    }
    assert!(seen.is_empty(), "{seen:?}");
}

fn parts(token: &Value) -> (u64, u64) {
    let part = |at: usize| token[at].as_u64().unwrap_or_else(|| panic!("{token} is no end of a token"));
    (part(0), part(1))
}

fn records(journal: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let keep = |record| {
        records.push(record);
        Ok(())
    };
    read(journal, keep).expect("the journal can be read");
    records
}

/// Returns the tokens that somebody has discarded.
fn discarded(journal: &[u8], shown: &HashMap<FiringId, u64>) -> BTreeSet<u64> {
    let discarded = |record: Record| match record {
        Record::Decide { firing, decision: Decision::Discard } => shown.get(&FiringId(firing)).copied(),
        _ => None,
    };
    records(journal).into_iter().filter_map(discarded).collect()
}

/// Returns how often somebody was shown that a firing for this token had stopped, and decided about it.
fn stops(journal: &[u8], shown: &HashMap<FiringId, u64>, number: u64) -> usize {
    let decided = |record: &Record| matches!(record, Record::Decide { firing, .. } if shown.get(&FiringId(*firing)) == Some(&number));
    records(journal).iter().filter(|record| decided(record)).count()
}

#[test]
fn a_seed_is_one_run_of_this() {
    for seed in 0..4 {
        let once = || replay(seed, |sim| drop(run(sim, Mutant::default()))).unwrap();
        assert_eq!(once(), once());
    }
}

#[test]
fn no_token_is_lost_or_doubled_and_every_call_that_may_have_run_is_shown() {
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)));
    let sum = counts.clone();
    check(100, move |sim| {
        let books = run(sim, Mutant::default());
        sum.0.fetch_add(books.executions.lock().unwrap().len() as u64, Ordering::Relaxed);
        sum.1.fetch_add(books.shown.lock().unwrap().len() as u64, Ordering::Relaxed);
        sum.2.fetch_add(books.crashes.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    let [executions, shown, crashes] =
        [&counts.0, &counts.1, &counts.2].map(|count| count.load(Ordering::Relaxed));
    eprintln!("{executions} executions, {shown} firings shown, {crashes} crashes amid a write");
    assert!(executions > 0 && shown > 0 && crashes > 0);
}

#[test]
fn rules_broken_on_purpose_are_noticed() {
    for rule in Rule::ALL {
        let failure = find(100, move |sim| drop(run(sim, Mutant::of(rule))));
        let failure = failure.unwrap_or_else(|| panic!("nothing notices that {rule:?} is broken"));
        eprintln!("{rule:?}: seed {}: {}", failure.seed, failure.why.lines().next().unwrap_or_default());
    }
}
