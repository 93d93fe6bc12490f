//! Tests of a server that takes its calls from a queue.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran, Requests};

use crate::common::{block_on, runtime};

#[farcall::interface]
pub trait Work {
    fn low(&self, number: u32) -> farcall::Result<u32, String>;
    fn high(&self, number: u32) -> farcall::Result<u32, String>;
}

struct Server;

impl Work for Server {
    fn low(&self, number: u32) -> farcall::Result<u32, String> {
        assert!(farcall::context().caller().is_some(), "the context is that of the call that is served");
        Ok(number + 1)
    }

    fn high(&self, number: u32) -> farcall::Result<u32, String> {
        Err(format!("no {number}").into())
    }
}

/// Waits until this many calls are in the queue.
fn until_waiting(requests: &Requests<dyn Work>, count: usize) {
    while requests.waiting() < count {
        std::thread::yield_now();
    }
}

#[test]
fn a_server_takes_calls_from_the_queue_in_its_own_order() {
    let (here, there) = (runtime(), runtime());
    let (export, requests) = there.export_requests::<dyn Work>("Work/a").unwrap();
    let work = here.import::<dyn Work>(&export.url()).unwrap();
    let calls: Vec<_> =
        (0..5).map(|n| if n == 3 { work.start().high(n) } else { work.start().low(n) }).collect();
    until_waiting(&requests, 5);
    // The server takes the call of `high` first, and then the other calls as they arrived.
    let mut order = Vec::new();
    let request = requests.next_where(|procedure, _| procedure.name == "high").unwrap();
    order.push(request.procedure().name);
    assert!(request.context().caller().is_some());
    request.serve(&Server);
    while order.len() < 5 {
        let request = requests.next().unwrap();
        order.push(request.procedure().name);
        request.serve(&Server);
    }
    assert_eq!(order, ["high", "low", "low", "low", "low"]);
    let results: Vec<_> = calls.into_iter().map(farcall::Pending::wait).collect();
    assert_eq!(results[3].as_ref().unwrap_err().declared(), Some(&"no 3".to_string()));
    assert_eq!((results[0].clone(), results[4].clone()), (Ok(1), Ok(5)));
}

#[test]
fn a_call_can_be_answered_later_by_another_thread_or_server() {
    let (here, there) = (runtime(), runtime());
    let (export, requests) = there.export_requests::<dyn Work>("Work/a").unwrap();
    let other = there.export::<dyn Work>("Work/b", Arc::new(Server)).unwrap();
    let work = here.import::<dyn Work>(&export.url()).unwrap();
    let behind = there.import::<dyn Work>(&other.url()).unwrap();
    let first = work.start().low(1);
    let later = requests.next().unwrap();
    let second = work.start().low(2);
    requests.next().unwrap().pass_on(farcall::stub::Client::binding(&behind));
    assert_eq!(block_on(second), Ok(3));
    std::thread::spawn(move || later.serve(&Server));
    assert_eq!(first.wait(), Ok(2));
    let third = work.start().high(7);
    requests.next().unwrap().pass_on(farcall::stub::Client::binding(&behind));
    assert_eq!(third.wait().unwrap_err().declared(), Some(&"no 7".to_string()));
    let fourth = work.start().low(1);
    requests.next().unwrap().fail(CallFailed::new(Kind::NotPermitted, Ran::No));
    let why = fourth.wait().unwrap_err();
    assert_eq!(why.call_failed().map(|why| (why.kind(), why.ran())), Some((Kind::NotPermitted, Ran::No)));
    let fifth = work.start().low(1);
    drop(requests.next().unwrap());
    assert_eq!(fifth.wait().unwrap_err().ran(), Ran::No, "the request was dropped before it was served");
    drop(other);
    let sixth = work.start().low(1);
    requests.next().unwrap().pass_on(farcall::stub::Client::binding(&behind));
    let why = sixth.wait().unwrap_err();
    let why = why.call_failed().map(|why| (why.kind(), why.ran()));
    assert_eq!(why, Some((Kind::Nested, Ran::No)), "neither server ran the call");
}

#[test]
fn a_filter_can_wait_until_another_call_arrives() {
    let (here, there) = (runtime(), runtime());
    let (export, requests) = there.export_requests::<dyn Work>("Work/a").unwrap();
    let work = here.import::<dyn Work>(&export.url()).unwrap();
    let first = work.start().low(1);
    let mut second = None;
    let request = requests.next_where(|procedure, _| {
        if second.is_none() {
            second = Some(work.start().high(2));
            until_waiting(&requests, 2);
        }
        procedure.name == "high"
    });
    request.unwrap().serve(&Server);
    assert_eq!(second.unwrap().wait().unwrap_err().declared(), Some(&"no 2".to_string()));
    requests.next().unwrap().serve(&Server);
    assert_eq!(first.wait(), Ok(2));
}

#[test]
fn a_call_that_is_taken_while_a_filter_looks_at_it_is_passed_over() {
    let (here, there) = (runtime(), runtime());
    let (export, requests) = there.export_requests::<dyn Work>("Work/a").unwrap();
    let work = here.import::<dyn Work>(&export.url()).unwrap();
    // Two datagrams that are under way at once may change places.
    let first = work.start().low(1);
    until_waiting(&requests, 1);
    let second = work.start().low(2);
    until_waiting(&requests, 2);
    let mut taken = None;
    let request = requests.next_where(|_, _| {
        if taken.is_none() {
            taken = requests.next();
        }
        true
    });
    request.unwrap().serve(&Server);
    assert_eq!(second.wait(), Ok(3));
    taken.unwrap().serve(&Server);
    assert_eq!(first.wait(), Ok(2));
}

#[test]
fn a_call_that_is_given_up_leaves_the_queue_which_ends_with_its_export() {
    let (here, there) = (runtime(), runtime());
    let (export, requests) = there.export_requests::<dyn Work>("Work/a").unwrap();
    let work = here.import::<dyn Work>(&export.url()).unwrap();
    let call = work.start().low(1);
    until_waiting(&requests, 1);
    drop(call);
    while requests.waiting() > 0 {
        std::thread::yield_now();
    }
    let late = work.within(Duration::from_millis(20)).low(1).unwrap_err();
    assert_eq!(late.call_failed().map(CallFailed::kind), Some(Kind::Deadline));
    let (taken, takes) = mpsc::channel();
    let taker = std::thread::spawn(move || {
        while let Some(request) = requests.next() {
            taken.send(request.context().is_cancelled()).unwrap();
            request.serve(&Server);
        }
    });
    assert_eq!(work.low(4), Ok(5));
    assert!(takes.iter().next().is_some());
    drop(export);
    taker.join().unwrap();
}
