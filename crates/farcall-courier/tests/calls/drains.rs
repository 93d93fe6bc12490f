//! Servers that end finish the calls that have begun.

use std::io::Read;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use farcall_courier::wire::message::Versions;

use crate::common::{Peer, Worker, serve, work};

#[test]
fn a_drain_finishes_the_calls_that_have_begun() {
    let worker = Arc::new(Worker::default());
    let (server, address) = serve(worker.clone(), |builder| builder);
    let mut idle = Peer::connect(&address, Versions::THREE);
    idle.call(1, (900, 3), 1, &5_u16.to_be_bytes());
    idle.receive().unwrap();
    let pending = work(&address).start().block();
    worker.gate.wait_for_one();
    let drain = thread::spawn(move || server.drain(Duration::from_secs(20)));
    let mut rest = Vec::new();
    idle.socket.read_to_end(&mut rest).unwrap();
    worker.gate.open();
    assert_eq!(pending.wait().unwrap(), 7);
    assert!(drain.join().unwrap());
}

#[test]
fn a_drain_says_that_a_call_has_not_ended() {
    let worker = Arc::new(Worker::default());
    let (server, address) = serve(worker.clone(), |builder| builder);
    let pending = work(&address).start().block();
    worker.gate.wait_for_one();
    assert!(!server.drain(Duration::ZERO));
    worker.gate.open();
    drop(pending);
}
