//! A server that drains tells its callers through shared memory too, also those that call nothing meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crate::common::builder;
use farcall::{CallFailed, Export, Kind, Ran, Runtime};

#[farcall::interface]
pub trait Shelf {
    fn number(&self) -> farcall::Result<u32>;
}

struct Numbered(u32);

impl Shelf for Numbered {
    fn number(&self) -> farcall::Result<u32> {
        Ok(self.0)
    }
}

/// A server with two exports, and clients that are bound to them through shared memory by one connection.
struct Setting {
    server: Runtime,
    first: Option<Export>,
    _second: Export,
    clients: Runtime,
    shelves: [ShelfClient; 2],
}

const LONG: Duration = Duration::from_secs(60);

fn setting() -> Setting {
    let [server, clients] = [(); 2].map(|()| builder().shared_memory(true).build().unwrap());
    let [first, second] = [("Shelf/first", 1), ("Shelf/second", 2)]
        .map(|(name, number)| server.export::<dyn Shelf>(name, Arc::new(Numbered(number))).unwrap());
    let shelves = [&first, &second]
        .map(|export| clients.import::<dyn Shelf>(&export.url().replace("udp:", "shm:")).unwrap());
    let setting = Setting { server, first: Some(first), _second: second, clients, shelves };
    assert_eq!(setting.shelves.each_ref().map(|shelf| shelf.number()), [Ok(1), Ok(2)]);
    assert_eq!(setting.sent(), 2);
    setting
}

impl Setting {
    /// Returns how many calls the clients have sent through shared memory.
    fn sent(&self) -> u64 {
        self.clients.stats().links.iter().map(|link| link.calls).sum()
    }
}

fn told(called: farcall::Result<u32>) -> (Kind, Ran) {
    let why = CallFailed::from(called.unwrap_err());
    (why.kind(), why.ran())
}

#[test]
fn an_idle_caller_through_memory_is_told_that_an_export_drains_and_asks_it_nothing() {
    let mut s = setting();
    assert!(s.first.take().unwrap().drain(LONG));
    assert_eq!(told(s.shelves[0].number()), (Kind::Draining, Ran::No));
    // This call has no binding. It asks at the address, where no such export is any more.
    assert_eq!(told(s.shelves[0].start().number().wait()), (Kind::Draining, Ran::No));
    assert_eq!(s.sent(), 2, "the client knew");
    assert_eq!(s.shelves[1].number(), Ok(2), "the other export goes on by the same connection");
    assert_eq!(s.sent(), 3);
    // What is exported anew under the name is another export, which has not drained.
    let again = s.server.export::<dyn Shelf>("Shelf/first", Arc::new(Numbered(3))).unwrap();
    assert_eq!(s.shelves[0].number(), Ok(3));
    assert_eq!(s.sent(), 4);
    drop(again);
}

#[test]
fn an_idle_caller_through_memory_is_told_that_a_server_drains_as_one_by_udp_is() {
    let s = setting();
    let by_udp = builder().shared_memory(false).build().unwrap();
    let [first, _] = &s.shelves;
    let other = by_udp.import::<dyn Shelf>(&s.first.as_ref().unwrap().url()).unwrap();
    assert_eq!(other.number(), Ok(1));
    assert!(s.server.drain(LONG));
    // Both have asked for the name again, because another server may be at the address by now.
    assert_eq!([told(first.number()), told(other.number())], [(Kind::Draining, Ran::No); 2]);
    assert_eq!(told(first.start().number().wait()), (Kind::Draining, Ran::No));
    assert_eq!(s.sent(), 2, "the client knew");
}

/// So also by a stub that makes no blocking call, which would bind it again.
#[test]
fn a_started_call_through_memory_is_bound_again_after_a_drain() {
    let mut s = setting();
    assert!(s.first.take().unwrap().drain(LONG));
    let _again = s.server.export::<dyn Shelf>("Shelf/first", Arc::new(Numbered(3))).unwrap();
    assert_eq!(s.shelves[0].start().number().wait(), Ok(3));
}
