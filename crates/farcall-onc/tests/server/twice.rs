//! Calls that are sent again: what must not run twice does not.

use std::sync::atomic::Ordering;
use std::time::Duration;

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
    // Somebody else's call of the same identifier; the same one's by another credential.
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
    calculator.await_begun(1);
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
    // It breaks before the reply.
    drop(first);
    let mut second = tcp(&server);
    second.send(&call(1, 4, &[]));
    assert_eq!(success(&second.ask(&call(2, 1, &[1, 1]))).0, 2);
    calculator.open();
    // While it ran it was dropped; the client sends once more, until it is answered.
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
        // There are clients that begin with the same identifier each time.
        let mut tcp = tcp(&server);
        assert_eq!(success(&tcp.ask(&call(1, 3, &[]))).1, words(&[0, runs]));
        tcp.0.shutdown(std::net::Shutdown::Write).unwrap();
        tcp.is_closed();
    }
}

#[test]
fn without_retention_all_that_comes_runs() {
    let (server, _) = serve_with(|builder| builder.retention(None));
    let udp = Udp::to(server.udp().unwrap());
    (1..4).for_each(|runs| assert_eq!(success(&udp.ask(&call(1, 3, &[]))).1, words(&[0, runs])));
    let (server, _) = serve_with(|builder| builder.retention(Some(Retention { bytes: 0, ..Retention::default() })));
    let udp = Udp::to(server.udp().unwrap());
    (1..4).for_each(|runs| assert_eq!(success(&udp.ask(&call(1, 3, &[]))).1, words(&[0, runs])));
}
