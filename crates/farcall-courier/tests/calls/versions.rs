//! The exchange of Courier's versions.

use std::io::Read;

use farcall::{Error, Kind, Ran};
use farcall_courier::Builder;
use farcall_courier::wire::message::{Courier, Message, Versions};

use crate::common::{Peer, Work, bytes, raw, server, work};

fn range(lowest: u16, highest: u16) -> Versions {
    Versions { lowest, highest }
}

#[test]
fn a_client_that_speaks_version_2_alone_is_served() {
    let (_server, address) = server();
    let mut peer = Peer::connect(&address, range(2, 2));
    peer.send(&bytes("0000 0007 0384 0003 0001 0041"), true);
    assert_eq!(peer.receive().unwrap(), bytes("0002 0007 0042"));
    peer.send(&bytes("0000 0008 0384 0009 0001 0041"), true);
    assert_eq!(peer.receive().unwrap(), bytes("0001 0008 0001"), "without the range");
}

#[test]
fn a_client_without_a_common_version_is_told_ours_and_the_connection_ends() {
    let (_server, address) = server();
    for versions in [range(5, 6), range(0, 1), range(9, 2)] {
        let mut peer = Peer::connect(&address, versions);
        peer.call(1, (900, 3), 1, &[0, 7]);
        assert_eq!(peer.receive(), None);
        assert_eq!(peer.versions, Some(Versions::ALL));
    }
}

#[test]
fn a_server_without_a_common_version_is_refused_clearly() {
    let address = raw(|_, mut peer| {
        peer.send(&range(5, 6).to_bytes(), false);
        let _ = peer.receive();
    });
    let says = |result: farcall::Result<u16>| {
        let Err(Error::CallFailed(why)) = result else { panic!("{result:?}") };
        (why.kind(), why.ran(), why.detail().rsplit(": ").next().unwrap().to_owned())
    };
    assert_eq!(
        says(work(&address).next(1)),
        (
            Kind::Mismatch,
            Ran::Maybe,
            "the server speaks versions 5 to 6 of Courier, and this client version 3".into()
        )
    );
    let both = Builder::default().version_2().import::<dyn Work>(&address).unwrap();
    assert_eq!(
        says(both.next(1)),
        (
            Kind::Mismatch,
            Ran::No,
            "the server speaks versions 5 to 6 of Courier, and this client versions 2 to 3".into()
        )
    );
}

#[test]
fn a_server_of_version_2_is_called_in_its_form() {
    let address = raw(|_, mut peer| {
        peer.send(&range(2, 2).to_bytes(), false);
        let call = peer.receive().unwrap();
        assert_eq!(peer.versions, Some(Versions::ALL));
        let Ok(Message::Call(call)) = Message::parse(&call, Courier::Two) else { panic!("{call:x?}") };
        assert_eq!((call.program, call.version, call.procedure, call.arguments), (900, 3, 1, &[0, 7][..]));
        let mut reply = Vec::new();
        Message::Return(call.id, &[0, 8]).write(Courier::Two, &mut reply);
        peer.send(&reply, true);
        let _ = peer.receive();
    });
    let work = Builder::default().version_2().import::<dyn Work>(&address).unwrap();
    assert_eq!(work.next(7), Ok(8));
}

#[test]
fn the_versions_may_come_with_the_reply_and_the_call_goes_with_the_versions() {
    let address = raw(|_, mut peer| {
        // One packet: the versions, then the call.
        let mut packet = [0; 2 + 12 + 4 + 14];
        peer.socket.read_exact(&mut packet).unwrap();
        assert_eq!(packet[..4], [0, 30, 0x10, 0]);
        assert_eq!(packet[14..], bytes("0003 0003 0000 0100 0000 0384 0003 0001 0007")[..]);
        peer.send(&bytes("0003 0003 0002 0100 0008"), true);
        let mut packet = [0; 2 + 12 + 14];
        peer.socket.read_exact(&mut packet).unwrap();
        assert_eq!(packet[14..], bytes("0000 0101 0000 0384 0003 0001 0008")[..]);
        peer.send(&bytes("0002 0101 0009"), true);
    });
    let work = work(&address);
    assert_eq!((work.next(7), work.next(8)), (Ok(8), Ok(9)));
}

#[test]
fn a_server_that_sends_the_versions_in_a_message_of_their_own_is_understood() {
    let address = raw(|_, mut peer| {
        peer.send(&Versions::THREE.to_bytes(), true);
        while peer.answer_next().is_some() {}
    });
    assert_eq!(work(&address).next(7), Ok(8));
    let both = Builder::default().version_2().import::<dyn Work>(&address).unwrap();
    assert_eq!(both.next(7), Ok(8));
}
