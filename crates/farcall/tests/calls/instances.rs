//! Tests of several instances of a type: which instance a stub is bound to, and what happens when it is gone.

use crate::common;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stops::{HOUR, Stops};
use farcall::env::{Env, Time};
use farcall::intercept::{Call, Interceptor};
use farcall::names::{Entry, Memory, Registry};
use farcall::{CallFailed, Export, Kind, Ran, Runtime};

#[farcall::interface]
pub trait Who {
    fn who(&self) -> farcall::Result<String>;
    #[idempotent]
    fn who_idempotent(&self) -> farcall::Result<String>;
}

struct Server {
    name: &'static str,
    calls: Arc<AtomicU64>,
}

impl Who for Server {
    fn who(&self) -> farcall::Result<String> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(self.name.to_owned())
    }

    fn who_idempotent(&self) -> farcall::Result<String> {
        self.who()
    }
}

/// The processes of one machine, which share a registry.
struct Machine {
    registry: Arc<Memory>,
    calls: Arc<AtomicU64>,
    /// Processes that live as long as the machine, even when they export nothing any more.
    processes: Mutex<Vec<Runtime>>,
}

impl Machine {
    fn new() -> Machine {
        Machine { registry: Arc::new(Memory::new()), calls: Arc::default(), processes: Mutex::default() }
    }

    fn process(&self) -> Runtime {
        // Some tests put a forwarder before an exporter.
        let process = Runtime::builder().registry(self.registry.clone()).open().build().unwrap();
        self.processes.lock().unwrap().push(process.clone());
        process
    }

    /// Returns a runtime that gives silent servers up after two seconds. A shorter time could give up a
    /// living server on a busy machine.
    fn impatient(&self) -> Runtime {
        Runtime::builder().registry(self.registry.clone()).patience(Duration::from_secs(2)).build().unwrap()
    }

    fn export(&self, name: &'static str) -> Export {
        let server = Server { name, calls: self.calls.clone() };
        self.process().export::<dyn Who>(&format!("Who/{name}"), Arc::new(server)).unwrap()
    }

    fn publish(&self, instance: &str, address: SocketAddr) -> farcall::names::Registration {
        let entry = Entry::new("Who".parse().unwrap(), instance.parse().unwrap(), address.into(), 1);
        // The runtime's registry signs the entry, if the tests run with keys.
        self.process().registry().publish(&entry).unwrap()
    }
}

/// Forwards datagrams between one client and one server, until the test tells it to lose them.
struct Wire {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
}

impl Wire {
    fn to(server: SocketAddr) -> Wire {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        back.connect(server).unwrap();
        let address = front.local_addr().unwrap();
        let cut = Arc::new(AtomicBool::new(false));
        let client = Arc::new(Mutex::new(None));
        let (f, b, c, client_of) = (front.clone(), back.clone(), cut.clone(), client.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok((len, from)) = f.recv_from(&mut buffer) {
                *client_of.lock().unwrap() = Some(from);
                if !c.load(Ordering::SeqCst) {
                    let _ = b.send(&buffer[..len]);
                }
            }
        });
        let c = cut.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(len) = back.recv(&mut buffer) {
                let client = *client.lock().unwrap();
                if let (Some(client), false) = (client, c.load(Ordering::SeqCst)) {
                    let _ = front.send_to(&buffer[..len], client);
                }
            }
        });
        Wire { address, cut }
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }
}

fn told<T: std::fmt::Debug>(result: farcall::Result<T>) -> (Kind, Ran) {
    let why = CallFailed::from(result.unwrap_err());
    (why.kind(), why.ran())
}

#[test]
fn an_instance_that_answers_is_bound_although_another_is_dead() {
    let machine = Machine::new();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _dead = machine.publish("a", silent.local_addr().unwrap());
    let _export = machine.export("b");
    let who = machine.process().import::<dyn Who>("Who").unwrap();
    assert_eq!(who.who().unwrap(), "b");
}

/// The operating system, except that its clock stands still.
struct Still;

impl Env for Still {
    system_does! { bind, spawn, event, entropy, shares_memory }

    fn now(&self) -> Time {
        Time::from_nanos(1)
    }
}

