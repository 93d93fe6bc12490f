//! Packets that are as long as they may be, and longer ones.

use std::net::UdpSocket;

use farcall::{CallFailed, Kind, Ran};
use farcall_courier::expedited;

use crate::common::{CallProblem, ListError, Work, answer, ask, peer, receive, serve, server, work};

#[test]
fn the_longest_packets() {
    let (server, ..) = server();
    let client = work(server.address());
    // 10 bytes of the packet, 12 of the call, 2 of the count: 1,428 are left. Of a reply, 4 are the return's.
    assert_eq!(client.sum(vec![1; 714]).unwrap(), 714);
    assert_eq!(client.words(718).unwrap().len(), 718);
    assert_eq!(server.calls(), 2);
    for words in [715, 60_000] {
        let why: CallFailed = client.sum(vec![1; words]).unwrap_err().into();
        assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No), "{why}");
        assert!(why.to_string().contains("call it over a stream, at tcp://HOST:PORT"), "{why}");
    }
    assert_eq!(server.calls(), 2, "nothing was sent");
}

#[test]
fn a_result_that_is_too_long_asks_for_a_stream() {
    let (server, worker, _) = server();
    let client = work(server.address());
    let why: CallFailed = client.words(719).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::Maybe), "{why}");
    assert!(why.to_string().contains("useCourier"), "{why}");
    assert_eq!(worker.executed(), [719], "it did run");
    // A procedure that declares the Clearinghouse's error reports it.
    let use_courier = ListError::CallError { problem: CallProblem::UseCourier };
    assert_eq!(client.list(719).unwrap_err().declared(), Some(&use_courier));
    assert_eq!(client.list(718).unwrap().len(), 718);
    // One whose error with this number is another cannot say so.
    let why = client.read(719).unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::Other, Ran::Maybe), "{why}");
    assert_eq!(client.next(1).unwrap(), 2);
}

#[test]
fn the_limit_is_a_setting_of_each_end() {
    let (server, ..) = serve(|builder| builder.packets(65_507));
    let client = |bytes| {
        let builder = expedited::Builder::default().packets(bytes);
        builder.import::<dyn Work>(&format!("udp://{}", server.address())).unwrap()
    };
    assert_eq!(client(65_507).words(30_000).unwrap().len(), 30_000);
    assert_eq!(client(65_507).sum(vec![1; 30_000]).unwrap(), 30_000);
    // A client that takes less than the server sends.
    let why: CallFailed = client(546).words(1_000).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe), "{why}");
    assert!(why.to_string().contains("a packet of more than 546 bytes"), "{why}");
    // The least limit has room for each rejection.
    let (server, ..) = serve(|builder| builder.packets(0));
    assert_eq!(work(server.address()).next(1).unwrap(), 2);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let rejected = ask(&peer, &server, "0000 0006 0000 0003 0003 0000 0001 0000 0384 0004 0001 0007");
    assert_eq!(rejected.len(), 20);
}

#[test]
fn a_historic_server_that_insists_on_a_stream() {
    let (peer, work) = peer();
    let pending = work.start().words(1);
    let (packet, from) = receive(&peer);
    peer.send_to(&answer(&packet, "0003 0003 0003 id 0001 0004"), from).unwrap();
    let why: CallFailed = pending.wait().unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::Maybe), "{why}");
    // Another problem of the Clearinghouse is an error that the procedure does not declare.
    let pending = work.start().words(1);
    let (packet, from) = receive(&peer);
    peer.send_to(&answer(&packet, "0003 0003 0003 id 0001 0002"), from).unwrap();
    let why: CallFailed = pending.wait().unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Yes), "{why}");
}
