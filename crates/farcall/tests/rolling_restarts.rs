//! Tests that replicas are restarted one after the other without a failed call, in every combination of how
//! they are found, what carries their calls, keys, and one to three replicas. Of a single replica this holds
//! for stubs that wait for a server.
//!
//! `FARCALL_RESTARTS` sets how many restarts each combination makes. `scripts/restarts` makes 1,000 in all
//! and prints what each combination has done.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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

/// The restarts of a combination unless `FARCALL_RESTARTS` says how many.
const FEW: usize = 6;

/// How many calls there are at least between a replica's return and the next restart.
const BETWEEN: u64 = 100;

/// A replica. Dropping it has the effect of its process's end.
struct Replica {
    export: Export,
    runtime: Runtime,
}

/// How replicas and their clients find one another.
struct Names {
    replica: Settings,
    client: Settings,
    /// Is told of each replica that has started.
    started: Box<Started>,
    /// Where the replicas listen, if clients have a list of addresses.
    addresses: Vec<SocketAddr>,
}

type Settings = Box<dyn Fn() -> Builder + Sync>;
type Started = dyn Fn(usize, &Export) + Sync;

impl Names {
    fn of(
        replica: impl Fn() -> Builder + Sync + 'static,
        client: impl Fn() -> Builder + Sync + 'static,
    ) -> Names {
        let (replica, client) = (Box::new(replica), Box::new(client));
        Names { replica, client, started: Box::new(|_, _| ()), addresses: Vec::new() }
    }

    fn in_memory() -> Names {
        let names = Memory::new();
        let settings = move || settings(&names);
        Names::of(settings.clone(), settings)
    }
}

fn settings(names: &(impl Registry + Clone + 'static)) -> Builder {
    Runtime::builder().registry(names.clone())
}

/// A combination.
struct Cell {
    names: Names,
    found: &'static str,
    shared_memory: bool,
    has_keys: bool,
    replicas: usize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { found, replicas, .. } = self;
        let carrier = if self.shared_memory { "shared memory" } else { "UDP" };
        let keys = if self.has_keys { "keys" } else { "open" };
        write!(f, "{found} | {carrier} | {keys} | {replicas}")
    }
}

/// The two ends of a call.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Server,
    Client,
}

impl Cell {
    /// Returns the settings of an end.
    fn builder(&self, end: End) -> Builder {
        let made = if end == End::Server { (self.names.replica)() } else { (self.names.client)() };
        let builder = made.shared_memory(self.shared_memory);
        #[cfg(feature = "secure")]
        if self.has_keys {
            return builder.keys(keys(end));
        }
        builder
    }

    /// Returns the names under which a list of addresses has the replicas.
    fn listed(&self) -> Vec<String> {
        self.names.addresses.iter().map(|address| format!("udp://{address}/Store")).collect()
    }

    /// Returns a stub that spreads its calls, one that is bound to a single replica, and another of these.
    fn stubs(&self, clients: &Runtime) -> [StoreClient; 3] {
        let listed = self.listed();
        let listed: Vec<_> = listed.iter().map(String::as_str).collect();
        let balanced = match listed.is_empty() {
            true => clients.import_all::<dyn Store>("Store").unwrap().balanced(),
            false => clients.import_each::<dyn Store>(&listed).unwrap().balanced(),
        };
        let alone = if let [listed] = listed[..] { listed } else { "Store" };
        let single = || clients.import::<dyn Store>(alone).unwrap();
        let stubs = [balanced, single(), single()];
        match self.replicas {
            1 => stubs.map(|stub| stub.wait_for_server().within(LONG)),
            _ => stubs,
        }
    }

    fn start(&self, instance: usize) -> Replica {
        let mut builder = self.builder(End::Server);
        if let Some(address) = self.names.addresses.get(instance) {
            // The threads of the former replica close its socket when they end.
            while UdpSocket::bind(address).is_err() {
                std::thread::yield_now();
            }
            builder = builder.address(*address);
        }
        let runtime = builder.build().unwrap();
        let export = runtime.export::<dyn Store>(&format!("Store/{instance}"), Arc::new(Server)).unwrap();
        (self.names.started)(instance, &export);
        Replica { export, runtime }
    }
}

#[cfg(feature = "secure")]
fn keys(end: End) -> farcall::Keys {
    use farcall::key_files::{Identity, Keyring};
    let identity = |byte: u8| Identity::from_entropy([byte; 32]);
    let keyring = if end == End::Server {
        let known = format!("{} client", identity(2).public());
        Keyring::new(identity(1)).with_authorized_key(known.parse().unwrap()).unwrap()
    } else {
        let known = format!("Store {}", identity(1).public());
        Keyring::new(identity(2)).with_known_server(known.parse().unwrap())
    };
    farcall::Keys::new(keyring)
}

/// Ends the calling threads when the thread that restarts replicas ends, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Ends a replica by a drain, of its export or of its whole runtime.
fn end(Replica { export, runtime }: Replica, of_export: bool) {
    let drained = if of_export {
        export.drain(LONG)
    } else {
        let drained = runtime.drain(LONG);
        drop(export);
        drained
    };
    assert!(drained, "the calls that had begun are finished");
    drop(runtime);
}

