//! With one of two replicas stopped (SIGSTOP), no call of a balanced stub uses up its deadline while the
//! other replica is well. The replicas are processes of their own.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "common/live_bytes.rs"]
mod live_bytes;
#[path = "common/other.rs"]
mod other;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use farcall::balance::Balancer;
use farcall::names::Memory;
use farcall::{CallFailed, Kind, Ran, Runtime};
use other::{Other, ROLE, URL};

#[farcall::interface]
trait Replica {
    #[idempotent]
    fn read(&self, content: &[u8]) -> farcall::Result<u64>;
    fn write(&self, content: &[u8]) -> farcall::Result<u64>;
}

struct Server;

impl Replica for Server {
    fn read(&self, content: &[u8]) -> farcall::Result<u64> {
        Ok(content.len() as u64)
    }

    fn write(&self, content: &[u8]) -> farcall::Result<u64> {
        Ok(content.len() as u64)
    }
}

#[farcall::interface]
trait Front {
    /// Calls the replicas so many times. Returns how many calls have failed.
    fn read_often(&self, calls: u64) -> farcall::Result<u64>;
}

const DEADLINE: Duration = Duration::from_secs(1);
/// The calls of each kind after a member has stopped. It gets some of the first ones.
const CALLS: usize = 300;
/// Longer than what a slot of the shared memory holds.
const LONG: usize = 50_000;
/// What a started call kept no copy of once.
const LONGER: usize = 300_000;

#[test]
fn a_process_that_a_test_starts() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let shared_memory = std::env::var(URL).unwrap() == "true";
    let builder = Runtime::builder().registry(Memory::new()).address("127.0.0.1:0".parse().unwrap());
    let runtime = builder.shared_memory(shared_memory).build().unwrap();
    let export = runtime.export::<dyn Replica>("Replica", Arc::new(Server)).unwrap();
    println!("at {}", export.url());
    let _ = std::io::stdin().read(&mut [0]);
}

/// Two replicas, of which `stop` stops the first.
struct Setting {
    replicas: [Other; 2],
    balancer: Balancer<ReplicaClient>,
    stub: ReplicaClient,
    client: Runtime,
}

impl Setting {
    fn new(shared_memory: bool) -> Setting {
        let mut replicas =
            [(); 2].map(|()| Other::start(module_path!(), "replica", &shared_memory.to_string()));
        let scheme = if shared_memory { "shm:" } else { "udp:" };
        let urls = replicas.each_mut().map(|replica| replica.hear("at ").replace("udp:", scheme));
        let client = Runtime::builder().registry(Memory::new()).shared_memory(shared_memory).build().unwrap();
        let group = client.import_each::<dyn Replica>(&urls.each_ref().map(|url| &**url)).unwrap();
        let balancer = group.balancer();
        let stub = balancer.round_robin().within(DEADLINE);
        let setting = Setting { replicas, balancer, stub, client };
        for _ in 0..100 {
            assert_eq!(setting.stub.read(&[1]), Ok(1));
            assert_eq!(setting.stub.write(&[1]), Ok(1));
        }
        assert_eq!(setting.client.stats().links.len(), if shared_memory { 2 } else { 0 });
        setting
    }

    /// Stops the first replica while it has no call.
    fn stop(&self) -> u64 {
        self.replicas[0].stop();
        self.calls()
    }

    /// Returns how many calls have gone to the first replica.
    fn calls(&self) -> u64 {
        self.balancer.members()[0].calls
    }

    /// Makes calls, and returns how they fail. Asserts that some of them have met the stopped member.
    fn failures(&self, call: impl Fn(&ReplicaClient) -> farcall::Result<u64>) -> Vec<(Kind, Ran)> {
        let before = self.stop();
        let made = (0..CALLS).map(|_| call(&self.stub));
        let failed = made.filter_map(|made| made.err().map(CallFailed::from));
        let failed = failed.map(|why| (why.kind(), why.ran())).collect();
        assert!(self.calls() > before, "the stopped member was called");
        failed
    }
}

#[test]
fn no_idempotent_call_uses_up_its_deadline_while_a_member_is_stopped() {
    for shared_memory in [false, true] {
        for len in [8, LONG, LONGER] {
            let content = vec![7; len];
            let failed = Setting::new(shared_memory).failures(|stub| stub.read(&content));
            assert_eq!(failed, [], "shared memory {shared_memory}, {len} bytes");
            let failed = Setting::new(shared_memory).failures(|stub| stub.start().read(&content).wait());
            assert_eq!(failed, [], "started, shared memory {shared_memory}, {len} bytes");
        }
    }
}

#[test]
fn no_call_through_shared_memory_uses_up_its_deadline_while_a_member_is_stopped() {
    for len in [8, LONG, LONGER] {
        let content = vec![7; len];
        let failed = Setting::new(true).failures(|stub| stub.write(&content));
        assert_eq!(failed, [], "{len} bytes");
        let failed = Setting::new(true).failures(|stub| stub.start().write(&content).wait());
        assert_eq!(failed, [], "started, {len} bytes");
    }
}

/// What was sent by UDP may have been executed: the server may have stopped before it said so.
#[test]
fn at_most_one_call_by_udp_that_may_not_run_twice_uses_up_its_deadline() {
    let failed = Setting::new(false).failures(|stub| stub.write(&[7; 8]));
    assert!(failed.is_empty() || failed == [(Kind::Deadline, Ran::Maybe)], "{failed:?}");
}

/// Calls replicas inside a call, whose deadline it inherits.
struct Caller(ReplicaClient);

impl Front for Caller {
    fn read_often(&self, calls: u64) -> farcall::Result<u64> {
        Ok((0..calls).filter(|_| self.0.read(&[1]).is_err()).count() as u64)
    }
}

#[test]
fn a_nested_call_goes_to_another_member_within_the_deadline_that_it_inherits() {
    for shared_memory in [false, true] {
        let setting = Setting::new(shared_memory);
        let names = Memory::new();
        let [front, user] = [(); 2].map(|()| Runtime::builder().registry(names.clone()).build().unwrap());
        let caller = Caller(setting.balancer.round_robin());
        let _export = front.export::<dyn Front>("Front", Arc::new(caller)).unwrap();
        let stub = user.import::<dyn Front>("Front").unwrap().within(2 * DEADLINE);
        assert_eq!(stub.read_often(10), Ok(0));
        let before = setting.stop();
        assert_eq!(stub.read_often(10), Ok(0), "shared memory {shared_memory}");
        assert!(setting.calls() > before, "the stopped member was called");
    }
}

/// The carrier and a further attempt share them.
#[test]
fn a_started_call_keeps_its_arguments_once() {
    let content = vec![7; 1 << 20];
    for shared_memory in [false, true] {
        let setting = Setting::new(shared_memory);
        let kept = || {
            let before = live_bytes::of_this_thread();
            let call = setting.stub.start().read(&content);
            let kept = live_bytes::of_this_thread() - before;
            // On a busy machine its time may pass.
            let _ = call.wait();
            kept as usize
        };
        // The first call of each member leaves buffers that later ones use again.
        let kept = [kept(), kept(), kept(), kept()];
        println!("{} bytes of arguments, shared memory {shared_memory}: {kept:?} bytes", content.len());
        assert!((content.len()..content.len() + 50_000).contains(&kept[3]), "{kept:?}");
    }
}
