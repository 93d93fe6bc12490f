//! The process of one side of a peer: does what its bench orders, line by line, until the bench is gone.
use std::io::{BufRead, Write};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::counters::{Counters, Counts, What, processor_time};
use crate::peer::{Calling, Laps, Mode, Peer, Serving, Setup};

/// The command line of an agent. The bench writes it; people have no use for it.
#[derive(Debug, clap::Args)]
pub struct Agent {
    /// The peer's name.
    peer: String,
    #[arg(long)]
    bytes: usize,
    #[arg(long)]
    mode: Mode,
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// Where the server is; without it, this is the server.
    #[arg(long)]
    address: Option<String>,
}

impl Agent {
    /// Which peer it is to be.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

/// The words of an [`Agent`]'s command line, in order.
pub(crate) fn arguments(peer: &str, setup: &Setup, core: Option<usize>, address: Option<&str>) -> Vec<String> {
    let mut words = vec![peer.to_owned()];
    words.extend([format!("--bytes={}", setup.bytes), format!("--mode={}", setup.mode.name())]);
    words.extend(core.map(|core| format!("--core={core}")));
    words.extend(address.map(|address| format!("--address={address}")));
    words
}

/// What an agent answers to each order, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Unasked, when it runs.
    Ready { address: String, transport: String, version: String },
    /// Done; the processor time that this process has used so far, in nanoseconds.
    Done { processor_time: u64 },
    /// The laps of a block, in nanoseconds.
    Laps(Vec<u32>),
    /// What was counted.
    Counts(Counts),
    /// The order could not be followed.
    Failed(String),
}

/// Runs the side of `peer` that `agent` tells, until standard input ends.
pub fn main(agent: &Agent, peer: Option<Box<dyn Peer>>) -> Result<()> {
    let peer = peer.with_context(|| format!("no peer is called `{}`", agent.peer))?;
    if let Some(core) = agent.core {
        stay_on(core)?;
    }
    let setup = Setup { bytes: agent.bytes, mode: agent.mode };
    let mut role: Box<dyn Role> = match &agent.address {
        None => Box::new(Server { serving: peer.serve(&setup)?, counters: None }),
        Some(address) => Box::new(Client { calling: peer.connect(&setup, address)? }),
    };
    let (address, transport) = (role.address(), peer.transport().into());
    reply(&Reply::Ready { address, transport, version: peer.version() })?;
    let mut line = String::with_capacity(64);
    let mut input = std::io::stdin().lock();
    while input.read_line(&mut line)? > 0 {
        reply(&role.obey(&line).unwrap_or_else(|why| Reply::Failed(format!("{why:#}"))))?;
        line.clear();
    }
    // A spinning or blocked thread of the peer's must not keep us.
    std::process::exit(0);
}

fn reply(reply: &Reply) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, reply)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

trait Role {
    fn address(&self) -> String;
    fn obey(&mut self, order: &str) -> Result<Reply>;
}

struct Server {
    serving: Box<dyn Serving>,
    counters: Option<Counters>,
}

impl Role for Server {
    fn address(&self) -> String {
        self.serving.address()
    }

    fn obey(&mut self, order: &str) -> Result<Reply> {
        let mut words = order.split_whitespace();
        match (words.next(), words.next()) {
            // First of all: what else happens here is not the server's work.
            (Some("counted"), None) => {
                return Ok(Reply::Counts(self.counters.take().context("`counted` before `count`")?.stop()));
            }
            (Some("active"), Some(yes)) => self.serving.active(yes == "1"),
            (Some("count"), Some(what)) => {
                let counters = self.counters.insert(Counters::open(parse(what)?, false));
                counters.start();
            }
            _ => bail!("unknown order {order:?}"),
        }
        Ok(Reply::Done { processor_time: processor_time() })
    }
}

struct Client {
    calling: Box<dyn Calling>,
}

impl Client {
    /// Calls that are neither timed nor counted.
    fn warm(&mut self, calls: &str) -> Result<Reply> {
        self.calling.run(&mut Laps::new(calls.parse()?))?;
        Ok(Reply::Done { processor_time: processor_time() })
    }

    fn time(&mut self, calls: &str) -> Result<Reply> {
        let mut laps = Laps::new(calls.parse()?);
        self.calling.run(&mut laps)?;
        Ok(Reply::Laps(laps.nanoseconds().to_vec()))
    }

    fn count(&mut self, what: &str, calls: &str) -> Result<Reply> {
        let mut laps = Laps::new(calls.parse()?);
        let mut counters = Counters::open(parse(what)?, true);
        counters.start();
        let ran = self.calling.run(&mut laps);
        let counts = counters.stop();
        ran?;
        Ok(Reply::Counts(counts))
    }
}

impl Role for Client {
    fn address(&self) -> String {
        String::new()
    }

    fn obey(&mut self, order: &str) -> Result<Reply> {
        let words: Vec<&str> = order.split_whitespace().collect();
        match *words {
            ["warm", calls] => self.warm(calls),
            ["time", calls] => self.time(calls),
            ["count", what, calls] => self.count(what, calls),
            _ => bail!("unknown order {order:?}"),
        }
    }
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Instructions => "instructions",
            What::Events => "events",
        }
    }
}

fn parse(what: &str) -> Result<What> {
    let known = [What::Instructions, What::Events];
    known.into_iter().find(|w| w.name() == what).with_context(|| format!("cannot count {what:?}"))
}

/// Keeps this thread, and those that it will start, on one core.
#[cfg(target_os = "linux")]
fn stay_on(core: usize) -> Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if core >= CpuSet::MAX_CPU {
        bail!("there is no core {core}");
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot stay on core {core}"))
}

#[cfg(not(target_os = "linux"))]
fn stay_on(core: usize) -> Result<()> {
    bail!("cannot stay on core {core}: pinning is done on Linux only; use --pin none")
}
