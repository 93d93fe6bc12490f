//! Servers that have several grants for one key: a client judges each name of each conversation by what the
//! server has shown for it there, whatever the key has shown to others, or somebody on the path has.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farcall::key_files::{Grant, Identity, Keyring, Revoked, Rights, Terms};
use farcall::memory::{Memory as _, Remote, Rights as MemoryRights, Settings};
use farcall::names::Memory;
use farcall::{Export, Keys, Kind, Ran, Runtime};
use farcall_proto::dump::dump;

#[farcall::interface]
trait Store {
    fn get(&self, key: &str) -> farcall::Result<String>;
    /// Waits until it is told to return.
    fn wait(&self) -> farcall::Result<()>;
}

/// A server whose waiting calls say so, and return when they are told.
struct Server(Mutex<mpsc::Sender<()>>, Mutex<mpsc::Receiver<()>>);

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<String> {
        Ok(key.repeat(2))
    }

    fn wait(&self) -> farcall::Result<()> {
        let _ = self.0.lock().unwrap().send(());
        let _ = self.1.lock().unwrap().recv_timeout(LONG);
        Ok(())
    }
}

/// A test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(20);

const SERVER: u8 = 1;
const CLIENT: u8 = 2;
const AUTHORITY: u8 = 3;

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns a grant by which the server's key may export a name.
fn grant(serial: u64, scope: &str) -> Grant {
    let terms = Terms {
        key: identity(SERVER).public(),
        principal: "store".parse().unwrap(),
        rights: Rights::EXPORT,
        scope: scope.parse().unwrap(),
        serial,
        expires: now() + 3600,
    };
    identity(AUTHORITY).grant(terms).unwrap()
}

/// Returns the keys of a server that has these grants.
fn servers(grants: &[(u64, &str)]) -> Keyring {
    let alice = format!("{} alice", identity(CLIENT).public()).parse().unwrap();
    let keyring = Keyring::new(identity(SERVER)).with_authorized_key(alice).unwrap();
    grants.iter().fold(keyring, |keyring, (serial, scope)| keyring.with_grant(grant(*serial, scope)).unwrap())
}

/// Returns the keys of a client that believes the authority, which has revoked some grants.
fn clients(revoked: &[u64]) -> Keyring {
    let revoked = Revoked::new([], revoked.iter().copied()).unwrap();
    let list = identity(AUTHORITY).revoke(1, now(), 3600, revoked);
    let keyring = Keyring::new(identity(CLIENT)).with_authority(identity(AUTHORITY).public());
    keyring.with_revocations(list).unwrap()
}

fn runtime(keyring: Keyring, shares: bool) -> (Runtime, Keys) {
    let keys = Keys::new(keyring);
    let builder = Runtime::builder().registry(Memory::new()).keys(keys.clone()).patience(LONG);
    (builder.shared_memory(shares).build().unwrap(), keys)
}

/// An export, and how to hear of its waiting calls and to let them return.
struct Served {
    runtime: Runtime,
    export: Export,
    waits: mpsc::Receiver<()>,
    goes: mpsc::Sender<()>,
}

fn serve(runtime: &Runtime, name: &str) -> Served {
    let ((tell, waits), (goes, told)) = (mpsc::channel(), mpsc::channel());
    let server = Arc::new(Server(Mutex::new(tell), Mutex::new(told)));
    let export = runtime.export::<dyn Store>(name, server).unwrap();
    Served { runtime: runtime.clone(), export, waits, goes }
}

impl Served {
    fn url(&self, name: &str) -> String {
        format!("udp://{}/{name}", self.export.address())
    }
}

fn import(client: &Runtime, url: &str) -> StoreClient {
    let store = client.import::<dyn Store>(url).unwrap().within(LONG);
    assert_eq!(store.get("a").unwrap(), "aa");
    store
}

fn why<T: std::fmt::Debug>(answer: farcall::Result<T>) -> (Kind, Ran) {
    let failed = answer.unwrap_err();
    let failed = failed.call_failed().expect("no exception is declared");
    (failed.kind(), failed.ran())
}

/// Has the client revoke the grant of one of two stores: its waiting call ends, and that of the other store
/// returns.
fn one_falls(keys: &Keys, serial: u64, fallen: (&StoreClient, &Served), other: (&StoreClient, &Served)) {
    let (of_fallen, of_other) = (fallen.0.start().wait(), other.0.start().wait());
    fallen.1.waits.recv_timeout(LONG).unwrap();
    other.1.waits.recv_timeout(LONG).unwrap();
    keys.replace(clients(&[serial]));
    assert_eq!(why(of_fallen.wait()), (Kind::NotPermitted, Ran::Maybe));
    other.1.goes.send(()).unwrap();
    of_other.wait().unwrap();
    assert_eq!(why(fallen.0.get("b")), (Kind::NotPermitted, Ran::No));
    assert_eq!(other.0.get("b").unwrap(), "bb");
    let _ = fallen.1.goes.send(());
}

