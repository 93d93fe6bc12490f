//! Calls between ends that have keys: who is let in, who calls, what a policy allows, and what revocation ends.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farcall::dynamic::{Conversations, Protection, conversations};
use farcall::key_files::{Identity, Keyring, Policy};
use farcall::names::Memory;

use farcall::{Keys, Kind, Level, Ran, Runtime};
use farcall_proto::key_log::{KeyLog, dump_with};

#[farcall::interface]
trait Store {
    fn get(&self, key: &str) -> farcall::Result<String>;
    fn put(&self, key: &str, value: &str) -> farcall::Result<()>;
    /// Waits until the call is given up.
    fn wait(&self) -> farcall::Result<()>;
    fn caller(&self) -> farcall::Result<String>;
    #[oneway]
    fn note(&self, word: &str) -> farcall::Result<()>;
}

struct Server(mpsc::Sender<String>);

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<String> {
        Ok(key.repeat(2))
    }

    fn put(&self, _: &str, _: &str) -> farcall::Result<()> {
        Ok(())
    }

    fn wait(&self) -> farcall::Result<()> {
        let _ = self.0.send("waiting".to_owned());
        farcall::context().cancelled().wait(Duration::from_secs(60));
        let _ = self.0.send("given up".to_owned());
        Ok(())
    }

    fn caller(&self) -> farcall::Result<String> {
        Ok(farcall::context().principal().map_or_else(String::new, |principal| principal.name.to_string()))
    }

    fn note(&self, word: &str) -> farcall::Result<()> {
        let _ = self.0.send(word.to_owned());
        Ok(())
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
const MALLORY: u8 = 3;
const MONITOR: u8 = 4;

/// Returns the keys of a server that knows Alice.
fn servers() -> Keyring {
    let line = format!("{} alice", identity(ALICE).public());
    Keyring::new(identity(SERVER)).with_authorized_key(line.parse().unwrap()).unwrap()
}

/// Returns the keys of a client that knows the server.
fn clients(byte: u8, server: u8) -> Keyring {
    let line = format!("Store {}", identity(server).public());
    Keyring::new(identity(byte)).with_known_server(line.parse().unwrap())
}

struct Pair {
    names: Arc<Memory>,
    keys: Keys,
    export: farcall::Export,
    told: mpsc::Receiver<String>,
}

fn runtime(names: &Arc<Memory>, keys: Option<Keys>, level: Level) -> Runtime {
    let builder = Runtime::builder().registry(names.clone()).level(level).patience(Duration::from_secs(3));
    // All goes by datagrams. `secure_shared_memory` has what goes through memory.
    let builder = builder.shared_memory(false);
    match keys {
        Some(keys) => builder.keys(keys),
        None => builder,
    }
    .build()
    .unwrap()
}

impl Pair {
    fn new(keyring: Keyring, level: Level) -> Pair {
        let (names, keys) = (Arc::new(Memory::new()), Keys::new(keyring));
        let (tell, told) = mpsc::channel();
        let server = runtime(&names, Some(keys.clone()), level);
        let export = server.export::<dyn Store>("Store/main", Arc::new(Server(tell))).unwrap();
        Pair { names, keys, export, told }
    }

    fn client(&self, keyring: Keyring) -> farcall::Result<StoreClient> {
        runtime(&self.names, Some(Keys::new(keyring)), Level::Secure).import::<dyn Store>("Store/main")
    }
}

#[test]
fn both_ends_know_one_another_and_calls_of_all_lengths_pass() {
    for level in [Level::Secure, Level::Authenticated] {
        let pair = Pair::new(servers(), level);
        let keys = Keys::new(clients(ALICE, SERVER));
        let client = runtime(&pair.names, Some(keys), level).import::<dyn Store>("Store/main").unwrap();
        assert_eq!(client.caller().unwrap(), "alice");
        for len in [0, 1, 1_000, 1_150, 5_000, 300_000] {
            let key = "k".repeat(len);
            assert_eq!(client.get(&key).unwrap(), key.repeat(2), "{len}");
        }
        client.note("one way").unwrap();
        assert_eq!(pair.told.recv().unwrap(), "one way");
        let started: Vec<_> = (0..200).map(|n| client.start().get(&n.to_string())).collect();
        for (n, started) in started.into_iter().enumerate() {
            assert_eq!(started.wait().unwrap(), n.to_string().repeat(2));
        }
    }
}

#[test]
fn who_is_not_known_is_refused_and_told_why() {
    let pair = Pair::new(servers(), Level::Secure);
    let refused = |client: farcall::Result<StoreClient>| {
        let Err(why) = client else { panic!("it is refused") };
        assert_eq!(self::why(&why), (Kind::NotPermitted, Ran::No), "{why}");
        why.to_string()
    };
    refused(pair.client(clients(MALLORY, SERVER)));
    let text = refused(pair.client(clients(ALICE, MALLORY)));
    let (expected, came) = (identity(MALLORY).public().to_string(), identity(SERVER).public().to_string());
    assert!(text.contains(&expected) || text.contains(&came), "{text}");
    // Nobody falls back to clear text.
    let mismatch = |client: farcall::Result<StoreClient>, told: &str| {
        let Err(why) = client else { panic!("it is refused") };
        assert_eq!(self::why(&why), (Kind::Mismatch, Ran::No), "{why}");
        assert!(why.to_string().contains(told), "{why}");
    };
    let without = runtime(&pair.names, None, Level::Secure).import::<dyn Store>("Store/main");
    mismatch(without, "give this client keys");
    let names = Arc::new(Memory::new());
    let open = runtime(&names, None, Level::Secure);
    let export = open.export::<dyn Store>("Store/main", Arc::new(Server(mpsc::channel().0))).unwrap();
    let keys = Some(Keys::new(clients(ALICE, SERVER)));
    let with = runtime(&names, keys, Level::Secure).import::<dyn Store>(&export.url());
    mismatch(with, "the server has no keys");
}

#[test]
fn a_policy_decides_about_procedures_also_of_one_way_calls() {
    let policy = Policy::new().with_rule("allow alice Store/main get,caller").unwrap();
    let pair = Pair::new(servers().with_policy(policy), Level::Secure);
    let client = pair.client(clients(ALICE, SERVER)).unwrap();
    assert_eq!(client.get("a").unwrap(), "aa");
    let why = client.put("a", "b").unwrap_err();
    assert_eq!(self::why(&why), (Kind::NotPermitted, Ran::No), "{why}");
    client.note("not allowed").unwrap();
    // A call comes after the one-way calls that were made before it.
    assert_eq!(client.get("b").unwrap(), "bb");
    let policy = Policy::new().with_rule("allow alice *").unwrap();
    pair.keys.replace(servers().with_policy(policy));
    client.put("a", "b").unwrap();
    client.note("allowed").unwrap();
    assert_eq!(pair.told.recv().unwrap(), "allowed");
}

#[test]
fn a_key_that_is_taken_away_ends_its_running_calls_and_the_next_one_is_refused() {
    let pair = Pair::new(servers(), Level::Secure);
    let client = pair.client(clients(ALICE, SERVER)).unwrap();
    let waiting = client.start().wait();
    assert_eq!(pair.told.recv().unwrap(), "waiting");
    pair.keys.replace(Keyring::new(identity(SERVER)));
    assert_eq!(pair.told.recv().unwrap(), "given up");
    let ended = waiting.wait().unwrap_err();
    assert_eq!(self::why(&ended).1, Ran::Maybe, "{ended}");
    let why = client.get("a").unwrap_err();
    assert_eq!(self::why(&why), (Kind::NotPermitted, Ran::No), "{why}");
}

#[test]
fn calls_of_a_server_whose_key_is_taken_away_end_and_the_next_one_is_not_sent() {
    let pair = Pair::new(servers(), Level::Secure);
    let keys = Keys::new(clients(ALICE, SERVER));
    let client =
        runtime(&pair.names, Some(keys.clone()), Level::Secure).import::<dyn Store>("Store/main").unwrap();
    let started = client.start().wait();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.wait());
        for _ in 0..2 {
            assert_eq!(pair.told.recv().unwrap(), "waiting");
        }
        keys.replace(clients(ALICE, MALLORY));
        for ended in [waiting.join().unwrap(), started.wait()] {
            let why = ended.unwrap_err();
            assert_eq!(self::why(&why), (Kind::NotPermitted, Ran::Maybe), "{why}");
        }
    });
    let why = client.get("a").unwrap_err();
    assert_eq!(self::why(&why), (Kind::NotPermitted, Ran::No), "{why}");
    // Once the key is accepted again, the binding works again.
    keys.replace(clients(ALICE, SERVER));
    assert_eq!(client.get("a").unwrap(), "aa");
}

