//! Started calls: waited for, polled, cancelled, dropped and detached.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use farcall::{CallFailed, Error, Kind, Ran};
use farcall_core::serving::{self, WorkerPool};
use farcall_courier::Builder;
use farcall_courier::wire::message::Message;

use crate::common::{Much, Work, Worker, scripted, serve, server, work};

struct Woken(Mutex<Sender<()>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

/// Polls a future whenever it is woken, until it ends.
fn block_on<F: Future>(future: F) -> F::Output {
    let (wake, woken) = channel();
    let waker = Waker::from(Arc::new(Woken(Mutex::new(wake))));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        woken.recv().unwrap();
    }
}

#[test]
fn started_calls_end_in_order_on_one_connection() {
    let (server, address) = server();
    let work = work(&address);
    let pending: Vec<_> = (0..500).map(|number| work.start().next(number)).collect();
    assert_eq!(work.next(1000), Ok(1001), "a call that blocks has its turn after them");
    for (number, one) in pending.into_iter().enumerate() {
        assert_eq!(one.wait(), Ok(number as u16 + 1));
    }
    assert_eq!(server.connections(), 1);
    let pending = [work.start().next(1), work.start().next(2)];
    pending.into_iter().zip(2..).for_each(|(one, next)| assert_eq!(block_on(one), Ok(next)));
}

#[test]
fn start_does_not_block_while_the_server_does() {
    let worker = Arc::new(Worker::default());
    let (_server, address) = serve(worker.clone(), |builder| builder);
    let work = work(&address);
    let blocked = work.start().block();
    let behind = work.start().next(1);
    worker.gate.open();
    assert_eq!((block_on(behind), blocked.wait()), (Ok(2), Ok(7)));
}

#[test]
fn more_started_calls_than_may_wait_are_refused() {
    let worker = Arc::new(Worker::default());
    let (_server, address) = serve(worker.clone(), |builder| builder);
    let work = work(&address);
    let blocked = work.start().block();
    let mut waiting: Vec<_> = (0..1026).map(|number| work.start().next(number)).collect();
    let Err(Error::CallFailed(why)) = waiting.pop().unwrap().wait() else { panic!("it was not refused") };
    assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
    worker.gate.open();
    assert_eq!(blocked.wait(), Ok(7));
    // The last of the others was refused, too, if the first had its turn at once.
    for (number, one) in waiting.into_iter().take(1024).enumerate() {
        assert_eq!(one.wait(), Ok(number as u16 + 1));
    }
}

#[test]
fn started_calls_to_a_hung_server_keep_no_more_than_the_budget_leaves_free() {
    const WORDS: usize = 32 << 10;
    const BUDGET: usize = 16 * (2 * WORDS + 100);
    let (address, keep) = deaf();
    let builder = Builder::default().patience(None).argument_bytes(BUDGET);
    let hung = builder.import::<dyn Work>(&address).unwrap();
    let mut waiting: Vec<_> = (0..100).map(|_| hung.start().words(vec![7; WORDS])).collect();
    let (_well, address) = server();
    let well = builder.import::<dyn Work>(&address).unwrap();
    assert_eq!(well.start().words(vec![1; WORDS]).wait(), Ok(vec![1; WORDS]), "the others do not suffer");
    for one in &mut waiting {
        one.cancel();
    }
    let is_refused = |result| match result {
        Err(Error::CallFailed(why)) => (why.kind(), why.ran()) == (Kind::Overloaded, Ran::No),
        other => panic!("{other:?}"),
    };
    let refused = waiting.into_iter().map(|one| is_refused(one.wait())).filter(|refused| *refused).count();
    assert_eq!(refused, 100 - 8, "the others have half of the budget");
    drop(keep);
    assert_eq!(hung.start().words(vec![1; WORDS]).wait(), Ok(vec![1; WORDS]), "cancelled calls keep nothing");
}

#[test]
fn a_cancelled_call_ends_at_once_and_the_connection_with_it() {
    let (received, called) = channel();
    let address = scripted(move |number, mut peer| {
        if number == 0 {
            received.send(peer.receive_call().unwrap().1).unwrap();
            assert_eq!(peer.receive_call(), None, "the connection ends with the call");
        }
        while peer.answer_next().is_some() {}
    });
    let work = work(&address);
    let mut running = work.start().next(1);
    assert_eq!(called.recv().unwrap(), 1);
    let mut waiting = work.start().next(2);
    waiting.cancel();
    let Err(Error::CallFailed(why)) = waiting.wait() else { panic!("it has a result") };
    assert_eq!((why.kind(), why.ran()), (Kind::Cancelled, Ran::No));
    running.cancel();
    let Err(Error::CallFailed(why)) = running.wait() else { panic!("it has a result") };
    assert_eq!((why.kind(), why.ran()), (Kind::Cancelled, Ran::Maybe));
    assert_eq!(work.next(3), Ok(4));
}

