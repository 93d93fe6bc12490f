//! The anchor: a UDP ping-pong with nothing but the system calls.
use std::collections::VecDeque;
use std::io::{self, ErrorKind::WouldBlock};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Result;
use farcall_bench_method::{
    Calling, Carry, Crew, Gate, Gated, Laps, Lost, Mode, Peer, Schedule, Serving, Setup, cannot, enlarge,
};

/// The time after which a datagram counts as lost.
const LOST: Duration = Duration::from_secs(2);

/// Server and client. The server's socket cannot be connected, but the client's may be.
pub struct RawUdp {
    pub connected: bool,
}

impl Peer for RawUdp {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry != Carry::Both || setup.bytes > 60_000 {
            return cannot("one datagram is not enough");
        }
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?.to_string();
        enlarge(&socket);
        socket.set_nonblocking(setup.mode == Mode::Spin)?;
        let gate = Gate::new(setup);
        let passed = gate.clone();
        let thread = std::thread::spawn(move || serve(&socket, &passed)).thread().clone();
        Ok(Box::new(Gated { address, gate, thread }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let server: SocketAddr = address.parse()?;
        let client = RawClient::new(setup, server, self.connected)?;
        Ok(Box::new(Client { client, setup: *setup, server, connected: self.connected, crew: None }))
    }
}

/// Serves. A socket that blocks never returns `WouldBlock`.
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

struct Client {
    client: RawClient,
    setup: Setup,
    server: SocketAddr,
    connected: bool,
    crew: Option<Crew>,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.client.send()?;
            self.client.receive()?;
        }
        Ok(())
    }

    /// Uses a system call for each packet. Nothing is retransmitted: a lost datagram makes the block void.
    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        self.client.socket.set_read_timeout(Some(LOST))?;
        let (mut sent, mut received) = (0, 0);
        while received < calls {
            if sent < calls.min(received + outstanding) {
                self.client.send()?;
                sent += 1;
            } else {
                Lost::unless(self.client.receive())?;
                received += 1;
            }
        }
        self.client.socket.set_read_timeout(None)?;
        Ok(())
    }

    fn threads(&mut self, threads: usize, calls: usize) -> Result<()> {
        let (setup, server, connected) = (self.setup, self.server, self.connected);
        let member = || {
            let mut client = RawClient::new(&setup, server, connected)?;
            Ok(move |calls| {
                (0..calls).try_for_each(|_| {
                    client.send()?;
                    Ok(client.receive()?)
                })
            })
        };
        Crew::keep(&mut self.crew, threads, member)?.run(calls)
    }

    /// Answers arrive in the order of the calls, because one thread sends them and none is lost.
    fn open(&mut self, schedule: &mut Schedule) -> Result<()> {
        let RawClient { socket, buffer, spins, .. } = &mut self.client;
        socket.set_nonblocking(true)?;
        let (mut under_way, mut heard) = (VecDeque::new(), Instant::now());
        while !schedule.is_over() {
            if let Some(arrival) = schedule.due() {
                if arrival.slow {
                    return cannot("its server does not sleep");
                }
                socket.send(buffer)?;
                under_way.push_back(arrival);
            }
            let answer = socket.recv(buffer);
            match under_way.front() {
                Some(&arrival) if answer.is_ok() => {
                    schedule.ended(arrival, &answer);
                    under_way.pop_front();
                    heard = Instant::now();
                }
                Some(_) if heard.elapsed() > LOST => return Err(Lost::in_time().into()),
                Some(_) => {}
                None => heard = Instant::now(),
            }
        }
        Ok(socket.set_nonblocking(*spins)?)
    }
}

struct RawClient {
    socket: UdpSocket,
    /// The address to send to, if the socket is not connected.
    server: Option<SocketAddr>,
    spins: bool,
    buffer: Vec<u8>,
}

impl RawClient {
    fn new(setup: &Setup, server: SocketAddr, connected: bool) -> io::Result<RawClient> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        if connected {
            socket.connect(server)?;
        }
        let spins = setup.mode == Mode::Spin;
        socket.set_nonblocking(spins)?;
        enlarge(&socket);
        Ok(RawClient { socket, server: (!connected).then_some(server), spins, buffer: vec![0; setup.bytes] })
    }

    #[inline]
    fn send(&self) -> io::Result<usize> {
        match self.server {
            None => self.socket.send(&self.buffer),
            Some(server) => self.socket.send_to(&self.buffer, server),
        }
    }

    #[inline]
    fn receive(&mut self) -> io::Result<()> {
        loop {
            match self.socket.recv(&mut self.buffer) {
                Ok(_) => return Ok(()),
                Err(why) if why.kind() == WouldBlock && self.spins => {}
                Err(why) => return Err(why),
            }
        }
    }
}
