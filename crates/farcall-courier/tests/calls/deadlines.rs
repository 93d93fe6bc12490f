//! Deadlines: of calls that wait for a reply, and of calls that wait for their turn.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use farcall::{Error, Kind, Ran};
use farcall_courier::Builder;
use farcall_courier::wire::message::Message;

use crate::common::{Work, Worker, scripted, serve, work};

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
    let work = Builder::default().patience(Some(SOON)).import::<dyn Work>(&address).unwrap();
    assert_eq!(failed(work.next(1)), (Kind::Unreachable, Ran::Maybe, "no reply within 30ms".into()));
    assert_eq!(
        failed(work.start().next(1).wait()),
        (Kind::Unreachable, Ran::Maybe, "no reply within 30ms".into())
    );
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
    #[farcall::interface(program = 900, version = 3)]
    pub trait Much {
        #[procedure(4)]
        fn words(&self, words: Vec<Vec<u16>>) -> farcall::Result<Vec<Vec<u16>>>;
    }
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
    assert_eq!(work.next(1), Ok(2));
    assert_eq!(failed(work.next(1)).0, Kind::Unreachable);
    // The next connection is made by the system, but nobody ever answers there.
    assert_eq!(failed(work.next(1)).0, Kind::Unreachable);
}
