//! Tests that a broadcast call ends in time, even if many replies arrive.

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farcall::multi::Next;
use farcall_onc::rpcbind::Broadcast;
use farcall_onc::wire::auth::OpaqueAuth;
use farcall_onc::wire::message::{Accepted, Answer, Call, Reply};

#[test]
fn a_broadcast_handles_no_replies_after_its_time_even_if_more_have_arrived() {
    let mapper = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (answered, answers) = mpsc::channel();
    let address = mapper.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 1000];
        let (len, from) = mapper.recv_from(&mut buffer).unwrap();
        let xid = Call::parse(&buffer[..len]).unwrap().0.xid;
        // The port mapper's reply in version 2: the program's port, and the result as bytes.
        let body = [0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 9];
        let (verifier, outcome) = (OpaqueAuth::NONE, Accepted::Success(&body));
        let mut reply = Vec::new();
        Reply { xid, answer: Answer::Accepted { verifier, outcome } }.write(&mut reply);
        // Sends the replies of 100 hosts. All of them have arrived when the client handles the first.
        for _ in 0..100 {
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&reply, from).unwrap();
        }
        answered.send(()).unwrap();
    });
    let (within, mut heard) = (Duration::from_millis(50), 0);
    let all = Broadcast::of(1, 1, 1).to_mapper(address).within(within);
    all.each::<u32>(|answer| {
        let start = Instant::now();
        answers.recv().unwrap();
        while start.elapsed() <= within {
            thread::yield_now();
        }
        assert_eq!((answer.server.port(), answer.result.unwrap()), (7, 9));
        heard += 1;
        Next::Continue
    })
    .unwrap();
    // The client handles no reply at all if the first reply came too late.
    assert!(heard <= 1, "the client handled {heard} replies");
}
