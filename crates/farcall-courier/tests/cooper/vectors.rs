//! The bytes of the dialect, written out. They are derived from Cooper's sources, not captured.

use std::io::{Read, Write};

use crate::common::{
    Entry, PasswordLookup as _, activated, activation, bytes, lookup, receive, scripted, server,
};

/// The call of procedure 0 with "root".
const CALL: &str = "0000 0003 0004 726f 6f74";
/// Its reply: "root", 7, and TRUE in the high half of its word.
const REPLY: &str = "0005 0004 726f 6f74 0007 0100";

#[test]
fn the_server_speaks_the_dialect() {
    let (_server, address, _) = server();
    let mut peer = activated(address);
    for _ in 0..2 {
        peer.write_all(&bytes(CALL)).unwrap();
        assert_eq!(receive(&mut peer, 12), bytes(REPLY));
    }
    // Three BOOLEANs, of which only the high bytes count.
    peer.write_all(&bytes("0001 0004 0003 01aa 0055 0101")).unwrap();
    assert_eq!(receive(&mut peer, 10), bytes("0004 0003 0000 0100 0000"));
}

#[test]
fn the_client_speaks_the_dialect() {
    let (address, thread) = scripted(vec![Box::new(|peer| {
        assert_eq!(receive(peer, 16), activation());
        peer.write_all(&[0]).unwrap();
        assert_eq!(receive(peer, 10), bytes(CALL));
        peer.write_all(&bytes(REPLY)).unwrap();
        // A call without a result, and one after it.
        assert_eq!(receive(peer, 6), bytes("0002 0001 0005"));
        assert_eq!(receive(peer, 10), bytes("0001 0003 0002 0100 0000"));
        // The low byte of a BOOLEAN has no meaning.
        peer.write_all(&bytes("0003 0002 00ff 017f")).unwrap();
    })]);
    let lookup = lookup(address);
    assert_eq!(lookup.lookup_user("root").unwrap(), Entry { name: "root".into(), uid: 7, is_local: true });
    lookup.note(5).unwrap();
    assert_eq!(lookup.flip(vec![true, false]).unwrap(), [false, true]);
    drop(lookup);
    thread.join().unwrap();
}

#[test]
fn an_odd_name_is_padded() {
    let (address, thread) = scripted(vec![Box::new(|peer| {
        assert_eq!(receive(peer, 6), bytes("0003 4f64 6400"));
        peer.write_all(b"Unknown Courier program.\n\0").unwrap();
    })]);
    let builder = farcall_courier::cooper::Builder::default().program("Odd");
    let refused = builder.import::<dyn crate::common::PasswordLookup>(&format!("tcp://{address}"));
    assert!(refused.is_err());
    thread.join().unwrap();
    let mut none = Vec::new();
    let _ = std::net::TcpStream::connect(address).map(|mut peer| peer.read_to_end(&mut none));
}
