//! One call outstanding: farcall and its peers beside raw sockets.
use std::path::PathBuf;

use anyhow::Result;
use farcall_bench_method::counters::{Counts, What};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Block, Cell, Mode, Options, Pair, Pin, Row, Setup, Tally, chart, conditions, report};
use indicatif::{ProgressBar, ProgressStyle};

use crate::peers::{self, CONTROL, DEFAULT, FARCALL, RAW};

/// How far raw's user instructions may lie from what they are known to be.
const RAW_TOLERANCE: f64 = 0.05;
/// How often a cell's processes are started anew: the place that a heap or a stack happened to get
/// must not make one peer lucky throughout.
const ROUNDS: usize = 4;
/// How far from 1 the ratio of raw to itself may lie.
const CONTROL_TOLERANCE: f64 = 0.02;

#[derive(Debug, clap::Args)]
pub struct Latency {
    #[command(flatten)]
    options: Options,
    /// Payloads of the call and of its result; 0 is the null call.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 32, 400, 4000])]
    bytes: Vec<usize>,
    /// How both sides wait.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Block, Mode::Spin])]
    mode: Vec<Mode>,
    /// User instructions that a raw blocking round trip is known to take, both sides, its one reading
    /// of the clock included: a run in which it takes others measures something else, and is void.
    #[arg(long, value_name = "COUNT", default_value_t = 413)]
    raw_instructions: u32,
}

/// Measures all cells that the options ask for, and shows them.
pub fn run(latency: &Latency) -> Result<()> {
    let cells = cells(latency);
    let mut run = Run {
        latency,
        names: names(&latency.options.peers(DEFAULT)),
        progress: progress(cells.len() * latency.options.groups()),
        rows: Vec::new(),
        versions: Vec::new(),
        reasons: Vec::new(),
    };
    for cell in &cells {
        run.progress.set_message(name(cell));
        run.measure(cell)?;
    }
    run.progress.finish_and_clear();
    run.show()
}

fn cells(latency: &Latency) -> Vec<Cell> {
    let mut cells = Vec::new();
    for pin in latency.options.pins() {
        for &mode in &latency.mode {
            cells.extend(latency.bytes.iter().map(|&bytes| Cell { setup: Setup { bytes, mode }, pin }));
        }
    }
    cells
}

/// The anchor first, its control second, then farcall, then the others.
fn names(peers: &[String]) -> Vec<String> {
    let mut names: Vec<String> = [RAW, CONTROL, FARCALL].map(String::from).into();
    for peer in peers {
        if !names.contains(peer) {
            names.push(peer.clone());
        }
    }
    names
}

fn name(cell: &Cell) -> String {
    format!("{} bytes, {}, pin {}", cell.setup.bytes, cell.setup.mode.name(), cell.pin)
}

/// It is drawn between groups only: a thread that ticks would run on the cores that are measured.
fn progress(groups: usize) -> ProgressBar {
    let style = "{elapsed_precise} {wide_bar} {pos}/{len} groups, {msg}";
    let bar = ProgressBar::new(groups as u64);
    bar.with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

struct Run<'a> {
    latency: &'a Latency,
    names: Vec<String>,
    progress: ProgressBar,
    rows: Vec<Row>,
    versions: Vec<String>,
    /// Why rows are void.
    reasons: Vec<String>,
}

