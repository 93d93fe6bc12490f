//! Larus' packets over real sockets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran};
use farcall_courier::packets::{self, Server};

use crate::common::{Entry, PasswordLookup, PasswordLookupClient, Troubles, Users, bytes};

fn server() -> (Server, Troubles) {
    let troubles = Troubles::default();
    let tell = troubles.clone();
    let server = Server::builder()
        .program::<dyn PasswordLookup>(Arc::new(Users::default()))
        .on_trouble(move |trouble| tell.lock().unwrap().push(trouble.what.clone()))
        .udp("127.0.0.1:0".parse().unwrap())
        .start()
        .unwrap();
    (server, troubles)
}

fn lookup(address: SocketAddr) -> PasswordLookupClient {
    packets::import::<dyn PasswordLookup>(&format!("udp://{address}")).unwrap()
}

/// A peer that answers by hand.
fn peer() -> (UdpSocket, PasswordLookupClient) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let lookup = lookup(peer.local_addr().unwrap());
    (peer, lookup)
}

fn receive(peer: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut packet = [0; 2000];
    let (count, from) = peer.recv_from(&mut packet).unwrap();
    (packet[..count].to_vec(), from)
}

#[test]
fn the_packets_are_the_dialects_messages() {
    let (server, _) = server();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(&bytes("0000 0003 0004 726f 6f74"), server.address()).unwrap();
    assert_eq!(receive(&peer).0, bytes("0005 0004 726f 6f74 0007 0100"));
    // A call without a result has no reply: the next packet answers the next call.
    peer.send_to(&bytes("0002 0001 0005"), server.address()).unwrap();
    peer.send_to(&bytes("0003 0000"), server.address()).unwrap();
    assert_eq!(receive(&peer).0, bytes("0002 0001 0005"));
}

#[test]
fn calls_return() {
    let (server, _) = server();
    let lookup = lookup(server.address());
    assert_eq!(lookup.lookup_user("root").unwrap(), Entry { name: "root".into(), uid: 7, is_local: true });
    lookup.note(1).unwrap();
    assert_eq!(lookup.start().again(3).wait().unwrap(), 3);
    assert_eq!(lookup.noted().unwrap(), [1]);
    let renewing = packets::Builder::default().socket_per_call();
    let lookup = renewing.import::<dyn PasswordLookup>(&format!("udp://{}", server.address())).unwrap();
    for number in 0..100 {
        assert_eq!(lookup.again(number).unwrap(), number);
    }
}

#[test]
fn the_longest_packets_have_1500_bytes() {
    let (server, troubles) = server();
    let lookup = lookup(server.address());
    // 4 bytes before the arguments, 2 of the count, and the words; 2 before the result.
    assert_eq!(lookup.sum(vec![1; 747]).unwrap(), 747);
    assert_eq!(lookup.words(748).unwrap().len(), 748);
    for words in [748, 2_000] {
        let why: CallFailed = lookup.sum(vec![1; words]).unwrap_err().into();
        assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No), "{why}");
    }
    assert_eq!(server.calls(), 2, "nothing was sent");
    // A longer result is not sent.
    let why: CallFailed = lookup.within(Duration::from_millis(20)).words(749).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    assert_eq!(lookup.again(1).unwrap(), 1);
    let expected = "the reply of procedure 4 of PasswordLookup has 1502 bytes, and a packet 1500 at most; \
                    it was not sent";
    assert_eq!(*troubles.lock().unwrap(), [expected]);
}

#[test]
fn bad_calls_are_reported_and_not_answered() {
    let (server, troubles) = server();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (packet, why) in [
        (bytes("0000"), "a packet of 2 bytes, which is no call"),
        (vec![0, 8, 0, 1, 0], "a call that says that it has 2 bytes, and has 1"),
        (bytes("0008 0001"), "a call that says that it has 2 bytes, and has 0"),
        (bytes("0008 0001 0001 0002"), "a call that says that it has 2 bytes, and has 4"),
        (bytes("0008 0000"), "PasswordLookup.again: arguments.number: the message ends here"),
        (bytes("0063 0000"), "PasswordLookup has no procedure 99"),
        (bytes("0006 0000"), "PasswordLookup.panic: "),
        (vec![0; 1501], "a packet of more than 1500 bytes"),
        (vec![0; 65_000], "a packet of more than 1500 bytes"),
    ] {
        peer.send_to(&packet, server.address()).unwrap();
        peer.send_to(&bytes("0008 0001 0007"), server.address()).unwrap();
        assert_eq!(receive(&peer).0, bytes("0001 0007"));
        let troubles = std::mem::take(&mut *troubles.lock().unwrap());
        assert!(troubles.len() == 1 && troubles[0].starts_with(why), "{why}: {troubles:?}");
    }
}

#[test]
fn bad_replies_fail_the_call() {
    let (peer, lookup) = peer();
    for (reply, ran) in [
        (vec![], Ran::Maybe),
        (vec![0], Ran::Maybe),
        (bytes("0001"), Ran::Maybe),
        (bytes("0001 0007 0008"), Ran::Maybe),
        (vec![0; 1600], Ran::Maybe),
        (bytes("0000"), Ran::Yes),
        (bytes("0002 0007 0008"), Ran::Yes),
    ] {
        let pending = lookup.start().again(7);
        let (_, from) = receive(&peer);
        peer.send_to(&reply, from).unwrap();
        let why: CallFailed = pending.wait().unwrap_err().into();
        assert_eq!((why.kind(), why.ran()), (Kind::BadResult, ran), "{reply:?}: {why}");
    }
}

#[test]
fn a_late_reply_is_not_the_next_calls() {
    let (peer, lookup) = peer();
    let why: CallFailed = lookup.within(Duration::from_millis(10)).again(1).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    let (_, first) = receive(&peer);
    let pending = lookup.start().again(2);
    let (packet, second) = receive(&peer);
    assert_eq!(packet, bytes("0008 0001 0002"));
    assert_ne!(first, second);
    // The reply to the first call comes before that to the second one.
    peer.send_to(&bytes("0001 0001"), first).unwrap();
    peer.send_to(&bytes("0001 0002"), second).unwrap();
    assert_eq!(pending.wait().unwrap(), 2);
}

#[test]
fn packets_from_other_addresses_are_ignored() {
    let (peer, lookup) = peer();
    let pending = lookup.start().again(2);
    let (_, from) = receive(&peer);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&bytes("0001 0063"), from).unwrap();
    peer.send_to(&bytes("0001 0002"), from).unwrap();
    assert_eq!(pending.wait().unwrap(), 2);
}

#[test]
fn a_duplicate_of_a_reply_is_discarded() {
    let (peer, lookup) = peer();
    for number in 1..10u16 {
        let pending = lookup.start().again(number);
        let (_, from) = receive(&peer);
        for _ in 0..3 {
            peer.send_to(&[[0, 1], number.to_be_bytes()].concat(), from).unwrap();
        }
        assert_eq!(pending.wait().unwrap(), number);
    }
}

#[test]
fn a_port_at_which_nothing_receives() {
    let unused = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let why: CallFailed = lookup(unused).panic().unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
}

#[test]
fn a_call_without_an_answer_fails_after_the_clients_time() {
    let (peer, _) = peer();
    let builder = packets::Builder::default().patience(Duration::from_millis(10));
    let lookup =
        builder.import::<dyn PasswordLookup>(&format!("udp://{}", peer.local_addr().unwrap())).unwrap();
    let why: CallFailed = lookup.panic().unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
    assert!(why.to_string().contains("no reply within 10ms"), "{why}");
}
