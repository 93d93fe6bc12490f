//! Tests that replicas are restarted one after the other without a failed call, while the network loses,
//! doubles and delays datagrams: unchanged servers drain, and unchanged balancers call them. In every fourth
//! run all of them have keys.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::driver_mutants::Rule;
use farcall::key_files::{Identity, Keyring};
use farcall::{Keys, Runtime};
use farcall_sim::{Faults, Process, Sim, check, find, replay, sim};

#[farcall::interface]
trait Store {
    /// Notes a number. May not run twice.
    fn add(&self, number: u64) -> farcall::Result<u64>;
    /// Takes some milliseconds.
    #[blocking]
    fn wait(&self, number: u64, millis: u64) -> farcall::Result<u64>;
}

/// What all replicas together have executed.
#[derive(Clone, Default)]
struct Executed(Arc<Mutex<BTreeSet<u64>>>);

impl Store for Executed {
    fn add(&self, number: u64) -> farcall::Result<u64> {
        assert!(self.0.lock().unwrap().insert(number), "{number} ran twice");
        Ok(number)
    }

    fn wait(&self, number: u64, millis: u64) -> farcall::Result<u64> {
        sim::sleep(Duration::from_millis(millis));
        self.add(number)
    }
}

/// Returns the runtime of a replica or of a client, each kind with a key of its own in every fourth run.
fn runtime(seed: u64, is_replica: bool) -> farcall::Result<Runtime> {
    if !seed.is_multiple_of(4) {
        return Runtime::builder().build();
    }
    let [replica, client] = [1, 2].map(|byte| Identity::from_entropy([byte; 32]));
    let keyring = match is_replica {
        true => {
            let line = format!("{} client type=Store", client.public()).parse().expect("a line");
            Keyring::new(replica).with_authorized_key(line).expect("the line is sound")
        }
        false => {
            let line = format!("Store {}", replica.public()).parse().expect("a line");
            Keyring::new(client).with_known_server(line)
        }
    };
    Runtime::builder().keys(Keys::new(keyring)).build()
}

/// A replica, which drains and ends when it is told to.
struct Replica {
    process: Process,
    ends: Arc<AtomicBool>,
}

/// The longest time that a drain may take. It waits for calls that take up to 100 ms.
const LONG: Duration = Duration::from_secs(25);

impl Replica {
    fn start(sim: &Sim, executed: &Executed, number: u64) -> Replica {
        let ends = Arc::<AtomicBool>::default();
        let (executed, told, seed) = (executed.clone(), ends.clone(), sim.seed());
        let process = sim.server(&format!("replica {number}"), move || {
            let runtime = runtime(seed, true)?;
            let export =
                runtime.export::<dyn Store>(&format!("Store/{number}"), Arc::new(executed.clone()))?;
            while !told.load(SeqCst) {
                sim::sleep(Duration::from_millis(1 + sim::below(20)));
            }
            let drained = match sim::below(2) {
                0 => export.drain(LONG),
                _ => runtime.drain(LONG),
            };
            assert!(drained, "the calls that had begun are finished");
            Ok::<(), farcall::Error>(())
        });
        Replica { process, ends }
    }

    /// Has the replica drain and end, and starts it again after a while.
    fn restart(&self, sim: &Sim) {
        self.ends.store(true, SeqCst);
        self.process.wait();
        sim.sleep(Duration::from_millis(sim.below(2_000)));
        self.ends.store(false, SeqCst);
        self.process.restart();
    }
}

/// Faults of a network that loses up to a tenth of its datagrams in each direction.
fn faults(sim: &Sim) -> Faults {
    let chance = |most: u64| if sim.below(3) == 0 { 0.0 } else { sim.below(most) as f64 / 1e6 };
    let delay = Duration::from_micros(10 + sim.below(3_000));
    let jitter = Duration::from_micros(sim.below(3_000));
    let (loss, duplication, reordering) = (chance(100_000), chance(100_000), chance(100_000));
    Faults { loss, duplication, reordering, delay, jitter, ..Faults::none() }
}

/// Who calls, until the restarts are over.
struct Callers {
    over: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
}

impl Callers {
    /// Starts a process whose threads call by `stub`, each after a pause of up to `pause` milliseconds.
    fn start(
        &self,
        sim: &Sim,
        name: &str,
        pause: u64,
        stub: impl Fn(&Runtime) -> StoreClient + Send + Sync + 'static,
    ) {
        let (over, next, seed) = (self.over.clone(), self.next.clone(), sim.seed());
        sim.process(name, move || {
            let clients = runtime(seed, false).expect("a runtime");
            let stub = stub(&clients);
            let threads = (0..3).map(|_| {
                let (over, next, stub) = (over.clone(), next.clone(), stub.clone());
                sim::spawn(move || {
                    while !over.load(SeqCst) {
                        call(&stub, next.fetch_add(10, SeqCst));
                        sim::sleep(Duration::from_millis(sim::below(pause)));
                    }
                })
            });
            threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join());
        });
    }
}