#[test]
fn a_dropped_call_makes_room_for_the_next() {
    let (received, called) = channel();
    let address = scripted(move |number, mut peer| {
        if number == 0 {
            received.send(peer.receive_call().unwrap().1).unwrap();
        }
        while peer.answer_next().is_some() {}
    });
    let work = work(&address);
    let running = work.start().next(1);
    called.recv().unwrap();
    drop(running);
    assert_eq!(work.next(3), Ok(4));
}

#[test]
fn a_detached_call_runs_though_its_stub_is_gone() {
    let (ran, runs) = channel();
    let address = scripted(move |_, mut peer| {
        while let Some((id, _, arguments)) = peer.receive_call() {
            peer.message(Message::Return(id, &arguments));
            ran.send(arguments).unwrap();
        }
    });
    let work = work(&address);
    for number in 0..3 {
        work.start().next(number).detach();
    }
    drop(work);
    let runs: Vec<_> = (0..3).map(|_| runs.recv().unwrap()).collect();
    assert_eq!(runs, [[0, 0], [0, 1], [0, 2]]);
}

#[test]
fn a_polled_call_that_waits_for_its_turn_is_woken_at_its_deadline() {
    let worker = Arc::new(Worker::default());
    let (_server, address) = serve(worker.clone(), |builder| builder);
    let work = work(&address);
    let blocked = work.start().block();
    let late = block_on(work.within(Duration::from_millis(20)).start().next(1));
    let Err(Error::CallFailed(why)) = late else { panic!("{late:?}") };
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No));
    worker.gate.open();
    assert_eq!(blocked.wait(), Ok(7));
}

/// Starts a server whose first connection is not read. Returns its address, and what it waits for.
fn deaf() -> (String, Sender<()>) {
    let (keep, kept) = channel::<()>();
    let address = scripted(move |number, mut peer| {
        if number == 0 {
            let _ = kept.recv();
            return;
        }
        while let Some((id, _, arguments)) = peer.receive_call() {
            peer.message(Message::Return(id, &arguments));
        }
    });
    (address, keep)
}

#[test]
fn a_call_that_is_being_sent_can_be_cancelled_and_delays_no_deadline() {
    let (address, keep) = deaf();
    let much = Builder::default().patience(None).import::<dyn Much>(&address).unwrap();
    let mut stuck = much.start().words(vec![vec![7; 65_535]; 64]);
    let late = block_on(much.within(Duration::from_millis(20)).start().words(Vec::new()));
    let Err(Error::CallFailed(why)) = late else { panic!("{late:?}") };
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No));
    stuck.cancel();
    // The connection ended with the cancelled call, so the server takes another one.
    drop(keep);
    assert_eq!(much.words(vec![vec![7]]), Ok(vec![vec![7]]));
    assert!(matches!(stuck.wait(), Err(Error::CallFailed(why)) if why.kind() == Kind::Cancelled));
}

#[test]
fn an_idle_carrier_does_not_keep_the_connection_of_a_dropped_stub() {
    let (ended, end) = channel();
    let address = scripted(move |_, mut peer| {
        while peer.answer_next().is_some() {}
        ended.send(()).unwrap();
    });
    let work = work(&address);
    assert_eq!(work.start().next(1).wait(), Ok(2));
    drop(work);
    end.recv().unwrap();
}

/// A pool whose threads may not wait.
struct Full;

impl WorkerPool for Full {
    fn may_wait(&self) -> Result<(), CallFailed> {
        Err(CallFailed::new(Kind::Overloaded, Ran::No))
    }

    fn begin_wait(&self, _: bool) -> Result<bool, CallFailed> {
        self.may_wait().map(|()| true)
    }

    fn end_wait(&self) {}
}

#[test]
fn a_refused_wait_does_not_say_that_a_running_call_did_not_run() {
    let worker = Arc::new(Worker::default());
    let (_server, address) = serve(worker.clone(), |builder| builder);
    let running = work(&address).start().block();
    let thread = std::thread::spawn(move || {
        serving::serve_elsewhere(Some(Arc::new(Full)));
        let Err(Error::CallFailed(why)) = running.wait() else { panic!("the wait is refused") };
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::Maybe));
    });
    thread.join().unwrap();
    worker.gate.open();
}
