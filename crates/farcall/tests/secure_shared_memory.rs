//! Shared memory between ends that have keys: who gets it, what a policy allows, and what revocation ends.
//!
//! The test program runs itself again as the other processes. No test waits for time to pass.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod common;
#[path = "common/other.rs"]
mod other;
#[path = "common/relay.rs"]
mod relay;

use std::env;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::meeting::hello;
use farcall::key_files::{Identity, Keyring, Policy};
use farcall::memory::{Importers, Memory as _, Refused, Remote, Rights, Segment, Settings};
use farcall::names::Memory;
use farcall::{Export, Keys, Kind, Ran, Runtime};
use farcall_shm::{
    CHALLENGE_BYTES, CallMemory, KEYED_PROOF_BYTES, KeyedHello, Listener, MAX_HELLO_BYTES, Received,
    UnixChannel, Wants,
};
use other::{Other, ROLE, URL};

/// A test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);

#[farcall::interface]
trait Store {
    fn get(&self, key: &str) -> farcall::Result<String>;
    fn put(&self, key: &str, value: &str) -> farcall::Result<()>;
    /// Waits until the call is given up.
    fn wait(&self) -> farcall::Result<()>;
    fn caller(&self) -> farcall::Result<String>;
}

struct Server(Mutex<mpsc::Sender<&'static str>>);

impl Server {
    fn tell(&self, what: &'static str) {
        let _ = self.0.lock().unwrap().send(what);
    }
}

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<String> {
        Ok(key.repeat(2))
    }

    fn put(&self, _: &str, _: &str) -> farcall::Result<()> {
        Ok(())
    }

    fn wait(&self) -> farcall::Result<()> {
        self.tell("waiting");
        farcall::context().cancelled().wait(LONG);
        self.tell("given up");
        Ok(())
    }

    fn caller(&self) -> farcall::Result<String> {
        Ok(farcall::context().principal().map_or_else(String::new, |principal| principal.name.to_string()))
    }
}

/// Returns the kind of a failure, and whether the call ran.
fn why(error: &farcall::Error) -> (Kind, Ran) {
    let failed = error.call_failed().expect("no exception is declared");
    (failed.kind(), failed.ran())
}

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

const SERVER: u8 = 1;
const ALICE: u8 = 2;
const BOB: u8 = 3;
const OTHER_SERVER: u8 = 4;

/// Returns the keys of a server that knows Alice and Bob.
fn servers() -> Keyring {
    let line = |byte, name| format!("{} {name}", identity(byte).public()).parse().unwrap();
    let keyring = Keyring::new(identity(SERVER)).with_authorized_key(line(ALICE, "alice")).unwrap();
    keyring.with_authorized_key(line(BOB, "bob")).unwrap()
}

/// Returns the keys of a server that knows Bob alone.
fn without_alice() -> Keyring {
    let line = format!("{} bob", identity(BOB).public());
    Keyring::new(identity(SERVER)).with_authorized_key(line.parse().unwrap()).unwrap()
}

/// Returns the keys of a client that knows a server.
fn clients(byte: u8, server: u8) -> Keyring {
    let line = format!("* {}", identity(server).public());
    Keyring::new(identity(byte)).with_known_server(line.parse().unwrap())
}

fn runtime(keys: &Keys, shares: bool, address: Option<SocketAddr>) -> Runtime {
    let builder = Runtime::builder().registry(Memory::new()).keys(keys.clone()).shared_memory(shares);
    match address {
        Some(address) => builder.address(address),
        None => builder,
    }
    .build()
    .unwrap()
}

fn client(byte: u8) -> Runtime {
    runtime(&Keys::new(clients(byte, SERVER)), true, None)
}

/// A server with keys, and what its procedures tell.
struct Served {
    keys: Keys,
    runtime: Runtime,
    export: Export,
    told: mpsc::Receiver<&'static str>,
}

impl Served {
    fn new(keyring: Keyring, shares: bool, address: Option<SocketAddr>) -> Served {
        let keys = Keys::new(keyring);
        let runtime = runtime(&keys, shares, address);
        let (tell, told) = mpsc::channel();
        let export = runtime.export::<dyn Store>("Store/main", Arc::new(Server(Mutex::new(tell)))).unwrap();
        Served { keys, runtime, export, told }
    }

