//! Packets, word for word.

use std::net::UdpSocket;

use farcall_courier::expedited;
use farcall_courier::wire::exchange::Packet;
use farcall_courier::wire::message::Versions;

use crate::common::{Work, answer, ask, bytes, peer, receive, server};

#[test]
fn a_server_answers_calls_word_for_word() {
    let (server, ..) = server();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (call, reply) in [
        // Identifier, client type, versions, then the message. The Clearinghouse's RetrieveAddresses, as it
        // is broadcast to dodo, and dodo's reply but for the versions.
        (
            "0000 0001 0002 0003 0003 0000 0001 0000 0002 0002 0000",
            "0000 0001 0002 0002 0003 0002 0001 0001 0000 041a 1000 bb10 1101 0000",
        ),
        (
            "dead beef 0000 0003 0003 0000 1234 0000 0384 0003 0001 0007",
            "dead beef 0000 0002 0003 0002 1234 0008",
        ),
        // A client that also speaks version 2, and one that speaks only that.
        (
            "0000 0002 0000 0002 0003 0000 0001 0000 0384 0003 0001 0007",
            "0000 0002 0000 0002 0003 0002 0001 0008",
        ),
        ("0000 0003 0000 0002 0002 0000 0001 0384 0003 0001 0007", "0000 0003 0000 0002 0003 0002 0001 0008"),
        // An error with its argument.
        (
            "0000 0004 0000 0003 0003 0000 0001 0000 0384 0003 0005 0000",
            "0000 0004 0000 0002 0003 0003 0001 0002 0005",
        ),
        // Rejections: no such program, version, procedure; invalid arguments; a procedure that panics; a
        // message that ends within its header.
        (
            "0000 0005 0000 0003 0003 0000 0001 0000 0385 0003 0001 0007",
            "0000 0005 0000 0002 0003 0001 0001 0000",
        ),
        (
            "0000 0006 0000 0003 0003 0000 0001 0000 0384 0004 0001 0007",
            "0000 0006 0000 0002 0003 0001 0001 0001 0003 0003",
        ),
        ("0000 0007 0000 0003 0003 0000 0001 0000 0384 0003 0063", "0000 0007 0000 0002 0003 0001 0001 0002"),
        ("0000 0008 0000 0003 0003 0000 0001 0000 0384 0003 0001", "0000 0008 0000 0002 0003 0001 0001 0003"),
        ("0000 0009 0000 0003 0003 0000 0001 0000 0384 0003 0007", "0000 0009 0000 0002 0003 0001 0001 ffff"),
        ("0000 000a 0000 0003 0003 0000 0001 0000 0384", "0000 000a 0000 0002 0003 0001 0001 ffff"),
        // No version in common: the versions alone.
        ("0000 000b 0000 0005 0006 0000 0001 0000 0384 0003 0001 0007", "0000 000b 0000 0002 0003"),
        // A result that is too long for a packet.
        (
            "0000 000c 0000 0003 0003 0000 0001 0000 0384 0003 0004 0800",
            "0000 000c 0000 0002 0003 0003 0001 0001 0004",
        ),
    ] {
        assert_eq!(ask(&peer, &server, call), bytes(reply), "{call}");
    }
}

#[test]
fn a_client_sends_identifier_client_type_versions_and_call() {
    let (peer, work) = peer();
    let mut former = None;
    for number in 1..4 {
        let pending = work.start().next(number);
        let (packet, from) = receive(&peer);
        let exchange = u32::from_be_bytes(packet[..4].try_into().unwrap());
        assert!(former.is_none_or(|former: u32| exchange == former.wrapping_add(1)), "they count up");
        former = Some(exchange);
        assert_eq!(packet[4..12], bytes("0000 0003 0003 0000"));
        assert!(packet[12] > 0, "smaller ones could be taken for kinds of messages");
        assert_eq!(packet[14..], bytes(&format!("0000 0384 0003 0001 {number:04x}")));
        peer.send_to(&answer(&packet, "0003 0003 0002 id 0009"), from).unwrap();
        assert_eq!(pending.wait().unwrap(), 9);
    }
}

#[test]
fn the_client_type_is_a_setting() {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let builder = expedited::Builder::default().client_type(2);
    let work = builder.import::<dyn Work>(&format!("udp://{}", peer.local_addr().unwrap())).unwrap();
    let _pending = work.start().next(1);
    assert_eq!(receive(&peer).0[4..6], [0, 2]);
}

#[test]
fn packets_are_parsed_as_they_are_written() {
    let packet = Packet { exchange: 0x0102_0304, client_type: 2, versions: Versions::ALL, message: &[9, 8] };
    let mut written = Vec::new();
    packet.write(&mut written);
    assert_eq!(written, bytes("0102 0304 0002 0002 0003 0908"));
    assert_eq!(Packet::parse(&written), Some(packet));
    assert!((0..10).all(|count| Packet::parse(&written[..count]).is_none()));
}
