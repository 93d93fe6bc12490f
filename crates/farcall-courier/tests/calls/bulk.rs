//! Bulk data between a call and its reply, in both directions, whole and aborted.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran};
use farcall_courier::wire::message::{Courier, Message, Rejection, Versions};
use farcall_courier::{Server, bulk};

use crate::common::{ANY, Ended, Peer, bytes, connect_from, scripted};

/// `BulkData.Descriptor`, without the forms that need a third party.
#[derive(farcall::Xdr, Clone, Copy, Debug, PartialEq)]
pub enum Descriptor {
    #[xdr(tag = 0)]
    Null,
    #[xdr(tag = 1)]
    Immediate,
}

#[farcall::interface(program = 770, version = 1)]
pub trait Files {
    /// Reads so many bytes of the source, or all if there are fewer. Returns how many came.
    #[procedure(1)]
    fn store(&self, source: Descriptor, most: u32) -> farcall::Result<u32>;
    /// Writes so many bytes to the sink. Ends them if `whole`.
    #[procedure(2)]
    fn retrieve(&self, sink: Descriptor, bytes: u32, whole: bool) -> farcall::Result<()>;
}

/// Tells how each transfer ended.
struct Here(Sender<io::Result<usize>>);

impl Files for Here {
    fn store(&self, source: Descriptor, most: u32) -> farcall::Result<u32> {
        let mut data = Vec::new();
        if source == Descriptor::Immediate {
            let source = bulk::incoming().unwrap();
            assert!(bulk::incoming().is_none() && bulk::outgoing().is_none(), "it was taken");
            let _ = self.0.send(source.take(most.into()).read_to_end(&mut data));
            assert!(data.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
        }
        Ok(data.len() as u32)
    }

    fn retrieve(&self, sink: Descriptor, bytes: u32, whole: bool) -> farcall::Result<()> {
        if sink == Descriptor::Immediate {
            let mut sink = bulk::outgoing().unwrap();
            let written = sink.write_all(&contents(bytes as usize));
            let ended = if whole { written.and_then(|()| sink.finish()) } else { written };
            let _ = self.0.send(ended.map(|()| 0));
        }
        Ok(())
    }
}

fn contents(length: usize) -> Vec<u8> {
    let mut contents = (0..251).collect::<Vec<u8>>().repeat(length.div_ceil(251));
    contents.truncate(length);
    contents
}

/// Returns a server, a client of it, its address, and how the server's transfers ended.
fn files() -> (Server, FilesClient, String, Receiver<io::Result<usize>>) {
    let (ended, ends) = channel();
    let builder = Server::builder().program::<dyn Files>(Arc::new(Here(ended)));
    let server = builder.tcp(ANY.parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let files = farcall_courier::import::<dyn Files>(&address).unwrap();
    (server, files, address, ends)
}

/// Returns data that is read from the beginning.
fn source(length: usize) -> io::Cursor<Vec<u8>> {
    io::Cursor::new(contents(length))
}

const ALL: u32 = u32::MAX;

#[test]
fn data_of_any_length_passes_in_both_directions() {
    let (server, files, ..) = files();
    for length in [0, 1, 533, 534, 535, 5000, 3 << 20] {
        let (stored, sent) = bulk::send(source(length), || files.store(Descriptor::Immediate, ALL));
        assert_eq!((stored.unwrap(), sent.unwrap()), (length as u32, length as u64));
        let (done, data, received) =
            bulk::receive(Vec::new(), || files.retrieve(Descriptor::Immediate, length as u32, true));
        done.unwrap();
        assert_eq!((data, received.unwrap()), (contents(length), length as u64));
        assert_eq!(files.store(Descriptor::Null, 0), Ok(0), "a call without bulk data");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_procedure_that_does_not_read_to_the_end_aborts_and_the_connection_stays() {
    let (server, files, _, ends) = files();
    for _ in 0..3 {
        // It is more than the buffers of the two sockets hold, or all of it could be sent before the abort.
        let long = source(1000).chain(io::repeat(0).take(1 << 30));
        let (stored, sent) = bulk::send(long, || files.store(Descriptor::Immediate, 1000));
        assert_eq!(stored, Ok(1000));
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::ConnectionAborted);
        assert_eq!(ends.recv().unwrap().unwrap(), 1000);
        assert_eq!(files.store(Descriptor::Null, 0), Ok(0));
    }
    assert_eq!(server.connections(), 1);
}

/// The data fits the buffers of the sockets, so the caller has sent all of it before the procedure aborts.
#[test]
fn a_sender_learns_of_an_abort_after_it_has_sent_everything() {
    let (server, files, _, ends) = files();
    for length in [1001, 2000, 5000, 50_000] {
        let (stored, sent) = bulk::send(source(length), || files.store(Descriptor::Immediate, 1000));
        assert_eq!(stored, Ok(1000));
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::ConnectionAborted, "{length} bytes");
        assert_eq!(ends.recv().unwrap().unwrap(), 1000);
    }
    assert_eq!(server.connections(), 1);
}

/// What a caller of `program` learns of data that the procedure leaves alone.
#[test]
fn a_procedure_that_does_not_take_the_data_aborts_it() {
    struct Leaves;
    impl Files for Leaves {
        fn store(&self, _: Descriptor, _: u32) -> farcall::Result<u32> {
            Ok(7)
        }
        fn retrieve(&self, _: Descriptor, _: u32, _: bool) -> farcall::Result<()> {
            Ok(())
        }
    }
    let server = Server::builder().program::<dyn Files>(Arc::new(Leaves)).tcp(ANY.parse().unwrap());
    let server = server.start().unwrap();
    let files = farcall_courier::import::<dyn Files>(&format!("tcp://{}", server.addresses()[0])).unwrap();
    for length in [0, 10, 3 << 20] {
        let (stored, sent) = bulk::send(source(length), || files.store(Descriptor::Immediate, 0));
        assert_eq!(stored, Ok(7));
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::ConnectionAborted, "{length} bytes");
        let (done, data, received) =
            bulk::receive(Vec::new(), || files.retrieve(Descriptor::Immediate, 0, true));
        assert_eq!((done, data), (Ok(()), Vec::new()));
        assert_eq!(received.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
    assert_eq!(server.connections(), 1);
}

/// The procedures are those of the example in the documentation: they look at no descriptor.
#[test]
fn a_null_descriptor_gives_a_procedure_no_data_and_passes_none() {
    #[farcall::interface(program = 771, version = 1)]
    trait Named {
        #[procedure(1)]
        fn store(&self, name: &str, kinds: Vec<u16>, source: Descriptor) -> farcall::Result<u32>;
        #[procedure(2)]
        fn retrieve(&self, name: (bool, u32), sink: Descriptor) -> farcall::Result<u32>;
    }
    struct Here;
    impl Named for Here {
        fn store(&self, _: &str, _: Vec<u16>, _: Descriptor) -> farcall::Result<u32> {
            let mut data = Vec::new();
            let source = bulk::incoming().map(|mut source| source.read_to_end(&mut data));
            Ok(source.map_or(0, |_| data.len() as u32))
        }
        fn retrieve(&self, _: (bool, u32), _: Descriptor) -> farcall::Result<u32> {
            let Some(mut sink) = bulk::outgoing() else { return Ok(0) };
            let _ = sink.write_all(b"some bytes").and_then(|()| sink.finish());
            Ok(1)
        }
    }
    let server = Server::builder().program::<dyn Named>(Arc::new(Here)).tcp(ANY.parse().unwrap());
    let server = server.start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let named = farcall_courier::import::<dyn Named>(&address).unwrap();
    let soon = named.within(std::time::Duration::from_secs(5));
    let kinds = || vec![1, 2, 3];
    assert_eq!(soon.store("odd", kinds(), Descriptor::Null), Ok(0));
    assert_eq!(soon.retrieve((true, 1), Descriptor::Null), Ok(0));
    assert_eq!(soon.start().store("odd", kinds(), Descriptor::Null).wait(), Ok(0));
    // What is attached to a call without data stays, and the caller learns it.
    let (stored, sent) = bulk::send(source(10), || soon.store("x", kinds(), Descriptor::Null));
    assert_eq!((stored, sent.unwrap_err().kind()), (Ok(0), ErrorKind::NotConnected));
    let (stored, sent) = bulk::send(source(10), || soon.store("four", kinds(), Descriptor::Immediate));
    assert_eq!((stored, sent.unwrap()), (Ok(10), 10));
    let (done, data, received) =
        bulk::receive(Vec::new(), || soon.retrieve((false, 2), Descriptor::Immediate));
    assert_eq!((done, &data[..], received.unwrap()), (Ok(1), &b"some bytes"[..], 10));
    assert_eq!(server.connections(), 1);
}

#[test]
fn immediate_data_that_nobody_attached_is_refused_at_once() {
    let (server, files, ..) = files();
    let refused = |outcome: farcall::Result<u32>| {
        let why = outcome.unwrap_err();
        let why = why.call_failed().unwrap();
        assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No));
        assert!(why.to_string().contains("bulk::send"), "{why}");
    };
    let soon = files.within(std::time::Duration::from_secs(5));
    refused(soon.store(Descriptor::Immediate, ALL));
    refused(soon.start().store(Descriptor::Immediate, ALL).wait());
    refused(soon.retrieve(Descriptor::Immediate, 1, true).map(|()| 0));
    assert_eq!(files.store(Descriptor::Null, 0), Ok(0));
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_source_that_fails_aborts_and_the_procedure_learns_of_it() {
    /// Fails after the first part.
    struct Fails(usize);
    impl Read for Fails {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(ErrorKind::InvalidData.into());
            }
            let part = contents(self.0.min(buffer.len()));
            buffer[..part.len()].copy_from_slice(&part);
            self.0 = 0;
            Ok(part.len())
        }
    }
    let (server, files, _, ends) = files();
    let (stored, sent) = bulk::send(Fails(100), || files.store(Descriptor::Immediate, ALL));
    assert_eq!(stored, Ok(100));
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(ends.recv().unwrap().unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(files.store(Descriptor::Null, 0), Ok(0));
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_procedure_that_does_not_finish_aborts_and_the_caller_learns_of_it() {
    let (server, files, ..) = files();
    let (done, data, received) =
        bulk::receive(Vec::new(), || files.retrieve(Descriptor::Immediate, 700, false));
    assert_eq!(done, Ok(()));
    assert_eq!(data, contents(700));
    assert_eq!(received.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(files.store(Descriptor::Null, 0), Ok(0));
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_sink_that_fails_aborts_and_the_procedure_learns_of_it() {
    /// Takes one part.
    struct Full(bool);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                Err(ErrorKind::StorageFull.into())
            } else {
                Ok(bytes.len())
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (server, files, _, ends) = files();
    let (done, _, received) =
        bulk::receive(Full(false), || files.retrieve(Descriptor::Immediate, 64 << 20, true));
    assert_eq!(done, Ok(()));
    assert_eq!(received.unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(ends.recv().unwrap().unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(files.store(Descriptor::Null, 0), Ok(0));
    assert_eq!(server.connections(), 1);
}

#[test]
fn data_that_no_call_takes_is_said_to_have_stayed() {
    let (_server, files, ..) = files();
    let ((), sent) = bulk::send(source(10), || ());
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::NotConnected);
    let (done, data, received) = bulk::receive(Vec::new(), || files.store(Descriptor::Null, 0));
    assert_eq!((done, data), (Ok(0), Vec::new()));
    assert_eq!(received.unwrap_err().kind(), ErrorKind::NotConnected, "the server sent none");
    assert!(bulk::incoming().is_none() && bulk::outgoing().is_none(), "this thread serves no call");
}

#[test]
fn a_rejected_call_discards_the_data_that_was_sent_with_it() {
    let (_server, _, address, _) = files();
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.call(1, (770, 1), 99, &[]);
    peer.send_bulk(&contents(5000), true);
    assert_eq!(peer.receive().unwrap(), bytes("0001 0001 0002"));
    peer.call(2, (770, 1), 1, &bytes("0000 0000 0000"));
    assert_eq!(peer.receive().unwrap(), bytes("0002 0002 0000 0000"));
}

#[test]
fn the_packets_are_as_the_standard_has_them() {
    let (_server, _, address, ends) = files();
    let mut peer = Peer::connect(&address, Versions::THREE);
    // Its end is a packet without data, as 4.4BSD sends it.
    peer.call(1, (770, 1), 1, &bytes("0001 ffff ffff"));
    peer.send_bulk(&contents(600), false);
    peer.send_bulk(&[], true);
    assert_eq!(peer.receive().unwrap(), bytes("0002 0001 0000 0258"));
    peer.call(2, (770, 1), 1, &bytes("0001 ffff ffff"));
    peer.send_bulk(&contents(600), false);
    peer.abort_bulk();
    assert_eq!(peer.receive().unwrap(), bytes("0002 0002 0000 0258"));
    assert_eq!(ends.try_iter().last().unwrap().unwrap_err().kind(), ErrorKind::ConnectionAborted);
    peer.call(3, (770, 1), 2, &bytes("0001 0000 0258 0001"));
    assert_eq!(peer.receive_bulk(), (contents(600), Ended::Whole));
    assert_eq!(peer.receive().unwrap(), bytes("0002 0003"));
    peer.call(4, (770, 1), 2, &bytes("0001 0000 0258 0000"));
    assert_eq!(peer.receive_bulk(), (contents(600), Ended::Aborted));
    assert_eq!(peer.receive().unwrap(), bytes("0002 0004"));
}

#[test]
fn a_connection_that_breaks_during_the_data_leaves_open_whether_the_call_ran() {
    let address = scripted(|_, mut peer| {
        peer.receive_call().unwrap();
        // Then the connection ends.
        peer.send_bulk(&contents(600), false);
    });
    let files = farcall_courier::import::<dyn Files>(&address).unwrap();
    let (done, data, received) =
        bulk::receive(Vec::new(), || files.retrieve(Descriptor::Immediate, 1000, true));
    let why = done.unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran(), data), (Kind::Unreachable, Ran::Maybe, contents(600)));
    assert_eq!(received.unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn data_of_a_call_that_failed_was_not_taken() {
    let address = scripted(|_, mut peer| {
        peer.receive_call().unwrap();
        while peer.receive_bulk().1 != Ended::Whole {}
        // Then the connection ends, without a reply.
    });
    let files = farcall_courier::import::<dyn Files>(&address).unwrap();
    let (stored, sent) = bulk::send(source(600), || files.store(Descriptor::Immediate, ALL));
    assert_eq!(stored.unwrap_err().call_failed().unwrap().kind(), Kind::Unreachable);
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn a_procedure_whose_client_goes_away_during_the_data_ends() {
    let (server, _, address, ends) = files();
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.call(1, (770, 1), 1, &bytes("0001 ffff ffff"));
    peer.send_bulk(&contents(600), false);
    drop(peer);
    // The system resets the connection if the peer has not read the server's versions.
    let why = ends.recv().unwrap().unwrap_err().kind();
    assert!(matches!(why, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{why}");
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.call(1, (770, 1), 1, &bytes("0001 ffff ffff"));
    // A second call within the data is no data.
    peer.call(2, (770, 1), 1, &bytes("0000 0000 0000"));
    assert_eq!(ends.recv().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    while peer.receive().is_some() {}
    drop(server);
}

#[test]
fn a_server_that_rejects_while_data_is_sent_is_understood() {
    let address = scripted(|_, mut peer| {
        while let Some((id, ..)) = peer.receive_call() {
            peer.message(Message::Reject(id, Rejection::NoSuchProcedure));
        }
    });
    let files = farcall_courier::import::<dyn Files>(&address).unwrap();
    for length in [0, 100, 3 << 20] {
        let (stored, sent) = bulk::send(source(length), || files.store(Descriptor::Immediate, ALL));
        let why = stored.unwrap_err();
        assert_eq!(why.call_failed().unwrap().kind(), Kind::NoSuchProcedure);
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::ConnectionAborted, "{length} bytes");
    }
}

/// Counts the calls that have begun.
struct Counted(Arc<AtomicUsize>, Here);

impl Files for Counted {
    fn store(&self, source: Descriptor, most: u32) -> farcall::Result<u32> {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.store(source, most)
    }

    fn retrieve(&self, sink: Descriptor, bytes: u32, whole: bool) -> farcall::Result<()> {
        self.1.retrieve(sink, bytes, whole)
    }
}

#[test]
fn bulk_data_that_does_not_come_keeps_nobody_out() {
    let ((told, _ends), begun) = (channel(), Arc::new(AtomicUsize::new(0)));
    let builder = Server::builder().program::<dyn Files>(Arc::new(Counted(begun.clone(), Here(told))));
    // The hosts of one network have eight of nine connections.
    let server = builder.tcp(ANY.parse().unwrap()).connections(9).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let mut attackers = [2, 3].map(|host| [(); 4].map(|()| connect_from(host, &address)));
    for peer in attackers.as_flattened_mut() {
        // `store` of immediate data, of which nothing comes.
        peer.call(1, (770, 1), 1, &bytes("0001 0000 0001"));
    }
    while begun.load(Ordering::SeqCst) < 8 {
        std::thread::yield_now();
    }
    // Until it waits for the data, a call is executed, and its connection stays.
    let answer = (0..1_000).find_map(|_| {
        std::thread::yield_now();
        farcall_courier::import::<dyn Files>(&address).unwrap().store(Descriptor::Null, 1).ok()
    });
    assert_eq!(answer, Some(0));
}

/// A source or sink that makes calls, and how they ended.
struct Calls {
    same: FilesClient,
    other: FilesClient,
    ended: Sender<[farcall::Result<u32>; 3]>,
}

impl Calls {
    fn call(&self) {
        let blocking = self.same.store(Descriptor::Null, 0);
        let started = self.same.start().store(Descriptor::Null, 0).wait();
        let _ = self.ended.send([blocking, started, self.other.store(Descriptor::Null, 0)]);
    }
}

impl Read for Calls {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.call();
        Ok(0)
    }
}

impl Write for Calls {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.call();
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The call would wait until the call ends whose data it is to supply or to take.
#[test]
fn a_call_in_the_source_or_sink_of_a_call_on_its_own_connection_is_refused() {
    let (_server, files, address, _ends) = files();
    let (ended, ends) = channel();
    let other = farcall_courier::import::<dyn Files>(&address).unwrap();
    let calls = || Calls { same: files.clone(), other: other.clone(), ended: ended.clone() };
    let must_be_refused = || {
        let [blocking, started, other] = ends.recv().unwrap();
        for refused in [blocking, started] {
            let why = CallFailed::from(refused.unwrap_err());
            assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No), "{why}");
            assert!(why.detail().contains("would wait for itself"), "{why}");
        }
        assert_eq!(other, Ok(0));
    };
    let (stored, sent) = bulk::send(calls(), || files.store(Descriptor::Immediate, ALL));
    assert_eq!((stored.unwrap(), sent.unwrap()), (0, 0));
    must_be_refused();
    let (done, _, received) = bulk::receive(calls(), || files.retrieve(Descriptor::Immediate, 100, true));
    done.unwrap();
    assert_eq!(received.unwrap(), 100);
    must_be_refused();
    assert_eq!(files.store(Descriptor::Null, 0), Ok(0));
}

/// Tells when a transfer begins.
struct Begins(Sender<()>);

impl Files for Begins {
    fn store(&self, _: Descriptor, _: u32) -> farcall::Result<u32> {
        self.0.send(()).unwrap();
        Ok(bulk::incoming().unwrap().read_to_end(&mut Vec::new()).map_or(0, |length| length as u32))
    }

    fn retrieve(&self, _: Descriptor, _: u32, _: bool) -> farcall::Result<()> {
        Ok(())
    }
}

#[test]
fn a_drain_waits_for_the_bulk_data_of_a_call_that_has_begun() {
    let (begins, begun) = channel();
    let builder = Server::builder().program::<dyn Files>(Arc::new(Begins(begins)));
    let server = builder.tcp(ANY.parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let (mut idle, mut peer) =
        (Peer::connect(&address, Versions::THREE), Peer::connect(&address, Versions::THREE));
    idle.call(1, (770, 1), 2, &bytes("0000 0000 0000 0000"));
    idle.receive().unwrap();
    peer.call(2, (770, 1), 1, &bytes("0001 0000 0003"));
    begun.recv().unwrap();
    let drain = thread::spawn(move || server.drain(Duration::from_secs(20)));
    assert_eq!(idle.receive(), None);
    peer.send_bulk(&contents(3), true);
    let reply = peer.receive().unwrap();
    let stored = bytes("0000 0003");
    assert_eq!(Message::parse(&reply, Courier::Three), Ok(Message::Return(2, &stored)));
    assert!(drain.join().unwrap());
}
