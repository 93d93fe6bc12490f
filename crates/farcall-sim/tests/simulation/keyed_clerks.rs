//! Tests segments by name among programs with keys, other keys and none, on machines that crash: a clerk that
//! is not believed is passed over. So every export succeeds, and an importer that may import a segment finds
//! it, also when another program has taken the clerk's name in the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::driver_mutants::Rule;
use farcall::key_files::{Identity, Keyring, Rights as GrantRights, Terms};
use farcall::memory::{Memory, Rights, Settings};
use farcall::names::{Entry, Label, Registration};
use farcall::{Keys, Kind, Runtime};
use farcall_sim::{Faults, Process, Sim, check, find, replay, sim};

const AUTHORITY: u8 = 1;
const EXPORTER: u8 = 2;
const IMPORTER: u8 = 3;
const STRANGER: u8 = 4;

const MACHINES: usize = 2;

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

/// Returns a program, with keys that the authority lets export or import some segments, but no clerk's.
fn program(who: u8, rights: GrantRights) -> farcall::Result<Runtime> {
    let terms = Terms {
        key: identity(who).public(),
        principal: format!("end-{who}").parse().expect("a name"),
        rights,
        scope: "Memory/Load*".parse().expect("a scope"),
        serial: who.into(),
        expires: sim::unix_seconds() + 86_400,
    };
    let grant = identity(AUTHORITY).grant(terms).expect("the terms are sound");
    let keyring = Keyring::new(identity(who)).with_authority(identity(AUTHORITY).public());
    let keys = Keys::new(keyring.with_grant(grant).expect("the grant is for this key"));
    Runtime::builder().keys(keys).patience(Duration::from_secs(3)).build()
}

/// What is exported now, and ever was. The test knows this; no process does.
#[derive(Default)]
struct Truth {
    /// The word of each segment that is exported now, by its name and its machine.
    now: Mutex<BTreeMap<(String, usize), u64>>,
    ever: Mutex<BTreeSet<(String, u64)>>,
    words: AtomicU64,
    found: AtomicU64,
    over: AtomicBool,
}

impl Truth {
    /// Returns the words of the segments that are exported under a name.
    fn words(&self, name: &str) -> Vec<u64> {
        let now = self.now.lock().unwrap();
        now.iter().filter(|((of, _), _)| of == name).map(|(_, word)| *word).collect()
    }

    fn goes_on(&self) -> bool {
        !self.over.load(SeqCst)
    }
}

fn pause(millis: u64) {
    sim::sleep(Duration::from_millis(sim::below(millis)));
}

/// Exports a segment again and again.
fn export(truth: &Truth, machine: usize, name: &str) -> farcall::Result<()> {
    while truth.goes_on() {
        let exporter = program(EXPORTER, GrantRights::EXPORT)?;
        for _ in 0..1 + sim::below(3) {
            let segment = exporter.export_segment(name, Settings::new(64).anyone(Rights::READ))?;
            let word = 1 + truth.words.fetch_add(1, SeqCst);
            segment.store(0, word).expect("it is ours");
            truth.ever.lock().unwrap().insert((name.to_owned(), word));
            truth.now.lock().unwrap().insert((name.to_owned(), machine), word);
            pause(3_000);
            truth.now.lock().unwrap().remove(&(name.to_owned(), machine));
            drop(segment);
        }
        pause(500);
    }
    Ok(())
}

/// Imports segments by their names.
fn import(truth: &Truth) -> farcall::Result<()> {
    while truth.goes_on() {
        let importer = program(IMPORTER, GrantRights::IMPORT)?;
        for _ in 0..1 + sim::below(5) {
            let name = format!("Load{}", sim::below(MACHINES as u64));
            let before = truth.words(&name);
            let read = importer.import_segment(&name).map(|remote| remote.load(0));
            let after = truth.words(&name);
            if let Ok(Ok(word)) = &read {
                // Before its exporter has written to it a segment is all zeros.
                let is_true = *word == 0 || truth.ever.lock().unwrap().contains(&(name.clone(), *word));
                assert!(is_true, "{name}: {word}");
                truth.found.fetch_add(1, SeqCst);
            } else if before == after && !before.is_empty() {
                panic!("{name} is exported, and an import of it gave {read:?}");
            }
            pause(1_000);
        }
    }
    Ok(())
}

/// Runs programs whose clerks exporters and importers do not believe, or that have no keys.
fn start_clerks_of_strangers(truth: &Truth) -> farcall::Result<()> {
    while truth.goes_on() {
        let stranger = match sim::below(2) {
            0 => Runtime::builder().patience(Duration::from_secs(3)).build()?,
            _ => program(STRANGER, GrantRights::IMPORT)?,
        };
        let why = stranger.import_segment("Nothing").map(drop).expect_err("nobody exports it");
        assert_eq!(why.call_failed().map(|why| why.kind()), Some(Kind::NoSuchName), "{why}");
        pause(4_000);
    }
    Ok(())
}

