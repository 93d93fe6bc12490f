//! Tests that a client which was told of its server's drain calls the next server, however it calls.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::names::{Entry, Memory, Registry as _};
use farcall::{Export, Kind, Pending, Ran, Result, Runtime, Stream};

use crate::common::block_on;

#[farcall::interface]
pub trait Replica {
    fn number(&self) -> Result<u32>;
    /// Returns when the test says so.
    fn hold(&self) -> Result<()>;
    fn numbers(&self) -> Result<Stream<u32>>;
    fn sum(&self, numbers: Stream<u32>) -> Result<u32>;
}

struct Server {
    number: u32,
    began: Sender<()>,
    release: Mutex<Receiver<()>>,
}

impl Replica for Server {
    fn number(&self) -> Result<u32> {
        Ok(self.number)
    }

    fn hold(&self) -> Result<()> {
        let _ = self.began.send(());
        let _ = self.release.lock().unwrap().recv();
        Ok(())
    }

    fn numbers(&self) -> Result<Stream<u32>> {
        Ok(Stream::new([Ok(self.number)]))
    }

    fn sum(&self, numbers: Stream<u32>) -> Result<u32> {
        let numbers = numbers.collect::<Result<Vec<u32>>>()?;
        Ok(self.number + numbers.iter().sum::<u32>())
    }
}

/// A server, what it tells when it holds a call, and what ends that call.
struct Serving {
    _export: Export,
    runtime: Runtime,
    began: Receiver<()>,
    release: Sender<()>,
}

fn runtime(names: &Memory) -> Runtime {
    Runtime::builder().registry(names.clone()).shared_memory(false).build().unwrap()
}

fn serve(names: &Memory, number: u32) -> Serving {
    let ((begins, began), (release, released)) = (channel(), channel());
    let server = Server { number, began: begins, release: Mutex::new(released) };
    let runtime = runtime(names);
    let export = runtime.export::<dyn Replica>("Replica/a", Arc::new(server)).unwrap();
    Serving { _export: export, runtime, began, release }
}

/// Binds by `bind`, has the server drain and tell the client so, and calls `then` with the binding. By then
/// another server, with number 2, has taken the name over.
fn after_a_drain<B>(bind: impl FnOnce(&Runtime) -> B, then: impl FnOnce(B)) {
    let names = Memory::new();
    let (bound, _clients) = drained(&names, bind);
    let _second = serve(&names, 2);
    then(bound);
}

/// Binds by `bind`, and has the server drain, tell the client so, and end.
fn drained<B>(names: &Memory, bind: impl FnOnce(&Runtime) -> B) -> (B, Runtime) {
    let (first, clients) = (serve(names, 1), runtime(names));
    let (bound, holder) = (bind(&clients), replica(&clients));
    std::thread::scope(|scope| {
        // The thread that waits for this call receives the server's word.
        let held = scope.spawn(|| holder.hold());
        first.began.recv().unwrap();
        // The word is sent before the result of the held call, for which this does not wait.
        assert!(!first.runtime.drain(Duration::from_millis(1)), "a call has not ended");
        first.release.send(()).unwrap();
        assert_eq!(held.join().unwrap(), Ok(()));
    });
    (bound, clients)
}

/// Calls while the name is that of a server which does not answer. It moves when that server is asked.
fn while_the_name_moves(call: impl FnOnce(&ReplicaClient) -> Result<u32>) {
    let names = Memory::new();
    let (replica, _clients) = drained(&names, replica);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (socket, waker) = (silent.local_addr().unwrap(), silent.try_clone().unwrap());
    let address = format!("udp://{socket}").parse().unwrap();
    let entry = Entry::new("Replica".parse().unwrap(), "a".parse().unwrap(), address, 1);
    let published = names.publish(&entry).unwrap();
    let (stop, stopped) = channel::<()>();
    let names = &names;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            silent.recv(&mut [0; 2_000]).unwrap();
            drop(published);
            let _second = serve(names, 2);
            drop(silent);
            // It serves until the call has ended.
            let _ = stopped.recv();
        });
        let called = call(&replica);
        drop(stop);
        // If the call asked nobody, the other thread still waits for its question.
        waker.send_to(&[], socket).unwrap();
        assert_eq!(called, Ok(2));
    });
}

fn replica(clients: &Runtime) -> ReplicaClient {
    clients.import::<dyn Replica>("Replica/a").unwrap()
}

#[test]
fn a_call_goes_to_the_next_server() {
    after_a_drain(replica, |replica| assert_eq!(replica.number(), Ok(2)));
}

#[test]
fn a_started_call_goes_to_the_next_server() {
    after_a_drain(replica, |replica| assert_eq!(replica.start().number().wait(), Ok(2)));
}

#[test]
fn an_awaited_call_goes_to_the_next_server() {
    after_a_drain(replica, |replica| assert_eq!(block_on(replica.start().number()), Ok(2)));
}

#[test]
fn a_cancelled_call_goes_to_no_other_server() {
    let cancelled = |end: fn(Pending<u32>) -> Result<u32>| {
        after_a_drain(replica, |replica| {
            let mut call = replica.start().number();
            call.cancel();
            let why = end(call).unwrap_err();
            assert_eq!(
                (why.call_failed().map(|why| why.kind()), why.ran()),
                (Some(Kind::Cancelled), Ran::No)
            );
        });
    };
    cancelled(Pending::wait);
    cancelled(block_on);
}

