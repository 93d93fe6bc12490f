//! Tests of hostile input that has broken other servers.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farcall_onc::Server;
use farcall_onc::rpcbind::Mapper;
use farcall_onc::server::Transport;
use farcall_onc::wire::auth::{AuthStat, OpaqueAuth, Sys};
use farcall_onc::wire::message::{Accepted, Rejected};
use farcall_onc::wire::record::Limits;

use crate::calc::*;

/// Returns a server's answers to a message, over UDP and over TCP.
fn outcomes(message: &[u8]) -> [Vec<u8>; 2] {
    let (server, _) = serve();
    [Udp::to(server.udp().unwrap()).ask(message), tcp(&server).ask(message)]
}

fn is_garbage(procedure: u32, arguments: &[u32]) {
    for reply in outcomes(&call(1, procedure, arguments)) {
        assert_eq!(accepted(&reply), Accepted::GarbageArgs, "procedure {procedure}, {arguments:x?}");
    }
}

#[test]
fn a_length_that_is_not_there_takes_no_memory() {
    for length in [u32::MAX, 64 << 20, 0x8000_0000, 5] {
        is_garbage(2, &[length, 0]);
    }
}

#[test]
fn lengths_that_wrap_when_padded_or_multiplied_are_found() {
    for length in [u32::MAX, u32::MAX - 2, 0xffff_fffd, 0x4000_0001, 0x2000_0001] {
        is_garbage(2, &[length]);
        is_garbage(10, &[length]);
    }
}

#[test]
fn elements_of_no_bytes_are_bounded() {
    let [udp, tcp] = outcomes(&call(1, 10, &[1000]));
    assert_eq!((success(&udp).1, success(&tcp).1), (words(&[1000]), words(&[1000])));
    is_garbage(10, &[1 << 20]);
}

#[test]
fn a_list_of_400_000_nodes_does_not_overflow_the_stack() {
    let (server, _) = serve_with(|builder| builder.records(Limits { record: 8 << 20, ..Limits::default() }));
    let mut tcp = tcp(&server);
    let nodes = |count: usize| [words(&[1, 2]).repeat(count), words(&[0])].concat();
    assert_eq!(success(&tcp.ask(&call_as(1, 7, OpaqueAuth::NONE, &nodes(100)))).1, words(&[200]));
    assert_eq!(success(&tcp.ask(&call_as(2, 7, OpaqueAuth::NONE, &nodes(400_000)))).1, words(&[800_000]));
    assert_eq!(success(&tcp.ask(&call(3, 1, &[1, 1]))).0, 3);
}

#[test]
fn values_in_one_another_are_bounded_in_depth() {
    assert_eq!(success(&outcomes(&call(1, 15, &[1, 1, 0, 0, 0]))[0]), (1, vec![]));
    // Each node is the left branch of the one before.
    is_garbage(15, &[1; 15_000]);
}

#[test]
fn arguments_end_with_their_datagram() {
    let (server, _) = serve();
    let udp = Udp::to(server.udp().unwrap());
    assert_eq!(success(&udp.ask(&call(1, 1, &[40, 2]))).1, words(&[42]));
    // The rest of an earlier datagram in the buffer must not be read.
    assert_eq!(accepted(&udp.ask(&call(2, 1, &[]))), Accepted::GarbageArgs);
    assert_eq!(accepted(&udp.ask(&call(3, 1, &[40]))), Accepted::GarbageArgs);
}

#[test]
fn a_fragment_that_would_be_too_long_ends_the_connection_before_it_comes() {
    let (server, _) = serve();
    for mark in [0x7fff_ffff_u32, 0xffff_ffff, 0x8000_0000 | (4 << 20) | 1, 0x0080_0000] {
        let mut tcp = tcp(&server);
        tcp.0.write_all(&mark.to_be_bytes()).unwrap();
        tcp.is_closed();
    }
    let mut tcp = tcp(&server);
    // Several short fragments that are too long together.
    let fragment = [&0x000f_fff0_u32.to_be_bytes()[..], &vec![0; 0xf_fff0]].concat();
    let _ = (0..5).try_for_each(|_| tcp.0.write_all(&fragment));
    tcp.is_closed();
}

