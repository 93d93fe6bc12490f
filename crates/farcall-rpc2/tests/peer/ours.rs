//! Our client and our server with each other.

use std::future::Future;
use std::net::UdpSocket;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use farcall::{CallFailed, Error, Group, Kind, Ran};
use farcall_core::serving::{self, WorkerPool};
use farcall_rpc2::Builder;
use farcall_rpc2::packet::{self, Header};

use crate::common::{Fate, GATE, Here, Network, SUBSYSTEM, address, import, serve};
use crate::covering::*;

#[track_caller]
fn failed<T: std::fmt::Debug, E: std::fmt::Debug>(result: farcall::Result<T, E>) -> (Kind, Ran) {
    match result.unwrap_err() {
        Error::CallFailed(why) => (why.kind(), why.ran()),
        Error::Declared(error) => panic!("{error:?}"),
    }
}

#[test]
fn results_and_failures_come_back() {
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server);
    let builder = Builder::default().identity("guest");
    let covering = builder.import::<dyn Covering>(&address(server.address())).unwrap();
    assert_eq!(covering.double(21).unwrap(), 42);
    let failure = covering.nothing().unwrap_err();
    assert_eq!(failure.declared(), Some(&Rpc2Failure { return_code: 1 }));
    assert_eq!(*here.welcomed.lock().unwrap(), [b"guest"]);
    let most = Rpc2BoundedBs { max_seq_len: 2, seq_body: Vec::new() };
    let out = covering.all_out(&most).unwrap();
    assert_eq!((out.bounded.seq_body.as_slice(), out.heavy, out.small), (&b"ab"[..], 0.75, 77));
    let both = covering.all_both(1, 2, 3, 0.5, &most, &[4; 8], Colour::Blue, &Range::default()).unwrap_err();
    let both = both.declared().cloned().unwrap();
    assert_eq!((both.return_code, both.signed, both.secret, both.paint), (5, 2, [4; 8], Colour::Blue));
    let ranges = [Range { low: 1, ..Range::default() }; 3];
    let arrays = covering.arrays(&ranges, 2, 3, &ranges, 5).unwrap();
    assert_eq!((arrays.taken.len(), arrays.changed[2].low), (2, 6));
    assert_eq!(server.calls(), 5);
}

#[test]
fn what_cannot_be_carried_is_refused_before_it_is_sent() {
    let server = serve(Arc::default(), |server| server);
    let covering = import(server.address());
    let large = "x".repeat(packet::MAX_BODY_BYTES);
    assert_eq!(failed(covering.names(&large.as_str().into(), &"".into())), (Kind::TooLarge, Ran::No));
    assert_eq!(
        failed(covering.store(&"".into(), farcall::Bulk::from_bytes(vec![1]))),
        (Kind::Local, Ran::No)
    );
    assert_eq!(failed(covering.welcome(0, 0, 0, 0, &[])), (Kind::Local, Ran::No));
    assert_eq!(server.calls(), 0);
    let ranges = vec![Range::default(); 150];
    assert_eq!(covering.arrays(&ranges, 150, 0, &[], 0).unwrap().taken.len(), 150);
    assert_eq!(failed(covering.arrays(&ranges, 150, 0, &ranges, 0)), (Kind::TooLarge, Ran::No));
    // A panic is a failure of the server's.
    let most = CallCountEntry { countent: i32::MAX, ..CallCountEntry::default() };
    let failure = covering.count(&most).unwrap_err();
    assert_eq!(failure.declared().unwrap().return_code, packet::FAIL);
    assert_eq!(covering.double(1).unwrap(), 2);
}

#[test]
fn a_refused_bind_and_a_wrong_address_say_so() {
    let server = serve(Arc::default(), |server| server);
    let other = format!("rpc2://{}/72", server.address());
    let covering = farcall_rpc2::import::<dyn Covering>(&other).unwrap();
    assert_eq!(failed(covering.double(1)), (Kind::NotExported, Ran::No));
    for wrong in ["tcp://127.0.0.1:1/2", "rpc2://127.0.0.1:1", "rpc2://127.0.0.1/2", "rpc2://127.0.0.1:x/2"] {
        let why = farcall_rpc2::import::<dyn Covering>(wrong).unwrap_err();
        assert_eq!(why.kind(), Kind::NoSuchName, "{wrong}");
    }
}

