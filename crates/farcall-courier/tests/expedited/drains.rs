//! Servers that end finish the calls that have begun.

use std::thread;
use std::time::Duration;

use crate::common::{server, work};

#[test]
fn a_drain_finishes_the_calls_that_have_begun() {
    let (server, worker, _) = server();
    let pending = work(server.address()).start().block();
    worker.until_blocked();
    let drain = thread::spawn(move || server.drain(Duration::from_secs(20)));
    worker.open();
    assert_eq!(pending.wait().unwrap(), 7);
    assert!(drain.join().unwrap());
}

#[test]
fn a_drain_says_that_a_call_has_not_ended() {
    let (server, worker, _) = server();
    let pending = work(server.address()).start().block();
    worker.until_blocked();
    assert!(!server.drain(Duration::ZERO));
    worker.open();
    drop(pending);
}
