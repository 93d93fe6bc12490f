//! Controls one peer: a server process and a client process that execute orders.
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::agent::{self, Reply};
use crate::counters::{Counts, What};
use crate::latencies::Latencies;
use crate::load::Load;
use crate::options::Pin;
use crate::peer::{Carry, Lost, Mode, Setup};
use crate::process::Process;
use crate::row::{Row, rounded};
use crate::stats;

/// The longest time for a block of bare system calls, many times as long as one of them should take. Their
/// sockets have no time-outs, because arming one takes time in each call.
const BARE_PATIENCE: Duration = Duration::from_secs(10);

/// One cell of a bench's table: everything but the peer.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The settings that both sides must have in common.
    pub setup: Setup,
    /// The cores of the two sides.
    pub pin: Pin,
}

/// The numbers of calls of a block.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// The untimed calls before the block. They refill the caches, which the last block's peer has used.
    pub warm: usize,
    /// The timed or counted calls.
    pub calls: usize,
}

/// A peer's two running processes. They are idle except during a block.
pub struct Pair {
    name: String,
    transport: String,
    version: String,
    calls_per_lap: usize,
    server: Process<Reply>,
    client: Process<Reply>,
    /// The words that started the client, to start another one.
    start_client: (PathBuf, Vec<String>),
    neighbour: Option<Process<Reply>>,
}

impl Pair {
    /// Starts `program agent NAME` twice, and connects client and server. Fails with [`Cannot`] if the peer
    /// does not support the cell.
    pub fn start(program: &Path, name: &str, cell: &Cell) -> Result<Pair> {
        let cores = cell.pin.cores();
        let start = |core, address: Option<&str>| {
            let mut process =
                Process::<Reply>::start(program, &agent::arguments(name, &cell.setup, core, address))?;
            match process.hear()? {
                ready @ Reply::Ready { .. } => Ok((process, ready)),
                _ => bail!("it is not ready"),
            }
        };
        let (mut server, ready) =
            start(cores.map(|c| c.1), None).with_context(|| format!("the server of {name}"))?;
        let Reply::Ready { address, transport, version, calls_per_lap } = ready else {
            bail!("the server of {name} is not ready");
        };
        // A server that spins may have to run to accept the connection.
        server.order("active 1")?;
        let (client, _) =
            start(cores.map(|c| c.0), Some(&address)).with_context(|| format!("the client of {name}"))?;
        let words = agent::arguments(name, &cell.setup, cores.map(|c| c.0), Some(&address));
        server.order("active 0")?;
        let start_client = (program.to_owned(), words);
        let name = name.into();
        Ok(Pair { name, transport, version, calls_per_lap, server, client, start_client, neighbour: None })
    }

    /// Returns the peer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns name and version, for the conditions; `None` if the peer has no version.
    pub fn version(&self) -> Option<String> {
        (!self.version.is_empty()).then(|| format!("{} {}", self.name, self.version))
    }

    /// Returns the number of calls in a lap ([`crate::Peer::calls_per_lap`]).
    pub fn calls_per_lap(&self) -> usize {
        self.calls_per_lap
    }

    /// Runs one block of single calls, enters it in `tally`, and returns the nanoseconds of a call in its
    /// middle laps ([`stats::midmean`]).
    pub fn time(&mut self, block: Block, tally: &mut Tally) -> Result<f64> {
        let (warm, load) = (Load::Laps { calls: block.warm }, Load::Laps { calls: block.calls });
        let (reply, server_time) = self.block(warm, load)?;
        let Reply::Laps(mut laps) = reply else { bail!("{}: expected laps, not {reply:?}", self.name) };
        tally.add(&laps, self.calls_per_lap, server_time, block);
        Ok(stats::midmean(&mut laps) / self.calls_per_lap as f64)
    }

    /// Runs one block of `load` after one of `warm`, and returns its calls per second, and the processor
    /// time of the server per call of either in nanoseconds.
    pub fn rate(&mut self, warm: Load, load: Load) -> Result<(f64, f64)> {
        let (reply, server_time) = self.block(warm, load)?;
        let Reply::Took(nanoseconds) = reply else { bail!("{}: expected a time, not {reply:?}", self.name) };
        let calls = (warm.calls() + load.calls()) as f64;
        Ok((load.calls() as f64 * 1e9 / nanoseconds.max(1) as f64, server_time as f64 / calls))
    }

    /// Runs one block of an open loop, or of short calls, and returns the latencies of those in nanoseconds.
    pub fn latencies(&mut self, warm: Load, load: Load) -> Result<Vec<u32>> {
        match self.block(warm, load)?.0 {
            Reply::Laps(latencies) => Ok(latencies),
            other => bail!("{}: expected latencies, not {other:?}", self.name),
        }
    }

    /// Runs a block of `load` while a second client, on the core of the first, runs one of `other`, which
    /// takes longer. Returns the calls per second of both.
    pub fn rates_beside(&mut self, load: Load, other: Load) -> Result<[f64; 2]> {
        self.start_neighbour()?;
        let neighbour = self.neighbour.as_mut().context("it was started just now")?;
        self.server.done("active 1")?;
        neighbour.tell(&format!("time {other}"))?;
        self.client.done(&format!("warm {}", load.of(load.calls().div_ceil(10))))?;
        let (ours, theirs) = (self.client.order(&format!("time {load}"))?, neighbour.hear()?);
        self.server.done("active 0")?;
        let (Reply::Took(ours), Reply::Took(theirs)) = (&ours, &theirs) else {
            bail!("{}: expected times, not {ours:?} and {theirs:?}", self.name);
        };
        let rate = |load: Load, took: u64| load.calls() as f64 * 1e9 / took.max(1) as f64;
        match ours < theirs {
            true => Ok([rate(load, *ours), rate(other, *theirs)]),
            false => bail!("the second client had ended before the first"),
        }
    }

