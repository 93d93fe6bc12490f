//! Clients that send what is no call: each gets an error reply or the end of its connection, and others are
//! served.

use farcall_courier::wire::message::Versions;

use crate::common::{Peer, Work, bytes, server, work};

/// Returns what a server answers to bytes that come after the versions, until it ends the connection.
fn answers(send: impl FnOnce(&mut Peer)) -> Vec<Vec<u8>> {
    let (_server, address) = server();
    let mut peer = Peer::connect(&address, Versions::THREE);
    send(&mut peer);
    let answers = std::iter::from_fn(|| peer.receive()).collect();
    assert_eq!(work(&address).next(1), Ok(2), "others are served");
    answers
}

const NONE: [Vec<u8>; 0] = [];

#[test]
fn a_call_that_ends_within_its_header_is_rejected_and_the_connection_ends() {
    for words in ["0000 0007", "0000 0007 0000", "0000 0007 0000 0384 0003"] {
        assert_eq!(answers(|peer| peer.send(&bytes(words), true)), [bytes("0001 0007 ffff")], "{words}");
    }
}

#[test]
fn what_is_no_call_ends_the_connection() {
    for words in ["0000", "0002 0007 0000", "0001 0007 0000", "0003 0007 0000", "0009 0007", "ffff"] {
        assert_eq!(answers(|peer| peer.send(&bytes(words), true)), NONE, "{words}");
    }
    assert_eq!(answers(|peer| peer.send(&[0], true)), NONE);
}

#[test]
fn what_is_no_packet_ends_the_connection() {
    assert_eq!(answers(|peer| peer.raw(&[0, 1, 2, 3])), NONE, "a length below a header's");
    assert_eq!(answers(|peer| peer.raw(&[0xff; 100])), NONE, "a length above a packet's");
    assert_eq!(answers(|peer| peer.raw(&[0, 12, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])), NONE);
    assert_eq!(answers(|peer| peer.raw(b"GET / HTTP/1.0\r\n\r\n")), NONE);
}

#[test]
fn arguments_that_are_not_the_procedures_are_rejected_and_the_connection_stays() {
    let (_server, address) = server();
    let mut peer = Peer::connect(&address, Versions::THREE);
    for (procedure, arguments) in [
        (1, ""),               // truncated
        (1, "0007 0008"),      // too long
        (4, "ffff 0001 0002"), // a count that lies
        (4, "0003 0001 0002"), // one that lies a little
    ] {
        peer.call(9, (900, 3), procedure, &bytes(arguments));
        assert_eq!(peer.receive().unwrap(), bytes("0001 0009 0003"), "{arguments}");
    }
    // Odd: half a word; a string that ends before its padding; one that is not UTF-8.
    for (program, procedure, arguments) in [
        ((900, 3), 1, &[0u8, 7, 0][..]),
        ((754, 1), 1, &[0, 3, b'o', b'd', b'd']),
        ((754, 1), 1, &[0, 2, 0xff, 0xfe]),
    ] {
        peer.call(9, program, procedure, arguments);
        assert_eq!(peer.receive().unwrap(), bytes("0001 0009 0003"), "{arguments:?}");
    }
    // Padding may have any value.
    peer.call(9, (754, 1), 1, &[0, 3, b'o', b'd', b'd', 0xee]);
    assert_eq!(peer.receive().unwrap(), bytes("0003 0009 0000"));
    peer.call(10, (900, 3), 1, &[0, 7]);
    assert_eq!(peer.receive().unwrap(), bytes("0002 000a 0008"));
}

#[test]
fn an_attention_packet_outside_of_bulk_data_is_ignored() {
    let (_server, address) = server();
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.raw(&[0, 13, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    peer.call(10, (900, 3), 1, &[0, 7]);
    assert_eq!(peer.receive().unwrap(), bytes("0002 000a 0008"));
}
