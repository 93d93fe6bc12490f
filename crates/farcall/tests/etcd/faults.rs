//! A leader of etcd and exporters are killed, and no call is lost or executed twice.

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farcall::Runtime;
use farcall_names::{Etcd, Registry};

use super::cluster::{Cluster, cluster, label, until};
use super::{Server, Store, StoreClient, runtime};

const CALLS: u64 = 100_000;
const CALLERS: usize = 4;
const EXPORTS: u64 = 100;

/// The lease of the exporting processes.
const LEASE_TIME: Duration = Duration::from_secs(2);

#[farcall::interface]
trait Counter {
    /// Executes the call with this number.
    fn count(&self, number: u64) -> farcall::Result<u64>;
}

/// The numbers of the calls that were executed, and how many were executed again.
#[derive(Default)]
struct Counted {
    once: HashSet<u64>,
    again: u64,
}

impl Counter for Mutex<Counted> {
    fn count(&self, number: u64) -> farcall::Result<u64> {
        let mut counted = self.lock().unwrap();
        let is_new = counted.once.insert(number);
        counted.again += u64::from(!is_new);
        Ok(number)
    }
}

#[test]
fn a_killed_leader_of_etcd_costs_no_call_and_no_export() {
    let Some(mut cluster) = cluster(3) else { return };
    let (exporter, importer) = (runtime(&cluster), runtime(&cluster));
    let counted = Arc::new(Mutex::new(Counted::default()));
    let _counter = exporter.export::<dyn Counter>("Counter/a", counted.clone()).unwrap();
    let counter = importer.import::<dyn Counter>("Counter").unwrap();
    let (next, are_exported) = (AtomicU64::new(0), AtomicBool::new(false));
    // Calls are made before, while and after the leader is killed.
    let call = || {
        let mut answered = 0;
        while next.load(Relaxed) < CALLS || !are_exported.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            assert_eq!(counter.count(number).unwrap(), number);
            answered += 1;
        }
        answered
    };
    let (answered, exports) = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        let mut exports = Vec::new();
        for which in 0..EXPORTS {
            if which == EXPORTS / 3 {
                let leader = cluster.leader();
                cluster.kill(leader);
            }
            let name = format!("Store/{which:02}");
            exports.push(exporter.export::<dyn Store>(&name, Arc::new(Server(which))).unwrap());
        }
        are_exported.store(true, Relaxed);
        (callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>(), exports)
    });
    let counted = counted.lock().unwrap();
    assert_eq!((counted.once.len() as u64, counted.again), (answered, 0));
    assert!(answered >= CALLS);
    println!("{answered} calls, each executed and answered once");
    let registry = cluster.registry();
    until("all exports", || {
        (registry.instances(&label("Store")).unwrap().len() == exports.len()).then_some(())
    });
    for which in [0, EXPORTS - 1] {
        let store = importer.import::<dyn Store>(&format!("Store/{which:02}")).unwrap();
        assert_eq!(store.number().unwrap(), which);
    }
}

/// Returns when the entries of these names came into being, as revisions; 0 for one that is not there.
fn created(cluster: &Cluster, names: &[&str]) -> Vec<u64> {
    let revision = |name: &&str| {
        let said = cluster.etcdctl(&["get", &format!("test/v1/{name}"), "--write-out=json"]);
        let revision = said.split("\"create_revision\":").nth(1)?.split(',').next()?;
        Some(revision.parse().unwrap())
    };
    names.iter().map(|name| revision(name).unwrap_or(0)).collect()
}

/// Has etcd end all leases.
fn end_leases(cluster: &Cluster, by_stopping: bool) {
    if !by_stopping {
        // The first line says how many there are.
        for lease in cluster.etcdctl(&["lease", "list"]).lines().skip(1) {
            cluster.etcdctl(&["lease", "revoke", lease]);
        }
        return;
    }
    cluster.pause(0, true);
    let end = Instant::now() + 2 * LEASE_TIME;
    until("the end of the leases", || (Instant::now() > end).then_some(()));
    cluster.pause(0, false);
}

