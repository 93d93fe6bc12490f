//! Tests of exported servers of `async fn`s, with several executors.

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::common::{block_on, runtime};
use farcall::{CallFailed, Kind, Ran, Task};

#[farcall::interface(async)]
pub trait Slow {
    fn double(&self, n: u32) -> farcall::Result<u32>;
    fn panic(&self) -> farcall::Result<()>;
    /// Waits for `release`, and returns the time left until the deadline before and after, in milliseconds.
    fn hold(&self) -> farcall::Result<(u64, u64)>;
    fn release(&self) -> farcall::Result<u32>;
}

#[derive(Default)]
struct Server {
    held: Mutex<(u32, Vec<Waker>)>,
}

fn remaining() -> u64 {
    farcall::context().remaining().map_or(0, |left| left.as_millis() as u64)
}

impl SlowAsync for Server {
    async fn double(&self, n: u32) -> farcall::Result<u32> {
        Ok(n * 2)
    }

    async fn panic(&self) -> farcall::Result<()> {
        std::panic::resume_unwind(Box::new("ouch"))
    }

    async fn hold(&self) -> farcall::Result<(u64, u64)> {
        let before = remaining();
        let mut round = None;
        poll_fn(|context| {
            let mut held = self.held.lock().unwrap();
            // The round is read when the call can first be released, so that `release` counts each call.
            if held.0 > *round.get_or_insert(held.0) {
                return Poll::Ready(());
            }
            held.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        Ok((before, remaining()))
    }

    async fn release(&self) -> farcall::Result<u32> {
        let mut held = self.held.lock().unwrap();
        if held.1.is_empty() {
            return Ok(0);
        }
        held.0 += 1;
        let wakers = std::mem::take(&mut held.1);
        drop(held);
        let count = wakers.len() as u32;
        wakers.into_iter().for_each(Waker::wake);
        Ok(count)
    }
}

/// Calls the server in every way: calls that return, panic, and are suspended together.
fn exercise(slow: &SlowClient) {
    assert_eq!(slow.double(21).unwrap(), 42);
    let why = CallFailed::from(slow.panic().unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Panicked, Ran::Yes));
    assert!(why.detail().contains("ouch"), "{why}");

    let held: Vec<_> = (0..50).map(|_| slow.within(Duration::from_secs(1000)).start().hold()).collect();
    let mut released = 0;
    while released < 50 {
        released += slow.release().unwrap();
    }
    for call in held {
        let (before, after) = call.wait().unwrap();
        assert!(before > 0 && after > 0 && after <= before, "a procedure keeps its context across `.await`");
    }
}

#[test]
fn any_executor_can_run_the_calls() {
    let runtime = runtime();
    let threads = |task: Task| drop(std::thread::spawn(move || block_on(task)));
    let _export = runtime.export_async_on("Slow", SlowAsyncServer::new(Server::default()), threads).unwrap();
    exercise(&runtime.import::<dyn Slow>("Slow").unwrap());
}

#[test]
fn a_task_that_its_executor_drops_may_have_run() {
    let runtime = runtime();
    let _export = runtime.export_async_on("Slow", SlowAsyncServer::new(Server::default()), drop).unwrap();
    let why = runtime.import::<dyn Slow>("Slow").unwrap().double(1).unwrap_err();
    assert_eq!((CallFailed::from(why.clone()).kind(), why.ran()), (Kind::Other, Ran::Maybe));
}

#[test]
fn an_executor_that_panics_fails_the_call_and_nothing_else() {
    let runtime = runtime();
    let panics = |_: Task| std::panic::resume_unwind(Box::new("no room"));
    let _broken =
        runtime.export_async_on("Slow/broken", SlowAsyncServer::new(Server::default()), panics).unwrap();
    let threads = |task: Task| drop(std::thread::spawn(move || block_on(task)));
    let _export =
        runtime.export_async_on("Slow/whole", SlowAsyncServer::new(Server::default()), threads).unwrap();
    let broken = runtime.import::<dyn Slow>("Slow/broken").unwrap();
    let whole = runtime.import::<dyn Slow>("Slow/whole").unwrap();
    for n in 0..20 {
        assert_eq!(broken.double(n).unwrap_err().ran(), Ran::Maybe);
        assert_eq!(whole.double(n).unwrap(), 2 * n);
    }
}

#[test]
#[cfg(feature = "tokio")]
fn tokio_can_run_the_calls() {
    let runtime = runtime();
    assert!(runtime.export_async("Slow", SlowAsyncServer::new(Server::default())).is_err());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let _inside = tokio.enter();
    let _export = runtime.export_async("Slow", SlowAsyncServer::new(Server::default())).unwrap();
    exercise(&runtime.import::<dyn Slow>("Slow").unwrap());
}
