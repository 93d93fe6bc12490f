//! Tests of started calls whose servers must be bound first. Some of these servers never answer.

use std::net::UdpSocket;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{block_on, builder};
use crate::threads::Threads;
use farcall::names::{Entry, Label, Listing, Memory, Registration, Registry};
use farcall::{CallFailed, Kind, Ran, Runtime};

#[farcall::interface]
trait Member {
    fn add(&self, n: u64) -> farcall::Result<u64>;
}

struct Server;

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64> {
        Ok(n + 1)
    }
}

/// The name of the threads that run retry tasks.
const THREADS: &str = "farcall-rebind";

/// Returns a socket that never answers, and its URL.
fn silent() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = format!("udp://{}/Member", socket.local_addr().unwrap());
    (socket, name)
}

/// Returns the stub of a name that has not been bound.
fn unbound(runtime: &Runtime, name: &str) -> MemberClient {
    runtime.import_each::<dyn Member>(&[name]).unwrap().stubs().next().unwrap().1
}

fn failure<T>(result: farcall::Result<T>) -> (Kind, Ran) {
    let Err(why) = result else { panic!("the call gave a result") };
    let why = CallFailed::from(why);
    (why.kind(), why.ran())
}

#[test]
fn dead_servers_delay_no_calls_of_living_ones() {
    let env = Threads::named(THREADS);
    let runtime = builder().env(env.clone()).build().unwrap();
    let export = builder().build().unwrap().export::<dyn Member>("Member", Arc::new(Server)).unwrap();
    let dead: Vec<(UdpSocket, String)> = (0..300).map(|_| silent()).collect();
    let living = format!("udp://{}/Member", export.address());
    let mut names: Vec<&str> = dead.iter().map(|(_, name)| &name[..]).collect();
    names.push(&living);
    let group = runtime.import_each::<dyn Member>(&names).unwrap();
    // The deadline of 9 s is less than the time after which a dead server is given up.
    let (who, sum) = group.multi().add(1).within(Duration::from_secs(9)).first().unwrap();
    assert_eq!((who, sum), (living.clone(), 2));
    assert_eq!(env.started(), 1, "calls that wait for a server occupy no threads");
    let group = runtime.import_each::<dyn Member>(&names).unwrap();
    let hedged = group.multi().add(1).within(Duration::from_secs(9)).hedged(Duration::ZERO, names.len());
    assert_eq!(hedged.unwrap(), (living, 2));
}

#[test]
fn calls_that_wait_for_the_same_server_share_its_binding() {
    let runtime = builder().build().unwrap();
    let (_socket, name) = silent();
    let member = unbound(&runtime, &name);
    let calls: Vec<_> = (0..1000).map(|n| member.start().add(n)).collect();
    let sent = || runtime.stats().peers.iter().map(|peer| peer.conversation.sent).sum::<u64>();
    while sent() == 0 {
        std::thread::yield_now();
    }
    // Each call has a deadline of its own.
    assert_eq!(
        failure(member.clone().within(Duration::from_millis(100)).start().add(1).wait()),
        (Kind::Deadline, Ran::No)
    );
    assert!(sent() < 100, "1,000 calls sent {} datagrams", sent());
    drop(calls);
}

#[test]
fn the_calls_that_wait_for_a_server_are_bounded_and_cancelled_ones_make_room() {
    let runtime = builder().build().unwrap();
    let (_socket, name) = silent();
    let member = unbound(&runtime, &name);
    // Half of all places: the other half stays free for other imports.
    let mut calls: Vec<_> = (0..8_192).map(|n| member.start().add(n)).collect();
    assert_eq!(failure(member.start().add(1).wait()), (Kind::Overloaded, Ran::No));
    for mut call in calls.split_off(4000) {
        call.cancel();
        assert_eq!(failure(block_on(call)), (Kind::Cancelled, Ran::No));
    }
    let more = member.clone().within(Duration::from_millis(1)).start().add(1);
    assert_eq!(failure(more.wait()), (Kind::Deadline, Ran::No));
}

