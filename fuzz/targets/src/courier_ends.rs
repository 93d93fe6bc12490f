//! The fuzz targets for both ends of Courier's other protocols: Cooper's dialect on a connection, Larus'
//! packets, and expedited calls.
//!
//! The first byte of an input says which end gets the rest: a client (even) or a server (odd). The rest is
//! packets, or the parts in which the bytes of a connection arrive. Before each stands its length, two bytes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{
    Address, ConnectOptions, Env, Event, PeerState, Received, Socket, SocketOptions, Source, Stream, Time,
    Wait, Wanted,
};
use farcall::{CallFailed, Error, System};
use farcall_courier::{cooper, expedited, packets};

use crate::courier::Tree;

/// The program of Cooper's dialect, which has no errors.
#[farcall::interface]
trait Plain {
    #[procedure(1)]
    fn tree(&self, tree: Tree) -> farcall::Result<Tree>;
    #[procedure(2)]
    fn flags(&self, flags: Vec<bool>) -> farcall::Result<Vec<bool>>;
    #[procedure(3)]
    fn forget(&self, name: String) -> farcall::Result<()>;
}

/// The program of expedited calls.
#[farcall::interface(program = 754, version = 1)]
trait Numbered {
    #[procedure(1)]
    #[idempotent]
    fn tree(&self, tree: Tree) -> farcall::Result<Tree>;
    #[procedure(2)]
    fn check(&self, name: String) -> farcall::Result<u16, Fault>;
}

/// An error of Courier.
#[derive(Debug, farcall::Xdr)]
enum Fault {
    #[xdr(tag = 1)]
    Unknown,
    #[xdr(tag = 2)]
    TooLong { length: u32 },
}

struct Programs;

impl Plain for Programs {
    fn tree(&self, tree: Tree) -> farcall::Result<Tree> {
        Ok(tree)
    }

    fn flags(&self, flags: Vec<bool>) -> farcall::Result<Vec<bool>> {
        Ok(flags)
    }

    fn forget(&self, _name: String) -> farcall::Result<()> {
        Ok(())
    }
}

impl Numbered for Programs {
    fn tree(&self, tree: Tree) -> farcall::Result<Tree> {
        Ok(tree)
    }

    fn check(&self, name: String) -> farcall::Result<u16, Fault> {
        match name.len() {
            0 => Err(Error::Declared(Fault::Unknown)),
            length @ 100.. => Err(Error::Declared(Fault::TooLong { length: length as u32 })),
            length => Ok(length as u16),
        }
    }
}

/// A connection of Cooper's dialect. When its bytes have come, it ends.
pub fn courier_cooper(data: &[u8]) {
    let Some((end, bytes)) = data.split_first() else { return };
    let peer = Arc::new(Peer { arrives: Mutex::new(split(bytes)), ends: true, ..Peer::default() });
    let network = Arc::new(Network(peer.clone()));
    if end % 2 == 1 {
        let builder = cooper::Server::builder().env(network).program::<dyn Plain>(Arc::new(Programs));
        builder.serve_connection(&(peer.clone() as Arc<dyn Stream>));
        // A reply has at most as many words as the call, and a refused activation one line.
        assert!(peer.sent.load(Ordering::Relaxed) <= bytes.len() as u64 + 100);
        return;
    }
    match cooper::Builder::default().env(network).import::<dyn Plain>("tcp://192.0.2.1:530") {
        Ok(plain) => call_plain(&plain),
        Err(why) => is_told(&why),
    }
}

/// Larus' packets.
pub fn courier_packets(data: &[u8]) {
    let Some((end, bytes)) = data.split_first() else { return };
    let peer = Arc::new(Peer { arrives: Mutex::new(split(bytes)), ..Peer::default() });
    let network = Arc::new(Network(peer.clone()));
    if end % 2 == 1 {
        let builder = packets::Server::builder().env(network).program::<dyn Plain>(Arc::new(Programs));
        let answered = peer.answer(packets::MAX_PACKET_BYTES, |packets| {
            builder.answer(packets, ADDRESS, &*peer).expect("the dialect can say the interface");
        });
        return assert!(answered);
    }
    let plain = packets::Builder::default().env(network).import::<dyn Plain>("udp://192.0.2.1:530");
    call_plain(&plain.expect("a socket"));
}