/// Passes datagrams between a client and a server until an empty one comes, and returns them.
fn relay(socket: &UdpSocket, server: SocketAddr) -> Vec<Vec<u8>> {
    let (mut client, mut all, mut buffer) = (server, Vec::new(), vec![0; 65_536]);
    loop {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        if len == 0 {
            return all;
        }
        if from != server {
            client = from;
        }
        socket.send_to(&buffer[..len], if from == server { client } else { server }).unwrap();
        all.push(buffer[..len].to_vec());
    }
}

#[test]
fn a_log_of_secrets_that_a_program_asks_for_lets_captured_datagrams_be_read() {
    let pair = Pair::new(servers(), Level::Secure);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secrets");
    let keys = Keys::new(clients(ALICE, SERVER));
    keys.log_secrets(&path).unwrap();
    assert!(keys.log_secrets(&path).is_err(), "a log never takes the place of another");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let datagrams = std::thread::scope(|scope| {
        let relaying = scope.spawn(|| relay(&socket, pair.export.address()));
        let name = format!("udp://{address}/Store");
        let client = runtime(&pair.names, Some(keys), Level::Secure).import::<dyn Store>(&name).unwrap();
        assert_eq!(client.get("secret").unwrap(), "secretsecret");
        socket.send_to(&[], address).unwrap();
        relaying.join().unwrap()
    });
    let mut log = KeyLog::default();
    std::fs::read_to_string(&path).unwrap().lines().for_each(|line| log.add(line).unwrap());
    assert!(datagrams.iter().all(|datagram| !datagram.windows(6).any(|part| part == b"secret")));
    let read: Vec<String> =
        datagrams.iter().map(|datagram| dump_with(datagram, &mut log).unwrap().to_string()).collect();
    assert!(read.iter().any(|text| text.contains("CALL ")), "{read:#?}");
    assert!(read.iter().any(|text| text.contains("RESULT ")), "{read:#?}");
}

