//! Many calls on a connection, several callers, and connections that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use farcall::{Kind, Ran};
use farcall_courier::Server;
use farcall_courier::wire::message::{Message, Versions};

use crate::common::{Peer, Work, Worker, bytes, scripted, server, work};

#[test]
fn ten_thousand_calls_are_made_on_one_connection() {
    let (server, address) = server();
    let work = work(&address);
    let port = work.port().unwrap();
    for number in 0..10_000 {
        assert_eq!(work.next(number), Ok(number + 1));
    }
    assert_eq!(work.port(), Ok(port));
    assert_eq!(server.connections(), 1);
}

#[test]
fn identifiers_of_calls_begin_again_after_the_last() {
    let (id, ids) = channel();
    let address = scripted(move |_, mut peer| {
        while let Some((call, ..)) = peer.receive_call() {
            id.send(call).unwrap();
            peer.message(Message::Return(call, &[]));
        }
    });
    let work = work(&address);
    (0..66_000).for_each(|_| work.nothing().unwrap());
    let ids: Vec<u16> = ids.try_iter().collect();
    assert!(ids.iter().all(|id| *id >= 0x100), "smaller ones could be taken for kinds of messages");
    assert!(ids.windows(2).all(|two| two[1] == two[0].checked_add(1).unwrap_or(0x100)));
}

#[test]
fn calls_of_several_programs_are_made_on_one_connection() {
    let (_server, address) = server();
    let mut peer = Peer::connect(&address, Versions::THREE);
    for number in 0..100 {
        peer.call(number, (754, 1), 1, b"\0\x06nobody");
        peer.call(number + 1000, (900, 3), 1, &number.to_be_bytes());
        // Both calls were sent before the first reply.
        assert_eq!(peer.receive().unwrap(), [&[0, 3][..], &number.to_be_bytes(), &[0, 0]].concat());
        let [next, id] = [number + 1, number + 1000].map(u16::to_be_bytes);
        assert_eq!(peer.receive().unwrap(), [&[0, 2][..], &id, &next].concat());
    }
}

