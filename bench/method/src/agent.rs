//! The process of one side of a peer: executes the orders of its bench, line by line, until the bench ends.
use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::counters::{Counters, Counts, What, processor_time};
use crate::load::{Load, Work};
use crate::peer::{Calling, Cannot, Carry, Lost, Mode, Peer, Serving, Setup};
use crate::process::{Answer, say, stay_on};

/// The command line of an agent. The bench writes it; it is not for people.
#[derive(Debug, clap::Args)]
pub struct Agent {
    /// The peer's name.
    peer: String,
    #[arg(long)]
    bytes: usize,
    #[arg(long)]
    carry: Carry,
    #[arg(long)]
    mode: Mode,
    #[arg(long)]
    outstanding: usize,
    /// The core to run on
    #[arg(long)]
    core: Option<usize>,
    /// The server's address; without it, this process is the server
    #[arg(long)]
    address: Option<String>,
}

impl Agent {
    /// Returns the peer's name.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

/// Returns the words of an [`Agent`]'s command line, in order.
pub(crate) fn arguments(
    peer: &str,
    setup: &Setup,
    core: Option<usize>,
    address: Option<&str>,
) -> Vec<String> {
    let mut words = vec!["agent".to_owned(), peer.to_owned()];
    words.extend([format!("--bytes={}", setup.bytes), format!("--carry={}", setup.carry.name())]);
    words.extend([format!("--mode={}", setup.mode.name()), format!("--outstanding={}", setup.outstanding)]);
    words.extend(core.map(|core| format!("--core={core}")));
    words.extend(address.map(|address| format!("--address={address}")));
    words
}

/// An agent's answer to an order, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The agent is ready. It says so without an order.
    Ready {
        address: String,
        transport: String,
        version: String,
        #[serde(default = "one")]
        calls_per_lap: usize,
    },
    /// The order was executed. The number is the processor time that this process has used so far, in
    /// nanoseconds.
    Done { processor_time: u64 },
    /// How long each call of a block took, in nanoseconds.
    Laps(Vec<u32>),
    /// How long a block took as a whole, in nanoseconds.
    Took(u64),
    /// What was counted.
    Counts(Counts),
    /// The peer does not support the order.
    Cannot(String),
    /// A datagram was lost, so the block is void.
    Lost(String),
    /// The order could not be followed.
    Failed(String),
}

impl Answer for Reply {
    fn checked(self) -> Result<Reply> {
        match self {
            Reply::Cannot(why) => Err(Cannot(why).into()),
            Reply::Lost(why) => Err(Lost(why).into()),
            Reply::Failed(why) => bail!(why),
            reply => Ok(reply),
        }
    }
}

fn one() -> usize {
    1
}

/// Runs a program that contains only peers. `NAME agent …` runs one side of the peer of that name.
pub fn run(peer: fn(&str) -> Option<Box<dyn Peer>>) -> ExitCode {
    #[derive(clap::Parser)]
    enum Command {
        Agent(Agent),
    }
    let Command::Agent(agent) = clap::Parser::parse();
    match main(&agent, peer(agent.peer())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}: {why:#}", agent.peer());
            ExitCode::FAILURE
        }
    }
}

/// Runs the side of `peer` that `agent` selects, until standard input ends.
pub fn main(agent: &Agent, peer: Option<Box<dyn Peer>>) -> Result<()> {
    let peer = peer.with_context(|| format!("no peer is called `{}`", agent.peer))?;
    if let Some(core) = agent.core {
        stay_on(core)?;
    }
    let mut role = match role(agent, &*peer) {
        Ok(role) => role,
        Err(why) => return say(&failure(&why)),
    };
    let (address, transport) = (role.address(), peer.transport().into());
    say(&Reply::Ready { address, transport, version: peer.version(), calls_per_lap: peer.calls_per_lap() })?;
    let mut line = String::with_capacity(64);
    let mut input = std::io::stdin().lock();
    while input.read_line(&mut line)? > 0 {
        say(&role.obey(&line).unwrap_or_else(|why| failure(&why)))?;
        line.clear();
    }
    drop(role);
    // Exits without joining the peer's threads, which may spin or block.
    std::process::exit(0);
}

