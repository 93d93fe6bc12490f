//! One call outstanding: farcall and its peers beside raw sockets.
use anyhow::Result;
use farcall_bench_method::counters::{Counts, What};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Pair, Row, Setup, Tally, chart};

use crate::field::{Contender, Field, begin_group, name};
use crate::peers::{self, CONTROL, FARCALL, RAW};
use crate::profile;

/// How far raw's user instructions may lie from what they are known to be.
const RAW_TOLERANCE: f64 = 0.05;
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
    /// Instead, say where the instructions of one blocking call of 32 bytes go.
    #[arg(long)]
    profile: bool,
}

/// Measures all cells that the options ask for, and shows them.
pub fn run(latency: &Latency) -> Result<()> {
    if latency.profile {
        return profile::run(&latency.options);
    }
    let cells = cells(latency);
    let names = peers::names(&[RAW, CONTROL, FARCALL], &latency.options);
    let field = Field::new(&names, cells.len() * latency.options.groups())?;
    let mut run = Run { latency, field, rows: Vec::new(), reasons: Vec::new() };
    for cell in &cells {
        run.measure(cell)?;
    }
    run.show()
}

fn cells(latency: &Latency) -> Vec<Cell> {
    let mut cells = Vec::new();
    for pin in latency.options.pins() {
        for &mode in &latency.mode {
            let setup = |&bytes| Setup { bytes, carry: Carry::Both, mode, outstanding: 1 };
            cells.extend(latency.bytes.iter().map(setup).map(|setup| Cell { setup, pin }));
        }
    }
    cells
}

struct Run<'a> {
    latency: &'a Latency,
    field: Field,
    rows: Vec<Row>,
    /// Why rows are void.
    reasons: Vec<String>,
}

impl Run<'_> {
    /// Measures all peers in one cell; one at a time runs a block.
    fn measure(&mut self, cell: &Cell) -> Result<()> {
        let options = &self.latency.options;
        let mut contenders = self.field.contenders(cell)?;
        let mut results: Vec<Results> = contenders.iter().map(|_| Results::default()).collect();
        for group in 0..options.groups() {
            begin_group(group, options.groups(), &mut contenders);
            let ([raw, others @ ..], [raws, results @ ..]) = (&mut contenders[..], &mut results[..]) else {
                unreachable!("raw is always among them")
            };
            for (other, results) in others.iter_mut().zip(results) {
                let raw = || raw.block(|pair| pair.time(options.block(), &mut raws.tally));
                let ratios = abba(raw, || other.block(|pair| pair.time(options.block(), &mut results.tally)))?;
                results.ratios.extend(ratios);
            }
            self.field.progress.inc(1);
        }
        self.enter(cell, contenders, results)
    }

    /// Turns blocks into rows, and counts what the last processes do.
    fn enter(&mut self, cell: &Cell, contenders: Vec<Contender>, results: Vec<Results>) -> Result<()> {
        let mut rows = Vec::new();
        for (mut contender, results) in contenders.into_iter().zip(results) {
            let mut row = count(contender.pair()?, cell, self.latency.options.quick)?;
            results.tally.enter(&mut row);
            if let Some(ratio) = estimate(results.ratios) {
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
        let (ratios, calls) = (2 * options.groups(), options.block().calls);
        let method = format!("each ratio the median of {ratios} pairs of blocks of {calls} calls");
        let (rows, conditions) = self.field.show(self.rows, method, &self.reasons, options)?;
        match &options.svg {
            Some(path) => {
                chart::ratios(path, "Latency beside a raw UDP round trip", "ratio to raw", &rows, &conditions)
            }
            None => Ok(()),
        }
    }
}

/// What the blocks of one peer in one cell have given.
#[derive(Default)]
struct Results {
    tally: Tally,
    ratios: Vec<f64>,
}

/// A row with what `pair` does for a call.
fn count(pair: &mut Pair, cell: &Cell, quick: bool) -> Result<Row> {
    let (warm, load) = (Load::Laps { calls: 200 }, Load::Laps { calls: if quick { 2_000 } else { 10_000 } });
    let mut row = Row { outstanding: Some(1), ..pair.row("latency", cell) };
    let calls = load.calls() * pair.calls_per_lap();
    let events = pair.count(What::Events, warm, load)?;
    // What spins counts its own waiting: its instructions and system calls say nothing.
    if cell.setup.mode == Mode::Spin {
        row.set_counts(Counts { syscalls: None, ..events }, calls);
        return Ok(row);
    }
    row.set_counts(events, calls);
    row.set_counts(pair.count(What::Instructions, warm, load)?, calls);
    Ok(row)
}
