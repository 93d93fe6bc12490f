//! Tests that a cancelled call ends alike over UDP, through shared memory and within one process, and that
//! its procedure learns of the cancel.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::common::{block_on, builder};
use farcall::{CallFailed, Export, Kind, Pending, Ran, Runtime, Task, stub};

/// How long a test waits for an event before it fails. No event takes nearly as long.
const GUARD: Duration = Duration::from_secs(60);

#[farcall::interface(async)]
pub trait Job {
    /// Waits until its caller gives it up, and returns a result nevertheless.
    #[blocking]
    fn until_cancelled(&self) -> farcall::Result<u64>;
    /// Waits until the test releases it, even if its caller gives it up.
    #[blocking]
    #[uncancelled]
    fn stubborn(&self) -> farcall::Result<u64>;
    fn next(&self, number: u64) -> farcall::Result<u64>;
}

/// The events that procedures report to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Begin,
    /// The procedure was told that its caller has given it up.
    Told,
    /// The procedure's future was dropped.
    Dropped,
    /// The test released the procedure.
    End,
}

struct Server {
    did: Mutex<Sender<Did>>,
    released: Mutex<bool>,
    release: Condvar,
    /// Whether the procedures that are futures are released.
    let_go: AtomicBool,
}

impl Server {
    fn note(&self, did: Did) {
        let _ = self.did.lock().unwrap().send(did);
    }

    fn release(&self) {
        self.let_go.store(true, Ordering::SeqCst);
        *self.released.lock().unwrap() = true;
        self.release.notify_all();
    }
}

impl Job for Server {
    fn until_cancelled(&self) -> farcall::Result<u64> {
        self.note(Did::Begin);
        if farcall::context().cancelled().wait(GUARD) && farcall::context().is_cancelled() {
            self.note(Did::Told);
        }
        Ok(13)
    }

    fn stubborn(&self) -> farcall::Result<u64> {
        self.note(Did::Begin);
        let mut released = self.released.lock().unwrap();
        while !*released {
            released = self.release.wait(released).unwrap();
        }
        self.note(Did::End);
        Ok(13)
    }

    fn next(&self, number: u64) -> farcall::Result<u64> {
        Ok(number + 1)
    }
}

struct Futures(Arc<Server>);

/// Reports its drop to the test, unless it was disarmed.
struct Bomb<'s>(&'s Server, bool);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.note(Did::Dropped);
        }
    }
}

impl JobAsync for Futures {
    async fn until_cancelled(&self) -> farcall::Result<u64> {
        let _bomb = Bomb(&self.0, true);
        self.0.note(Did::Begin);
        pending().await
    }

