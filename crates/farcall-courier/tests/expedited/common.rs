//! Interfaces, a server for them, and peers that are played by hand.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};

use farcall_courier::expedited::{self, Server, ServerBuilder};

#[derive(farcall::Xdr, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProblem {
    TooBusy = 2,
    UseCourier = 4,
}

/// An error as the Clearinghouse declares it, and another one.
#[derive(farcall::Xdr, Clone, Debug, PartialEq, Eq)]
pub enum ListError {
    #[xdr(tag = 1)]
    CallError { problem: CallProblem },
    #[xdr(tag = 2)]
    NoSuchList { number: u16 },
}

/// An error whose number is that of the Clearinghouse's `CallError`.
#[derive(farcall::Xdr, Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    #[xdr(tag = 1)]
    NoSuchFile { number: u16 },
}

#[farcall::interface(program = 900, version = 3)]
pub trait Work {
    #[procedure(1)]
    fn next(&self, number: u16) -> farcall::Result<u16>;
    #[procedure(2)]
    #[idempotent]
    fn again(&self, number: u16) -> farcall::Result<u16>;
    #[procedure(3)]
    fn sum(&self, words: Vec<u16>) -> farcall::Result<u16>;
    #[procedure(4)]
    fn words(&self, count: u16) -> farcall::Result<Vec<u16>>;
    #[procedure(5)]
    fn list(&self, count: u16) -> farcall::Result<Vec<u16>, ListError>;
    #[procedure(6)]
    fn read(&self, count: u16) -> farcall::Result<Vec<u16>, ReadError>;
    #[procedure(7)]
    fn panic(&self) -> farcall::Result<u16>;
    /// Blocks until the test lets it go.
    #[procedure(8)]
    fn block(&self) -> farcall::Result<u16>;
}

/// A second program at the same server.
#[farcall::interface(program = 2, version = 2)]
pub trait Addresses {
    #[procedure(0)]
    fn retrieve(&self) -> farcall::Result<Vec<[u16; 6]>>;
}

#[derive(Default)]
pub struct Worker {
    /// The numbers that `next` and `again` were called with.
    pub executed: Mutex<Vec<u16>>,
    /// How many blocked procedures have begun, and how many may go.
    pub gate: Mutex<(usize, usize)>,
    pub changed: Condvar,
}

impl Worker {
    pub fn executed(&self) -> Vec<u16> {
        self.executed.lock().unwrap().clone()
    }

    fn note(&self, number: u16) {
        self.executed.lock().unwrap().push(number);
    }

    /// Waits until a procedure blocks.
    pub fn until_blocked(&self) {
        let gate = self.gate.lock().unwrap();
        drop(self.changed.wait_while(gate, |gate| gate.0 == 0).unwrap());
    }

    /// Lets a blocked procedure go.
    pub fn open(&self) {
        self.gate.lock().unwrap().1 += 1;
        self.changed.notify_all();
    }
}

impl Work for Worker {
    fn next(&self, number: u16) -> farcall::Result<u16> {
        self.note(number);
        Ok(number.wrapping_add(1))
    }

    fn again(&self, number: u16) -> farcall::Result<u16> {
        self.note(number);
        Ok(number)
    }

    fn sum(&self, words: Vec<u16>) -> farcall::Result<u16> {
        Ok(words.iter().fold(0, |sum, word| sum.wrapping_add(*word)))
    }

    fn words(&self, count: u16) -> farcall::Result<Vec<u16>> {
        self.note(count);
        Ok(vec![7; count.into()])
    }

    fn list(&self, count: u16) -> farcall::Result<Vec<u16>, ListError> {
        match count {
            0 => Err(ListError::NoSuchList { number: 5 }.into()),
            count => Ok(vec![7; count.into()]),
        }
    }

    fn read(&self, count: u16) -> farcall::Result<Vec<u16>, ReadError> {
        Ok(vec![7; count.into()])
    }

    fn panic(&self) -> farcall::Result<u16> {
        std::panic::resume_unwind(Box::new("as the test wants it"))
    }

    fn block(&self) -> farcall::Result<u16> {
        let mut gate = self.gate.lock().unwrap();
        gate.0 += 1;
        self.changed.notify_all();
        gate = self.changed.wait_while(gate, |gate| gate.1 == 0).unwrap();
        gate.1 -= 1;
        Ok(7)
    }
}

impl Addresses for Worker {
    fn retrieve(&self) -> farcall::Result<Vec<[u16; 6]>> {
        Ok(vec![[0, 0x041a, 0x1000, 0xbb10, 0x1101, 0]])
    }
}

pub type Troubles = Arc<Mutex<Vec<String>>>;

/// Starts a server of both programs. `change` may change its settings.
pub fn serve(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Server, Arc<Worker>, Troubles) {
    let (worker, troubles) = (Arc::new(Worker::default()), Troubles::default());
    let tell = troubles.clone();
    let builder = Server::builder()
        .program::<dyn Work>(worker.clone())
        .program::<dyn Addresses>(worker.clone())
        .on_trouble(move |trouble| tell.lock().unwrap().push(trouble.what.clone()))
        .udp("127.0.0.1:0".parse().unwrap());
    (change(builder).start().unwrap(), worker, troubles)
}

pub fn server() -> (Server, Arc<Worker>, Troubles) {
    serve(|builder| builder)
}

pub fn work(address: SocketAddr) -> WorkClient {
    expedited::import::<dyn Work>(&format!("udp://{address}")).unwrap()
}

/// A peer that answers by hand, and a client of it.
pub fn peer() -> (UdpSocket, WorkClient) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let work = work(peer.local_addr().unwrap());
    (peer, work)
}

pub fn receive(peer: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut packet = [0; 3000];
    let (count, from) = peer.recv_from(&mut packet).unwrap();
    (packet[..count].to_vec(), from)
}

/// Sends a packet to a server, and returns the packet that comes back.
pub fn ask(peer: &UdpSocket, server: &Server, packet: &str) -> Vec<u8> {
    peer.send_to(&bytes(packet), server.address()).unwrap();
    receive(peer).0
}

/// Returns the packet that answers a client's packet: with its identifier and client type, then the versions
/// and these words, in which `id` stands for the transaction identifier.
pub fn answer(packet: &[u8], words: &str) -> Vec<u8> {
    let id = format!("{:02x}{:02x}", packet[12], packet[13]);
    [&packet[..6], &bytes(&words.replace("id", &id))].concat()
}

/// Returns the bytes of words in hexadecimal.
pub fn bytes(words: &str) -> Vec<u8> {
    words.split_whitespace().flat_map(|word| u16::from_str_radix(word, 16).unwrap().to_be_bytes()).collect()
}