#[test]
fn a_call_fails_if_its_thread_cannot_be_started_and_the_next_call_runs() {
    let env = Threads::named(THREADS);
    env.refuse(1);
    let runtime = builder().env(env).build().unwrap();
    let export = runtime.export::<dyn Member>("Member", Arc::new(Server)).unwrap();
    let member = unbound(&runtime, &format!("udp://{}/Member", export.address()));
    assert_eq!(failure(member.start().add(1).wait()), (Kind::Local, Ran::No));
    assert_eq!(member.start().add(1).wait().unwrap(), 2);
}

/// A registry that does not answer until the test lets it.
#[derive(Clone, Default)]
struct Slow {
    registry: Memory,
    /// How many lookups of a type were made, and whether they are answered.
    asked: Arc<(Mutex<(usize, bool)>, Condvar)>,
}

impl Slow {
    /// Waits until `count` lookups of a type were made.
    fn wait_for_lookups(&self, count: usize) {
        let (state, changed) = &*self.asked;
        drop(changed.wait_while(state.lock().unwrap(), |(asking, _)| *asking < count).unwrap());
    }

    fn answer(&self) {
        let (state, changed) = &*self.asked;
        state.lock().unwrap().1 = true;
        changed.notify_all();
    }
}

impl Registry for Slow {
    fn publish(&self, entry: &Entry) -> farcall::names::Result<Registration> {
        self.registry.publish(entry)
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<bool> {
        self.registry.withdraw(type_name, instance)
    }

    fn instances(&self, type_name: &Label) -> farcall::names::Result<Vec<Entry>> {
        let (state, changed) = &*self.asked;
        state.lock().unwrap().0 += 1;
        changed.notify_all();
        drop(changed.wait_while(state.lock().unwrap(), |(_, answers)| !*answers).unwrap());
        self.registry.instances(type_name)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<Option<Entry>> {
        self.registry.lookup(type_name, instance)
    }

    fn list(&self) -> farcall::names::Result<Listing> {
        self.registry.list()
    }

    fn version(&self) -> farcall::names::Result<u64> {
        self.registry.version()
    }
}

#[test]
fn a_registry_that_never_answers_holds_no_caller_beyond_its_deadline() {
    let registry = Slow::default();
    let runtime = Runtime::builder().registry(registry.clone()).build().unwrap();
    let _export = runtime.export::<dyn Member>("Member", Arc::new(Server)).unwrap();
    let late = (Kind::Deadline, Ran::No);
    let within = Duration::from_millis(10);
    // Each of these waited for ever. They share one lookup, which a thread goes on waiting for.
    assert_eq!(failure(runtime.import_within::<dyn Member>("Member", within)), late);
    let member = unbound(&runtime, "Member").within(within);
    assert_eq!(failure(member.add(1)), late);
    assert_eq!(failure(member.start().add(1).wait()), late);
    assert_eq!(failure(block_on(member.start().add(1))), late);
    let group = runtime.import_each::<dyn Member>(&["Member"]).unwrap();
    let all = group.multi().add(1).within(within).all();
    assert_eq!((all.len(), all.results().count()), (1, 0));
    assert_eq!(registry.asked.0.lock().unwrap().0, 1);
    let patient = unbound(&runtime, "Member");
    let waiting = patient.start().add(1);
    registry.answer();
    assert_eq!(waiting.wait().unwrap(), 2);
    assert_eq!(patient.within(Duration::from_secs(60)).add(1).unwrap(), 2);
}

#[test]
fn a_registry_that_does_not_answer_delays_only_calls_that_ask_it() {
    let registry = Slow::default();
    let runtime = Runtime::builder().registry(registry.clone()).build().unwrap();
    let export = runtime.export::<dyn Member>("Member", Arc::new(Server)).unwrap();
    let (by_name, by_address) =
        (unbound(&runtime, "Member"), unbound(&runtime, &format!("udp://{}/Member", export.address())));
    let asking: Vec<_> = (0..3).map(|n| by_name.start().add(n)).collect();
    // Calls to one name share its lookup.
    registry.wait_for_lookups(1);
    assert_eq!(by_address.start().add(1).wait().unwrap(), 2);
    // The deadline of a call that waits to be bound passes too.
    let (_socket, dead) = silent();
    let dead = unbound(&runtime, &dead).within(Duration::from_millis(1));
    assert_eq!(failure(dead.start().add(1).wait()), (Kind::Deadline, Ran::No));
    registry.answer();
    for (n, call) in (0..).zip(asking) {
        assert_eq!(call.wait().unwrap(), n + 1);
    }
}