#[test]
fn calls_go_over_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("courier");
    let server =
        Server::builder().program::<dyn Work>(Arc::new(Worker::default())).unix(&path).start().unwrap();
    let work = work(&format!("unix:{}", path.display()));
    assert_eq!(work.next(7), Ok(8));
    assert_eq!(work.words((0..9000).collect()).unwrap(), (0..9000).collect::<Vec<u16>>());
    assert_eq!(work.port(), Ok(0), "a caller at a Unix socket has no address");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn callers_of_many_threads_have_their_turns() {
    let (server, address) = server();
    let work = work(&address);
    std::thread::scope(|scope| {
        for thread in 0..16u16 {
            let work = work.clone();
            scope.spawn(move || {
                for number in 0..200 {
                    assert_eq!(work.next(thread * 1000 + number), Ok(thread * 1000 + number + 1));
                }
            });
        }
    });
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_connection_that_the_server_has_ended_is_replaced_by_the_next_call() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let address = scripted(move |number, mut peer| {
        count.store(number + 1, Ordering::SeqCst);
        peer.answer_next();
        // The connection ends here. The call after it fails, or finds the end before it is sent.
    });
    let work = work(&address);
    assert_eq!(work.next(1), Ok(2));
    let second = work.next(2);
    match &second {
        Ok(number) => assert_eq!(*number, 3),
        Err(why) => {
            let why = why.call_failed().unwrap();
            assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
            assert_eq!(work.next(3), Ok(4));
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn a_server_that_dies_during_a_call_leaves_open_whether_it_ran() {
    let address = scripted(|number, mut peer| {
        let call = peer.receive_call();
        if number > 0 {
            let (id, ..) = call.unwrap();
            peer.message(Message::Return(id, &[0, 9]));
        }
    });
    let why = work(&address).next(1).unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
    assert!(why.detail().starts_with("next of Work (program 900, version 3) at tcp://"), "{why}");
}

#[test]
fn an_idempotent_call_is_made_again_when_its_connection_breaks() {
    let address = scripted(|number, mut peer| {
        let call = peer.receive_call();
        if number > 0 {
            let (id, ..) = call.unwrap();
            peer.message(Message::Return(id, &[0, 9]));
        }
    });
    assert_eq!(work(&address).again(9), Ok(9));
}

#[test]
fn the_end_of_a_server_ends_its_connections_and_frees_its_address() {
    let worker = Arc::new(Worker::default());
    let (server, address) = crate::common::serve(worker.clone(), |builder| builder);
    let work = work(&address);
    assert_eq!(work.next(1), Ok(2));
    let pending = work.start().block();
    worker.gate.wait_for_one();
    drop(server);
    let why = pending.wait().unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
    worker.gate.open();
    let why = work.next(1).unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "nothing listens there");
    let place = address.strip_prefix("tcp://").unwrap().parse().unwrap();
    let again = Server::builder().program::<dyn Work>(Arc::new(Worker::default())).tcp(place).start();
    assert_eq!(again.map(|_again| work.next(3)).unwrap(), Ok(4));
}

#[test]
fn an_address_that_nobody_serves_is_said_when_the_stub_is_made() {
    let closed = std::net::TcpListener::bind(crate::common::ANY).unwrap().local_addr().unwrap();
    for (address, kind) in [
        (format!("tcp://{closed}"), Kind::Unreachable),
        ("unix:/nowhere/at/all".into(), Kind::Unreachable),
        ("udp://127.0.0.1:1".into(), Kind::NoSuchName),
        ("tcp://127.0.0.1".into(), Kind::NoSuchName),
        ("tcp://127.0.0.1:x".into(), Kind::NoSuchName),
    ] {
        let why = farcall_courier::import::<dyn Work>(&address).err().unwrap();
        assert_eq!((why.kind(), why.ran()), (kind, Ran::No), "{address}: {why}");
        assert!(why.detail().starts_with(&address), "{why}");
    }
}

#[test]
fn a_peer_that_ends_the_connection_as_spp_does_gets_its_answer() {
    let (_server, address) = server();
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.raw(&[0, 12, 0x10, 254, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(peer.receive(), None);
    assert_eq!(bytes("0002 0003"), peer.versions.unwrap().to_bytes());
}

/// A restart that the client could have seen leaves nothing open.
#[test]
fn a_call_after_the_connection_has_ended_goes_to_the_server_that_came_back() {
    let (told, ended) = channel();
    let address = scripted(move |number, mut peer| {
        peer.answer_next().unwrap();
        if number == 0 {
            drop(peer);
            told.send(()).unwrap();
        } else {
            while peer.answer_next().is_some() {}
        }
    });
    let work = work(&address);
    assert_eq!(work.next(1), Ok(2));
    // The server has ended the connection, and its end is here: this is one machine.
    ended.recv().unwrap();
    assert_eq!(work.next(2), Ok(3), "the procedure may not run twice, and did not run");
}

/// The system, where the host `moving.test` is at an address that the test says.
struct Moving(std::sync::Mutex<std::net::SocketAddr>);

mod moving {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use farcall::System;
    use farcall::env::*;

    use super::Moving;

    impl Env for Moving {
        fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            assert_eq!(host, "moving.test");
            Ok(vec![*self.0.lock().unwrap()])
        }

        fn now(&self) -> Time {
            System.now()
        }

        fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
            System.bind(address, options)
        }

        fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
            System.spawn(name, run)
        }

        fn event(&self) -> Arc<dyn Event> {
            System.event()
        }

        fn connect(&self, to: &Address, options: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
            System.connect(to, options)
        }

        fn wait_any(&self, wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
            System.wait_any(wanted, timeout)
        }

        fn alarm(&self) -> io::Result<Arc<dyn Alarm>> {
            System.alarm()
        }

        fn signalling_alarm(&self) -> io::Result<Arc<dyn Alarm>> {
            System.signalling_alarm()
        }

        fn poller(&self) -> io::Result<Arc<dyn Poller>> {
            System.poller()
        }

        fn entropy(&self, out: &mut [u8]) {
            System.entropy(out);
        }
    }
}

#[farcall::interface(program = 901, version = 1)]
trait Whereabouts {
    fn place(&self) -> farcall::Result<u16>;
}

struct At(u16);

impl Whereabouts for At {
    fn place(&self) -> farcall::Result<u16> {
        Ok(self.0)
    }
}

#[test]
fn a_server_that_has_moved_is_found_at_its_hosts_new_address() {
    use farcall_courier::cooper;
    let start = |place: u16| {
        let courier = Server::builder().program::<dyn Whereabouts>(Arc::new(At(place)));
        let cooper = cooper::Server::builder().program::<dyn Whereabouts>(Arc::new(At(place)));
        let anywhere = || "127.0.0.1:0".parse().unwrap();
        (courier.tcp(anywhere()).start().unwrap(), cooper.tcp(anywhere()).start().unwrap())
    };
    let former = start(1);
    let envs = [former.0.addresses()[0], former.1.addresses()[0]]
        .map(|address| Arc::new(Moving(std::sync::Mutex::new(address))));
    let name = "tcp://moving.test:1";
    let clients = [
        farcall_courier::Builder::default().env(envs[0].clone()).import::<dyn Whereabouts>(name).unwrap(),
        cooper::Builder::default().env(envs[1].clone()).import::<dyn Whereabouts>(name).unwrap(),
    ];
    assert_eq!(clients.each_ref().map(|client| client.place().unwrap()), [1, 1]);
    let now = start(2);
    for (env, address) in envs.iter().zip([now.0.addresses()[0], now.1.addresses()[0]]) {
        *env.0.lock().unwrap() = address;
    }
    drop(former);
    assert_eq!(clients.each_ref().map(|client| client.place().unwrap()), [2, 2]);
}
