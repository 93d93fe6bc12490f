//! Calls that wait for a worker: networks take turns, then hosts, however many conversations or connections a
//! host has, and however many hosts a network has.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, io};

use crate::common::builder;
use crate::other::{Other, ROLE, URL};
use farcall::env::{Env, Socket, SocketOptions};
use farcall::memory::Counters;
use farcall::{CallFailed, Kind, Ran, Runtime, System};

#[farcall::interface]
trait Turnstile {
    /// Reports that it has begun, and ends when the test lets it.
    fn pass(&self, who: u32) -> farcall::Result<()>;
    /// Does what `pass` does, in a thread of its own.
    #[blocking]
    fn stay(&self, who: u32) -> farcall::Result<()>;
}

struct Guarded {
    begun: Mutex<Sender<u32>>,
    through: Mutex<Receiver<()>>,
}

impl Turnstile for Guarded {
    fn pass(&self, who: u32) -> farcall::Result<()> {
        self.begun.lock().unwrap().send(who).unwrap();
        self.through.lock().unwrap().recv_timeout(GUARD).unwrap();
        Ok(())
    }

    fn stay(&self, who: u32) -> farcall::Result<()> {
        self.pass(who)
    }
}

/// The test fails after this time. Nothing here takes that long.
const GUARD: Duration = Duration::from_secs(60);

/// The operating system of another host, for which one of the loopback addresses stands.
struct Elsewhere(u8);

impl Env for Elsewhere {
    system_does! { now, spawn, event, entropy }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        let host = IpAddr::V4(Ipv4Addr::new(127, 0, 0, self.0));
        System.bind(SocketAddr::new(host, address.port()), options)
    }
}

fn at(host: u8) -> farcall::Builder {
    builder().env(Arc::new(Elsewhere(host))).shared_memory(false)
}

/// A server whose only worker executes call 0. Calls 1 and on, each from a runtime of its own, wait for the
/// worker.
struct Crowd {
    _server: (Runtime, farcall::Export),
    url: String,
    counters: (Runtime, Counters),
    begins: Receiver<u32>,
    let_through: Sender<()>,
    callers: Vec<(TurnstileClient, farcall::Pending<()>, Runtime)>,
}

impl Crowd {
    fn new(callers: u32, queue: usize, of: impl Fn() -> farcall::Builder) -> Crowd {
        Crowd::of_hosts(callers, queue, |_| of())
    }

    /// Makes a crowd in which each caller has a host of its own, as `of` says.
    fn of_hosts(callers: u32, queue: usize, of: impl Fn(u32) -> farcall::Builder) -> Crowd {
        let (begun, begins) = channel();
        let (let_through, through) = channel();
        let guarded = Arc::new(Guarded { begun: Mutex::new(begun), through: Mutex::new(through) });
        let runtime = builder().workers(1).threads(2).queue(queue).queue_time(GUARD).build().unwrap();
        let export = runtime.export::<dyn Turnstile>("Turnstile", guarded).unwrap();
        let reader = at(9).build().unwrap();
        let counters = (reader.clone(), Counters::import(&reader, export.address()).unwrap());
        let url = export.url();
        let mut crowd =
            Crowd { _server: (runtime, export), url, counters, begins, let_through, callers: Vec::new() };
        let clients: Vec<_> = (0..callers).map(|who| crowd.client(of(who))).collect();
        for ((client, runtime), who) in clients.into_iter().zip(0..) {
            let call = client.start().pass(who);
            crowd.callers.push((client, call, runtime));
            match who {
                0 => assert_eq!(crowd.next(), 0),
                waiting => crowd.wait_until_queued(waiting as usize),
            }
        }
        crowd
    }

    fn client(&self, of: farcall::Builder) -> (TurnstileClient, Runtime) {
        let runtime = of.build().unwrap();
        (runtime.import::<dyn Turnstile>(&self.url).unwrap(), runtime)
    }

    fn wait_until_queued(&self, calls: usize) {
        while self.counters.1.read().unwrap().queued != calls as u64 {}
    }

    fn next(&self) -> u32 {
        self.begins.recv_timeout(GUARD).unwrap()
    }

    /// Lets the waiting calls run. Returns their numbers in the order of execution, and the failures.
    fn end(self) -> (Vec<u32>, Vec<CallFailed>) {
        let ends = std::thread::spawn(move || {
            let outcomes = self.callers.into_iter().map(|(_client, call, _runtime)| call.wait());
            outcomes.filter_map(|outcome| outcome.err().map(CallFailed::from)).collect()
        });
        let mut order = Vec::new();
        while !ends.is_finished() {
            let _ = self.let_through.send(());
            order.extend(self.begins.recv_timeout(Duration::from_millis(10)));
        }
        (order, ends.join().unwrap())
    }
}

