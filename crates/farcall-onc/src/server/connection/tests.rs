//! What only a few threads at the same instant would show.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use super::super::caller::Transport;
use super::super::crew::Crew;
use super::super::programs::Programs;
use super::super::streams::StreamLimits;
use super::*;
use crate::wire::record;

fn connection() -> (Arc<Connection>, UnixStream) {
    let limits = StreamLimits {
        connections: 9,
        memory: 1 << 20,
        idle: Duration::from_secs(60),
        records: record::Limits::default(),
        spin: Duration::ZERO,
        lingering: 0,
    };
    let streams = Streams::new(Vec::new(), limits, &Crew::new(1, 0), &Arc::new(Programs::default())).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = Peer { transport: Transport::Unix, address: None, user: None, connection: None };
    let connection = Arc::new(Connection::new(7, ours.into(), peer, streams.clone()));
    streams.ready.add(connection.socket(), 7).unwrap();
    (connection, theirs)
}

#[test]
fn calls_that_were_read_are_served_though_the_full_outbox_was_emptied_at_once() {
    let (connection, mut client) = connection();
    // More than the socket has room for.
    assert!(connection.send(&[&vec![0; 2 * MOST_UNSENT]]));
    let unsent = lock(&connection.outbox).len;
    assert!(unsent >= MOST_UNSENT);
    // The thread that serves has seen that; before it acts on it, the client reads and another thread flushes.
    let mut bytes = vec![0; 2 * MOST_UNSENT];
    let mut read = 0;
    while read < bytes.len() {
        read += client.read(&mut bytes[read..]).unwrap();
        assert!(connection.flush(&mut lock(&connection.outbox)));
    }
    connection.wait_for_room(&mut lock(&connection.inbox));
    // Somebody is told to go on, though the client sends no more; another that is ready stands behind it.
    let (other, _theirs) = UnixStream::pair().unwrap();
    connection.streams.ready.add(&other, 8).unwrap();
    connection.streams.ready.arm(&other, 8, Interest { read: false, write: true }).unwrap();
    let told = connection.streams.ready.wait();
    assert_eq!(told.map(|(key, interest)| (key, interest.write)), Some((7, true)));
}
