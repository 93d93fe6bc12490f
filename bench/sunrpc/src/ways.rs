//! The ways to make a call: their servers, and their callers.

#[cfg(c)]
use std::net::TcpStream;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use farcall_bench_method::enlarge;
use farcall_onc as onc;
use serde::{Deserialize, Serialize};

use crate::custom;
#[cfg(c)]
use crate::ffi;

// The file's program is COST, version ONE.
mod cost {
    farcall_onc::include_x!("src/cost.x");
}

/// After this time without a reply, a run has failed: nothing is lost between the ends.
pub const PATIENCE: Duration = Duration::from_secs(25);

/// How many bytes of argument a procedure takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Size {
    None,
    Two,
    Four,
}

impl Size {
    /// All sizes, in the order of the tables.
    pub const ALL: [Size; 3] = [Size::None, Size::Two, Size::Four];

    /// Returns the number of bytes.
    pub fn bytes(self) -> i32 {
        match self {
            Size::None => 0,
            Size::Two => 2,
            Size::Four => 4,
        }
    }
}

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Language {
    C,
    Rust,
}

/// A way to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// Program 2: Sun RPC by libtirpc.
    Tirpc,
    /// Program 2: Sun RPC by farcall-onc.
    Farcall,
    /// Programs 3 (UDP) and 4 (TCP): a custom server. `polls` says whether a poll stands before each receive.
    Custom { language: Language, tcp: bool, polls: bool },
}

impl Way {
    /// All ways.
    pub fn all() -> Vec<Way> {
        let custom = [false, true].into_iter().flat_map(|tcp| {
            [false, true].into_iter().flat_map(move |polls| {
                [Language::C, Language::Rust].map(move |language| Way::Custom { language, tcp, polls })
            })
        });
        [Way::Tirpc, Way::Farcall].into_iter().chain(custom).collect()
    }

    /// Returns why this way cannot be measured, if it cannot.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Way::Custom { language: Language::C, .. } if cfg!(not(c)) => {
                Some("there was no C compiler when this was built")
            }
            Way::Tirpc if cfg!(not(libtirpc)) => {
                Some("there was no C compiler, no rpcgen or no libtirpc when this was built")
            }
            _ => None,
        }
    }
}

/// Where the servers are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Addresses {
    tirpc: Option<SocketAddrV4>,
    farcall: SocketAddrV4,
    /// Of the C program: UDP and TCP.
    c: Option<[SocketAddrV4; 2]>,
    /// Of the Rust program: UDP and TCP.
    rust: [SocketAddrV4; 2],
}

/// All servers of a process. Those that are threads end with the process.
pub struct Serving {
    pub addresses: Addresses,
    _farcall: onc::Server,
}

impl Serving {
    /// Starts all servers.
    pub fn start(at: Ipv4Addr) -> Result<Serving> {
        let server = onc::Server::builder().program::<dyn cost::One>(std::sync::Arc::new(Procedures));
        let server = server.udp(SocketAddr::from((at, 0))).start()?;
        let farcall = v4(server.udp().context("farcall serves no UDP socket")?)?;
        let rust = (udp(at)?, TcpListener::bind((at, 0))?);
        let addresses = Addresses {
            tirpc: tirpc(at)?,
            farcall,
            c: c(at)?,
            rust: [v4(rust.0.local_addr()?)?, v4(rust.1.local_addr()?)?],
        };
        std::thread::spawn(move || custom::serve_datagrams(&rust.0));
        serve_connections(rust.1, custom::serve_connection);
        Ok(Serving { addresses, _farcall: server })
    }
}

#[cfg(libtirpc)]
fn tirpc(at: Ipv4Addr) -> Result<Option<SocketAddrV4>> {
    let socket = udp(at)?;
    let address = v4(socket.local_addr()?)?;
    std::thread::spawn(move || ffi::serve_sun(socket));
    Ok(Some(address))
}

#[cfg(not(libtirpc))]
fn tirpc(_: Ipv4Addr) -> Result<Option<SocketAddrV4>> {
    Ok(None)
}

#[cfg(c)]
fn c(at: Ipv4Addr) -> Result<Option<[SocketAddrV4; 2]>> {
    let (socket, listener) = (udp(at)?, TcpListener::bind((at, 0))?);
    let addresses = [v4(socket.local_addr()?)?, v4(listener.local_addr()?)?];
    std::thread::spawn(move || ffi::serve_datagrams(socket));
    serve_connections(listener, |connection| {
        ffi::serve_connection(connection);
        Ok(())
    });
    Ok(Some(addresses))
}

