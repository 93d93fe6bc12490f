//! Deadlines: of calls that wait for a reply, and of calls that wait for their turn.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use farcall::{Error, Kind, Ran};
use farcall_courier::wire::message::Message;
use farcall_courier::wire::packet::{Datastream, PacketWriter};
use farcall_courier::{Builder, bulk};

use crate::common::{Much, Work, Worker, scripted, serve, work};

/// A deadline that passes soon. Nothing depends on how long it is.
const SOON: Duration = Duration::from_millis(30);

fn failed<T: std::fmt::Debug>(result: farcall::Result<T>) -> (Kind, Ran, String) {
    let Err(Error::CallFailed(why)) = result else { panic!("{result:?}") };
    (why.kind(), why.ran(), why.detail().rsplit(": ").next().unwrap().to_owned())
}

#[test]
fn a_call_without_a_reply_ends_at_its_deadline_and_takes_its_connection_along() {
    let (connections, opened) = channel();
    let (go, gone) = channel::<()>();
    let address = scripted(move |number, mut peer| {
        connections.send(number).unwrap();
        if number == 0 {
            let (id, ..) = peer.receive_call().unwrap();
            // The reply comes when the caller has given up.
            gone.recv().unwrap();
            peer.message(Message::Return(id, &[0, 99]));
            assert_eq!(peer.receive_call(), None, "no call follows on this connection");
        }
        while peer.answer_next().is_some() {}
    });
    let work = work(&address);
    let late = work.within(SOON).next(1);
    assert_eq!(failed(late), (Kind::Deadline, Ran::Maybe, "no reply in time".into()));
    go.send(()).unwrap();
    assert_eq!(work.next(2), Ok(3), "the late reply is not taken for this one's");
    assert_eq!(opened.try_iter().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_call_whose_caller_sets_no_deadline_ends_when_the_clients_patience_does() {
    let address = scripted(|_, mut peer| while peer.receive_call().is_some() {});
    // A stub that lost its connection would need its patience for another one.
    let work = || Builder::default().patience(Some(SOON)).import::<dyn Work>(&address).unwrap();
    let late = || (Kind::Unreachable, Ran::Maybe, "no reply within 30ms".into());
    assert_eq!(failed(work().next(1)), late());
    assert_eq!(failed(work().start().next(1).wait()), late());
    // No time is left to make it once more.
    assert_eq!(failed(work().again(1)), late());
}

/// Starts a server that sends these bytes again and again, as fast as the client takes them.
fn flood(bytes: Vec<u8>) -> String {
    let bytes = bytes.repeat(1000);
    scripted(move |_, mut peer| while peer.socket.write_all(&bytes).is_ok() {})
}

#[test]
fn a_deadline_holds_while_a_server_sends_all_the_time() {
    let late = || (Kind::Deadline, Ran::Maybe, "no reply in time".into());
    // Packets of SPP itself, which bring nothing.
    let system = [&[0, 12, 0x80, 0][..], &[0; 10]].concat();
    assert_eq!(failed(work(&flood(system)).within(SOON).next(1)), late());
    let mut data = Vec::new();
    PacketWriter::default().write(Datastream::Bulk, &[7; 500], false, &mut data);
    let address = flood(data);
    // A stub that lost its connection would need some of the time for another one.
    let (result, ..) = bulk::receive(io::sink(), || work(&address).within(SOON).next(1));
    assert_eq!(failed(result), late());
    let (result, sent) = bulk::send(io::repeat(0), || work(&address).within(SOON).next(1));
    assert_eq!(failed(result), late());
    assert!(sent.is_err());
}

#[test]
fn a_deadline_holds_while_bulk_data_without_an_end_is_sent() {
    let address = scripted(|_, mut peer| while peer.receive().is_some() {});
    let work = work(&address);
    let (result, sent) = bulk::send(io::repeat(0), || work.within(SOON).next(1));
    assert_eq!(failed(result), (Kind::Deadline, Ran::Maybe, "no reply in time".into()));
    assert!(sent.is_err());
}

#[test]
fn a_deadline_counts_while_a_call_waits_for_its_turn() {
    let worker = Arc::new(Worker::default());
    let (_server, address) = serve(worker.clone(), |builder| builder);
    let work = work(&address);
    let turn = "calls that were made earlier have not ended";
    std::thread::scope(|scope| {
        let first = scope.spawn(|| work.block());
        let started = work.start().block();
        // One of the two has the turn, and both block until they are let go.
        let late = work.within(SOON);
        assert_eq!(failed(late.next(1)), (Kind::Deadline, Ran::No, turn.into()));
        assert_eq!(failed(late.start().next(1).wait()), (Kind::Deadline, Ran::No, turn.into()));
        let two = [late.start().next(1), late.start().next(2)];
        two.into_iter().for_each(|one| assert_eq!(failed(one.wait()).1, Ran::No));
        worker.gate.open();
        worker.gate.open();
        assert_eq!((first.join().unwrap(), started.wait()), (Ok(7), Ok(7)));
    });
    assert_eq!(work.next(1), Ok(2));
}

#[test]
fn a_deadline_holds_while_a_long_call_is_sent_to_a_server_that_does_not_read() {
    let (keep, kept) = channel::<()>();
    let address = scripted(move |number, mut peer| {
        if number == 0 {
            let _ = kept.recv();
        }
        while let Some((id, _, arguments)) = peer.receive_call() {
            peer.message(Message::Return(id, &arguments));
        }
    });
    let much = Builder::default().import::<dyn Much>(&address).unwrap();
    // More than the buffers of both sockets hold.
    let words = vec![vec![7; 65_535]; 64];
    let late = much.within(Duration::from_millis(200)).words(words.clone());
    assert_eq!(failed(late), (Kind::Deadline, Ran::No, "no reply in time".into()));
    drop(keep);
    // The scripted server takes messages of a megabyte.
    assert_eq!(much.words(words[..4].to_vec()).unwrap(), words[..4]);
}

#[test]
fn a_server_that_does_not_accept_is_given_up() {
    // A listener whose queue is full: connecting waits.
    let address = scripted(|_, mut peer| {
        peer.answer_next();
        std::thread::park();
    });
    let work = Builder::default().patience(Some(SOON)).import::<dyn Work>(&address).unwrap();
    assert_eq!(work.within(Duration::from_secs(60)).next(1), Ok(2));
    assert_eq!(failed(work.next(1)).0, Kind::Unreachable);
    // The next connection is made by the system, but nobody ever answers there.
    assert_eq!(failed(work.next(1)).0, Kind::Unreachable);
}
