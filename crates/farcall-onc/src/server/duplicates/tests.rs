//! What is taken for the same call, and for how long.

use std::net::SocketAddr;

use super::*;
use crate::wire::auth::OpaqueAuth;
use crate::wire::message::Accepted;

fn peer(transport: Transport, address: &str) -> Peer {
    Peer { transport, address: Some(address.parse::<SocketAddr>().unwrap()), user: None, connection: None }
}

fn call(xid: u32, credential: &[u8]) -> Call<'_> {
    let credential = OpaqueAuth::new(1, credential).unwrap();
    Call { xid, program: 9, version: 1, procedure: 3, credential, verifier: OpaqueAuth::NONE }
}

fn reply(xid: u32, len: usize) -> Outgoing {
    let mut reply = Outgoing::default();
    reply.accepted(xid, Accepted::Success(&vec![0; len]));
    reply
}

#[test]
fn the_same_call_is_one_from_the_same_place_with_the_same_words() {
    let udp = peer(Transport::Udp, "10.0.0.1:700");
    let key = Key::of(7, &udp, &call(1, b"me"), b"args").unwrap();
    assert_eq!(Key::of(7, &udp, &call(1, b"me"), b"args"), Some(key));
    let others = [
        Key::of(7, &udp, &call(2, b"me"), b"args"),
        Key::of(7, &udp, &call(1, b"you"), b"args"),
        Key::of(7, &udp, &call(1, b"me"), b"arg2"),
        Key::of(7, &udp, &Call { procedure: 4, ..call(1, b"me") }, b"args"),
        Key::of(7, &udp, &Call { program: 8, ..call(1, b"me") }, b"args"),
        Key::of(7, &udp, &Call { version: 2, ..call(1, b"me") }, b"args"),
        Key::of(7, &peer(Transport::Udp, "10.0.0.2:700"), &call(1, b"me"), b"args"),
        Key::of(7, &peer(Transport::Udp, "10.0.0.1:701"), &call(1, b"me"), b"args"),
        Key::of(7, &peer(Transport::Tcp, "10.0.0.1:700"), &call(1, b"me"), b"args"),
    ];
    others.iter().for_each(|other| assert_ne!(other, &Some(key)));
    let tcp = |port| Key::of(7, &peer(Transport::Tcp, &format!("10.0.0.1:{port}")), &call(1, b"me"), b"args");
    assert_eq!(tcp(700), tcp(701));
}

#[test]
fn a_call_is_running_then_answered() {
    let duplicates = Duplicates::new(Retention::default());
    let udp = peer(Transport::Udp, "10.0.0.1:700");
    let key = Key::of(7, &udp, &call(1, b""), b"").unwrap();
    assert!(matches!(duplicates.begin(&key, &udp), Seen::Never));
    assert!(matches!(duplicates.begin(&key, &udp), Seen::Running));
    duplicates.end(&key, &reply(1, 8));
    let Seen::Answered(answer) = duplicates.begin(&key, &udp) else { panic!("it is forgotten") };
    let mut again = Outgoing::default();
    again.again(&answer);
    assert_eq!(again.parts(), reply(1, 8).parts());
}

#[test]
fn replies_go_by_age_and_by_bytes() {
    let udp = peer(Transport::Udp, "10.0.0.1:700");
    let serve = |duplicates: &Duplicates, xid| {
        let key = Key::of(7, &udp, &call(xid, b""), b"").unwrap();
        let seen = duplicates.begin(&key, &udp);
        if let Seen::Never = seen {
            duplicates.end(&key, &reply(xid, 1000));
        }
        seen
    };
    let small = Duplicates::new(Retention { bytes: 10_000, ..Retention::default() });
    (0..1000).for_each(|xid| drop(serve(&small, xid)));
    let (calls, bytes) = small.kept();
    assert!(bytes <= 10_000 && calls == 8, "{calls} calls of {bytes} bytes");
    assert!(matches!(serve(&small, 999), Seen::Answered(_)));
    assert!(matches!(serve(&small, 0), Seen::Never));
    let brief = Duplicates::new(Retention { time: Duration::ZERO, ..Retention::default() });
    assert!(matches!(serve(&brief, 1), Seen::Never));
    assert!(matches!(serve(&brief, 1), Seen::Never));
    assert_eq!(brief.kept(), (0, 0));
}
