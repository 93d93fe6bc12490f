//! Tests that many calls in one datagram are executed one after another and answered together, and that a
//! call which gets stuck delays no other.

use crate::common;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use farcall_proto::client::{Call, CallId, Conversation, Event, Outcome};
use farcall_proto::{ClientConfig, Time};

#[farcall::interface]
trait Counter {
    #[procedure(1)]
    fn twice(&self, n: u32) -> farcall::Result<u32>;
}

/// Doubles numbers. At one number it waits until the test lets it go on.
struct Doubler {
    executed: AtomicU32,
    stuck_at: u32,
    go_on: Mutex<Receiver<()>>,
}

impl Counter for Doubler {
    fn twice(&self, n: u32) -> farcall::Result<u32> {
        self.executed.fetch_add(1, Ordering::Relaxed);
        if n == self.stuck_at {
            self.go_on.lock().unwrap().recv().unwrap();
        }
        Ok(2 * n)
    }
}

/// A client made of the protocol core and a socket. It queues its calls, so that they share datagrams.
struct Client {
    socket: UdpSocket,
    server: SocketAddr,
    conversation: Conversation,
    export: u64,
    sent: usize,
    received: usize,
    results: HashMap<CallId, u32>,
}

impl Client {
    fn new(server: SocketAddr) -> Client {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut conversation = Conversation::new(ClientConfig::default(), 7);
        conversation.bind(Time::default(), "Counter", 0);
        let (results, export) = (HashMap::new(), 0);
        let mut client = Client { socket, server, conversation, export, sent: 0, received: 0, results };
        client.until(|client| client.export != 0);
        client
    }

    fn start(&mut self, n: u32) -> CallId {
        let call = Call { export: self.export, procedure: 1, deadline: None, trace: None, token: 0 };
        self.conversation.start(Time::default, &call, &mut n.to_be_bytes().to_vec()).unwrap()
    }

    /// Sends what is ready, and receives until `over` returns true. No datagram is lost, so no timer is
    /// needed, and the protocol's clock stands still.
    fn until(&mut self, over: impl Fn(&Client) -> bool) {
        let mut buffer = vec![0; 65_536];
        loop {
            while let Some(len) = self.conversation.transmit(Time::default(), &mut buffer) {
                self.socket.send_to(&buffer[..len], self.server).unwrap();
                self.sent += 1;
            }
            if over(self) {
                return;
            }
            let len = self.socket.recv(&mut buffer).unwrap();
            self.received += 1;
            let (results, export) = (&mut self.results, &mut self.export);
            self.conversation.receive(Time::default(), &buffer[..len], &mut |event| match event {
                Event::Ended { id, outcome: Outcome::Result(body), .. } => {
                    results.insert(id, u32::from_be_bytes(body[..].try_into().unwrap()));
                }
                Event::Bound { answer, .. } => *export = answer.unwrap().export,
                other => panic!("{other:?}"),
            });
        }
    }
}

/// Returns a server whose procedure has been quick so far, and a client. The procedure waits at the number
/// `stuck_at`.
fn quick(stuck_at: u32) -> (farcall::Export, Arc<Doubler>, Sender<()>, Client) {
    let (go, go_on) = channel();
    let doubler = Arc::new(Doubler { executed: AtomicU32::new(0), stuck_at, go_on: Mutex::new(go_on) });
    let export =
        common::builder().open().build().unwrap().export::<dyn Counter>("Counter", doubler.clone()).unwrap();
    let mut client = Client::new(export.address());
    for n in 0..64 {
        client.start(n);
        client.until(|client| client.results.len() == n as usize + 1);
    }
    client.results.clear();
    (client.sent, client.received) = (0, 0);
    (export, doubler, go, client)
}

/// The number of calls that are queued together.
const TRAIN: u32 = 200;

#[test]
fn queued_calls_are_executed_once_and_answered_together() {
    let (_export, doubler, _go, mut client) = quick(u32::MAX);
    let calls: Vec<_> = (1000..1000 + TRAIN).map(|n| (n, client.start(n))).collect();
    client.until(|client| client.results.len() == calls.len());
    for (n, id) in calls {
        assert_eq!(client.results[&id], 2 * n);
    }
    assert_eq!(doubler.executed.load(Ordering::Relaxed), 64 + TRAIN);
    assert!(client.sent < TRAIN as usize / 10, "{} datagrams sent", client.sent);
    assert!(client.received <= client.sent + TRAIN as usize / 10, "{} datagrams received", client.received);
}

#[test]
fn a_stuck_call_does_not_delay_the_calls_queued_with_it() {
    let (_export, doubler, go, mut client) = quick(1003);
    let calls: Vec<_> = (1000..1000 + TRAIN).map(|n| (n, client.start(n))).collect();
    client.until(|client| client.results.len() == calls.len() - 1);
    assert!(!client.results.contains_key(&calls[3].1));
    go.send(()).unwrap();
    client.until(|client| client.results.len() == calls.len());
    assert_eq!(client.results[&calls[3].1], 2006);
    assert_eq!(doubler.executed.load(Ordering::Relaxed), 64 + TRAIN);
}
