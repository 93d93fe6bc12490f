//! Tests of calls that are sent again: procedures that must not run twice run once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcall_onc::rpcbind::Mapper;
use farcall_onc::server::Retention;
use farcall_onc::wire::auth::{OpaqueAuth, Sys};

use crate::calc::*;

#[test]
fn a_datagram_that_comes_twice_runs_once() {
    let (server, calculator) = serve();
    let udp = Udp::to(server.udp().unwrap());
    let first = udp.ask(&call(1, 3, &[]));
    assert_eq!(udp.ask(&call(1, 3, &[])), first);
    assert_eq!(success(&udp.ask(&call(2, 3, &[]))).1, words(&[0, 2]));
    assert_eq!(udp.ask(&call(1, 3, &[])), first);
    // Calls with the same identifier from another client, and from the same client with another credential.
    assert_eq!(success(&Udp::to(server.udp().unwrap()).ask(&call(1, 3, &[]))).1, words(&[0, 3]));
    let mut body = Vec::new();
    Sys::new(1, b"ebbets", 1000, 100, &[]).unwrap().write(&mut body);
    let other = call_as(1, 3, OpaqueAuth::new(1, &body).unwrap(), &[]);
    assert_eq!(success(&udp.ask(&other)).1, words(&[0, 4]));
    assert_eq!(calculator.counted.load(Ordering::SeqCst), 4);
}

#[test]
fn a_datagram_that_comes_while_its_call_runs_is_dropped() {
    let (server, calculator) = serve();
    let udp = Udp::to(server.udp().unwrap());
    udp.send(&call(1, 4, &[]));
    calculator.await_begun(1);
    udp.is_ignored(&call(1, 4, &[]));
    calculator.open();
    assert_eq!(success(&udp.receive()), (1, words(&[7])));
    assert_eq!(success(&udp.ask(&call(1, 4, &[]))), (1, words(&[7])));
    assert_eq!(calculator.begun(), 1);
    udp.has_heard_all(server, calculator);
}

#[test]
fn an_idempotent_procedure_runs_again() {
    let (server, calculator) = serve();
    calculator.open();
    let udp = Udp::to(server.udp().unwrap());
    let ask = || success(&udp.ask(&call(1, 13, &[])));
    assert_eq!((ask(), ask()), ((1, words(&[7])), (1, words(&[7]))));
    calculator.await_begun(2);
}

#[test]
fn a_call_sent_again_over_another_connection_runs_once() {
    let (server, calculator) = serve();
    let mut first = tcp(&server);
    first.send(&call(1, 4, &[]));
    calculator.await_begun(1);
    // The connection breaks before the reply.
    drop(first);
    let mut second = tcp(&server);
    second.send(&call(1, 4, &[]));
    assert_eq!(success(&second.ask(&call(2, 1, &[1, 1]))).0, 2);
    calculator.open();
    // The server drops the repetition while the call runs. So the client sends it until it is answered.
    let mut third = tcp(&server);
    third.0.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut mark = [0; 4];
    loop {
        third.send(&call(1, 4, &[]));
        if std::io::Read::read_exact(&mut third.0, &mut mark).is_ok() {
            break;
        }
    }
    assert_eq!(calculator.counted.load(Ordering::SeqCst), 0);
    calculator.await_begun(1);
}

#[test]
fn who_closed_in_order_and_comes_back_with_the_same_identifier_is_somebody_else() {
    let (server, _) = serve();
    for runs in 1..4 {
        // Some clients begin with the same identifier each time they start.
        let mut tcp = tcp(&server);
        assert_eq!(success(&tcp.ask(&call(1, 3, &[]))).1, words(&[0, runs]));
        tcp.0.shutdown(std::net::Shutdown::Write).unwrap();
        tcp.is_closed();
    }
}

#[test]
fn a_call_sent_again_over_its_own_connection_runs_once() {
    let (server, calculator) = serve();
    let mut tcp = tcp(&server);
    let first = tcp.ask(&call(1, 3, &[]));
    assert_eq!(tcp.ask(&call(1, 3, &[])), first);
    assert_eq!(success(&tcp.ask(&call(2, 3, &[]))).1, words(&[0, 2]));
    tcp.send(&call(3, 4, &[]));
    calculator.await_begun(1);
    tcp.is_ignored(&call(3, 4, &[]));
    calculator.open();
    assert_eq!(success(&tcp.receive()), (3, words(&[7])));
}

