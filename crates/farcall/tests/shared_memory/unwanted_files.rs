//! A peer passes files that block the process which closes them; it holds up no other peer.
//!
//! Such a file is a TCP connection with unsent data that lingers: closing it waits until the data has left.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::builder;
use crate::common::meeting::{accept, hello, meet, stand_in};
use crate::echo::{Echo, Honest};
use farcall_shm::{Listener, Received, UnixChannel, Wants};

/// The test fails after this time. Nothing here takes that long, and closing a lingering connection takes
/// longer.
const LONG: Duration = Duration::from_secs(60);
const LINGER: Duration = Duration::from_secs(600);

/// Returns a file whose last owner, when it closes the file, waits until the other end is closed.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut file = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    file.set_nonblocking(true).unwrap();
    while file.write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&file, Some(LINGER)).unwrap();
    (file.into(), other)
}

/// Passes a file, and closes it here, unless the other side is gone. The process that closes it last waits,
/// and that may be this process.
fn pass(wire: &Arc<UnixChannel>, bytes: &[u8], file: OwnedFd) {
    let (wire, bytes, (sent, passed)) = (wire.clone(), bytes.to_vec(), mpsc::channel());
    std::thread::spawn(move || {
        let _ = sent.send(wire.send(&bytes, Some(file.as_fd())));
        drop(file);
    });
    let _ = passed.recv();
}

/// Runs `f` in a thread, and fails if it does not end.
fn ends<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(f()));
    ended.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what} does not end"))
}

fn server() -> (farcall::Runtime, farcall::Export, SocketAddr, u64) {
    let runtime = builder().shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let (address, id) = (export.address(), runtime.stats().exports[0].id);
    (runtime, export, address, id)
}

/// Asserts that the server meets another caller and serves it.
fn serves(export: &farcall::Export) {
    let url = export.url().replace("udp:", "shm:");
    let reversed = ends("an honest caller's call", move || {
        let runtime = builder().build().unwrap();
        runtime.import::<dyn Echo>(&url).unwrap().reverse(b"abc").unwrap()
    });
    assert_eq!(reversed, b"cba");
}

#[test]
fn what_comes_instead_of_memory_holds_up_no_other_caller() {
    let (_runtime, export, address, id) = server();
    let mut ends = Vec::new();
    for _ in 0..2 {
        let (file, other) = lingering();
        let wire = Arc::new(UnixChannel::connect(address).unwrap());
        pass(&wire, &hello(id, Wants::Calls), file);
        ends.push((other, wire));
    }
    serves(&export);
}

#[test]
fn what_comes_with_a_probe_holds_up_no_other_caller() {
    let (_runtime, export, address, id) = server();
    let (wire, _page) = meet(address, id);
    let wire = Arc::new(wire);
    let (file, _other) = lingering();
    pass(&wire, b"?", file);
    // The server closes the connection of a peer that passes unwanted files.
    wire.wait(LONG);
    assert_eq!(wire.receive(&mut [0; 8]), Received::Gone);
    serves(&export);
}

#[test]
fn what_is_left_in_a_connection_holds_up_no_other_caller_and_not_the_servers_end() {
    let (runtime, export, address, id) = server();
    let mut others = Vec::new();
    for first in [&b"?"[..], b""] {
        // An empty message reads like the end of the stream, but there is more behind it.
        let (wire, _page) = meet(address, id);
        let wire = Arc::new(wire);
        let (file, other) = lingering();
        wire.send(first, None);
        pass(&wire, b"", file);
        others.push(other);
    }
    let (file, other) = lingering();
    let wire = Arc::new(UnixChannel::connect(address).unwrap());
    assert!(wire.send(b"nonsense", None));
    pass(&wire, b"more", file);
    drop(wire);
    serves(&export);
    ends("the server's end", move || drop((export, runtime)));
    drop((other, others));
}

#[test]
fn what_a_server_passes_instead_of_memory_holds_up_no_import() {
    // The server is honest by UDP.
    let export =
        builder().shared_memory(false).build().unwrap().export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let listener = Listener::bind(export.address()).unwrap();
    let hostile = std::thread::spawn(move || {
        let wire = Arc::new(accept(&listener));
        let (file, other) = lingering();
        pass(&wire, b"!", file);
        (wire, other)
    });
    let url = export.url();
    ends("an import", move || {
        let runtime = builder().shared_memory(true).build().unwrap();
        assert_eq!(runtime.import::<dyn Echo>(&url).unwrap().reverse(b"abc").unwrap(), b"cba");
        assert!(runtime.stats().links.is_empty());
    });
    drop(hostile.join().unwrap());
}

#[test]
fn what_a_server_leaves_in_a_connection_holds_up_no_drop_of_a_caller() {
    let export =
        builder().shared_memory(false).build().unwrap().export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let export = Arc::new(export);
    let honest = export.clone();
    let listener = Listener::bind(export.address()).unwrap();
    let hostile = std::thread::spawn(move || {
        let (wire, page) = stand_in(&listener, &honest);
        let wire = Arc::new(wire);
        let (file, other) = lingering();
        wire.send(b"", None);
        pass(&wire, b"?", file);
        (wire, page, other)
    });
    let runtime = builder().shared_memory(true).build().unwrap();
    let echo = runtime.import::<dyn Echo>(&export.url()).unwrap();
    assert_eq!(runtime.stats().links.len(), 1);
    let hostile = hostile.join().unwrap();
    ends("the drop of a caller", move || drop((echo, runtime)));
    drop(hostile);
}
