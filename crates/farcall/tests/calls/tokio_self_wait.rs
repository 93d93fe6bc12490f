//! Tests of blocking calls on the thread of the executor that would have to execute the call.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::builder;
use farcall::stub::local_async;
use farcall::{CallFailed, Calls, Kind, Ran, Runtime};
use tokio::runtime::Handle;

#[farcall::interface(async)]
pub trait Doubler {
    fn double(&self, n: u32) -> farcall::Result<u32>;
    /// Doubles after another task of the executor has run.
    fn double_later(&self, n: u32) -> farcall::Result<u32>;
    /// Doubles in another thread.
    fn double_elsewhere(&self, n: u32) -> farcall::Result<u32>;
    /// Makes a blocking call of the export with that name. Returns its result or failure as text.
    fn double_by(&self, name: &str, n: u32) -> farcall::Result<String>;
}

#[farcall::interface]
pub trait Adder {
    fn add_one(&self, n: u32) -> farcall::Result<u32>;
}

struct Server(Runtime);

impl DoublerAsync for Server {
    async fn double(&self, n: u32) -> farcall::Result<u32> {
        Ok(n * 2)
    }
    async fn double_later(&self, n: u32) -> farcall::Result<u32> {
        Ok(tokio::spawn(async move { n * 2 }).await.unwrap())
    }
    async fn double_elsewhere(&self, n: u32) -> farcall::Result<u32> {
        Ok(tokio::task::spawn_blocking(move || n * 2).await.unwrap())
    }
    async fn double_by(&self, name: &str, n: u32) -> farcall::Result<String> {
        Ok(match self.0.import::<dyn Doubler>(name)?.double(n) {
            Ok(doubled) => doubled.to_string(),
            Err(why) => CallFailed::from(why).to_string(),
        })
    }
}

impl Adder for Server {
    fn add_one(&self, n: u32) -> farcall::Result<u32> {
        Ok(n + 1)
    }
}

/// Runs a test in a thread of its own. If the test waits for itself, it fails after a minute.
fn ends(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        ended.send(()).unwrap();
    });
    match end.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test waits for itself"),
        _ => thread.join().unwrap(),
    }
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// Runs a test by datagrams, and through shared memory where the system has it.
fn by_each_carrier(test: fn(Runtime)) {
    for shared in [false, true] {
        ends(move || test(builder().shared_memory(shared).build().unwrap()));
    }
}

fn export(runtime: &Runtime) -> (farcall::Export, DoublerClient) {
    let export =
        runtime.export_async("Doubler/here", DoublerAsyncServer::new(Server(runtime.clone()))).unwrap();
    (export, runtime.import::<dyn Doubler>("Doubler/here").unwrap())
}

/// Asserts that a call fails because its thread would wait for itself.
fn is_refused<T: std::fmt::Debug>(result: farcall::Result<T>, ran: Ran) {
    is_hint(&CallFailed::from(result.unwrap_err()), ran);
}

fn is_hint(why: &CallFailed, ran: Ran) {
    assert_eq!((why.kind(), why.ran()), (Kind::Local, ran), "{why}");
    assert!(why.detail().contains("`.await`"), "{why}");
}

#[test]
fn a_blocking_call_that_its_own_thread_would_execute_is_refused() {
    by_each_carrier(|runtime| {
        current_thread().block_on(async {
            let (_export, doubler) = export(&runtime);
            is_refused(doubler.double(1), Ran::No);
            is_refused(doubler.within(Duration::from_secs(1000)).double(1), Ran::No);
            is_refused(doubler.start().double(1).wait(), Ran::Maybe);
            assert_eq!(doubler.start().double(21).await, Ok(42));
            // A blocking call is also refused in a task.
            let task = tokio::spawn(async move {
                is_refused(doubler.double(1), Ran::No);
                assert_eq!(doubler.start().double(21).await, Ok(42));
            });
            task.await.unwrap();
        });
    });
}

#[test]
fn a_blocking_call_in_a_procedure_that_the_same_thread_executes_is_refused() {
    by_each_carrier(|runtime| {
        current_thread().block_on(async {
            let (_export, doubler) = export(&runtime);
            let why = doubler.start().double_by("Doubler/here", 1).await.unwrap();
            assert!(why.contains("`.await`"), "{why}");
        });
    });
}

