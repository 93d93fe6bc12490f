//! Tests that a grant which expires, and a key that is taken away, end what was begun under them: the running
//! call, the conversation, and its resumption.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::key_files::{Grant, Identity, Keyring, PrincipalName, Rights, Scope, Terms};
use farcall::{Keys, Kind, Ran, Runtime};
use farcall_sim::{Sim, check, sim};

#[farcall::interface]
trait Store {
    fn get(&self) -> farcall::Result<u32>;
    /// Waits until the call is given up.
    #[blocking]
    fn wait(&self) -> farcall::Result<()>;
}

/// The virtual times at which procedures that waited have ended.
type Ends = Arc<Mutex<Vec<Duration>>>;

struct Server(Ends);

impl Store for Server {
    fn get(&self) -> farcall::Result<u32> {
        Ok(7)
    }

    fn wait(&self) -> farcall::Result<()> {
        farcall::context().cancelled().wait(Duration::from_secs(3600));
        self.0.lock().unwrap().push(sim::now());
        Ok(())
    }
}

/// For how long the grant counts, how long after that a server has noticed its end at the latest, and how
/// long after that its client, which asks now and then.
const COUNTS: Duration = Duration::from_secs(150);
const NOTICED: Duration = Duration::from_secs(1);
const HEARD: Duration = Duration::from_secs(61);

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

/// Returns the client's grant, which counts from now on for a time.
fn grant() -> Grant {
    numbered_grant(1)
}

fn numbered_grant(serial: u64) -> Grant {
    lasting_grant(serial, COUNTS)
}

fn lasting_grant(serial: u64, time: Duration) -> Grant {
    let terms = Terms {
        key: identity(2).public(),
        principal: "alice".parse::<PrincipalName>().unwrap(),
        rights: Rights::IMPORT,
        scope: Scope::any(),
        serial,
        expires: sim::unix_seconds() + time.as_secs(),
    };
    identity(3).grant(terms).unwrap()
}

/// Starts a server that accepts clients with grants.
fn serve(sim: &Sim, ends: &Ends) -> sim::Process {
    let ends = ends.clone();
    sim.server("server", move || {
        let keyring = Keyring::new(identity(1)).with_authority(identity(3).public());
        let runtime = Runtime::builder().keys(Keys::new(keyring)).build()?;
        runtime.export::<dyn Store>("Store", Arc::new(Server(ends.clone())))?.wait()
    })
}

fn run(sim: &Sim, ends: &Ends) {
    let server = serve(sim, ends);
    let known = format!("Store {}", identity(1).public()).parse().unwrap();
    let keyring = Keyring::new(identity(2)).with_known_server(known).with_grant(grant()).unwrap();
    let runtime = Runtime::builder().keys(Keys::new(keyring)).build().unwrap();
    let store = runtime.import::<dyn Store>("Store").unwrap();
    assert_eq!(store.get().unwrap(), 7);
    let began = sim::now();
    let waits = store.wait().unwrap_err();
    let waits = waits.call_failed().expect("it declares no exception");
    let ended = sim::now() - began;
    assert_eq!(waits.ran(), Ran::Maybe, "{waits}");
    assert!(ended > COUNTS - Duration::from_secs(2) && ended < COUNTS + HEARD, "{waits:?} after {ended:?}");
    let next = store.get().unwrap_err();
    let next = next.call_failed().expect("it declares no exception");
    assert_eq!((next.kind(), next.ran()), (Kind::NotPermitted, Ran::No), "{next}");
    let ends = ends.lock().unwrap();
    assert!(ends.len() == 1 && ends[0] < began + COUNTS + NOTICED, "{ends:?}");
    drop(server);
}

#[test]
fn a_grant_that_expires_ends_the_running_call_and_the_next_one_is_refused() {
    check(4, |sim| run(sim, &Ends::default()));
}

