//! Tests segments under loss, duplication, reordering, pauses, partitions and crashes. Words are
//! linearizable. No reader sees a part of a record. Nothing is done twice. Posted writes are done in order,
//! and none is missing after a flush.
//!
//! An exporter that comes back has new memory, so each generation of the memory has a history of its own.
//! Words take few values: a swap that was done twice would find its old value again, which would show.
//!
//! The long run of about 1,000,000 operations: `FARCALL_SIM_SEEDS=8000 cargo test --profile soak -p
//! farcall-sim --test simulation segments -- --nocapture`

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::memory::{Memory, Refused, Remote, Result, Rights, Settings};
use farcall::{Error, Ran};
use farcall_sim::history::History;
use farcall_sim::{Process, Sim, check, sim};

const CLIENTS: u64 = 3;
const OPERATIONS: u64 = 40;
const WORDS: u64 = 2;
/// The offset of the record: the number at its end, its body, the number at its beginning.
const RECORD: u64 = 64;
const BODY: usize = 40;
/// The offset of posted writes. A failed post may still be on its way, so each import writes to a place of
/// its own. It posts growing numbers: to one of the first words, then to the last word but one, then to the
/// last.
const POSTS: u64 = 128;
const SLOTS: u64 = 6;
const PLACE: u64 = (SLOTS + 2) * 8;
const IMPORTS: u64 = 8;
const SIZE: usize = (POSTS + IMPORTS * PLACE) as usize;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Store(u64),
    /// A load: the value that was read, once it is known.
    Load(Option<u64>),
    /// A swap: the old word, the new one, and the word that was found, once it is known.
    Swap(u64, u64, Option<u64>),
}

fn word(held: &u64, operation: &Operation) -> Option<u64> {
    match operation {
        Operation::Store(value) => Some(*value),
        Operation::Load(seen) => seen.is_none_or(|seen| seen == *held).then_some(*held),
        Operation::Swap(old, new, found) => {
            let after = if held == old { *new } else { *held };
            found.is_none_or(|found| found == *held).then_some(after)
        }
    }
}

/// The history of each word of each generation.
#[derive(Default)]
struct Histories(Mutex<HashMap<Place, Arc<History<Operation>>>>);

/// A generation, and a word of its memory.
type Place = (u64, u64);

impl Histories {
    fn of(&self, generation: u64, word: u64) -> Arc<History<Operation>> {
        self.0.lock().unwrap().entry((generation, word)).or_default().clone()
    }

    fn check(&self) -> (usize, usize) {
        let (mut begun, mut ended) = (0, 0);
        for ((generation, which), history) in &*self.0.lock().unwrap() {
            if let Err(why) = history.check(0, word) {
                panic!("word {which} of generation {generation}: {why}");
            }
            let counts = history.counts();
            (begun, ended) = (begun + counts.0, ended + counts.1);
        }
        (begun, ended)
    }
}

/// Imports the segment from its present exporter.
fn import() -> Remote {
    loop {
        if let Ok(remote) = farcall::memory::import("Words") {
            return remote;
        }
        sim::sleep(Duration::from_millis(100));
    }
}

/// Returns whether it is certain that an access was done, or that it never will be.
fn settled<T>(outcome: &Result<T>) -> bool {
    match outcome {
        Ok(_) | Err(Error::Declared(_)) => true,
        Err(Error::CallFailed(why)) => why.ran() == Ran::No,
    }
}

fn client(histories: &Histories) {
    let mut remote = import();
    for _ in 0..OPERATIONS {
        let which = sim::below(WORDS);
        let history = histories.of(remote.generation(), which);
        let few = || sim::below(4);
        let outcome = match sim::below(4) {
            0 => {
                let store = Operation::Store(few());
                let Operation::Store(value) = store else { unreachable!() };
                let begun = history.begin(store);
                let outcome = remote.store(which * 8, value).and_then(|()| remote.flush());
                match outcome {
                    Ok(()) => history.end(begun, store),
                    // The store was not done. It counts as a read with an unknown result.
                    _ if settled(&outcome) => history.end(begun, Operation::Load(None)),
                    _ => {}
                }
                outcome
            }
            1 => {
                let begun = history.begin(Operation::Load(None));
                let outcome = remote.load(which * 8);
                history.end(begun, Operation::Load(outcome.as_ref().ok().copied()));
                outcome.map(drop)
            }
            _ => {
                let (old, new) = (few(), few());
                let begun = history.begin(Operation::Swap(old, new, None));
                let outcome = remote.compare_and_swap(which * 8, old, new);
                match &outcome {
                    Ok(found) => history.end(begun, Operation::Swap(old, new, Some(*found))),
                    _ if settled(&outcome) => history.end(begun, Operation::Load(None)),
                    _ => {}
                }
                outcome.map(drop)
            }
        };
        if outcome.is_err() {
            remote = import();
        }
        if sim::below(3) == 0 {
            sim::sleep(Duration::from_millis(sim::below(200)));
        }
    }
}

