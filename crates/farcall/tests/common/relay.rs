//! A process that stands between the two ends of a meeting. It has taken the name at which a client looks for
//! its server, meets the server itself, and passes on what either end says, with the files that come with it.

use std::net::SocketAddr;
use std::time::Duration;

use farcall_shm::{EpollSet, Listener, MAX_HELLO_BYTES, Received, UnixChannel};

/// How many messages a relay has passed on.
#[derive(Debug, Default)]
pub struct Relayed {
    pub to_server: usize,
    pub to_client: usize,
}

/// Waits for a client, and passes messages on between it and the server at this address, until either leaves.
pub fn relay(listener: &Listener, server: SocketAddr) -> Relayed {
    /// Nothing here takes that long.
    const LONG: Duration = Duration::from_secs(60);
    let (epoll, mut ready) = (EpollSet::new().unwrap(), Vec::new());
    epoll.add(listener, 0).unwrap();
    epoll.wait(Some(LONG), &mut ready);
    let (client, _) = listener.accept().unwrap().expect("a client");
    let server = UnixChannel::connect(server).unwrap();
    epoll.remove(listener);
    epoll.add(&client, 1).unwrap();
    epoll.add(&server, 2).unwrap();
    let mut relayed = Relayed::default();
    loop {
        let (Some(to_client), Some(to_server)) = (pass(&server, &client), pass(&client, &server)) else {
            return relayed;
        };
        relayed.to_client += to_client;
        relayed.to_server += to_server;
        if to_client + to_server == 0 {
            ready.clear();
            epoll.wait(Some(LONG), &mut ready);
            assert!(!ready.is_empty(), "an end neither speaks nor leaves");
        }
    }
}

/// Passes a message on, if there is one, and returns how many were. Returns `None` if an end has left.
fn pass(from: &UnixChannel, to: &UnixChannel) -> Option<usize> {
    let mut message = [0; MAX_HELLO_BYTES];
    let is_sent = match from.receive(&mut message) {
        Received::Message(len) => to.send(&message[..len], None),
        Received::Files => {
            let (len, file) = from.receive_file(&mut message).expect("a file");
            to.send(&message[..len], Some(std::os::fd::AsFd::as_fd(&file)))
        }
        Received::Nothing => return Some(0),
        Received::Gone => return None,
    };
    is_sent.then_some(1)
}