#[cfg(not(c))]
fn c(_: Ipv4Addr) -> Result<Option<[SocketAddrV4; 2]>> {
    Ok(None)
}

/// Serves each connection by a thread of its own. A connection that fails ends its thread.
fn serve_connections(listener: TcpListener, serve: fn(std::net::TcpStream) -> std::io::Result<()>) {
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || serve(connection));
        }
    });
}

/// Opens a UDP socket that loses nothing for want of room.
fn udp(at: Ipv4Addr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((at, 0))?;
    enlarge(&socket);
    Ok(socket)
}

fn v4(address: SocketAddr) -> Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(address) => anyhow::bail!("{address} is no address of IPv4"),
    }
}

/// The procedures of program 2 in Rust.
struct Procedures;

impl cost::One for Procedures {
    fn none(&self) -> onc::Result<()> {
        Ok(())
    }

    fn two(&self, _: i16) -> onc::Result<()> {
        Ok(())
    }

    fn four(&self, _: i32) -> onc::Result<()> {
        Ok(())
    }
}

/// Makes calls.
pub trait Caller {
    /// Makes so many calls of the procedure of this size, one after another.
    fn call(&mut self, size: Size, calls: u32) -> Result<()>;
}

/// Returns a caller with a socket, or a connection, of its own.
pub fn connect(way: Way, addresses: &Addresses) -> Result<Box<dyn Caller>> {
    match way {
        Way::Farcall => {
            let client = onc::Client::builder().connect(&format!("udp://{}", addresses.farcall))?;
            Ok(Box::new(client.bind::<dyn cost::One>()))
        }
        Way::Custom { language: Language::Rust, tcp: false, polls } => {
            Ok(Box::new(custom::Datagrams::new(addresses.rust[0], polls)?))
        }
        Way::Custom { language: Language::Rust, tcp: true, polls } => {
            Ok(Box::new(custom::Connection::new(addresses.rust[1], polls)?))
        }
        #[cfg(libtirpc)]
        Way::Tirpc => {
            let to = addresses.tirpc.context("libtirpc serves nothing")?;
            Ok(Box::new(ffi::Sun::new(UdpSocket::bind("0.0.0.0:0")?, to)?))
        }
        #[cfg(c)]
        Way::Custom { language: Language::C, tcp, polls } => {
            let [datagrams, connections] = addresses.c.context("the C program serves nothing")?;
            if tcp {
                let connection = TcpStream::connect(connections)?;
                connection.set_read_timeout(Some(PATIENCE))?;
                return Ok(Box::new(C::Connection { connection, polls }));
            }
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(C::Datagrams { socket, to: datagrams, polls }))
        }
        #[allow(unreachable_patterns)]
        way => anyhow::bail!(way.missing().unwrap_or("it cannot be called")),
    }
}

impl Caller for cost::OneClient {
    fn call(&mut self, size: Size, calls: u32) -> Result<()> {
        for call in 0..calls {
            match size {
                Size::None => cost::One::none(self)?,
                Size::Two => cost::One::two(self, call as i16)?,
                Size::Four => cost::One::four(self, call as i32)?,
            }
        }
        Ok(())
    }
}

#[cfg(libtirpc)]
impl Caller for ffi::Sun {
    fn call(&mut self, size: Size, calls: u32) -> Result<()> {
        ffi::Sun::call(self, size.bytes(), calls)
    }
}

/// A caller by the C program.
#[cfg(c)]
enum C {
    Datagrams { socket: UdpSocket, to: SocketAddrV4, polls: bool },
    Connection { connection: TcpStream, polls: bool },
}

#[cfg(c)]
impl Caller for C {
    fn call(&mut self, size: Size, calls: u32) -> Result<()> {
        match self {
            C::Datagrams { socket, to, polls } => {
                ffi::call_datagrams(socket, *to, *polls, size.bytes(), calls)
            }
            C::Connection { connection, polls } => {
                ffi::call_connection(connection, *polls, size.bytes(), calls)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of each size has its reply in each way, so all clients and servers agree on their messages.
    #[test]
    fn all_ways_call() {
        let serving = Serving::start(Ipv4Addr::LOCALHOST).unwrap();
        for way in Way::all().into_iter().filter(|way| way.missing().is_none()) {
            let mut caller = connect(way, &serving.addresses).unwrap();
            for size in Size::ALL {
                caller.call(size, 10).unwrap_or_else(|why| panic!("{way:?} {size:?}: {why:#}"));
            }
        }
    }
}
