//! Tests of what a server answers, over each transport.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use farcall_onc::Server;
use farcall_onc::wire::auth::{AuthStat, Flavor, OpaqueAuth, Sys};
use farcall_onc::wire::message::{Accepted, Rejected};

use crate::calc::*;

#[test]
fn a_call_is_answered_over_udp_tcp_and_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (server, _) = serve_with(|builder| builder.unix(&path));
    let sum = (9, words(&[5]));
    assert_eq!(success(&Udp::to(server.udp().unwrap()).ask(&call(9, 1, &[2, 3]))), sum);
    assert_eq!(success(&tcp(&server).ask(&call(9, 1, &[2, 3]))), sum);
    let mut unix = Stream(UnixStream::connect(&path).unwrap());
    assert_eq!(success(&unix.ask(&call(9, 1, &[2, 3]))), sum);
    assert_eq!(success(&unix.ask(&call(10, 8, &[]))).1[4..], b"Unix None\0\0\0"[..]);
    assert_eq!(server.udp().unwrap().port(), server.tcp().unwrap().port());
    drop(server);
    assert!(!path.exists());
    unix.is_closed();
}

#[test]
fn a_server_that_is_waited_for_takes_back_what_it_registered_when_it_is_stopped() {
    let mapper = farcall_onc::rpcbind::Mapper::default();
    let (server, _) = serve_with(|builder| builder.register_at(&mapper));
    let (stopper, udp) = (server.stopper(), Udp::to(server.udp().unwrap()));
    let main = std::thread::spawn(|| server.wait());
    assert_eq!(success(&udp.ask(&call(9, 1, &[2, 3]))).1, words(&[5]));
    assert!(!mapper.entries().is_empty());
    stopper.stop();
    main.join().unwrap();
    assert_eq!(mapper.entries(), []);
}

/// A reply of 16 MiB is longer than the sockets' buffers.
#[test]
fn a_client_that_sends_no_more_gets_the_whole_of_a_long_reply() {
    const BYTES: u32 = 16 << 20;
    let (server, _) = serve();
    let mut tcp = tcp(&server);
    tcp.send(&call(1, 12, &[BYTES]));
    tcp.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(success(&tcp.receive()).1.len(), 4 + BYTES as usize);
    tcp.is_closed();
}

#[test]
fn an_address_that_is_not_to_be_had_is_named() {
    let (server, _) = serve();
    let (tcp, udp) = (server.tcp().unwrap(), server.udp().unwrap());
    for builder in [Server::builder().tcp(tcp), Server::builder().udp(udp), Server::builder().address(tcp)] {
        let why = builder.start().unwrap_err();
        assert_eq!(why.kind(), std::io::ErrorKind::AddrInUse);
        assert!(why.to_string().starts_with(&tcp.to_string()), "{why}");
    }
}

#[test]
fn both_families_are_served_at_one_port() {
    let (server, calculator) = serve();
    let port = server.udp().unwrap().port();
    let v6 = format!("[::1]:{port}").parse().unwrap();
    let second = Server::builder().program::<dyn Calc>(calculator).address(v6).start();
    let Ok(second) = second else {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "skipped: no IPv6 here");
        return;
    };
    let echo = call(1, 2, &[4, 0x0102_0304]);
    assert_eq!(success(&Udp::to(second.udp().unwrap()).ask(&echo)).1, words(&[4, 0x0102_0304]));
    assert_eq!(success(&tcp(&second).ask(&echo)).1, words(&[4, 0x0102_0304]));
    assert_eq!(success(&tcp(&server).ask(&echo)).1, words(&[4, 0x0102_0304]));
}

#[test]
fn every_program_has_a_null_procedure() {
    let (server, _) = serve();
    let udp = Udp::to(server.udp().unwrap());
    assert_eq!(success(&udp.ask(&call(1, 0, &[]))), (1, vec![]));
    assert_eq!(success(&udp.ask(&call(2, 0, &[1, 2, 3]))), (2, vec![]));
}