    fn import(&self, client: &Runtime) -> farcall::Result<StoreClient> {
        client.import::<dyn Store>(&self.export.url())
    }
}

/// Returns how many calls a client has made through shared memory.
fn calls(client: &Runtime) -> u64 {
    client.stats().links.iter().map(|link| link.calls).sum()
}

#[test]
fn a_process_that_a_test_starts() {
    let Ok(role) = env::var(ROLE) else { return };
    let url = env::var(URL).unwrap();
    match &role[..] {
        "server" => {
            let address = (!url.is_empty()).then(|| url.parse().unwrap());
            let served = Served::new(servers(), true, address);
            println!("at {}", served.export.url());
            served.export.wait().unwrap();
        }
        "client" => {
            let client = client(BOB);
            let store = client.import::<dyn Store>(&url).unwrap();
            println!("is {} by {} calls", store.caller().unwrap(), calls(&client));
        }
        "relay" => {
            let (at, server) = url.split_once(' ').unwrap();
            let listener = Listener::bind(at.parse().unwrap()).unwrap();
            println!("stands between");
            let relay::Relayed { to_server, to_client } = relay::relay(&listener, server.parse().unwrap());
            println!("passed on {to_server} to the server, {to_client} to the client");
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn ends_with_keys_that_meet_call_through_memory_and_the_principal_is_the_same() {
    let served = Served::new(servers(), true, None);
    for (byte, name) in [(ALICE, "alice"), (BOB, "bob")] {
        let by_udp = runtime(&Keys::new(clients(byte, SERVER)), false, None);
        let client = client(byte);
        for (client, shares) in [(&by_udp, false), (&client, true)] {
            let store = served.import(client).unwrap();
            assert_eq!(store.caller().unwrap(), name);
            for len in [0, 1, 5_000, 300_000] {
                let key = "k".repeat(len);
                assert_eq!(store.get(&key).unwrap(), key.repeat(2), "{len}");
                assert_eq!(store.start().get(&key).wait().unwrap(), key.repeat(2), "{len}");
            }
            assert_eq!(calls(client), if shares { 9 } else { 0 });
        }
    }
}

#[test]
fn another_process_proves_its_key_too() {
    let served = Served::new(servers(), true, None);
    let mut other = Other::start(module_path!(), "client", &served.export.url());
    assert_eq!(other.hear("is "), "bob by 1 calls");
}

#[test]
fn who_stands_between_two_ends_and_passes_on_what_they_say_gets_no_memory() {
    // The server listens at all addresses, and has no socket for shared memory at this one.
    let mut server = Other::start(module_path!(), "server", "0.0.0.0:0");
    let port = server.hear("at ").split([':', '/']).nth(4).unwrap().to_owned();
    let [address, relayed] = [1, 2].map(|host| format!("127.0.0.{host}:{port}"));
    let mut relay = Other::start(module_path!(), "relay", &format!("{relayed} {address}"));
    relay.hear("stands between");
    let [alices, bobs] = [ALICE, BOB].map(client);
    let alice = alices.import::<dyn Store>(&format!("udp://{relayed}/Store/main")).unwrap();
    // The server's challenge and the client's hello are passed on. The server refuses the hello.
    assert_eq!(relay.hear("passed on "), "1 to the server, 1 to the client");
    assert_eq!((alice.caller().unwrap(), alice.get("a").unwrap()), ("alice".to_owned(), "aa".to_owned()));
    assert_eq!(calls(&alices), 0);
    // Where nobody stands between them, ends meet.
    let bob = bobs.import::<dyn Store>(&format!("udp://{address}/Store/main")).unwrap();
    assert_eq!((bob.caller().unwrap(), calls(&bobs)), ("bob".to_owned(), 1));
}

#[test]
fn what_overflows_from_memory_goes_by_sealed_datagrams() {
    const CALLS: usize = 300;
    let served = Served::new(servers(), true, None);
    let client = client(ALICE);
    let store = served.import(&client).unwrap();
    let started: Vec<_> = (0..CALLS).map(|_| store.start().caller()).collect();
    started.into_iter().for_each(|started| assert_eq!(started.wait().unwrap(), "alice"));
    let by_memory = calls(&client);
    assert!(by_memory > 0 && by_memory < CALLS as u64, "{by_memory}");
}

#[test]
fn a_policy_decides_as_over_datagrams_also_when_it_changes() {
    let policy = |rule: &str| servers().with_policy(Policy::new().with_rule(rule).unwrap());
    let served = Served::new(policy("allow alice Store/main get"), true, None);
    let by_udp = runtime(&Keys::new(clients(ALICE, SERVER)), false, None);
    let client = client(ALICE);
    let stores = [served.import(&by_udp).unwrap(), served.import(&client).unwrap()];
    for store in &stores {
        assert_eq!(store.get("a").unwrap(), "aa");
        let refused = store.put("a", "b").unwrap_err();
        assert_eq!(why(&refused), (Kind::NotPermitted, Ran::No), "{refused}");
    }
    served.keys.replace(policy("allow alice Store/main put"));
    for store in &stores {
        store.put("a", "b").unwrap();
        let refused = store.get("a").unwrap_err();
        assert_eq!(why(&refused), (Kind::NotPermitted, Ran::No), "{refused}");
    }
    assert_eq!(calls(&client), 4);
}

#[test]
fn a_clients_key_that_is_taken_away_ends_its_calls_through_memory() {
    let served = Served::new(servers(), true, None);
    let (alices, bobs) = (client(ALICE), client(BOB));
    let (alice, bob) = (served.import(&alices).unwrap(), served.import(&bobs).unwrap());
    assert_eq!((alice.get("a").unwrap(), bob.get("b").unwrap()), ("aa".to_owned(), "bb".to_owned()));
    let started = alice.start().wait();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| alice.wait());
        for _ in 0..2 {
            assert_eq!(served.told.recv().unwrap(), "waiting");
        }
        assert_eq!(calls(&alices), 3);
        served.keys.replace(without_alice());
        for _ in 0..2 {
            assert_eq!(served.told.recv().unwrap(), "given up");
        }
        for ended in [waiting.join().unwrap(), started.wait()] {
            assert_eq!(why(&ended.unwrap_err()).1, Ran::Maybe);
        }
    });
    let refused = alice.get("a").unwrap_err();
    assert_eq!(why(&refused), (Kind::NotPermitted, Ran::No), "{refused}");
    assert_eq!(bob.get("b").unwrap(), "bb");
    assert_eq!(calls(&bobs), 2, "others go on through memory");
    // Once the key is accepted again, the client meets the server again.
    served.keys.replace(servers());
    assert_eq!(alice.get("a").unwrap(), "aa");
    assert_eq!(calls(&alices), 1);
}

