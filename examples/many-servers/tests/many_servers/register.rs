//! Tests the register under crashes, restarts, pauses and partitions. Every history must be linearizable.
//! With quorums that need not intersect, the test must find histories that are not.
//!
//! In half of the seeds the servers have disks: any of them may crash, even all, and they return with
//! everything that they had acknowledged. In the other half the servers keep files in memory: a minority
//! crashes, and stays down. Clients crash in the middle of an operation, and return as other writers.
//!
//! The long run: `FARCALL_SIM_SEEDS=10000 cargo test --profile soak -p farcall-many-servers --test
//! many_servers linearizable -- --nocapture`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::Bytes;
use farcall_many_servers::register::{Files, Memory, Quorums, Replica, Versioned};
use farcall_sim::history::History;
use farcall_sim::{Process, Sim, check, find, sim};

const PATH: &str = "motto";
const CLIENTS: u64 = 3;
const OPERATIONS: u64 = 8;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Write(u64),
    /// The content that was read, once it is known.
    Read(Option<u64>),
}

fn register(held: &u64, operation: &Operation) -> Option<u64> {
    match operation {
        Operation::Write(value) => Some(*value),
        Operation::Read(seen) => seen.is_none_or(|seen| seen == *held).then_some(*held),
    }
}

/// A replica whose calls take time before and after the disk has the version. It may crash in that time.
struct OnDisk(Arc<Memory>);

impl Replica for OnDisk {
    fn read(&self, path: &str) -> farcall::Result<Versioned> {
        busy();
        self.0.read(path)
    }

    fn write(&self, path: &str, file: Versioned) -> farcall::Result<()> {
        busy();
        self.0.write(path, file)?;
        busy();
        Ok(())
    }
}

fn busy() {
    if sim::below(2) == 0 {
        sim::sleep(Duration::from_micros(sim::below(20_000)));
    }
}

/// The mistake that the clients make, if any.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    ReadsOne,
    WritesAMinority,
    DoesNotWriteBack,
}

/// Makes the operations of a client, and notes their results.
fn client(names: &[String], mistake: Mistake, history: &History<Operation>) -> farcall::Result<()> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let majority = names.len() / 2 + 1;
    let quorums = match mistake {
        Mistake::ReadsOne => Quorums { read: 1, write: majority },
        Mistake::WritesAMinority => Quorums { read: majority, write: majority - 1 },
        Mistake::None | Mistake::DoesNotWriteBack => Quorums { read: majority, write: majority },
    };
    let files = Files::new(farcall::import_each::<dyn Replica>(&names)?, sim::random());
    let files = files.quorums(quorums).patience(Duration::from_millis(200 + sim::below(5_000)));
    // A reader gets an older value after a newer one only while the newer one is being written.
    let pause = if mistake == Mistake::DoesNotWriteBack { 30 } else { 300 };
    for _ in 0..OPERATIONS {
        if sim::below(2) == 0 {
            let what = Operation::Write(sim::random());
            let Operation::Write(value) = what else { unreachable!() };
            let begun = history.begin(what);
            if files.write(PATH, Bytes::copy_from_slice(&value.to_be_bytes())).is_ok() {
                history.end(begun, what);
            }
        } else {
            let begun = history.begin(Operation::Read(None));
            let read = match mistake {
                Mistake::DoesNotWriteBack => files.newest(PATH).map(|newest| newest.contents),
                _ => files.read(PATH),
            };
            if let Ok(contents) = read {
                let value = contents.as_ref().try_into().map_or(0, u64::from_be_bytes);
                history.end(begun, Operation::Read(Some(value)));
            }
        }
        sim::sleep(Duration::from_millis(sim::below(pause)));
    }
    Ok(())
}