#[test]
fn leases_that_end_while_their_servers_are_well_cost_no_balanced_call_and_no_group() {
    let Some(cluster) = cluster(1) else { return };
    let names = ["Store/1", "Store/2"];
    let _exporters = [1, 2].map(|number| Exporter::start(&cluster, number));
    until("both names", || (!created(&cluster, &names).contains(&0)).then_some(()));
    let importer = runtime(&cluster);
    let group = importer.import_all::<dyn Store>("Store").unwrap();
    let balancer = group.balancer();
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let call = |store: StoreClient| {
        while !over.load(Relaxed) {
            assert!([1, 2].contains(&store.number().unwrap()));
            let all = group.multi().number().all();
            assert!(all.results().count() > 0, "{all:?}");
            calls.fetch_add(1, Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let callers = [balancer.stub(), balancer.round_robin(), balancer.sticky("key")];
        let callers: Vec<_> = callers.into_iter().map(|stub| scope.spawn(|| call(stub))).collect();
        for by_stopping in [false, true] {
            let before = created(&cluster, &names);
            end_leases(&cluster, by_stopping);
            until("both names again", || {
                let now = created(&cluster, &names);
                let again = now.iter().zip(&before).all(|(now, before)| now > before);
                (again || callers.iter().any(|caller| caller.is_finished())).then_some(())
            });
        }
        over.store(true, Relaxed);
    });
    println!("{} calls of each kind", calls.load(Relaxed));
}

/// Not a test by itself: a process that exports until it is killed.
#[test]
fn exporting_process() {
    let Ok(place) = std::env::var("FARCALL_TEST_PLACE") else { return };
    let number = std::env::var("FARCALL_TEST_NUMBER").unwrap().parse().unwrap();
    let registry = Etcd::builder(&place).unwrap().lease_time(LEASE_TIME).build();
    let runtime = Runtime::builder().registry(registry).build().unwrap();
    let _export = runtime.export::<dyn Store>(&format!("Store/{number}"), Arc::new(Server(number))).unwrap();
    loop {
        std::thread::park();
    }
}

/// A process that exports `Store/NUMBER`, and is killed when this is dropped.
struct Exporter(Child);

impl Exporter {
    fn start(cluster: &Cluster, number: usize) -> Exporter {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "faults::exporting_process"])
            .env("FARCALL_TEST_PLACE", cluster.place())
            .env("FARCALL_TEST_NUMBER", number.to_string())
            .stdout(Stdio::null());
        Exporter(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has a client call until it is answered. Returns by whom, and how many attempts failed.
fn answer(store: &StoreClient) -> (u64, usize) {
    let mut failed = 0;
    loop {
        match store.number() {
            Ok(number) => return (number, failed),
            Err(_) => failed += 1,
        }
        assert!(failed < 10, "nobody answers");
    }
}

/// Checks that clients fail over from a killed exporter with at most one failed attempt each.
fn fail_over(clients: &[(Runtime, StoreClient)], bound: &mut [u64], victim: u64) {
    let (mut attempts, mut concerned) = (0, 0);
    for ((_, store), bound) in clients.iter().zip(bound) {
        concerned += usize::from(*bound == victim);
        let (number, failed) = answer(store);
        assert_ne!(number, victim);
        assert!(failed <= usize::from(*bound == victim), "{failed} attempts failed");
        attempts += failed;
        *bound = number;
    }
    println!("{attempts} failed attempts of {concerned} clients that were bound to Store/{victim}");
}

#[test]
fn a_killed_exporter_costs_each_of_its_clients_an_attempt_until_its_name_goes() {
    let Some(mut cluster) = cluster(3) else { return };
    let mut exporters: Vec<_> = (0..3).map(|number| Exporter::start(&cluster, number)).collect();
    let registry = cluster.registry();
    let is_there =
        |number: u64| registry.lookup(&label("Store"), &label(&number.to_string())).unwrap().is_some();
    until("all names", || (0..3).all(is_there).then_some(()));
    // Half of the clients learn of a death from memory that they share with the server, half by silence.
    let client = |which| {
        let builder = Runtime::builder().registry(cluster.registry());
        let runtime = builder.shared_memory(which % 2 == 0).build().unwrap();
        let store = runtime.import::<dyn Store>("Store").unwrap();
        (runtime, store)
    };
    let clients: Vec<_> = (0..8).map(client).collect();
    let mut bound: Vec<u64> = clients.iter().map(|(_, store)| store.number().unwrap()).collect();
    let follower = runtime(&cluster);
    let group = follower.import_all::<dyn Store>("Store").unwrap();

    let first = bound[0];
    exporters[first as usize].kill();
    let killed = Instant::now();
    fail_over(&clients, &mut bound, first);
    until("the end of the name", || (!is_there(first)).then_some(()));
    let gone = killed.elapsed();
    println!("the name was gone {gone:?} after its exporter was killed, with a lease of {LEASE_TIME:?}");
    // The promise is the lease and 2 s. A machine that is busy with other tests may take longer.
    assert!(gone < 2 * (LEASE_TIME + Duration::from_secs(2)), "{gone:?}");

    // After an election the time of the lease counts anew.
    let second = bound[0];
    let leader = cluster.leader();
    cluster.kill(leader);
    exporters[second as usize].kill();
    let killed = Instant::now();
    fail_over(&clients, &mut bound, second);
    until("the end of the name", || (!is_there(second)).then_some(()));
    println!("with an election it was gone after {:?}", killed.elapsed());

    // Nobody is sent to the dead any more.
    let third = bound[0];
    until("the group", || (group.len() == 1).then_some(()));
    let balanced = group.balancer().stub();
    for _ in 0..20 {
        assert_eq!(follower.import::<dyn Store>("Store").unwrap().number().unwrap(), third);
        assert_eq!(balanced.number().unwrap(), third);
    }
    assert!(clients.iter().all(|(_, store)| answer(store) == (third, 0)));
}
