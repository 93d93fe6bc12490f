//! Tests that replicas are restarted one after the other without a failed call: a drain tells the clients,
//! and ends when no more calls come. `FARCALL_RESTARTS` sets how many restarts each test makes.
#![allow(missing_docs)]

use std::collections::BTreeMap;
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

/// A replica. Dropping it has the effect of its process's end.
struct Replica {
    export: Export,
    runtime: Runtime,
}

/// Where replicas and their clients find one another.
struct World {
    /// Makes the settings of a replica, and of a client.
    replica: Settings,
    client: Settings,
    /// Is told of each replica that has started.
    started: Box<Started>,
    /// Where the replicas listen, if clients have a list of addresses and no names.
    addresses: Vec<SocketAddr>,
}

type Settings = Box<dyn Fn() -> Builder + Sync>;
type Started = dyn Fn(usize, &Export) + Sync;

/// Ends the calling threads when the thread that restarts replicas ends, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl World {
    fn new(settings: impl Fn() -> Builder + Clone + Sync + 'static) -> World {
        World::of(settings.clone(), settings)
    }

    fn of(
        replica: impl Fn() -> Builder + Sync + 'static,
        client: impl Fn() -> Builder + Sync + 'static,
    ) -> World {
        let (replica, client) = (Box::new(replica), Box::new(client));
        World { replica, client, started: Box::new(|_, _| ()), addresses: Vec::new() }
    }

    fn balanced(&self, clients: &Runtime) -> StoreClient {
        if self.addresses.is_empty() {
            return clients.import_all::<dyn Store>("Store").unwrap().balanced();
        }
        let names: Vec<_> = self.addresses.iter().map(|address| format!("udp://{address}/Store")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        clients.import_each::<dyn Store>(&names).unwrap().balanced()
    }

    fn start(&self, instance: usize) -> Replica {
        let builder = match self.addresses.get(instance) {
            Some(address) => {
                // The threads of the former replica close its socket when they end.
                while UdpSocket::bind(address).is_err() {
                    std::thread::yield_now();
                }
                (self.replica)().address(*address)
            }
            None => (self.replica)(),
        };
        let runtime = builder.build().unwrap();
        let export = runtime.export::<dyn Store>(&format!("Store/{instance}"), Arc::new(Server)).unwrap();
        (self.started)(instance, &export);
        Replica { export, runtime }
    }
}

fn settings(names: &(impl Registry + Clone + 'static)) -> Builder {
    Runtime::builder().registry(names.clone())
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
    let clients = (world.client)().build().unwrap();
    let balanced = world.balanced(&clients);
    let single = clients.import::<dyn Store>("Store").unwrap();
    // This one is idle for most of the time.
    let idle = clients.import::<dyn Store>("Store").unwrap();
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let call = |what: &str, number: u64, made: farcall::Result<u64>| {
        if made != Ok(number + 1) {
            drop(Stop(&over));
            panic!("call {number} of the {what} stub: {made:?}");
        }
        calls.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        let _stop = Stop(&over);
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
    });
    calls.into_inner()
}

/// Returns a world whose names are in memory.
fn in_memory(shared_memory: bool) -> World {
    let names = Memory::new();
    World::new(move || settings(&names).shared_memory(shared_memory))
}

#[test]
fn no_call_fails_by_udp_while_exports_drain() {
    assert!(roll(&in_memory(false), Drains::Export, 2, restarts()) > 0);
}

#[test]
fn no_call_fails_by_udp_while_runtimes_drain() {
    assert!(roll(&in_memory(false), Drains::Runtime, 2, restarts()) > 0);
}

#[test]
fn no_call_fails_while_three_replicas_drain() {
    assert!(roll(&in_memory(false), Drains::Runtime, 3, restarts()) > 0);
}

#[test]
fn no_call_fails_through_shared_memory_while_replicas_drain() {
    let world = in_memory(true);
    assert!(roll(&world, Drains::Export, 3, restarts()) > 0);
    assert!(roll(&world, Drains::Runtime, 2, restarts()) > 0);
}

#[test]
fn no_call_fails_while_replicas_drain_whose_names_are_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names");
    let world = World::new(move || Runtime::builder().registry(File::at(&path)));
    assert!(roll(&world, Drains::Export, 2, restarts()) > 0);
}

#[cfg(all(target_os = "linux", feature = "etcd"))]
#[path = "../../farcall-names/tests/etcd/cluster.rs"]
mod cluster;

#[test]
#[cfg(all(target_os = "linux", feature = "etcd"))]
fn no_call_fails_while_replicas_drain_whose_names_are_in_etcd() {
    let Some(cluster) = cluster::cluster(1) else { return };
    // Each replica has a connection of its own, as processes have.
    let place = cluster.place();
    let connect = move || farcall::names::Etcd::at(&place).unwrap();
    let client = connect();
    let world = World::of(move || Runtime::builder().registry(connect()), move || settings(&client));
    assert!(roll(&world, Drains::Export, 2, restarts()) > 0);
}

#[cfg(all(target_os = "linux", feature = "dns"))]
#[path = "../../farcall-names/tests/dns/server.rs"]
mod server;

/// A replica is named in DNS until another one is named at its host. Answers are kept for a second, and the
/// next replica drains when the present ones are known.
#[test]
#[cfg(all(target_os = "linux", feature = "dns"))]
fn no_call_fails_while_replicas_drain_whose_names_are_in_dns() {
    use server::{address, local_registry, srv, until};
    let dns = server::Server::of(Vec::new());
    let client = local_registry(&dns);
    let known = client.clone();
    let mut world = World::of(|| settings(&Memory::new()), move || settings(&client));
    let records = Mutex::new(BTreeMap::new());
    world.started = Box::new(move |instance, export| {
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
    assert!(roll(&world, Drains::Runtime, 2, restarts()) > 0);
}

#[test]
#[cfg(feature = "secure")]
fn no_call_fails_while_replicas_with_keys_drain() {
    use farcall::Keys;
    use farcall::key_files::{Identity, Keyring};
    let identity = |byte: u8| Identity::from_entropy([byte; 32]);
    let servers = move || {
        let known = format!("{} client", identity(2).public());
        Keys::new(Keyring::new(identity(1)).with_authorized_key(known.parse().unwrap()).unwrap())
    };
    let clients = move || {
        let known = format!("Store {}", identity(1).public());
        Keys::new(Keyring::new(identity(2)).with_known_server(known.parse().unwrap()))
    };
    for shared_memory in [false, true] {
        let names = Memory::new();
        let settings = move || settings(&names).shared_memory(shared_memory);
        let replica = settings.clone();
        let world = World::of(move || replica().keys(servers()), move || settings().keys(clients()));
        assert!(roll(&world, Drains::Runtime, 2, restarts()) > 0);
    }
}

/// Returns addresses at which nobody listens, not even between a replica's end and its return: outside of the
/// range from which the system gives ports to sockets that ask for any.
fn fixed_addresses<const COUNT: usize>() -> [SocketAddr; COUNT] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time have numbers near each other.
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 20;
    [(); COUNT].map(|()| {
        let free = || {
            let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
            UdpSocket::bind(("127.0.0.1", port)).ok()?.local_addr().ok()
        };
        std::iter::repeat_with(free).flatten().next().expect("a port is free")
    })
}

#[test]
fn no_call_fails_while_replicas_of_a_static_list_drain_and_come_back_at_their_addresses() {
    let mut world = in_memory(false);
    world.addresses = fixed_addresses::<2>().to_vec();
    assert!(roll(&world, Drains::Runtime, 2, restarts()) > 0);
}