#[test]
fn while_a_server_of_a_nearer_kind_has_time_to_answer_no_other_is_asked() {
    let Ok(other) = UdpSocket::bind("[::1]:0") else {
        return common::skip("servers of two kinds of address: there is no IPv6");
    };
    let machine = Machine::new();
    let _export = machine.export("a");
    let _other = machine.publish("b", other.local_addr().unwrap());
    let builder = Runtime::builder().registry(machine.registry.clone());
    let client = builder.env(Arc::new(Still)).build().unwrap();
    assert_eq!(client.import::<dyn Who>("Who").unwrap().who().unwrap(), "a");
    other.set_nonblocking(true).unwrap();
    assert!(other.recv(&mut [0; 2000]).is_err(), "the other server was asked");
}

#[test]
fn a_silent_server_of_a_nearer_kind_does_not_keep_another_from_being_bound() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return common::skip("servers of two kinds of address: there is no IPv6");
    }
    let machine = Machine::new();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _silent = machine.publish("a", silent.local_addr().unwrap());
    let builder = Runtime::builder().registry(machine.registry.clone());
    let server = builder.address("[::1]:0".parse().unwrap()).build().unwrap();
    let live = Server { name: "b", calls: machine.calls.clone() };
    let _export = server.export::<dyn Who>("Who/b", Arc::new(live)).unwrap();
    // It would wait for the silent one for half an hour.
    let client = Runtime::builder().registry(machine.registry.clone()).patience(HOUR).build().unwrap();
    assert_eq!(client.import::<dyn Who>("Who").unwrap().who().unwrap(), "b");
    assert_eq!(client.import_all::<dyn Who>("Who").unwrap().multi().who().first().unwrap().1, "b");
}

#[test]
fn an_import_waits_no_longer_than_its_limit() {
    let registry = Memory::new();
    let client = Runtime::builder().registry(registry.clone()).patience(HOUR).build().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = format!("udp://{}/Who", silent.local_addr().unwrap());
    let why =
        CallFailed::from(client.import_within::<dyn Who>(&name, Duration::from_millis(1)).err().unwrap());
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No));
    let server = Server { name: "a", calls: Arc::default() };
    let _export = Runtime::builder()
        .registry(registry)
        .build()
        .unwrap()
        .export::<dyn Who>("Who", Arc::new(server))
        .unwrap();
    let who = client.import_within::<dyn Who>("Who", HOUR).unwrap();
    assert_eq!(who.who().unwrap(), "a");
}

#[test]
fn an_instance_is_found_by_its_name() {
    let machine = Machine::new();
    let _exports = ["a", "b", "c"].map(|name| machine.export(name));
    let process = machine.process();
    for name in ["c", "a", "b"] {
        let who = process.import::<dyn Who>(&format!("Who/{name}")).unwrap();
        assert_eq!(who.who().unwrap(), name);
    }
    let group = process.import_all::<dyn Who>("Who").unwrap();
    let names: Vec<_> = group.stubs().map(|(name, who)| (name.to_string(), who.who().unwrap())).collect();
    assert_eq!(names, ["a", "b", "c"].map(|name| (format!("Who/{name}"), name.to_owned())));
}

#[test]
fn a_new_export_of_a_name_is_bound_when_the_former_export_is_gone() {
    let machine = Machine::new();
    let export = machine.export("a");
    let who = machine.process().import::<dyn Who>("Who/a").unwrap();
    // The registry forgets the name, as if the exporter were dead; then another process may export it.
    assert!(machine.registry.withdraw(&"Who".parse().unwrap(), &"a".parse().unwrap()).unwrap());
    let server = Server { name: "new", calls: machine.calls.clone() };
    let anew = machine.process().export::<dyn Who>("Who/a", Arc::new(server));
    assert!(anew.is_ok());
    assert_eq!(who.who().unwrap(), "a");
    drop(export);
    assert_eq!(who.who().unwrap(), "new");
}

#[test]
fn a_call_that_did_not_run_goes_to_another_instance() {
    let machine = Machine::new();
    let first = machine.export("a");
    let who = machine.process().import::<dyn Who>("Who").unwrap();
    assert_eq!(who.who().unwrap(), "a");
    let _second = machine.export("b");
    drop(first);
    assert_eq!(who.who().unwrap(), "b");
    assert_eq!(who.start().who().wait().unwrap(), "b");
}