#[test]
fn a_servers_key_that_is_taken_away_ends_calls_through_memory_and_no_further_one_is_sent() {
    let served = Served::new(servers(), true, None);
    let keys = Keys::new(clients(ALICE, SERVER));
    let client = runtime(&keys, true, None);
    let store = served.import(&client).unwrap();
    let started = store.start().wait();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.wait());
        for _ in 0..2 {
            assert_eq!(served.told.recv().unwrap(), "waiting");
        }
        keys.replace(clients(ALICE, OTHER_SERVER));
        for ended in [waiting.join().unwrap(), started.wait()] {
            let ended = ended.unwrap_err();
            assert_eq!(why(&ended), (Kind::NotPermitted, Ran::Maybe), "{ended}");
        }
    });
    let refused = store.get("a").unwrap_err();
    assert_eq!(why(&refused), (Kind::NotPermitted, Ran::No), "{refused}");
    keys.replace(clients(ALICE, SERVER));
    assert_eq!(store.get("a").unwrap(), "aa");
    assert_eq!(calls(&client), 1, "they have met again");
}

#[test]
fn a_server_that_comes_again_is_met_again() {
    let mut first = Other::start(module_path!(), "server", "");
    let url = first.hear("at ");
    let address = url.split('/').nth(2).unwrap().to_owned();
    let client = client(ALICE);
    let store = client.import::<dyn Store>(&url).unwrap();
    assert_eq!((store.caller().unwrap(), calls(&client)), ("alice".to_owned(), 1));
    first.kill();
    let mut second = Other::start(module_path!(), "server", &address);
    assert_eq!(second.hear("at "), url);
    assert_eq!((store.caller().unwrap(), calls(&client)), ("alice".to_owned(), 1));
}

