//! A client that has several grants for one key: each conversation has the rights of the grant that it was
//! opened with, whatever other conversations of the key show.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farcall::key_files::{Grant, Identity, Keyring, Policy, PrincipalName, Revoked, Rights, Scope, Terms};
use farcall::names::Memory;
use farcall::{Keys, Kind, Level, Ran, Runtime};
use farcall_proto::dump::dump;

#[farcall::interface]
trait Store {
    fn get(&self, key: &str) -> farcall::Result<String>;
    /// Only operators may call this.
    fn erase(&self) -> farcall::Result<()>;
    /// Waits until the call is given up.
    fn wait(&self) -> farcall::Result<()>;
    fn caller(&self) -> farcall::Result<String>;
    /// Only operators may call this, too.
    #[oneway]
    fn note(&self, word: &str) -> farcall::Result<()>;
}

struct Server(mpsc::Sender<String>);

impl Server {
    fn tell(&self, what: &str) {
        let caller = farcall::context().principal().map_or_else(String::new, |who| who.name.to_string());
        let _ = self.0.send(format!("{caller} {what}"));
    }
}

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<String> {
        Ok(key.repeat(2))
    }

    fn erase(&self) -> farcall::Result<()> {
        self.tell("erases");
        Ok(())
    }

    fn wait(&self) -> farcall::Result<()> {
        self.tell("waits");
        farcall::context().cancelled().wait(Duration::from_secs(60));
        self.tell("was given up");
        Ok(())
    }

    fn caller(&self) -> farcall::Result<String> {
        Ok(farcall::context().principal().map_or_else(String::new, |who| who.name.to_string()))
    }

    fn note(&self, word: &str) -> farcall::Result<()> {
        self.tell(word);
        Ok(())
    }
}

const SERVER: u8 = 1;
const CLIENT: u8 = 2;
const AUTHORITY: u8 = 3;
const OPS: u64 = 1;
const GUEST: u64 = 2;

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns the client's grant with this serial.
fn grant(serial: u64) -> Grant {
    let principal = if serial == OPS { "ops" } else { "guest" };
    let terms = Terms {
        key: identity(CLIENT).public(),
        principal: principal.parse::<PrincipalName>().unwrap(),
        rights: Rights::IMPORT,
        scope: Scope::any(),
        serial,
        expires: now() + 3600,
    };
    identity(AUTHORITY).grant(terms).unwrap()
}

/// Returns the keys of a server that believes the authority, which has revoked some grants.
fn servers(revoked: &[u64]) -> Keyring {
    let policy: Policy = "allow ops Store\nallow guest Store get,caller,wait\n".parse().unwrap();
    let revoked = Revoked::new([], revoked.iter().copied()).unwrap();
    let list = identity(AUTHORITY).revoke(1, now(), 3600, revoked);
    let keyring = Keyring::new(identity(SERVER)).with_authority(identity(AUTHORITY).public());
    keyring.with_revocations(list).unwrap().with_policy(policy)
}

fn runtime(names: &Arc<Memory>, keyring: Keyring) -> (Runtime, Keys) {
    let keys = Keys::new(keyring);
    let builder = Runtime::builder().registry(names.clone()).patience(Duration::from_secs(3));
    let runtime = builder.level(Level::Secure).shared_memory(false).keys(keys.clone()).build().unwrap();
    (runtime, keys)
}

struct Served {
    names: Arc<Memory>,
    keys: Keys,
    export: farcall::Export,
    told: mpsc::Receiver<String>,
}

impl Served {
    fn new() -> Served {
        let names = Arc::new(Memory::new());
        let (tell, told) = mpsc::channel();
        let (server, keys) = runtime(&names, servers(&[]));
        let export = server.export::<dyn Store>("Store/main", Arc::new(Server(tell))).unwrap();
        Served { names, keys, export, told }
    }

    /// Opens a conversation with the grant of this serial.
    fn client(&self, serial: u64) -> StoreClient {
        self.client_at("Store/main", serial)
    }

    fn client_at(&self, name: &str, serial: u64) -> StoreClient {
        let known = format!("Store {}", identity(SERVER).public()).parse().unwrap();
        let keyring = Keyring::new(identity(CLIENT)).with_known_server(known).with_grant(grant(serial));
        let client = runtime(&self.names, keyring.unwrap()).0.import::<dyn Store>(name).unwrap();
        assert_eq!(client.get("a").unwrap(), "aa");
        client
    }

    /// Makes all decisions about clients void, as a change of a key file does.
    fn decide_again(&self) {
        self.keys.replace(servers(&[]));
    }
}

fn is_refused<T: std::fmt::Debug>(answer: farcall::Result<T>) {
    let failed = answer.unwrap_err();
    let failed = failed.call_failed().expect("no exception is declared");
    assert_eq!((failed.kind(), failed.ran()), (Kind::NotPermitted, Ran::No), "{failed}");
}

