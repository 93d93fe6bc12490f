//! ONC RPC by farcall, over UDP and over TCP: the same interface and callers with another protocol; and the
//! same with procedures that must not run twice, for which the server remembers its answers.
use std::sync::Arc;

use anyhow::Result;
use farcall_bench_method::{Calling, Carry, Laps, Mode, Peer, Serving, Setup, cannot};
use farcall_onc as onc;

use super::farcall::{Client, Echo, SPIN, Server, WORKERS};

/// The most bytes of a datagram's payload.
const DATAGRAM: usize = 60_000;

/// The interface of the peers that end in `-once`: as [`Echo`], but without idempotent procedures.
#[farcall::interface(program = 0x2000_009a, version = 1)]
pub trait Once {
    /// The null call.
    fn null(&self) -> farcall::Result<()>;
    /// Returns the first 32 bytes.
    fn echo(&self, data: &[u8]) -> farcall::Result<[u8; 32]>;
    /// Returns all bytes.
    fn echo_all(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
}

impl Once for Server {
    fn null(&self) -> farcall::Result<()> {
        Echo::null(self)
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<[u8; 32]> {
        Echo::echo(self, data)
    }

    fn echo_all(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Echo::echo_all(self, data)
    }
}

pub struct Onc {
    pub stream: bool,
    pub once: bool,
}

/// Returns the peer of this name, if it is one of these.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    let (stream, once) = match name {
        "farcall-onc-udp" => (false, false),
        "farcall-onc-tcp" => (true, false),
        "farcall-onc-udp-once" => (false, true),
        "farcall-onc-tcp-once" => (true, true),
        _ => return None,
    };
    Some(Box::new(Onc { stream, once }))
}

impl Peer for Onc {
    fn transport(&self) -> &'static str {
        if self.stream { "tcp" } else { "udp" }
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.bytes > DATAGRAM && !self.stream {
            return cannot("one datagram is not enough");
        }
        let server = Arc::new(Server { data: vec![7; setup.bytes].into() });
        let builder = onc::Server::builder().program::<dyn Echo>(server.clone()).program::<dyn Once>(server);
        let mut builder = builder.workers(WORKERS);
        if setup.mode == Mode::Spin {
            builder = builder.spin(SPIN);
        }
        let any = "127.0.0.1:0".parse()?;
        let server = if self.stream { builder.tcp(any) } else { builder.udp(any) }.start()?;
        Ok(Box::new(Served(server)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let mut builder = onc::Client::builder();
        if setup.mode == Mode::Spin {
            builder = builder.spin(SPIN);
        }
        let client = builder.connect(address)?;
        match (self.once, setup.carry) {
            (false, _) => Ok(Box::new(Client::new(client.bind::<dyn Echo>(), setup))),
            (true, Carry::Both) => Ok(Box::new(Caller(client.bind::<dyn Once>(), vec![7; setup.bytes]))),
            (true, _) => cannot("it has no long arguments or results alone"),
        }
    }
}

/// A client that makes one call after the other.
struct Caller(OnceClient, Vec<u8>);

impl Calling for Caller {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        let Caller(once, data) = self;
        while laps.next() {
            match data.len() {
                0 => once.null()?,
                32 => _ = std::hint::black_box(once.echo(data)?),
                _ => _ = std::hint::black_box(once.echo_all(data)?),
            }
        }
        Ok(())
    }
}

struct Served(onc::Server);

impl Serving for Served {
    fn address(&self) -> String {
        let udp = self.0.udp().map(|address| format!("udp://{address}"));
        let tcp = self.0.tcp().map(|address| format!("tcp://{address}"));
        udp.or(tcp).unwrap_or_default()
    }
}