/// Connects to a server by hand, and receives its challenge.
fn challenged(address: SocketAddr) -> (UnixChannel, [u8; CHALLENGE_BYTES]) {
    let (wire, mut challenge) = (UnixChannel::connect(address).unwrap(), [0; CHALLENGE_BYTES]);
    wire.wait(LONG);
    assert_eq!(wire.receive(&mut challenge), Received::Message(CHALLENGE_BYTES));
    (wire, challenge)
}

/// Returns whether a server refuses an importer that says this, and passes it nothing.
fn is_refused(wire: &UnixChannel, says: &[u8], wants: Wants) -> bool {
    let (_rings, file) = CallMemory::create_arguments().unwrap();
    assert!(wire.send(says, (wants == Wants::Calls).then(|| file.as_fd())));
    wire.wait(LONG);
    wire.receive(&mut [0; 64]) == Received::Gone
}

#[test]
fn who_has_no_secrets_of_a_conversation_gets_no_memory() {
    let served = Served::new(servers(), true, None);
    let segment = served.runtime.export_segment("Words", Settings::new(4096).anyone(Rights::ALL)).unwrap();
    let address = served.export.address();
    // A genuine hello for another challenge, which was said to another server.
    let (said, _) = heard(&served, ALICE);
    let generation = segment.generation().unwrap();
    for wants in [Wants::Calls, Wants::Segment(generation)] {
        let plain = hello(1, wants);
        let ticket = KeyedHello::from_bytes(&said).unwrap().ticket;
        let guessed = [&[7; KEYED_PROOF_BYTES][..], &KeyedHello::body_of(ticket, &hello_of(&plain))].concat();
        for says in [&plain[..], &guessed, &said, &said[..100], b""] {
            let (wire, _) = challenged(address);
            assert!(is_refused(&wire, says, wants), "{} bytes", says.len());
        }
    }
    // Each connection has a challenge of its own, so no proof comes again.
    assert_ne!(challenged(address).1, challenged(address).1);
    // The honest are served meanwhile.
    let client = client(ALICE);
    let store = served.import(&client).unwrap();
    assert_eq!((store.caller().unwrap(), calls(&client)), ("alice".to_owned(), 1));
}

fn hello_of(bytes: &[u8]) -> farcall_shm::Hello {
    farcall_shm::Hello::from_bytes(bytes).unwrap()
}

/// Takes the name of a server that has keys and shares no memory, and meets one client there as that server
/// would, without its secrets. Returns what the client says, and the client, which has called the server
/// meanwhile.
fn heard(served: &Served, byte: u8) -> (Vec<u8>, Runtime) {
    let alone = Served::new(servers(), false, None);
    let listener = Listener::bind(alone.export.address()).unwrap();
    let client = client(byte);
    let said = std::thread::scope(|scope| {
        let impostor = scope.spawn(|| impersonate(&listener, &[0; KEYED_PROOF_BYTES]));
        let store = alone.import(&client).unwrap();
        assert_eq!(store.get("a").unwrap(), "aa");
        assert_eq!(calls(&client), 0, "it is called through memory");
        impostor.join().unwrap()
    });
    assert_ne!(alone.export.address(), served.export.address());
    (said, client)
}