impl Run<'_> {
    /// Measures all peers in one cell; one at a time runs a block.
    fn measure(&mut self, cell: &Cell) -> Result<()> {
        let (options, names) = (&self.latency.options, self.names.clone());
        let contenders = names.iter().map(|name| Contender::new(name, cell));
        let mut contenders = contenders.collect::<Result<Vec<_>>>()?;
        for group in 0..options.groups() {
            if group % (options.groups() / ROUNDS) == 0 {
                contenders.iter_mut().for_each(|contender| contender.pair = None);
            }
            let [raw, others @ ..] = &mut contenders[..] else { unreachable!("raw is always among them") };
            for other in others {
                let ratios = abba(|| raw.time(options.block()), || other.time(options.block()))?;
                other.ratios.extend(ratios);
            }
            self.progress.inc(1);
        }
        self.enter(cell, contenders)
    }

    /// Turns blocks into rows, and counts what the last processes do.
    fn enter(&mut self, cell: &Cell, contenders: Vec<Contender>) -> Result<()> {
        let mut rows = Vec::new();
        for mut contender in contenders {
            let ratio = estimate(std::mem::take(&mut contender.ratios));
            let pair = contender.pair()?;
            let version = pair.version();
            self.versions.extend(version.filter(|version| !self.versions.contains(version)));
            let mut row = count(pair, cell, self.latency.options.quick)?;
            contender.tally.enter(&mut row);
            if let Some(ratio) = ratio {
                row.set_ratio(ratio);
            }
            rows.push(row);
        }
        let reasons = self.faults(cell, &rows);
        rows.iter_mut().for_each(|row| row.void = (!reasons.is_empty()).then_some(true));
        self.reasons.extend(reasons);
        self.rows.extend(rows);
        Ok(())
    }

    /// Why the rows of this cell, raw's first and the control's second, must not be quoted.
    fn faults(&self, cell: &Cell, rows: &[Row]) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(ratio) = rows[1].ratio.filter(|ratio| (ratio - 1.0).abs() > CONTROL_TOLERANCE) {
            faults.push(format!("{}: raw is {ratio:.3} of itself", name(cell)));
        }
        let known = f64::from(self.latency.raw_instructions);
        let off = |count: &f64| (count / known - 1.0).abs() > RAW_TOLERANCE;
        if let Some(count) = rows[0].user_instructions.filter(off) {
            faults.push(format!("{}: raw takes {count:.0} user instructions, not {known}", name(cell)));
        }
        faults
    }

    fn show(self) -> Result<()> {
        let options = &self.latency.options;
        let mut conditions = conditions::conditions(&self.versions);
        let (ratios, calls) = (2 * options.groups(), options.block().calls);
        conditions.push(format!("each ratio the median of {ratios} pairs of blocks of {calls} calls"));
        let rows = report(self.rows, &conditions, &self.reasons, options)?;
        match &options.svg {
            Some(path) => chart::ratios(path, "Latency beside a raw UDP round trip", &rows, &conditions),
            None => Ok(()),
        }
    }
}

/// One peer in one cell.
struct Contender<'a> {
    name: &'a str,
    program: PathBuf,
    cell: &'a Cell,
    pair: Option<Pair>,
    tally: Tally,
    ratios: Vec<f64>,
}

impl<'a> Contender<'a> {
    fn new(name: &'a str, cell: &'a Cell) -> Result<Contender<'a>> {
        let (program, tally) = (peers::program(name)?, Tally::default());
        Ok(Contender { name, program, cell, pair: None, tally, ratios: Vec::new() })
    }

    /// Its processes, started now if there are none.
    fn pair(&mut self) -> Result<&mut Pair> {
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => Pair::start(&self.program, self.name, self.cell)?,
        };
        Ok(self.pair.insert(pair))
    }

    /// Pinned, the processes of all peers stay alive beside each other. Unpinned, each block has fresh
    /// ones: the kernel leaves both sides on one core or on two for as long as they live, which is
    /// worth a factor of two, and must be drawn as often for raw as for the others.
    fn time(&mut self, block: Block) -> Result<f64> {
        if self.cell.pin == Pin::NONE {
            self.pair = None;
        }
        self.pair()?;
        let Contender { pair: Some(pair), tally, .. } = self else { unreachable!("it was started") };
        let middle = pair.time(block, tally)?;
        if self.cell.pin == Pin::NONE {
            self.pair = None;
        }
        Ok(middle)
    }
}

/// A row with what `pair` does for a call.
fn count(pair: &mut Pair, cell: &Cell, quick: bool) -> Result<Row> {
    let block = Block { warm: 200, calls: if quick { 2_000 } else { 10_000 } };
    let mut row = pair.row("latency", cell);
    let events = pair.count(What::Events, block)?;
    // What spins counts its own waiting: its instructions and system calls say nothing.
    if cell.setup.mode == Mode::Spin {
        row.set_counts(Counts { syscalls: None, ..events }, block.calls);
        return Ok(row);
    }
    row.set_counts(events, block.calls);
    row.set_counts(pair.count(What::Instructions, block)?, block.calls);
    Ok(row)
}