#[test]
fn any_fragmentation_is_taken() {
    let (server, _) = serve();
    let message = call(1, 1, &[2, 3]);
    let cut = |each: usize| {
        let mut out = Vec::new();
        let parts: Vec<_> = message.chunks(each).collect();
        for (place, part) in parts.iter().enumerate() {
            let last = if place + 1 == parts.len() { 0x8000_0000 } else { 0 };
            out.extend_from_slice(&(last | part.len() as u32).to_be_bytes());
            out.extend_from_slice(part);
        }
        out
    };
    let mut tcp = tcp(&server);
    for each in [1, 3, 4, 24, 47, 48] {
        tcp.0.write_all(&cut(each)).unwrap();
        assert_eq!(success(&tcp.receive()), (1, words(&[5])), "fragments of {each}");
    }
    // Data and an empty last fragment, and empty fragments between.
    let empty_last =
        [&(message.len() as u32).to_be_bytes()[..], &message, &0x8000_0000_u32.to_be_bytes()].concat();
    tcp.0.write_all(&empty_last).unwrap();
    assert_eq!(success(&tcp.receive()), (1, words(&[5])));
    tcp.0.write_all(&[&[0; 400][..], &record(&message)].concat()).unwrap();
    assert_eq!(success(&tcp.receive()), (1, words(&[5])));
    // Two records byte by byte, and both at once.
    record(&message).iter().for_each(|byte| tcp.0.write_all(&[*byte]).unwrap());
    assert_eq!(success(&tcp.receive()), (1, words(&[5])));
    tcp.0.write_all(&record(&message).repeat(2)).unwrap();
    assert_eq!([success(&tcp.receive()).0, success(&tcp.receive()).0], [1, 1]);
    // Three megabytes of arguments for procedure 0.
    tcp.send(&call_as(9, 0, OpaqueAuth::NONE, &vec![0; 3 << 20]));
    assert_eq!(success(&tcp.receive()), (9, vec![]));
}

#[test]
fn a_record_of_thousands_of_fragments_is_taken() {
    let (server, _) = serve();
    let mut tcp = tcp(&server);
    let echo = [call(1, 2, &[10_000]), vec![7; 10_000]].concat();
    let mut out: Vec<u8> = echo.chunks(1).flat_map(|byte| [0, 0, 0, 1, byte[0]]).collect();
    out.extend_from_slice(&0x8000_0000_u32.to_be_bytes());
    tcp.0.write_all(&out).unwrap();
    assert_eq!(success(&tcp.receive()).1.len(), 10_004);
}

#[test]
fn endless_empty_fragments_end_the_connection() {
    let (server, _) = serve();
    let mut tcp = tcp(&server);
    let _ = tcp.0.write_all(&vec![0; 1 << 20]);
    tcp.is_closed();
}

#[test]
fn what_a_broken_connection_left_is_not_the_next_ones() {
    let (server, _) = serve();
    let mut first = tcp(&server);
    first.0.write_all(&record(&call(1, 1, &[2, 3]))[..30]).unwrap();
    drop(first);
    assert_eq!(success(&tcp(&server).ask(&call(2, 1, &[2, 3]))), (2, words(&[5])));
}

#[test]
fn silent_and_slow_connections_are_closed() {
    let time = Duration::from_millis(40);
    let (server, calculator) = serve_with(|builder| builder.idle(time));
    let mut silent = tcp(&server);
    // On a busy machine the test itself may be silent for too long before it calls. Then it tries another
    // connection.
    let mut working =
        std::iter::repeat_with(|| tcp(&server)).find_map(|tcp| begins_to_work(tcp, &calculator)).unwrap();
    silent.is_closed();
    // A connection that waits for its reply is not idle.
    calculator.open();
    assert_eq!(success(&working.receive()).0, 1);
    working.is_closed();
    let (server, _) = serve_with(|builder| builder.records(Limits { time, ..Limits::default() }));
    let mut slow = tcp(&server);
    slow.0.write_all(&record(&call(1, 1, &[1, 2]))[..20]).unwrap();
    slow.is_closed();
}

