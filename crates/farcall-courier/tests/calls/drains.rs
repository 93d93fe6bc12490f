//! Servers that end finish the calls that have begun.

use std::io::Read;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use farcall_courier::wire::message::{Courier, Message, Versions};

use crate::common::{Peer, Worker, serve, work};

/// A message that returns the number 7.
fn seven(id: u16) -> Vec<u8> {
    let mut out = Vec::new();
    Message::Return(id, &7_u16.to_be_bytes()).write(Courier::Three, &mut out);
    out
}

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

#[test]
fn a_drain_takes_no_call_that_comes_after_it_has_begun() {
    let worker = Arc::new(Worker::default());
    let (server, address) = serve(worker.clone(), |builder| builder);
    let mut idle = Peer::connect(&address, Versions::THREE);
    idle.call(1, (900, 3), 1, &5_u16.to_be_bytes());
    idle.receive().unwrap();
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.call(2, (900, 3), 7, &[]);
    worker.gate.wait_for_one();
    let drain = thread::spawn(move || server.drain(Duration::from_secs(20)));
    assert_eq!(idle.receive(), None);
    peer.call(3, (900, 3), 1, &6_u16.to_be_bytes());
    worker.gate.open();
    assert_eq!(peer.receive(), Some(seven(2)));
    assert_eq!(peer.receive(), None, "the call came too late");
    assert!(drain.join().unwrap());
}

/// The limit on half a message is a minute, which is longer than the drain.
#[test]
fn half_a_message_does_not_hold_up_a_drain() {
    let (server, address) = serve(Arc::default(), |builder| builder);
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.call(1, (900, 3), 1, &6_u16.to_be_bytes());
    // The first part of a message, which the server has received with the call or soon after its reply.
    peer.send(&[0; 4], false);
    assert_eq!(peer.receive(), Some(seven(1)));
    assert!(server.drain(Duration::from_secs(20)));
    assert_eq!(peer.receive(), None);
}
