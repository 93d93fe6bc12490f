//! A process that has taken a server's name for shared memory does not answer for that server.

use crate::common;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::common::builder;
use crate::common::meeting::accept;
use crate::echo::{Echo, Honest};
use farcall::{Export, Kind, Ran, Runtime};
use farcall_shm::{CallMemory, Listener, MAX_HELLO_BYTES, Received, RequestCursor, Server};

/// The test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);

/// Returns a server whose name another process has taken before it, and the listener of that process.
fn server() -> (Runtime, Export, Listener) {
    // The port is free again when the socket is dropped.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listener = Listener::bind(address).unwrap();
    drop(socket);
    let runtime = builder().shared_memory(true).address(address).build().unwrap();
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    (runtime, export, listener)
}

/// Meets one caller like a server that has everything but the incarnation's secret. Returns how many calls it
/// gets.
fn answer(listener: &Listener, answer: impl FnOnce(&[u8]) -> Vec<u8>) -> usize {
    let wire = accept(listener);
    let mut hello = [0; MAX_HELLO_BYTES];
    let (len, arguments) = wire.receive_file(&mut hello).expect("no rings");
    let (page, file) = CallMemory::create(&arguments).unwrap();
    wire.send(&answer(&hello[..len]), Some(file.as_fd()));
    let (server, mut cursor) = (Server::new(Arc::new(page)), RequestCursor::new());
    // The caller leaves at once, or sends its call.
    let mut calls = 0;
    while wire.receive(&mut [0; 8]) != Received::Gone {
        calls += usize::from(server.take(&mut cursor).is_some());
        std::thread::yield_now();
    }
    calls + std::iter::from_fn(|| server.take(&mut cursor)).count()
}

#[test]
fn who_has_taken_a_servers_name_gets_no_calls() {
    // Another farcall server answers correctly, except for its incarnation.
    let other = builder().build().unwrap().export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let by_other = move |hello: &[u8]| other.answer_meeting(hello).unwrap().to_vec();
    let nothing = |_: &[u8]| Vec::new();
    let guess = |_: &[u8]| vec![0; 16];
    let echo = |hello: &[u8]| hello[..16].to_vec();
    let longer = |hello: &[u8]| hello.to_vec();
    type Answer = Box<dyn FnOnce(&[u8]) -> Vec<u8> + Send>;
    let answers: [Answer; 5] =
        [Box::new(by_other), Box::new(nothing), Box::new(guess), Box::new(echo), Box::new(longer)];
    for wrong in answers {
        let (_runtime, export, listener) = server();
        let impostor = std::thread::spawn(move || answer(&listener, wrong));
        let caller = builder().shared_memory(true).build().unwrap();
        let echo = caller.import::<dyn Echo>(&export.url()).unwrap();
        // By UDP the true server answers.
        assert_eq!(echo.within(LONG).reverse(b"abc").unwrap(), b"cba");
        assert!(caller.stats().links.is_empty(), "it is called through memory");
        assert_eq!(impostor.join().unwrap(), 0, "the impostor has got calls");
        let why = caller.stats().no_shared_memory.expect("there is a reason");
        assert!(why.contains(&export.address().to_string()) && why.contains("another process"), "{why}");
    }
}

#[test]
fn a_name_that_asks_for_memory_says_that_another_process_answers_there() {
    let (_runtime, export, listener) = server();
    let impostor = std::thread::spawn(move || answer(&listener, |_| vec![0; 16]));
    let caller = builder().build().unwrap();
    let failed = caller.import::<dyn Echo>(&export.url().replace("udp:", "shm:")).unwrap_err();
    let why = failed.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No));
    assert!(failed.to_string().contains("another process"), "{failed}");
    assert_eq!(impostor.join().unwrap(), 0);
}

#[test]
fn a_server_that_proves_itself_is_called_through_memory() {
    let export =
        builder().shared_memory(false).build().unwrap().export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let listener = Listener::bind(export.address()).unwrap();
    let caller = builder().shared_memory(true).build().unwrap();
    let url = export.url();
    let server = std::thread::spawn(move || common::meeting::stand_in(&listener, &export));
    let _echo = caller.import::<dyn Echo>(&url).unwrap();
    let _met = server.join().unwrap();
    assert_eq!(caller.stats().links.len(), 1);
    assert_eq!(caller.stats().no_shared_memory, None);
}