#[test]
fn a_silent_server_is_unreachable_and_a_deadline_ends_a_call() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = address(nobody.local_addr().unwrap());
    let patience = Duration::from_millis(300);
    let covering = Builder::default().patience(patience).import::<dyn Covering>(&at).unwrap();
    assert_eq!(failed(covering.double(1)), (Kind::Unreachable, Ran::No));
    let covering = farcall_rpc2::import::<dyn Covering>(&at).unwrap().within(patience);
    assert_eq!(failed(covering.double(1)), (Kind::Deadline, Ran::No));
    assert_eq!(failed(covering.start().double(1).wait()), (Kind::Deadline, Ran::No));
    // A call that is dropped does not hold up those after it for ever.
    drop(covering.start().double(1));
}

#[test]
fn calls_are_executed_once_though_packets_are_lost_and_doubled() {
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server);
    let mut dice = fastrand::Rng::with_seed(1990);
    let judge = move |_: &[u8], _| match dice.u8(0..10) {
        0 => Fate::Lost,
        1 => Fate::Doubled,
        _ => Fate::Arrives,
    };
    let network = Network::new(server.address(), Box::new(judge));
    let covering = import(network.address);
    for number in 1..=500 {
        assert_eq!(covering.double(number).unwrap(), 2 * number);
    }
    assert_eq!((here.doubled.load(SeqCst), server.calls()), (500, 500));
    assert_eq!(here.welcomed.lock().unwrap().len(), 1);
}

#[test]
fn a_server_that_is_executing_says_busy() {
    let here = Arc::new(Here::default());
    let ((begun, begins), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    *here.gate.lock().unwrap() = Some((begun, goes_on));
    let server = serve(here.clone(), |server| server.workers(1));
    let (busy, is_busy) = mpsc::channel();
    let judge = move |bytes: &[u8], _| {
        if Header::parse(bytes).is_some_and(|(header, _)| header.opcode == packet::BUSY) {
            let _ = busy.send(());
        }
        Fate::Arrives
    };
    let network = Network::new(server.address(), Box::new(judge));
    // Without BUSY the client would give up.
    let builder = Builder::default().patience(Duration::from_millis(900));
    let covering = builder.import::<dyn Covering>(&address(network.address)).unwrap();
    let pending = covering.start().double(GATE);
    begins.recv().unwrap();
    (0..3).for_each(|_| is_busy.recv().unwrap());
    go_on.send(()).unwrap();
    assert_eq!(pending.wait().unwrap(), 2 * GATE);
    assert_eq!(here.doubled.load(SeqCst), 1);
}

#[test]
fn a_forgotten_connection_is_made_again() {
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server.connections(1));
    let (first, second) = (import(server.address()), import(server.address()));
    assert_eq!(first.double(1).unwrap(), 2);
    assert_eq!(second.double(1).unwrap(), 2);
    // A copy of the request could have run, and the connection been forgotten before this copy came.
    assert_eq!(failed(first.double(1)), (Kind::Unreachable, Ran::Maybe));
    assert_eq!(first.double(1).unwrap(), 2);
    assert_eq!((here.doubled.load(SeqCst), here.welcomed.lock().unwrap().len()), (3, 3));
}

#[test]
fn one_call_goes_to_many_servers() {
    let servers: Vec<_> = (0..20).map(|_| serve(Arc::default(), |server| server.workers(1))).collect();
    let members = servers.iter().map(|server| (server.address().to_string(), import(server.address())));
    let group = Group::of(members);
    for number in 1..20 {
        let all = group.multi().double(number).quorum(20).unwrap();
        assert!(all.results().count() == 20 && all.results().all(|(_, twice)| *twice == 2 * number));
    }
}

