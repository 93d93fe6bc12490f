//! Latency of calls, peer by peer: blocks of an anchor and of a peer, interleaved.
use anyhow::Result;
use farcall_bench_method::counters::{Counts, What};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Cell, Load, Mode, Options, Pair, Row, Tally};

use crate::field::{Contender, begin_group, name, retried, unless_lost};
use crate::rates::Measured;

/// The most by which raw's user instructions may differ from their known number.
const RAW_TOLERANCE: f64 = 0.05;
/// The most by which the ratio of raw to itself may differ from 1.
const CONTROL_TOLERANCE: f64 = 0.02;

/// Describes how [`laps`] measures.
pub fn method(options: &Options) -> String {
    let (ratios, calls) = (2 * options.groups(), options.block().calls);
    format!("each ratio the median of {ratios} pairs of blocks of {calls} calls")
}

/// Measures all peers in one cell; only one at a time runs a block. The first is the anchor. `progress` is
/// called after each of [`Options::groups`].
pub fn laps(
    bench: &str,
    mut contenders: Vec<Contender>,
    options: &Options,
    mut progress: impl FnMut(),
) -> Result<Vec<Measured>> {
    let mut results: Vec<Results> = contenders.iter().map(|_| Results::default()).collect();
    for group in 0..options.groups() {
        begin_group(group, options.groups(), &mut contenders);
        let ([anchor, others @ ..], [anchors, results @ ..]) = (&mut contenders[..], &mut results[..]) else {
            break;
        };
        for (other, results) in others.iter_mut().zip(results) {
            let ratios = abba(
                || anchor.block(|pair| pair.time(options.block(), &mut anchors.tally)),
                || other.block(|pair| pair.time(options.block(), &mut results.tally)),
            );
            let ratios = unless_lost(ratios, &mut [&mut *anchor, &mut *other])?;
            results.ratios.extend(ratios.into_iter().flatten());
        }
        progress();
    }
    let enter = |(mut contender, results): (Contender, Results)| {
        let cell = contender.cell;
        let mut row = retried(&mut contender, |pair| count(bench, pair, &cell, options.quick))?;
        results.tally.enter(&mut row);
        estimate(results.ratios.clone()).into_iter().for_each(|ratio| row.set_ratio(ratio));
        Ok(Measured { row, ratios: results.ratios })
    };
    contenders.into_iter().zip(results).map(enter).collect()
}

/// Returns why the rows of a cell must not be quoted. Raw's row is the first, and the control's the second.
/// The user instructions of a raw round trip are known.
pub fn faults(cell: &Cell, rows: &[Row], known: f64) -> Vec<String> {
    let mut faults = Vec::new();
    let far = |ratio: &f64| (ratio - 1.0).abs() > CONTROL_TOLERANCE;
    if let Some(ratio) = rows.get(1).and_then(|row| row.ratio).filter(far) {
        faults.push(format!("{}: {} is {ratio:.3} of itself", name(cell), rows[0].peer));
    }
    let off = |count: &f64| (count / known - 1.0).abs() > RAW_TOLERANCE;
    if let Some(count) = rows.first().and_then(|row| row.user_instructions).filter(off) {
        faults.push(format!("{}: raw takes {count:.0} user instructions, not {known}", name(cell)));
    }
    faults
}

/// The results of the blocks of one peer in one cell.
#[derive(Default)]
struct Results {
    tally: Tally,
    ratios: Vec<f64>,
}

/// Returns a row with the counts of `pair` per call.
fn count(bench: &str, pair: &mut Pair, cell: &Cell, quick: bool) -> Result<Row> {
    let (warm, load) = (Load::Laps { calls: 200 }, Load::Laps { calls: if quick { 2_000 } else { 10_000 } });
    let mut row = Row { outstanding: Some(1), ..pair.row(bench, cell) };
    let calls = load.calls() * pair.calls_per_lap();
    let events = pair.count(What::Events, warm, load)?;
    // A spinning process counts its own waiting, so its instructions and system calls say nothing.
    if cell.setup.mode == Mode::Spin {
        row.set_counts(Counts { syscalls: None, ..events }, calls);
        return Ok(row);
    }
    row.set_counts(events, calls);
    let [client, server] = pair.count_each(What::Instructions, warm, load)?;
    row.set_counts(client.and(server), calls);
    row.set_server_counts(server, calls);
    Ok(row)
}
