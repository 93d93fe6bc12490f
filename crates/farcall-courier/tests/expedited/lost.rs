//! Packets that are lost, come late, or come twice.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran};
use farcall_courier::expedited;

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

/// Returns an address whose packets go to the server, and the replies back. In each direction one packet in
/// eight is lost, and one in eight comes twice.
fn lossy(server: SocketAddr) -> SocketAddr {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = near.local_addr().unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = Arc::new(Mutex::new(None::<SocketAddr>));
    let [near_again, far_again] = [&near, &far].map(|socket| socket.try_clone().unwrap());
    let known = client.clone();
    std::thread::spawn(move || {
        pass(
            1,
            || {
                let (packet, from) = receive(&near);
                *known.lock().unwrap() = Some(from);
                packet
            },
            |packet| drop(far.send_to(packet, server)),
        );
    });
    std::thread::spawn(move || {
        pass(
            2,
            || receive(&far_again).0,
            |packet| {
                if let Some(client) = *client.lock().unwrap() {
                    drop(near_again.send_to(packet, client));
                }
            },
        );
    });
    address
}

fn pass(seed: u64, receive: impl Fn() -> Vec<u8>, send: impl Fn(&[u8])) {
    let mut random = seed;
    loop {
        let packet = receive();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let times = match random >> 61 {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        (0..times).for_each(|_| send(&packet));
    }
}

#[test]
fn calls_are_executed_once_and_told_truly_on_a_network_that_loses_and_duplicates() {
    let (server, worker, _) = server();
    let address = format!("udp://{}", lossy(server.address()));
    let builder = expedited::Builder::default().patience(Duration::from_millis(50));
    let work = builder.import::<dyn Work>(&address).unwrap();
    let mut returned = HashSet::new();
    for number in 0..200 {
        match work.next(number) {
            Ok(result) => {
                assert_eq!(result, number + 1, "the result of another call");
                returned.insert(number);
            }
            Err(why) => {
                let why = CallFailed::from(why);
                assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
            }
        }
    }
    let executed = worker.executed();
    let different: HashSet<u16> = executed.iter().copied().collect();
    assert_eq!(different.len(), executed.len(), "a call was executed twice");
    assert!(returned.is_subset(&different), "a call returned that was not executed");
    assert!(!returned.is_empty() && returned.len() < 200, "{} returned", returned.len());
}

#[test]
fn idempotent_calls_come_through_a_network_that_loses_and_duplicates() {
    let (server, worker, _) = server();
    let work = work(lossy(server.address()));
    let unlimited = Duration::from_secs(600);
    for number in 0..12 {
        assert_eq!(work.within(unlimited).again(number).unwrap(), number);
    }
    assert_eq!(worker.executed(), (0..12).collect::<Vec<_>>(), "a call was executed twice");
}
