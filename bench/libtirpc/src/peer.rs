//! The peer. This program opens the sockets, and libtirpc uses them.
use std::net::{TcpListener, TcpStream, UdpSocket};

use anyhow::Result;
use farcall_bench_method::{Calling, Carry, Crew, Laps, Peer, Serving, Setup, cannot, enlarge};

use crate::ffi::{self, Client};

/// The most bytes of a call in one datagram.
const DATAGRAM: usize = 60_000;

pub struct Libtirpc {
    pub stream: bool,
}

impl Peer for Libtirpc {
    fn transport(&self) -> &'static str {
        if self.stream { "tcp" } else { "udp" }
    }

    fn version(&self) -> String {
        env!("LIBTIRPC_VERSION").into()
    }

    /// Allocations of the C side are not counted, so rows have no allocations.
    fn counts_allocations(&self) -> bool {
        false
    }

    /// Serves by blocking in both modes. Beside peers that spin, the peer shows what spinning gains at the
    /// same time.
    /// time.
    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.bytes > DATAGRAM && !self.stream {
            return cannot("one datagram is not enough");
        }
        let port = if self.stream {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let port = listener.local_addr()?.port();
            std::thread::spawn(move || ffi::serve_tcp(listener));
            port
        } else {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            let port = socket.local_addr()?.port();
            // Its clients retransmit only after 15 seconds, so no datagram may be lost.
            enlarge(&socket);
            std::thread::spawn(move || ffi::serve_udp(socket));
            port
        };
        Ok(Box::new(Port(port)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let caller = Caller::new(self.stream, address.parse()?, setup)?;
        Ok(Box::new(Callers {
            caller,
            stream: self.stream,
            port: address.parse()?,
            setup: *setup,
            crew: None,
        }))
    }
}

struct Port(u16);

impl Serving for Port {
    fn address(&self) -> String {
        self.0.to_string()
    }
}

struct Caller {
    client: Client,
    carry: Carry,
    data: Vec<u8>,
}

impl Caller {
    fn new(stream: bool, port: u16, setup: &Setup) -> Result<Caller> {
        let client = if stream {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            Client::tcp(stream, port)?
        } else {
            Client::udp(UdpSocket::bind("127.0.0.1:0")?, port)?
        };
        Ok(Caller { client, carry: setup.carry, data: vec![7; setup.bytes] })
    }

    #[inline]
    fn call(&mut self) -> Result<()> {
        match self.carry {
            Carry::Result => self.client.fetch(self.data.len()),
            Carry::Argument => cannot("it is not measured with long arguments"),
            Carry::Both if self.data.is_empty() => self.client.null(),
            Carry::Both => self.client.echo(&mut self.data),
        }
    }
}

struct Callers {
    caller: Caller,
    stream: bool,
    port: u16,
    setup: Setup,
    crew: Option<Crew>,
}

impl Calling for Callers {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.caller.call()?;
        }
        Ok(())
    }

    /// Calls from threads, each with a client of its own: a call occupies its client until the result has
    /// come.
    fn threads(&mut self, threads: usize, calls: usize) -> Result<()> {
        let member = || {
            let mut caller = Caller::new(self.stream, self.port, &self.setup)?;
            Ok(move |calls| (0..calls).try_for_each(|_| caller.call()))
        };
        Crew::keep(&mut self.crew, threads, member)?.run(calls)
    }
}