#[test]
fn started_calls_are_made_in_their_order() {
    let server = serve(Arc::default(), |server| server);
    let covering = import(server.address());
    let pending: Vec<_> = (0..100).map(|number| covering.start().double(number)).collect();
    let twice: Vec<u32> = pending.into_iter().map(|pending| pending.wait().unwrap()).collect();
    assert_eq!(twice, (0..100).map(|number| 2 * number).collect::<Vec<u32>>());
}

#[test]
fn codes_that_mean_another_thing_to_clients_go_out_as_failures() {
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server);
    let covering = import(server.address());
    for code in [0, packet::INVALID_OPCODE] {
        *here.fails_with.lock().unwrap() = Some(code);
        assert_eq!(covering.double(1).unwrap_err().declared().unwrap().return_code, packet::FAIL, "{code}");
    }
    *here.fails_with.lock().unwrap() = Some(7);
    assert_eq!(covering.double(1).unwrap_err().declared().unwrap().return_code, 7);
}

#[test]
fn an_invalid_opcode_did_not_run_only_if_results_are_missing() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut packet = [0; 1 << 13];
        // The bind, and three calls.
        for body in [&[0; packet::INIT2_BYTES][..], &[], &[0; 4], &[]] {
            let (count, from) = server.recv_from(&mut packet).unwrap();
            let (request, _) = Header::parse(&packet[..count]).unwrap();
            let is_bind = request.opcode == packet::INIT1_OPEN;
            let reply = Header {
                remote: request.local,
                local: 9,
                sequence: if is_bind { 0 } else { request.sequence + 1 },
                opcode: if is_bind { packet::INIT2 } else { packet::REPLY },
                return_code: if is_bind { 0 } else { packet::INVALID_OPCODE },
                ..Header::default()
            };
            let mut out = Vec::new();
            reply.write(body, &mut out);
            server.send_to(&out, from).unwrap();
        }
    });
    let covering = import(at);
    assert_eq!(failed(covering.double(1)), (Kind::NoSuchProcedure, Ran::No));
    assert_eq!(failed(covering.double(1)), (Kind::NoSuchProcedure, Ran::Maybe));
    assert_eq!(failed(covering.nothing()), (Kind::NoSuchProcedure, Ran::Maybe), "it has no results");
    thread.join().unwrap();
}

#[test]
fn a_call_whose_deadline_has_passed_is_not_sent() {
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server);
    let covering = import(server.address());
    assert_eq!(covering.double(1).unwrap(), 2);
    assert_eq!(failed(covering.within(Duration::ZERO).double(1)), (Kind::Deadline, Ran::No));
    assert_eq!(covering.double(2).unwrap(), 4);
    assert_eq!(here.doubled.load(SeqCst), 2);
}

struct Woken(Mutex<mpsc::Sender<()>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

/// Polls a future whenever it is woken, until it ends.
fn block_on<F: Future>(future: F) -> F::Output {
    let (wake, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Woken(Mutex::new(wake))));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        woken.recv().unwrap();
    }
}