/// Opens a conversation with a grant that expires, and then another one of the same key with a grant that
/// does not.
fn outlast(sim: &Sim, ends: &Ends) {
    let server = serve(sim, ends);
    let open = |serial, time| {
        let known = format!("Store {}", identity(1).public()).parse().unwrap();
        let keyring =
            Keyring::new(identity(2)).with_known_server(known).with_grant(lasting_grant(serial, time));
        let runtime = Runtime::builder().keys(Keys::new(keyring.unwrap())).build().unwrap();
        runtime.import::<dyn Store>("Store").unwrap()
    };
    let began = sim::now();
    let expiring = open(1, COUNTS);
    let waiting = expiring.start().wait();
    assert_eq!(expiring.get().unwrap(), 7);
    let lasting = open(2, 100 * COUNTS);
    assert_eq!(lasting.get().unwrap(), 7);
    let ended = waiting.wait().unwrap_err();
    assert_eq!(ended.call_failed().map(|why| why.ran()), Some(Ran::Maybe), "{ended}");
    let at_server = ends.lock().unwrap().clone();
    assert!(at_server.len() == 1 && at_server[0] < began + COUNTS + NOTICED, "{at_server:?} after {began:?}");
    let next = expiring.get().unwrap_err();
    assert_eq!(next.call_failed().map(|why| (why.kind(), why.ran())), Some((Kind::NotPermitted, Ran::No)));
    assert_eq!(lasting.get().unwrap(), 7);
    drop(server);
}

#[test]
fn a_grant_that_expires_ends_its_conversation_though_the_key_has_shown_another_one_since() {
    check(4, |sim| outlast(sim, &Ends::default()));
}

/// Renews the client's grant before it expires, and calls on.
fn renew(sim: &Sim, ends: &Ends) {
    let server = serve(sim, ends);
    let known: farcall::key_files::KnownServer = format!("Store {}", identity(1).public()).parse().unwrap();
    let keyring =
        |grant| Keyring::new(identity(2)).with_known_server(known.clone()).with_grant(grant).unwrap();
    let keys = Keys::new(keyring(grant()));
    let runtime = Runtime::builder().keys(keys.clone()).build().unwrap();
    let store = runtime.import::<dyn Store>("Store").unwrap();
    assert_eq!(store.get().unwrap(), 7);
    sim::sleep(COUNTS / 2);
    keys.replace(keyring(numbered_grant(2)));
    // The call began under the old grant, and ends with it.
    let waits = store.wait().unwrap_err();
    assert_eq!(waits.call_failed().map(|why| why.ran()), Some(Ran::Maybe), "{waits}");
    assert_eq!(store.get().unwrap(), 7, "the handshake shows the new grant");
    drop(server);
}

#[test]
fn a_grant_that_was_renewed_in_time_lets_the_next_calls_pass() {
    check(4, |sim| renew(sim, &Ends::default()));
}

/// How long a runtime takes at most to notice changed keys, and to send what ends a call.
const CHANGED: Duration = Duration::from_millis(300);

/// Takes one end's key away at the other end while a call runs. `at_server` says which end hears of it, and
/// `drains` whether the server drains meanwhile, so that it ends with the call.
fn take_away(sim: &Sim, at_server: bool, drains: bool) {
    let ends = Ends::default();
    let line = format!("{} alice", identity(2).public()).parse().unwrap();
    let served = Keys::new(Keyring::new(identity(1)).with_authorized_key(line).unwrap());
    let server = {
        let (ends, served) = (ends.clone(), served.clone());
        sim.server("server", move || {
            let runtime = Runtime::builder().keys(served.clone()).build()?;
            let export = runtime.export::<dyn Store>("Store", Arc::new(Server(ends.clone())))?;
            if !drains {
                return export.wait();
            }
            sim::sleep(Duration::from_secs(1));
            assert!(runtime.drain(Duration::from_secs(60)), "the call has ended");
            Ok::<(), farcall::Error>(())
        })
    };
    let known = format!("Store {}", identity(1).public()).parse().unwrap();
    let known = Keys::new(Keyring::new(identity(2)).with_known_server(known));
    let runtime = Runtime::builder().keys(known.clone()).build().unwrap();
    let store = runtime.import::<dyn Store>("Store").unwrap();
    let waiting = store.start().wait();
    // A later call is answered after the server has begun with the former one.
    assert_eq!(store.get().unwrap(), 7);
    if drains {
        sim.sleep(Duration::from_secs(2));
    }
    let taken = sim::now();
    let (keys, identity) = if at_server { (served, identity(1)) } else { (known, identity(2)) };
    keys.replace(Keyring::new(identity));
    let ended = waiting.wait().unwrap_err();
    let ended = ended.call_failed().expect("it declares no exception");
    assert_eq!((ended.kind(), ended.ran()), (Kind::NotPermitted, Ran::Maybe), "{ended}");
    // The client is told at once.
    assert!(sim::now() < taken + CHANGED, "{:?} after {taken:?}", sim::now());
    if at_server {
        let ends = ends.lock().unwrap();
        assert!(ends.len() == 1 && ends[0] < taken + CHANGED, "{ends:?} after {taken:?}");
    }
    let next = store.get().unwrap_err();
    let next = next.call_failed().expect("it declares no exception");
    assert_eq!(next.ran(), Ran::No, "{next}");
    assert!(drains || next.kind() == Kind::NotPermitted, "{next}");
    drop(server);
}

