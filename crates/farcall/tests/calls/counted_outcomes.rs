//! Tests that a server counts calls that their callers gave up, and late ones, apart from failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran, Runtime, Stream, context};

use crate::common::builder;

#[farcall::interface]
trait Feed {
    fn watch(&self) -> farcall::Result<Stream<u64>>;
    /// Waits until its caller waits no more, and fails then.
    fn wait(&self) -> farcall::Result<()>;
    fn fail(&self) -> farcall::Result<()>;
}

/// Notes whether a call of `wait` has begun.
#[derive(Default)]
struct Server(AtomicBool);

impl Feed for Server {
    fn watch(&self) -> farcall::Result<Stream<u64>> {
        Ok(Stream::of(0..))
    }

    fn wait(&self) -> farcall::Result<()> {
        self.0.store(true, Relaxed);
        context().cancelled().wait(Duration::MAX);
        Err(CallFailed::new(Kind::Other, Ran::Yes).because("it was interrupted").into())
    }

    fn fail(&self) -> farcall::Result<()> {
        Err(CallFailed::new(Kind::Other, Ran::Yes).because("no feed").into())
    }
}

/// Returns how many calls of a procedure were cancelled, were late, and failed.
fn counted(server: &Runtime, procedure: usize) -> [u64; 3] {
    let of = &server.stats().exports[0].procedures[procedure];
    assert_eq!(of.results + of.exceptions, 0, "{of:?}");
    [of.cancelled, of.late, of.failures]
}

fn wait_for(server: &Runtime, procedure: usize, outcomes: [u64; 3]) {
    while counted(server, procedure) != outcomes || server.stats().exports[0].running > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_watch_that_its_client_leaves_and_a_passed_deadline_are_no_failures() {
    for shared_memory in [false, true] {
        let (server, waits) = (builder().build().unwrap(), Arc::new(Server::default()));
        let export = server.export::<dyn Feed>("Feed", waits.clone()).unwrap();
        let client = builder().shared_memory(shared_memory).build().unwrap();
        let feed = client.import::<dyn Feed>(&format!("udp://{}/Feed", export.address())).unwrap();
        let mut watch = feed.watch().unwrap();
        assert_eq!(watch.next(), Some(Ok(0)));
        drop(watch);
        wait_for(&server, 0, [1, 0, 0]);
        let mut left = feed.start().wait();
        while !waits.0.load(Relaxed) {
            std::thread::yield_now();
        }
        left.cancel();
        left.wait().unwrap_err();
        wait_for(&server, 1, [1, 0, 0]);
        // A call that does not begin in time is not counted.
        while counted(&server, 1) == [1, 0, 0] {
            feed.clone().within(Duration::from_millis(50)).wait().unwrap_err();
        }
        let [cancelled, late, failed] = counted(&server, 1);
        assert!((cancelled, failed) == (1, 0) && late > 0, "{cancelled} cancelled, {failed} failed");
        feed.fail().unwrap_err();
        wait_for(&server, 2, [0, 0, 1]);
    }
}
