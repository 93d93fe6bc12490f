//! Transfers between two machines: farcall and TCP over the very same wire, which has a delay, loses packets,
//! and may have a bottleneck.
//!
//! ```text
//! kinds      what is moved, and by which protocol
//! path       one direction of the wire: which packets arrive, and when
//! random     the numbers that decide on losses
//! tun        the devices at its ends
//! carrier    the threads that carry packets
//! link       two processes with a wire between them
//! side       what the processes do, by `ours`, `tcp` and `files`
//! measure    one transfer, block by block
//! sharing    flows and short calls through a bottleneck
//! bars       what figures must be
//! ```
mod bars;
mod carrier;
mod files;
mod kinds;
mod link;
mod measure;
mod ours;
mod path;
mod random;
mod sharing;
mod side;
mod tcp;
mod tun;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use farcall_bench_method::process::{exit_code, set_socket_buffer};
use farcall_bench_method::{Options, Row, conditions, report};
use indicatif::ProgressBar;

use kinds::{Kind, Peer};
use measure::{Cell, Limits};
use path::Shape;
use sharing::Flows;

/// Compares farcall with TCP over the very same wire. bench/README.md says how to read the results.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    side: Option<Sides>,
    #[command(flatten)]
    wire: Wire,
}

#[derive(Subcommand)]
enum Sides {
    #[command(hide = true)]
    Side(side::Side),
}

#[derive(Debug, clap::Args)]
struct Wire {
    #[command(flatten)]
    options: Options,
    /// The round trips of the wire, in milliseconds.
    #[arg(long, value_name = "MS", value_delimiter = ',', default_values_t = [0.2, 20.0, 80.0, 200.0])]
    rtt: Vec<f64>,
    /// The percentages of packets that the wire loses at random, in each direction.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [0.0, 0.1, 1.0, 5.0])]
    loss: Vec<f64>,
    /// What is moved: null, result-SIZE, argument-SIZE, items-COUNT, bulk-SIZE, get-SIZE or put-SIZE; or
    /// `none`.
    #[arg(
        long,
        value_name = "A,B|none",
        value_delimiter = ',',
        default_value = "null,result-1m,argument-1m,items-1m,bulk-8m,get-8m,put-8m,result-64m,argument-64m"
    )]
    kinds: Vec<String>,
    /// The rate of the bottleneck of all of these transfers, in Mbit/s. [default: what the machine can carry]
    #[arg(long, value_name = "MBIT")]
    rate: Option<f64>,
    /// The bytes that a bottleneck queues.
    #[arg(long, value_name = "BYTES", default_value_t = 100 << 10)]
    queue: usize,
    /// The time after which a block of transfers is abandoned, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    limit: f64,
    /// The time after which no further blocks of a cell begin, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    cell_limit: f64,
    /// The number of groups of four blocks, which give two ratios each. [default: 6, with --quick 1]
    #[arg(long)]
    groups: Option<usize>,
    /// Measure the flows through a bottleneck of this rate in Mbit/s, alone and beside TCP; 0 for none.
    #[arg(long, value_name = "MBIT", default_value_t = 50.0)]
    shared: f64,
    /// Measure this many outstanding calls through a bottleneck of 10 Mbit/s; 0 for none.
    #[arg(long, value_name = "CALLS", value_delimiter = ',', default_values_t = [1000])]
    crowd: Vec<usize>,
    /// The bytes of each of those calls, and of its result.
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    crowd_bytes: usize,
    /// How long a flow or a crowd runs, in seconds.
    #[arg(long, default_value_t = 12.0)]
    seconds: f64,
    /// The bytes of the socket buffers that farcall asks for at both ends: 212992 is what a stock Linux
    /// grants. [default: farcall's own]
    #[arg(long, value_name = "BYTES")]
    socket_buffer: Option<usize>,
    /// A file of bars. The run fails if a figure of farcall misses one.
    #[arg(long, value_name = "FILE")]
    bars: Option<PathBuf>,
    /// The command `farcall`, which copies files. Without it, `get` and `put` are left out.
    #[arg(long, value_name = "PATH")]
    command: Option<PathBuf>,
}

/// The round trip of a wire with a shared bottleneck.
const SHARED_ROUND_TRIP: Duration = Duration::from_millis(16);
/// The wire of many short calls.
const CROWD_ROUND_TRIP: Duration = Duration::from_millis(20);
const CROWD_RATE: f64 = 10e6;

/// Runs the program.
pub fn main() -> ExitCode {
    let Command { side, wire } = Command::parse();
    let ran = match side {
        Some(Sides::Side(side)) => side::side(&side),
        None => run(&wire),
    };
    exit_code("farcall-bench-wire", ran)
}