#[test]
fn a_key_that_is_taken_away_is_noticed_within_a_quarter_of_a_second_at_either_end() {
    check(4, |sim| take_away(sim, true, false));
    check(4, |sim| take_away(sim, false, false));
}

#[test]
fn a_key_that_is_taken_away_while_the_server_drains_ends_the_call_as_not_permitted() {
    check(10, |sim| take_away(sim, true, true));
}

/// Imports two names of one server, which has a grant for each. One grant expires, and the other one does
/// not.
fn lose_a_name(sim: &Sim, expiring: &'static str) {
    let export = |serial, scope: &str, time: Duration| {
        let terms = Terms {
            key: identity(1).public(),
            principal: "store".parse::<PrincipalName>().unwrap(),
            rights: Rights::EXPORT,
            scope: scope.parse().unwrap(),
            serial,
            expires: sim::unix_seconds() + time.as_secs(),
        };
        identity(3).grant(terms).unwrap()
    };
    let time = |name| if name == expiring { COUNTS } else { 100 * COUNTS };
    let grants = [export(1, "Store/a", time("Store/a")), export(2, "Store/b", time("Store/b"))];
    let server = sim.server("server", move || {
        let alice = format!("{} alice", identity(2).public()).parse().unwrap();
        let keyring = Keyring::new(identity(1)).with_authorized_key(alice).unwrap();
        let keyring =
            grants.iter().fold(keyring, |keyring, grant| keyring.with_grant(grant.clone()).unwrap());
        let runtime = Runtime::builder().keys(Keys::new(keyring)).build()?;
        let _a = runtime.export::<dyn Store>("Store/a", Arc::new(Server(Ends::default())))?;
        runtime.export::<dyn Store>("Store/b", Arc::new(Server(Ends::default())))?.wait()
    });
    let keyring = Keyring::new(identity(2)).with_authority(identity(3).public());
    let runtime = Runtime::builder().keys(Keys::new(keyring)).build().unwrap();
    let [a, b] = ["Store/a", "Store/b"].map(|name| runtime.import::<dyn Store>(name).unwrap());
    let (fallen, other) = if expiring == "Store/a" { (a, b) } else { (b, a) };
    let began = sim::now();
    let of_other = other.start().wait();
    let ended = fallen.wait().unwrap_err();
    let ended = ended.call_failed().expect("it declares no exception");
    assert_eq!((ended.kind(), ended.ran()), (Kind::NotPermitted, Ran::Maybe), "{ended}");
    let took = sim::now() - began;
    assert!(took > COUNTS - Duration::from_secs(2) && took < COUNTS + NOTICED, "after {took:?}");
    let next = fallen.get().unwrap_err();
    assert_eq!(next.call_failed().map(|why| (why.kind(), why.ran())), Some((Kind::NotPermitted, Ran::No)));
    assert_eq!(other.get().unwrap(), 7);
    drop((of_other, server));
}

#[test]
fn a_servers_grant_that_expires_ends_the_calls_of_its_name_within_a_quarter_of_a_second_and_no_others() {
    check(4, |sim| lose_a_name(sim, "Store/a"));
    check(4, |sim| lose_a_name(sim, "Store/b"));
}
