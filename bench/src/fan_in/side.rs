//! The processes: one serves, the others have clients.
use std::net::UdpSocket;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farcall::Export;
use farcall_bench_method::process::{self, Answer};
use farcall_bench_method::{Carry, Lost, Mode, Setup, enlarge};
use serde::{Deserialize, Serialize};

use super::tally::Tally;
use crate::peers::farcall::{Echo, EchoClient, Farcall, Server};

/// The bytes of a call and of its result.
const BYTES: usize = 32;
/// The time after which a bare datagram counts as lost.
const LOST: Duration = Duration::from_secs(2);

/// The command line of a side. The bench writes it; it is not for people.
#[derive(Debug, clap::Args)]
pub struct Side {}

/// How the clients call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peer {
    /// System calls on UDP sockets, and one thread that serves.
    Raw,
    Udp,
    SharedMemory,
}

impl Peer {
    pub const ALL: [Peer; 3] = [Peer::Raw, Peer::Udp, Peer::SharedMemory];

    pub fn name(self) -> &'static str {
        match self {
            Peer::Raw => "raw",
            Peer::Udp => "farcall",
            Peer::SharedMemory => "farcall-shm",
        }
    }

    pub fn transport(self) -> &'static str {
        if self == Peer::SharedMemory { "shared memory" } else { "udp" }
    }

    fn farcall(self) -> Farcall {
        Farcall { shared: self == Peer::SharedMemory, level: None }
    }
}

/// What a side is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    Serve(Peer),
    /// Connect this many clients to the server at this address.
    Connect {
        peer: Peer,
        clients: usize,
        address: String,
    },
    /// Let all clients call for this long.
    Call(Duration),
}

/// What a side says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    Ready,
    Serving(String),
    Connected,
    Called(Tally),
    /// A bare client lost a datagram, so the round is void.
    Lost,
    Failed(String),
}

impl Answer for Said {
    fn checked(self) -> Result<Said> {
        match self {
            Said::Lost => Err(Lost::in_time().into()),
            Said::Failed(why) => bail!(why),
            said => Ok(said),
        }
    }
}

/// A client, which makes one call.
type Client = Box<dyn FnMut() -> Result<()> + Send>;

/// Runs a side until standard input ends.
pub fn side(_: &Side) -> Result<()> {
    let (mut exports, mut clients): (Vec<Export>, Vec<Client>) = (Vec::new(), Vec::new());
    process::obey(None, &Said::Ready, Said::Failed, |order| match serde_json::from_str(order)? {
        Order::Serve(peer) => Ok(Said::Serving(serve(peer, &mut exports)?)),
        Order::Connect { peer, clients: many, address } => {
            clients = (0..many).map(|_| connect(peer, &address)).collect::<Result<_>>()?;
            Ok(Said::Connected)
        }
        Order::Call(time) => match call(&mut clients, time) {
            Err(why) if why.is::<Lost>() => Ok(Said::Lost),
            called => Ok(Said::Called(called?)),
        },
    })?;
    // Exits without waiting for the server's threads.
    std::process::exit(0)
}

fn setup() -> Setup {
    Setup { bytes: BYTES, carry: Carry::Both, mode: Mode::Block, outstanding: 1 }
}

fn serve(peer: Peer, exports: &mut Vec<Export>) -> Result<String> {
    if peer == Peer::Raw {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        enlarge(&socket);
        let address = socket.local_addr()?.to_string();
        std::thread::spawn(move || -> std::io::Result<()> {
            let mut buffer = [0; 2048];
            loop {
                let (length, client) = socket.recv_from(&mut buffer)?;
                socket.send_to(&buffer[..length], client)?;
            }
        });
        return Ok(address);
    }
    let runtime = peer.farcall().runtime(&setup())?;
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Server::default()))?;
    let url = export.url();
    exports.push(export);
    Ok(url)
}

/// Returns a client with an endpoint of its own.
fn connect(peer: Peer, address: &str) -> Result<Client> {
    if peer == Peer::Raw {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(LOST))?;
        return Ok(Box::new(move || {
            socket.send(&[7; BYTES])?;
            Lost::unless(socket.recv(&mut [0; BYTES])).map(drop)
        }));
    }
    let runtime = peer.farcall().runtime(&setup())?;
    let name =
        if peer == Peer::SharedMemory { address.replacen("udp://", "shm://", 1) } else { address.into() };
    let echo: EchoClient = match runtime.import::<dyn Echo>(&name) {
        // A server has shared memory for some clients only. Others call it over UDP.
        Err(_) if peer == Peer::SharedMemory => runtime.import::<dyn Echo>(address)?,
        imported => imported?,
    };
    Ok(Box::new(move || {
        std::hint::black_box(echo.echo(&[7; BYTES])?);
        let _ = &runtime;
        Ok(())
    }))
}

/// Lets all clients call at once, each in a thread of its own.
fn call(clients: &mut [Client], time: Duration) -> Result<Tally> {
    let (start, mut all) = (Barrier::new(clients.len()), Tally::default());
    std::thread::scope(|scope| {
        let threads = clients.iter_mut().map(|client| {
            let start = &start;
            std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, move || {
                start.wait();
                let (mut tally, start) = (Tally::of_client(time), Instant::now());
                let mut began = start;
                while began - start < time {
                    client()?;
                    let ended = Instant::now();
                    tally.note(ended - began);
                    began = ended;
                }
                anyhow::Ok(tally)
            })
        });
        let threads = threads.collect::<std::io::Result<Vec<_>>>().context("no thread for each client")?;
        for thread in threads {
            all.add(&thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
        }
        anyhow::Ok(())
    })?;
    Ok(all)
}
