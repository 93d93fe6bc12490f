//! Calls per second, peer by peer: blocks of farcall and of a peer, interleaved.
use anyhow::Result;
use farcall_bench_method::counters::What;
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Cell, Load, Mode, Options, Row};

use crate::field::{Contender, Field, begin_group, retried, unless_lost};

/// The number of the first calls, which show how many calls make a block.
const PILOT: usize = 4 << 20;

/// A peer's row, without a ratio yet.
pub struct Measured {
    pub row: Row,
    /// Its time per call divided by that of the first peer in the neighbouring block. Empty for the first
    /// peer, for which it is 1.
    pub ratios: Vec<f64>,
}

impl Measured {
    pub fn median(&self) -> f64 {
        estimate(self.ratios.clone()).map_or(1.0, |ratio| ratio.median)
    }

    /// Returns the ratios of calls per second to those of another peer, by pairs of blocks. Both blocks of a
    /// pair are next to a block of the first peer in the same group.
    pub fn beside(&self, other: &[f64]) -> Vec<f64> {
        other.iter().enumerate().map(|(n, other)| other / self.ratios.get(n).unwrap_or(&1.0)).collect()
    }
}

/// Describes how [`rates`] measures.
pub fn method(options: &Options) -> String {
    let (ratios, length) = (2 * options.groups(), options.length().as_millis());
    format!("the median of {ratios} pairs of blocks of about {length} ms")
}

/// Measures all peers in one cell under `load`. The number of calls is chosen for each peer such that a block
/// is long enough.
pub fn rates(
    bench: &str,
    field: &mut Field,
    cell: &Cell,
    load: Load,
    options: &Options,
) -> Result<Vec<Measured>> {
    rates_of(bench, field, |_| true, cell, load, options)
}

/// Measures those peers that are `wanted`, as [`rates`] measures all.
pub fn rates_of(
    bench: &str,
    field: &mut Field,
    wanted: impl Fn(&str) -> bool,
    cell: &Cell,
    load: Load,
    options: &Options,
) -> Result<Vec<Measured>> {
    let mut cell = *cell;
    if let Load::Window { outstanding, .. } | Load::Threads { threads: outstanding, .. } = load {
        cell.setup.outstanding = outstanding;
    }
    let contenders = field.some(&cell, wanted)?;
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
        for (other, their) in others.iter_mut().zip(theirs).filter(|(_, their)| their.failed.is_none()) {
            let mut failure = None;
            let mut ours = || ours.time(farcall).inspect_err(|why| failure = Some(why.to_string()));
            let ratios = abba(&mut ours, || their.time(other));
            match unless_lost(ratios, &mut [&mut *farcall, &mut *other]) {
                Ok(ratios) => their.ratios.extend(ratios.into_iter().flatten()),
                Err(why) if failure.is_some() => return Err(why),
                Err(why) => their.failed = Some(why),
            }
        }
        field.progress.inc(1);
    }
    let mut measured = Vec::new();
    for (mut contender, results) in contenders.into_iter().zip(results) {
        match enter(bench, &mut contender, results) {
            Ok(one) => measured.push(one),
            Err(why) => field.leave_out(&contender.name, why)?,
        }
    }
    Ok(measured)
}

/// Returns the calls per second of one peer under `load` while no other peer runs.
pub fn capacity(contender: &mut Contender, load: Load, options: &Options) -> Result<f64> {
    let load = sized(contender, load, options)?;
    let rates = (0..5).map(|_| Ok(contender.pair()?.rate(load, load)?.0));
    Ok(estimate(rates.collect::<Result<_>>()?).map_or(0.0, |rate| rate.median))
}

/// Returns `load` with as many calls as take about the length of a block.
pub fn sized(contender: &mut Contender, load: Load, options: &Options) -> Result<Load> {
    let mut calls = (PILOT / contender.cell.setup.bytes.max(1)).clamp(1, 64);
    loop {
        let (rate, _) = retried(contender, |pair| pair.rate(load.of(1), load.of(calls)))?;
        let enough = (rate * options.length().as_secs_f64()) as usize;
        // A short block predicts a long one badly, because its start has a large share.
        if enough <= 4 * calls {
            return Ok(load.of(enough.max(1)));
        }
        calls = enough;
    }
}

/// The results of the blocks of one peer.
struct Results {
    load: Load,
    per_second: Vec<f64>,
    server_time: Vec<f64>,
    /// Its time per call divided by farcall's in the neighbouring block; empty for farcall.
    ratios: Vec<f64>,
    /// Why the peer no longer runs.
    failed: Option<anyhow::Error>,
}

impl Results {
    fn new(load: Load) -> Results {
        Results { load, per_second: Vec::new(), server_time: Vec::new(), ratios: Vec::new(), failed: None }
    }

    /// Runs a block, and returns the time per call.
    fn time(&mut self, contender: &mut Contender) -> Result<f64> {
        let warm = self.load.of(self.load.calls().div_ceil(10));
        let (rate, server_time) = contender.block(|pair| pair.rate(warm, self.load))?;
        self.per_second.push(rate);
        self.server_time.push(server_time);
        Ok(1.0 / rate)
    }
}

/// Returns the row of a peer that did not fail.
fn enter(bench: &str, contender: &mut Contender, results: Results) -> Result<Measured> {
    if let Some(why) = results.failed {
        return Err(why);
    }
    let cell = contender.cell;
    let pair = contender.pair()?;
    let mut row = pair.row(bench, &cell);
    match results.load {
        Load::Threads { threads, .. } => (row.outstanding, row.threads) = (Some(threads), Some(threads)),
        Load::Window { outstanding, .. } | Load::Polled { outstanding, .. } => {
            row.outstanding = Some(outstanding)
        }
        Load::Laps { .. } | Load::Short { .. } | Load::Burn { .. } | Load::Open { .. } => {}
    }
    // A spinning process counts its own waiting.
    if cell.setup.mode == Mode::Block {
        let warm = results.load.of(results.load.calls().div_ceil(10));
        for what in [What::Events, What::Instructions] {
            row.set_counts(pair.count(what, warm, results.load)?, results.load.calls());
        }
        let time = estimate(results.server_time).filter(|time| time.median > 0.0);
        row.server_cpu_us = time.map(|time| (time.median / 10.0).round() / 100.0);
    }
    row.per_second = estimate(results.per_second).map(|rate| (rate.median * 1e3).round() / 1e3);
    Ok(Measured { row, ratios: results.ratios })
}
