//! What the owner of a registry can do to ends that have keys: withhold names, and nothing else. The owner is
//! played by a second handle of the same registry, which has no keys and writes what it likes.

#[cfg(feature = "etcd")]
#[path = "../../farcall-names/tests/etcd/cluster.rs"]
mod cluster;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::env::{Env, Event, Socket, SocketOptions, Time};
use farcall::key_files::{ENTRY_SECONDS, Identity, Keyring, Revoked, Rights, Terms};
use farcall::names::{Entry, File, Label, Memory, Registry, StaticFile};
use farcall::{Export, Keys, Kind, Ran, Runtime, System};

#[farcall::interface]
trait Store {
    fn number(&self) -> farcall::Result<u64>;
}

struct Server(u64);

impl Store for Server {
    fn number(&self) -> farcall::Result<u64> {
        Ok(self.0)
    }
}

/// The operating system with another clock. The thread that signs entries anew looks again at once.
struct Shifted(AtomicU64);

struct Hasty(Arc<dyn Event>);

impl Shifted {
    fn new() -> Arc<Shifted> {
        Arc::new(Shifted(AtomicU64::new(0)))
    }

    fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Env for Shifted {
    fn now(&self) -> Time {
        System.now()
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        System.bind(address, options)
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        System.spawn(name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Hasty(System.event()))
    }

    fn entropy(&self, out: &mut [u8]) {
        System.entropy(out);
    }

    fn unix_seconds(&self) -> u64 {
        System.unix_seconds() + self.0.load(Ordering::SeqCst)
    }
}

impl Event for Hasty {
    fn set(&self) {
        self.0.set();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let signs = std::thread::current().name() == Some("farcall-names");
        self.0.wait(if signs { Some(Duration::from_millis(10)) } else { timeout })
    }
}

const AUTHORITY: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const MALLORY: u8 = 4;

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

/// Returns the keys of an end that trusts the authority, and has a grant of it.
fn keyring(who: u8, rights: Rights, scope: &str) -> Keyring {
    let terms = Terms {
        key: identity(who).public(),
        principal: format!("end-{who}").parse().unwrap(),
        rights,
        scope: scope.parse().unwrap(),
        serial: who.into(),
        expires: System.unix_seconds() + 86_400,
    };
    let grant = identity(AUTHORITY).grant(terms).unwrap();
    let keyring = Keyring::new(identity(who)).with_authority(identity(AUTHORITY).public());
    keyring.with_grant(grant).unwrap()
}

fn exporting(who: u8, scope: &str) -> Option<Keyring> {
    Some(keyring(who, Rights::EXPORT, scope))
}

fn runtime(registry: &Arc<dyn Registry>, keyring: Option<Keyring>, env: &Arc<Shifted>) -> Runtime {
    let builder = Runtime::builder().registry(registry.clone()).patience(Duration::from_secs(1));
    let builder = builder.env(env.clone()).shared_memory(false);
    match keyring {
        Some(keyring) => builder.keys(Keys::new(keyring)),
        None => builder,
    }
    .build()
    .unwrap()
}

fn client(registry: &Arc<dyn Registry>, env: &Arc<Shifted>) -> Runtime {
    runtime(registry, Some(keyring(CLIENT, Rights::IMPORT, "*")), env)
}

fn server(registry: &Arc<dyn Registry>, name: &str, env: &Arc<Shifted>) -> Export {
    let server = runtime(registry, exporting(SERVER, "Store"), env);
    server.export::<dyn Store>(name, Arc::new(Server(7))).unwrap()
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn found(registry: &Arc<dyn Registry>, instance: &str) -> Option<Entry> {
    registry.lookup(&label("Store"), &label(instance)).unwrap()
}

/// Returns why a name cannot be imported, which must be that its entry does not count.
fn refused(client: &Runtime, name: &str) -> String {
    let why = client.import::<dyn Store>(name).expect_err("it is refused");
    let failed = why.call_failed().unwrap();
    assert_eq!((failed.kind(), failed.ran()), (Kind::NotPermitted, Ran::No), "{why}");
    let text = why.to_string();
    assert!(text.contains("expected ") && text.contains("; found "), "{text}");
    text
}

/// A socket of somebody's choosing, to which an importer must not be led.
struct Trap(UdpSocket);

impl Trap {
    fn new() -> Trap {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Trap(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn is_untouched(&self) -> bool {
        self.0.recv_from(&mut [0; 2048]).is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Checks the promise against the owner of a registry. `open` returns a new handle of one registry, and
/// `remove` takes an entry out of it, whoever exports it.
fn owner_can_only_withhold(open: &dyn Fn() -> Arc<dyn Registry>, remove: &dyn Fn(&str)) {
    let (env, owner, trap) = (Shifted::new(), open(), Trap::new());
    let client = client(&open(), &env);

    // The owner adds entries.
    let unsigned = Entry::new(label("Store"), label("added"), trap.address().into(), 7);
    let added = owner.publish(&unsigned).unwrap();
    for name in ["Store/added", "Store"] {
        let text = refused(&client, name);
        assert!(text.contains("run the exporter with keys, or name its address"), "{text}");
    }
    drop(added);
    for who in [MALLORY, SERVER] {
        let other = runtime(&open(), exporting(who, "Cache"), &env);
        let export = other.export::<dyn Store>("Store/added", Arc::new(Server(8))).unwrap();
        let text = refused(&client, "Store/added");
        assert!(text.contains("or that shows a grant of a trusted authority"), "{text}");
        drop(export);
    }

    // The owner redirects a name, by each part of its entry.
    let export = server(&open(), "Store/main", &env);
    assert_eq!(client.import::<dyn Store>("Store/main").unwrap().number().unwrap(), 7);
    let genuine = found(&owner, "main").unwrap();
    let changes: [fn(&mut Entry, SocketAddr); 6] = [
        |entry, trap| entry.address = trap.into(),
        |entry, trap| entry.other_addresses.push(trap.into()),
        |entry, _| entry.export ^= 1,
        |entry, _| entry.owner.namespace ^= 1,
        |entry, _| entry.fingerprints[0].types ^= 1,
        |entry, _| *entry.proof.last_mut().unwrap() ^= 1,
    ];
    remove("Store/main");
    for change in changes {
        let mut changed = genuine.clone();
        change(&mut changed, trap.address());
        let _changed = owner.publish(&changed).unwrap();
        let text = refused(&client, "Store/main");
        assert!(text.contains("one that was changed, or that it did not sign"), "{text}");
    }
    // A genuine entry leads to no other name.
    let mut renamed = genuine.clone();
    renamed.instance = label("other");
    let moved = owner.publish(&renamed).unwrap();
    refused(&client, "Store/other");
    drop(moved);
    let put_back = owner.publish(&genuine).unwrap();
    assert_eq!(client.import::<dyn Store>("Store/main").unwrap().number().unwrap(), 7);

    // Beside bad entries, the good one is found, and the group has it alone.
    let bad = owner.publish(&unsigned).unwrap();
    assert_eq!(client.import::<dyn Store>("Store").unwrap().number().unwrap(), 7);
    let group = client.import_all::<dyn Store>("Store").unwrap();
    assert_eq!(group.multi().number().all().results().count(), 1);
    assert_eq!(client.registry().list().unwrap().entries.len(), 1);
    drop(bad);

    // The owner puts back what was withdrawn: for a while nobody answers, and then it does not count.
    drop((export, put_back));
    remove("Store/main");
    let _revived = owner.publish(&genuine).unwrap();
    let silent = client.import::<dyn Store>("Store/main").expect_err("nobody exports it");
    assert_ne!(silent.call_failed().unwrap().kind(), Kind::NotPermitted, "{silent}");
    env.advance(ENTRY_SECONDS);
    let text = refused(&client, "Store/main");
    assert!(text.contains("that expired 0 s ago") || text.contains("that expired 1"), "{text}");
    assert!(trap.is_untouched(), "no importer was led to an address of the owner's choosing");
}

#[test]
fn the_owner_of_a_registry_in_memory_can_only_withhold() {
    let registry = Memory::new();
    let remove = |name: &str| {
        let (type_name, instance) = name.split_once('/').unwrap();
        let _ = registry.withdraw(&label(type_name), &label(instance));
    };
    owner_can_only_withhold(&|| Arc::new(registry.clone()), &remove);
}

#[test]
fn the_owner_of_the_registry_of_a_machine_can_only_withhold() {
    let directory = tempfile::tempdir().unwrap();
    let registry = File::at(directory.path().join("names"));
    let remove = |name: &str| {
        let (type_name, instance) = name.split_once('/').unwrap();
        let _ = registry.withdraw(&label(type_name), &label(instance));
    };
    owner_can_only_withhold(&|| Arc::new(registry.clone()), &remove);
}

#[cfg(feature = "etcd")]
#[test]
fn the_owner_of_etcd_can_only_withhold() {
    let Some(cluster) = cluster::cluster(1) else { return };
    let remove = |name: &str| {
        cluster.etcdctl(&["del", &format!("test/v1/{name}")]);
    };
    owner_can_only_withhold(&|| Arc::new(cluster.registry()), &remove);
}

/// Checks that an exporter signs its entry anew, so that it counts for as long as it exports.
fn an_exporter_signs_anew(open: &dyn Fn() -> Arc<dyn Registry>) {
    let (env, owner) = (Shifted::new(), open());
    let client = client(&open(), &env);
    let exporter = runtime(&open(), exporting(SERVER, "Store"), &env);
    let export = exporter.export_exclusive::<dyn Store>("Store/main", Arc::new(Server(7))).unwrap();
    let group = client.import_all::<dyn Store>("Store").unwrap();
    let (fence, mut last) = (export.fence().unwrap(), found(&owner, "main").unwrap());
    for _ in 0..4 {
        env.advance(ENTRY_SECONDS / 2);
        let renewed = loop {
            match found(&owner, "main") {
                Some(entry) if entry.proof != last.proof => break entry,
                _ => std::thread::yield_now(),
            }
        };
        last.proof = renewed.proof.clone();
        assert_eq!(renewed, last, "only the proof is another");
        assert_eq!(client.import::<dyn Store>("Store/main").unwrap().number().unwrap(), 7);
        while group.multi().number().all().results().count() != 1 {}
        assert_eq!(export.fence(), Some(fence), "the name has been owned without a break");
    }
    drop(export);
    assert_eq!(found(&owner, "main"), None, "an entry that was signed anew is withdrawn");
}

#[test]
fn an_exporter_signs_its_entry_anew_as_long_as_it_exports() {
    let registry = Memory::new();
    an_exporter_signs_anew(&|| Arc::new(registry.clone()));
    let directory = tempfile::tempdir().unwrap();
    let registry = File::at(directory.path().join("names"));
    an_exporter_signs_anew(&|| Arc::new(registry.clone()));
}

#[cfg(feature = "etcd")]
#[test]
fn an_exporter_signs_its_entry_anew_in_etcd() {
    let Some(cluster) = cluster::cluster(1) else { return };
    an_exporter_signs_anew(&|| Arc::new(cluster.builder().exclusive_in_any_version().build()));
}

#[test]
fn a_group_loses_a_member_whose_entry_is_kept_although_it_is_gone() {
    let (registry, env): (Arc<dyn Registry>, _) = (Arc::new(Memory::new()), Shifted::new());
    let client = client(&registry, &env);
    let exports = ["Store/a", "Store/b"].map(|name| server(&registry, name, &env));
    let group = client.import_all::<dyn Store>("Store").unwrap();
    assert_eq!(group.multi().number().all().results().count(), 2);
    let (a, b) = (found(&registry, "a").unwrap(), found(&registry, "b").unwrap());
    drop(exports);
    let _kept = [registry.publish(&a).unwrap(), registry.publish(&b).unwrap()];
    env.advance(ENTRY_SECONDS);
    // Changed keys, and the passing of a minute, make the group look again; so does this.
    let _other = registry.publish(&Entry::new(label("Other"), label("a"), a.address, 1)).unwrap();
    assert_eq!(group.len(), 0);
}

#[test]
fn a_registry_full_of_signed_entries_of_a_stranger_costs_an_importer_a_bounded_time() {
    let (registry, env): (Arc<dyn Registry>, _) = (Arc::new(Memory::new()), Shifted::new());
    let _export = server(&registry, "Store/z", &env);
    let genuine = found(&registry, "z").unwrap();
    assert!(registry.withdraw(&label("Store"), &label("z")).unwrap());
    // The stranger's signatures are right, but nobody has granted it the names.
    let stranger = runtime(&registry, Some(Keyring::new(identity(MALLORY))), &env);
    let published: Vec<_> = (0..1000)
        .map(|n| {
            let entry = Entry::new(label("Store"), label(&format!("{n:04}")), genuine.address, 7);
            stranger.registry().publish(&entry).unwrap()
        })
        .collect();
    let _genuine = registry.publish(&genuine).unwrap();
    let client = client(&registry, &env);
    let find = || client.registry().instances(&label("Store"));
    assert!(find().is_err(), "after a thousand that are refused, no other one is checked");
    // What is known is not checked again, so now there is time for the genuine one.
    assert_eq!(find().unwrap().len(), 1);
    drop(published);
}

#[test]
fn two_names_of_a_server_have_each_their_own_grant() {
    let (registry, env): (Arc<dyn Registry>, _) = (Arc::new(Memory::new()), Shifted::new());
    let grant = |scope: &str, serial: u64| {
        let terms = Terms {
            key: identity(SERVER).public(),
            principal: "server".parse().unwrap(),
            rights: Rights::EXPORT,
            scope: scope.parse().unwrap(),
            serial,
            expires: System.unix_seconds() + 86_400,
        };
        identity(AUTHORITY).grant(terms).unwrap()
    };
    let keyring = Keyring::new(identity(SERVER)).with_authority(identity(AUTHORITY).public());
    let keyring = keyring.with_grant(grant("Store/a", 11)).unwrap().with_grant(grant("Store/b", 12)).unwrap();
    let exporter = runtime(&registry, Some(keyring), &env);
    let exports =
        ["Store/a", "Store/b"].map(|name| exporter.export::<dyn Store>(name, Arc::new(Server(7))).unwrap());
    let client = client(&registry, &env);
    for (name, serial) in [("Store/a", 11), ("Store/b", 12), ("Store/a", 11)] {
        let answerer = client.answerer(exports[0].address(), name).unwrap();
        assert_eq!(answerer.server.grant.map(|(_, serial)| serial), Some(serial), "{name}");
    }
}

#[test]
fn an_entry_of_a_key_that_was_revoked_does_not_count() {
    let (registry, env): (Arc<dyn Registry>, _) = (Arc::new(Memory::new()), Shifted::new());
    let _export = server(&registry, "Store/main", &env);
    let keys = Keys::new(keyring(CLIENT, Rights::IMPORT, "*"));
    let client = Runtime::builder().registry(registry.clone()).keys(keys.clone()).build().unwrap();
    assert!(client.import::<dyn Store>("Store/main").is_ok());
    let revoked = Revoked::new([identity(SERVER).public()], []).unwrap();
    let list = identity(AUTHORITY).revoke(1, System.unix_seconds(), 86_400, revoked);
    let before = client.registry().version().unwrap();
    keys.replace(keyring(CLIENT, Rights::IMPORT, "*").with_revocations(list).unwrap());
    assert_ne!(client.registry().version().unwrap(), before, "groups look again");
    assert!(refused(&client, "Store/main").contains("which"), "the key is named");
}

#[test]
fn an_end_without_keys_finds_signed_entries_and_one_with_keys_never_falls_back_to_open() {
    let (registry, env): (Arc<dyn Registry>, _) = (Arc::new(Memory::new()), Shifted::new());
    let _export = server(&registry, "Store/main", &env);
    let without = runtime(&registry, None, &env);
    assert_eq!(without.registry().instances(&label("Store")).unwrap().len(), 1);
    // It finds the server, which speaks with ends that have keys alone.
    let why = without.import::<dyn Store>("Store/main").err().unwrap();
    assert_eq!(why.call_failed().unwrap().kind(), Kind::Mismatch, "{why}");

    let open = without.export::<dyn Store>("Store/open", Arc::new(Server(8))).unwrap();
    assert_eq!(without.import::<dyn Store>("Store/open").unwrap().number().unwrap(), 8);
    let with = client(&registry, &env);
    refused(&with, "Store/open");
    let why = with.import::<dyn Store>(&open.url()).err().unwrap();
    assert_eq!(why.call_failed().unwrap().kind(), Kind::Mismatch, "{why}");
    // Nor does an end that only knows the server's key.
    let line = format!("Store/open {}", identity(SERVER).public()).parse().unwrap();
    let knows = runtime(&registry, Some(Keyring::new(identity(CLIENT)).with_known_server(line)), &env);
    refused(&knows, "Store/open");
    let why = knows.import::<dyn Store>(&open.url()).err().unwrap();
    assert_eq!(why.call_failed().unwrap().kind(), Kind::Mismatch, "{why}");
}

#[test]
fn addresses_in_a_registry_that_people_write_need_no_signature() {
    let (env, names): (_, Arc<dyn Registry>) = (Shifted::new(), Arc::new(Memory::new()));
    let export = server(&names, "Store/main", &env);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("names");
    std::fs::write(&file, format!("Store/main udp://{}\n", export.address())).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(StaticFile::at(file));
    // The handshake alone says who answers.
    assert_eq!(client(&registry, &env).import::<dyn Store>("Store/main").unwrap().number().unwrap(), 7);
}

#[test]
fn runtimes_inside_another_one_use_their_own_keys() {
    let (registry, env): (Arc<dyn Registry>, _) = (Arc::new(Memory::new()), Shifted::new());
    let outer = client(&registry, &env);
    let inner = outer.enter(|| Runtime::builder().build()).unwrap();
    let _export = inner.export::<dyn Store>("Store/open", Arc::new(Server(8))).unwrap();
    assert!(found(&registry, "open").unwrap().proof.is_empty());
    assert_eq!(inner.import::<dyn Store>("Store/open").unwrap().number().unwrap(), 8);
}