/// Runs one seed. Returns how many operations began, and how many ended.
fn run(sim: &Sim, mistake: Mistake) -> (usize, usize) {
    let members = [3, 5][sim.below(2) as usize];
    let with_disks = sim.below(2) == 0;
    let names: Vec<String> = (0..members).map(|which| format!("Replica/r{which}")).collect();
    let history = Arc::new(History::default());
    if sim.below(4) > 0 {
        sim.random_faults();
    }
    let replicas: Vec<Process> = names
        .iter()
        .map(|name| {
            let (name, disk) = (name.clone(), Arc::new(Memory::default()));
            sim.server(&name.clone(), move || {
                farcall::export::<dyn Replica>(&name, Arc::new(OnDisk(disk.clone())))?.wait()
            })
        })
        .collect();
    let clients: Vec<Process> = (0..CLIENTS)
        .map(|which| {
            let (names, history) = (names.clone(), history.clone());
            sim.process(&format!("client {which}"), move || client(&names, mistake, &history))
        })
        .collect();
    let mut may_crash = members / 2;
    for _ in 0..sim.below(10) {
        sim.sleep(Duration::from_millis(sim.below(800)));
        let replica = &replicas[sim.below(members as u64) as usize];
        let client = &clients[sim.below(CLIENTS) as usize];
        match sim.below(6) {
            0 | 1 if with_disks => {
                // Otherwise the next crash restarts it.
                replica.crash();
                sim.sleep(Duration::from_millis(sim.below(3_000)));
                replicas[sim.below(members as u64) as usize].restart();
                if sim.below(2) == 0 {
                    replica.restart();
                }
            }
            0 if may_crash > 0 && replica.is_running() => {
                may_crash -= 1;
                replica.crash();
            }
            2 => {
                replica.pause();
                sim.sleep(Duration::from_millis(sim.below(4_000)));
                replica.resume();
            }
            3 => sim.partition(replica, client),
            4 => sim.cut(client, replica),
            5 if client.is_running() => {
                client.crash();
                client.restart();
            }
            _ => sim.heal(),
        }
    }
    sim.heal();
    if with_disks {
        replicas.iter().for_each(Process::restart);
    }
    sim.run();
    if let Err(why) = history.check(0, register) {
        panic!("{why}");
    }
    history.counts()
}

#[test]
fn histories_are_linearizable_whatever_minority_is_down() {
    static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    check(300, |sim| {
        let (begun, ended) = run(sim, Mistake::None);
        let facts = [1, begun as u64, ended as u64, u64::from(ended < begun)];
        for (count, fact) in COUNTS.iter().zip(facts) {
            count.fetch_add(fact, Ordering::Relaxed);
        }
    });
    let [histories, begun, ended, torn] = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{histories} histories, {torn} with operations that failed; {begun} operations, {ended} ended");
    assert!(ended > begun / 2, "{ended} of {begun} operations ended: that shows little");
}

#[test]
fn a_majority_that_is_up_serves_though_the_others_never_answer() {
    check(20, |sim| {
        let names = ["Replica/a", "Replica/b", "Replica/c"];
        let replicas = names.map(|name| {
            sim.server(name, move || {
                farcall::export::<dyn Replica>(name, Arc::new(Memory::default()))?.wait()
            })
        });
        replicas[sim.below(3) as usize].crash();
        let files = Files::new(farcall::import_each::<dyn Replica>(&names)?, 1);
        for n in 0..20u64 {
            let value = Bytes::copy_from_slice(&n.to_be_bytes());
            let before = sim::now();
            files.write(PATH, value.clone()).expect("two of three are a majority");
            assert_eq!(files.read(PATH).expect("two of three are a majority"), value);
            assert!(
                sim::now() - before < Duration::from_millis(10),
                "the dead one cost {:?}",
                sim::now() - before
            );
        }
        Ok::<(), farcall::Error>(())
    });
}

/// The seeds in which a mistake must be found.
const ENOUGH: u64 = 1_000;

fn caught(mistake: Mistake) {
    let failure = find(ENOUGH, move |sim| {
        run(sim, mistake);
    });
    let failure = failure.expect("the mistake shows");
    println!("seed {}: {}", failure.seed, failure.why);
    assert!(failure.why.contains("not linearizable"), "{failure}");
}

#[test]
fn to_read_one_replica_is_caught() {
    caught(Mistake::ReadsOne);
}

#[test]
fn to_write_a_minority_is_caught() {
    caught(Mistake::WritesAMinority);
}

#[test]
fn to_read_without_writing_back_is_caught() {
    caught(Mistake::DoesNotWriteBack);
}

/// A writer that counted only from the replicas' versions would use a version twice.
#[test]
fn a_writer_never_uses_a_version_twice() {
    let replicas: Vec<Arc<Memory>> = (0..3).map(|_| Arc::default()).collect();
    let stubs = replicas.iter().map(|replica| farcall::stub::local::<dyn Replica>(replica.clone()));
    let files = Files::new(farcall::Group::of(["a", "b", "c"].into_iter().zip(stubs)), 7);
    let counts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let (files, counts) = (&files, &counts);
            scope.spawn(move || {
                for m in 0..50u8 {
                    files.write(&format!("{n}"), Bytes::copy_from_slice(&[n, m])).unwrap();
                    counts.lock().unwrap().push(files.newest(&format!("{n}")).unwrap().version.count);
                }
            });
        }
    });
    let mut counts = counts.into_inner().unwrap();
    counts.sort_unstable();
    counts.dedup();
    assert_eq!(counts.len(), 200);
}