/// A server of which one call waits at the gate.
fn serve_at_gate(here: &Arc<Here>) -> (farcall_rpc2::Server, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((begun, begins), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    *here.gate.lock().unwrap() = Some((begun, goes_on));
    (serve(here.clone(), |server| server.workers(1)), begins, go_on)
}

#[test]
fn a_polled_call_ends_at_its_deadline_while_an_earlier_one_runs() {
    let here = Arc::new(Here::default());
    let (server, begins, go_on) = serve_at_gate(&here);
    let covering = import(server.address());
    let earlier = covering.start().double(GATE);
    begins.recv().unwrap();
    let behind = covering.within(Duration::from_millis(200)).start().double(1);
    assert_eq!(failed(block_on(behind)), (Kind::Deadline, Ran::No));
    go_on.send(()).unwrap();
    assert_eq!(earlier.wait().unwrap(), 2 * GATE);
    assert_eq!(here.doubled.load(SeqCst), 1);
}

#[test]
fn started_calls_to_a_hung_server_keep_no_more_than_the_budget_leaves_free() {
    const LEN: usize = 4_000;
    let hung = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = serve(Arc::default(), |server| server);
    let builder = Builder::default().argument_bytes(16 * (LEN + 100));
    let to_hung = builder.import::<dyn Covering>(&address(hung.local_addr().unwrap())).unwrap();
    let text = "x".repeat(LEN);
    let mut waiting: Vec<_> =
        (0..100).map(|_| to_hung.start().names(&text.as_str().into(), &"".into())).collect();
    let well = builder.import::<dyn Covering>(&address(server.address())).unwrap();
    assert!(well.start().names(&text.as_str().into(), &"".into()).wait().is_ok());
    for one in &mut waiting {
        one.cancel();
    }
    let ends = waiting.into_iter().map(|one| failed(one.wait()));
    let refused = ends.filter(|end| *end == (Kind::Overloaded, Ran::No)).count();
    assert_eq!(refused, 100 - 8, "the others have half of the budget");
}

#[test]
fn a_server_that_stops_executes_no_waiting_request() {
    let (alive, ended) = mpsc::channel();
    let here = Arc::new(Here { alive: Mutex::new(Some(alive)), ..Here::default() });
    let (server, begins, go_on) = serve_at_gate(&here);
    let (first, second) = (import(server.address()), {
        let (busy, is_busy) = mpsc::channel();
        let judge = move |bytes: &[u8], _| {
            if Header::parse(bytes).is_some_and(|(header, _)| header.opcode == packet::BUSY) {
                let _ = busy.send(());
            }
            Fate::Arrives
        };
        (Network::new(server.address(), Box::new(judge)), is_busy)
    });
    let ((network, is_busy), doubled) = (second, here.doubled.clone());
    let second = import(network.address);
    assert_eq!(second.double(1).unwrap(), 2);
    let at_gate = first.start().double(GATE);
    begins.recv().unwrap();
    let waiting = second.start().double(2);
    is_busy.recv().unwrap();
    drop((server, here));
    go_on.send(()).unwrap();
    assert!(ended.recv().is_err());
    assert_eq!(doubled.load(SeqCst), 2);
    drop((at_gate, waiting));
}

#[test]
fn a_drain_finishes_the_calls_that_have_begun() {
    let here = Arc::new(Here::default());
    let (server, begins, go_on) = serve_at_gate(&here);
    let pending = import(server.address()).start().double(GATE);
    begins.recv().unwrap();
    let drain = std::thread::spawn(move || server.drain(Duration::from_secs(20)));
    go_on.send(()).unwrap();
    assert_eq!(pending.wait().unwrap(), 2 * GATE);
    assert!(drain.join().unwrap());
}

#[test]
fn a_drain_says_that_a_call_has_not_ended() {
    let here = Arc::new(Here::default());
    let (server, begins, go_on) = serve_at_gate(&here);
    let pending = import(server.address()).start().double(GATE);
    begins.recv().unwrap();
    assert!(!server.drain(Duration::ZERO));
    go_on.send(()).unwrap();
    drop(pending);
}

/// A pool whose threads may wait, or may not.
#[derive(Default)]
struct Pool {
    refuses: bool,
    waiting: AtomicUsize,
}

impl WorkerPool for Pool {
    fn may_wait(&self) -> Result<(), CallFailed> {
        if self.refuses { Err(CallFailed::new(Kind::Overloaded, Ran::No)) } else { Ok(()) }
    }

    fn begin_wait(&self, _: bool) -> Result<bool, CallFailed> {
        self.may_wait()?;
        self.waiting.fetch_add(1, SeqCst);
        Ok(true)
    }

    fn end_wait(&self) {
        self.waiting.fetch_sub(1, SeqCst);
    }
}

#[test]
fn a_thread_of_a_pool_waits_for_the_whole_call() {
    let here = Arc::new(Here::default());
    let (server, begins, go_on) = serve_at_gate(&here);
    let (covering, pool) = (import(server.address()), Arc::new(Pool::default()));
    let member = pool.clone();
    let thread = std::thread::spawn(move || {
        serving::serve_elsewhere(Some(member));
        covering.double(GATE).unwrap()
    });
    begins.recv().unwrap();
    assert_eq!(pool.waiting.load(SeqCst), 1);
    go_on.send(()).unwrap();
    assert_eq!((thread.join().unwrap(), pool.waiting.load(SeqCst)), (2 * GATE, 0));
}

#[test]
fn a_refused_wait_does_not_say_that_a_running_call_did_not_run() {
    let here = Arc::new(Here::default());
    let (server, begins, go_on) = serve_at_gate(&here);
    let covering = import(server.address());
    let running = covering.start().double(GATE);
    begins.recv().unwrap();
    let thread = std::thread::spawn(move || {
        serving::serve_elsewhere(Some(Arc::new(Pool { refuses: true, ..Pool::default() })));
        assert_eq!(failed(running.wait()), (Kind::Overloaded, Ran::Maybe));
        assert_eq!(failed(covering.double(1)), (Kind::Overloaded, Ran::No));
    });
    thread.join().unwrap();
    go_on.send(()).unwrap();
}

#[test]
fn binds_of_one_host_end_its_own_connections_first() {
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server.connections(3));
    let covering = import(server.address());
    assert_eq!(covering.double(1).unwrap(), 2);
    let other = UdpSocket::bind("127.0.0.2:0").unwrap();
    let mut answer = [0; 1 << 13];
    for local in 1..=5 {
        let header = Header { local, opcode: packet::INIT1_OPEN, subsystem: SUBSYSTEM, ..Header::default() };
        let mut bind = Vec::new();
        header.write(&packet::bind_body(b"other"), &mut bind);
        other.send_to(&bind, server.address()).unwrap();
        other.recv(&mut answer).unwrap();
    }
    assert_eq!(covering.double(1).unwrap(), 2);
    assert_eq!(here.welcomed.lock().unwrap().len(), 6);
}