/// Makes calls, of these ten numbers at most.
fn call(stub: &StoreClient, first: u64) {
    match sim::below(3) {
        0 => assert_eq!(stub.add(first), Ok(first)),
        1 => {
            let millis = sim::below(100);
            assert_eq!(stub.wait(first, millis), Ok(first));
        }
        _ => {
            let started: Vec<_> =
                (first..first + 1 + sim::below(8)).map(|n| (n, stub.start().add(n))).collect();
            started.into_iter().for_each(|(number, started)| assert_eq!(started.wait(), Ok(number)));
        }
    }
}

/// Restarts replicas, one after the other, while balanced stubs call. Returns how many calls were made.
fn roll(sim: &Sim, broken: Option<Rule>) -> u64 {
    let executed = Executed::default();
    let replicas: Vec<_> =
        (0..2 + sim.below(2)).map(|number| Replica::start(sim, &executed, number)).collect();
    let callers = Callers { over: Arc::default(), next: Arc::default() };
    let balancer = |clients: &Runtime| clients.import_all::<dyn Store>("Store").unwrap().balancer();
    callers.start(sim, "busy", 10, move |clients| balancer(clients).stub());
    callers.start(sim, "in turn", 100, move |clients| balancer(clients).round_robin());
    callers.start(sim, "rare", 5_000, move |clients| balancer(clients).sticky("key"));
    sim.sleep(Duration::from_millis(200));
    sim.faults(faults(sim));
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    for restart in 0..6 {
        sim.sleep(Duration::from_millis(sim.below(1_000)));
        replicas[restart % replicas.len()].restart(sim);
    }
    callers.over.store(true, SeqCst);
    sim.run();
    let calls = executed.0.lock().unwrap().len();
    calls as u64
}

#[test]
fn no_call_fails_while_replicas_are_restarted_one_after_the_other() {
    let calls = Arc::<AtomicU64>::default();
    let sum = calls.clone();
    check(12, move |sim| {
        sum.fetch_add(roll(sim, None), SeqCst);
    });
    println!("{} calls", calls.load(SeqCst));
    assert!(calls.load(SeqCst) > 1_000);
}

/// Returns a stub whose calls wait for a server.
fn waiting(clients: &Runtime, name: &str) -> StoreClient {
    clients.import::<dyn Store>(name).unwrap().wait_for_server()
}

#[test]
fn no_call_of_a_stub_that_waits_fails_while_the_only_server_is_restarted() {
    check(20, |sim| {
        let executed = Executed::default();
        let replica = Replica::start(sim, &executed, 0);
        let callers = Callers { over: Arc::default(), next: Arc::default() };
        callers.start(sim, "busy", 10, |clients| waiting(clients, "Store"));
        callers.start(sim, "rare", 3_000, |clients| waiting(clients, "Store/0"));
        sim.sleep(Duration::from_millis(200));
        sim.faults(faults(sim));
        for _ in 0..4 {
            sim.sleep(Duration::from_millis(sim.below(1_000)));
            replica.restart(sim);
        }
        callers.over.store(true, SeqCst);
        sim.run();
        assert!(executed.0.lock().unwrap().len() > 10);
    });
}

/// Notes in microseconds when it last ended a call.
struct Late(Arc<AtomicU64>);

impl Store for Late {
    fn add(&self, number: u64) -> farcall::Result<u64> {
        Ok(number)
    }

    fn wait(&self, number: u64, millis: u64) -> farcall::Result<u64> {
        sim::sleep(Duration::from_millis(millis));
        self.0.store(sim::now().as_micros() as u64, SeqCst);
        Ok(number)
    }
}

/// The result of that call may be lost, and then its caller asks.
#[test]
fn a_drain_stays_for_a_while_after_the_last_call_has_ended() {
    check(5, |sim| -> farcall::Result<()> {
        let server = sim.server("server", || {
            let ended = Arc::<AtomicU64>::default();
            let export = farcall::export::<dyn Store>("Store", Arc::new(Late(ended.clone())))?;
            sim::sleep(Duration::from_millis(200));
            assert!(export.drain(LONG));
            let ended = Duration::from_micros(ended.load(SeqCst));
            assert!(!ended.is_zero() && sim::now() - ended >= Duration::from_millis(100), "{ended:?}");
            Ok::<(), farcall::Error>(())
        });
        assert_eq!(farcall::import::<dyn Store>("Store")?.wait(1, 500 + sim.below(1_000)), Ok(1));
        server.wait();
        Ok(())
    });
}

#[test]
fn broken_rules_of_drains_and_balancers_are_noticed() {
    for rule in [Rule::DrainWaits, Rule::RefusedIsTriedElsewhere] {
        let failure = find(300, move |sim| _ = roll(sim, Some(rule)));
        let failure = failure.unwrap_or_else(|| panic!("nothing notices that {rule:?} is broken"));
        assert!(
            replay(failure.seed, |sim| _ = roll(sim, None)).is_ok(),
            "it fails although no rule is broken"
        );
        println!("{rule:?}: seed {}: {}", failure.seed, failure.why.lines().next().unwrap_or_default());
    }
}
