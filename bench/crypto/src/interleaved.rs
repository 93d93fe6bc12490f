//! Times parts in turn, so that what the machine does meanwhile falls on all of them alike.
use std::hint::black_box;

use anyhow::{Result, ensure};
use farcall_bench_method::counters::processor_time;
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{Options, Row};

use crate::callgrind::{self, Count, counted_region};

/// The processor time of one part in a round, in nanoseconds.
const BLOCK: f64 = 1e6;

/// What is timed: executes something once, and returns whether it went well.
pub struct Part {
    pub name: &'static str,
    /// What it does.
    pub operation: &'static str,
    /// The payload's length.
    pub bytes: Option<usize>,
    pub run: Box<dyn FnMut() -> bool>,
}

/// Times all `parts`, and returns a row for each. Ratios are to the first one that does the same.
pub fn rows(bench: &str, mut parts: Vec<Part>, options: &Options) -> Result<Vec<Row>> {
    let sizes = parts.iter_mut().map(size).collect::<Result<Vec<_>>>()?;
    let mut times = vec![Vec::new(); parts.len()];
    for round in 0..options.groups() {
        let order = 0..parts.len();
        // Every other round runs backwards, so that no part always comes after the same one.
        let order: Vec<usize> = if round % 2 == 0 { order.collect() } else { order.rev().collect() };
        for at in order {
            times[at].push(time(&mut parts[at], sizes[at])?);
        }
    }
    let enter = |(part, each): (&Part, &Vec<f64>)| {
        let what = part.bytes.unwrap_or_default().to_string();
        let mut row = Row {
            bench: bench.into(),
            peer: part.name.into(),
            operation: Some(part.operation.into()),
            bytes: part.bytes,
            nanoseconds: median(each),
            user_instructions: callgrind::count(bench, &format!("{}/{}", part.name, part.operation), &what)?,
            ..Row::default()
        };
        let anchor = parts.iter().position(|one| one.operation == part.operation).unwrap_or_default();
        ratio(each, &times[anchor]).into_iter().for_each(|ratio| row.set_ratio(ratio));
        Ok(row)
    };
    parts.iter().zip(&times).map(enter).collect()
}

/// Executes the part that `count` names, to be counted.
pub fn count(parts: Vec<Part>, count: &Count) -> Result<()> {
    for mut part in parts {
        if format!("{}/{}", part.name, part.operation) == count.part {
            let mut well = (part.run)();
            (0..count.times).for_each(|_| counted_region(&mut || well &= (part.run)()));
            ensure!(well, "{} failed", part.name);
        }
    }
    Ok(())
}

pub fn median(values: &[f64]) -> Option<f64> {
    estimate(values.to_vec()).map(|estimate| (estimate.median * 10.0).round() / 10.0)
}

/// Returns the ratio of each time to that of the same round in `anchors`.
pub fn ratio(times: &[f64], anchors: &[f64]) -> Option<Estimate> {
    estimate(times.iter().zip(anchors).map(|(time, anchor)| time / anchor).collect())
}

/// Returns how many executions fill a block.
fn size(part: &mut Part) -> Result<usize> {
    let mut times = 1;
    loop {
        let took = time(part, times)? * times as f64;
        if took >= BLOCK {
            return Ok(times);
        }
        times *= 2;
    }
}

/// Returns the nanoseconds of one execution.
fn time(part: &mut Part, times: usize) -> Result<f64> {
    let (began, mut well) = (processor_time(), true);
    for _ in 0..times {
        well &= black_box((part.run)());
    }
    let took = processor_time() - began;
    ensure!(well, "{} ({}) failed", part.name, part.operation);
    Ok(took as f64 / times as f64)
}