/// Meets a client in the place of a server with keys, with this answer. Returns what the client says.
fn impersonate(listener: &Listener, answer: &[u8]) -> Vec<u8> {
    let wire = loop {
        match listener.accept() {
            Ok(Some((wire, _))) => break wire,
            _ => std::thread::yield_now(),
        }
    };
    assert!(wire.send(&[5; CHALLENGE_BYTES], None));
    wire.wait(LONG);
    let mut says = vec![0; MAX_HELLO_BYTES];
    let (len, arguments) = wire.receive_file(&mut says).expect("no hello");
    let (_page, file) = CallMemory::create(&arguments).unwrap();
    wire.send(answer, Some(file.as_fd()));
    // The client leaves.
    wire.wait(LONG);
    assert_eq!(wire.receive(&mut [0; 8]), Received::Gone);
    says.truncate(len);
    says
}

#[test]
fn who_has_taken_a_servers_name_gets_no_calls_of_clients_with_keys() {
    let served = Served::new(servers(), true, None);
    let (_, client) = heard(&served, ALICE);
    let told = client.stats().no_shared_memory.expect("there is a reason");
    assert!(told.contains("another process"), "{told}");
    // An impostor that sends no challenge, or another one, hears nothing.
    let alone = Served::new(servers(), false, None);
    for challenge in [&b""[..], &[5; CHALLENGE_BYTES - 1], &[5; CHALLENGE_BYTES + 1]] {
        let listener = Listener::bind(alone.export.address()).unwrap();
        let client = self::client(ALICE);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let wire = loop {
                    match listener.accept() {
                        Ok(Some((wire, _))) => break wire,
                        _ => std::thread::yield_now(),
                    }
                };
                wire.send(challenge, None);
                wire.wait(LONG);
                assert_eq!(wire.receive(&mut [0; 8]), Received::Gone);
            });
            let store = alone.import(&client).unwrap();
            assert_eq!((store.caller().unwrap(), calls(&client)), ("alice".to_owned(), 0));
        });
    }
}

#[test]
fn a_client_without_keys_meets_nobody_that_has_keys() {
    let served = Served::new(servers(), true, None);
    let open = Runtime::builder().registry(Memory::new()).shared_memory(true).build().unwrap();
    for url in [served.export.url(), served.export.url().replace("udp:", "shm:")] {
        let refused = open.import::<dyn Store>(&url).unwrap_err();
        assert_eq!(why(&refused), (Kind::Mismatch, Ran::No), "{refused}");
    }
    // And one with keys says nothing to a server without, however it is called.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = Listener::bind(socket.local_addr().unwrap()).unwrap();
    let export = open.export::<dyn Store>("Store/main", Arc::new(Server(Mutex::new(mpsc::channel().0))));
    let refused = client(ALICE).import::<dyn Store>(&export.unwrap().url()).unwrap_err();
    assert_eq!(why(&refused), (Kind::Mismatch, Ran::No), "{refused}");
    assert!(matches!(listener.accept(), Ok(None)));
}

/// A segment of a server with keys.
fn segment(served: &Served) -> Segment {
    served.runtime.export_segment("Words", Settings::new(4096).anyone(Rights::ALL)).unwrap()
}

/// Returns how many accesses and calls the server has executed.
fn executed(served: &Served) -> u64 {
    let exports = served.runtime.stats().exports;
    let results = |export: &farcall::stats::Export| export.procedures.iter().map(|p| p.results).sum::<u64>();
    exports.iter().map(|export| results(export) + export.accesses).sum()
}

/// Returns whether accesses of an importer cost the exporter nothing.
fn is_mapped(served: &Served, remote: &Remote) -> bool {
    let before = executed(served);
    remote.load(0).unwrap();
    executed(served) == before
}

/// Returns why an access failed, if it did.
fn refusal<T: std::fmt::Debug>(outcome: farcall::memory::Result<T>) -> Option<(Kind, Ran)> {
    let failed = outcome.err()?;
    let failed = failed.call_failed().unwrap_or_else(|| panic!("{failed}"));
    Some((failed.kind(), failed.ran()))
}

const REFUSED: Option<(Kind, Ran)> = Some((Kind::NotPermitted, Ran::No));

