//! Tests the segment name service on machines that crash. A look-up returns only what was exported, and
//! entries that are no longer true are detected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::memory::clerk::{Clerk, Entry, Settings};
use farcall::memory::{self, Beat, Memory, Pulse, Refused, Rights};
use farcall::{Error, Kind, Runtime};
use farcall_sim::{Process, Sim, check, replay, sim};

const EXPORTERS: usize = 3;
const NAMES: [&str; 4] = ["load", "files", "names", "queue"];

/// What was ever exported, and where the clerks are now. The test knows this; no process does.
#[derive(Default)]
struct Truth {
    /// The exporting machine, by URL and generation.
    exported: Mutex<BTreeMap<(String, u64), usize>>,
    hints: Mutex<[Option<SocketAddr>; EXPORTERS]>,
    /// How often a name was found.
    found: AtomicU64,
    /// How often a segment was read.
    read: AtomicU64,
}

impl Truth {
    fn hint(&self, machine: usize) -> SocketAddr {
        self.hints.lock().unwrap()[machine].expect("every machine had a clerk before there were clients")
    }

    /// Asserts that an entry from a machine was exported there.
    fn check(&self, machine: usize, entry: &Entry) {
        let exported = self.exported.lock().unwrap();
        let of = exported.get(&(entry.url(), entry.generation()));
        assert_eq!((of, entry.size(), entry.rights()), (Some(&machine), 64, Rights::READ), "{entry:?}");
        self.found.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a machine that exports, revokes, and exports again, until it crashes.
fn exporter(truth: &Truth, machine: usize) -> farcall::Result<()> {
    let runtime = Runtime::current()?;
    let places = [1, 4, 8, 1024][sim::below(4) as usize];
    let settings = Settings::default().places(places).refresh(Duration::from_secs(1 + sim::below(5)));
    let clerk = Clerk::start(&runtime, settings)?;
    truth.hints.lock().unwrap()[machine] = Some(clerk.address());
    let mut held = BTreeMap::new();
    loop {
        let name = NAMES[sim::below(NAMES.len() as u64) as usize];
        // The thread does not wait between the export and this note of it.
        match held.remove(name) {
            None => {
                let segment = runtime.export_segment(name, memory::Settings::new(64).anyone(Rights::READ))?;
                note(truth, machine, &segment);
                held.insert(name, segment);
            }
            Some(segment) if sim::below(2) == 0 => drop(segment),
            Some(segment) => {
                segment.revoke();
                sim::sleep(Duration::from_millis(sim::below(20)));
                segment.export_again();
                note(truth, machine, &segment);
                held.insert(name, segment);
            }
        }
        sim::sleep(Duration::from_millis(sim::below(2_000)));
    }
}

fn note(truth: &Truth, machine: usize, segment: &memory::Segment) {
    let generation = segment.generation().expect("it was exported just now");
    truth.exported.lock().unwrap().insert((segment.url(), generation), machine);
}

/// Returns whether a failure says that the segment, or its exporter, is gone.
fn is_gone(kind: Kind) -> bool {
    use Kind::{Deadline, NoSuchName, NotExported, ServerRestarted, Unreachable};
    matches!(kind, NoSuchName | NotExported | Unreachable | ServerRestarted | Deadline)
}

/// Runs a machine that looks names up in each of the ways.
fn importer(truth: &Truth, rounds: u64) -> farcall::Result<()> {
    let runtime = Runtime::current()?;
    let clerk = Clerk::start(&runtime, Settings::default().refresh(Duration::from_secs(1 + sim::below(10))))?;
    for _ in 0..rounds {
        let machine = sim::below(EXPORTERS as u64) as usize;
        let (name, hint) = (NAMES[sim::below(NAMES.len() as u64) as usize], truth.hint(machine));
        let found = match sim::below(3) {
            0 => clerk.look_up(name, Some(hint)),
            1 => clerk.look_up_anew(name, Some(hint)),
            _ => clerk.look_up_asking(name, hint),
        };
        if let Ok(entry) = found {
            assert_eq!(entry.name(), name);
            truth.check(machine, &entry);
        }
        match runtime.import_segment_at(name, hint) {
            Err(why) => assert!(is_gone(why.call_failed().unwrap().kind()), "{why}"),
            Ok(remote) => use_it(truth, &remote),
        }
        sim::sleep(Duration::from_millis(sim::below(1_500)));
    }
    Ok(())
}

/// Reads a segment while it is there. A segment that is gone must report this.
fn use_it(truth: &Truth, remote: &memory::Remote) {
    for _ in 0..sim::below(4) {
        match remote.load(0) {
            Ok(_) => drop(truth.read.fetch_add(1, Ordering::Relaxed)),
            Err(Error::Declared(Refused::Stale)) => {}
            Err(Error::CallFailed(why)) if is_gone(why.kind()) => {}
            Err(why) => panic!("{why}"),
        }
        sim::sleep(Duration::from_millis(sim::below(500)));
    }
}

fn start(sim: &Sim, truth: &Arc<Truth>) -> Vec<Process> {
    let start = |machine: usize| {
        let truth = truth.clone();
        sim.server(&format!("machine {machine}"), move || exporter(&truth, machine))
    };
    (0..EXPORTERS).map(start).collect()
}

fn run(sim: &Sim) -> Arc<Truth> {
    let truth = Arc::new(Truth::default());
    let machines = start(sim, &truth);
    sim.random_faults();
    let importers: Vec<Process> = (0..2)
        .map(|which| {
            let truth = truth.clone();
            sim.process(&format!("importer {which}"), move || importer(&truth, 12))
        })
        .collect();
    for _ in 0..sim.below(8) {
        sim.sleep(Duration::from_millis(sim.below(4_000)));
        let machine = &machines[sim.below(EXPORTERS as u64) as usize];
        machine.crash();
        sim.sleep(Duration::from_millis(sim.below(3_000)));
        machine.restart();
    }
    importers.iter().for_each(Process::wait);
    truth
}

#[test]
fn what_a_look_up_gives_was_exported() {
    let all = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let sum = all.clone();
    check(60, move |sim| {
        let truth = run(sim);
        sum.0.fetch_add(truth.found.load(Ordering::Relaxed), Ordering::Relaxed);
        sum.1.fetch_add(truth.read.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    let (found, read) = (all.0.load(Ordering::Relaxed), all.1.load(Ordering::Relaxed));
    eprintln!("{found} names found, {read} words read");
    assert!(found > 0 && read > 0);
}

/// An importer knows a segment; then the segment's machine restarts, or the segment is exported again.
#[test]
fn what_is_stale_fails_and_a_look_up_anew_recovers() {
    check(60, |sim| -> farcall::Result<()> {
        let hint: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let there = hint.clone();
        let machine = sim.server("exporter", move || -> farcall::Result<()> {
            let runtime = Runtime::current()?;
            let clerk = Clerk::start(&runtime, Settings::default())?;
            *there.lock().unwrap() = Some(clerk.address());
            let segment = runtime.export_segment("load", memory::Settings::new(8).anyone(Rights::READ))?;
            segment.store(0, sim::random()).expect("it is ours");
            loop {
                sim::sleep(Duration::from_secs(3600));
            }
        });
        let hint = || hint.lock().unwrap().unwrap();
        let runtime = Runtime::current()?;
        let former = runtime.import_segment_at("load", hint())?;
        let before = former.load(0).expect("it is there");

        machine.crash();
        machine.restart();
        let stale = former.load(0).map(drop).expect_err("nobody has this any more");
        assert!(
            stale.declared() == Some(&Refused::Stale) || is_gone(stale.call_failed().unwrap().kind()),
            "{stale}"
        );
        let remote = runtime.import_segment_anew("load", Some(hint()))?;
        assert_ne!(remote.generation(), former.generation());
        assert_ne!(remote.load(0).expect("it is there"), before);
        // An import that relies on the learned entry succeeds too.
        assert_eq!(runtime.import_segment_at("load", hint())?.generation(), remote.generation());
        Ok(())
    });
}

/// No machine has a clerk that a user has started. Processes start clerks themselves, and the registry names
/// the machines.
#[test]
fn clerks_start_by_themselves() {
    check(60, |sim| -> farcall::Result<()> {
        for which in 0..3 {
            sim.server(&format!("exporter {which}"), move || -> farcall::Result<()> {
                let name = format!("load-{which}");
                let segment = memory::export(&name, memory::Settings::new(8).anyone(Rights::READ))?;
                segment.store(0, which).expect("it is ours");
                loop {
                    sim::sleep(Duration::from_secs(3600));
                }
            });
        }
        sim.random_faults();
        for which in 0..3 {
            let remote = memory::import(&format!("load-{which}"))?;
            assert_eq!(remote.load(0).map_err(|why| panic!("{why}")), Ok::<u64, ()>(which));
        }
        let none = memory::import("load-3").map(drop).expect_err("nobody exports it");
        assert_eq!(none.call_failed().unwrap().kind(), Kind::NoSuchName);
        Ok(())
    });
}

/// A pulse notices a machine that crashes. It also notices a paused machine, and reports it as alive when it
/// continues.
#[test]
fn a_pulse_tells_of_a_crash_and_of_a_pause() {
    check(40, |sim| -> farcall::Result<()> {
        let (every, patience) = (Duration::from_millis(100), Duration::from_secs(1));
        let machine = sim.server("exporter", move || -> farcall::Result<()> {
            let runtime = Runtime::current()?;
            let segment =
                Arc::new(runtime.export_segment("load", memory::Settings::new(8).anyone(Rights::READ))?);
            let _beat = Beat::start(&runtime, segment, 0, every)?;
            loop {
                sim::sleep(Duration::from_secs(3600));
            }
        });
        let remote = memory::import("load")?;
        let pulse = Pulse::watch(&Runtime::current()?, remote, 0, every, patience)?;
        sim::sleep(Duration::from_secs(sim::below(20)));
        pulse.check()?;

        machine.pause();
        let paused = sim::now();
        assert!(is_gone(pulse.wait().kind()));
        assert!(sim::now() - paused <= patience);
        machine.resume();
        sim::sleep(4 * patience);
        pulse.check()?;

        machine.crash();
        let crashed = sim::now();
        assert!(is_gone(pulse.wait().kind()));
        assert!(sim::now() - crashed <= patience);
        Ok(())
    });
}

#[test]
fn a_seed_is_one_run_of_this() {
    for seed in 0..4 {
        let once = || replay(seed, |sim| drop(run(sim))).unwrap();
        assert_eq!(once(), once());
    }
}