#[test]
fn blocking_waits_for_groups_and_for_sets_of_calls_are_refused() {
    by_each_carrier(|runtime| {
        current_thread().block_on(async {
            let (_export, doubler) = export(&runtime);
            let group = runtime.import_each::<dyn Doubler>(&["Doubler", "Doubler"]).unwrap();
            // The runtime knows the exports that execute the calls only after the first call has bound them.
            for ran in [Ran::Maybe, Ran::No] {
                let all = group.multi().double(1).all();
                assert_eq!(all.failures().count(), 2);
                all.failures().for_each(|(_, why)| is_hint(why, ran));
            }
            let one = runtime.import_each::<dyn Doubler>(&["Doubler"]).unwrap();
            for _ in 0..2 {
                one.multi().double(1).all().failures().for_each(|(_, why)| is_hint(why, Ran::No));
            }
            let all = group.multi().double(2).start().all().await;
            assert_eq!(all.results().map(|(_, n)| *n).collect::<Vec<_>>(), [4, 4]);
            let mut started = group.multi().double(1).start();
            is_refused(started.wait_next().unwrap().result, Ran::Maybe);

            let mut calls = Calls::new();
            calls.add((), doubler.start().double(1));
            is_refused(calls.wait().unwrap().1, Ran::Maybe);
        });
    });
}

#[test]
fn a_thread_may_wait_for_a_result_that_was_sent_already() {
    by_each_carrier(|runtime| {
        current_thread().block_on(async {
            let (export, doubler) = export(&runtime);
            let mut calls = Calls::new();
            for n in 0..20 {
                let call = doubler.start().double(n);
                calls.add(n, doubler.start().double(n));
                while runtime.stats().exports[0].procedures[0].results < u64::from(2 * n + 2) {
                    tokio::task::yield_now().await;
                }
                assert_eq!(call.wait(), Ok(2 * n));
                assert_eq!(calls.wait(), Some((n, Ok(2 * n))));
            }
            drop(export);
        });
    });
}

#[test]
fn a_thread_that_does_not_drive_the_executor_may_block() {
    by_each_carrier(|runtime| {
        let tokio = current_thread();
        let (doubler, handle) = (mpsc::channel(), mpsc::channel());
        let driver = {
            let runtime = runtime.clone();
            thread::spawn(move || {
                tokio.block_on(async {
                    let (_export, client) = export(&runtime);
                    let blocking = client.clone();
                    let blocked = tokio::task::spawn_blocking(move || blocking.double(21)).await.unwrap();
                    assert_eq!(blocked, Ok(42));
                    handle.0.send(Handle::current()).unwrap();
                    let (done, end) = mpsc::channel();
                    doubler.0.send((client, done)).unwrap();
                    tokio::task::spawn_blocking(move || end.recv()).await.unwrap().unwrap();
                });
            })
        };
        let _inside = handle.1.recv().unwrap();
        let _inside = _inside.enter();
        let (client, done) = doubler.1.recv().unwrap();
        assert_eq!(client.double(21), Ok(42));
        assert_eq!(client.start().double(21).wait(), Ok(42));
        // This is another executor of one thread, which executes no export of this process.
        assert_eq!(current_thread().block_on(async { client.double(21) }), Ok(42));
        done.send(()).unwrap();
        driver.join().unwrap();
    });
}

#[test]
fn a_thread_that_executes_one_export_may_block_for_others() {
    by_each_carrier(|runtime| {
        let other = builder().build().unwrap();
        let adding = other.export::<dyn Adder>("Adder", std::sync::Arc::new(Server(other.clone()))).unwrap();
        current_thread().block_on(async {
            let (_export, _) = export(&runtime);
            let adder = runtime.import::<dyn Adder>(&adding.url()).unwrap();
            assert_eq!(adder.add_one(1), Ok(2));
            assert_eq!(adder.start().add_one(1).wait(), Ok(2));
            let group = runtime.import_each::<dyn Adder>(&[&adding.url()]).unwrap();
            assert_eq!(group.multi().add_one(1).first().unwrap().1, 2);
            // The export's server itself answers pings and requests for its description.
            farcall::dynamic::Pinger::import(&runtime, "Doubler/here").unwrap().ping().unwrap();
            farcall::dynamic::describe(&runtime, "Doubler/here").unwrap();
        });
    });
}

#[test]
fn a_thread_of_a_multi_threaded_executor_may_block() {
    by_each_carrier(|runtime| {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        tokio.block_on(async {
            let (_export, doubler) = export(&runtime);
            assert_eq!(doubler.double(21), Ok(42));
            assert_eq!(doubler.start().double_by("Doubler/here", 21).await.unwrap(), "42");
        });
    });
}

#[test]
fn a_call_within_the_process_is_refused_if_its_procedure_suspends() {
    ends(|| {
        let runtime = builder().build().unwrap();
        let doubler: DoublerClient = local_async(DoublerAsyncServer::new(Server(runtime)));
        current_thread().block_on(async {
            assert_eq!(doubler.double(21), Ok(42), "a procedure that never suspends needs no executor");
            assert_eq!(doubler.double_elsewhere(21), Ok(42), "other threads can wake the procedure");
            is_refused(doubler.double_later(21), Ran::Maybe);
            is_refused(doubler.start().double_later(21).wait(), Ran::Maybe);
            assert_eq!(doubler.start().double_later(21).await, Ok(42));
        });
    });
}
