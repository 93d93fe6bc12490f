//! Tests of what one host can make a server hold, and that other hosts are served meanwhile.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

use farcall_onc::Server;
use farcall_onc::wire::auth::OpaqueAuth;
use farcall_onc::wire::record::Limits;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::calc::*;
use crate::calls::{Game, Table};

/// Returns a connection from another host. Loopback has many addresses, and each counts as a host.
fn from_afar(server: &Server, host: u8) -> Stream<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0)).unwrap();
    connect(&socket, &server.tcp().unwrap()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    Stream(stream)
}

/// Checks that the server answers.
fn is_served(stream: &mut Stream<TcpStream>) {
    assert_eq!(success(&stream.ask(&call(9, 1, &[40, 2]))), (9, words(&[42])));
}

const MIB: usize = 1 << 20;
/// The memory limit of the servers in these tests, in bytes.
const BUDGET: usize = 8 * MIB;
/// The number of their workers.
const THREADS: usize = 4;
/// The most bytes that they hold. Besides the limit, each reading thread can hold one record for a moment, in
/// a buffer of twice its length.
const MOST: usize = BUDGET + THREADS * 2 * MIB;

#[test]
fn records_that_never_end_cost_the_connections_of_their_host_and_nobody_else() {
    let limits = Limits { record: MIB, ..Limits::default() };
    let (server, _) = serve_with(|builder| builder.records(limits).memory(BUDGET).workers(THREADS));
    let whole = record(&call_as(7, 0, OpaqueAuth::NONE, &vec![0; MIB - 40]));
    let (first, rest) = whole.split_at(MIB / 2);
    let mut honest = tcp(&server);
    honest.0.write_all(first).unwrap();
    let mut attackers = Vec::new();
    for _ in 0..64 {
        let mut attacker = from_afar(&server, 2);
        // The server may close the connection before all is sent.
        let _ = attacker.0.write_all(&whole[..whole.len() - 8]);
        attackers.push(attacker);
        assert!(server.memory() <= MOST, "{} bytes are held", server.memory());
        is_served(&mut tcp(&server));
    }
    attackers[0].is_closed();
    honest.0.write_all(rest).unwrap();
    assert_eq!(success(&honest.receive()), (7, vec![]));
    drop(attackers);
}

#[test]
fn records_that_never_end_of_many_hosts_cost_the_connections_of_their_network_and_no_other() {
    let Some(own) = own_address() else { return };
    let builder = Server::builder().program::<dyn Calc>(Arc::new(Calculator::default()));
    let limits = Limits { record: MIB, ..Limits::default() };
    let builder = builder.records(limits).memory(BUDGET).workers(THREADS);
    let server = builder.address("0.0.0.0:0".parse().unwrap()).start().unwrap();
    let port = server.tcp().unwrap().port();
    let whole = record(&call_as(7, 0, OpaqueAuth::NONE, &vec![0; MIB - 40]));
    let (first, rest) = whole.split_at(MIB - MIB / 8);
    let mut honest = Stream(TcpStream::connect((own, port)).unwrap());
    honest.0.set_read_timeout(Some(PATIENCE)).unwrap();
    honest.0.write_all(first).unwrap();
    // Each of these hosts has less than the honest one.
    let attackers: Vec<_> = (2..66)
        .map(|host| {
            let mut attacker = connect_from(host, port);
            attacker.write_all(&whole[..MIB / 2]).unwrap();
            attacker
        })
        .collect();
    attackers.iter().take(1).for_each(|attacker| Stream(attacker.try_clone().unwrap()).is_closed());
    honest.0.write_all(rest).unwrap();
    assert_eq!(success(&honest.receive()), (7, vec![]));
}

