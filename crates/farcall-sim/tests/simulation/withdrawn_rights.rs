//! Tests rights that an exporter withdraws while importers read, write and post, under loss, duplication,
//! reordering, pauses and partitions: nothing is read or written under former rights.
//!
//! The whole number of runs: `FARCALL_SIM_SEEDS=1000 cargo test --profile soak -p farcall-sim --test
//! simulation withdrawn -- --nocapture`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farcall::memory::{Importers, Memory, Refused, Remote, Result, Rights, Segment, Settings};
use farcall::{Error, Kind};
use farcall_sim::{Sim, check, sim};

/// The bytes that readers read. The words of writers follow.
const READ: u64 = 2048;
const WRITERS: u64 = 2;
const ROUNDS: u64 = 8;
/// What is in the memory while nobody has the right to read it.
const SECRET: u8 = 0x5e;

/// What the processes of a run tell one another. The simulation has one memory, and this is no part of the
/// tested protocol.
#[derive(Default)]
struct Run {
    over: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    refusals: AtomicU64,
}

fn fill(segment: &Segment, byte: u8) -> Result<()> {
    segment.write(0, &[byte; READ as usize])
}

fn words(segment: &Segment) -> Result<[u8; 8 * WRITERS as usize]> {
    let mut words = [0; 8 * WRITERS as usize];
    segment.read(READ, &mut words)?;
    Ok(words)
}

/// Withdraws the rights and gives them again.
fn export(run: &Run) -> Result<()> {
    let segment = farcall::memory::export("Withdrawn", Settings::new((READ + 8 * WRITERS) as usize))?;
    for _ in 0..ROUNDS {
        segment.grant(Importers::Anyone, Rights::ALL)?;
        sim::sleep(Duration::from_millis(1 + sim::below(400)));
        segment.withdraw(Importers::Anyone);
        let written = words(&segment)?;
        fill(&segment, SECRET)?;
        sim::sleep(Duration::from_millis(sim::below(400)));
        fill(&segment, 0)?;
        assert_eq!(words(&segment)?, written, "something was written after the rights were withdrawn");
    }
    run.over.store(true, Ordering::Relaxed);
    // Importers that wait for an answer get one.
    segment.notice();
    Ok(())
}

impl Run {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Imports the segment while importers have all rights. Returns `None` when the run is over.
    fn import(&self) -> Option<Remote> {
        while !self.is_over() {
            match farcall::memory::import("Withdrawn") {
                Ok(remote) if remote.rights() == Rights::ALL => return Some(remote),
                _ => sim::sleep(Duration::from_millis(5)),
            }
        }
        None
    }

    /// Makes accesses until the exporter is done. An import that can write nothing more is made anew.
    fn repeat(&self, count: &AtomicU64, access: impl Fn(&Remote) -> Result<()>) {
        let mut remote = None;
        while let Some(imported) = remote.take().or_else(|| self.import()).filter(|_| !self.is_over()) {
            match access(remote.insert(imported)) {
                Ok(()) => drop(count.fetch_add(1, Ordering::Relaxed)),
                Err(Error::Declared(why)) => {
                    assert_eq!(why, Refused::NotPermitted);
                    self.refusals.fetch_add(1, Ordering::Relaxed);
                    if sim::below(4) == 0 {
                        remote = None;
                    }
                }
                Err(Error::CallFailed(why)) => {
                    assert!(matches!(why.kind(), Kind::Unreachable | Kind::Overloaded), "{why}");
                    remote = None;
                }
            }
            sim::sleep(Duration::from_micros(sim::below(20_000)));
        }
    }
}

fn reader(run: &Run) {
    run.repeat(&run.reads, |remote| {
        let mut bytes = [0; READ as usize];
        let len = [8, 400, READ][sim::below(3) as usize];
        let read = &mut bytes[..len as usize];
        match sim::below(3) {
            0 => remote.read(0, read)?,
            1 => remote.read_each(&mut [(READ - len, read), (0, &mut [0; 8])])?,
            _ => {
                let reads: Vec<_> = (0..64).map(|n| remote.start_read(n * 8, 16)).collect();
                for pending in reads {
                    read[..8].copy_from_slice(&pending.wait()?[..8]);
                    assert_ne!(read[0], SECRET, "a started read has what came after the withdrawal");
                }
            }
        }
        assert_eq!(bytes.iter().filter(|byte| **byte == SECRET).count(), 0, "a read has the secret");
        Ok(())
    });
}

fn writer(run: &Run, which: u64) {
    let at = READ + 8 * which;
    run.repeat(&run.writes, |remote| match sim::below(3) {
        0 => remote.store(at, sim::below(u64::MAX)),
        1 => {
            let word = remote.load(at)?;
            remote.compare_and_swap(at, word, sim::below(u64::MAX)).map(drop)
        }
        _ => {
            (0..3).try_for_each(|_| remote.post(at, &sim::below(u64::MAX).to_le_bytes()))?;
            remote.flush()
        }
    });
}

fn run(sim: &Sim) -> [u64; 3] {
    let run = Arc::new(Run::default());
    if sim.below(5) > 0 {
        sim.random_faults();
    }
    let start = |name: &str, body: fn(&Run)| {
        let run = run.clone();
        sim.process(name, move || body(&run))
    };
    let of_exporter = run.clone();
    let exporter = sim.server("exporter", move || export(&of_exporter).unwrap_or_else(|why| panic!("{why}")));
    let importers = [
        start("reader", reader),
        start("other reader", reader),
        start("writer", |run| writer(run, 0)),
        start("other writer", |run| writer(run, 1)),
    ];
    for _ in 0..sim.below(5) {
        sim.sleep(Duration::from_millis(sim.below(500)));
        let importer = &importers[sim.below(importers.len() as u64) as usize];
        match sim.below(4) {
            0 => {
                exporter.pause();
                sim.sleep(Duration::from_millis(sim.below(1_000)));
                exporter.resume();
            }
            1 => {
                importer.pause();
                sim.sleep(Duration::from_millis(sim.below(1_000)));
                importer.resume();
            }
            2 => sim.partition(&exporter, importer),
            _ => sim.heal(),
        }
    }
    sim.heal();
    sim.run();
    [&run.reads, &run.writes, &run.refusals].map(|count| count.load(Ordering::Relaxed))
}

#[test]
fn nothing_is_read_or_written_under_withdrawn_rights() {
    static COUNTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    check(20, |sim| {
        for (count, more) in COUNTS.iter().zip(run(sim)) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    });
    let [reads, writes, refusals] = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{reads} reads and {writes} writes under rights, {refusals} refused");
    assert!(reads > 0 && writes > 0 && refusals > 0, "that shows little");
}
