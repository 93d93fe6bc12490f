//! Packets that are lost, come late, or come twice, as a client sees it. How calls fare under much loss is
//! tried in the simulated network.

use std::net::UdpSocket;
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran};

use crate::common::{Work, answer, peer, receive, server, work};

#[test]
fn the_packet_of_an_idempotent_call_is_sent_again() {
    let (peer, work) = peer();
    let pending = work.start().again(2);
    let (first, from) = receive(&peer);
    assert_eq!(receive(&peer), (first.clone(), from));
    peer.send_to(&answer(&first, "0003 0003 0002 id 0002"), from).unwrap();
    assert_eq!(pending.wait().unwrap(), 2);
}

#[test]
fn a_lost_call_and_a_lost_reply_of_an_idempotent_call() {
    let (server, worker, _) = server();
    let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = relay.local_addr().unwrap();
    let relaying = std::thread::spawn(move || {
        let towards = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The first packet of the call is lost, and the reply to the second.
        receive(&relay);
        for is_lost in [true, false] {
            let (packet, from) = receive(&relay);
            towards.send_to(&packet, server.address()).unwrap();
            let (reply, _) = receive(&towards);
            if !is_lost {
                relay.send_to(&reply, from).unwrap();
            }
        }
        server.calls()
    });
    assert_eq!(work(address).again(2).unwrap(), 2);
    assert_eq!(relaying.join().unwrap(), 1);
    assert_eq!(worker.executed(), [2], "the second packet was answered from memory");
}

#[test]
fn another_call_is_sent_once() {
    let (peer, work) = peer();
    // Longer than the time after which the packet of an idempotent call is sent again.
    let why: CallFailed = work.within(Duration::from_millis(700)).next(1).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    let pending = work.start().next(2);
    let ends = [receive(&peer).0[18..].to_vec(), receive(&peer).0[18..].to_vec()];
    assert_eq!(ends, [[0, 3, 0, 1, 0, 1], [0, 3, 0, 1, 0, 2]]);
    drop(pending);
}

#[test]
fn a_late_reply_or_a_second_one_is_not_the_next_calls() {
    let (peer, work) = peer();
    let why: CallFailed = work.within(Duration::from_millis(10)).next(1).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    let mut late = receive(&peer).0;
    for number in 2..10 {
        let pending = work.start().next(number);
        let (packet, from) = receive(&peer);
        peer.send_to(&answer(&late, "0003 0003 0002 id 0063"), from).unwrap();
        for _ in 0..3 {
            peer.send_to(&answer(&packet, &format!("0003 0003 0002 id {number:04x}")), from).unwrap();
        }
        assert_eq!(pending.wait().unwrap(), number);
        late = packet;
    }
}
