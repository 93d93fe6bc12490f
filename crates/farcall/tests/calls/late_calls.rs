//! Tests of calls whose time is over before they are made: they are not sent, and did not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use farcall::{CallFailed, Group, Kind, Ran, Stream, stub};

use crate::common::{block_on, builder};

#[farcall::interface]
trait Counter {
    fn count(&self) -> farcall::Result<u64>;
    fn up_to(&self, n: u64) -> farcall::Result<Stream<u64>>;
    fn sum(&self, numbers: Stream<u64>) -> farcall::Result<u64>;
}

/// Counts the calls of all its procedures.
#[derive(Default)]
struct Server(AtomicU64);

impl Counter for Server {
    fn count(&self) -> farcall::Result<u64> {
        Ok(self.0.fetch_add(1, Relaxed))
    }

    fn up_to(&self, n: u64) -> farcall::Result<Stream<u64>> {
        self.0.fetch_add(1, Relaxed);
        Ok(Stream::of(0..n))
    }

    fn sum(&self, numbers: Stream<u64>) -> farcall::Result<u64> {
        self.0.fetch_add(1, Relaxed);
        numbers.sum::<farcall::Result<u64>>()
    }
}

#[track_caller]
fn is_unsent<T>(outcome: farcall::Result<T>) {
    let why = CallFailed::from(outcome.err().expect("the time is over"));
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
}

/// Calls by a stub in each way that there is, without any time.
fn call_too_late(stub: &CounterClient) {
    let late = stub.clone().within(Duration::ZERO);
    is_unsent(late.count());
    is_unsent(late.start().count().wait());
    is_unsent(block_on(late.start().count()));
    is_unsent(late.up_to(3).and_then(|mut stream| stream.next().unwrap_or(Ok(0))));
    is_unsent(late.sum(Stream::of(0..3)));
    is_unsent(late.start().sum(Stream::of(0..3)).wait());
    let group = Group::of([("a", late.clone()), ("b", late)]);
    assert!(group.multi().count().all().iter().all(|(_, outcome)| {
        matches!(outcome, farcall::multi::Outcome::Failed(why) if (why.kind(), why.ran()) == (Kind::Deadline, Ran::No))
    }));
}

#[test]
fn a_call_whose_time_is_over_runs_on_no_carrier() {
    for shared_memory in [false, true] {
        let server = Arc::new(Server::default());
        let exporter = builder().build().unwrap();
        let export = exporter.export::<dyn Counter>("Counter", server.clone()).unwrap();
        let importer = builder().shared_memory(shared_memory).build().unwrap();
        let stub = importer.import::<dyn Counter>(&format!("udp://{}/Counter", export.address())).unwrap();
        assert_eq!(stub.count().unwrap(), 0);
        call_too_late(&stub);
        call_too_late(&stub);
        // No call ran, and the binding is as good as before.
        assert_eq!(stub.count().unwrap(), 1, "shared memory: {shared_memory}");
    }
    let server = Arc::new(Server::default());
    let local = stub::local::<dyn Counter>(server.clone());
    call_too_late(&local);
    assert_eq!(local.count().unwrap(), 0);
}
