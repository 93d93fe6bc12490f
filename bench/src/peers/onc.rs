//! ONC RPC by farcall, over UDP and over TCP: the same interface, the same callers, another protocol.
use std::sync::Arc;

use anyhow::Result;
use farcall_bench_method::{Calling, Mode, Peer, Serving, Setup, cannot};
use farcall_onc as onc;

use super::farcall::{Client, Echo, SPIN, Server, WORKERS};

/// One datagram holds no more.
const DATAGRAM: usize = 60_000;

pub struct Onc {
    pub stream: bool,
}

/// The peer of this name, if it is one of them.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    match name {
        "farcall-onc-udp" => Some(Box::new(Onc { stream: false })),
        "farcall-onc-tcp" => Some(Box::new(Onc { stream: true })),
        _ => None,
    }
}

impl Peer for Onc {
    fn transport(&self) -> &'static str {
        if self.stream { "tcp" } else { "udp" }
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.bytes > DATAGRAM && !self.stream {
            return cannot("one datagram is not enough");
        }
        let server = Server { data: vec![7; setup.bytes].into() };
        let mut builder = onc::Server::builder().program::<dyn Echo>(Arc::new(server)).workers(WORKERS);
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
        Ok(Box::new(Client::new(client.bind::<dyn Echo>(), setup)))
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