/// Returns a connection on which a call of `wait` has begun, or `None` if the connection was closed before.
fn begins_to_work(mut tcp: Stream<TcpStream>, calculator: &Calculator) -> Option<Stream<TcpStream>> {
    let _ = tcp.0.write_all(&record(&call(1, 4, &[])));
    tcp.0.set_nonblocking(true).unwrap();
    while calculator.begun() == 0 {
        match tcp.0.peek(&mut [0]) {
            Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            _ => return None,
        }
    }
    tcp.0.set_nonblocking(false).unwrap();
    Some(tcp)
}

#[test]
fn a_connection_more_than_allowed_waits_for_another_to_end() {
    let (server, _) = serve_with(|builder| builder.connections(2));
    let (mut a, mut b, mut c) = (tcp(&server), tcp(&server), tcp(&server));
    assert_eq!(success(&a.ask(&call(1, 1, &[1, 1]))).0, 1);
    assert_eq!(success(&b.ask(&call(2, 1, &[1, 1]))).0, 2);
    assert_eq!(server.connections(), 2);
    c.send(&call(3, 1, &[1, 1]));
    drop(a);
    assert_eq!(success(&c.receive()).0, 3);
}

#[test]
fn half_records_of_many_addresses_do_not_keep_another_network_out() {
    let Some(own) = own_address() else { return };
    let builder = Server::builder().program::<dyn Calc>(Arc::new(Calculator::default()));
    let server = builder.address("0.0.0.0:0".parse().unwrap()).connections(4).start().unwrap();
    let port = server.tcp().unwrap().port();
    let attackers: Vec<TcpStream> = (2..6).map(|host| connect_from(host, port)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A record of a megabyte, of which byte after byte comes.
        scope.spawn(|| {
            attackers.iter().for_each(|mut attacker| attacker.write_all(&[0x80, 0x10, 0, 0]).unwrap());
            while !is_over.load(Ordering::Relaxed) {
                attackers.iter().for_each(|mut attacker| _ = attacker.write_all(&[0]));
                std::thread::yield_now();
            }
        });
        let newcomer = TcpStream::connect((own, port)).unwrap();
        newcomer.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = (&newcomer).write_all(&record(&call(1, 1, &[2, 3])));
        let mut reply = [0; 32];
        let came = (&newcomer).read_exact(&mut reply);
        is_over.store(true, Ordering::Relaxed);
        came.unwrap();
        assert_eq!(success(&reply[4..]), (1, words(&[5])));
    });
}

#[test]
fn credentials_are_measured_and_not_believed() {
    let (server, _) = serve();
    let udp = Udp::to(server.udp().unwrap());
    let bad = Rejected::AuthError(AuthStat::BADCRED);
    let sys = |body: &[u8]| {
        let message = call_as(1, 0, OpaqueAuth::new(1, body).unwrap(), &[]);
        [udp.ask(&message), tcp(&server).ask(&message)].map(|reply| rejected(&reply))
    };
    assert_eq!(sys(&words(&[0, 0, 0, 0, 17].into_iter().chain([0; 17]).collect::<Vec<_>>())), [bad; 2]);
    assert_eq!(sys(&[words(&[0, 256]), vec![0; 256], words(&[0, 0, 0])].concat()[..]), [bad; 2]);
    assert_eq!(sys(&words(&[0, 0, 0, 0])), [bad; 2]);
    assert_eq!(sys(&words(&[0, 0, 0, 0, 0, 0])), [bad; 2]);
    assert_eq!(sys(&words(&[0, u32::MAX, 0, 0, 0])), [bad; 2]);
    assert_eq!(sys(&words(&[0, 0, 0, 0, u32::MAX])), [bad; 2]);
    for length in [401, 404, 4096, u32::MAX] {
        let mut message = call(1, 0, &[]);
        message[28..32].copy_from_slice(&length.to_be_bytes());
        message.resize(message.len() + 4096, 0);
        assert_eq!(rejected(&udp.ask(&message)), bad, "a credential of {length} bytes");
        let mut message = call(1, 0, &[]);
        message[36..40].copy_from_slice(&length.to_be_bytes());
        assert_eq!(rejected(&udp.ask(&message)), Rejected::AuthError(AuthStat::BADVERF));
    }
}

