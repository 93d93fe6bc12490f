//! Packets that are not what they should be, at both ends.

use std::net::UdpSocket;

use farcall::{CallFailed, Kind, Ran};

use crate::common::{answer, ask, bytes, peer, receive, server};

#[test]
fn bad_calls_are_reported_and_not_answered() {
    let (server, worker, troubles) = server();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (number, (packet, why)) in [
        (vec![0], "a packet of 1 bytes, which is no call"),
        (bytes("0000 0001 0000 0003"), "a packet of 8 bytes, which is no call"),
        (bytes("0000 0001 0000 0003 0003"), "a packet whose message is no call"),
        (bytes("0000 0001 0000 0003 0003 0000"), "a packet whose message is no call"),
        (bytes("0000 0001 0000 0003 0003 0002 0001 0001"), "a packet whose message is no call"),
        (bytes("0000 0001 0000 0003 0003 0009 0001 0001"), "a packet whose message is no call"),
        (vec![0; 1453], "a packet of more than 1452 bytes"),
        (vec![0; 65_000], "a packet of more than 1452 bytes"),
    ]
    .into_iter()
    .enumerate()
    {
        peer.send_to(&packet, server.address()).unwrap();
        let next = format!("0001 {number:04x} 0000 0003 0003 0000 0001 0000 0384 0003 0001 0007");
        let reply = format!("0001 {number:04x} 0000 0002 0003 0002 0001 0008");
        assert_eq!(ask(&peer, &server, &next), bytes(&reply));
        assert_eq!(std::mem::take(&mut *troubles.lock().unwrap()), [why], "{packet:?}");
    }
    assert_eq!(worker.executed().len(), 8);
}

#[test]
fn a_client_of_other_versions_is_told_and_reported() {
    let (server, worker, troubles) = server();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let reply = ask(&peer, &server, "0000 0001 0000 0004 0009 0000 0001 0000 0384 0003 0001 0007");
    assert_eq!(reply, bytes("0000 0001 0000 0002 0003"));
    assert_eq!(*troubles.lock().unwrap(), ["a call from a client that speaks versions 4 to 9 of Courier"]);
    assert!(worker.executed().is_empty());
}

#[test]
fn bad_replies_fail_the_call() {
    let (peer, work) = peer();
    for reply in [
        "",
        "0003",
        "0003 0003",
        "0003 0003 0002",
        "0003 0003 0000 id 0000 0384 0003 0001",
        "0003 0003 0009 id",
        "0003 0003 0003 id",
        "0003 0003 0002 0001 0008",
    ] {
        let pending = work.start().next(7);
        let (packet, from) = receive(&peer);
        peer.send_to(&answer(&packet, reply), from).unwrap();
        let why: CallFailed = pending.wait().unwrap_err().into();
        assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe), "{reply}: {why}");
    }
    let pending = work.start().next(7);
    let (packet, from) = receive(&peer);
    peer.send_to(&[&packet[..6], &[0; 2000]].concat(), from).unwrap();
    let why: CallFailed = pending.wait().unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe), "{why}");
}

#[test]
fn packets_of_other_exchanges_and_of_strangers_are_ignored() {
    let (peer, work) = peer();
    let pending = work.start().next(7);
    let (packet, from) = receive(&peer);
    let reply = answer(&packet, "0003 0003 0002 id 0008");
    let mut other = answer(&packet, "0003 0003 0002 id 0063");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&other, from).unwrap();
    other[3] ^= 1;
    for packet in [&other[..], &[], &other[..3], &vec![0xff; 2000]] {
        peer.send_to(packet, from).unwrap();
    }
    peer.send_to(&reply, from).unwrap();
    assert_eq!(pending.wait().unwrap(), 8);
}