#[test]
fn a_client_that_exports_nothing_reads_changed_key_files_too() {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let (new, path) = (directory.path().join("new"), directory.path().join(file));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::rename(new, path).unwrap();
    };
    write("identity", &identity(ALICE).to_text());
    write("known_servers", &format!("Store {}\n", identity(MALLORY).public()));
    let pair = Pair::new(servers(), Level::Secure);
    let client = runtime(&pair.names, Some(Keys::open(directory.path()).unwrap()), Level::Secure);
    assert!(client.import::<dyn Store>("Store/main").is_err(), "the file names another key");
    write("known_servers", &format!("Store {}\n", identity(SERVER).public()));
    // The file is read again within a quarter of a second; the test waits for that, however long it takes.
    while client.import::<dyn Store>("Store/main").is_err() {
        std::thread::yield_now();
    }
}

/// Returns the keys of a server that knows Alice, and somebody who looks after it.
fn looked_after() -> Keyring {
    let line = format!("{} monitor", identity(MONITOR).public());
    servers().with_authorized_key(line.parse().unwrap()).unwrap()
}

/// Returns the policy that lets everybody do everything, also see the conversations of others.
fn everything() -> Policy {
    Policy::new().with_rule("allow * *").unwrap()
}

/// Asks a server for its conversations, with keys of one's own.
fn ask(pair: &Pair, byte: u8) -> farcall::Result<Conversations> {
    let line = format!("* {}", identity(SERVER).public());
    let keyring = Keyring::new(identity(byte)).with_known_server(line.parse().unwrap());
    let runtime = runtime(&pair.names, Some(Keys::new(keyring)), Level::Authenticated);
    conversations(&runtime, pair.export.address(), Duration::from_secs(60))
}

#[test]
fn a_server_shows_who_converses_with_it_and_how_old_the_keys_are() {
    for (level, protection) in
        [(Level::Secure, Protection::Secure), (Level::Authenticated, Protection::Authenticated)]
    {
        let began = Instant::now();
        let pair = Pair::new(looked_after().with_policy(everything()), level);
        let keys = Keys::new(clients(ALICE, SERVER));
        let alice = runtime(&pair.names, Some(keys), level).import::<dyn Store>("Store/main").unwrap();
        let waiting = alice.start().wait();
        assert_eq!(pair.told.recv().unwrap(), "waiting");
        let shown = ask(&pair, MONITOR).unwrap();
        assert_eq!((shown.level, shown.untold, shown.conversations.len()), (protection, 0, 2));
        let own = shown.identity.expect("the server has keys");
        assert_eq!((&own.key, own.principals.len()), (identity(SERVER).public().as_bytes(), 0));
        for (who, byte) in [("alice", ALICE), ("monitor", MONITOR)] {
            let one = shown.conversations.iter().find(|one| one.principal == who).unwrap();
            assert_eq!(&one.key, identity(byte).public().as_bytes());
            assert!(one.client.ip().is_loopback());
            assert_eq!((one.level, one.phase, one.running), (protection, 0, 1), "{one:?}");
            assert!(["AES-128-GCM", "ChaCha20-Poly1305"].contains(&&*one.suite), "{one:?}");
            assert!(one.handshake <= began.elapsed() + Duration::from_secs(1), "{one:?}");
        }
        drop(waiting);
    }
}

