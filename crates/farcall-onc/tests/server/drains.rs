//! Tests of servers that end: they finish the calls that have begun.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall_onc::rpcbind::{Mapper, Rpcbind};
use farcall_onc::{Client, Server};

use crate::calc::*;
use crate::calls::{Game, Table};

fn drain_within(server: Server, time: Duration) -> std::thread::JoinHandle<bool> {
    std::thread::spawn(move || server.drain(time))
}

#[test]
fn a_drain_finishes_the_calls_that_have_begun() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let mapper = Mapper::default();
    let (server, calculator) = serve_with(|builder| builder.unix(&path).register_at(&mapper));
    let address = server.tcp().unwrap();
    let (udp, mut idle, mut tcp) = (Udp::to(server.udp().unwrap()), tcp(&server), tcp(&server));
    let mut unix = Stream(UnixStream::connect(&path).unwrap());
    assert_eq!(success(&idle.ask(&call(1, 1, &[2, 3]))), (1, words(&[5])));
    udp.send(&call(2, 4, &[]));
    tcp.send(&call(3, 4, &[]));
    unix.send(&call(4, 4, &[]));
    calculator.await_begun(3);
    let drain = drain_within(server, PATIENCE);
    idle.is_closed();
    assert!(mapper.entries().is_empty(), "nobody new finds it");
    assert!(TcpStream::connect(address).is_err(), "nobody new gets in");
    calculator.open();
    assert_eq!(success(&tcp.receive()), (3, words(&[7])));
    assert_eq!(success(&unix.receive()), (4, words(&[7])));
    assert_eq!(success(&udp.receive()), (2, words(&[7])));
    tcp.is_closed();
    unix.is_closed();
    assert!(drain.join().unwrap());
}

#[test]
fn a_drain_says_that_a_call_has_not_ended() {
    for over_udp in [true, false] {
        let (server, calculator) = serve();
        let (udp, mut tcp) = (Udp::to(server.udp().unwrap()), tcp(&server));
        match over_udp {
            true => udp.send(&call(1, 4, &[])),
            false => tcp.send(&call(1, 4, &[])),
        }
        calculator.await_begun(1);
        assert!(!server.drain(Duration::ZERO));
        calculator.open();
    }
}

/// A reply of 16 MiB is longer than the sockets' buffers.
#[test]
fn a_drain_waits_until_a_slow_client_has_its_reply() {
    const BYTES: u32 = 16 << 20;
    let (server, _) = serve();
    let mut tcp = tcp(&server);
    tcp.send(&call(1, 12, &[BYTES]));
    let mut first = [0; 4];
    tcp.0.read_exact(&mut first).unwrap();
    let drain = drain_within(server, PATIENCE);
    let mut rest = Vec::new();
    tcp.0.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > BYTES as usize);
    assert!(drain.join().unwrap());
}

#[test]
fn a_client_that_calls_all_the_time_does_not_hold_up_a_drain() {
    let (server, _) = serve();
    let mut tcp = tcp(&server);
    tcp.ask(&call(1, 1, &[2, 3]));
    let drain = drain_within(server, PATIENCE);
    let (mut sent, mut reply) = (0, vec![0; record(&[0; 28]).len()]);
    // Either the call or its reply finds the end.
    while tcp.0.write_all(&record(&call(2, 1, &[2, 3]))).is_ok() && tcp.0.read_exact(&mut reply).is_ok() {
        sent += 1;
    }
    println!("{sent} calls were answered meanwhile");
    assert!(drain.join().unwrap());
}

/// Waits for a call to another server, as a procedure does that calls on.
struct Relay(CalcClient);

impl Game for Relay {
    fn play(&self, _: u32) -> farcall::Result<u32> {
        self.0.wait()
    }
}

/// The server reads the connection while a procedure waits for another server.
#[test]
fn a_drain_takes_no_call_on_a_connection_whose_call_still_runs() {
    let (other, elsewhere) = serve();
    let onward = Client::connect(&format!("tcp://{}", other.tcp().unwrap())).unwrap().bind::<dyn Calc>();
    let (server, calculator) = serve_with(|builder| builder.program::<dyn Game>(Arc::new(Relay(onward))));
    let (mut idle, mut tcp) = (tcp(&server), tcp(&server));
    assert_eq!(success(&idle.ask(&call(1, 1, &[2, 3]))), (1, words(&[5])));
    tcp.send(&play(2));
    elsewhere.await_begun(1);
    let drain = drain_within(server, PATIENCE);
    idle.is_closed();
    tcp.send(&call(3, 3, &[]));
    // These have no room in the sockets' buffers, so when they are sent, the server has read the call before.
    let null = call(4, 0, &[0; 1 << 18]);
    (0..16).for_each(|_| tcp.send(&null));
    elsewhere.open();
    assert_eq!(success(&tcp.receive()), (2, words(&[7])));
    // Calls that it reads when none runs any more may have replies. What it does not read resets the
    // connection.
    let _ = tcp.0.read_to_end(&mut Vec::new());
    assert!(drain.join().unwrap());
    assert_eq!(calculator.counted.load(Ordering::SeqCst), 0, "the call came too late");
}

/// While a procedure waits for its caller's reply, the caller may call the server before it replies.
#[test]
fn a_drain_serves_what_a_client_calls_before_it_replies_to_the_server() {
    let (server, calculator) = serve_with(|builder| builder.program::<dyn Game>(Arc::new(Table)));
    let (mut idle, mut tcp) = (tcp(&server), tcp(&server));
    assert_eq!(success(&idle.ask(&call(1, 1, &[2, 3]))), (1, words(&[5])));
    tcp.send(&play(2));
    // The server's call to the client.
    let asked = tcp.receive();
    let drain = drain_within(server, PATIENCE);
    idle.is_closed();
    assert_eq!(success(&tcp.ask(&call(3, 3, &[]))).0, 3);
    tcp.send(&[&asked[..4], &words(&[1, 0, 0, 0, 0, 42])].concat());
    assert_eq!(success(&tcp.receive()), (2, words(&[42])));
    tcp.is_closed();
    assert!(drain.join().unwrap());
    assert_eq!(calculator.counted.load(Ordering::SeqCst), 1);
}

/// Returns a call of the game with one round.
fn play(xid: u32) -> Vec<u8> {
    let mut play = call(xid, 1, &[1]);
    play[12..20].copy_from_slice(&words(&[0x2000_0078, 1]));
    play
}

/// Without a bound, each of the two withdrawals would wait for the client's patience of 25 s.
#[test]
fn a_silent_port_mapper_leaves_a_drain_most_of_its_time() {
    let gate = Arc::new((Mutex::new(true), Condvar::new()));
    let inside = gate.clone();
    let port_mapper = Server::builder().mapper(&Mapper::default()).allow(move |_| {
        drop(inside.1.wait_while(inside.0.lock().unwrap(), |is_open| !*is_open));
        Ok(())
    });
    let port_mapper = port_mapper.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", port_mapper.tcp().unwrap());
    let rpcbind = Rpcbind::at(&Client::builder(), &address).unwrap();
    let (server, _) = serve_with(|builder| builder.program::<dyn Game>(Arc::new(Table)).register(&rpcbind));
    let mut tcp = tcp(&server);
    assert_eq!(success(&tcp.ask(&call(1, 1, &[2, 3]))), (1, words(&[5])));
    *gate.0.lock().unwrap() = false;
    // A drain without any time left says that the connection has not ended.
    assert!(server.drain(PATIENCE));
    tcp.is_closed();
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}