/// Measures what the options select, shows it, and fails if a bar is missed.
fn run(wire: &Wire) -> Result<()> {
    wire.socket_buffer.into_iter().for_each(set_socket_buffer);
    let bars = wire.bars.as_deref().map(bars::read).transpose()?;
    let mut run = Run::new(wire)?;
    let mut rows = run.transfers()?;
    rows.extend(run.flows()?);
    run.progress.finish_and_clear();
    let mut lines = conditions::conditions_on("two TUN devices, a thread for each direction", &[]);
    lines.push(run.method());
    lines.extend(run.skipped);
    let rows = report(rows, &lines, &[], &wire.options)?;
    let missed = bars.map(|bars| bars.missed(&rows)).unwrap_or_default();
    missed.iter().for_each(|what| eprintln!("missed: {what}"));
    ensure!(missed.is_empty(), "{} figures miss their bars", missed.len());
    Ok(())
}

struct Run<'a> {
    wire: &'a Wire,
    kinds: Vec<Kind>,
    peers: Vec<Peer>,
    files: tempfile::TempDir,
    progress: ProgressBar,
    /// What is not measured, and why.
    skipped: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(wire: &'a Wire) -> Result<Run<'a>> {
        let mut skipped = Vec::new();
        let wanted = wire.kinds.iter().filter(|kind| *kind != "none");
        let mut kinds: Vec<Kind> =
            wanted.map(|kind| kind.parse().map_err(anyhow::Error::msg)).collect::<Result<_>>()?;
        if wire.command.is_none() && kinds.iter().any(|kind| kind.is_by_command()) {
            kinds.retain(|kind| !kind.is_by_command());
            skipped
                .push("skipped: get and put, because --command does not name the command `farcall`".into());
        }
        ensure!(Peer::Cubic.is_here(), "this kernel has no TCP cubic, with which everything is compared");
        let names: Vec<&str> = Peer::ALL.iter().map(|peer| peer.name()).collect();
        let wanted = wire.options.peers(&names);
        let chosen = |peer: &Peer| *peer != Peer::Bbr || wanted.iter().any(|name| name == peer.name());
        let (peers, missing): (Vec<Peer>, Vec<Peer>) =
            Peer::ALL.into_iter().filter(chosen).partition(|peer| peer.is_here());
        skipped.extend(missing.iter().map(|peer| format!("skipped: this kernel has no {}", peer.name())));
        let files = files::prepare(&kinds, wire.command.as_deref())?;
        let cells = kinds.len() * wire.rtt.len() * wire.loss.len();
        let flows = usize::from(wire.shared > 0.0) + wire.crowd.iter().filter(|calls| **calls > 0).count();
        let progress = ProgressBar::new((cells + flows) as u64);
        Ok(Run { wire, kinds, peers, files, progress, skipped })
    }

    fn groups(&self) -> usize {
        self.wire.groups.unwrap_or(if self.wire.options.quick { 1 } else { 6 })
    }

    /// Measures all transfers over all wires.
    fn transfers(&mut self) -> Result<Vec<Row>> {
        let wire = self.wire;
        let limits = Limits {
            groups: self.groups(),
            block: Duration::from_secs_f64(wire.limit),
            cell: Duration::from_secs_f64(wire.cell_limit),
        };
        let mut rows = Vec::new();
        for &rtt in &wire.rtt {
            for &loss in &wire.loss {
                let shape = Shape {
                    round_trip: Duration::from_secs_f64(rtt / 1e3),
                    loss: loss / 100.0,
                    rate: wire.rate.map(|rate| rate * 1e6),
                    queue: wire.queue,
                };
                for &kind in &self.kinds {
                    self.progress.set_message(format!("{kind}, {rtt} ms, {loss} %"));
                    let cell = Cell { shape, kind, limits, files: self.files.path() };
                    let log = |line: String| self.progress.println(format!("{line} ({rtt} ms, {loss} %)"));
                    rows.extend(measure::cell(&cell, &self.peers, log)?);
                    self.progress.inc(1);
                }
            }
        }
        Ok(rows)
    }

    /// Measures flows and crowds.
    fn flows(&mut self) -> Result<Vec<Row>> {
        let wire = self.wire;
        let flows = |round_trip, rate| Flows {
            shape: Shape { round_trip, loss: 0.0, rate: Some(rate), queue: wire.queue },
            time: Duration::from_secs_f64(wire.seconds),
            repetitions: if wire.options.quick { 1 } else { 3 },
            files: self.files.path(),
        };
        let mut rows = Vec::new();
        if wire.shared > 0.0 {
            self.progress.set_message("flows");
            rows.extend(flows(SHARED_ROUND_TRIP, wire.shared * 1e6).shares(&self.peers)?);
            self.progress.inc(1);
        }
        for &calls in wire.crowd.iter().filter(|calls| **calls > 0) {
            self.progress.set_message(format!("{calls} outstanding calls"));
            for &peer in &self.peers {
                rows.push(flows(CROWD_ROUND_TRIP, CROWD_RATE).crowd(peer, (calls, wire.crowd_bytes))?);
            }
            self.progress.inc(1);
        }
        Ok(rows)
    }

    fn method(&self) -> String {
        let blocks = self.groups() * 2;
        format!(
            "each ratio to TCP cubic, the median of at most {blocks} pairs of blocks; a block is abandoned \
             after {} s; packets of at most 1,500 bytes",
            self.wire.limit
        )
    }
}
