//! The two processes of a transfer: the server of all ways, and the client that transfers.
//!
//! Both execute orders, each a line on standard input, and answer with a line of JSON. They end when their
//! standard input ends.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use farcall::Export;
use farcall_bench_method::process::{self, Answer};
use serde::{Deserialize, Serialize};

use crate::bulk::CALL_BYTES;
use crate::interface::{Cedar, CedarClient, Server};
use crate::peers::Way;

/// Runs one side, for the process that this program has started.
#[derive(Debug, clap::Args)]
pub struct Side {
    #[arg(value_enum)]
    role: Role,
    /// The core on which to stay.
    #[arg(long)]
    core: Option<usize>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Server,
    Client,
}

/// What a side says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// It has done what it was told.
    Ready,
    /// The server serves at these addresses.
    Serves(Addresses),
    /// How the transfer went.
    Took(Transfer),
    /// The order could not be executed.
    Failed(String),
}

/// How a transfer went.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Transfer {
    pub seconds: f64,
    /// The bytes of the frames that the client has sent by the cable.
    pub sent: u64,
}

/// Where the server serves.
#[derive(Debug, Serialize, Deserialize)]
pub struct Addresses {
    pub stream: String,
    pub open: String,
    pub sealed: String,
}

impl Answer for Said {
    fn checked(self) -> Result<Said> {
        match self {
            Said::Failed(why) => bail!(why),
            said => Ok(said),
        }
    }
}

/// Executes orders until there are no more.
pub fn side(side: &Side) -> Result<()> {
    let (mut exports, mut client) = (Vec::new(), None);
    process::obey(side.core, &Said::Ready, Said::Failed, |order| match side.role {
        Role::Server => serve(order, &mut exports),
        Role::Client => call(order, &mut client),
    })
}

/// `serve ADDRESS`.
fn serve(order: &str, exports: &mut Vec<Export>) -> Result<Said> {
    let at: IpAddr = order.strip_prefix("serve ").context("it serves")?.parse()?;
    let listener = TcpListener::bind((at, 0))?;
    let stream = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away ends its thread.
            std::thread::spawn(move || take(stream));
        }
    });
    let mut export = |way: Way| -> Result<String> {
        let runtime = way.runtime()?.address(SocketAddr::new(at, 0)).build()?;
        let export = runtime.export::<dyn Cedar>("Cedar", Arc::new(Server))?;
        let url = export.url();
        exports.push(export);
        Ok(url)
    };
    Ok(Said::Serves(Addresses { stream, open: export(Way::Udp)?, sealed: export(Way::UdpKeys)? }))
}

/// Takes transfers from a stream: a length, then so many bytes, which it answers with one byte.
fn take(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut length, mut room) = ([0; 8], vec![0; 65_536]);
    loop {
        stream.read_exact(&mut length)?;
        let mut left = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
        while left > 0 {
            let most = left.min(room.len());
            match stream.read(&mut room[..most])? {
                0 => return Ok(()),
                read => left -= read,
            }
        }
        stream.write_all(&[1])?;
    }
}

struct Client {
    stream: TcpStream,
    open: CedarClient,
    sealed: CedarClient,
}

/// `connect STREAM OPEN SEALED`, or `WAY THREADS BYTES`.
fn call(order: &str, client: &mut Option<Client>) -> Result<Said> {
    let words: Vec<&str> = order.split(' ').collect();
    if let ["connect", stream, open, sealed] = words[..] {
        let stream = TcpStream::connect(stream)?;
        stream.set_nodelay(true)?;
        let import = |way: Way, url: &str| anyhow::Ok(way.runtime()?.build()?.import::<dyn Cedar>(url)?);
        let (open, sealed) = (import(Way::Udp, open)?, import(Way::UdpKeys, sealed)?);
        *client = Some(Client { stream, open, sealed });
        return Ok(Said::Ready);
    }
    let [way, threads, bytes] = words[..] else { bail!("three words are wanted") };
    let (threads, bytes) = (threads.parse()?, bytes.parse()?);
    let client = client.as_mut().context("it is not connected yet")?;
    let (sent, start) = (sent()?, Instant::now());
    match way {
        "stream" => client.send(bytes)?,
        "calls" => parallel(&client.open, threads, bytes)?,
        "sealed" => parallel(&client.sealed, threads, bytes)?,
        "whole" => store(&client.open, &vec![7; bytes])?,
        _ => bail!("no such way: {way}"),
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Said::Took(Transfer { seconds, sent: self::sent()?.saturating_sub(sent) }))
}

/// Returns how many bytes this process's network namespace has sent by its cable so far.
fn sent() -> Result<u64> {
    const PATH: &str = "/proc/self/net/dev";
    let text = std::fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    let counters = text.lines().find_map(|line| line.trim().strip_prefix("far:"));
    // Eight counters of what was received come first.
    let sent = counters.and_then(|counters| counters.split_whitespace().nth(8));
    sent.and_then(|sent| sent.parse().ok()).with_context(|| format!("{PATH} has no count for the cable"))
}

impl Client {
    /// Sends so many bytes by the stream, and waits until they have arrived.
    fn send(&mut self, bytes: usize) -> Result<()> {
        self.stream.write_all(&(bytes as u64).to_be_bytes())?;
        self.stream.write_all(&vec![7; bytes])?;
        Ok(self.stream.read_exact(&mut [0])?)
    }
}

/// Sends so many bytes by calls that these threads make. Each thread makes one call after the other, and
/// takes the next part of the data when its call has returned.
fn parallel(stub: &CedarClient, threads: usize, bytes: usize) -> Result<()> {
    let (data, next) = (vec![7; bytes], AtomicUsize::new(0));
    let parts: Vec<&[u8]> = data.chunks(CALL_BYTES).collect();
    let caller = || -> Result<()> {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            store(stub, part)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..threads).map(|_| scope.spawn(caller)).collect();
        let ended =
            callers.into_iter().map(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))?);
        ended.collect()
    })
}

fn store(stub: &CedarClient, part: &[u8]) -> Result<()> {
    let stored = stub.store(part)?;
    ensure!(stored as usize == part.len(), "the server has {stored} of {} bytes", part.len());
    Ok(())
}