#[test]
fn a_conversation_ends_with_its_own_grant_though_another_one_of_the_key_shows_another_grant() {
    let served = Served::new();
    let ops = served.client(OPS);
    assert_eq!(ops.caller().unwrap(), "ops");
    let waiting = ops.start().wait();
    assert_eq!(served.told.recv().unwrap(), "ops waits");
    let guest = served.client(GUEST);
    served.keys.replace(servers(&[OPS]));
    assert_eq!(served.told.recv().unwrap(), "ops was given up");
    assert_eq!(waiting.wait().unwrap_err().call_failed().map(|why| why.ran()), Some(Ran::Maybe));
    is_refused(ops.erase());
    is_refused(ops.get("a"));
    // The other grant counts, and so do the conversation and its rights.
    assert_eq!((guest.get("a").unwrap(), guest.caller().unwrap()), ("aa".to_owned(), "guest".to_owned()));
    is_refused(guest.erase());
}

#[test]
fn a_conversation_goes_on_though_another_grant_of_its_key_is_revoked() {
    let served = Served::new();
    let ops = served.client(OPS);
    let waiting = ops.start().wait();
    assert_eq!(served.told.recv().unwrap(), "ops waits");
    let guest = served.client(GUEST);
    let of_guest = guest.start().wait();
    assert_eq!(served.told.recv().unwrap(), "guest waits");
    served.keys.replace(servers(&[GUEST]));
    assert_eq!(served.told.recv().unwrap(), "guest was given up");
    assert!(of_guest.wait().is_err());
    ops.erase().unwrap();
    assert_eq!(served.told.recv().unwrap(), "ops erases");
    drop(waiting);
    assert_eq!(served.told.recv().unwrap(), "ops was given up");
}

#[test]
fn a_call_ends_with_the_line_that_allows_it_though_another_line_of_its_key_stands() {
    let served = Served::new();
    let listed = |types: &[&str]| {
        let line = |name: &&str| format!("{} ops type={name}", identity(CLIENT).public()).parse().unwrap();
        let add = |keyring: Keyring, line| keyring.with_authorized_key(line).unwrap();
        types.iter().map(line).fold(servers(&[]), add)
    };
    served.keys.replace(listed(&["Store", "Clock"]));
    let known = format!("Store {}", identity(SERVER).public()).parse().unwrap();
    let keyring = Keyring::new(identity(CLIENT)).with_known_server(known);
    let client = runtime(&served.names, keyring).0.import::<dyn Store>("Store/main").unwrap();
    let waiting = client.start().wait();
    assert_eq!(served.told.recv().unwrap(), "ops waits");
    served.keys.replace(listed(&["Clock"]));
    assert_eq!(served.told.recv().unwrap(), "ops was given up");
    assert_eq!(waiting.wait().unwrap_err().call_failed().map(|why| why.ran()), Some(Ran::Maybe));
    is_refused(client.get("a"));
}

#[test]
fn what_one_grant_allows_is_not_allowed_to_another_grant_of_the_key() {
    let served = Served::new();
    let ops = served.client(OPS);
    ops.erase().unwrap();
    let guest = served.client(GUEST);
    is_refused(guest.erase());
    guest.note("not allowed").unwrap();
    // A call comes after the one-way calls that were made before it.
    assert_eq!(guest.caller().unwrap(), "guest");
    assert_eq!(ops.caller().unwrap(), "ops");
    ops.note("allowed").unwrap();
    assert_eq!(ops.get("b").unwrap(), "bb");
    let told: Vec<String> = served.told.try_iter().collect();
    assert_eq!(told, ["ops erases", "ops allowed"]);
}

#[test]
fn two_programs_with_one_key_and_two_grants_keep_their_rights_when_decisions_are_made_again() {
    for first in [OPS, GUEST] {
        let served = Served::new();
        let one = served.client(first);
        let other = served.client(OPS + GUEST - first);
        let (ops, guest) = if first == OPS { (one, other) } else { (other, one) };
        for _ in 0..3 {
            served.decide_again();
            is_refused(guest.erase());
            ops.erase().unwrap();
            assert_eq!((&*ops.caller().unwrap(), &*guest.caller().unwrap()), ("ops", "guest"));
        }
    }
}

/// Passes datagrams between a client and a server until an empty one comes, and returns those of the client.
fn relay(socket: &UdpSocket, server: SocketAddr) -> Vec<Vec<u8>> {
    let (mut client, mut of_client, mut buffer) = (server, Vec::new(), vec![0; 65_536]);
    loop {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        if len == 0 {
            return of_client;
        }
        let to = if from == server { client } else { server };
        if from != server {
            client = from;
            of_client.push(buffer[..len].to_vec());
        }
        socket.send_to(&buffer[..len], to).unwrap();
    }
}

