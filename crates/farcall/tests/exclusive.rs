//! Exclusive exports: one owner of a name at a time, also while exporters are stopped and etcd is away.
//!
//! The last test has real etcd members and real processes. Exporters of the same fifty names run in processes
//! of their own, which the test stops for longer than their leases. Their procedures write to a resource that
//! the test keeps, with their fences. Without `etcd-server` it says that it is skipped.
#![cfg(target_os = "linux")]

#[path = "../../farcall-names/tests/etcd/cluster.rs"]
mod cluster;

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use cluster::{cluster, signal, until};
use farcall::names::{Entry, File, Label, Listing, Memory, Ownership, Registration, Registry};
use farcall::{CallFailed, Export, Kind, Ran, Runtime};

#[farcall::interface]
trait Counter {
    /// Writes to the resource. Returns the fence under which the call was admitted.
    fn write(&self) -> farcall::Result<u64>;
}

struct Fenced;

impl Counter for Fenced {
    fn write(&self) -> farcall::Result<u64> {
        Ok(farcall::context().fence().unwrap_or(0))
    }
}

fn runtime(registry: impl Registry + 'static) -> Runtime {
    Runtime::builder().registry(registry).build().unwrap()
}

#[test]
fn each_owner_has_a_greater_fence_and_usual_exports_have_none() {
    let scratch = tempfile::tempdir().unwrap();
    let shared: [Arc<dyn Registry>; 2] =
        [Arc::new(Memory::new()), Arc::new(File::at(scratch.path().join("names")))];
    for registry in shared {
        let (one, other) = (runtime(registry.clone()), runtime(registry));
        let first = one.export_exclusive::<dyn Counter>("Counter/main", Arc::new(Fenced)).unwrap();
        let counter = other.import::<dyn Counter>("Counter/main").unwrap();
        let fence = counter.write().unwrap();
        assert_eq!(Some(fence), first.fence());
        let taken = CallFailed::from(
            other.export_exclusive::<dyn Counter>("Counter/main", Arc::new(Fenced)).unwrap_err(),
        );
        assert_eq!((taken.kind(), taken.ran()), (Kind::Registry, Ran::No));
        drop(first);
        let second = other.export_exclusive::<dyn Counter>("Counter/main", Arc::new(Fenced)).unwrap();
        assert!(counter.write().unwrap() > fence);
        assert_eq!(Some(counter.write().unwrap()), second.fence());
        let usual = one.export::<dyn Counter>("Counter/usual", Arc::new(Fenced)).unwrap();
        assert_eq!(other.import::<dyn Counter>("Counter/usual").unwrap().write().unwrap(), 0);
        assert_eq!(usual.fence(), None);
    }
    assert_eq!(farcall::context().fence(), None);
}

#[test]
fn procedures_that_are_futures_have_a_fence_too() {
    let runtime = runtime(Memory::new());
    let (requests, server) = farcall::Requests::<dyn Counter>::new();
    let export = runtime
        .export_exclusive_async_on("Counter/main", server, |task| drop(std::thread::spawn(|| poll(task))));
    let export = export.unwrap();
    std::thread::spawn(move || requests.next().map(|request| request.serve(&Fenced)));
    let counter = runtime.import::<dyn Counter>("Counter/main").unwrap();
    assert_eq!(Some(counter.write().unwrap()), export.fence());
}

/// Runs a future to its end.
fn poll(mut task: farcall::Task) {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Thread(std::thread::current())).into();
    while task.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
}

#[test]
fn an_exclusive_export_names_its_instance() {
    let why =
        runtime(Memory::new()).export_exclusive::<dyn Counter>("Counter", Arc::new(Fenced)).unwrap_err();
    assert!(why.to_string().contains("Counter/main"), "{why}");
}

/// A registry whose entries have leases that a test ends, or that does not say who owns a name.
#[derive(Clone)]
struct Leased(Memory, Option<Ownership>);