#[test]
fn a_segment_is_mapped_by_who_has_proven_its_key_until_the_key_is_taken_away() {
    let served = Served::new(servers(), true, None);
    let segment = segment(&served);
    let alice = client(ALICE).import_segment(&segment.url()).unwrap();
    let bob = client(BOB).import_segment(&segment.url()).unwrap();
    segment.store(8, 42).unwrap();
    assert_eq!((alice.load(8).unwrap(), bob.load(8).unwrap()), (42, 42));
    alice.store(8, 43).unwrap();
    assert_eq!((segment.load(8).unwrap(), bob.load(8).unwrap()), (43, 43));
    assert!(is_mapped(&served, &alice) && is_mapped(&served, &bob));
    served.keys.replace(without_alice());
    // The memory moves within a quarter of a second; the test waits for that, however long it takes.
    while alice.load(8).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(refusal(alice.store(8, 44)), REFUSED);
    assert_eq!(refusal(alice.load(8)), REFUSED);
    assert_eq!((segment.load(8).unwrap(), bob.load(8).unwrap()), (43, 43), "others lose nothing");
    assert!(!is_mapped(&served, &bob), "everybody goes on by calls");
    segment.export_again();
    let bob = client(BOB).import_segment(&segment.url()).unwrap();
    assert!(is_mapped(&served, &bob));
    assert!(client(ALICE).import_segment(&segment.url()).is_err());
}

#[test]
fn memory_moves_also_away_from_who_has_left_and_may_have_kept_the_mapping() {
    let served = Served::new(servers(), true, None);
    let segment = segment(&served);
    let bob = client(BOB).import_segment(&segment.url()).unwrap();
    let alice = client(ALICE).import_segment(&segment.url()).unwrap();
    assert!(is_mapped(&served, &alice) && is_mapped(&served, &bob));
    drop(alice);
    served.keys.replace(without_alice());
    while is_mapped(&served, &bob) {
        std::thread::yield_now();
    }
    assert_eq!(bob.load(8).unwrap(), 0);
}

#[test]
fn a_policy_decides_who_maps_a_segment_also_when_it_changes() {
    let policy = |may: &str| {
        let policy = Policy::new().with_rule(&format!("allow alice * {may}")).unwrap();
        servers().with_policy(policy.with_rule("allow bob *").unwrap())
    };
    let served = Served::new(policy("@memory:read"), true, None);
    let segment = segment(&served);
    // Who may only read does not map what can be written. It reads by calls.
    let alice = client(ALICE).import_segment(&segment.url()).unwrap();
    assert_eq!(refusal(alice.store(8, 1)), REFUSED);
    assert_eq!(alice.load(8).unwrap(), 0);
    assert!(!is_mapped(&served, &alice));
    served.keys.replace(policy("@memory"));
    let alice = client(ALICE).import_segment(&segment.url()).unwrap();
    alice.store(8, 2).unwrap();
    assert!(is_mapped(&served, &alice));
    served.keys.replace(policy("@memory:read"));
    while alice.store(8, 3).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(refusal(alice.store(8, 4)), REFUSED);
    assert_eq!((alice.load(8).unwrap(), segment.load(8).unwrap()), (3, 3));
}

#[test]
fn a_segment_of_a_server_whose_key_is_taken_away_is_accessed_no_more() {
    let served = Served::new(servers(), true, None);
    let segment = segment(&served);
    let keys = Keys::new(clients(ALICE, SERVER));
    let remote = runtime(&keys, true, None).import_segment(&segment.url()).unwrap();
    assert!(is_mapped(&served, &remote));
    keys.replace(clients(ALICE, OTHER_SERVER));
    while remote.load(8).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(refusal(remote.store(8, 1)), REFUSED);
    assert_eq!(segment.load(8).unwrap(), 0);
}

