//! Servers that send what is no reply: the call fails, and says truthfully whether it ran.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran};
use farcall_courier::cooper;

use crate::common::{PasswordLookup, PasswordLookupClient, bytes, lookup, receive, scripted};

/// Makes a call of a server that activates the program, and then answers each connection's first call with
/// these bytes.
fn failure(reply: &[u8], call: impl FnOnce(&PasswordLookupClient) -> farcall::Result<u16>) -> CallFailed {
    let reply = reply.to_vec();
    let (address, thread) = scripted(vec![Box::new(move |peer| {
        receive(peer, 16);
        peer.write_all(&[0]).unwrap();
        receive(peer, 4);
        peer.write_all(&reply).unwrap();
    })]);
    let lookup = lookup(address);
    let why = call(&lookup).unwrap_err().into();
    drop(lookup);
    thread.join().unwrap();
    why
}

/// A call of a procedure that has no arguments and one word as its result, and is not idempotent.
fn count(lookup: &PasswordLookupClient) -> farcall::Result<u16> {
    lookup.panic()
}

#[test]
fn a_reply_that_is_longer_than_it_says() {
    let why = failure(&bytes("0001 0007 0008"), count);
    assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe));
    assert!(why.to_string().contains("2 bytes after the reply"), "{why}");
}

#[test]
fn a_number_of_words_that_is_not_the_results() {
    for reply in ["0000", "0002 0007 0008"] {
        let why = failure(&bytes(reply), count);
        assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Yes), "{reply}");
    }
}

#[test]
fn a_connection_that_ends_too_early() {
    for reply in [&[][..], &[0], &[0, 1], &[0, 1, 0], &[0xff; 4000]] {
        let why = failure(reply, count);
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{reply:?}");
        assert!(why.to_string().contains("the server ended the connection"), "{why}");
    }
}

#[test]
fn a_reply_that_does_not_come() {
    // The script of a connection ends when the client has ended it.
    let silent: fn(&mut TcpStream) = |peer| {
        receive(peer, 16);
        peer.write_all(&[0]).unwrap();
        receive(peer, 4);
        let _ = std::io::Read::read_to_end(peer, &mut Vec::new());
    };
    let answering: fn(&mut TcpStream) = |peer| {
        receive(peer, 16);
        peer.write_all(&[0]).unwrap();
        receive(peer, 4);
        peer.write_all(&bytes("0001 0009")).unwrap();
    };
    let (address, thread) = scripted(vec![Box::new(silent), Box::new(answering)]);
    let lookup = lookup(address);
    let why: CallFailed = lookup.within(Duration::from_millis(20)).panic().unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    // The next call has a connection of its own, on which the late reply cannot come.
    assert_eq!(lookup.panic().unwrap(), 9);
    drop(lookup);
    thread.join().unwrap();
}

#[test]
fn bytes_without_a_call_end_the_connection() {
    let (sent, is_sent) = std::sync::mpsc::channel();
    let (address, thread) = scripted(vec![
        Box::new(move |peer| {
            receive(peer, 16);
            peer.write_all(&[0]).unwrap();
            // A call without a result gets a reply all the same.
            receive(peer, 6);
            peer.write_all(&bytes("0001 0009")).unwrap();
            sent.send(()).unwrap();
        }),
        Box::new(|peer| {
            receive(peer, 16);
            peer.write_all(&[0]).unwrap();
            receive(peer, 4);
            peer.write_all(&bytes("0001 000b")).unwrap();
        }),
    ]);
    let lookup = lookup(address);
    lookup.note(1).unwrap();
    is_sent.recv().unwrap();
    // The next call is made on another connection.
    assert_eq!(lookup.panic().unwrap(), 11);
    drop(lookup);
    thread.join().unwrap();
}

#[test]
fn answers_to_the_activation() {
    let endless = vec![b'x'; 5000];
    for (answer, kind, text) in [
        (&b"Unknown Courier program.\n\0"[..], Kind::NotExported, "Unknown Courier program."),
        (b"Try again.\n\0", Kind::Overloaded, "Try again."),
        // The connection ends instead of a NUL.
        (b"Go \x1baway", Kind::NotExported, "Go \\u{1b}away"),
        (b"", Kind::Unreachable, "ended the connection"),
        (b"\0\0", Kind::BadResult, "the server's answer to the activation is none"),
        (&endless, Kind::BadResult, "the server's answer to the activation is none"),
    ] {
        let sent = answer.to_vec();
        let (address, thread) = scripted(vec![Box::new(move |peer| {
            receive(peer, 16);
            let _ = peer.write_all(&sent);
        })]);
        let why = cooper::import::<dyn PasswordLookup>(&format!("tcp://{address}")).unwrap_err();
        assert_eq!((why.kind(), why.ran()), (kind, Ran::No), "{why}");
        assert!(why.to_string().contains(text), "{why}");
        thread.join().unwrap();
    }
}

#[test]
fn a_server_that_does_not_answer_the_activation() {
    let (address, thread) = scripted(vec![Box::new(|peer| {
        let _ = std::io::Read::read_to_end(peer, &mut Vec::new());
    })]);
    let builder = cooper::Builder::default().connect_within(Duration::from_millis(20));
    let why = builder.import::<dyn PasswordLookup>(&format!("tcp://{address}")).unwrap_err();
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No));
    thread.join().unwrap();
}
