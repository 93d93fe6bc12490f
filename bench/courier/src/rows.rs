//! The measured figures as flat objects, for `--json`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

use crate::figures::{Figures, Summary};
use crate::interface::{TESTS, Test};
use crate::network::Network;
use crate::paper::{TABLE_1, TABLE_2};
use crate::ways::Way;

/// The figures of one way and test on one network. Seconds are those of all calls of a run.
#[derive(Serialize)]
struct Row<'a> {
    bench: &'static str,
    network: &'static str,
    way: &'static str,
    bytes: usize,
    has_result: bool,
    calls: u32,
    runs: usize,
    min_s: f64,
    max_s: f64,
    mean_s: f64,
    deviation_s: f64,
    corrected_mean_s: Option<f64>,
    /// Until the last call had returned, also where calls have no reply.
    loop_mean_s: Option<f64>,
    ms_per_call: f64,
    calls_per_second: f64,
    /// Of all runs together.
    timeouts: u32,
    lost: Option<u64>,
    cpu_s: Option<f64>,
    cpu_write_s: Option<f64>,
    cpu_read_s: Option<f64>,
    cpu_codec_s: Option<f64>,
    bytes_sent: Option<u64>,
    bytes_received: Option<u64>,
    /// To the same bytes without a protocol.
    bound_ratio: Option<f64>,
    bound_ratio_low: Option<f64>,
    bound_ratio_high: Option<f64>,
    /// Of 2,000 calls.
    paper_mean_s: Option<f64>,
    paper_deviation_s: Option<f64>,
    conditions: &'a str,
}

/// Writes an array with one row per line; to standard output for `-`.
pub fn write(path: &Path, figures: &Figures, conditions: &[String]) -> Result<()> {
    let conditions = conditions.join("; ");
    let cells = Network::ALL.into_iter().flat_map(|network| {
        Way::value_variants().iter().flat_map(move |way| TESTS.map(|test| (network, *way, test)))
    });
    let rows = cells.filter_map(|cell| row(figures, cell, &conditions));
    let lines = rows.map(|row| serde_json::to_string(&row)).collect::<Result<Vec<_>, _>>()?;
    let mut out: Box<dyn Write> = match path == Path::new("-") {
        true => Box::new(std::io::stdout()),
        false => Box::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?),
    };
    Ok(out.write_all(format!("[\n{}\n]\n", lines.join(",\n")).as_bytes())?)
}

fn row<'a>(
    figures: &Figures,
    (network, way, test): (Network, Way, Test),
    conditions: &'a str,
) -> Option<Row<'a>> {
    let cell = figures.cell(network, way, test)?;
    let elapsed = Summary::of(cell.runs.iter().map(|(run, _)| run.seconds))?;
    let scale = f64::from(figures.calls) / crate::figures::PAPER_CALLS;
    let times = figures.times(network, way, test);
    let profile = cell.profiles.first();
    let ratio = way.bound().and_then(|bound| figures.ratio(network, way, bound, test));
    let paper = match way {
        Way::Courier => Some(&TABLE_1),
        Way::Pcourier => Some(&TABLE_2),
        _ => None,
    };
    let place = Network::ALL.iter().position(|other| *other == network)?;
    let paper = paper.and_then(|paper| paper.get(place)?[test.row()]);
    Some(Row {
        bench: "courier",
        network: network.name(),
        way: way.name(),
        bytes: test.bytes(),
        has_result: test.has_result,
        calls: figures.calls,
        runs: cell.runs.len(),
        min_s: elapsed.min,
        max_s: elapsed.max,
        mean_s: elapsed.mean,
        deviation_s: elapsed.deviation,
        corrected_mean_s: figures.corrected(network, way, test).map(|corrected| corrected.mean * scale),
        loop_mean_s: Summary::of(cell.runs.iter().map(|(run, _)| run.loop_seconds)).map(|all| all.mean),
        ms_per_call: elapsed.mean / f64::from(figures.calls) * 1e3,
        calls_per_second: f64::from(figures.calls) / elapsed.mean,
        timeouts: cell.runs.iter().map(|(run, _)| run.timeouts).sum(),
        lost: figures.lost(network, way, test),
        cpu_s: cell.cpu_seconds(),
        cpu_write_s: times.map(|times| times.write * scale),
        cpu_read_s: times.map(|times| times.read * scale),
        cpu_codec_s: times.map(|times| times.codec * scale),
        bytes_sent: profile.map(|profile| profile.sent),
        bytes_received: profile.map(|profile| profile.received),
        bound_ratio: ratio.map(|ratio| ratio.median),
        bound_ratio_low: ratio.map(|ratio| ratio.low),
        bound_ratio_high: ratio.map(|ratio| ratio.high),
        paper_mean_s: paper.map(|paper| paper.mean),
        paper_deviation_s: paper.map(|paper| paper.deviation),
        conditions,
    })
}