#[test]
fn a_call_that_may_have_run_is_not_repeated_unless_it_is_idempotent() {
    let wait_in_vain = |(idempotent, started)| {
        let machine = Machine::new();
        let first = machine.export("a");
        let wire = Wire::to(first.address());
        let client = machine.impatient();
        // At first the registry has only this instance, at the forwarder's address.
        drop(machine.registry.withdraw(&"Who".parse().unwrap(), &"a".parse().unwrap()));
        let _wired = machine.publish("a", wire.address);
        let who = client.import::<dyn Who>("Who").unwrap();
        assert_eq!(who.who().unwrap(), "a");
        let _second = machine.export("b");
        wire.cut();
        let answer = match (idempotent, started) {
            (true, true) => who.start().who_idempotent().wait(),
            (true, false) => who.who_idempotent(),
            (false, true) => who.start().who().wait(),
            (false, false) => who.who(),
        };
        match idempotent {
            true => assert_eq!(answer.unwrap(), "b"),
            false => assert_eq!(told(answer), (Kind::Unreachable, Ran::Maybe)),
        }
        // In each case the other instance serves the next call.
        assert_eq!(who.who().unwrap(), "b");
    };
    std::thread::scope(|scope| {
        for way in [(false, false), (true, false), (false, true), (true, true)] {
            scope.spawn(move || wait_in_vain(way));
        }
    });
}

#[test]
fn calls_with_short_deadlines_leave_a_dead_server_for_a_living_one() {
    let machine = Machine::new();
    let first = machine.export("a");
    let wire = Wire::to(first.address());
    drop(machine.registry.withdraw(&"Who".parse().unwrap(), &"a".parse().unwrap()));
    let wired = machine.publish("a", wire.address);
    let env = Stops::default();
    let patient =
        Runtime::builder().registry(machine.registry.clone()).patience(10 * HOUR).env(Arc::new(env.clone()));
    let who = patient.build().unwrap().import::<dyn Who>("Who").unwrap().within(HOUR / 2);
    assert_eq!(who.who().unwrap(), "a");
    wire.cut();
    env.stop_at(wire.address);
    for _ in 0..2 {
        assert_eq!(told(who.who()), (Kind::Deadline, Ran::Maybe));
    }
    // Further calls have no server, and binding one takes no longer than their deadlines allow.
    for _ in 0..3 {
        assert_eq!(told(who.who()), (Kind::Deadline, Ran::No));
    }
    assert_eq!(told(who.start().who().wait()), (Kind::Deadline, Ran::No));
    drop(wired);
    let _second = machine.export("b");
    assert_eq!(who.within(1000 * HOUR).who().unwrap(), "b");
}

/// Refuses every call.
struct Closed;

impl Interceptor for Closed {
    fn before(&self, _: &Call<'_>) -> Result<(), CallFailed> {
        Err(CallFailed::new(Kind::NotPermitted, Ran::No))
    }
}

#[test]
fn a_call_that_was_attempted_twice_may_have_run_the_first_time() {
    let attempt_twice = |way| {
        let machine = Machine::new();
        let first = machine.export("a");
        let wire = Wire::to(first.address());
        let client = machine.impatient();
        drop(machine.registry.withdraw(&"Who".parse().unwrap(), &"a".parse().unwrap()));
        let _wired = machine.publish("a", wire.address);
        let who = client.import::<dyn Who>("Who").unwrap();
        assert_eq!(who.who().unwrap(), "a");
        let closed =
            Runtime::builder().registry(machine.registry.clone()).intercept_serving(Closed).build().unwrap();
        let server = Server { name: "b", calls: machine.calls.clone() };
        let _second = closed.export::<dyn Who>("Who/b", Arc::new(server)).unwrap();
        wire.cut();
        let answer = match way {
            0 => who.who_idempotent(),
            1 => who.start().who_idempotent().wait(),
            _ => common::block_on(who.start().who_idempotent()),
        };
        // The second attempt was refused and did not run, but the first attempt may have run.
        assert_eq!(told(answer), (Kind::NotPermitted, Ran::Maybe));
    };
    std::thread::scope(|scope| {
        for way in 0..3 {
            scope.spawn(move || attempt_twice(way));
        }
    });
}