const CALLERS: u32 = 16;
/// The number of the other host's call.
const OTHER: u32 = 99;

#[test]
fn a_host_waits_for_one_call_of_each_other_host_whatever_conversations_that_has() {
    for of in [|| at(2), || builder().shared_memory(true)] {
        let crowd = Crowd::new(CALLERS, 64, of);
        let (other, _runtime) = crowd.client(at(3));
        let call = other.start().pass(OTHER);
        crowd.wait_until_queued(CALLERS as usize);
        let (order, failed) = crowd.end();
        call.wait().unwrap();
        assert!(failed.is_empty() && order[..2].contains(&OTHER), "{order:?}");
    }
}

#[test]
fn a_full_queue_makes_the_newest_call_of_the_host_that_has_most_there_make_way() {
    for of in [|| at(2), || builder().shared_memory(true)] {
        let mut crowd = Crowd::new(CALLERS, CALLERS as usize - 1, of);
        let (other, _runtime) = crowd.client(at(3));
        let call = other.start().pass(OTHER);
        let (_client, newest, _its) = crowd.callers.pop().unwrap();
        let why = CallFailed::from(newest.wait().expect_err("it makes way"));
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
        assert!(why.detail().contains("15 calls wait for a worker (FARCALL_QUEUE)"), "{why}");
        let (order, failed) = crowd.end();
        call.wait().expect("it has its place");
        assert!(failed.is_empty() && order[..2].contains(&OTHER), "{order:?}");
    }
}

/// All loopback addresses are one network, and the users of the machine, who call through shared memory,
/// another one.
#[test]
fn a_network_with_one_call_of_each_of_many_hosts_leaves_another_network_its_place_and_its_turn() {
    let mut crowd = Crowd::of_hosts(CALLERS, CALLERS as usize - 1, |who| at(10 + who as u8));
    let (other, _runtime) = crowd.client(builder().shared_memory(true));
    let call = other.start().pass(OTHER);
    let (_client, newest, _its) = crowd.callers.pop().unwrap();
    let why = CallFailed::from(newest.wait().expect_err("it makes way"));
    assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
    let (order, failed) = crowd.end();
    call.wait().expect("it has its place");
    assert!(failed.is_empty() && order[..2].contains(&OTHER), "{order:?}");
}

#[test]
fn a_network_whose_waiting_calls_hold_all_other_threads_leaves_another_network_its_first() {
    const THREADS: u32 = 64;
    let runtime = builder().threads(THREADS as usize).queue_time(GUARD).build().unwrap();
    let (begun, begins) = channel();
    let (let_through, through) = channel();
    let guarded = Arc::new(Guarded { begun: Mutex::new(begun), through: Mutex::new(through) });
    let export = runtime.export::<dyn Turnstile>("Turnstile", guarded).unwrap();
    let call = |of: farcall::Builder, who| {
        let runtime = of.build().unwrap();
        let turnstile = runtime.import::<dyn Turnstile>(&export.url()).unwrap();
        (turnstile.start().stay(who), turnstile, runtime)
    };
    let mut calls: Vec<_> = (0..THREADS).map(|who| call(at(10 + who as u8), who)).collect();
    let next = || begins.recv_timeout(GUARD).unwrap();
    // One thread receives, and one is kept.
    (2..THREADS).for_each(|_| assert!(next() < THREADS));
    calls.push(call(builder().shared_memory(true), OTHER));
    assert_eq!(next(), OTHER);
    calls.iter().for_each(|_| let_through.send(()).unwrap());
    calls.into_iter().for_each(|(call, ..)| call.wait().unwrap());
}

#[test]
fn a_process_that_fills_the_queue_through_shared_memory_does_not_shut_another_process_out() {
    let mut crowd = Crowd::new(CALLERS, CALLERS as usize - 1, || builder().shared_memory(true));
    let mut other = Other::start(module_path!(), "call", &crowd.url.replace("udp:", "shm:"));
    let (_client, newest, _its) = crowd.callers.pop().unwrap();
    let why = CallFailed::from(newest.wait().expect_err("it makes way"));
    assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
    let (order, failed) = crowd.end();
    other.hear("it had its turn");
    assert!(failed.is_empty() && order[..2].contains(&OTHER), "{order:?}");
}

/// Not a test by itself: the other process runs this.
#[test]
fn a_process_that_a_test_starts() {
    if env::var(ROLE).is_err() {
        return;
    }
    let runtime = builder().build().unwrap();
    let turnstile = runtime.import::<dyn Turnstile>(&env::var(URL).unwrap()).unwrap();
    turnstile.pass(OTHER).unwrap();
    println!("it had its turn");
}