#[test]
fn each_of_two_servers_with_one_key_is_judged_by_the_grant_that_it_has_shown_itself() {
    for revoked in [1, 2] {
        let [first, second] = [1, 2].map(|serial| {
            let server = runtime(servers(&[(serial, "Store")]), true).0;
            serve(&server, "Store/main")
        });
        for shares in [false, true] {
            let (client, keys) = runtime(clients(&[]), shares);
            let stores = [&first, &second].map(|served| import(&client, &served.url("Store")));
            let (one, two) = ((&stores[0], &first), (&stores[1], &second));
            let (fallen, other) = if revoked == 1 { (one, two) } else { (two, one) };
            one_falls(&keys, revoked, fallen, other);
        }
    }
}

#[test]
fn a_name_of_a_server_falls_with_its_own_grant_and_another_name_goes_on() {
    for revoked in [1, 2] {
        let server = runtime(servers(&[(1, "Store/a"), (2, "Store/b")]), true).0;
        let [first, second] = ["Store/a", "Store/b"].map(|name| serve(&server, name));
        for shares in [false, true] {
            let (client, keys) = runtime(clients(&[]), shares);
            let stores = [(&first, "Store/a"), (&second, "Store/b")]
                .map(|(served, name)| import(&client, &served.url(name)));
            let (one, two) = ((&stores[0], &first), (&stores[1], &second));
            let (fallen, other) = if revoked == 1 { (one, two) } else { (two, one) };
            one_falls(&keys, revoked, fallen, other);
        }
    }
}

/// Returns whether accesses of an importer cost the exporter nothing, because the memory is mapped.
fn is_mapped(server: &Runtime, remote: &Remote) -> bool {
    let executed = || server.stats().exports.iter().map(|export| export.accesses).sum::<u64>();
    let before = executed();
    remote.load(0).unwrap();
    executed() == before
}

#[test]
fn a_mapped_segment_falls_with_the_grant_of_its_name_and_another_one_stays_mapped() {
    for revoked in [1, 2] {
        let server = runtime(servers(&[(1, "Memory/Load"), (2, "Memory/Save")]), true).0;
        let settings = || Settings::new(64).anyone(MemoryRights::ALL);
        let segments = ["Load", "Save"].map(|name| server.export_segment(name, settings()).unwrap());
        let (client, keys) = runtime(clients(&[]), true);
        let remotes = segments.each_ref().map(|segment| client.import_segment(&segment.url()).unwrap());
        remotes.iter().for_each(|remote| assert!(is_mapped(&server, remote)));
        let (fallen, other) = (&remotes[revoked - 1], &remotes[2 - revoked]);
        keys.replace(clients(&[revoked as u64]));
        while fallen.load(0).is_ok() {
            std::thread::yield_now();
        }
        let failed = fallen.load(0).unwrap_err();
        assert_eq!(failed.call_failed().map(|why| why.kind()), Some(Kind::NotPermitted), "{failed}");
        assert!(is_mapped(&server, other));
    }
}

/// Passes the datagrams of one client on, its first question to one server and everything else to another.
fn divert(socket: &UdpSocket, first: SocketAddr, then: SocketAddr) {
    let (mut client, mut has_answered, mut buffer) = (None, false, vec![0; 65_536]);
    loop {
        // If the test has failed, no empty datagram comes.
        let Some((len, from)) = socket.recv_from(&mut buffer).ok().filter(|(len, _)| *len > 0) else {
            return;
        };
        let is_server = [first, then].contains(&from);
        if !is_server {
            client = Some(from);
        }
        let is_hello = |bytes: &[u8]| dump(bytes).is_ok_and(|text| text.to_string().contains("WELCOME"));
        has_answered |= from == first && is_hello(&buffer[..len]);
        let to = match client {
            Some(client) if is_server => client,
            _ if has_answered => then,
            _ => first,
        };
        socket.send_to(&buffer[..len], to).unwrap();
    }
}

#[test]
fn what_somebody_on_the_path_shows_of_another_grant_of_the_key_changes_nothing() {
    // The client has a conversation that stands on the grant 1, and another one begins by somebody's answer,
    // which shows the grant 2 of the same key.
    let first = serve(&runtime(servers(&[(1, "Store")]), false).0, "Store/main");
    let second = serve(&runtime(servers(&[(2, "Store")]), false).0, "Store/main");
    let third = serve(&runtime(servers(&[(3, "Store")]), false).0, "Store/main");
    let (client, keys) = runtime(clients(&[]), false);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| divert(&socket, second.export.address(), third.export.address()));
        let ones = import(&client, &first.url("Store"));
        let diverted = import(&client, &format!("udp://{address}/Store"));
        let waits = [(&ones, &first), (&diverted, &third)].map(|(store, served)| {
            let waiting = store.start().wait();
            served.waits.recv_timeout(LONG).unwrap();
            waiting
        });
        // Nobody has proven himself by the grant 2.
        keys.replace(clients(&[2]));
        import(&client, &first.url("Store"));
        let [of_first, of_third] = waits;
        first.goes.send(()).unwrap();
        of_first.wait().unwrap();
        keys.replace(clients(&[2, 3]));
        assert_eq!(why(of_third.wait()), (Kind::NotPermitted, Ran::Maybe));
        assert_eq!(ones.get("b").unwrap(), "bb");
        let _ = third.goes.send(());
        socket.send_to(&[], address).unwrap();
    });
    drop(second.runtime);
}
