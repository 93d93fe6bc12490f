//! The bounds: messages of given lengths over TCP and UDP, by system calls and nothing else.
//!
//! On a TCP connection the client first says the lengths of calls and replies. Without replies, it ends its
//! direction after the last call, and the server then sends one byte. A UDP packet begins with the length of
//! the reply that it asks for; for the length 0 there is none.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use farcall_bench_method::enlarge;

use super::{Addresses, Caller, Failed, Lengths, Way};

/// How long the client waits for a packet before it counts it as lost.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The longest packet.
const MAX_PACKET: usize = 65_535;

/// Starts the servers. They end with the process.
pub fn serve(at: IpAddr, executed: &Arc<AtomicU64>, addresses: &mut Addresses) -> Result<()> {
    let (listener, socket) = (TcpListener::bind((at, 0))?, UdpSocket::bind((at, 0))?);
    enlarge(&socket);
    for (way, address) in [
        (Way::CourierBound, listener.local_addr()?),
        (Way::XsisBound, listener.local_addr()?),
        (Way::PcourierBound, socket.local_addr()?),
        (Way::FarcallBound, socket.local_addr()?),
    ] {
        addresses.insert(way.name().into(), address.to_string());
    }
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away ends its thread.
            std::thread::spawn(move || answer_stream(stream));
        }
    });
    let executed = executed.clone();
    std::thread::spawn(move || answer_packets(&socket, &executed));
    Ok(())
}

fn answer_stream(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lengths = [0; 8];
    stream.read_exact(&mut lengths)?;
    let [call, reply] = [&lengths[..4], &lengths[4..]].map(|part| {
        let bytes = part.try_into().unwrap_or_default();
        (u32::from_be_bytes(bytes) as usize).min(MAX_PACKET)
    });
    let (mut call, reply) = (vec![0; call], vec![7; reply]);
    if reply.is_empty() {
        while stream.read(&mut call)? > 0 {}
        return stream.write_all(&[7]);
    }
    loop {
        stream.read_exact(&mut call)?;
        stream.write_all(&reply)?;
    }
}

fn answer_packets(socket: &UdpSocket, executed: &AtomicU64) {
    let (mut call, reply) = (vec![0; MAX_PACKET], vec![7; MAX_PACKET]);
    loop {
        let Ok((length, from)) = socket.recv_from(&mut call) else { continue };
        executed.fetch_add(1, Ordering::Relaxed);
        let Some(wanted) = call[..length].first_chunk().map(|bytes| u16::from_be_bytes(*bytes)) else {
            continue;
        };
        if wanted > 0 {
            // A reply that cannot be sent is lost, and the client notices that.
            let _ = socket.send_to(&reply[..wanted.into()], from);
        }
    }
}

/// Connects to the server of streams.
pub(super) fn stream(address: &str, lengths: Lengths) -> Result<Box<dyn Caller>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let said = [lengths.call as u32, lengths.reply as u32].map(u32::to_be_bytes);
    stream.write_all(said.as_flattened())?;
    Ok(Box::new(Stream { stream, call: vec![7; lengths.call], reply: vec![0; lengths.reply] }))
}

struct Stream {
    stream: TcpStream,
    call: Vec<u8>,
    reply: Vec<u8>,
}

impl Caller for Stream {
    fn call(&mut self) -> Result<(), Failed> {
        self.stream.write_all(&self.call).map_err(broken)?;
        match self.reply.is_empty() {
            true => Ok(()),
            false => self.stream.read_exact(&mut self.reply).map_err(broken),
        }
    }

    fn finish(&mut self) -> Result<(), Failed> {
        self.stream.shutdown(Shutdown::Write).map_err(broken)?;
        self.stream.read_exact(&mut [0]).map_err(broken)
    }
}

/// Connects to the server of packets.
pub(super) fn packets(address: &str, lengths: Lengths) -> Result<Box<dyn Caller>> {
    let to: SocketAddr = address.parse()?;
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(Box::new(Packets {
        socket,
        call: vec![7; lengths.call],
        reply: lengths.reply,
        room: vec![0; MAX_PACKET],
    }))
}

struct Packets {
    socket: UdpSocket,
    call: Vec<u8>,
    reply: usize,
    room: Vec<u8>,
}

impl Packets {
    fn exchange(&mut self, reply: usize) -> Result<(), Failed> {
        self.call[..2].copy_from_slice(&(reply as u16).to_be_bytes());
        self.socket.send(&self.call).map_err(broken)?;
        if reply == 0 {
            return Ok(());
        }
        match self.socket.recv(&mut self.room) {
            Ok(_) => Ok(()),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(Failed::TimedOut)
            }
            Err(why) => Err(broken(why)),
        }
    }
}

impl Caller for Packets {
    fn call(&mut self) -> Result<(), Failed> {
        self.exchange(self.reply)
    }

    fn finish(&mut self) -> Result<(), Failed> {
        self.exchange(super::COOPER_HEADS.1)
    }
}

fn broken(why: std::io::Error) -> Failed {
    Failed::Broken(why.to_string())
}