    /// Makes a call get stuck in the server, or waits until it is no longer stuck.
    pub fn stick(&mut self, begin: bool) -> Result<()> {
        self.client.done(&format!("stick {}", u8::from(begin))).map(drop)
    }

    /// Runs a block as [`latencies`](Pair::latencies) does, while the cores of client and server are kept
    /// busy as well: by a second client and by the server's main thread.
    pub fn latencies_beside_burning(&mut self, time: Duration, load: Load) -> Result<Vec<u32>> {
        self.start_neighbour()?;
        let neighbour = self.neighbour.as_mut().context("it was started just now")?;
        let burn = Load::Burn { calls: time.as_micros() as usize };
        self.server.done("active 1")?;
        self.server.tell(&burn.to_string())?;
        neighbour.tell(&format!("time {burn}"))?;
        let began = Instant::now();
        let reply = self.client.order(&format!("time {load}"))?;
        ensure!(began.elapsed() < time, "{}: what burnt beside the calls had ended before them", self.name);
        self.server.hear()?;
        neighbour.hear()?;
        self.server.done("active 0")?;
        match reply {
            Reply::Laps(latencies) => Ok(latencies),
            other => bail!("{}: expected latencies, not {other:?}", self.name),
        }
    }

    fn start_neighbour(&mut self) -> Result<()> {
        if self.neighbour.is_none() {
            let (program, words) = &self.start_client;
            let mut neighbour = Process::<Reply>::start(program, words)?;
            neighbour.hear()?;
            self.neighbour = Some(neighbour);
        }
        Ok(())
    }

    /// Returns the client's answer to a block, and the processor time that the server used.
    fn block(&mut self, warm: Load, load: Load) -> Result<(Reply, u64)> {
        let before = self.server.done("active 1")?;
        self.tell(&format!("warm {warm}"))?;
        let reply = self.tell(&format!("time {load}"))?;
        Ok((reply, self.server.done("active 0")?.saturating_sub(before)))
    }

    /// Tells the client what to do. If a peer that makes bare system calls hangs, a datagram was lost. Then
    /// this pair is of no use any more.
    fn tell(&mut self, order: &str) -> Result<Reply> {
        if !self.name.starts_with("raw") {
            return self.client.order(order);
        }
        self.client.tell(order)?;
        self.client.answer_within(BARE_PATIENCE)?.ok_or_else(|| Lost::in_time().into())
    }

    /// Counts one block, both sides together. Timed blocks cannot be counted: see [`What`].
    pub fn count(&mut self, what: What, warm: Load, load: Load) -> Result<Counts> {
        let [client, server] = self.count_each(what, warm, load)?;
        Ok(client.and(server))
    }

    /// Counts one block, client and server separately.
    pub fn count_each(&mut self, what: What, warm: Load, load: Load) -> Result<[Counts; 2]> {
        self.server.done("active 1")?;
        self.client.done(&format!("warm {warm}"))?;
        self.server.done(&format!("count {}", what.name()))?;
        let client = self.client.counts(&format!("count {} {load}", what.name()))?;
        let server = self.server.counts("counted")?;
        self.server.done("active 0")?;
        Ok([client, server])
    }

    /// Returns a row with the conditions of this measurement, and without figures.
    pub fn row(&self, bench: &str, cell: &Cell) -> Row {
        Row {
            bench: bench.into(),
            peer: self.name.clone(),
            transport: Some(self.transport.clone()),
            mode: Some(cell.setup.mode),
            bytes: Some(cell.setup.bytes),
            direction: (cell.setup.carry != Carry::Both).then(|| cell.setup.carry.name().into()),
            pin: Some(cell.pin.to_string()),
            ..Row::default()
        }
    }
}

/// The sums over a peer's timed blocks. They remain when the pair is started again.
#[derive(Default)]
pub struct Tally {
    laps: Latencies,
    calls_per_lap: usize,
    server_time: u64,
    calls: u64,
}

impl Tally {
    fn add(&mut self, laps: &[u32], calls_per_lap: usize, server_time: u64, block: Block) {
        self.laps.add(laps);
        self.calls_per_lap = calls_per_lap;
        self.server_time += server_time;
        self.calls += ((block.warm + block.calls) * calls_per_lap) as u64;
    }

    /// Enters times into the row that [`Pair::row`] gave.
    pub fn enter(&self, row: &mut Row) {
        self.laps.enter(row);
        // Laps of several calls have no meaningful tail.
        if self.calls_per_lap > 1 {
            let mean = row.p50_us.map(|lap| rounded(lap / self.calls_per_lap as f64));
            (row.p50_us, row.p99_us, row.p999_us) = (mean, None, None);
        }
        // The processor time of a server that spins says nothing.
        if row.mode == Some(Mode::Block) && self.server_time > 0 {
            row.server_cpu_us = Some(rounded(self.server_time as f64 / 1e3 / self.calls as f64));
        }
    }
}

impl Process<Reply> {
    /// Enters the processor time that the server has used.
    fn done(&mut self, order: &str) -> Result<u64> {
        match self.order(order)? {
            Reply::Done { processor_time } => Ok(processor_time),
            other => bail!("expected `Done` to `{order}`, not {other:?}"),
        }
    }

    fn counts(&mut self, order: &str) -> Result<Counts> {
        match self.order(order)? {
            Reply::Counts(counts) => Ok(counts),
            other => bail!("expected counts to `{order}`, not {other:?}"),
        }
    }
}