/// Restarts replicas, one after the other, while clients call.
fn roll(cell: &Cell, restarts: usize) {
    let mut running: Vec<_> = (0..cell.replicas).map(|instance| Some(cell.start(instance))).collect();
    let clients = cell.builder(End::Client).build().unwrap();
    // The last one is idle for most of the time.
    let [balanced, single, idle] = cell.stubs(&clients);
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let goes_on = || !over.load(Ordering::SeqCst);
    let call = |what: &str, number: u64, made: farcall::Result<u64>| {
        if made != Ok(number + 1) {
            drop(Stop(&over));
            panic!("{cell}: call {number} of the {what} stub, after {calls:?} calls: {made:?}");
        }
        calls.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        let _stop = Stop(&over);
        // Calls with a deadline go other ways to other replicas.
        for balanced in [balanced.clone(), balanced.within(LONG)] {
            scope.spawn(move || {
                (0..).take_while(|_| goes_on()).for_each(|number| {
                    call("balanced", number, balanced.next(number));
                    let started: Vec<_> = (0..8).map(|more| balanced.start().next(more)).collect();
                    started.into_iter().zip(0..).for_each(|(one, more)| call("started", more, one.wait()));
                })
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                (0..).take_while(|_| goes_on()).for_each(|number| {
                    call("single", number, single.next(number));
                })
            });
        }
        for restart in (0..restarts).take_while(|_| goes_on()) {
            let place = restart % cell.replicas;
            end(running[place].take().unwrap(), (restart / cell.replicas).is_multiple_of(2));
            let idle = idle.start().next(7);
            if cell.replicas > 1 {
                call("idle", 7, idle.wait());
                running[place] = Some(cell.start(place));
            } else {
                running[place] = Some(cell.start(place));
                call("idle", 7, idle.wait());
            }
            let before = calls.load(Ordering::Relaxed);
            while goes_on() && calls.load(Ordering::Relaxed) < before + BETWEEN {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(!clients.stats().links.is_empty(), cell.shared_memory, "{cell}");
    println!("{cell} | {restarts} restarts | {} calls | 0 failed", calls.into_inner());
}

/// Restarts replicas in every combination of carriers, keys and numbers of replicas that are found in one
/// way. `names` is given the number of replicas.
fn roll_each(found: &'static str, names: impl Fn(usize) -> Names) {
    let restarts = std::env::var("FARCALL_RESTARTS").map_or(FEW, |count| count.parse().expect("a number"));
    let carriers = if cfg!(target_os = "linux") { &[false, true][..] } else { &[false] };
    let keys = if cfg!(feature = "secure") { &[false, true][..] } else { &[false] };
    for &shared_memory in carriers {
        for &has_keys in keys {
            for replicas in 1..=3 {
                let names = names(replicas);
                roll(&Cell { names, found, shared_memory, has_keys, replicas }, restarts);
            }
        }
    }
}

#[test]
fn no_call_fails_while_replicas_are_restarted_whose_names_are_in_memory() {
    roll_each("memory", |_| Names::in_memory());
}

#[test]
fn no_call_fails_while_replicas_are_restarted_whose_names_are_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    roll_each("file", |_| {
        let path = folder.path().join("names");
        let settings = move || Runtime::builder().registry(File::at(&path));
        Names::of(settings.clone(), settings)
    });
}

#[cfg(all(target_os = "linux", feature = "etcd"))]
#[path = "../../farcall-names/tests/etcd/cluster.rs"]
mod cluster;

#[test]
#[cfg(all(target_os = "linux", feature = "etcd"))]
fn no_call_fails_while_replicas_are_restarted_whose_names_are_in_etcd() {
    let Some(cluster) = cluster::cluster(1) else { return };
    roll_each("etcd", |_| {
        // Each replica has a connection of its own, as processes have.
        let place = cluster.new_place();
        let connect = move || farcall::names::Etcd::at(&place).unwrap();
        let client = connect();
        Names::of(move || Runtime::builder().registry(connect()), move || settings(&client))
    });
}

#[cfg(all(target_os = "linux", feature = "dns"))]
#[path = "../../farcall-names/tests/dns/server.rs"]
mod server;

/// A replica is named in DNS until another one is named at its host. Answers are kept for a second, and the
/// next replica drains when the present ones are known.
#[test]
#[cfg(all(target_os = "linux", feature = "dns"))]
fn no_call_fails_while_replicas_are_restarted_whose_names_are_in_dns() {
    use server::{address, local_registry, srv, until};
    roll_each("DNS", |_| {
        let dns = server::Server::of(Vec::new());
        let client = local_registry(&dns);
        let known = client.clone();
        let mut names = Names::of(|| settings(&Memory::new()), move || settings(&client));
        let records = Mutex::new(BTreeMap::new());
        names.started = Box::new(move |instance, export| {
            let (host, socket) = (format!("{instance}.example.org"), export.address());
            let named = [
                srv("_store._udp.example.org", 0, 0, &host, socket.port()),
                address(&host, &socket.ip().to_string()),
            ];
            let mut records = records.lock().unwrap();
            records.insert(instance, named);
            dns.know(records.values().flatten().cloned().collect());
            until("the replica in DNS", || {
                let entries = known.instances(&"Store".parse().unwrap()).ok()?;
                entries.iter().any(|entry| entry.sockets().any(|known| known == socket)).then_some(())
            });
        });
        names
    });
}

/// Returns addresses at which nobody listens, not even between a replica's end and its return: outside of the
/// range from which the system gives ports to sockets that ask for any.
fn fixed_addresses(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time have numbers near each other.
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 20;
    let free = || {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
        UdpSocket::bind(("127.0.0.1", port)).ok()?.local_addr().ok()
    };
    std::iter::repeat_with(free).flatten().take(count).collect()
}

/// Clients that are bound to one of several replicas find them in memory, and so do all that follow names.
#[test]
fn no_call_fails_while_replicas_of_a_static_list_are_restarted_at_their_addresses() {
    roll_each("list", |replicas| Names { addresses: fixed_addresses(replicas), ..Names::in_memory() });
}
