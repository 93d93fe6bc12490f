//! Many calls outstanding: how many a second, beside the best of the peers.
use anyhow::Result;
use farcall_bench_method::counters::What;
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup, chart};

use crate::field::{Contender, Field, begin_group};
use crate::peers::{self, FARCALL, RAW};

#[derive(Debug, clap::Args)]
pub struct Throughput {
    #[command(flatten)]
    options: Options,
    /// Payloads of the call and of its result; 0 is the null call.
    #[arg(long, value_delimiter = ',', default_values_t = [32, 4000])]
    bytes: Vec<usize>,
    /// How many calls one thread of the client has outstanding.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 256])]
    outstanding: Vec<usize>,
    /// How both sides wait.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Block])]
    mode: Vec<Mode>,
    /// How many threads of the client call and block, or 0 for none.
    #[arg(long, value_delimiter = ',', default_values_t = [256])]
    threads: Vec<usize>,
}

/// Measures all cells that the options ask for, and shows them.
pub fn run(throughput: &Throughput) -> Result<()> {
    let (options, loads) = (&throughput.options, loads(throughput));
    let pins = options.pinned();
    let names = peers::names(&[FARCALL, RAW], options);
    let setups = throughput.mode.iter().flat_map(|&mode| {
        let setup = move |&bytes| Setup { bytes, carry: Carry::Both, mode, outstanding: 1 };
        throughput.bytes.iter().map(setup)
    });
    let setups: Vec<Setup> = setups.collect();
    let steps = pins.len() * setups.len() * loads.len() * options.groups();
    let mut field = Field::new(&names, steps)?;
    let mut rows = Vec::new();
    for pin in pins {
        for &setup in &setups {
            let cell = Cell { setup, pin };
            for &load in &loads {
                rows.extend(rates("throughput", &mut field, &cell, load, options)?);
            }
        }
    }
    let (rows, conditions) = field.show(rows, method(options), &[], options)?;
    match &options.svg {
        Some(path) => chart::ratios(path, "Calls per second", "ratio to the best peer", &rows, &conditions),
        None => Ok(()),
    }
}

/// How [`rates`] measures, in a line.
pub fn method(options: &Options) -> String {
    let (ratios, length) = (2 * options.groups(), options.length().as_millis());
    format!("each ratio, to the best peer beside farcall, the median of {ratios} pairs of blocks of about {length} ms")
}

fn loads(throughput: &Throughput) -> Vec<Load> {
    let windows = throughput.outstanding.iter().map(|&outstanding| Load::Window { outstanding, calls: 0 });
    let threads = throughput.threads.iter().filter(|&&threads| threads > 0);
    windows.chain(threads.map(|&threads| Load::Threads { threads, calls: 0 })).collect()
}

/// Measures all peers in one cell under `load`, whose number of calls is chosen for each of them so
/// that a block is long enough.
pub fn rates(bench: &str, field: &mut Field, cell: &Cell, load: Load, options: &Options) -> Result<Vec<Row>> {
    let mut cell = *cell;
    if let Load::Window { outstanding, .. } | Load::Threads { threads: outstanding, .. } = load {
        cell.setup.outstanding = outstanding;
    }
    let contenders = field.contenders(&cell)?;
    let mut loads = Vec::new();
    let mut contenders = field.retain(contenders, |contender| {
        loads.push(sized(contender, load, options)?);
        Ok(())
    })?;
    let mut results: Vec<Results> = loads.into_iter().map(Results::new).collect();
    for group in 0..options.groups() {
        begin_group(group, options.groups(), &mut contenders);
        let ([farcall, others @ ..], [ours, theirs @ ..]) = (&mut contenders[..], &mut results[..]) else {
            break;
        };
        for (other, their) in others.iter_mut().zip(theirs) {
            let ratios = abba(|| ours.time(farcall), || their.time(other))?;
            their.ratios.extend(ratios);
        }
        field.progress.inc(1);
    }
    enter(bench, &cell, contenders, results)
}

/// `load` with as many calls as take about the length of a block.
fn sized(contender: &mut Contender, load: Load, options: &Options) -> Result<Load> {
    let mut calls = 64;
    loop {
        let (rate, _) = contender.pair()?.rate(load.of(1), load.of(calls))?;
        let enough = (rate * options.length().as_secs_f64()) as usize;
        // A short block says little about a long one: its start counts for much.
        if enough <= 4 * calls {
            return Ok(load.of(enough.max(1)));
        }
        calls = enough;
    }
}

/// What the blocks of one peer have given.
struct Results {
    load: Load,
    per_second: Vec<f64>,
    server_time: Vec<f64>,
    /// Its time for a call ÷ farcall's in the block beside it; empty for farcall.
    ratios: Vec<f64>,
}

impl Results {
    fn new(load: Load) -> Results {
        Results { load, per_second: Vec::new(), server_time: Vec::new(), ratios: Vec::new() }
    }

    /// Runs a block and returns the time for a call.
    fn time(&mut self, contender: &mut Contender) -> Result<f64> {
        let warm = self.load.of(self.load.calls().div_ceil(10));
        let (rate, server_time) = contender.block(|pair| pair.rate(warm, self.load))?;
        self.per_second.push(rate);
        self.server_time.push(server_time);
        Ok(1.0 / rate)
    }
}

fn enter(bench: &str, cell: &Cell, contenders: Vec<Contender>, results: Vec<Results>) -> Result<Vec<Row>> {
    let best = best(&contenders, &results);
    let mut rows = Vec::new();
    for (mut contender, results) in contenders.into_iter().zip(results) {
        let pair = contender.pair()?;
        let mut row = pair.row(bench, cell);
        match results.load {
            Load::Threads { threads, .. } => (row.outstanding, row.threads) = (Some(threads), Some(threads)),
            Load::Window { outstanding, .. } => row.outstanding = Some(outstanding),
            Load::Laps { .. } | Load::Open { .. } => {}
        }
        let warm = results.load.of(results.load.calls().div_ceil(10));
        // What spins counts its own waiting.
        if cell.setup.mode == Mode::Block {
            for what in [What::Events, What::Instructions] {
                row.set_counts(pair.count(what, warm, results.load)?, results.load.calls());
            }
            let time = estimate(results.server_time).filter(|time| time.median > 0.0);
            row.server_cpu_us = time.map(|time| (time.median / 10.0).round() / 100.0);
        }
        row.per_second = estimate(results.per_second).map(|rate| rate.median.round());
        if let Some(ratio) = best.as_deref().and_then(|best| estimate(beside(best, &results.ratios))) {
            row.set_ratio(ratio);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The ratios of the fastest peer; raw sockets are none, unless there is no other.
fn best(contenders: &[Contender], results: &[Results]) -> Option<Vec<f64>> {
    let all = || contenders.iter().zip(results).filter(|(_, results)| !results.ratios.is_empty());
    let median = |results: &Results| estimate(results.ratios.clone()).map_or(f64::MAX, |ratio| ratio.median);
    let fastest = |raw| {
        let those = all().filter(|(contender, _)| peers::is_raw(&contender.name) == raw);
        those.map(|(_, results)| results).min_by(|a, b| median(a).total_cmp(&median(b)))
    };
    fastest(false).or_else(|| fastest(true)).map(|results| results.ratios.clone())
}

/// Calls per second ÷ those of the best, pair of blocks by pair of blocks: both stand beside a block
/// of farcall's in the same group. Farcall itself has no ratios, being 1.
fn beside(best: &[f64], own: &[f64]) -> Vec<f64> {
    best.iter().enumerate().map(|(n, best)| best / own.get(n).unwrap_or(&1.0)).collect()
}
