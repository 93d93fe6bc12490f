//! Clients that send what is no call: each gets the end of its connection, and others are served.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::common::{PasswordLookup as _, activated, activation, answer, bytes, lookup, server, server_with};

const NOTHING: [u8; 0] = [];

#[test]
fn what_is_no_activation_ends_the_connection() {
    let (_server, address, troubles) = server();
    for (sent, received) in [
        (&b"\x00\x00"[..], &b"Unknown Courier program.\n\0"[..]),
        (b"\x00\x03Odd\x00", b"Unknown Courier program.\n\0"),
        (b"\x00\x06/bin/x", b"Unknown Courier program.\n\0"),
        // A name of more than 255 bytes.
        (b"\x01\x00", b""),
        (b"GET / HTTP/1.0\r\n\r\n", b""),
        // One that ends too early.
        (b"\x00\x0ePass", b""),
    ] {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(sent).unwrap();
        // The server may have ended the connection already.
        let _ = peer.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        assert_eq!(answer, received, "{sent:?}");
    }
    assert_eq!(troubles.lock().unwrap().len(), 5);
    assert_eq!(lookup(address).again(1).unwrap(), 1, "others are served");
}

#[test]
fn a_number_of_words_that_lies_ends_the_connection() {
    let (_server, address, troubles) = server();
    for (call, why) in [
        // Fewer words than the arguments need, and more.
        ("0000 0001 0004 726f 6f74", "the message ends here"),
        ("0000 0003 0002 726f 6f74", "bytes follow the value"),
        ("0002 0000 0005", "the message ends here"),
        ("0002 0002 0005 0006", "bytes follow the value"),
        // A count of elements that the words do not bear out.
        ("0005 0002 ffff 0001", "elements do not fit"),
        ("0063 0000", "has no procedure 99"),
    ] {
        let answer = answer(address, &bytes(call));
        assert_eq!(answer, NOTHING, "{call}");
        let troubles = std::mem::take(&mut *troubles.lock().unwrap());
        let is_told =
            |trouble: &String| trouble.contains(why) && trouble.ends_with("the connection was ended");
        assert!(troubles.iter().any(is_told), "{call}: {troubles:?}");
    }
    assert_eq!(lookup(address).noted().unwrap(), NOTHING.map(u16::from), "no call ran");
}

#[test]
fn a_call_that_ends_too_early_is_not_executed() {
    let (server, address, _) = server();
    for end in 0..10 {
        let mut peer = activated(address);
        peer.write_all(&bytes("0000 0003 0004 726f 6f74")[..end]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        assert_eq!(answer, NOTHING, "{end} bytes");
    }
    assert_eq!(server.calls(), 0);
}

#[test]
fn half_a_message_ends_the_connection_in_time() {
    let (_server, address, _) = server_with(|builder| builder.message_time(Duration::from_millis(50)));
    // The end comes, or this test does not end.
    let mut silent = TcpStream::connect(address).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0, "no activation");
    for sent in ["0000", "0000 ffff", "0005 ffff 0001"] {
        let mut peer = TcpStream::connect(address).unwrap();
        // On a busy machine the time may pass before the server has read the activation. Then it ends the
        // connection without answering that.
        let _ = peer.write_all(&[activation(), bytes(sent)].concat());
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        assert!(matches!(answer[..], [] | [0]), "{sent}: {answer:?}");
    }
}

#[test]
fn a_message_without_end_ends_the_connection() {
    let (_server, address, _) = server();
    let mut peer = activated(address);
    // Procedure 5 with 65,535 words that are no arguments, again and again.
    let endless = vec![0; 4 << 20];
    peer.write_all(&bytes("0005 ffff")).unwrap();
    let written = peer.write_all(&endless);
    let mut answer = Vec::new();
    let ended = peer.read_to_end(&mut answer);
    assert!(written.is_err() || ended.is_err() || answer.is_empty());
    assert_eq!(lookup(address).again(1).unwrap(), 1, "others are served");
}

#[test]
fn an_idle_connection_ends_and_the_client_makes_another() {
    let (_server, address, _) = server_with(|builder| builder.idle(Duration::from_millis(20)));
    let mut peer = activated(address);
    assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0);
    let lookup = lookup(address);
    for number in 0..3 {
        let mut until_ended = activated(address);
        assert_eq!(until_ended.read(&mut [0]).unwrap_or(0), 0);
        // On a busy machine the server may end the new connection, too, before the call arrives. Then the
        // test calls again.
        assert_eq!((0..100).find_map(|_| lookup.again(number).ok()), Some(number));
    }
}

#[test]
fn a_client_for_which_there_is_no_room_is_told_to_try_again() {
    let (_server, address, _) = server_with(|builder| builder.connections(1));
    let _first = activated(address);
    let mut second = TcpStream::connect(address).unwrap();
    let mut answer = Vec::new();
    second.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"Try again.\n\0");
    drop(activation());
}
