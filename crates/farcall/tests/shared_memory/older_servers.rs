//! Servers of earlier versions through shared memory.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use farcall::{CallFailed, Kind, Pending, Ran};
use farcall_shm::{Listener, RequestCursor, Server, Status};

use crate::common::meeting::stand_in;
use crate::common::{block_on, builder};
use crate::echo::{Echo, Honest};

/// The way in which a caller gets the outcome of a started call.
type End = fn(Pending<Vec<u8>>) -> farcall::Result<Vec<u8>>;

/// Has a server answer a call by a failure of this kind, after the call's deadline if that is soon. Returns
/// how the caller is told that it failed.
fn told(kind: Kind, within: Duration, end: End) -> CallFailed {
    let honest = builder().shared_memory(false).build().unwrap();
    let export = honest.export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let listener = Listener::bind(export.address()).unwrap();
    let runtime = builder().shared_memory(true).build().unwrap();
    let (echo, (_wire, page)) = thread::scope(|scope| {
        let met = scope.spawn(|| stand_in(&listener, &export));
        (runtime.import::<dyn Echo>(&export.url()).unwrap(), met.join().unwrap())
    });
    let (server, mut cursor) = (Server::new(Arc::new(page)), RequestCursor::new());
    let call = echo.within(within).start().reverse(b"abc");
    let begun = Instant::now();
    let (slot, number) = loop {
        if let Some(request) = server.take(&mut cursor) {
            break request;
        }
        thread::yield_now();
    };
    if within < HOUR {
        thread::sleep(within.saturating_sub(begun.elapsed()));
    }
    let status = Status::Failed { kind: kind.code(), ran: Ran::Yes.code() };
    server.answer(slot, number, status, b"what it waited for");
    CallFailed::from(end(call).expect_err("the server said so"))
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn what_an_older_server_waited_for_until_the_deadline_is_told_as_the_deadline() {
    let soon = Duration::from_millis(50);
    let ends: [End; 2] = [|call| call.wait(), |call| block_on(call)];
    for end in ends {
        for (kind, within, expected) in [
            (Kind::Nested, soon, Kind::Deadline),
            (Kind::Cancelled, soon, Kind::Deadline),
            (Kind::Panicked, soon, Kind::Panicked),
            (Kind::Nested, HOUR, Kind::Nested),
        ] {
            let why = told(kind, within, end);
            assert_eq!((why.kind(), why.ran()), (expected, Ran::Yes), "{kind:?} within {within:?}: {why}");
        }
    }
}