#[test]
fn what_is_not_there_is_said_exactly() {
    let (server, _) = serve();
    let udp = Udp::to(server.udp().unwrap());
    let mut other = call(1, 1, &[2, 3]);
    other[12..16].copy_from_slice(&99u32.to_be_bytes());
    assert_eq!(accepted(&udp.ask(&other)), Accepted::ProgUnavail);
    let mut other = call(1, 1, &[2, 3]);
    other[16..20].copy_from_slice(&7u32.to_be_bytes());
    assert_eq!(accepted(&udp.ask(&other)), Accepted::ProgMismatch { low: 2, high: 2 });
    assert_eq!(accepted(&udp.ask(&call(1, 99, &[]))), Accepted::ProcUnavail);
    let mut other = call(1, 1, &[2, 3]);
    other[8..12].copy_from_slice(&3u32.to_be_bytes());
    assert_eq!(rejected(&udp.ask(&other)), Rejected::RpcMismatch { low: 2, high: 2 });
}

#[test]
fn all_addresses_of_ipv6_are_those_of_ipv4_too() {
    let mapper = farcall_onc::rpcbind::Mapper::default();
    let builder = || Server::builder().program::<dyn Calc>(Arc::new(Calculator::default()));
    let everywhere = "[::]:0".parse().unwrap();
    let Ok(server) = builder().register_at(&mapper).address(everywhere).start() else {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "skipped: no IPv6 here");
        return;
    };
    let port = server.udp().unwrap().port();
    assert!(server.addresses().iter().all(|(_, address)| address.port() == port), "{server:?}");
    for host in ["127.0.0.1", "[::1]"] {
        let at = format!("{host}:{port}").parse().unwrap();
        assert_eq!(success(&Udp::to(at).ask(&call(9, 1, &[2, 3]))), (9, words(&[5])), "{host}");
        let stream = std::net::TcpStream::connect(at).unwrap();
        assert_eq!(success(&Stream(stream).ask(&call(9, 1, &[2, 3]))), (9, words(&[5])), "{host}");
    }
    let mut networks: Vec<String> = mapper.entries().into_iter().map(|entry| entry.netid).collect();
    networks.sort();
    networks.dedup();
    assert_eq!(networks, ["tcp", "tcp6", "udp", "udp6"]);

    // Both may be named, in either order.
    drop(server);
    let v4 = format!("0.0.0.0:{port}").parse().unwrap();
    let v6 = format!("[::]:{port}").parse().unwrap();
    for (first, second) in [(v4, v6), (v6, v4)] {
        let server = builder().address(first).address(second).start().unwrap();
        assert_eq!(server.addresses().len(), 4, "{server:?}");
    }
    // Another program may have IPv4's port, and then callers would reach that one.
    let _other = builder().address(v4).start().unwrap();
    assert_eq!(builder().address(v6).start().unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn several_versions_are_served_side_by_side() {
    #[farcall::interface]
    pub trait Later {
        fn first(&self) -> farcall::Result<u32>;
    }
    impl farcall::stub::Program for dyn Later {
        const PROGRAM: u32 = PROGRAM;
        const VERSION: u32 = 5;
    }
    struct Four;
    impl Later for Four {
        fn first(&self) -> farcall::Result<u32> {
            Ok(4)
        }
    }
    let (server, _) = serve_with(|builder| builder.program::<dyn Later>(Arc::new(Four)));
    assert_eq!(server.programs(), [(PROGRAM, 2), (PROGRAM, 5)]);
    let mut tcp = tcp(&server);
    let version = |version: u32| {
        let mut message = call(1, 1, &[2, 3][..if version == 2 { 2 } else { 0 }]);
        message[16..20].copy_from_slice(&version.to_be_bytes());
        message
    };
    assert_eq!(success(&tcp.ask(&version(2))).1, words(&[5]));
    assert_eq!(success(&tcp.ask(&version(5))).1, words(&[4]));
    assert_eq!(accepted(&tcp.ask(&version(3))), Accepted::ProgMismatch { low: 2, high: 5 });
}

#[test]
fn failures_of_procedures_are_errors_of_the_system() {
    let (server, _) = serve();
    let mut tcp = tcp(&server);
    for procedure in [5, 9, 11] {
        assert_eq!(
            accepted(&tcp.ask(&call(1, procedure, &[]))),
            Accepted::SystemErr,
            "procedure {procedure}"
        );
    }
    assert_eq!(accepted(&tcp.ask(&call(1, 1, &[2]))), Accepted::GarbageArgs);
}

#[test]
fn a_procedure_knows_who_calls() {
    let (server, _) = serve();
    let udp = Udp::to(server.udp().unwrap());
    let mut body = Vec::new();
    Sys::new(1, b"ebbets", 1000, 100, &[4]).unwrap().write(&mut body);
    let who = call_as(1, 8, OpaqueAuth::new(Flavor::SYS.0, &body).unwrap(), &[]);
    let said = success(&udp.ask(&who)).1;
    let said = String::from_utf8(said[4..].to_vec()).unwrap();
    assert!(
        said.starts_with("Udp Sys(Sys { stamp: 1, machine:")
            && said.contains("uid: 1000, gid: 100, gids: [4]")
    );
}

#[test]
fn credentials_that_nobody_knows_are_refused_by_their_kind() {
    let (server, _) = serve_with(|builder| {
        builder.allow(|caller| if caller.procedure() == 3 { Err(AuthStat::TOOWEAK) } else { Ok(()) })
    });
    let udp = Udp::to(server.udp().unwrap());
    let ask = |flavor, body: &[u8]| {
        let reply = udp.ask(&call_as(1, 0, OpaqueAuth::new(flavor, body).unwrap(), &[]));
        rejected(&reply)
    };
    assert_eq!(ask(2, b"1234"), Rejected::AuthError(AuthStat::REJECTEDCRED)); // AUTH_SHORT
    assert_eq!(ask(6, &[0; 20]), Rejected::AuthError(AuthStat::REJECTEDCRED)); // RPCSEC_GSS
    assert_eq!(ask(7, &[]), Rejected::AuthError(AuthStat::REJECTEDCRED)); // AUTH_TLS: no STARTTLS
    assert_eq!(ask(77, &[]), Rejected::AuthError(AuthStat::REJECTEDCRED));
    assert_eq!(ask(1, &[0; 16]), Rejected::AuthError(AuthStat::BADCRED));
    assert_eq!(rejected(&udp.ask(&call(1, 3, &[]))), Rejected::AuthError(AuthStat::TOOWEAK));
}

#[test]
fn a_long_procedure_holds_up_nobody() {
    let (server, calculator) = serve();
    // More calls than there are threads wait, at the sockets and on one connection.
    let udp = Udp::to(server.udp().unwrap());
    let (mut busy, mut other) = (tcp(&server), tcp(&server));
    for xid in 0..4 {
        udp.send(&call(xid, 4, &[]));
        busy.send(&call(xid, 4, &[]));
    }
    calculator.await_begun(8);
    assert_eq!(success(&udp.ask(&call(50, 1, &[2, 3]))), (50, words(&[5])));
    assert_eq!(success(&busy.ask(&call(51, 1, &[2, 3]))), (51, words(&[5])));
    assert_eq!(success(&other.ask(&call(52, 1, &[2, 3]))), (52, words(&[5])));
    calculator.open();
    let mut late: Vec<u32> =
        (0..4).flat_map(|_| [success(&udp.receive()).0, success(&busy.receive()).0]).collect();
    late.sort_unstable();
    assert_eq!(late, [0, 0, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_call_behind_a_long_one_in_the_same_segment_is_served() {
    use std::io::Write as _;
    let (server, calculator) = serve();
    let mut tcp = tcp(&server);
    let both =
        [record(&call(1, 1, &[1, 1])), record(&call(2, 4, &[])), record(&call(3, 1, &[2, 3]))].concat();
    tcp.0.write_all(&both).unwrap();
    assert_eq!(success(&tcp.receive()), (1, words(&[2])));
    assert_eq!(success(&tcp.receive()), (3, words(&[5])));
    calculator.open();
    assert_eq!(success(&tcp.receive()), (2, words(&[7])));
}

#[test]
fn many_calls_of_one_connection_are_all_answered() {
    use std::io::Write as _;
    let (server, _) = serve();
    let stream = tcp(&server).0;
    let mut reading = Stream(stream.try_clone().unwrap());
    const CALLS: u32 = 20_000;
    let writer = std::thread::spawn(move || {
        let mut stream = stream;
        for xid in 0..CALLS {
            // Some of these calls are idempotent, some have replies that are kept, and some are long.
            let message = if xid % 100 == 7 {
                call(xid, 12, &[30_000])
            } else {
                call(xid, 1 + xid % 2 * 2, &[xid, 1][..2 - xid as usize % 2 * 2])
            };
            stream.write_all(&record(&message)).unwrap();
        }
    });
    let mut seen = vec![false; CALLS as usize];
    for _ in 0..CALLS {
        let (xid, result) = success(&reading.receive());
        assert!(!std::mem::replace(&mut seen[xid as usize], true));
        if xid % 100 == 7 {
            assert_eq!(result.len(), 30_004);
        } else if xid % 2 == 0 {
            assert_eq!(result, words(&[xid + 1]));
        }
    }
    writer.join().unwrap();
}

#[test]
fn one_way_procedures_are_not_answered() {
    let calculator = Arc::new(Calculator::default());
    let builder = Server::builder().program_one_way::<dyn Calc>(calculator.clone(), &[3]);
    let server = builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let mut tcp = tcp(&server);
    (0..10).for_each(|xid| tcp.send(&call(xid, 3, &[])));
    assert_eq!(success(&tcp.ask(&call(99, 1, &[1, 1]))).0, 99);
    let udp = Udp::to(server.udp().unwrap());
    udp.is_ignored(&call(11, 3, &[]));
    calculator.await_counted(11);
    udp.has_heard_all(server, calculator);
}

#[test]
fn half_a_connection_is_enough_for_the_replies() {
    let (server, calculator) = serve();
    let mut tcp = tcp(&server);
    tcp.send(&call(1, 4, &[]));
    tcp.0.shutdown(std::net::Shutdown::Write).unwrap();
    calculator.await_begun(1);
    calculator.open();
    assert_eq!(success(&tcp.receive()), (1, words(&[7])));
    tcp.is_closed();
}

#[test]
fn a_dropped_server_leaves_its_port() {
    let start = |at| {
        Server::builder().program::<dyn Calc>(Arc::new(Calculator::default())).address(at).start().unwrap()
    };
    // An address that no other test uses. Another test could take the port while it is free for a moment.
    let mut server = start("127.0.7.2:0".parse().unwrap());
    let address = server.udp().unwrap();
    for xid in 0..200 {
        assert_eq!(success(&Udp::to(address).ask(&call(xid, 1, &[1, 1]))).0, xid);
        assert_eq!(success(&tcp(&server).ask(&call(xid, 1, &[1, 1]))).0, xid);
        drop(server);
        server = start(address);
    }
}

#[farcall::interface(program = 0x2000_0078, version = 1)]
pub trait Game {
    #[procedure(1)]
    fn play(&self, rounds: u32) -> farcall::Result<u32>;
}

#[farcall::interface(program = 0x2000_0079, version = 1)]
pub trait Player {
    #[procedure(1)]
    fn turn(&self, round: u32) -> farcall::Result<u32>;
}

pub struct Table;
impl Game for Table {
    fn play(&self, rounds: u32) -> farcall::Result<u32> {
        let player = farcall_onc::server::caller().unwrap().client().unwrap().bind::<dyn Player>();
        (0..rounds).map(|round| player.turn(round)).sum()
    }
}

struct Doubles;
impl Player for Doubles {
    fn turn(&self, round: u32) -> farcall::Result<u32> {
        Ok(2 * round)
    }
}

#[test]
fn a_server_calls_its_client_on_the_same_connection() {
    let builder = Server::builder().program::<dyn Game>(Arc::new(Table)).workers(2);
    let server = builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let offers = vec![farcall_onc::server::Offer::new::<dyn Player>(Arc::new(Doubles), &[])];
    let address = format!("tcp://{}", server.tcp().unwrap());
    let client = farcall_onc::Client::builder().serve(offers).connect(&address).unwrap();
    let game = client.bind::<dyn Game>();
    assert_eq!(game.play(10).unwrap(), 90);
    // More calls at a time than the server has threads.
    let games: Vec<_> = (0..8).map(|_| game.start().play(100)).collect();
    games.into_iter().for_each(|game| assert_eq!(game.wait().unwrap(), 9900));
}

#[test]
fn a_client_that_serves_nothing_fails_only_the_call_to_it() {
    let builder = Server::builder()
        .program::<dyn Game>(Arc::new(Table))
        .program::<dyn Calc>(Arc::new(Calculator::default()));
    let server = builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let mut tcp = tcp(&server);
    let mut play = call(1, 1, &[1]);
    play[12..20].copy_from_slice(&words(&[0x2000_0078, 1]));
    tcp.send(&play);
    // The server's call to the client.
    let asked = tcp.receive();
    assert_eq!(asked[4..24], words(&[0, 2, 0x2000_0079, 1, 1]));
    // The server serves calls while it waits for its own.
    assert_eq!(success(&tcp.ask(&call(2, 1, &[1, 1]))).0, 2);
    tcp.send(&[&asked[..4], &words(&[1, 0, 0, 0, 1])].concat());
    assert_eq!(accepted(&tcp.receive()), Accepted::SystemErr);
    // Replies without a call are dropped.
    tcp.send(&words(&[77, 1, 0, 0, 0, 1]));
    assert_eq!(success(&tcp.ask(&call(3, 1, &[1, 1]))).0, 3);
}

#[farcall::interface(program = 0x2000_007a, version = 1)]
pub trait Reader {
    #[procedure(1)]
    fn news(&self, text: &[u8]) -> farcall::Result<()>;
}

/// Calls its caller back until that fails, and counts the calls.
struct Tells(std::sync::Mutex<std::sync::mpsc::Sender<u32>>);
impl Game for Tells {
    fn play(&self, rounds: u32) -> farcall::Result<u32> {
        let reader = farcall_onc::server::caller().unwrap().client().unwrap().one_way().bind::<dyn Reader>();
        let told = (0..rounds).take_while(|_| reader.news(&[7; 1 << 20]).is_ok()).count() as u32;
        self.0.lock().unwrap().send(told).unwrap();
        Ok(told)
    }
}

#[test]
fn a_client_that_takes_nothing_of_what_it_is_told_is_told_no_more() {
    let (told, heard) = std::sync::mpsc::channel();
    let builder = Server::builder().program::<dyn Game>(Arc::new(Tells(told.into())));
    let server = builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let mut tcp = tcp(&server);
    let mut play = call(1, 1, &[200]);
    play[12..20].copy_from_slice(&words(&[0x2000_0078, 1]));
    tcp.send(&play);
    // Besides the bytes that wait in the server, the sockets' buffers have some.
    let count = heard.recv_timeout(PATIENCE).unwrap();
    assert!((16..100).contains(&count), "{count} MiB");
}

#[test]
fn a_client_that_is_called_back_takes_no_more_than_it_can_hold() {
    use std::io::Write as _;
    let calculator = Arc::new(Calculator::default());
    let offers = vec![farcall_onc::server::Offer::new::<dyn Calc>(calculator.clone(), &[])];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let client = farcall_onc::Client::builder().serve(offers).connect(&address).unwrap();
    let mut server = Stream(listener.accept().unwrap().0);
    server.0.set_read_timeout(Some(PATIENCE)).unwrap();
    // All executing calls wait. Of the others, only the allowed number is kept.
    (0..1024).for_each(|xid| server.send(&call(xid, 4, &[])));
    calculator.await_begun(8);
    for xid in 2000..2100 {
        assert_eq!(accepted(&server.ask(&call(xid, 4, &[]))), Accepted::SystemErr);
    }
    calculator.open();
    let mut seen: Vec<u32> = (0..1024).map(|_| success(&server.receive()).0).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..1024));
    // And only the allowed number of bytes.
    calculator.shut();
    (0..8).for_each(|xid| server.send(&call(xid, 4, &[])));
    calculator.await_begun(1024 + 8);
    let mut long = call(9, 2, &[1 << 20]);
    long.resize(long.len() + (1 << 20), 7);
    let writer = {
        let mut server = server.0.try_clone().unwrap();
        std::thread::spawn(move || server.write_all(&record(&long).repeat(20)).unwrap())
    };
    (0..5).for_each(|_| assert_eq!(accepted(&server.receive()), Accepted::SystemErr));
    writer.join().unwrap();
    calculator.open();
    let lengths: usize = (0..8 + 15).map(|_| success(&server.receive()).1.len()).sum();
    assert_eq!(lengths, 8 * 4 + 15 * (4 + (1 << 20)));
    drop(client);
}

#[farcall::interface(program = 0x2000_007a, version = 1)]
pub trait Dive {
    /// Calls itself up to that depth, and returns the depth that it reached.
    #[procedure(1)]
    fn dive(&self, depth: u32) -> farcall::Result<u32>;

    /// Calls a group whose two members are both this server, and returns how many gave a result.
    #[procedure(2)]
    fn spread(&self) -> farcall::Result<u32>;
}

#[derive(Default)]
struct Diver {
    me: std::sync::OnceLock<farcall_onc::Client>,
}

impl Dive for Diver {
    fn dive(&self, depth: u32) -> farcall::Result<u32> {
        if depth == 0 {
            return Ok(0);
        }
        match self.me.get().unwrap().bind::<dyn Dive>().dive(depth - 1) {
            Ok(deeper) => Ok(deeper + 1),
            Err(farcall::Error::CallFailed(why)) => {
                assert_eq!((why.kind(), why.ran()), (farcall::Kind::Overloaded, farcall::Ran::No), "{why}");
                Ok(0)
            }
        }
    }

    fn spread(&self) -> farcall::Result<u32> {
        let me = || self.me.get().unwrap().bind::<dyn Dive>();
        let members = farcall::Group::of([("first", me()), ("second", me())]);
        Ok(members.multi().dive(0).all().results().count() as u32)
    }
}

#[test]
fn procedures_that_call_their_own_server_are_bounded_and_never_all_wait() {
    let diver = Arc::new(Diver::default());
    let builder = Server::builder().program::<dyn Dive>(diver.clone()).workers(2).waiting(5);
    let server = builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    for way in [format!("udp://{}", server.udp().unwrap()), format!("tcp://{}", server.tcp().unwrap())] {
        let client = farcall_onc::Client::connect(&way).unwrap();
        let _ = diver.me.set(client.clone());
        let dive = client.bind::<dyn Dive>();
        assert_eq!(dive.dive(3).unwrap(), 3);
        assert_eq!(dive.dive(200).unwrap(), 5);
        // Many calls at once: each gets as deep as the limit allows, and returns.
        let dives: Vec<_> = (0..40).map(|_| dive.start().dive(100)).collect();
        dives.into_iter().for_each(|dive| assert!(dive.wait().unwrap() <= 5));
        assert_eq!(dive.dive(200).unwrap(), 5);
    }
}

#[test]
fn procedures_that_wait_for_a_group_at_their_own_server_take_no_worker() {
    let diver = Arc::new(Diver::default());
    let builder = Server::builder().program::<dyn Dive>(diver.clone()).workers(2).waiting(12);
    let server = builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let client = farcall_onc::Client::connect(&format!("tcp://{}", server.tcp().unwrap())).unwrap();
    let _ = diver.me.set(client.clone());
    let dive = client.bind::<dyn Dive>();
    let spreads: Vec<_> = (0..12).map(|_| dive.start().spread()).collect();
    spreads.into_iter().for_each(|spread| assert_eq!(spread.wait().unwrap(), 2));
}
