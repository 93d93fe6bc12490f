//! Races between threads, which these tests bring about one step at a time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use farcall::System;
use farcall::env::{Address, Env, Wanted};
use rustix::event::{PollFd, PollFlags, poll};

use super::super::StreamLimits;
use super::*;
use crate::server::duplicates::{Duplicates, Retention, Seen};
use crate::server::outgoing::Outcome;
use crate::server::peer::Transport;
use crate::server::pool::Workers;
use crate::server::programs::Programs;
use crate::wire::auth::OpaqueAuth;
use crate::wire::message::Call;
use crate::wire::record;

/// A server without connections and without threads: only the test looks at sockets.
fn streams() -> Arc<Streams> {
    let limits = StreamLimits {
        connections: 9,
        memory: 1 << 20,
        idle: Duration::from_secs(60),
        records: record::Limits::default(),
        spin: Duration::ZERO,
        lingering: 0,
    };
    let (env, programs) = (System::current(), Arc::new(Programs::default()));
    Streams::new(env.clone(), Vec::new(), limits, &Workers::new(env, 1, 0, limits.spin), &programs).unwrap()
}

/// A Unix connection: the server's end and the client's.
fn pair() -> (Arc<dyn Stream>, UnixStream) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = System.listen(&Address::Unix(path.clone())).unwrap();
    let theirs = UnixStream::connect(path).unwrap();
    (listener.accept().unwrap().stream, theirs)
}

fn connection() -> (Arc<Connection>, UnixStream) {
    let streams = streams();
    let (ours, theirs) = pair();
    let peer = Peer::at(Transport::Unix, None);
    let connection = Arc::new(Connection::new(7, ours, peer, streams.clone()));
    streams.ready.add(connection.source(), 7).unwrap();
    (connection, theirs)
}

#[test]
fn calls_that_were_read_are_served_though_the_full_outbox_was_emptied_at_once() {
    let (connection, mut client) = connection();
    // More bytes than the socket has room for.
    assert!(connection.send(&[&vec![0; 2 * MAX_UNSENT_BYTES]]));
    let unsent = lock(&connection.outbox).len;
    assert!(unsent >= MAX_UNSENT_BYTES);
    // The serving thread has seen that the outbox is full. Before that thread acts, the client reads and
    // another thread empties the outbox.
    let mut bytes = vec![0; 2 * MAX_UNSENT_BYTES];
    let mut read = 0;
    while read < bytes.len() {
        read += client.read(&mut bytes[read..]).unwrap();
        assert!(connection.flush(&mut lock(&connection.outbox)));
    }
    connection.wait_for_room(&mut lock(&connection.inbox));
    // The poller reports the connection although the client sends no more. Connection 8 is ready too, so that
    // `wait` returns, and the test fails rather than hangs, if connection 7 is not reported.
    let (other, _theirs) = pair();
    connection.streams.ready.add(other.source(), 8).unwrap();
    connection.streams.ready.arm(other.source(), 8, Interest::WRITE).unwrap();
    let told = connection.streams.ready.wait();
    assert_eq!(told.map(|(key, interest)| (key, interest.write)), Some((7, true)));
}

/// A TCP connection that has just begun, and its client's end.
fn tcp_connection(streams: &Arc<Streams>, id: u64) -> (Arc<Connection>, TcpStream) {
    let listener = System.listen(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let client = TcpStream::connect(listener.local_address().unwrap()).unwrap();
    System.wait_any(&mut [Wanted::new(listener.source(), Interest::READ)], None).unwrap();
    let accepted = listener.accept().unwrap();
    let peer = Peer::at(Transport::Tcp, accepted.from);
    let connection = Arc::new(Connection::new(id, accepted.stream, peer, streams.clone()));
    connection.fate().begin(&connection);
    (connection, client)
}

/// Begins, in `duplicates`, a call that came by this connection. The call is the same every time.
fn begin(duplicates: &Duplicates, connection: &Arc<Connection>) -> Seen {
    let peer = Peer { connection: Some(connection.clone()), ..connection.peer.clone() };
    let (credential, verifier) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
    let call = Call { xid: 1, program: 9, version: 1, procedure: 3, credential, verifier };
    duplicates.begin(&peer, &call, credential, b"")
}

/// The event by which the system reports that the client has gone. Only Linux tells it apart from data.
#[cfg(target_os = "linux")]
const GONE: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const GONE: PollFlags = PollFlags::IN;

/// Waits until the system reports that the client has gone, without consuming the socket's error.
fn await_gone(connection: &Connection) {
    let Source::Descriptor(descriptor) = connection.source() else { unreachable!() };
    assert_eq!(poll(&mut [PollFd::from_borrowed_fd(descriptor, GONE)], None), Ok(1));
}

#[test]
fn a_call_sent_again_before_the_reset_of_its_connection_was_read_does_not_run() {
    let (streams, duplicates) = (streams(), Duplicates::new(Retention::default()));
    let (first, client) = tcp_connection(&streams, 7);
    let Seen::Never(Some(ticket)) = begin(&duplicates, &first) else { panic!("it was seen before") };
    assert!(first.send(&[b"reply"]));
    duplicates.end(ticket, Outcome::Silence);
    let (second, _second_client) = tcp_connection(&streams, 8);
    assert!(!first.is_broken_off());
    // The reply has arrived, and the client closes without reading it: the system resets the connection.
    client.peek(&mut [0]).unwrap();
    drop(client);
    await_gone(&first);
    assert!(matches!(begin(&duplicates, &second), Seen::Answered(_)));
    // The check does not consume the error: later checks and the connection's own reader see it too.
    let (third, _third_client) = tcp_connection(&streams, 9);
    assert!(matches!(begin(&duplicates, &third), Seen::Answered(_)));
    assert!(matches!(first.receive(&mut lock(&first.inbox), Wait::No), Received::Over));
    assert!(matches!(begin(&duplicates, &third), Seen::Answered(_)));
}

#[test]
fn a_client_that_closed_before_the_server_read_that_has_sent_its_call_again_only_if_it_is_owed_something() {
    let (streams, duplicates) = (streams(), Duplicates::new(Retention::default()));
    let (first, mut client) = tcp_connection(&streams, 7);
    let Seen::Never(Some(ticket)) = begin(&duplicates, &first) else { panic!("it was seen before") };
    duplicates.end(ticket, Outcome::Silence);
    // The client has been sent nothing, and has sent bytes that were not answered.
    client.write_all(b"more").unwrap();
    drop(client);
    await_gone(&first);
    let (second, _second_client) = tcp_connection(&streams, 8);
    assert_eq!(first.is_broken_off(), GONE != PollFlags::IN);
    let mut inbox = lock(&first.inbox);
    assert!(matches!(first.receive(&mut inbox, Wait::No), Received::Bytes));
    assert!(first.is_broken_off() && matches!(begin(&duplicates, &second), Seen::Answered(_)));
    first.owes_reply.store(false, Ordering::Release);
    assert!(!first.is_broken_off() && matches!(begin(&duplicates, &second), Seen::Never(_)));
}