#[test]
fn a_first_message_that_somebody_on_the_path_repeats_changes_nothing() {
    for recorded in [OPS, GUEST] {
        let served = Served::new();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, server) = (socket.local_addr().unwrap(), served.export.address());
        let datagrams = std::thread::scope(|scope| {
            let relaying = scope.spawn(|| relay(&socket, server));
            drop(served.client_at(&format!("udp://{address}/Store"), recorded));
            socket.send_to(&[], address).unwrap();
            relaying.join().unwrap()
        });
        // Of the client's questions, which are in clear text, the last one has its first message.
        let is_question =
            |datagram: &&Vec<u8>| dump(datagram).is_ok_and(|text| text.to_string().contains("BIND"));
        let first = datagrams.iter().rfind(is_question).expect("the client has bound the name");
        let other = served.client(OPS + GUEST - recorded);
        // The server answers the repetition: bit 14 marks an answer (docs/protocol.md, 11.1). Nobody but the
        // client could go on from it.
        socket.send_to(first, server).unwrap();
        let is_answer = |datagram: &[u8]| datagram.len() > 4 && datagram[2] & 0x40 != 0;
        let mut buffer = vec![0; 65_536];
        loop {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            if from == server && is_answer(&buffer[..len]) {
                break;
            }
        }
        served.decide_again();
        assert_eq!(other.caller().unwrap(), if recorded == OPS { "guest" } else { "ops" });
        match recorded {
            OPS => is_refused(other.erase()),
            _ => other.erase().unwrap(),
        }
    }
}

/// Returns a grant of the client's for one name.
fn grant_for(name: &str, serial: u64, seconds: u64) -> Grant {
    let scope = name.parse::<Scope>().unwrap();
    let terms = Terms { scope, serial, expires: now() + seconds, ..grant(OPS).terms().clone() };
    identity(AUTHORITY).grant(terms).unwrap()
}

/// A client that has a grant for each of three names, and its server. The names belong to three
/// conversations.
struct Narrow {
    keys: Keys,
    exported: Vec<farcall::Export>,
    told: mpsc::Receiver<String>,
    client: Runtime,
}

const NARROW: [&str; 3] = ["Store/a", "Store/b", "Store/c"];

impl Narrow {
    fn new(shares_memory: bool) -> Narrow {
        let names = Arc::new(Memory::new());
        let (tell, told) = mpsc::channel();
        let runtime = |keys: &Keys| {
            let builder = Runtime::builder().registry(names.clone()).patience(Duration::from_secs(3));
            builder.shared_memory(shares_memory).keys(keys.clone()).build().unwrap()
        };
        let keys = Keys::new(servers(&[]));
        let server = runtime(&keys);
        let export = |name| server.export::<dyn Store>(name, Arc::new(Server(tell.clone()))).unwrap();
        let exported = NARROW.into_iter().chain(["Store/ungranted"]).map(export).collect();
        let known = format!("Store {}", identity(SERVER).public()).parse().unwrap();
        let keyring = Keyring::new(identity(CLIENT)).with_known_server(known);
        let keyring = NARROW.iter().zip(1..).fold(keyring, |keyring, (name, serial)| {
            keyring.with_grant(grant_for(name, serial, 3600 + serial)).unwrap()
        });
        Narrow { keys, exported, told, client: runtime(&Keys::new(keyring)) }
    }

    fn stores(&self) -> [StoreClient; 3] {
        NARROW.map(|name| self.client.import::<dyn Store>(name).unwrap())
    }
}

#[test]
fn one_client_may_use_all_the_names_that_its_grants_cover_at_one_server() {
    for shares_memory in [false, true] {
        let narrow = Narrow::new(shares_memory);
        let stores = narrow.stores();
        for _ in 0..3 {
            for store in &stores {
                assert_eq!(store.get("a").unwrap(), "aa");
                store.erase().unwrap();
            }
            is_refused(narrow.client.import::<dyn Store>("Store/ungranted").map(drop));
        }
        drop(narrow.exported);
    }
}

/// A hint that names no client is for one of the conversations with the server at an address.
#[test]
fn each_conversation_with_a_server_hears_that_the_server_has_forgotten_it() {
    let narrow = Narrow::new(false);
    let stores = narrow.stores();
    let waiting = stores[0].start().wait();
    stores.iter().for_each(|store| assert_eq!(store.get("a").unwrap(), "aa"));
    assert_eq!(narrow.told.recv().unwrap(), "ops waits");
    narrow.keys.replace(servers(&[1, 2, 3]));
    assert_eq!(narrow.told.recv().unwrap(), "ops was given up");
    assert!(waiting.wait().is_err());
    for store in &stores {
        let failed = store.get("a").unwrap_err();
        let failed = failed.call_failed().expect("no exception is declared");
        // A call that was sent when the server had hardly forgotten the conversation may have been taken.
        let expected = [(Kind::NotPermitted, Ran::No), (Kind::Forgotten, Ran::Maybe)];
        assert!(expected.contains(&(failed.kind(), failed.ran())), "{failed}");
    }
    narrow.keys.replace(servers(&[]));
    stores.iter().for_each(|store| assert_eq!(store.get("a").unwrap(), "aa"));
}