/// Returns the refusal that an access to a segment met.
fn refused<T: std::fmt::Debug>(outcome: farcall::memory::Result<T>) -> Refused {
    match outcome {
        Err(farcall::Error::Declared(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rights_are_given_to_a_principal_and_taken_away_from_it_by_whatever_carrier_it_comes() {
    let served = Served::new(servers(), true, None);
    let settings = Settings::new(4096).mappable(Rights::READ);
    let segment = served.runtime.export_segment("Words", settings).unwrap();
    segment.grant(Importers::Principal("alice"), Rights::READ).unwrap();
    let elsewhere = |byte| runtime(&Keys::new(clients(byte, SERVER)), false, None);
    let import = |client: Runtime| client.import_segment(&segment.url()).unwrap();
    let (mapped, sent) = (import(client(ALICE)), import(elsewhere(ALICE)));
    assert_eq!((mapped.rights(), sent.rights()), (Rights::READ, Rights::READ));
    segment.store(8, 42).unwrap();
    assert!(is_mapped(&served, &mapped) && !is_mapped(&served, &sent));
    assert_eq!(
        (mapped.load(8), sent.load(8), sent.start_read(8, 8).wait().unwrap()[0]),
        (Ok(42), Ok(42), 42)
    );
    let mut all = [0; 4096];
    sent.read(0, &mut all).unwrap();
    assert_eq!(all[8], 42);
    for bob in [import(client(BOB)), import(elsewhere(BOB))] {
        assert_eq!((bob.rights(), refused(bob.load(8))), (Rights::NONE, Refused::NotPermitted));
    }

    segment.withdraw(Importers::Principal("alice"));
    segment.store(8, 43).unwrap();
    assert_eq!(
        (refused(mapped.load(8)), refused(sent.load(8))),
        (Refused::NotPermitted, Refused::NotPermitted)
    );
    assert_eq!(refused(sent.read(0, &mut all)), Refused::NotPermitted);
    // What anyone may do, Alice may do too, whatever is withdrawn from her.
    segment.grant(Importers::Anyone, Rights::READ).unwrap();
    segment.withdraw(Importers::Principal("alice"));
    assert_eq!((mapped.load(8), sent.load(8)), (Ok(43), Ok(43)));
    for nobody in ["", "two words", "*"] {
        let why = segment.grant(Importers::Principal(nobody), Rights::READ).unwrap_err();
        assert_eq!(self::why(&why), (Kind::Local, Ran::No), "{nobody:?}: {why}");
    }
}

#[test]
fn writes_of_one_principal_are_inhibited_and_those_of_others_are_not() {
    let served = Served::new(servers(), true, None);
    let segment = segment(&served);
    let [alice, bob] = [ALICE, BOB].map(|byte| client(byte).import_segment(&segment.url()).unwrap());
    assert!(is_mapped(&served, &alice) && is_mapped(&served, &bob));
    segment.inhibit_writes_of(Importers::Principal("alice"), true).unwrap();
    assert_eq!(refused(alice.store(8, 1)), Refused::Inhibited);
    assert_eq!(refused(alice.compare_and_swap(8, 0, 1)), Refused::Inhibited);
    bob.store(8, 2).unwrap();
    assert_eq!(alice.load(8), Ok(2));
    // Bob maps the memory again, and Alice does not.
    segment.export_again();
    let [alice, bob] = [ALICE, BOB].map(|byte| client(byte).import_segment(&segment.url()).unwrap());
    assert!(!is_mapped(&served, &alice) && is_mapped(&served, &bob));
    assert_eq!((alice.rights(), refused(alice.store(8, 1))), (Rights::ALL, Refused::Inhibited));
    segment.inhibit_writes_of(Importers::Principal("alice"), false).unwrap();
    alice.store(8, 3).unwrap();
    assert_eq!(bob.load(8), Ok(3));
}

#[test]
fn each_principal_posts_in_a_stream_of_its_own_by_whatever_carrier_it_comes() {
    let served = Served::new(servers(), true, None);
    let segment = segment(&served);
    let elsewhere = |byte| runtime(&Keys::new(clients(byte, SERVER)), false, None);
    let clients = [client(ALICE), elsewhere(ALICE), client(BOB), elsewhere(BOB)];
    let imports = clients.map(|client| client.import_segment(&segment.url()).unwrap());
    // More posts than an importer keeps, so that it also asks between them.
    for number in 1..=200_u64 {
        for (place, import) in (0..).zip(&imports) {
            import.post(8 * place, &number.to_le_bytes()).unwrap();
        }
    }
    for (place, import) in (0..).zip(&imports) {
        import.flush().unwrap();
        assert_eq!(segment.load(8 * place), Ok(200));
    }
}