fn role(agent: &Agent, peer: &dyn Peer) -> Result<Box<dyn Role>> {
    let Agent { bytes, carry, mode, outstanding, .. } = *agent;
    let setup = Setup { bytes, carry, mode, outstanding };
    let all = peer.counts_allocations();
    Ok(match &agent.address {
        None => Box::new(Server { serving: peer.serve(&setup)?, counters: None, all }),
        Some(address) => Box::new(Client { calling: peer.connect(&setup, address)?, all }),
    })
}

fn failure(why: &anyhow::Error) -> Reply {
    if let Some(why) = why.downcast_ref::<Cannot>() {
        return Reply::Cannot(why.to_string());
    }
    match why.downcast_ref::<Lost>() {
        Some(why) => Reply::Lost(why.to_string()),
        None => Reply::Failed(format!("{why:#}")),
    }
}

trait Role {
    fn address(&self) -> String;
    fn obey(&mut self, order: &str) -> Result<Reply>;
}

struct Server {
    serving: Box<dyn Serving>,
    counters: Option<Counters>,
    /// Whether allocations are counted.
    all: bool,
}

impl Role for Server {
    fn address(&self) -> String {
        self.serving.address()
    }

    fn obey(&mut self, order: &str) -> Result<Reply> {
        let mut words = order.split_whitespace();
        match (words.next(), words.next()) {
            // Counting begins first, because the rest of this is not the server's work.
            (Some("counted"), None) => {
                let counts = self.counters.take().context("`counted` before `count`")?.stop();
                return Ok(counted(counts, self.all));
            }
            (Some("active"), Some(yes)) => self.serving.active(yes == "1"),
            // Runs next to the peer's own threads, which serve meanwhile.
            (Some("burn"), Some(microseconds)) => burn(Duration::from_micros(microseconds.parse()?)),
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
    /// Whether allocations are counted.
    all: bool,
}

impl Client {
    fn time(&mut self, load: Load) -> Result<Reply> {
        let mut work = Work::from(load);
        let began = Instant::now();
        self.work(&mut work)?;
        Ok(match work {
            Work::Laps(laps) | Work::Short { laps, .. } => Reply::Laps(laps.nanoseconds().to_vec()),
            Work::Open(schedule) => Reply::Laps(schedule.latencies().to_vec()),
            Work::Window { .. } | Work::Polled { .. } | Work::Threads { .. } | Work::Burn(_) => {
                Reply::Took(began.elapsed().as_nanos() as u64)
            }
        })
    }

    fn count(&mut self, what: What, load: Load) -> Result<Reply> {
        let mut work = Work::from(load);
        let mut counters = Counters::open(what, true);
        counters.start();
        let ran = self.work(&mut work);
        let counts = counters.stop();
        ran?;
        Ok(counted(counts, self.all))
    }

    fn work(&mut self, work: &mut Work) -> Result<()> {
        match work {
            Work::Laps(laps) => self.calling.run(laps),
            Work::Window { outstanding, calls } => self.calling.window(*outstanding, *calls),
            Work::Polled { outstanding, calls } => self.calling.polled(*outstanding, *calls),
            Work::Threads { threads, calls } => self.calling.threads(*threads, *calls),
            Work::Short { laps, beside } => self.calling.short(laps, *beside),
            Work::Burn(time) => {
                burn(*time);
                Ok(())
            }
            Work::Open(schedule) => self.calling.open(schedule),
        }
    }
}

impl Role for Client {
    fn address(&self) -> String {
        String::new()
    }

    fn obey(&mut self, order: &str) -> Result<Reply> {
        let (word, rest) =
            order.trim().split_once(' ').with_context(|| format!("unknown order {order:?}"))?;
        let load = |text: &str| text.parse::<Load>().map_err(anyhow::Error::msg);
        match word {
            // These calls are neither timed nor counted.
            "warm" => {
                self.work(&mut Work::from(load(rest)?))?;
                Ok(Reply::Done { processor_time: processor_time() })
            }
            "stick" => {
                self.calling.stick(rest == "1")?;
                Ok(Reply::Done { processor_time: processor_time() })
            }
            "time" => self.time(load(rest)?),
            "count" => {
                let (what, rest) = rest.split_once(' ').context("count what?")?;
                self.count(parse(what)?, load(rest)?)
            }
            _ => bail!("unknown order {order:?}"),
        }
    }
}

fn burn(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn counted(counts: Counts, all: bool) -> Reply {
    Reply::Counts(Counts { allocations: counts.allocations.filter(|_| all), ..counts })
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
