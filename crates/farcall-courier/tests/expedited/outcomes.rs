//! How calls end, as their callers learn it.

use std::error::Error as _;
use std::net::UdpSocket;
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran};
use farcall_courier::client::OtherVersions;
use farcall_courier::wire::message::Versions;
use farcall_courier::{bulk, expedited};

use crate::common::{Addresses, ListError, Work, answer, peer, receive, server, work};

#[test]
fn calls_return_or_report_errors() {
    let (server, worker, _) = server();
    let client = work(server.address());
    for number in 0..100 {
        assert_eq!(client.next(number).unwrap(), number + 1);
    }
    assert_eq!(client.start().again(3).wait().unwrap(), 3);
    assert_eq!(client.list(0).unwrap_err().declared(), Some(&ListError::NoSuchList { number: 5 }));
    let addresses = expedited::import::<dyn Addresses>(&format!("udp://{}", server.address())).unwrap();
    assert_eq!(addresses.retrieve().unwrap(), [[0, 0x041a, 0x1000, 0xbb10, 0x1101, 0]]);
    assert_eq!(worker.executed().len(), 101);
    assert_eq!(server.calls(), 103);
    assert_eq!(server.troubles(), 0);
}

#[test]
fn replies_mean_what_they_mean_on_a_connection() {
    let (peer, work) = peer();
    for (reply, kind, ran) in [
        ("0003 0003 0001 id 0000", Kind::NotExported, Ran::No),
        ("0003 0003 0001 id 0001 0004 0005", Kind::Mismatch, Ran::No),
        ("0003 0003 0001 id 0002", Kind::NoSuchProcedure, Ran::No),
        ("0003 0003 0001 id 0003", Kind::BadArguments, Ran::No),
        ("0003 0003 0001 id ffff", Kind::Other, Ran::Maybe),
        ("0003 0003 0003 id 0002", Kind::BadResult, Ran::Yes),
        ("0003 0003 0002 id", Kind::BadResult, Ran::Yes),
        ("0003 0003 0002 id 0001 0002", Kind::BadResult, Ran::Yes),
        // No version in common, without and with a message.
        ("0004 0005", Kind::Mismatch, Ran::No),
        ("0004 0005 0002 id 0001", Kind::Mismatch, Ran::Maybe),
    ] {
        let pending = work.start().next(7);
        let (packet, from) = receive(&peer);
        peer.send_to(&answer(&packet, reply), from).unwrap();
        let why: CallFailed = pending.wait().unwrap_err().into();
        assert_eq!((why.kind(), why.ran()), (kind, ran), "{reply}: {why}");
        if reply.ends_with("0001 0004 0005") {
            let other = why.source().unwrap().downcast_ref::<OtherVersions>();
            assert_eq!(other, Some(&OtherVersions(Versions { lowest: 4, highest: 5 })));
        }
    }
}

#[test]
fn a_port_at_which_nothing_receives() {
    let unused = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let why: CallFailed = work(unused).next(1).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
}

#[test]
fn a_call_without_an_answer_fails_after_its_time() {
    let (peer, work) = peer();
    let why: CallFailed = work.within(Duration::from_millis(10)).next(1).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    let builder = expedited::Builder::default().patience(Duration::from_millis(10));
    let work = builder.import::<dyn Work>(&format!("udp://{}", peer.local_addr().unwrap())).unwrap();
    for why in [CallFailed::from(work.next(1).unwrap_err()), work.again(1).unwrap_err().into()] {
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
        assert!(why.to_string().contains("no reply within 10ms"), "{why}");
    }
}

#[test]
fn bulk_data_needs_a_stream() {
    let (server, worker, _) = server();
    let client = work(server.address());
    let sent = bulk::send(&b"data"[..], || client.next(1));
    let text = format!("{sent:?}");
    assert!(text.contains("a packet has no bulk data"), "{text}");
    assert!(worker.executed().is_empty());
    assert_eq!(client.next(1).unwrap(), 2);
}

#[test]
fn addresses_that_are_none() {
    for address in ["tcp://127.0.0.1:5", "127.0.0.1:5", "udp://127.0.0.1", "udp://127.0.0.1:70000"] {
        let why = expedited::import::<dyn Work>(address).map(drop).unwrap_err();
        assert_eq!((why.kind(), why.ran()), (Kind::NoSuchName, Ran::No), "{why}");
    }
}