/// Expedited calls.
pub fn courier_expedited(data: &[u8]) {
    let Some((end, bytes)) = data.split_first() else { return };
    let peer = Arc::new(Peer { arrives: Mutex::new(split(bytes)), ..Peer::default() });
    let network = Arc::new(Network(peer.clone()));
    if end % 2 == 1 {
        let builder = expedited::Server::builder().env(network).program::<dyn Numbered>(Arc::new(Programs));
        let answered = peer.answer(expedited::PACKET_BYTES, |packets| {
            builder.answer(packets, ADDRESS, &*peer).expect("Courier can say the interface");
        });
        return assert!(answered);
    }
    let numbered = expedited::Builder::default().env(network).import::<dyn Numbered>("udp://192.0.2.1:530");
    let numbered = numbered.expect("a socket");
    if let Err(Error::CallFailed(why)) = numbered.check("root".into()) {
        is_told(&why);
    }
    if let Err(Error::CallFailed(why)) = numbered.tree(Tree::Leaf) {
        is_told(&why);
    }
}

fn call_plain(plain: &PlainClient) {
    let flags = plain.flags(vec![true, false]).map(drop);
    for ended in [flags, plain.forget("root".into()), plain.tree(Tree::Leaf).map(drop)] {
        if let Err(Error::CallFailed(why)) = ended {
            is_told(&why);
        }
    }
}

fn is_told(why: &CallFailed) {
    assert!(!why.to_string().is_empty());
}

/// Splits an input into packets or parts.
fn split(mut bytes: &[u8]) -> VecDeque<Vec<u8>> {
    let mut packets = VecDeque::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (packet, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        packets.push_back(packet.to_vec());
        bytes = rest;
    }
    packets
}

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 530);

/// A peer that sends what the input says, whatever it gets; as a connection or a socket with which the other
/// end reaches it. Nobody waits: when nothing is left to be sent, time passes.
#[derive(Default)]
struct Peer {
    arrives: Mutex<VecDeque<Vec<u8>>>,
    /// Whether the connection ends when nothing is left.
    ends: bool,
    /// How many bytes were sent.
    sent: AtomicU64,
    /// The longest datagram that was sent to a client.
    longest: AtomicU64,
    nanos: AtomicU64,
}

impl Peer {
    /// Passes the packets to a server. Returns whether no reply had more bytes than a packet can have.
    fn answer(&self, max_bytes: usize, server: impl FnOnce(&[&[u8]])) -> bool {
        let packets: Vec<Vec<u8>> = self.arrives.lock().unwrap().drain(..).collect();
        server(&packets.iter().map(|packet| &packet[..]).collect::<Vec<_>>());
        self.longest.load(Ordering::Relaxed) <= max_bytes as u64
    }
}

/// An hour.
const PAUSE_NANOS: u64 = 3_600_000_000_000;

impl Stream for Peer {
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        if wait == Wait::No {
            // Nothing has come before it is waited for.
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut arrives = self.arrives.lock().unwrap();
        let Some(mut part) = arrives.pop_front() else {
            self.nanos.fetch_add(PAUSE_NANOS, Ordering::Relaxed);
            return if self.ends { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        };
        let count = part.len().min(buffer.len());
        buffer[..count].copy_from_slice(&part[..count]);
        if self.ends && count < part.len() {
            arrives.push_front(part.split_off(count));
        }
        Ok(count)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = parts.iter().map(|part| part.len()).sum::<usize>();
        self.sent.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn shutdown(&self, _: Shutdown) {}

    fn take_error(&self) -> io::Result<()> {
        Ok(())
    }

    fn peer_state(&self) -> PeerState {
        PeerState::Open
    }

    fn source(&self) -> Source<'_> {
        Source::Simulated(0)
    }
}

impl Socket for Peer {
    fn send(&self, _: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.longest.fetch_max(datagram.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn receive(&self, _: &mut [u8], _: Wait) -> io::Result<Received> {
        Err(ErrorKind::Unsupported.into())
    }

    fn wake(&self) {}

    fn local_address(&self) -> SocketAddr {
        ADDRESS
    }

    fn receive_buffer(&self) -> usize {
        0
    }
}

/// A network whose only other host is a peer. Its clock is the peer's.
struct Network(Arc<Peer>);

impl Env for Network {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.nanos.load(Ordering::Relaxed))
    }

    fn bind(&self, _: SocketAddr, _: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn event(&self) -> Arc<dyn Event> {
        System::current().event()
    }

    fn entropy(&self, out: &mut [u8]) {
        out.fill(0);
    }

    fn connect(&self, _: &Address, _: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
        Ok(self.0.clone())
    }

    fn wait_any(&self, wanted: &mut [Wanted<'_>], _: Option<Duration>) -> io::Result<()> {
        wanted.iter_mut().for_each(|wanted| wanted.ready = wanted.interest);
        Ok(())
    }
}
