//! Servers that end finish the calls that have begun, and take no more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use farcall_courier::cooper::Server;

use crate::common::{activated, bytes, receive};

#[farcall::interface]
pub trait PasswordLookup {
    /// Says that it has begun, and waits.
    #[procedure(1)]
    fn wait(&self) -> farcall::Result<u16>;
    #[procedure(8)]
    fn again(&self, number: u16) -> farcall::Result<u16>;
}

struct Waits {
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl PasswordLookup for Waits {
    fn wait(&self) -> farcall::Result<u16> {
        self.begun.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        Ok(7)
    }

    fn again(&self, number: u16) -> farcall::Result<u16> {
        Ok(number)
    }
}

/// Starts a server. Returns it, its address, and the ends by which a test knows that `wait` has begun and
/// lets it go on.
fn serve() -> (Server, SocketAddr, Receiver<()>, Sender<()>) {
    let ((begins, begun), (go, goes)) = (channel(), channel());
    let waits = Arc::new(Waits { begun: begins, go: Mutex::new(goes) });
    let builder = Server::builder().program::<dyn PasswordLookup>(waits);
    let server = builder.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = server.addresses()[0];
    (server, address, begun, go)
}

/// Checks that the server ends the connection, and sends nothing more.
fn is_ended(mut peer: TcpStream) {
    let mut rest = Vec::new();
    // The server may end a connection whose bytes it has not all read, which resets it.
    let _ = peer.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:x?} came");
}

#[test]
fn a_drain_finishes_the_call_that_has_begun_and_takes_no_more() {
    let (server, address, begun, go) = serve();
    let (idle, mut peer) = (activated(address), activated(address));
    peer.write_all(&bytes("0001 0000")).unwrap();
    begun.recv().unwrap();
    let drain = thread::spawn(move || server.drain(Duration::from_secs(20)));
    is_ended(idle);
    peer.write_all(&bytes("0008 0001 0005")).unwrap();
    go.send(()).unwrap();
    assert_eq!(receive(&mut peer, 4), bytes("0001 0007"));
    is_ended(peer);
    assert!(drain.join().unwrap());
}

/// The limit on half a message is a minute, which is longer than the drain.
#[test]
fn half_a_message_does_not_hold_up_a_drain() {
    let (server, address, ..) = serve();
    let mut peer = activated(address);
    // A call and the first word of another one.
    peer.write_all(&bytes("0008 0001 0005 0008")).unwrap();
    assert_eq!(receive(&mut peer, 4), bytes("0001 0005"));
    assert!(server.drain(Duration::from_secs(20)));
    is_ended(peer);
}
