//! Packets that come to a server more than once.

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::{Work, ask, bytes, receive, serve, server, work};

fn call(exchange: u16, number: u16) -> String {
    format!("0000 {exchange:04x} 0000 0003 0003 0000 0001 0000 0384 0003 0001 {number:04x}")
}

fn reply(exchange: u16, number: u16) -> Vec<u8> {
    bytes(&format!("0000 {exchange:04x} 0000 0002 0003 0002 0001 {number:04x}"))
}

#[test]
fn a_repeated_packet_is_answered_again_and_not_executed_again() {
    let (server, worker, _) = server();
    let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    for _ in 0..3 {
        assert_eq!(ask(&one, &server, &call(1, 7)), reply(1, 8));
    }
    assert_eq!(worker.executed(), [7]);
    // Another identifier, another client, and another call with the same identifier are not repetitions.
    assert_eq!(ask(&one, &server, &call(2, 7)), reply(2, 8));
    assert_eq!(ask(&other, &server, &call(1, 7)), reply(1, 8));
    assert_eq!(ask(&one, &server, &call(1, 9)), reply(1, 10));
    assert_eq!(ask(&one, &server, &call(1, 9)), reply(1, 10));
    assert_eq!(worker.executed(), [7, 7, 7, 9]);
    // A result that was too long is not made again either.
    let long = "0000 0003 0000 0003 0003 0000 0001 0000 0384 0003 0004 0800";
    for _ in 0..2 {
        assert_eq!(ask(&one, &server, long), bytes("0000 0003 0000 0002 0003 0003 0001 0001 0004"));
    }
    assert_eq!(worker.executed(), [7, 7, 7, 9, 0x800]);
    assert_eq!(server.calls(), 5);
}

#[test]
fn the_oldest_replies_are_forgotten() {
    let (server, worker, _) = serve(|builder| builder.remembered(2, Duration::from_secs(3600)));
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for exchange in [1, 2, 1, 3, 3, 2, 1, 3] {
        assert_eq!(ask(&peer, &server, &call(exchange, exchange)), reply(exchange, exchange + 1));
    }
    // 1 was forgotten when 3 came, and 2 when 1 came again.
    assert_eq!(worker.executed(), [1, 2, 3, 1]);
}

#[test]
fn no_reply_is_remembered_without_room_or_time() {
    for (replies, time) in [(0, Duration::from_secs(3600)), (100, Duration::ZERO)] {
        let (server, worker, _) = serve(|builder| builder.remembered(replies, time));
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            assert_eq!(ask(&peer, &server, &call(1, 7)), reply(1, 8));
        }
        assert_eq!(worker.executed(), [7, 7]);
    }
}

#[test]
fn a_packet_whose_call_is_being_executed_is_not_answered() {
    let (server, worker, _) = serve(|builder| builder.workers(3));
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let block = "0000 0001 0000 0003 0003 0000 0001 0000 0384 0003 0008";
    peer.send_to(&bytes(block), server.address()).unwrap();
    worker.until_blocked();
    for _ in 0..3 {
        peer.send_to(&bytes(block), server.address()).unwrap();
    }
    // Calls go on meanwhile.
    let client = work(server.address());
    for number in 0..100 {
        assert_eq!(client.next(number).unwrap(), number + 1);
    }
    assert_eq!(worker.gate.lock().unwrap().0, 1, "it is executed once");
    worker.open();
    let returned = bytes("0000 0001 0000 0002 0003 0002 0001 0007");
    assert_eq!(receive(&peer).0, returned);
    assert_eq!(ask(&peer, &server, block), returned);
    assert_eq!(worker.gate.lock().unwrap().0, 1);
}