#[test]
fn two_processes_of_a_host_that_call_alike_are_two() {
    let (server, calculator) = serve();
    let (mut first, mut second) = (tcp(&server), tcp(&server));
    assert_eq!(success(&first.ask(&call(1, 3, &[]))).1, words(&[0, 1]));
    assert_eq!(success(&second.ask(&call(1, 3, &[]))).1, words(&[0, 2]));
    // Each client gets its own reply again.
    assert_eq!(success(&first.ask(&call(1, 3, &[]))).1, words(&[0, 1]));
    assert_eq!(success(&second.ask(&call(1, 3, &[]))).1, words(&[0, 2]));
    // They count as two clients also while the first client's call runs.
    first.send(&call(2, 4, &[]));
    calculator.await_begun(1);
    second.send(&call(2, 4, &[]));
    calculator.await_begun(2);
    calculator.open();
    assert_eq!(success(&first.receive()), success(&second.receive()));
}

#[test]
fn a_call_sent_again_after_a_reset_is_answered_and_does_not_run() {
    let (server, calculator) = serve();
    for runs in 1..20 {
        let mut first = tcp(&server);
        first.send(&call(runs, 3, &[]));
        calculator.await_counted(runs.into());
        // The client closes with its reply unread, which resets the server's end.
        first.0.peek(&mut [0]).unwrap();
        drop(first);
        // Events of two connections have no order between them. So the test waits until the server has let go
        // of the first connection, which shows that the reset has arrived.
        // `server/streams/connection/tests.rs` tests what the server does before that.
        while server.connections() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(success(&tcp(&server).ask(&call(runs, 3, &[]))).1, words(&[0, runs]));
    }
}

#[test]
fn what_said_nothing_says_nothing_when_it_is_sent_again() {
    let calculator = Arc::new(Calculator::default());
    let (server, _) = serve_with(|builder| builder.program_one_way::<dyn Calc>(calculator.clone(), &[3]));
    let (udp, mut tcp) = (Udp::to(server.udp().unwrap()), tcp(&server));
    for procedure in [14, 3] {
        for _ in 0..3 {
            udp.is_ignored(&call(1, procedure, &[]));
            tcp.is_ignored(&call(1, procedure, &[]));
        }
    }
    udp.has_heard_all(server, calculator);
}

#[test]
fn what_failed_fails_alike_when_it_is_sent_again() {
    let (server, _) = serve();
    let udp = Udp::to(server.udp().unwrap());
    for message in [call(1, 5, &[]), call(2, 9, &[]), call(3, 6, &[9])] {
        assert_eq!(udp.ask(&message), udp.ask(&message));
    }
}

#[test]
fn a_call_passed_on_is_counted_each_time_it_comes() {
    let (server, calculator) = serve_with(|builder| builder.mapper(&Mapper::default().forwarding()));
    let udp = Udp::to(server.udp().unwrap());
    let call_it = |program: u32| {
        let mut message = call_as(1, 5, OpaqueAuth::NONE, &words(&[program, 2, 3, 0]));
        message[12..20].copy_from_slice(&words(&[100_000, 2]));
        message
    };
    let port = server.udp().unwrap().port().into();
    for runs in 1..3 {
        assert_eq!(success(&udp.ask(&call_it(PROGRAM))).1, words(&[port, 8, 0, runs]));
    }
    assert_eq!(calculator.counted.load(Ordering::SeqCst), 2);
    // A call that is not forwarded is never answered.
    (0..3).for_each(|_| udp.is_ignored(&call_it(77)));
    udp.has_heard_all(server, calculator);
}

#[test]
fn without_retention_all_that_comes_runs() {
    let (server, _) = serve_with(|builder| builder.retention(None));
    let udp = Udp::to(server.udp().unwrap());
    (1..4).for_each(|runs| assert_eq!(success(&udp.ask(&call(1, 3, &[]))).1, words(&[0, runs])));
    let (server, _) =
        serve_with(|builder| builder.retention(Some(Retention { bytes: 0, ..Retention::default() })));
    let udp = Udp::to(server.udp().unwrap());
    (1..4).for_each(|runs| assert_eq!(success(&udp.ask(&call(1, 3, &[]))).1, words(&[0, runs])));
}
