//! Tests that the end of a call means the same whatever carries the call: within one process, through shared
//! memory, over UDP, and by ONC RPC, Courier and RPC2.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use farcall::names::Memory;
use farcall::{CallFailed, Export, Kind, Pending, Ran, Runtime, stub};

#[farcall::interface(async, program = 900, version = 1)]
pub trait Gate {
    /// Waits until the test is over.
    #[procedure(1)]
    #[blocking]
    fn hang(&self, text: &str) -> farcall::Result<u32>;
}

/// Waits until the test is over, and tells when a call begins.
struct Server {
    begun: Mutex<Sender<()>>,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate for Server {
    fn hang(&self, _: &str) -> farcall::Result<u32> {
        let _ = self.begun.lock().unwrap().send(());
        drop(self.opened.wait_while(self.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        Ok(7)
    }
}

struct Futures(Arc<Server>);

impl GateAsync for Futures {
    async fn hang(&self, _: &str) -> farcall::Result<u32> {
        let _ = self.0.begun.lock().unwrap().send(());
        pending().await
    }
}

/// Makes a call in one way.
type HowToCall = fn(GateClient) -> farcall::Result<u32>;

/// A server that hangs, and a stub that calls it in one way.
struct Carrier {
    name: &'static str,
    gate: GateClient,
    begun: Receiver<()>,
    /// How many calls may be started before one is refused.
    most: usize,
    server: Arc<Server>,
    _kept: Box<dyn Send>,
}

/// Whatever happens, the calls that hang end with the test.
impl Drop for Carrier {
    fn drop(&mut self) {
        *self.server.is_open.lock().unwrap() = true;
        self.server.opened.notify_all();
    }
}

/// Arguments of more than 2 KiB are counted in the budget of what unfinished calls keep.
const LONG: usize = 2_400;
/// The budget: so small that one call alone may keep its arguments.
const BUDGET: usize = 1;

/// A way to call the server: the stub, and what it needs.
type Called = (GateClient, Box<dyn Send>);

fn in_process(server: &Arc<Server>) -> Called {
    (stub::local::<dyn Gate>(server.clone()), Box::new(()))
}

fn in_process_as_futures(server: &Arc<Server>) -> Called {
    (stub::local_async(GateAsyncServer::new(Futures(server.clone()))), Box::new(()))
}

fn by_farcall(server: &Arc<Server>, shared_memory: bool) -> Called {
    let runtime = || {
        let builder = Runtime::builder().registry(Memory::new()).address(([127, 0, 0, 1], 0).into());
        builder.argument_bytes(BUDGET).shared_memory(shared_memory).build().unwrap()
    };
    let (there, here) = (runtime(), runtime());
    let export: Export = there.export::<dyn Gate>("Gate", server.clone()).unwrap();
    (here.import::<dyn Gate>(&export.url()).unwrap(), Box::new((export, there, here)))
}

fn by_udp(server: &Arc<Server>) -> Called {
    by_farcall(server, false)
}

fn by_shared_memory(server: &Arc<Server>) -> Called {
    by_farcall(server, true)
}

fn by_onc(server: &Arc<Server>, transport: &str) -> Called {
    let builder = farcall_onc::Server::builder().program::<dyn Gate>(server.clone());
    let running = builder.address(([127, 0, 0, 1], 0).into()).start().unwrap();
    let address = if transport == "tcp" { running.tcp() } else { running.udp() };
    let client = farcall_onc::Client::builder().argument_bytes(BUDGET);
    let client = client.connect(&format!("{transport}://{}", address.unwrap())).unwrap();
    (client.bind::<dyn Gate>(), Box::new(running))
}

fn by_onc_over_tcp(server: &Arc<Server>) -> Called {
    by_onc(server, "tcp")
}

fn by_onc_over_udp(server: &Arc<Server>) -> Called {
    by_onc(server, "udp")
}

fn by_courier(server: &Arc<Server>) -> Called {
    let builder = farcall_courier::Server::builder().program::<dyn Gate>(server.clone());
    let running = builder.tcp(([127, 0, 0, 1], 0).into()).start().unwrap();
    let client = farcall_courier::Builder::default().argument_bytes(BUDGET);
    let gate = client.import::<dyn Gate>(&format!("tcp://{}", running.addresses()[0])).unwrap();
    (gate, Box::new(running))
}

fn by_rpc2(server: &Arc<Server>) -> Called {
    let builder = farcall_rpc2::Server::builder().subsystem::<dyn Gate>(7, server.clone());
    let running = builder.udp(([127, 0, 0, 1], 0).into()).start().unwrap();
    let client = farcall_rpc2::Builder::default().argument_bytes(BUDGET);
    (client.import::<dyn Gate>(&format!("rpc2://{}/7", running.address())).unwrap(), Box::new(running))
}

/// How many started calls a server of this process queues, and runs at the same time.
const MOST_NEAR: usize = 65_536 + 64;
/// A server of futures has no queue: the task that awaits a call executes it. A client of ONC RPC keeps no
/// arguments once the system has taken them for the connection.
const ANY: usize = 0;

/// Runs a test with each carrier.
fn everywhere(test: impl Fn(&Carrier)) {
    type Make = fn(&Arc<Server>) -> Called;
    let carriers: [(&str, usize, Make); 8] = [
        ("in process", MOST_NEAR, in_process),
        ("in process, futures", ANY, in_process_as_futures),
        // The second call goes by UDP, where it is the only one.
        ("shared memory", 2, by_shared_memory),
        ("UDP", 1, by_udp),
        ("ONC RPC over TCP", ANY, by_onc_over_tcp),
        ("ONC RPC over UDP", 1, by_onc_over_udp),
        ("Courier", 1, by_courier),
        ("RPC2", 1, by_rpc2),
    ];
    for (name, most, make) in carriers {
        let (send, begun) = channel();
        let (is_open, opened) = Default::default();
        let server = Arc::new(Server { begun: Mutex::new(send), is_open, opened });
        let (gate, kept) = make(&server);
        test(&Carrier { name, gate, begun, most, server, _kept: kept });
    }
}

/// How long a test waits for an event before it fails. No event takes nearly as long.
const GUARD: Duration = Duration::from_secs(60);

impl Carrier {
    /// Makes a call in a thread. Returns how it failed.
    fn end_of(
        &self,
        how: &str,
        call: impl FnOnce(GateClient) -> farcall::Result<u32> + Send + 'static,
    ) -> CallFailed {
        let (send, ended) = channel();
        let gate = self.gate.clone();
        thread::spawn(move || drop(send.send(call(gate))));
        let outcome = ended.recv_timeout(GUARD);
        let outcome = outcome.unwrap_or_else(|_| panic!("{}, {how}: the call does not end", self.name));
        CallFailed::from(outcome.expect_err("the procedure returns nothing"))
    }

    /// Makes a call in a thread, and asserts that it fails in this way. It may have run if it began.
    fn fails(
        &self,
        how: &str,
        kind: Kind,
        call: impl FnOnce(GateClient) -> farcall::Result<u32> + Send + 'static,
    ) {
        let why = self.end_of(how, call);
        let ran = if self.begun.try_recv().is_ok() { Ran::Maybe } else { why.ran() };
        assert_eq!((why.kind(), why.ran()), (kind, ran), "{}, {how}: {why}", self.name);
    }

    /// Waits until a call has begun.
    fn begins(&self) {
        assert_eq!(self.begun.recv_timeout(GUARD), Ok(()), "{}: no call begins", self.name);
    }
}

#[test]
fn a_call_ends_at_its_deadline_on_every_carrier() {
    const WITHIN: Duration = Duration::from_millis(300);
    everywhere(|carrier| {
        carrier.fails("blocking", Kind::Deadline, |gate| gate.within(WITHIN).hang(""));
        carrier.fails("waited for", Kind::Deadline, |gate| gate.within(WITHIN).start().hang("").wait());
        carrier.fails("awaited", Kind::Deadline, |gate| block_on(gate.within(WITHIN).start().hang("")));
        carrier.fails("in a group", Kind::Deadline, |gate| {
            let group = farcall::Group::of([("one", gate.within(WITHIN))]);
            let (_, outcome) = group.multi().hang("").all().into_iter().next().expect("one member");
            match outcome {
                farcall::multi::Outcome::Result(result) => Ok(result),
                farcall::multi::Outcome::Failed(why) => Err(why.into()),
                outcome => panic!("{outcome:?}"),
            }
        });
    });
}

#[test]
fn a_call_whose_time_is_over_runs_on_no_carrier() {
    everywhere(|carrier| {
        let none = Duration::ZERO;
        let late: [(&str, HowToCall); 3] = [
            ("blocking", |gate| gate.hang("")),
            ("waited for", |gate| gate.start().hang("").wait()),
            ("awaited", |gate| block_on(gate.start().hang(""))),
        ];
        for (how, call) in late {
            let why =
                CallFailed::from(call(carrier.gate.clone().within(none)).expect_err("the time is over"));
            assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{}, {how}: {why}", carrier.name);
        }
        assert!(carrier.begun.try_recv().is_err(), "{}: a call ran", carrier.name);
    });
}

#[test]
fn a_cancelled_call_ends_as_cancelled_on_every_carrier() {
    everywhere(|carrier| {
        let ends: [fn(Pending<u32>) -> farcall::Result<u32>; 2] = [|call| call.wait(), |call| block_on(call)];
        for end in ends {
            let mut call = carrier.gate.start().hang("");
            poll_once(&mut call);
            carrier.begins();
            call.cancel();
            carrier.fails("cancelled", Kind::Cancelled, move |_| end(call));
        }
    });
}

#[test]
fn a_call_for_which_there_is_no_room_does_not_run_and_is_overloaded_on_every_carrier() {
    everywhere(|carrier| {
        if carrier.most == ANY {
            return;
        }
        let long = "x".repeat(LONG);
        let started: Vec<Pending<u32>> =
            (0..carrier.most).map(|_| carrier.gate.start().hang(&long)).collect();
        carrier.begins();
        let refused = carrier.end_of("refused", move |gate| gate.start().hang(&long).wait());
        assert_eq!(
            (refused.kind(), refused.ran()),
            (Kind::Overloaded, Ran::No),
            "{}: {refused}",
            carrier.name
        );
        drop(started);
    });
}

/// Polls a call once: a future of this process makes progress only while it is polled.
fn poll_once(call: &mut Pending<u32>) {
    assert!(pin!(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Runs a future on this thread, which sleeps until the future is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
