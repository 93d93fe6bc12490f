//! The bare exchange over a connection: TCP without Nagle's delay, or a Unix socket.
use std::io::{self, ErrorKind::WouldBlock, Read, Write};
use std::net::SocketAddr;

use anyhow::Result;
use farcall_bench_method::{Calling, Carry, Crew, Gate, Gated, Laps, Mode, Peer, Serving, Setup};
use socket2::{Domain, SockAddr, Socket, Type};

/// The bytes that a side reads at once.
const BUFFER: usize = 256 << 10;

/// The transport: TCP, or a Unix socket.
pub enum RawStream {
    Tcp,
    Unix,
}

impl Peer for RawStream {
    fn transport(&self) -> &'static str {
        match self {
            RawStream::Tcp => "tcp",
            RawStream::Unix => "unix",
        }
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        let name = match self {
            RawStream::Tcp => "127.0.0.1:0".into(),
            RawStream::Unix => format!("farcall-bench-{}", std::process::id()),
        };
        let (listener, address) = self.socket(&name)?;
        listener.bind(&address)?;
        listener.listen(1024)?;
        let address = listener.local_addr()?.as_socket().map_or(name, |address| address.to_string());
        let gate = Gate::new(setup);
        let (passed, setup) = (gate.clone(), *setup);
        let thread = std::thread::spawn(move || accept(&listener, &setup, &passed)).thread().clone();
        Ok(Box::new(Gated { address, gate, thread }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let connection = self.connection(setup, address)?;
        let peer = if matches!(self, RawStream::Tcp) { RawStream::Tcp } else { RawStream::Unix };
        Ok(Box::new(Client { connection, peer, setup: *setup, address: address.into(), crew: None }))
    }
}

impl RawStream {
    /// Opens a socket. Unix sockets have abstract names, so that no file must be removed (Linux).
    fn socket(&self, address: &str) -> Result<(Socket, SockAddr)> {
        Ok(match self {
            RawStream::Tcp => {
                (Socket::new(Domain::IPV4, Type::STREAM, None)?, address.parse::<SocketAddr>()?.into())
            }
            RawStream::Unix => {
                (Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(format!("\0{address}"))?)
            }
        })
    }

    fn connection(&self, setup: &Setup, address: &str) -> Result<Connection> {
        let (socket, address) = self.socket(address)?;
        socket.connect(&address)?;
        Connection::new(socket, setup)
    }
}

/// Serves the first connection in one thread, so that the gate can wake it, and each further connection in
/// another thread.
fn accept(listener: &Socket, setup: &Setup, gate: &Gate) -> Result<()> {
    let (first, _) = listener.accept()?;
    let first = Connection::new(first, setup)?;
    std::thread::scope(|scope| {
        scope.spawn(|| -> Result<()> {
            loop {
                let connection = Connection::new(listener.accept()?.0, setup)?;
                scope.spawn(|| connection.serve(gate));
            }
        });
        first.serve(gate)
    })
}

struct Connection {
    socket: Socket,
    setup: Setup,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(socket: Socket, setup: &Setup) -> Result<Connection> {
        if socket.local_addr()?.is_ipv4() {
            socket.set_tcp_nodelay(true)?;
        }
        socket.set_nonblocking(setup.mode == Mode::Spin)?;
        Ok(Connection { socket, setup: *setup, buffer: vec![7; BUFFER.max(setup.bytes)] })
    }

    /// Echoes what it receives. If the payload is in results, returns one for each byte; if it is in
    /// arguments, returns a byte for each.
    fn serve(mut self, gate: &Gate) -> Result<()> {
        let mut received = 0;
        loop {
            let length = self.read(BUFFER, || gate.pass())?;
            match self.setup.carry {
                Carry::Both => self.write(length)?,
                Carry::Result => (0..length).try_for_each(|_| self.write(self.setup.bytes))?,
                Carry::Argument => {
                    received += length;
                    self.write(received / self.setup.bytes)?;
                    received %= self.setup.bytes;
                }
            }
        }
    }

    /// Returns the bytes of a call and of its result.
    fn lengths(&self) -> (usize, usize) {
        let payload = self.setup.bytes.max(1);
        match self.setup.carry {
            Carry::Both => (payload, payload),
            Carry::Result => (1, payload),
            Carry::Argument => (payload, 1),
        }
    }

    #[inline]
    fn call(&mut self) -> Result<()> {
        let (call, result) = self.lengths();
        self.write(call)?;
        let mut received = 0;
        while received < result {
            received += self.read(result - received, || {})?;
        }
        Ok(())
    }

    /// Sends several calls, and receives several results, by one system call if possible. Waits until half of
    /// the calls have returned, because sending one call for each result would keep the batches at one.
    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let (call, result) = self.lengths();
        let (mut sent, mut received) = (0, 0);
        while received < calls * result {
            let ready = (received / result + outstanding).min(calls) - sent;
            if ready >= outstanding.div_ceil(2) || sent + ready == calls {
                let some = ready.min(BUFFER / 4 / call + 1);
                self.write(some * call)?;
                sent += some;
            }
            received += self.read(BUFFER, || {})?;
        }
        Ok(())
    }

    /// Receives at most `most` bytes. Calls `rest` before each attempt.
    #[inline]
    fn read(&mut self, most: usize, rest: impl Fn()) -> io::Result<usize> {
        let most = most.min(self.buffer.len());
        loop {
            rest();
            match self.socket.read(&mut self.buffer[..most]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => return Ok(length),
                Err(why) if why.kind() == WouldBlock => {}
                Err(why) => return Err(why),
            }
        }
    }

    #[inline]
    fn write(&mut self, length: usize) -> io::Result<()> {
        let mut written = 0;
        while written < length {
            match self.socket.write(&self.buffer[written..length]) {
                Ok(length) => written += length,
                Err(why) if why.kind() == WouldBlock => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

struct Client {
    connection: Connection,
    peer: RawStream,
    setup: Setup,
    address: String,
    crew: Option<Crew>,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.connection.call()?;
        }
        Ok(())
    }

    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        self.connection.window(outstanding, calls)
    }

    fn threads(&mut self, threads: usize, calls: usize) -> Result<()> {
        let member = || {
            let mut connection = self.peer.connection(&self.setup, &self.address)?;
            Ok(move |calls| (0..calls).try_for_each(|_| connection.call()))
        };
        Crew::keep(&mut self.crew, threads, member)?.run(calls)
    }
}