/// Takes the names of clerks in the registry, for an address at which nobody answers.
fn take_names_of_clerks(truth: &Truth, at: SocketAddr) -> farcall::Result<()> {
    let registry = Runtime::current()?.registry().clone();
    while truth.goes_on() {
        let label = |text: &str| text.parse::<Label>().expect("a label");
        let of = |who: u8| {
            let key = identity(who).public();
            let digits: String = key.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            format!("clerk-{digits}.{}", at.ip())
        };
        let names = [format!("clerk.{}", at.ip()), of(EXPORTER), of(IMPORTER)];
        let take = |name: &String| {
            let mut entry = Entry::new(label("Memory"), label(name), at.into(), 9);
            entry.proof = vec![1; 200];
            // Somebody may have the name already.
            registry.publish(&entry).ok()
        };
        let taken: Vec<Registration> = names.iter().filter(|_| sim::below(2) == 0).filter_map(take).collect();
        pause(5_000);
        drop(taken);
        pause(1_000);
    }
    Ok(())
}

/// Runs the programs of a machine, until it crashes or the run is over.
fn machine(truth: &Arc<Truth>, number: usize) -> farcall::Result<()> {
    let own = Runtime::builder().build()?;
    let segment = own.export_segment("Own", Settings::new(8).anyone(Rights::READ))?;
    let url = segment.url();
    drop(segment);
    let at = url.trim_start_matches("udp://").split('/').next().and_then(|at| at.parse::<SocketAddr>().ok());
    let at = at.expect("a segment has an address");
    let nobody = SocketAddr::new(at.ip(), 9);
    let spawn = |run: fn(&Truth, usize, SocketAddr) -> farcall::Result<()>| {
        let truth = truth.clone();
        sim::spawn(move || run(&truth, number, nobody))
    };
    let threads = [
        spawn(|truth, number, _| export(truth, number, &format!("Load{number}"))),
        spawn(|truth, _, _| import(truth)),
        spawn(|truth, _, _| start_clerks_of_strangers(truth)),
        spawn(|truth, _, nobody| take_names_of_clerks(truth, nobody)),
    ];
    threads.into_iter().try_for_each(|thread| thread.join())
}

/// Returns how often a segment was found by its name.
fn run(sim: &Sim, broken: Option<Rule>) -> u64 {
    let truth = Arc::<Truth>::default();
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    let start = |number: usize| {
        let truth = truth.clone();
        sim.process(&format!("machine {number}"), move || machine(&truth, number))
    };
    let machines: Vec<Process> = (0..MACHINES).map(start).collect();
    let of_importer = truth.clone();
    sim.process("importer", move || import(&of_importer));
    let chance = |most: u64| sim.below(most) as f64 / 1e6;
    let (loss, duplication, reordering) = (chance(20_000), chance(50_000), chance(50_000));
    sim.faults(Faults { loss, duplication, reordering, ..Faults::none() });
    for _ in 0..sim.below(4) {
        sim.sleep(Duration::from_millis(sim.below(5_000)));
        let which = sim.below(MACHINES as u64) as usize;
        truth.now.lock().unwrap().retain(|(_, machine), _| *machine != which);
        machines[which].crash();
        sim.sleep(Duration::from_millis(sim.below(2_000)));
        machines[which].restart();
    }
    sim.sleep(Duration::from_secs(5));
    truth.over.store(true, SeqCst);
    sim.run();
    truth.found.load(SeqCst)
}

#[test]
fn a_clerk_that_is_not_believed_keeps_nobody_from_exporting_and_importing() {
    let found = Arc::<AtomicU64>::default();
    let sum = found.clone();
    check(10, move |sim| {
        sum.fetch_add(run(sim, None), SeqCst);
    });
    println!("{} segments found", found.load(SeqCst));
    assert!(found.load(SeqCst) > 50);
}

#[test]
fn a_clerk_that_is_not_believed_and_is_not_passed_over_is_noticed() {
    let failure = find(300, |sim| _ = run(sim, Some(Rule::DistrustedClerkIsPassedOver)));
    let failure = failure.expect("such a clerk is a wall");
    assert!(replay(failure.seed, |sim| _ = run(sim, None)).is_ok(), "it fails although no rule is broken");
    println!("seed {}: {}", failure.seed, failure.why.lines().next().unwrap_or_default());
}