#[test]
fn binds_that_no_request_follows_end_no_connection_of_a_client_that_calls() {
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server.connections(8));
    let honest = import(server.address());
    assert_eq!(honest.double(1).unwrap(), 2);
    let mut answer = [0; 1 << 13];
    for host in 2..66 {
        // Each bind comes from another host, as those do that are forged.
        let other = UdpSocket::bind(format!("127.0.0.{host}:0")).unwrap();
        let header =
            Header { local: 1, opcode: packet::INIT1_OPEN, subsystem: SUBSYSTEM, ..Header::default() };
        let mut bind = Vec::new();
        header.write(&packet::bind_body(b"other"), &mut bind);
        other.send_to(&bind, server.address()).unwrap();
        other.recv(&mut answer).unwrap();
    }
    assert_eq!(honest.double(1).unwrap(), 2);
    assert_eq!(here.welcomed.lock().unwrap().len(), 65, "the honest client has bound once");
    let newcomer = import(server.address());
    assert_eq!(newcomer.double(2).unwrap(), 4);
}

#[test]
fn a_request_far_ahead_of_its_sequence_gets_a_nak() {
    let server = serve(Arc::default(), |server| server);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(server.address()).unwrap();
    let mut answer = [0; 1 << 13];
    let mut send = |header: Header, body: &[u8], is_answered: bool| {
        let mut out = Vec::new();
        header.write(body, &mut out);
        client.send(&out).unwrap();
        let count = if is_answered { client.recv(&mut answer).unwrap() } else { 0 };
        Header::parse(&answer[..count]).map(|(header, _)| header)
    };
    let bind = Header { local: 7, opcode: packet::INIT1_OPEN, subsystem: SUBSYSTEM, ..Header::default() };
    let init2 = send(bind, &packet::bind_body(b"me"), true).unwrap();
    let request =
        |sequence| Header { remote: init2.local, local: 7, opcode: 1, sequence, ..Header::default() };
    // The request after the next one is ignored, and so are numbers of replies.
    send(request(2), &[], false);
    send(request(5), &[], false);
    let nak = send(request(4), &[], true).unwrap();
    assert_eq!((nak.opcode, nak.remote), (packet::NAK, 7));
    assert_eq!(send(request(0), &[], true).unwrap().opcode, packet::REPLY);
}