impl Registry for Leased {
    fn publish(&self, entry: &Entry) -> farcall::names::Result<Registration> {
        let registration = self.0.publish(entry)?;
        let without = Registration::new(entry.name(), move || registration.withdraw());
        Ok(match &self.1 {
            Some(ownership) => without.owning(ownership.clone()),
            None => without,
        })
    }
    fn withdraw(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<bool> {
        self.0.withdraw(type_name, instance)
    }
    fn instances(&self, type_name: &Label) -> farcall::names::Result<Vec<Entry>> {
        self.0.instances(type_name)
    }
    fn lookup(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<Option<Entry>> {
        self.0.lookup(type_name, instance)
    }
    fn list(&self) -> farcall::names::Result<Listing> {
        self.0.list()
    }
    fn version(&self) -> farcall::names::Result<u64> {
        self.0.version()
    }
}

#[test]
fn calls_are_refused_when_the_lease_has_ended_and_other_exports_go_on() {
    let ownership = Ownership::leased(7, Ownership::now(), Duration::from_secs(3600));
    let runtime = runtime(Leased(Memory::new(), Some(ownership.clone())));
    let _export = runtime.export_exclusive::<dyn Counter>("Counter/main", Arc::new(Fenced)).unwrap();
    let _other = runtime.export::<dyn Counter>("Counter/other", Arc::new(Fenced)).unwrap();
    let counter = runtime.import::<dyn Counter>("Counter/main").unwrap();
    assert_eq!(counter.write().unwrap(), 7);
    ownership.end();
    let refused = CallFailed::from(counter.write().unwrap_err());
    assert_eq!((refused.kind(), refused.ran()), (Kind::NotExported, Ran::No));
    assert!(refused.to_string().contains("lease"), "{refused}");
    assert_eq!(runtime.import::<dyn Counter>("Counter/other").unwrap().write().unwrap(), 0);
}

#[test]
fn a_call_that_waits_in_an_executor_until_the_lease_has_ended_does_not_begin() {
    let ownership = Ownership::leased(7, Ownership::now(), Duration::from_secs(3600));
    let runtime = runtime(Leased(Memory::new(), Some(ownership.clone())));
    let (requests, server) = farcall::Requests::<dyn Counter>::new();
    let (tasks, waiting) = std::sync::mpsc::channel();
    let tasks = Mutex::new(tasks);
    let _export = runtime
        .export_exclusive_async_on("Counter/main", server, move |task| drop(tasks.lock().unwrap().send(task)))
        .unwrap();
    let counter = runtime.import::<dyn Counter>("Counter/main").unwrap();
    let call = std::thread::spawn(move || CallFailed::from(counter.write().unwrap_err()));
    let task = waiting.recv().unwrap();
    ownership.end();
    poll(task);
    let refused = call.join().unwrap();
    assert_eq!((refused.kind(), refused.ran()), (Kind::NotExported, Ran::No));
    assert_eq!(requests.waiting(), 0);
}

#[test]
fn a_registry_that_cannot_tell_who_owns_a_name_has_no_exclusive_exports() {
    let names = Memory::new();
    let runtime = runtime(Leased(names.clone(), None));
    let why = runtime.export_exclusive::<dyn Counter>("Counter/main", Arc::new(Fenced)).unwrap_err();
    assert_eq!(CallFailed::from(why).kind(), Kind::Registry);
    assert!(names.list().unwrap().entries.is_empty());
}

/// The names that the processes compete for, and the processes.
const COUNTERS: usize = 50;
const EXPORTERS: usize = 3;
const CLIENTS: usize = 6;

const PLACE: &str = "FARCALL_TEST_REGISTRY";
const RESOURCE: &str = "FARCALL_TEST_RESOURCE";

/// What the fenced writes go to.
#[farcall::interface]
trait Resource {
    /// Does nothing. Writers ask for it before they write, so that they are stopped in the middle.
    fn wait(&self) -> farcall::Result<()>;
    /// Writes to a counter, and returns whether the write was accepted. `owned_at` is a time at which `owner`
    /// surely owned the counter under `fence`.
    fn write(&self, counter: u32, fence: u64, owner: u32, owned_at: Option<u64>) -> farcall::Result<bool>;
}

/// What the resource knows of one counter.
#[derive(Default)]
struct Written {
    /// The greatest fence of an accepted write.
    newest: u64,
    /// By fences: the owner, and the first and last time at which it surely owned the counter.
    owners: BTreeMap<u64, (u32, u64, u64)>,
    accepted: u64,
    refused: u64,
}

#[derive(Default)]
struct Kept {
    counters: Vec<Mutex<Written>>,
    /// What has gone wrong.
    wrong: Mutex<Vec<String>>,
}

impl Resource for Kept {
    fn wait(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn write(&self, counter: u32, fence: u64, owner: u32, owned_at: Option<u64>) -> farcall::Result<bool> {
        let mut written = self.counters[counter as usize].lock().unwrap();
        let at = owned_at.unwrap_or_default();
        let known = written.owners.entry(fence).or_insert((owner, at, at));
        if known.0 != owner {
            self.wrong
                .lock()
                .unwrap()
                .push(format!("{counter}: {owner} and {} have the fence {fence}", known.0));
        }
        if owned_at.is_some() {
            known.1 = if known.1 == 0 { at } else { known.1.min(at) };
            known.2 = known.2.max(at);
        }
        let is_accepted = fence >= written.newest;
        written.newest = written.newest.max(fence);
        *(if is_accepted { &mut written.accepted } else { &mut written.refused }) += 1;
        Ok(is_accepted)
    }
}

/// The counter of an exporter's process.
struct Writing {
    counter: u32,
    resource: ResourceClient,
    export: OnceLock<Arc<Export>>,
}

impl Counter for Writing {
    fn write(&self) -> farcall::Result<u64> {
        let fence = farcall::context().fence().unwrap();
        let now = Ownership::now().as_nanos() as u64;
        // If the process owns the name after the clock was read, it owned it then.
        let owns = self.export.get().is_some_and(|export| export.fence() == Some(fence));
        for _ in 0..20 {
            self.resource.wait()?;
        }
        self.resource.write(self.counter, fence, std::process::id(), owns.then_some(now))?;
        Ok(fence)
    }
}

/// Not a test by itself: the exporters run this.
#[test]
fn an_exporter_that_the_test_starts() {
    let (Ok(place), Ok(resource)) = (env::var(PLACE), env::var(RESOURCE)) else { return };
    let registry = farcall::names::Etcd::builder(&place)
        .unwrap()
        .lease_time(Duration::from_secs(2))
        .exclusive_in_any_version()
        .build();
    let runtime = runtime(registry);
    let over = Arc::new(AtomicBool::new(false));
    let ends = over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        ends.store(true, Ordering::Relaxed);
    });
    println!("ready");
    let mut exports = BTreeMap::new();
    while !over.load(Ordering::Relaxed) {
        for counter in
            (0..COUNTERS as u32).filter(|counter| !exports.contains_key(counter)).collect::<Vec<_>>()
        {
            let resource = runtime.import::<dyn Resource>(&resource).unwrap();
            let server = Arc::new(Writing { counter, resource, export: OnceLock::new() });
            let name = format!("Counter/{counter}");
            if let Ok(export) = runtime.export_exclusive::<dyn Counter>(&name, server.clone()) {
                let export = Arc::new(export);
                let _ = server.export.set(export.clone());
                exports.insert(counter, (export, server));
            }
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    std::process::exit(0);
}

struct Exporter(Child);

impl Exporter {
    fn start(place: &str, resource: &str) -> Exporter {
        let process = Command::new(env::current_exe().unwrap())
            .args(["an_exporter_that_the_test_starts", "--exact", "--nocapture"])
            .env(PLACE, place)
            .env(RESOURCE, resource)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut exporter = Exporter(process.unwrap());
        let output = BufReader::new(exporter.0.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("ready")), "the exporter has ended");
        std::thread::spawn(move || lines.for_each(drop));
        exporter
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stopped_exporters_and_lost_etcd_members_never_make_two_owners() {
    let Some(cluster) = cluster(3) else { return };
    let kept =
        Arc::new(Kept { counters: (0..COUNTERS).map(|_| Mutex::default()).collect(), ..Kept::default() });
    let own = runtime(Memory::new());
    let resource = own.export::<dyn Resource>("Resource/kept", kept.clone()).unwrap();
    let exporters: Vec<Exporter> =
        (0..EXPORTERS).map(|_| Exporter::start(&cluster.place(), &resource.url())).collect();
    let written = |counter: usize| kept.counters[counter].lock().unwrap();
    let (over, calls, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (over, calls, failed, place) = (&over, &calls, &failed, cluster.place());
            scope.spawn(move || call_until(over, client, &place, (calls, failed)));
        }
        // Also if an assertion fails.
        let _over = Over(&over);
        until("owners of all counters", || (0..COUNTERS).all(|c| written(c).newest > 0).then_some(()));
        let mut moved = 0;
        for round in 0.. {
            if moved >= 2 * COUNTERS {
                break;
            }
            let stopped = &exporters[round % EXPORTERS].0;
            let owned: Vec<(usize, u64)> = (0..COUNTERS)
                .map(|counter| (counter, written(counter).newest))
                .filter(|(counter, fence)| written(*counter).owners[fence].0 == stopped.id())
                .collect();
            signal(stopped.id(), "STOP");
            for (counter, fence) in owned {
                until("another owner", || (written(counter).newest > fence).then_some(()));
                moved += 1;
            }
            signal(stopped.id(), "CONT");
        }
        // Without a majority of etcd no lease is prolonged, so all exporters refuse calls in the end.
        (0..2).for_each(|member| cluster.pause(member, true));
        until("that nobody owns a counter", || {
            let before = (0..COUNTERS).map(|c| written(c).accepted).sum::<u64>();
            let (failed_before, mut quiet) = (failed.load(Ordering::Relaxed), true);
            while failed.load(Ordering::Relaxed) < failed_before + 2 * CLIENTS as u64 {
                quiet &= (0..COUNTERS).map(|c| written(c).accepted).sum::<u64>() == before;
                if !quiet {
                    return None;
                }
                std::thread::yield_now();
            }
            Some(())
        });
        let fences: Vec<u64> = (0..COUNTERS).map(|counter| written(counter).newest).collect();
        (0..2).for_each(|member| cluster.pause(member, false));
        let accepted: Vec<u64> = (0..COUNTERS).map(|counter| written(counter).accepted).collect();
        until("owners again", || (0..COUNTERS).all(|c| written(c).accepted > accepted[c]).then_some(()));
        moved += (0..COUNTERS).filter(|counter| written(*counter).newest > fences[*counter]).count();
        println!("{moved} times a counter got another owner or its lease anew");
    });
    let refused: u64 = (0..COUNTERS).map(|counter| written(counter).refused).sum();
    println!(
        "{} calls, {} failed, {refused} writes of former owners refused",
        calls.into_inner(),
        failed.into_inner()
    );
    let mut wrong = std::mem::take(&mut *kept.wrong.lock().unwrap());
    for counter in 0..COUNTERS {
        let timed = written(counter).owners.values().filter(|(_, first, _)| *first > 0).count();
        assert!(timed > 1, "{counter}: the times of {timed} ownerships are known, so nothing is compared");
        let mut ended = 0;
        for (fence, (owner, first, last)) in &written(counter).owners {
            if *first > 0 && *first <= ended {
                wrong.push(format!("{counter}: {owner} began under {fence} while a former owner owned it"));
            }
            ended = ended.max(*last);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls some of the counters until the test is over.
fn call_until(over: &AtomicBool, client: usize, place: &str, (calls, failed): (&AtomicU64, &AtomicU64)) {
    let registry = farcall::names::Etcd::builder(place).unwrap().exclusive_in_any_version().build();
    let runtime = Runtime::builder().registry(registry).patience(Duration::from_millis(300)).build().unwrap();
    let mut stubs: BTreeMap<usize, CounterClient> = BTreeMap::new();
    while !over.load(Ordering::Relaxed) {
        for counter in (0..COUNTERS).filter(|counter| counter % CLIENTS == client) {
            let stub = match stubs.get(&counter) {
                Some(stub) => stub,
                None => match runtime.import::<dyn Counter>(&format!("Counter/{counter}")) {
                    Ok(stub) => stubs.entry(counter).or_insert(stub),
                    Err(_) => continue,
                },
            };
            calls.fetch_add(1, Ordering::Relaxed);
            if stub.write().is_err() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            if over.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}