#[test]
fn values_that_no_type_has_are_garbage() {
    is_garbage(6, &[9]); // no such arm
    is_garbage(6, &[2, 2, 0, 0]); // a boolean of 2
    is_garbage(6, &[2, 1, 5, 0]); // no such colour
    is_garbage(6, &[2, 1, 0, 1, 0x6100_0001]); // padding
    is_garbage(6, &[0, 0]); // something follows
    is_garbage(16, &[2, 0xff00_0000]); // no UTF-8, in an interface that asks for it
    let lenient = |arguments: &[u32]| {
        let (server, _) = serve_with(|builder| builder.lenient());
        success(&Udp::to(server.udp().unwrap()).ask(&call(1, 6, arguments)))
    };
    lenient(&[2, 2, 0, 0]);
    lenient(&[2, 1, 0, 1, 0x6100_0001]);
    lenient(&[0, 0]);
}

#[test]
fn what_is_not_a_call_is_dropped() {
    let (server, calculator) = serve();
    let udp = Udp::to(server.udp().unwrap());
    let reply = words(&[7, 1, 0, 0, 0, 0]);
    udp.is_ignored(&reply);
    udp.is_ignored(&[]);
    let whole = call(1, 1, &[1, 2]);
    (1..40).for_each(|len| udp.is_ignored(&whole[..len]));
    let mut tcp = tcp(&server);
    tcp.send(&reply);
    tcp.send(b"");
    tcp.send(b"no");
    assert_eq!(success(&tcp.ask(&call(3, 1, &[1, 1]))).0, 3);
    udp.has_heard_all(server, calculator);
}

#[test]
fn a_reply_too_long_for_a_datagram_is_an_error() {
    let (server, _) = serve();
    let udp = Udp::to(server.udp().unwrap());
    assert_eq!(success(&udp.ask(&call(1, 12, &[65_000]))).1.len(), 65_004);
    assert_eq!(accepted(&udp.ask(&call(2, 12, &[65_500]))), Accepted::SystemErr);
    assert_eq!(success(&tcp(&server).ask(&call(3, 12, &[5_000_000]))).1.len(), 5_000_004);
}

#[test]
fn who_does_not_read_its_replies_is_not_read_from() {
    let (server, _) = serve();
    let mut tcp = tcp(&server);
    const CALLS: u32 = 64;
    // 64 MiB of replies: more than the server and the sockets can hold.
    (0..CALLS).for_each(|xid| tcp.send(&call(xid, 12, &[1 << 20])));
    let mut reply = vec![0; 4 + 24 + 4 + (1 << 20)];
    for _ in 0..CALLS {
        tcp.0.read_exact(&mut reply).unwrap();
        assert_eq!(success(&reply[4..]).1.len(), 4 + (1 << 20));
    }
    assert_eq!(success(&tcp.ask(&call(99, 1, &[1, 1]))).0, 99);
}

#[test]
fn a_port_mapper_passes_nothing_on_unless_it_is_told_to_and_never_to_itself() {
    let ask = |mapper: Mapper, program: u32, passed: bool| {
        let (server, calculator) = serve_with(|builder| builder.mapper(&mapper));
        let udp = Udp::to(server.udp().unwrap());
        let mut call_it = call_as(1, 5, OpaqueAuth::NONE, &words(&[program, 2, 0, 0]));
        call_it[12..20].copy_from_slice(&words(&[100_000, 2]));
        let port = server.udp().unwrap().port().into();
        match passed {
            true => assert_eq!(success(&udp.ask(&call_it)), (1, words(&[port, 0]))),
            false => udp.is_ignored(&call_it),
        }
        udp.has_heard_all(server, calculator);
    };
    ask(Mapper::default(), PROGRAM, false);
    ask(Mapper::default().forwarding(), PROGRAM, true);
    ask(Mapper::default().forwarding(), 100_000, false);
    ask(Mapper::default().forwarding(), 77, false);
}

/// Encodes a message to this version of the port mapper.
fn to_mapper(version: u32, procedure: u32, credential: OpaqueAuth<'_>, arguments: &[u8]) -> Vec<u8> {
    let mut message = call_as(1, procedure, credential, arguments);
    message[12..20].copy_from_slice(&words(&[100_000, version]));
    message
}

