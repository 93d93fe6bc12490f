//! The anchor: a UDP ping-pong with nothing but the system calls.
use std::io::{self, ErrorKind::WouldBlock};
use std::net::{SocketAddr, UdpSocket};

use anyhow::Result;
use farcall_bench_method::{Calling, Laps, Mode, Peer, Serving, Setup};

use super::gate::{Gate, Gated};

/// The server's socket is not connected, since a server's cannot be. The client's may be.
pub struct RawUdp {
    pub connected: bool,
}

impl Peer for RawUdp {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?;
        socket.set_nonblocking(setup.mode == Mode::Spin)?;
        let gate = Gate::new(setup);
        let passed = gate.clone();
        let thread = std::thread::spawn(move || serve(&socket, &passed)).thread().clone();
        Ok(Box::new(Gated { address, gate, thread }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let server = address.parse()?;
        if self.connected {
            socket.connect(server)?;
        }
        socket.set_nonblocking(setup.mode == Mode::Spin)?;
        let buffer = vec![0; setup.bytes];
        Ok(Box::new(RawClient { socket, server: (!self.connected).then_some(server), buffer }))
    }
}

/// A socket that blocks never says `WouldBlock`.
fn serve(socket: &UdpSocket, gate: &Gate) -> io::Result<()> {
    let mut buffer = [0; 65_536];
    loop {
        gate.pass();
        match socket.recv_from(&mut buffer) {
            Ok((length, client)) => drop(socket.send_to(&buffer[..length], client)?),
            Err(why) if why.kind() == WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
}

struct RawClient {
    socket: UdpSocket,
    /// Where to send to, if not connected.
    server: Option<SocketAddr>,
    buffer: Vec<u8>,
}

impl Calling for RawClient {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            match self.server {
                None => self.socket.send(&self.buffer)?,
                Some(server) => self.socket.send_to(&self.buffer, server)?,
            };
            loop {
                match self.socket.recv(&mut self.buffer) {
                    Ok(_) => break,
                    Err(why) if why.kind() == WouldBlock => {}
                    Err(why) => return Err(why.into()),
                }
            }
        }
        Ok(())
    }
}