    async fn stubborn(&self) -> farcall::Result<u64> {
        let mut bomb = Bomb(&self.0, true);
        self.0.note(Did::Begin);
        poll_fn(|context| {
            if self.0.let_go.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        bomb.1 = false;
        self.0.note(Did::End);
        Ok(13)
    }

    async fn next(&self, number: u64) -> farcall::Result<u64> {
        Ok(number + 1)
    }
}

/// A server of plain functions or of futures, and one way to call it.
struct Setting {
    /// The name of this way, for messages of failure.
    name: String,
    server: Arc<Server>,
    did: Receiver<Did>,
    job: JobClient,
    /// Whether the server's procedures are futures.
    futures: bool,
    _kept: Option<(Runtime, Export)>,
}

impl Setting {
    /// Asserts that this is the next event.
    fn did(&self, expected: Did) {
        assert_eq!(self.did.recv_timeout(GUARD).as_ref(), Ok(&expected), "{}", self.name);
    }

    /// Asserts that a call which its caller gave up ended as cancelled, and may have run.
    fn assert_cancelled(&self, outcome: farcall::Result<u64>) {
        let why = CallFailed::from(outcome.expect_err(&self.name));
        assert_eq!(why.kind(), Kind::Cancelled, "{}: {why}", self.name);
        assert_ne!(why.ran(), Ran::No, "{}: {why}", self.name);
    }

    /// Polls the call once: a future in this process makes progress only while the caller polls it.
    fn begin(&self, call: &mut Pending<u64>) {
        let mut once = pin!(poll_fn(|context| {
            assert!(Pin::new(&mut *call).poll(context).is_pending(), "{}", self.name);
            Poll::Ready(())
        }));
        block_on(once.as_mut());
        self.did(Did::Begin);
    }

    /// Asserts that the procedure of a call that was given up is told, or its future dropped.
    fn stops(&self) {
        self.did(if self.futures { Did::Dropped } else { Did::Told });
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.server.release();
    }
}

/// Makes a server, which is called through shared memory or over UDP, or within this process if `memory` is
/// `None`.
fn setting(memory: Option<bool>, futures: bool) -> Setting {
    let (send, did) = channel();
    let (released, release, let_go) = Default::default();
    let server = Arc::new(Server { did: Mutex::new(send), released, release, let_go });
    let all = || JobAsyncServer::new(Futures(server.clone()));
    let Some(memory) = memory else {
        let job = if futures { stub::local_async(all()) } else { stub::local::<dyn Job>(server.clone()) };
        let name = format!("in-process, futures: {futures}");
        return Setting { name, server, did, job, futures, _kept: None };
    };
    let runtime = builder().shared_memory(memory).workers(16).build().unwrap();
    let threads = |task: Task| drop(std::thread::spawn(move || block_on(task)));
    let export = match futures {
        true => runtime.export_async_on("Job", all(), threads).unwrap(),
        false => runtime.export::<dyn Job>("Job", server.clone()).unwrap(),
    };
    let job = runtime.import::<dyn Job>("Job").unwrap();
    let name = format!("shared memory: {memory}, futures: {futures}");
    Setting { name, server, did, job, futures, _kept: Some((runtime, export)) }
}

/// Runs a test with each carrier, and with servers of plain functions and of futures.
fn everywhere(test: impl Fn(&Setting)) {
    for memory in [Some(false), Some(cfg!(target_os = "linux")), None] {
        for futures in [false, true] {
            test(&setting(memory, futures));
        }
    }
}

#[test]
fn a_cancelled_call_fails_as_cancelled_when_waited_for_and_its_procedure_stops() {
    everywhere(|s| {
        let mut call = s.job.start().until_cancelled();
        s.begin(&mut call);
        call.cancel();
        s.assert_cancelled(call.wait());
        s.stops();
        assert_eq!(s.job.next(1).unwrap(), 2);
    });
}

#[test]
fn a_cancelled_call_fails_as_cancelled_when_awaited() {
    everywhere(|s| {
        let mut call = s.job.start().until_cancelled();
        s.begin(&mut call);
        call.cancel();
        s.assert_cancelled(block_on(call));
        s.stops();
    });
}

#[test]
fn a_dropped_call_is_cancelled() {
    everywhere(|s| {
        let mut call = s.job.start().until_cancelled();
        s.begin(&mut call);
        drop(call);
        s.stops();
    });
}

#[test]
fn a_procedure_that_ignores_a_cancel_delays_no_caller_and_its_result_is_discarded() {
    everywhere(|s| {
        let calls = (0..4).map(|_| {
            let mut call = s.job.start().stubborn();
            s.begin(&mut call);
            call.cancel();
            call
        });
        let calls: Vec<_> = calls.collect();
        for (number, call) in calls.into_iter().enumerate() {
            s.assert_cancelled(if number % 2 == 0 { call.wait() } else { block_on(call) });
        }
        // The procedures still run. No other call may get their slots and buffers meanwhile.
        for number in 0..300 {
            assert_eq!(s.job.next(number).unwrap(), number + 1, "{}", s.name);
        }
        s.server.release();
        (0..4).for_each(|_| s.did(Did::End));
        for number in 0..300 {
            assert_eq!(s.job.start().next(number).wait().unwrap(), number + 1, "{}", s.name);
        }
    });
}

#[test]
fn a_call_that_ended_before_its_cancel_keeps_its_result() {
    everywhere(|s| {
        let mut call = s.job.start().next(1);
        let result = block_on(poll_fn(|context| Pin::new(&mut call).poll(context)));
        assert_eq!(result.unwrap(), 2, "{}", s.name);
        call.cancel();
    });
}

#[test]
fn a_deadline_reaches_the_procedure() {
    everywhere(|s| {
        // On a busy machine the deadline may pass before the procedure begins.
        loop {
            let outcome = s.job.within(Duration::from_millis(50)).until_cancelled();
            let why = CallFailed::from(outcome.expect_err(&s.name));
            assert_eq!(why.kind(), Kind::Deadline, "{}: {why}", s.name);
            if why.ran() != Ran::No && s.did.recv_timeout(Duration::from_secs(5)) == Ok(Did::Begin) {
                return s.stops();
            }
        }
    });
}

#[test]
fn outside_a_procedure_nothing_is_cancelled() {
    assert!(!farcall::context().cancelled().wait(Duration::from_millis(1)));
    let mut cancelled = pin!(farcall::context().cancelled());
    block_on(poll_fn(|context| {
        assert!(cancelled.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
}