/// Writes whole records. All bytes of a record are equal.
fn writer() {
    let mut remote = import();
    for number in 1..=OPERATIONS / 4 {
        let write = |remote: &Remote| {
            remote.store(RECORD + 8 + BODY as u64, number)?;
            remote.flush()?;
            remote.write(RECORD + 8, &[number as u8; BODY])?;
            remote.flush()?;
            remote.store(RECORD, number)?;
            remote.flush()
        };
        // A failed write may have left a part of the record. No reader accepts it until the next record is
        // written.
        if write(&remote).is_err() {
            remote = import();
        }
        sim::sleep(Duration::from_millis(sim::below(100)));
    }
}

/// Reads records, and counts the whole ones.
fn reader(whole: &AtomicU64) {
    let mut remote = import();
    for _ in 0..OPERATIONS {
        let mut bytes = [0; 8 + BODY + 8];
        if remote.read(RECORD, &mut bytes).is_err() {
            remote = import();
            continue;
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if number(0) == number(8 + BODY) {
            assert_eq!(bytes[8..8 + BODY], [number(0) as u8; BODY], "a torn record");
            whole.fetch_add(1, Ordering::Relaxed);
        }
        sim::sleep(Duration::from_millis(sim::below(50)));
    }
}

/// Posts growing numbers, and checks what was flushed.
fn poster(flushed: &AtomicU64) {
    let mut number = 0;
    for which in 0..IMPORTS {
        let (remote, place) = (import(), POSTS + which * PLACE);
        let mut all = |remote: &Remote| {
            for _ in 0..OPERATIONS / 4 {
                let before = number;
                let many = sim::below(8) == 0;
                for _ in 0..sim::below(if many { 60 } else { 8 }) {
                    number += 1;
                    for word in [number % SLOTS, SLOTS + 1, SLOTS] {
                        remote.post(place + word * 8, &u64::to_le_bytes(number))?;
                    }
                }
                if number == before {
                    sim::sleep(Duration::from_millis(sim::below(300)));
                    continue;
                }
                match sim::below(2) {
                    0 => remote.flush()?,
                    _ => remote.start_flush().wait()?,
                }
                let mut bytes = [0; PLACE as usize];
                remote.read(place, &mut bytes)?;
                let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
                let words: Vec<u64> = words.collect();
                let newest = |slot: u64| number.saturating_sub((number % SLOTS + SLOTS - slot) % SLOTS);
                for slot in (0..SLOTS).filter(|slot| newest(*slot) > before) {
                    assert_eq!(words[slot as usize], newest(slot), "slot {slot} after {number}: {words:?}");
                }
                assert_eq!(words[SLOTS as usize..], [number; 2], "{words:?}");
                flushed.fetch_add(number - before, Ordering::Relaxed);
            }
            Ok::<(), Error<Refused>>(())
        };
        if all(&remote).is_ok() {
            return;
        }
    }
}

/// Reads the places of posted writes. No write is done before an earlier one, nor again after a later one.
fn watcher() {
    let mut remote = import();
    let mut seen: HashMap<(u64, u64), [u64; 2]> = HashMap::new();
    for _ in 0..2 * OPERATIONS {
        let which = sim::below(IMPORTS);
        let mut bytes = [0; 16];
        if remote.read(POSTS + which * PLACE + SLOTS * 8, &mut bytes).is_err() {
            remote = import();
            continue;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (now, before) = ([word(0), word(8)], seen.entry((remote.generation(), which)).or_default());
        assert!(now[0] <= now[1] && before[0] <= now[0] && before[1] <= now[1], "{before:?}, then {now:?}");
        *before = now;
        sim::sleep(Duration::from_millis(sim::below(50)));
    }
}

fn run(sim: &Sim) -> [u64; 4] {
    let histories = Arc::new(Histories::default());
    let (whole, flushed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    if sim.below(5) > 0 {
        sim.random_faults();
    }
    let exporter = sim.server("exporter", || {
        // No writer asks for a notice, so this serves for ever.
        farcall::memory::export("Words", Settings::new(SIZE).anyone(Rights::ALL))?.notice();
        Ok::<(), Error>(())
    });
    let mut clients: Vec<Process> = (0..CLIENTS)
        .map(|which| {
            let histories = histories.clone();
            sim.process(&format!("client {which}"), move || client(&histories))
        })
        .collect();
    let seen = whole.clone();
    clients.push(sim.process("reader", move || reader(&seen)));
    let writer = sim.process("writer", writer);
    clients.push(sim.process("watcher", watcher));
    let done = flushed.clone();
    clients.push(sim.process("poster", move || poster(&done)));
    for _ in 0..sim.below(8) {
        sim.sleep(Duration::from_millis(sim.below(500)));
        let client = &clients[sim.below(clients.len() as u64) as usize];
        match sim.below(5) {
            0 => {
                exporter.crash();
                sim.sleep(Duration::from_millis(sim.below(2_000)));
                exporter.restart();
            }
            1 => {
                exporter.pause();
                sim.sleep(Duration::from_millis(sim.below(3_000)));
                exporter.resume();
            }
            2 => sim.partition(&exporter, client),
            3 => sim.cut(&writer, &exporter),
            _ => sim.heal(),
        }
    }
    sim.heal();
    exporter.restart();
    sim.run();
    let (begun, ended) = histories.check();
    [begun as u64, ended as u64, whole.load(Ordering::Relaxed), flushed.load(Ordering::Relaxed)]
}

#[test]
fn words_are_linearizable_and_records_whole() {
    static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    check(100, |sim| {
        for (count, more) in COUNTS.iter().zip(run(sim)) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    });
    let [begun, ended, whole, flushed] = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!(
        "{begun} operations on words, {ended} ended; {whole} whole records seen, {flushed} posts of three writes flushed"
    );
    assert!(
        ended > begun / 2 && whole > 0 && flushed > 0,
        "{ended} of {begun} ended, {whole} records: that shows little"
    );
}

/// A fault that the long run looks for would be noticed.
#[test]
fn a_swap_that_is_done_twice_shows() {
    let history = History::default();
    let happens = |what: Operation| {
        let begun = history.begin(what);
        history.end(begun, what);
    };
    happens(Operation::Swap(0, 1, Some(0)));
    happens(Operation::Store(0));
    assert!(history.check(0, word).is_ok());
    happens(Operation::Load(Some(1)));
    assert!(history.check(0, word).is_err());
}

#[test]
fn what_is_refused_is_not_done() {
    check(10, |sim| {
        sim.server("exporter", || {
            farcall::memory::export("Words", Settings::new(16).anyone(Rights::READ))?.notice();
            Ok::<(), Error>(())
        });
        sim.process("client", || {
            let remote = import();
            let refused = remote.compare_and_swap(0, 0, 1);
            assert!(matches!(refused, Err(Error::Declared(Refused::NotPermitted))), "{refused:?}");
            assert_eq!(remote.load(0).ok(), Some(0));
        });
        sim.run();
    });
}

/// A thread of a simulation waits for notices by `notice` or `next_notice`.
#[test]
#[cfg(unix)]
fn a_simulation_has_no_descriptors_and_says_so() {
    check(1, |_| -> farcall::Result<()> {
        let segment = farcall::memory::export("Words", Settings::new(16))?;
        let why = segment.open_descriptor().unwrap_err().to_string();
        assert!(why.contains("a simulation has no descriptors"), "{why}");
        Ok(())
    });
}

/// A reading does not read the clock. A thread that waits at the same time must still notice its deadline.
#[test]
fn a_deadline_passes_in_time_beside_a_reading() {
    #[farcall::interface]
    trait Idle {
        fn idle(&self) -> farcall::Result<()>;
    }
    struct Idler;
    impl Idle for Idler {
        fn idle(&self) -> farcall::Result<()> {
            Ok(())
        }
    }
    check(20, |sim| -> farcall::Result<()> {
        let exporter = sim.server("exporter", || {
            let _idle = farcall::export::<dyn Idle>("Idle", Arc::new(Idler))?;
            farcall::memory::export("Words", Settings::new(SIZE).anyone(Rights::ALL))?.notice();
            Ok::<(), Error>(())
        });
        let (remote, idle) = (import(), farcall::import::<dyn Idle>("Idle")?);
        let before = 1 + sim.below(20);
        let reader = sim::spawn(move || {
            for _ in 0..before {
                remote.load(0)?;
            }
            // The exporter is paused meanwhile.
            sim::sleep(Duration::from_millis(500));
            remote.load(0)
        });
        sim::sleep(Duration::from_millis(400));
        exporter.pause();
        sim::sleep(Duration::from_millis(100 + sim.below(20)));
        let (begun, wait) = (sim::now(), Duration::from_millis(1 + sim.below(10)));
        let late = idle.within(wait).idle();
        assert!(
            matches!(&late, Err(Error::CallFailed(why)) if why.kind() == farcall::Kind::Deadline),
            "{late:?}"
        );
        let took = sim::now() - begun;
        assert!(took >= wait && took < wait + Duration::from_millis(5), "{took:?} instead of {wait:?}");
        exporter.resume();
        reader.join().map_err(|why| panic!("{why}")).ok();
        Ok(())
    });
}