#[test]
fn replies_that_nobody_reads_cost_the_connections_of_their_host_and_nobody_else() {
    let limits = Limits { record: MIB, ..Limits::default() };
    let (server, _) = serve_with(|builder| builder.records(limits).memory(BUDGET).workers(THREADS));
    let mut honest = tcp(&server);
    honest.send(&call(7, 12, &[4 << 20]));
    let mut attackers = Vec::new();
    for xid in 0..8 {
        let mut attacker = from_afar(&server, 2);
        // A longer reply than the sockets' buffers and the server's memory can hold.
        attacker.send(&call(xid, 12, &[32 << 20]));
        attackers.push(attacker);
        is_served(&mut tcp(&server));
    }
    // The client can read what was sent before the connection was closed.
    let mut came = Vec::new();
    let end = attackers[0].0.read_to_end(&mut came).map_err(|why| why.kind());
    assert!(matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    assert!(came.len() < 32 << 20);
    assert_eq!(success(&honest.receive()).1.len(), 4 + (4 << 20));
    is_served(&mut honest);
}

#[test]
fn replies_to_no_call_cost_the_connections_of_their_host_and_nobody_else() {
    let limits = Limits { record: MIB, ..Limits::default() };
    let of =
        |builder: farcall_onc::server::ServerBuilder| builder.program::<dyn Game>(std::sync::Arc::new(Table));
    let (server, _) = serve_with(|builder| of(builder).records(limits).memory(BUDGET).workers(THREADS));
    // Makes the server call this client once.
    let call_back = |stream: &mut Stream<TcpStream>, xid| {
        let mut play = call(xid, 1, &[1]);
        play[12..20].copy_from_slice(&words(&[0x2000_0078, 1]));
        stream.send(&play);
        let asked = stream.receive();
        stream.send(&[&asked[..4], &words(&[1, 0, 0, 0, 0, 0])].concat());
        assert_eq!(success(&stream.receive()).0, xid);
    };
    let mut honest = tcp(&server);
    call_back(&mut honest, 100);
    let mut nonsense = words(&[77, 1, 0, 0, 0, 0]);
    // As long as the receive buffer that each connection has in any case.
    nonsense.resize(8 << 10, 7);
    let mut attackers: Vec<_> = (0..8).map(|_| from_afar(&server, 2)).collect();
    attackers.iter_mut().zip(0..).for_each(|(attacker, xid)| call_back(attacker, xid));
    for attacker in &mut attackers {
        // The server may close the connection before all is sent.
        let _ = attacker.0.write_all(&record(&nonsense).repeat(6 * MIB / nonsense.len()));
        let _ = attacker.0.write_all(&record(&call(2, 1, &[1, 1])));
        let _ = attacker.0.read(&mut [0; 64]);
        assert!(server.memory() <= MOST, "{} bytes are held", server.memory());
    }
    is_served(&mut tcp(&server));
    call_back(&mut honest, 101);
    drop(attackers);
}

#[test]
fn who_has_most_connections_gives_one_up_for_another_host() {
    let (server, calculator) = serve_with(|builder| builder.connections(4));
    let mut attackers: Vec<_> = (0..4).map(|_| from_afar(&server, 2)).collect();
    for (attacker, xid) in attackers.iter_mut().zip(1..) {
        // No connection is idle.
        attacker.send(&call(xid, 13, &[]));
        calculator.await_begun(xid);
    }
    let mut honest = tcp(&server);
    is_served(&mut honest);
    let mut third = from_afar(&server, 3);
    is_served(&mut third);
    assert_eq!(server.connections(), 4);
    // A new connection of the host with most has to wait.
    let mut waits = from_afar(&server, 2);
    waits.send(&call(99, 1, &[1, 1]));
    is_served(&mut honest);
    calculator.open();
    drop(attackers);
    assert_eq!(success(&waits.receive()), (99, words(&[2])));
}

#[test]
fn of_many_that_wait_for_room_those_of_other_hosts_stay() {
    let (server, _) = serve_with(|builder| builder.connections(2));
    let mut first = [from_afar(&server, 2), from_afar(&server, 3)];
    first.iter_mut().for_each(is_served);
    // Each host has one connection: a further one has to wait.
    let mut honest = from_afar(&server, 3);
    honest.send(&call(1, 1, &[1, 1]));
    let mut many: Vec<_> = (0..100).map(|_| from_afar(&server, 2)).collect();
    many[99].is_closed();
    let [_, former] = first;
    drop(former);
    assert_eq!(success(&honest.receive()), (1, words(&[2])));
}

#[test]
fn one_host_leaves_threads_for_the_calls_of_others() {
    let (server, calculator) = serve_with(|builder| builder.workers(8));
    let mut attackers: Vec<_> = (0..3).map(|_| from_afar(&server, 2)).collect();
    let mut xids = 100..;
    for attacker in &mut attackers {
        xids.by_ref().take(8).for_each(|xid| attacker.send(&call(xid, 13, &[])));
    }
    // Eight calls may run at once, and one host may have four fifths of them.
    calculator.await_begun(7);
    for _ in 0..10 {
        is_served(&mut tcp(&server));
    }
    // Another host sends more calls that take long.
    let mut other = tcp(&server);
    other.send(&call(7, 13, &[]));
    calculator.await_begun(8);
    calculator.open();
    assert_eq!(success(&other.receive()).0, 7);
    for attacker in &mut attackers {
        (0..8).for_each(|_| assert_eq!(success(&attacker.receive()).1, words(&[7])));
    }
}

/// Returns a socket that sends calls from another host.
fn datagrams_from_afar(server: &Server, host: u8) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)).unwrap();
    socket.connect(server.udp().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Returns the identifier and the result of the next reply.
fn datagram(socket: &UdpSocket) -> (u32, Vec<u8>) {
    let mut reply = [0; 1024];
    let len = socket.recv(&mut reply).expect("a reply should come");
    success(&reply[..len])
}

#[test]
fn one_host_leaves_threads_for_the_calls_of_others_over_udp() {
    const MANY: u32 = 40;
    let (server, calculator) = serve_with(|builder| builder.workers(8));
    let attacker = datagrams_from_afar(&server, 2);
    for xid in 100..100 + MANY {
        attacker.send(&call(xid, 13, &[])).unwrap();
    }
    // Eight calls may run at once, and one host may have four fifths of them.
    calculator.await_begun(7);
    let other = datagrams_from_afar(&server, 3);
    for xid in 0..10 {
        other.send(&call(xid, 1, &[40, 2])).unwrap();
        assert_eq!(datagram(&other), (xid, words(&[42])));
        is_served(&mut tcp(&server));
    }
    // Another host sends more calls that take long.
    other.send(&call(7, 13, &[])).unwrap();
    calculator.await_begun(8);
    calculator.open();
    assert_eq!(datagram(&other).0, 7);
    // The calls that were put aside are served too.
    let mut xids: Vec<u32> = (0..MANY).map(|_| datagram(&attacker).0).collect();
    xids.sort_unstable();
    assert!(xids.into_iter().eq(100..100 + MANY));
}

#[test]
fn each_bound_that_the_document_names_has_its_test() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let document = std::fs::read_to_string(format!("{root}/docs/onc.md")).unwrap();
    let (_, section) = document.split_once("## What a server holds").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.contains(".rs::")).collect();
    assert!(rows.len() >= 11, "{rows:?}");
    for row in rows {
        let (file, test) = row.rsplit('`').nth(1).and_then(|cell| cell.split_once("::")).unwrap();
        let code = std::fs::read_to_string(format!("{root}/crates/{file}")).unwrap();
        assert!(code.contains(&format!("fn {test}()")), "{row}");
    }
}
