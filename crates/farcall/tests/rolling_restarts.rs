//! Tests that replicas are restarted one after the other without a failed call: a drain tells the clients,
//! and ends when no more calls come. `FARCALL_RESTARTS` sets how many restarts each test makes.
#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farcall::names::{File, Memory, Registry};
use farcall::{Builder, Export, Runtime};

#[farcall::interface]
pub trait Store {
    fn next(&self, number: u64) -> farcall::Result<u64>;
}

struct Server;

impl Store for Server {
    fn next(&self, number: u64) -> farcall::Result<u64> {
        Ok(number + 1)
    }
}

const LONG: Duration = Duration::from_secs(60);

/// A replica. Dropping it has the effect of its process's end.
struct Replica {
    export: Export,
    runtime: Runtime,
}

struct World {
    names: Arc<dyn Registry>,
    shared_memory: bool,
}

impl World {
    fn new(names: Arc<dyn Registry>, shared_memory: bool) -> World {
        World { names, shared_memory }
    }

    fn builder(&self) -> Builder {
        Runtime::builder().registry(self.names.clone()).shared_memory(self.shared_memory)
    }

    fn start(&self, instance: usize) -> Replica {
        let runtime = self.builder().build().unwrap();
        let export = runtime.export::<dyn Store>(&format!("Store/{instance}"), Arc::new(Server)).unwrap();
        Replica { export, runtime }
    }
}

#[derive(Clone, Copy)]
enum Drains {
    Export,
    Runtime,
}

fn restarts() -> usize {
    std::env::var("FARCALL_RESTARTS").map_or(20, |count| count.parse().expect("a number"))
}

/// Restarts replicas, one after the other, while clients call. Returns how many calls were made.
fn roll(world: &World, drains: Drains, replicas: usize, restarts: usize) -> u64 {
    let mut running: Vec<_> = (0..replicas).map(|instance| Some(world.start(instance))).collect();
    let clients = world.builder().build().unwrap();
    let balanced = clients.import_all::<dyn Store>("Store").unwrap().balanced();
    let single = clients.import::<dyn Store>("Store").unwrap();
    // This one is idle for most of the time.
    let idle = clients.import::<dyn Store>("Store").unwrap();
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let stop = || over.store(true, Ordering::SeqCst);
    let call = |what: &str, number: u64, made: farcall::Result<u64>| {
        if made != Ok(number + 1) {
            stop();
            panic!("call {number} of the {what} stub: {made:?}");
        }
        calls.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..).take_while(|_| !over.load(Ordering::SeqCst)).for_each(|number| {
                    call("balanced", number, balanced.next(number));
                    let started: Vec<_> = (0..8).map(|more| balanced.start().next(more)).collect();
                    started.into_iter().zip(0..).for_each(|(one, more)| call("started", more, one.wait()));
                })
            });
            scope.spawn(|| {
                (0..).take_while(|_| !over.load(Ordering::SeqCst)).for_each(|number| {
                    call("single", number, single.next(number));
                })
            });
        }
        for restart in 0..restarts {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let place = restart % replicas;
            let Replica { export, runtime } = running[place].take().unwrap();
            let drained = match drains {
                Drains::Export => export.drain(LONG),
                Drains::Runtime => {
                    let drained = runtime.drain(LONG);
                    drop(export);
                    drained
                }
            };
            assert!(drained, "the calls that had begun are finished");
            drop(runtime);
            call("idle", 7, idle.next(7));
            running[place] = Some(world.start(place));
        }
        stop();
    });
    calls.into_inner()
}

#[test]
fn no_call_fails_by_udp_while_exports_drain() {
    let world = World::new(Arc::new(Memory::new()), false);
    assert!(roll(&world, Drains::Export, 2, restarts()) > 0);
}

#[test]
fn no_call_fails_by_udp_while_runtimes_drain() {
    let world = World::new(Arc::new(Memory::new()), false);
    assert!(roll(&world, Drains::Runtime, 2, restarts()) > 0);
}

#[test]
fn no_call_fails_through_shared_memory_while_replicas_drain() {
    let world = World::new(Arc::new(Memory::new()), true);
    assert!(roll(&world, Drains::Export, 3, restarts()) > 0);
    assert!(roll(&world, Drains::Runtime, 2, restarts()) > 0);
}

#[test]
fn no_call_fails_while_replicas_drain_whose_names_are_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(Arc::new(File::at(folder.path().join("names"))), true);
    assert!(roll(&world, Drains::Export, 2, restarts()) > 0);
}