#[test]
fn a_port_mapper_passes_on_nothing_in_anothers_name() {
    let (server, calculator) = serve_with(|builder| builder.mapper(&Mapper::default().forwarding()));
    let udp = Udp::to(server.udp().unwrap());
    let mut body = Vec::new();
    Sys::new(1, b"ebbets", 0, 0, &[]).unwrap().write(&mut body);
    let root = OpaqueAuth::new(1, &body).unwrap();
    for version in [2, 3, 4] {
        // The program sees no name (`who`), whatever the caller says: it is called from its own host.
        let asked = |credential| udp.ask(&to_mapper(version, 5, credential, &words(&[PROGRAM, 2, 8, 0])));
        let (named, nameless) = (asked(root), asked(OpaqueAuth::NONE));
        assert_eq!(success(&named), success(&nameless), "version {version}");
        assert!(named.windows(8).any(|text| text == b"Udp None"), "version {version}: {named:x?}");
    }
    udp.has_heard_all(server, calculator);
}

#[test]
fn a_port_mapper_passes_on_only_so_many_calls_at_once() {
    let mapper = Mapper::default().forwarding();
    let (server, calculator) = serve_with(|builder| builder.register_at(&mapper));
    let dispatcher = Server::builder().mapper(&mapper).dispatcher();
    let wait = to_mapper(3, 5, OpaqueAuth::NONE, &words(&[PROGRAM, 2, 4, 0]));
    let near = "127.0.0.1:700".parse().unwrap();
    let ask = || dispatcher.answer(Transport::Udp, Some(near), &wait, &mut Vec::new());
    std::thread::scope(|scope| {
        let passed: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        calculator.await_begun(16);
        assert!((0..4).all(|_| !ask()));
        calculator.open();
        assert!(passed.into_iter().all(|thread| thread.join().unwrap()));
    });
    assert_eq!(calculator.begun(), 16);
    drop(server);
}

/// Clients on other machines, whose addresses may be forged.
const AFAR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 700);

#[test]
fn a_port_mapper_gives_strangers_few_large_answers_however_often_they_ask() {
    let mapper = Mapper::default().forwarding();
    let (server, calculator) = serve_with(|builder| builder.register_at(&mapper));
    for (version, procedure) in [(2, 4), (3, 4), (4, 4), (2, 5), (3, 5), (4, 5)] {
        let dispatcher = Server::builder().mapper(&mapper).dispatcher();
        let message = to_mapper(version, procedure, OpaqueAuth::NONE, &words(&[PROGRAM, 2, 3, 0]));
        let message = &message[..if procedure == 4 { 40 } else { message.len() }];
        let (ran, began) = (calculator.counted.load(Ordering::SeqCst), Instant::now());
        let ask = |transport, from| dispatcher.answer(transport, Some(from), message, &mut Vec::new());
        let answered = (0..400).filter(|_| ask(Transport::Udp, AFAR)).count() as u64;
        // A limited number of answers in each second. The first and the last second are not whole.
        let most = 20 * (began.elapsed().as_secs() + 2);
        assert!((1..=most).contains(&answered), "version {version}, procedure {procedure}: {answered}");
        let ran = calculator.counted.load(Ordering::SeqCst) - ran;
        assert_eq!(ran, if procedure == 5 { answered } else { 0 });
        // Callers over TCP, whose addresses are not forged, and callers on this host are answered.
        assert!(ask(Transport::Tcp, AFAR) && ask(Transport::Udp, "127.0.0.1:700".parse().unwrap()));
    }
    drop(server);
}

#[test]
fn nobody_registers_from_another_machine() {
    let mapper = Mapper::default();
    let dispatcher = Server::builder().mapper(&mapper).dispatcher();
    let ask = |from, procedure| {
        let mut reply = Vec::new();
        let message = to_mapper(2, procedure, OpaqueAuth::NONE, &words(&[9, 1, 17, 777]));
        assert!(dispatcher.answer(Transport::Udp, Some(from), &message, &mut reply));
        success(&reply).1 == words(&[1])
    };
    let near = "127.0.0.1:7000".parse().unwrap();
    assert!(!ask(AFAR, 1) && mapper.entries().is_empty());
    assert!(ask(near, 1) && !ask(AFAR, 2) && mapper.entries().len() == 1);
}