#[test]
fn a_policy_decides_who_may_see_a_server_s_conversations() {
    let policy = Policy::new().with_rule("allow alice Store").unwrap();
    let policy = policy.with_rule("allow monitor @counters").unwrap();
    let pair = Pair::new(looked_after().with_policy(policy), Level::Secure);
    pair.client(clients(ALICE, SERVER)).unwrap().get("a").unwrap();
    let why = ask(&pair, ALICE).unwrap_err();
    assert_eq!(self::why(&why), (Kind::NotPermitted, Ran::No), "{why}");
    assert!(why.to_string().contains("the policy does not let alice read the server's counters"), "{why}");
    let shown = ask(&pair, MONITOR).unwrap();
    assert!(shown.conversations.iter().any(|one| one.principal == "alice"), "{shown:?}");
    // With a policy that says nothing about it, nobody may.
    pair.keys.replace(looked_after().with_policy(Policy::new().with_rule("allow alice Store").unwrap()));
    let why = ask(&pair, MONITOR).unwrap_err();
    assert_eq!(self::why(&why), (Kind::NotPermitted, Ran::No), "{why}");
}

#[test]
fn without_a_policy_a_client_sees_its_own_conversations_only() {
    let pair = Pair::new(looked_after(), Level::Secure);
    let clients: Vec<StoreClient> = (0..70).map(|_| pair.client(clients(ALICE, SERVER)).unwrap()).collect();
    clients.iter().for_each(|client| assert_eq!(client.get("a").unwrap(), "aa"));
    let shown = ask(&pair, MONITOR).unwrap();
    let seen: Vec<&str> = shown.conversations.iter().map(|one| &*one.principal).collect();
    assert_eq!((seen, shown.untold), (vec!["monitor"], 0));
    let own = ask(&pair, ALICE).unwrap();
    assert_eq!((own.conversations.len(), own.untold), (64, 70 + 1 - 64));
    assert!(own.conversations.iter().all(|one| one.principal == "alice"), "{own:?}");
    // The decision follows the keys.
    pair.keys.replace(looked_after().with_policy(everything()));
    assert!(ask(&pair, MONITOR).unwrap().untold > 0);
    pair.keys.replace(looked_after());
    assert!(ask(&pair, MONITOR).unwrap().conversations.iter().all(|one| one.principal == "monitor"));
}

#[test]
fn a_key_that_is_removed_beside_a_typo_is_refused_and_the_typo_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let (path, new) = (directory.path().join(name), directory.path().join("new"));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::rename(new, path).unwrap();
    };
    let line = |who, name: &str| format!("{} {name}\n", identity(who).public());
    write("identity", &identity(SERVER).to_text());
    write("authorized_keys", &(line(ALICE, "alice") + &line(MONITOR, "monitor")));
    write("policy", "allow * *\n");
    let names = Arc::new(Memory::new());
    let server = runtime(&names, Some(Keys::open(directory.path()).unwrap()), Level::Secure);
    let (tell, _told) = mpsc::channel();
    let export = server.export::<dyn Store>("Store/main", Arc::new(Server(tell))).unwrap();
    let address = export.address();
    let import = |who| {
        let keys = Keys::new(clients(who, SERVER));
        runtime(&names, Some(keys), Level::Secure).import::<dyn Store>("Store/main")
    };
    assert_eq!(import(ALICE).unwrap().get("a").unwrap(), "aa");
    // Whoever writes the second file has not noticed the typo in the first one.
    write("policy", "allow * *\nalow alice Store\n");
    write("authorized_keys", &line(MONITOR, "monitor"));
    while import(ALICE).is_ok() {
        std::thread::yield_now();
    }
    let monitor = Keyring::new(identity(MONITOR));
    let monitor = monitor.with_known_server(format!("* {}", identity(SERVER).public()).parse().unwrap());
    let monitor = runtime(&names, Some(Keys::new(monitor)), Level::Secure);
    let ask = || conversations(&monitor, address, Duration::from_secs(60)).unwrap().identity.unwrap().faults;
    assert!(ask()[0].contains("policy, line 2, column 1: expected (allow | deny)"), "{:?}", ask());
    write("policy", "allow * *\n");
    while !ask().is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn a_server_shows_its_64_busiest_conversations() {
    let pair = Pair::new(looked_after().with_policy(everything()), Level::Secure);
    let clients: Vec<StoreClient> = (0..66).map(|_| pair.client(clients(ALICE, SERVER)).unwrap()).collect();
    clients.iter().for_each(|client| assert_eq!(client.get("a").unwrap(), "aa"));
    let waiting = clients[0].start().wait();
    assert_eq!(pair.told.recv().unwrap(), "waiting");
    let shown = ask(&pair, MONITOR).unwrap();
    assert_eq!((shown.conversations.len(), shown.untold), (64, 3));
    let running: Vec<u32> = shown.conversations.iter().map(|one| one.running).collect();
    assert_eq!(running[..3], [1, 1, 0], "the call that waits, the one that asks, and then idle ones");
    let mut of: Vec<_> = shown.conversations.iter().map(|one| one.client).collect();
    of.sort();
    of.dedup();
    assert_eq!(of.len(), 64, "each is another one");
    drop(waiting);
}