#[test]
fn a_call_of_a_group_goes_to_the_next_server() {
    let group = |clients: &Runtime| clients.import_each::<dyn Replica>(&["Replica/a"]).unwrap();
    after_a_drain(group, |group| {
        let all = group.multi().number().all();
        assert_eq!(all.results().map(|(_, number)| *number).collect::<Vec<_>>(), [2], "{all:?}");
    });
}

#[test]
fn a_started_call_of_a_balanced_stub_goes_to_the_next_server() {
    let group = |clients: &Runtime| clients.import_each::<dyn Replica>(&["Replica/a"]).unwrap();
    after_a_drain(group, |group| assert_eq!(group.balanced().start().number().wait(), Ok(2)));
}

#[test]
fn a_call_with_streams_goes_to_the_next_server() {
    after_a_drain(replica, |replica| {
        let numbers = replica.numbers().unwrap().collect::<Result<Vec<_>>>();
        assert_eq!(numbers, Ok(vec![2]));
    });
    after_a_drain(replica, |replica| {
        let numbers = replica.start().numbers().wait().unwrap().collect::<Result<Vec<_>>>();
        assert_eq!(numbers, Ok(vec![2]));
    });
}

#[test]
fn a_call_that_sends_a_stream_goes_to_the_next_server_or_says_that_it_did_not_run() {
    after_a_drain(replica, |replica| match replica.sum(Stream::new([Ok(3), Ok(4)])) {
        Ok(sum) => assert_eq!(sum, 9),
        Err(why) => assert_eq!(why.ran(), Ran::No, "{why}"),
    });
    after_a_drain(replica, |replica| match replica.start().sum(Stream::new([Ok(3), Ok(4)])).wait() {
        Ok(sum) => assert_eq!(sum, 9),
        Err(why) => assert_eq!(why.ran(), Ran::No, "{why}"),
    });
}

#[test]
fn a_client_that_has_never_called_is_told_too() {
    let names = Memory::new();
    let (first, clients) = (serve(&names, 1), runtime(&names));
    let replica = clients.import::<dyn Replica>("Replica/a").unwrap();
    assert!(first.runtime.drain(Duration::from_secs(60)), "there are no calls");
    drop(first);
    let _second = serve(&names, 2);
    assert_eq!(replica.number(), Ok(2));
}

#[test]
fn a_call_follows_a_name_that_moves_while_the_former_server_is_asked() {
    while_the_name_moves(|replica| replica.number());
    while_the_name_moves(|replica| replica.start().number().wait());
}

/// The only server drains, ends, and comes back while calls are made.
#[test]
fn a_stub_that_waits_for_its_server_loses_no_call_while_the_only_one_restarts() {
    let names = Memory::new();
    let mut serving = Some(serve(&names, 0));
    let clients = runtime(&names);
    let waiting = replica(&clients).wait_for_server();
    let (over, calls) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let (_over, waiting, calls, over) = (Over(&over), &waiting, &calls, &over);
        let goes_on = move || !over.load(SeqCst);
        for way in 0..3 {
            scope.spawn(move || {
                while goes_on() {
                    let called = match way {
                        0 => waiting.number(),
                        1 => waiting.start().number().wait(),
                        _ => block_on(waiting.start().number()),
                    };
                    if called.is_err() {
                        drop(Over(over));
                    }
                    assert!(called.is_ok(), "{called:?}");
                    calls.fetch_add(1, SeqCst);
                }
            });
        }
        for number in 1..=5 {
            let Serving { runtime, .. } = serving.take().unwrap();
            assert!(runtime.drain(Duration::from_secs(60)));
            drop(runtime);
            serving = Some(serve(&names, number));
            let before = calls.load(SeqCst);
            while calls.load(SeqCst) < before + 10 && goes_on() {
                std::thread::yield_now();
            }
        }
    });
}

/// Ends the calling threads, also when the thread that restarts the server panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_call_that_waits_for_a_server_ends_at_its_deadline_and_when_it_is_cancelled() {
    let names = Memory::new();
    let (first, clients) = (serve(&names, 1), runtime(&names));
    let replica = replica(&clients).wait_for_server();
    assert_eq!(replica.number(), Ok(1));
    assert!(first.runtime.drain(Duration::from_secs(60)));
    drop(first);
    let soon = replica.within(Duration::from_millis(50));
    for late in [soon.number(), soon.start().number().wait(), block_on(soon.start().number())] {
        let why = late.unwrap_err();
        assert_eq!((why.call_failed().map(|why| why.kind()), why.ran()), (Some(Kind::Deadline), Ran::No));
    }
    let mut started = replica.start().number();
    started.cancel();
    let why = block_on(started).unwrap_err();
    assert_eq!((why.call_failed().map(|why| why.kind()), why.ran()), (Some(Kind::Cancelled), Ran::No));
    let waits = replica.start().number();
    let _second = serve(&names, 2);
    assert_eq!(block_on(waits), Ok(2));
}
